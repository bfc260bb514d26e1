"""The programs of the pages print what the pages say."""

import contextlib
import importlib.util
import io
import re
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parents[1]
PAGES = [HERE / "README.md", HERE.parents[1] / "README.md"]


@pytest.mark.parametrize("page", PAGES, ids=["adapter", "front"])
def test_programs(page):
    blocks = re.findall(r"```(python|text)\n(.*?)```", page.read_text(), re.DOTALL)
    programs = [(at, text) for at, (language, text) in enumerate(blocks) if language == "python"]
    assert programs, f"{page} has no program"
    for at, program in programs:
        if "import torch" in program and importlib.util.find_spec("torch") is None:
            continue
        language, expected = [*blocks, ("", "")][at + 1]
        expected = expected if language == "text" else ""
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(compile(program, str(page), "exec"), {})
        assert printed.getvalue() == expected

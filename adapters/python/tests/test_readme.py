"""The programs of the pages print what the pages say."""

import contextlib
import io
import re
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parents[1]
PAGES = [HERE / "README.md", HERE.parents[1] / "README.md"]


@pytest.mark.parametrize("page", PAGES, ids=["adapter", "front"])
def test_programs(page):
    programs = re.findall(r"```python\n(.*?)```.*?```text\n(.*?)```", page.read_text(), re.DOTALL)
    assert programs, f"{page} has no program"
    for program, expected in programs:
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(compile(program, str(page), "exec"), {})
        assert printed.getvalue() == expected

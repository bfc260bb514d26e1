"""Pages of kernels are whole and need nothing else."""

import html
import json
import subprocess
from html.parser import HTMLParser
from pathlib import Path

import falchion
import numpy as np
import pytest


class Tags(HTMLParser):
    """Tags that are open, and all text."""

    def __init__(self):
        super().__init__()
        self.open, self.text = [], ""

    def handle_starttag(self, tag, attributes):
        assert not any(name in ("src", "href") for name, _ in attributes)
        if tag not in ("meta", "rect", "path", "line"):
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        pass

    def handle_endtag(self, tag):
        if tag in self.open:
            assert self.open.pop() == tag

    def handle_data(self, data):
        self.text += data


def data(document):
    """What a page shows."""
    _, rest = document.split('<script type="application/json" id="data">')
    return json.loads(rest.split("</script>")[0])


# The command line of the same build.
COMMAND = Path(falchion.__file__).parents[3] / "ci/falchion"


@pytest.mark.parametrize("types", ["bf16", "e4m3", "f64"])
def test_kernels_have_pages(types, tmp_path):
    kernel = falchion.plan(512, 512, 512, types=types, layout="kk")[0]
    page = falchion.explore((512, 512, 512), types=types, layout="kk")
    page.save(tmp_path / "kernel.html")
    document = (tmp_path / "kernel.html").read_text()
    assert document.startswith("<!doctype html>") and document == page.document
    # A notebook's frame has the same document.
    frame = page._repr_html_()
    assert frame.count('"') == 4 and html.unescape(frame.split('srcdoc="')[1].split('"')[0]) == document
    shown = data(document)["kernel"]
    assert shown["overview"]["spec"] == kernel.spec and shown["overview"]["rust_type"] == f"Gemm<{kernel.rust_type}>"
    assert shown["order"]["products"] == [[512, 512, 512]] and shown["run"]["events"] and shown["run"]["trap"] is None
    assert data(falchion.explore(kernel).document)["kernel"]["order"]["products"] != [[512, 512, 512]]
    with pytest.raises(ValueError, match="types is given with a kernel"):
        falchion.explore(kernel, types=types)
    if not COMMAND.exists():
        pytest.skip("needs the command line of the same build")
    command = [COMMAND, "explore", "--kernel", kernel.spec, "--m", "512", "--n", "512", "--k", "512", "-o", "-"]
    written = subprocess.run(command, check=True, capture_output=True, text=True, encoding="utf-8").stdout
    assert data(written)["kernel"] == shown


def test_kernels_of_several_products_have_pages():
    a, b = np.ones((3, 16, 64), np.float16), np.ones((64, 32), np.float16)
    groups = np.array([0, 7, 16], np.int32)
    epilogue = falchion.check(a[0], b, schedules=1, epilogue="relu(acc + bias[n])", bias=np.ones(32, np.float16))
    for kernel, count, note in [
        (falchion.check(a, b, schedules=1), 1, None),
        (falchion.check(a[0], np.stack([b, b]), groups=groups, schedules=1), 4, "computes several GEMMs"),
        (epilogue, 1, "without its fused epilogue"),
    ]:
        shown = data(falchion.explore(kernel).document)["kernel"]
        assert len(shown["order"]["products"]) == count and (note or "") in (shown["run_note"] or "")
    batch = data(falchion.explore((64, 64, 64), batch=5).document)["kernel"]
    assert batch["order"]["products"] == [[64, 64, 64]] * 5
    with pytest.raises(ValueError, match="batch is 65537, at most 65536 are drawn"):
        falchion.explore((64, 64, 64), batch=65537)


def test_notebooks_show_kernels():
    kernel = falchion.plan(512, 512, 512)[0]
    tags = Tags()
    tags.feed(kernel._repr_html_())
    assert not tags.open and kernel.spec in tags.text and kernel.rust_type in tags.text and ".target sm_90a" in tags.text

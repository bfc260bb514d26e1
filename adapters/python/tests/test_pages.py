"""Pages of kernels are whole and need nothing else."""

from html.parser import HTMLParser

import falchion
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


@pytest.mark.parametrize("types", ["bf16", "e4m3", "f64"])
def test_kernels_have_pages(types, tmp_path):
    kernel = falchion.plan(512, 512, 512, types=types, layout="kk")[0]
    page = falchion.explore((512, 512, 512), types=types, layout="kk")
    assert page._repr_html_() == kernel._repr_html_()
    tags = Tags()
    tags.feed(page._repr_html_())
    assert not tags.open and kernel.spec in tags.text and kernel.rust_type in tags.text and ".target sm_90a" in tags.text
    page.save(tmp_path / "kernel.html")
    assert "<!doctype html>" in (tmp_path / "kernel.html").read_text()
    with pytest.raises(ValueError, match="types is given with a kernel"):
        falchion.explore(kernel, types=types)

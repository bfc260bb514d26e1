"""Pages that show a kernel, in a notebook or as a file."""

from __future__ import annotations

import os
from html import escape
from typing import Any

from ._native import Kernel, page, plan

__all__ = ["Page", "explore"]


class Page:
    """A page of HTML: a notebook shows it in a frame, `save` writes it as a file."""

    def __init__(self, document: str) -> None:
        self.document = document

    def _repr_html_(self) -> str:
        # The page has scripts and a style of its own, which a frame keeps apart from the notebook's.
        return f'<iframe style="width:100%;height:45em;border:0" srcdoc="{escape(self.document)}"></iframe>'

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the page as one file that needs no network."""
        with open(path, "w", encoding="utf-8") as file:
            file.write(self.document)


def explore(kernel: Kernel | tuple[int, int, int], **keywords: Any) -> Page:
    """The page of a kernel that `falchion explore` of the command line writes: of one that `plan`, `tune` or `check` returned, or the
    first that `plan(m, n, k, **keywords)` finds for extents (m, n, k).

    It has the kernel's numbers, shared memory with its swizzles and banks, the operands of wgmma, the order of the output's tiles,
    the cluster, and the timeline of a small run in the emulator, which takes a second or two.
    """
    extents, title = None, "A kernel of falchion"
    if isinstance(kernel, tuple):
        extents, title = kernel, "{} x {} x {}".format(*kernel)
        kernel = plan(*kernel, **keywords)[0]
    elif not isinstance(kernel, Kernel):
        raise ValueError(f"kernel is of type {type(kernel).__name__}, extents (m, n, k) or a Kernel was needed")
    elif keywords:
        raise ValueError(f"{next(iter(keywords))} is given with a kernel: extents (m, n, k) were needed")
    return Page(page(kernel, title, extents, keywords.get("batch", 1)))

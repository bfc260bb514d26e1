"""Pages that show a kernel, in a notebook or as a file."""

from __future__ import annotations

import os
from typing import Any

from ._native import Kernel, plan

__all__ = ["Page", "explore"]


class Page:
    """A page of HTML: a notebook shows it, `save` writes it as a file."""

    def __init__(self, title: str, body: str) -> None:
        self.title, self.body = title, body

    def _repr_html_(self) -> str:
        return self.body

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the page as one file that needs no network."""
        style = "<style>:root{color-scheme:light dark}body{font-family:sans-serif;margin:2em}pre{overflow:auto;max-height:30em}th{padding-right:1em;vertical-align:top}</style>"
        with open(path, "w", encoding="utf-8") as file:
            file.write(f"<!doctype html><html lang=en><meta charset=utf-8><title>{self.title}</title>{style}<h1>{self.title}</h1>{self.body}</html>\n")


def explore(kernel: Kernel | tuple[int, int, int], **keywords: Any) -> Page:
    """A page of a kernel: of one that `plan`, `tune` or `check` returned, or the first that `plan(m, n, k, **keywords)` finds for
    extents (m, n, k). It has the kernel's numbers, the banks of shared memory in which a tile lies, its type and its program.

    `falchion explore` of the command line also shows the order of tiles and the timeline of an emulated run.
    """
    title = "A kernel of falchion"
    if isinstance(kernel, tuple):
        title = "{} x {} x {}".format(*kernel)
        kernel = plan(*kernel, **keywords)[0]
    elif not isinstance(kernel, Kernel):
        raise ValueError(f"kernel is of type {type(kernel).__name__}, extents (m, n, k) or a Kernel was needed")
    elif keywords:
        raise ValueError(f"{next(iter(keywords))} is given with a kernel: extents (m, n, k) were needed")
    return Page(title, kernel._repr_html_())

"""Checks of PTX that anybody wrote, in the emulator."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from . import _native
from ._native import Fault

__all__ = ["CompilerReport", "Report", "check_compiler", "check_ptx"]


class Report:
    """What a check found. `print` shows it.

    `findings`: a dictionary for each finding, errors first: `rule`, `meaning`, `section` of the PTX ISA, `severity` ("error" or "warning"),
    `status` ("new" or "suppressed"), `kernel`, `message`, `spot` (`file`, `line`, `column` and `text` of the statement, and `origin`, file
    and line of the source that the PTX names), `thread`, `related` places, the number of the `launch`, the first `schedule` that found it and
    its `seed`, the number of `schedules` that found it, and a `fingerprint`.
    """

    def __init__(self, report: str, text: str, sarif: str) -> None:
        values = json.loads(report)
        self.findings: list[dict[str, Any]] = values["findings"]
        self.kernels: list[str] = [kernel["kernel"] for kernel in values["kernels"]]
        self.schedules: int = values["schedules"]
        self._text, self._sarif = text, sarif

    @property
    def errors(self) -> list[dict[str, Any]]:
        """The errors that are not suppressed."""
        return [of for of in self.findings if of["severity"] == "error" and of["status"] == "new"]

    @property
    def warnings(self) -> list[dict[str, Any]]:
        """The warnings that are not suppressed."""
        return [of for of in self.findings if of["severity"] == "warning" and of["status"] == "new"]

    def expect(self) -> Report:
        """The report itself if it has no errors; raises `Fault` with its text otherwise."""
        if self.errors:
            raise Fault(self._text)
        return self

    def save_sarif(self, path: str | os.PathLike[str]) -> None:
        """Writes the findings as SARIF 2.1.0."""
        Path(path).write_text(self._sarif + "\n", encoding="utf-8")

    def __str__(self) -> str:
        return self._text

    def __repr__(self) -> str:
        return f"<Report: {len(self.errors)} errors, {len(self.warnings)} warnings under {self.schedules} schedules>"


def check_ptx(
    source: str | os.PathLike[str],
    launch: dict[str, Any] | str | os.PathLike[str] | None = None,
    *,
    schedules: int = 50,
    seed: int = 0,
    suppress: Iterable[str] = (),
) -> Report:
    """Runs PTX in the emulator under four fixed schedules and `schedules` random ones, and reports races, hangs, missing fences, accesses out
    of bounds and wrong results.

    `source` is the text of a module (it begins with `.version`, after comments), or the path of one. `launch` says what it is launched
    with: a description in TOML, by its path, or the same keys as a dictionary; by default the file beside the PTX, `kernel.launch.toml` for
    `kernel.ptx`. In a dictionary a buffer may have `data`, bytes or an array whose elements are its content, and its `want` may have
    `data` too; other files are relative to the current folder. The keys are those of `falchion check` of the command line, which
    the documentation of the crate's module `check` lists.

    `suppress` has rules whose findings are expected: "shared-race", or "shared-race:120-140" for those lines of the PTX. Raises `ValueError`
    for PTX that is not read, with the line, and for a launch that does not fit it.
    """
    text, file = (source, "kernel.ptx") if isinstance(source, str) and "\n" in source else (None, str(source))
    if text is None:
        text = Path(source).read_text(encoding="utf-8")
        launch = Path(source).with_suffix(".launch.toml") if launch is None else launch
    if launch is None:
        raise ValueError("launch was needed: what the kernel is launched with")
    given: dict[str, bytes] = {}
    is_json, folder = isinstance(launch, dict), Path()
    if isinstance(launch, dict):
        described = json.dumps(_described(launch, given))
    else:
        described, folder = Path(launch).read_text(encoding="utf-8"), Path(launch).parent

    def fetch(name: str) -> bytes:
        return given[name] if name in given else (folder / name).read_bytes()

    options = {"schedules": schedules, "seed": seed, "suppress": list(suppress)}
    return Report(*_native.checked(described, fetch, is_json=is_json, text=text, file=file, **options))


class CompilerReport:
    """What the self-test of a compiler found. `print` shows it.

    `micros`: a dictionary for each micro-kernel: `name`, `about`, `ours` (whether kernels of this library do so, too), and `wrong`, None or the
    first word that differs (`thread`, `word`, `is`, `want`) with the `count` of all. `compiler` is what compiled them, None in the emulator.
    """

    def __init__(self, report: str, text: str) -> None:
        values = json.loads(report)
        self.device: str = values["device"]
        self.compiler: str | None = values["compiler"]
        self.micros: list[dict[str, Any]] = values["micros"]
        self._text = text

    @property
    def wrong(self) -> list[str]:
        """The names of the micro-kernels with wrong bits."""
        return [micro["name"] for micro in self.micros if micro["wrong"] is not None]

    def __str__(self) -> str:
        return self._text

    def __repr__(self) -> str:
        return f"<CompilerReport: {len(self.wrong)} of {len(self.micros)} micro-kernels are wrong>"


def check_compiler(card: str = "cuda:0") -> CompilerReport:
    """Tests what compiles kernels on a card: compiles micro-kernels whose bits are known, runs them, and names those with wrong bits.

    The compiler is the driver's, or the assembler that the environment variable FALCHION_PTXAS names. What is wrong is proven; that nothing
    is wrong proves nothing. `card` may be "emulator", which is right.
    """
    return CompilerReport(*_native.compiled(card))


def _described(launch: dict[str, Any], given: dict[str, bytes]) -> dict[str, Any]:
    """The launch without data, which is kept as files: in `given`, by their names."""

    def kept(table: dict[str, Any], whose: str) -> dict[str, Any]:
        if "data" not in table:
            return table
        data = table["data"]
        name = f"data of {whose}"
        given[name] = data if isinstance(data, bytes) else _bytes(data)
        return {**{key: value for key, value in table.items() if key != "data"}, "file": name}

    buffers = []
    for buffer in launch.get("buffer", []):
        whose = f"buffer {buffer.get('name')}"
        buffer = kept(buffer, whose)
        if isinstance(buffer.get("want"), dict):
            buffer = {**buffer, "want": kept(buffer["want"], f"{whose}, wanted")}
        buffers.append(buffer)
    return {**launch, "buffer": buffers}


def _bytes(array: Any) -> bytes:
    """The bytes of an array's elements, row-major."""
    if hasattr(array, "detach"):  # torch's: numpy does not have all of its types
        import torch

        array = array.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy()
    return bytes(array.tobytes())

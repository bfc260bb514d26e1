"""Writes a kernel and what it is launched with, as `falchion check` reads it: PTX, the description, and a file for the contents of each
buffer and for each wanted result.

A launch is a dictionary, as `falchion.check_ptx` takes it: buffers have `data`, and wanted results have `data` too.
"""

import sys
import traceback
import types
from importlib import metadata
from pathlib import Path

import numpy as np

PACKAGE = Path(__file__).resolve().parents[2] / "python" / "falchion"

# Elements by the names of numpy's types.
ELEMENTS = {
    "float16": "f16",
    "bfloat16": "bf16",
    "float32": "f32",
    "float64": "f64",
    "float8_e4m3fn": "e4m3",
    "float8_e5m2": "e5m2",
    "int8": "s8",
    "uint8": "u8",
    "int16": "s16",
    "uint16": "u16",
    "int32": "s32",
    "uint32": "u32",
    "int64": "s64",
    "uint64": "u64",
}


def numbers(*shape, dtype=np.float16, seed=0):
    """Random numbers of the normal distribution."""
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


def f64(array):
    return np.asarray(array).astype(np.float64)


def buffer(name, array, want=None, rtol=0.0, atol=0.0, **keys):
    """A buffer that holds an array, or is unwritten and as large as one: `held=False`. Other keys are those of the format."""
    held = keys.pop("held", want is None)
    made = {"name": name, "element": ELEMENTS[str(array.dtype)], "shape": list(array.shape) or [1], **keys}
    if held:
        made["data"] = np.ascontiguousarray(array).tobytes()
    if want is not None:
        assert want.shape == array.shape, f"{name}: {want.shape} is wanted of {array.shape}"
        made["want"] = {"data": np.ascontiguousarray(want).tobytes(), "element": ELEMENTS[str(want.dtype)], "rtol": rtol, "atol": atol}
    return made


def result(name, want, dtype, rtol=0.0, atol=0.0, **keys):
    """A buffer that the kernel fills: nothing is in it at first."""
    return buffer(name, np.empty(want.shape, dtype), want, rtol, atol, **keys)


def write(folder, name, package, says, launch):
    """Writes one kernel, or several that run one after the other: each has its PTX as `text`. `package` is the one that it comes from, or that
    compiled it, and `says` a line for readers."""
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    launch = {key: value for key, value in launch.items() if value not in (None, False)}
    buffers = [_filed(folder, name, of) for of in launch.pop("buffer")]
    kernels = [dict(kernel) for kernel in launch.pop("kernel", [launch])]
    for number, kernel in enumerate(kernels):
        ptx = kernel.pop("text")
        kernel["ptx"] = f"{name}.ptx" if number == 0 else f"{name}.{number + 1}.ptx"
        (folder / kernel["ptx"]).write_text(ptx, encoding="utf-8")
        print(f"{kernel['ptx']}: {len(ptx.splitlines())} lines", flush=True)
    lines = [f"# kernel: {says}", f"# package: {package} {metadata.version(package)}"]
    if len(kernels) == 1:
        launch = {**{key: value for key, value in launch.items() if key != "text"}, **kernels.pop()}
    lines += _pairs(launch)
    for table, rows in (("buffer", buffers), ("kernel", kernels)):
        for row in rows:
            lines += ["", f"[[{table}]]", *_pairs(row)]
    (folder / f"{name}.launch.toml").write_text("\n".join(lines) + "\n", encoding="utf-8")


def main(package, cases):
    """Writes the kernels that a command line asks for, all or those whose names begin so. `cases`: by their names, what each is and what makes
    its launch. What is not compiled is named, and does not stop the others."""
    if len(sys.argv) < 2:
        sys.exit(f"usage: {sys.argv[0]} FOLDER [NAME]...\nnames: {', '.join(cases)}")
    folder, *begins = sys.argv[1:]
    failed = []
    for name, (says, make) in cases.items():
        if begins and not name.startswith(tuple(begins)):
            continue
        try:
            write(folder, name, package, says, make())
        except Exception:
            traceback.print_exc()
            failed.append(name)
    if failed:
        sys.exit(f"not compiled: {', '.join(failed)}")


def falchion_triton():
    """The module `falchion.triton` of this checkout, of which only what compiles is used: the native module is not needed."""
    package = types.ModuleType("falchion")
    package.__path__ = [str(PACKAGE)]
    sys.modules.setdefault("falchion", package)
    sys.modules.setdefault("falchion.ptx", types.SimpleNamespace(Report=None, check_ptx=None))
    import falchion.triton

    return falchion.triton


def _filed(folder, kernel, of):
    """A buffer with files for its data."""
    of = {key: value for key, value in of.items() if value is not None and value is not False}
    data = of.pop("data", None)
    if data is not None:
        of["file"] = f"{kernel}.{of['name']}.bin"
        (folder / of["file"]).write_bytes(data)
    if "want" in of:
        want = dict(of["want"])
        want["file"] = f"{kernel}.{of['name']}.want.bin"
        (folder / want["file"]).write_bytes(want.pop("data"))
        of["want"] = want
    return of


def _pairs(table):
    """The lines of a table. Lists of tables stand one to a line."""
    lines = []
    for key, value in table.items():
        if isinstance(value, list) and value and isinstance(value[0], dict):
            lines += [f"{key} = [", *(f"    {_value(of)}," for of in value), "]"]
        else:
            lines.append(f"{key} = {_value(value)}")
    return lines


def _value(value):
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{key} = {_value(of)}" for key, of in value.items() if of is not None) + " }"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(map(_value, value)) + "]"
    if isinstance(value, (float, np.floating)):
        return repr(float(value))
    return str(int(value))

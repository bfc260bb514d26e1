"""Records what a host program would launch, without a GPU: it is given `record.c` in place of the CUDA driver and runtime, and arrays of numpy
in place of memory of the device. Addresses of arrays in the arguments become buffers, and tensor maps are described again.
"""

import ctypes
import re
import subprocess
import tempfile
from pathlib import Path

import numpy as np

# Elements of tensor maps by their numbers in the driver's interface, and its other enumerations.
MAPPED = ["u8", "u16", "u32", "s32", "u64", "s64", "f16", "f32", "f64", "bf16", "f32", "tf32", "tf32"]
SWIZZLES = ["none", "32B", "64B", "128B"]
# Scalars by PTX's types of parameters.
SCALARS = {"b8": "u8", "b16": "u16", "b32": "u32", "b64": "u64"}
MAGIC = b"tensor map #"


class Map(ctypes.Structure):
    """`Map` of record.c."""

    _fields_ = [(name, ctypes.c_int32) for name in ("element", "rank", "interleave", "swizzle", "promotion", "fill")] + [
        ("address", ctypes.c_uint64),
        ("dims", ctypes.c_uint64 * 5),
        ("strides", ctypes.c_uint64 * 5),
        ("box", ctypes.c_uint32 * 5),
        ("steps", ctypes.c_uint32 * 5),
    ]


LAUNCHED = ctypes.CFUNCTYPE(None, ctypes.c_char_p, ctypes.POINTER(ctypes.c_uint32), ctypes.c_uint64, ctypes.c_int32, ctypes.POINTER(ctypes.c_void_p))


def built(name):
    """The path of the library made of record.c: who loads a library of this name later finds this one."""
    made = Path(tempfile.mkdtemp(prefix="record-")) / "librecord.so"
    source = Path(__file__).with_name("record.c")
    subprocess.run(["gcc", "-O1", "-shared", "-fPIC", f"-Wl,-soname,{name}", "-o", made, source], check=True)
    return made


class Recorder:
    """The library, and what it has recorded: `launches`, each the PTX and the name of a kernel, its sizes, and its arguments' bytes."""

    def __init__(self, processors=4):
        self.path = built("libcuda.so.1")
        self.library = ctypes.CDLL(str(self.path), mode=ctypes.RTLD_GLOBAL)
        self.library.recorded_map.restype = ctypes.POINTER(Map)
        ctypes.c_int32.in_dll(self.library, "processors").value = processors
        self._callback = LAUNCHED(self._launched)
        ctypes.c_void_p.in_dll(self.library, "launched").value = ctypes.cast(self._callback, ctypes.c_void_p).value
        self.begin()

    def begin(self, ptx=""):
        """Begins with a call. The PTX of its kernel says how large the arguments are."""
        self.ptx, self.arrays, self.launches, self.errors = ptx, {}, [], []

    def array(self, name, array):
        """A copy of an array that the kernel will be given, aligned as memory of a device is."""
        room = np.empty(array.nbytes + 512, np.uint8)
        first = -room.ctypes.data % 256
        held = room[first : first + array.nbytes].view(array.dtype).reshape(array.shape)
        held[...] = array
        self.arrays[name] = held
        return held

    def found(self, address, size):
        """Memory that the caller has made by itself, if it is not known: nothing is in it when the kernels begin."""
        if not self._place(address):
            self.arrays[f"memory{len(self.arrays)}"] = np.ctypeslib.as_array((ctypes.c_uint8 * size).from_address(address))

    def memory(self, zeros=lambda array: False):
        """The buffers of such memory. `zeros` says which the caller fills with zeros before each call."""
        made = [(name, array) for name, array in self.arrays.items() if name.startswith("memory")]
        filled = {"zeros": True, "restore": True}
        return [{"name": name, "bytes": array.nbytes, "scratch": True, **(filled if zeros(array) else {})} for name, array in made]

    def structured(self, name, **keys):
        """The buffer of an array in which there are addresses, with what it holds when the first kernel begins."""
        array = self.before[name]
        made = {"name": name, **self.structure(array.tobytes()), **keys}
        return made if "hex" in made else {**made, "zeros": True}

    def _launched(self, name, sizes, shared, dependent, arguments):
        try:
            taken = parameters(self.ptx, name.decode())
            held = [(kind, ctypes.string_at(arguments[number], size)) for number, (kind, size) in enumerate(taken)]
            self.launches.append((self.ptx, name.decode(), list(sizes[:9]), shared, bool(dependent), held))
            if len(self.launches) == 1:
                self.before = {name: array.copy() for name, array in self.arrays.items()}
        except Exception as error:
            self.errors.append(error)

    def launch(self, buffers, launches=2):
        """The description of all launches. `buffers` are those of the arrays that were given, by their names."""
        if self.errors:
            raise self.errors[0]
        assert self.launches, "nothing was launched"
        kernels = [
            {
                "text": ptx,
                "entry": name,
                "grid": sizes[:3],
                "threads": sizes[3:6],
                "cluster": sizes[6:] if sizes[6:] != [1, 1, 1] else None,
                "shared": shared,
                "dependent": dependent or None,
                "argument": [self._argument(kind, data) for kind, data in held],
            }
            for ptx, name, sizes, shared, dependent, held in self.launches
        ]
        kernels = [{key: value for key, value in kernel.items() if value is not None} for kernel in kernels]
        assert {of["name"] for of in buffers} == set(self.arrays), "a buffer for each array"
        return {"launches": launches, "buffer": buffers, "kernel": kernels}

    def _place(self, address):
        """The array that an address is in, and the offset."""
        for name, array in self.arrays.items():
            offset = address - array.ctypes.data
            if 0 <= offset < max(array.nbytes, 1):
                return name, offset
        return None

    def _argument(self, kind, data):
        if kind in SCALARS:
            value = int.from_bytes(data, "little")
            place = self._place(value) if kind == "b64" else None
            if place:
                return {"buffer": place[0], "offset": place[1] or None}
            return {"scalar": SCALARS[kind], "value": hex(value)}
        made = self._map(data) or self._encoded(data)
        return {"tensor_map": made} if made and len(data) == 128 else self.structure(data)

    def structure(self, data):
        """Bytes in which there are addresses and tensor maps."""
        plain, pointers, maps = bytearray(data), [], []
        for at in range(0, len(data) - 7, 8):
            place = self._place(int.from_bytes(data[at : at + 8], "little"))
            made = self._map(data[at : at + 128]) or (self._encoded(data[at : at + 128]) if at % 64 == 0 else None)
            if made:
                maps.append({"at": at, **made})
                plain[at : at + 128] = bytes(128)
            elif place and not any(of["at"] <= at < of["at"] + 128 for of in maps):
                pointers.append({"at": at, "buffer": place[0], "offset": place[1]})
                plain[at : at + 8] = bytes(8)
        parts = {key: value for key, value in (("pointers", pointers), ("tensor_maps", maps)) if value}
        return {"bytes": len(data), **({"hex": plain.hex()} if any(plain) else {}), **parts}

    def _map(self, data):
        """A tensor map that record.c has made."""
        if not data.startswith(MAGIC):
            return None
        of = self.library.recorded_map(int.from_bytes(data[len(MAGIC) : len(MAGIC) + 4], "little")).contents
        assert of.interleave == 0 and of.fill == 0, "interleaved, or filled with NaN"
        facts = [of.element, of.swizzle, *([list(each)[: of.rank] for each in (of.dims, of.strides, of.box, of.steps)])]
        return self._tiled(of.address, *facts)

    def _encoded(self, data):
        """A tensor map as the card has it, which the CuTe DSL's host code makes without the driver: 16 words of 32 bits. The third has the rank,
        the element and the swizzle; strides are in units of 16 bytes, and extents, steps and boxes are less 1. How it lies was read off maps
        whose arguments were known."""
        if len(data) < 128:
            return None
        word = [int.from_bytes(data[at : at + 4], "little") for at in range(0, 64, 4)]
        address, rank, element, swizzle = word[0] | word[1] << 32, 1 + (word[2] >> 4 & 7), word[2] >> 7 & 15, word[2] >> 13 & 7
        # What stands in every map, so that other structures are not taken for one. A bit is set for more than 128 KiB.
        if word[2] & 15 != 2 or (word[2] & ~(1 << 21)) >> 19 or element >= len(MAPPED) or rank > 5 or swizzle > 3 or not self._place(address):
            return None
        strides = [(word[3 + axis] | (word[7] >> 4 * axis & 15) << 32) << 4 for axis in range(rank)]
        steps = [1 + (word[13] >> 3 * axis & 7) for axis in range(rank)]
        box = [1 + byte for byte in data[55 : 55 + rank]]
        return self._tiled(address, element, swizzle, [1 + extent for extent in word[8 : 8 + rank]], strides, box, steps)

    def _tiled(self, address, element, swizzle, dims, strides, box, steps):
        place = self._place(address)
        assert place, f"a tensor map of no array: {address:#x}"
        return {
            "buffer": place[0],
            "offset": place[1],
            "element": MAPPED[element],
            "dims": dims,
            "strides": strides[: len(dims) - 1],
            "box": box,
            "steps": steps if any(step != 1 for step in steps) else None,
            "swizzle": SWIZZLES[swizzle],
        }


def parameters(ptx, entry):
    """The parameters of a kernel: each a PTX type, or `bytes`, and its size."""
    found = re.search(r"\.entry\s+" + re.escape(entry) + r"\s*\((.*?)\)", ptx, re.DOTALL)
    assert found, f"there is no kernel {entry}"
    taken = []
    for parameter in re.findall(r"\.param\s+([^,]*)", found[1]):
        many = re.search(r"\.b8\s+\S+?\[(\d+)\]", parameter)
        bits = re.search(r"\.[bsuf](\d+)\b", parameter)
        taken.append(("bytes", int(many[1])) if many else (f"b{bits[1]}", int(bits[1]) // 8))
    return taken

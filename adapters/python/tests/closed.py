"""Arrays next to a page that cannot be accessed: who reads or writes one element too many dies of SIGSEGV."""

import ctypes
import mmap

import numpy as np

LIBC = ctypes.CDLL(None, use_errno=True)
LIBC.mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
PAGE = mmap.PAGESIZE


def bounds(array):
    """The first byte of an array and the one after its last, from its address."""
    low = high = 0
    for extent, stride in zip(array.shape, array.strides):
        if extent == 0:
            return 0, 0
        low, high = (low + min(stride * (extent - 1), 0), high + max(stride * (extent - 1), 0))
    return low, high + array.itemsize


def beside(array, side):
    """A copy of an array of numpy with the same strides, whose last byte (`side` is "end") or first ("start") is beside a closed page."""
    low, high = bounds(array)
    if array.dtype.hasobject:
        return array
    room = -(-(high - low) // PAGE) * PAGE or PAGE
    memory = mmap.mmap(-1, room + 2 * PAGE)
    pages = np.frombuffer(memory, np.uint8)
    for closed in (0, room + PAGE):
        assert LIBC.mprotect(pages.ctypes.data + closed, PAGE, 0) == 0
    first = PAGE if side == "start" else PAGE + room - (high - low)
    copy = np.ndarray(array.shape, array.dtype, memory, first - low, array.strides)
    if high > low:
        address = array.__array_interface__["data"][0] + low
        ctypes.memmove(pages.ctypes.data + first, address, high - low)
    if not array.flags.writeable:
        copy.flags.writeable = False
    return copy


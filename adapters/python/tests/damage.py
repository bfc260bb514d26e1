"""What is done to an argument so that it may not fit: another type, order of bytes, shape, stride, place, or no array at all."""

import numpy as np
from calls import pick
from reference import ml_dtypes

NAMES = ["?", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8", "g", "F", "D", "M8[s]", "m8[s]", "O", "S5", "U3", "V7"]
TYPES = [np.dtype(name) for name in NAMES] + [np.dtype(name).newbyteorder(">") for name in ("i4", "i8", "f2", "f4", "f8", "u2")]
TYPES += [np.dtype([("x", "f4"), ("y", "i2")])]
if ml_dtypes:
    TYPES += [np.dtype(of) for of in vars(ml_dtypes).values() if isinstance(of, type) and issubclass(of, np.generic)]


def typed(rng, array):
    """The same numbers as another type, or zeros of it."""
    of = pick(rng, TYPES)
    try:
        with np.errstate(all="ignore"):
            return array.astype(of)
    except (TypeError, ValueError):
        return np.zeros(array.shape, of)


def swapped(rng, array):
    try:
        return array.astype(array.dtype.newbyteorder())
    except TypeError:
        return array


def shaped(rng, array):
    """Another shape: a row less, a dimension more or less, other order, none, or nothing."""
    way = rng.integers(6)
    if way == 0 and array.ndim and array.shape[0]:
        return array[:-1]
    if way == 1:
        return array[None]
    if way == 2 and array.ndim and array.shape[0]:
        return np.asarray(array[0])
    if way == 3:
        return array.T
    if way == 4:
        return array.reshape(-1)[:1].reshape(()) if array.size else array[..., None]
    return array[..., :0]


def listed(rng, array):
    return pick(rng, [list(array) if array.ndim else [1], "text", object(), {}, b"bytes"])


def read_only(rng, array):
    array = array.copy()
    array.flags.writeable = False
    return array


def repeated(rng, array):
    """Rows, or elements, that share memory."""
    strides = (0, *array.strides[1:]) if rng.integers(2) else (*array.strides[:-1], 0)
    bits = array.view(f"V{array.itemsize}")
    return np.lib.stride_tricks.as_strided(bits, array.shape, strides if array.ndim else array.strides).view(array.dtype)


def odd(rng, array):
    """At an odd address."""
    room = np.zeros(array.nbytes + 1, np.uint8)[1:]
    copy = np.ndarray(array.shape, array.dtype, room)
    copy[...] = array
    return copy


def field(rng, array):
    """A field of records, whose distance is no multiple of its size."""
    records = np.zeros((*array.shape, array.itemsize + 3), np.uint8)
    view = np.ndarray(array.shape, array.dtype, records, strides=records.strides[:-1])
    view[...] = array
    return view


def backwards(rng, array):
    return array[::-1] if array.ndim and rng.integers(2) else array[..., ::-1] if array.ndim else array


def masked(rng, array):
    return np.ma.masked_array(array, np.zeros(array.shape, bool))


DAMAGES = [typed] * 8 + [swapped, shaped, shaped, listed, read_only, repeated, odd, field, backwards, masked]


def unused(rng, given):
    """One more argument, which nothing uses, or another one that does not fit. Returns its name."""
    array = np.ones(3, np.float32)
    name, value = pick(rng, [
        ("c", array), ("bias", array), ("groups", np.array([0, 1])), ("beta", 1.5), ("spec", "tile=1"), ("epilogue", "acc + nothing[n]"), ("types", "bf15"),
        ("block_table", np.array([[0]])), ("cache_seqlens", np.array([1])), ("cu_seqlens_k", np.array([0, 1])), ("max_seqlen_q", -1), ("max_seqlen_k", 2**70),
        ("window", (1, 2, 3)), ("scale_a", array), ("scale_b", np.ones((7, 3), np.float32)), ("scale", -1.0),
    ])
    if name in given:
        return None
    given[name] = value
    return name

"""Random calls: shapes, types, strides and epilogues, compared with double precision."""

import os

import falchion
import numpy as np
import pytest
from reference import activation, dtype, ml_dtypes, wrong

TYPES = ["float16", "float32", "tf32", "float64", "int8", "uint8"]
TYPES += ["bfloat16", "float8_e4m3fn", "float8_e5m2"] if ml_dtypes else []


def matrix(rng, shape, name):
    """A random array with random strides: transposed, padded, at an odd address, or with gaps."""
    *lead, rows, columns = shape
    way = rng.integers(6)
    if name in ("int8", "uint8"):
        low = -9 if name == "int8" else 0
        values = rng.integers(low, 10, size=shape).astype(name)
    else:
        values = rng.standard_normal(shape).astype(dtype("float32" if name == "tf32" else name))
    if way == 0:
        return np.ascontiguousarray(values.swapaxes(-1, -2)).swapaxes(-1, -2)
    if way == 1:
        room = np.zeros((*lead, rows, columns + int(rng.integers(1, 20))), values.dtype)
        room[..., :columns] = values
        return room[..., :columns]
    if way == 2:
        room = np.zeros(values.size + 8, values.dtype)
        skip = int(rng.integers(1, 8))
        view = room[skip : skip + values.size].reshape(shape)
        view[...] = values
        return view
    if way == 3:
        room = np.zeros((*lead, rows, 2 * columns), values.dtype)
        room[..., ::2] = values
        return room[..., ::2]
    if way == 4:
        return values[..., ::-1, :]
    return values


def one(rng, trace):
    """One random call. Returns what is wrong, or `None`."""
    name = str(rng.choice(TYPES))
    m, n, k = (int(rng.integers(1, 80)) for _ in range(3))
    batch = int(rng.choice([0, 0, 0, 2, 3]))
    lead = [[], []]
    if batch:
        lead = [[[batch], [batch]], [[batch], []], [[], [batch]], [[1], [batch]]][rng.integers(4)]
    a, b = matrix(rng, (*lead[0], m, k), name), matrix(rng, (*lead[1], k, n), name)
    wide = [x.astype(np.float64) for x in (a, b)]
    keywords = {}
    if name == "tf32":
        keywords["types"] = "tf32"
        # A multiply reads ten mantissa bits.
        wide = [(x.astype(np.float32).view(np.uint32) & 0xFFFFE000).view(np.float32).astype(np.float64) for x in (a, b)]
    sums, magnitude = wide[0] @ wide[1], np.abs(wide[0]) @ np.abs(wide[1])
    shape = sums.shape
    floats = name not in ("int8", "uint8")
    result = {"tf32": "float32", "int8": "int32", "uint8": "int32", "float8_e4m3fn": "bfloat16", "float8_e5m2": "bfloat16"}
    result = result.get(name, name)
    slope = 1.2
    epilogue = str(rng.choice(["none", "none", "linear", "bias", "bias-f32", "scale", "residual"]))
    if name == "float64" and epilogue not in ("none", "linear"):
        epilogue = "none"
    if not floats and epilogue == "linear":
        epilogue = "none"
    function = str(rng.choice(["identity", "relu", "gelu", "silu"]))
    of_vectors = {"float16": "float16", "bfloat16": "bfloat16"}.get(name, "bfloat16" if name.startswith("float8") else "float32")
    if epilogue in ("bias", "bias-f32", "scale", "residual"):
        if not floats:
            result = "float32"
        if epilogue == "bias-f32":
            of_vectors = "float32"
        if of_vectors in ("float16", "float32") or ml_dtypes:
            n_vector = rng.standard_normal(n).astype(dtype(of_vectors))
            m_vector = rng.standard_normal(m).astype(dtype(of_vectors))
            c = rng.standard_normal(shape[-2:]).astype(dtype(of_vectors))
        if epilogue in ("bias", "bias-f32"):
            keywords |= {"epilogue": f"{function}(acc + bias[n])", "bias": n_vector}
            magnitude = magnitude + np.abs(n_vector.astype(float))
            sums = activation(function, sums + n_vector.astype(float))
        elif epilogue == "scale":
            keywords |= {"epilogue": "alpha*acc*scale[m]", "scale": m_vector, "alpha": 0.75}
            factor = 0.75 * m_vector.astype(float)[:, None]
            magnitude, sums = magnitude * np.abs(factor), sums * factor
        elif batch:
            keywords |= {"epilogue": "2*acc"}
            magnitude, sums = 2 * magnitude, 2 * sums
        else:
            keywords |= {"epilogue": "acc + x[m,n]", "x": c}
            magnitude, sums = magnitude + np.abs(c.astype(float)), sums + c.astype(float)
    elif epilogue == "linear":
        c = rng.standard_normal(shape).astype(dtype(result))
        keywords |= {"alpha": 0.5, "beta": -2.0, "c": c}
        magnitude, sums = 0.5 * magnitude + 2 * np.abs(c.astype(float)), 0.5 * sums - 2 * c.astype(float)
    if rng.integers(3) == 0:
        columns = n + int(rng.integers(0, 9))
        room = np.full((*shape[:-1], columns), 77).astype(dtype(result))
        keywords["out"] = room[..., :n]
    if rng.integers(8) == 0:
        keywords["reproducible"] = True
    trace.append((name, [m, n, k], [x.shape for x in (a, b)], [x.strides for x in (a, b)], {k: v for k, v in keywords.items() if not hasattr(v, "shape")}))
    d = falchion.matmul(a, b, **keywords)
    if d.shape != shape or str(d.dtype) != result:
        return f"{d.shape} of {d.dtype}, {shape} of {result} was expected"
    if "out" in keywords and (d is not keywords["out"] or (room[..., n:].astype(float) != 77).any()):
        return "out was not used, or more than it was written"
    if not floats and result == "int32":
        return None if (d == sums).all() else "integers differ"
    return wrong(d, sums, magnitude, k, name if floats else "float32", result, slope)


def test_random_calls():
    """Any call is right. `FALCHION_CALLS` is the number of calls."""
    seed = int(os.environ.get("FALCHION_SEED", "1"))
    for call in range(int(os.environ.get("FALCHION_CALLS", "150"))):
        trace = []
        try:
            found = one(np.random.default_rng([seed, call]), trace)
        except Exception as error:
            pytest.fail(f"call {call} of seed {seed}: {trace}: {error!r}")
        assert found is None, f"call {call} of seed {seed}: {trace}: {found}"

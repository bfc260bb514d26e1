"""GEMMs in double precision, with the error that a kernel may have."""

import math

import numpy as np

try:
    import ml_dtypes
except ImportError:
    ml_dtypes = None

# Relative rounding error of a number, by the type's name; and the smallest normal number.
ROUNDING = {
    "float64": (2.0**-53, 2.0**-1022),
    "float32": (2.0**-24, 2.0**-126),
    "tf32": (2.0**-24, 2.0**-126),
    "float16": (2.0**-11, 2.0**-14),
    "bfloat16": (2.0**-8, 2.0**-126),
    "float8_e4m3fn": (2.0**-4, 2.0**-6),
    "float8_e5m2": (2.0**-3, 2.0**-14),
}


def dtype(name):
    """The numpy type of a name."""
    return np.dtype(getattr(np, name, None) or getattr(ml_dtypes, name))


def activation(name, x):
    """An activation function in double precision."""
    if name == "gelu":
        return 0.5 * x * (1 + np.vectorize(math.erf, [float])(x / math.sqrt(2)))
    return {"relu": lambda x: np.maximum(x, 0), "silu": lambda x: x / (1 + np.exp(-x)), "identity": lambda x: x}[name](x)


def close(found, expected, magnitude, k, operands, slope=1.2):
    """Whether all elements are within the error bound. `magnitude` is the sum of the magnitudes of the terms.

    Sums are of single precision, of 13 fraction bits for 8-bit floats. An activation multiplies an error by its
    largest slope, and adds one of its own.
    """
    found = np.asarray(found).astype(np.float64)
    name = str(found.dtype) if operands == "float64" else operands
    unit = 2.0**-53 if name == "float64" else 2.0**-12 if name.startswith("float8") else 2.0**-23
    sums = slope * (k + 8) * unit * magnitude
    return found, sums


def wrong(found, expected, magnitude, k, operands, result, slope=1.2):
    """The first element beyond its bound, in words; `None` if there is none."""
    values, sums = close(found, expected, magnitude, k, operands, slope)
    unit, least = ROUNDING[result]
    bound = sums + 1.01 * unit * (np.abs(expected) + sums) + least * unit + 2e-6 * np.abs(expected)
    bad = ~(np.abs(values - expected) <= bound)
    if not bad.any():
        return None
    at = tuple(int(i) for i in np.argwhere(bad)[0])
    return f"{at}: {values[at]}, {expected[at]} within {bound[at]} was expected"

"""Groups of rows: as many experts as models have."""

import falchion
import numpy as np
import pytest


@pytest.mark.parametrize("count", [384, 512])
def test_many_experts(count):
    rng, (n, k) = np.random.default_rng(count), (24, 32)
    # Many experts have no row.
    rows = rng.integers(0, 3, count) * rng.integers(0, 2, count)
    offsets = np.concatenate([[0], rows.cumsum()]).astype(np.int32)
    x = rng.integers(-9, 10, (int(offsets[-1]), k)).astype(np.int8)
    w = rng.integers(-9, 10, (count, n, k)).astype(np.int8)
    y = falchion.matmul(x, w.swapaxes(1, 2), groups=offsets)
    expert = np.repeat(np.arange(count), rows)
    assert (y == np.einsum("rk,rnk->rn", x.astype(int), w[expert].astype(int))).all()


def test_too_many_experts():
    x, w = np.ones((8, 32), np.float16), np.zeros((4097, 8, 32), np.float16)
    with pytest.raises(ValueError, match="there are 4097 groups, at most 4096 are possible: launch them in parts"):
        falchion.matmul(x, w.swapaxes(1, 2), groups=np.zeros(4098, np.int32))

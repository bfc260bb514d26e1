"""Random calls: their arguments, and what has to come out of whatever arguments are accepted."""

import falchion
import numpy as np
from reference import ROUNDING, activation, dtype, ml_dtypes, wrong

TYPES = ["float16", "float32", "tf32", "float64", "int8", "uint8"]
TYPES += ["bfloat16", "float8_e4m3fn", "float8_e5m2"] if ml_dtypes else []
FORMATS = {"bf16": "bfloat16", "f16": "float16", "e4m3": "float8_e4m3fn", "e5m2": "float8_e5m2", "f32": "float32"}
UNSIGNED = {1: np.uint8, 2: np.uint16, 4: np.uint32}
# By the operands' type, the result's where nobody says another one; with an epilogue it is float32 for integers.
RESULTS = {"tf32": "float32", "int8": "int32", "uint8": "int32", "float8_e4m3fn": "bfloat16", "float8_e5m2": "bfloat16"}


def pick(rng, choices):
    return choices[rng.integers(len(choices))]


def matrix(rng, shape, name):
    """A random array with random strides: transposed, padded, at an odd address, with gaps, or with rows in falling order."""
    *lead, rows, columns = shape
    way = rng.integers(7)
    if name in ("int8", "uint8"):
        values = rng.integers(-9 if name == "int8" else 0, 10, size=shape).astype(name)
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


def vector(rng, n, name):
    return rng.standard_normal(n).astype(dtype(name))


class Matmul:
    """`falchion.matmul` of random shapes, types, strides, epilogues, scales, batches and groups."""

    function = staticmethod(falchion.matmul)

    def __init__(self, rng):
        name = pick(rng, TYPES)
        m, n, k = (int(pick(rng, [0, *range(1, 33)])) for _ in range(3))
        floats, few = name not in ("int8", "uint8"), name in RESULTS
        form = pick(rng, ["one"] * 5 + ["batch", "groups"])
        lead = [[], []]
        if form == "batch":
            count = int(rng.integers(1, 4))
            lead = pick(rng, [[[count], [count]], [[count], []], [[], [count]], [[1], [count]]])
        groups = {}
        if form == "groups":
            lead[1] = [int(rng.integers(1, 4))]
            groups["groups"] = np.sort(rng.integers(0, m + 1, lead[1][0] + 1)).astype(pick(rng, [np.int32, np.int64]))
        self.given = {"a": matrix(rng, (*lead[0], m, k), name), "b": matrix(rng, (*lead[1], k, n), name), **groups}
        shape = (*(max(lead, key=lambda of: of or [0]) if form == "batch" else []), m, n)
        of_vectors = name if name in ("float16", "bfloat16") else "bfloat16" if name.startswith("float8") and ml_dtypes else "float32"
        result = RESULTS.get(name, name)
        epilogue = pick(rng, ["none", "none", "linear", "bias", "bias-f32", "scale", "residual", "store"])
        if name == "tf32":
            self.given["types"] = "tf32"
        if epilogue == "linear" and floats:
            self.given |= {"alpha": 0.5, "beta": -2.0, "c": matrix(rng, shape, result)}
            if not (self.given["c"].strides[-1] == self.given["c"].itemsize and min(self.given["c"].strides) >= 0):
                self.given["c"] = np.ascontiguousarray(self.given["c"])
        elif name == "float64" or epilogue == "none":
            if floats and rng.integers(4) == 0:
                self.given["scale_a"] = 0.75
        else:
            result = result if floats else "float32"
            function = pick(rng, ["identity", "relu", "gelu", "silu"])
            if epilogue in ("bias", "bias-f32"):
                self.given |= {"epilogue": f"{function}(acc + bias[n])", "bias": vector(rng, n, "float32" if epilogue == "bias-f32" else of_vectors)}
            elif epilogue == "scale":
                self.given |= {"epilogue": "alpha*acc*scale[m]", "scale": vector(rng, m, of_vectors), "alpha": 0.75}
            elif epilogue == "residual" and form == "one":
                self.given |= {"epilogue": "acc + x[m,n]", "x": np.ascontiguousarray(matrix(rng, shape, of_vectors))}
            elif epilogue == "store" and form == "one":
                self.given |= {"epilogue": "relu(store(pre[m,n], acc))", "pre": np.full(shape, 3, dtype(of_vectors))}
            elif few and floats:
                self.given |= {"scale_a": vector(rng, m, "float32"), "scale_b": vector(rng, n, "float32")}
        if rng.integers(3) == 0:
            self.room = np.full((*shape[:-1], n + int(rng.integers(0, 9))), 64).astype(dtype(result))
            self.given["out"] = self.room[..., :n]
        if rng.integers(8) == 0:
            self.given["reproducible"] = True
        if name in FORMATS.values() and name != "float32" and rng.integers(6) == 0 and set(self.given) <= {"a", "b", "out"}:
            self.given["types"] = next(key for key, of in FORMATS.items() if of == name)
            for key, of in (("a", name), ("b", name), ("out", result)):
                if key in self.given:
                    self.given[key] = self.given[key].view(UNSIGNED[dtype(of).itemsize])

    def arguments(self):
        given = dict(self.given)
        return [given.pop("a"), given.pop("b")], given

    def wrong(self, given, found):
        """What is wrong with a result for arguments that were accepted, in words; `None` if it is right."""
        types = given.get("types")
        a, b = (self.numbers(given[name], types) for name in "ab")
        name = types if types == "tf32" else FORMATS.get(types, str(np.asarray(given["a"]).dtype))
        if name == "tf32":
            # A multiply reads ten mantissa bits.
            a, b = ((x.astype(np.float32).view(np.uint32) & 0xFFFFE000).view(np.float32).astype(np.float64) for x in (a, b))
        if "groups" in given:
            ends = given["groups"].astype(int)
            sums, magnitude = (np.zeros((a.shape[0], b.shape[-1])) for _ in range(2))
            for i, (begin, end) in enumerate(zip(ends, ends[1:])):
                sums[begin:end] = a[begin:end] @ b[i]
                magnitude[begin:end] = np.abs(a[begin:end]) @ np.abs(b[i])
            inside = (np.arange(a.shape[0]) >= ends[0]) & (np.arange(a.shape[0]) < ends[-1])
        else:
            sums, magnitude, inside = a @ b, np.abs(a) @ np.abs(b), None
        k, slope = a.shape[-1], 1.2
        wide = lambda key: self.numbers(given[key], None)
        for key, axis in (("scale_a", -2), ("scale_b", -1)):
            if key in given:
                of = np.asarray(given[key], np.float64)
                of = np.expand_dims(of, -1) if of.ndim == 1 and axis == -2 else of
                sums, magnitude = sums * of, magnitude * np.abs(of)
        text = given.get("epilogue", "")
        if "bias" in given:
            function = text.split("(")[0]
            sums, magnitude = activation(function, sums + wide("bias")), magnitude + np.abs(wide("bias"))
        elif "scale" in given:
            factor = given["alpha"] * wide("scale").reshape(-1, 1)
            sums, magnitude = sums * factor, magnitude * np.abs(factor)
        elif "x" in given:
            sums, magnitude = sums + wide("x"), magnitude + np.abs(wide("x"))
        elif "pre" in given:
            of_pre = str(given["pre"].dtype)
            bad = wrong(given["pre"], sums, magnitude, k, name if name in ROUNDING else "float32", of_pre)
            if bad:
                return f"pre: {bad}"
            sums = np.maximum(sums, 0)
        elif "alpha" in given or "beta" in given:
            alpha, beta = given.get("alpha", 1.0), given.get("beta", 0.0)
            c = wide("c") if "c" in given else 0
            sums, magnitude = alpha * sums + beta * c, np.abs(alpha) * magnitude + np.abs(beta * c)
        floats = name in ROUNDING
        result = RESULTS.get(name, name) if floats or not ("epilogue" in given or "alpha" in given) else "float32"
        if "out" in given:
            out = np.asarray(given["out"])
            result = str(out.dtype) if not (types and out.dtype.kind == "u") else result
            outside = np.ones(found.shape[-2], bool) if inside is None else inside
            if inside is not None and not (found[~outside].astype(np.float64) == 64).all():
                return "rows of no group were written"
            sums = np.where(outside[:, None], sums, 64)
        elif inside is not None:
            if found[~inside].astype(np.float64).any():
                return "rows of no group are not zero"
            sums = np.where(inside[:, None], sums, 0)
        values = self.numbers(found, types) if found.dtype.kind == "u" and types else found
        result_type = result if values is found else str(found.dtype)
        if found.shape != sums.shape or str(found.dtype) != result_type:
            return f"{found.shape} of {found.dtype}, {sums.shape} of {result} was expected"
        if result in ("int32", "int8", "uint8"):
            # Those of 8 bits are the nearest that there are.
            kept = np.clip(sums, np.iinfo(result).min, np.iinfo(result).max)
            rounding = 0.5 + 1e-5 * magnitude if "epilogue" in given or "alpha" in given or "scale_a" in given else 0
            return None if (np.abs(found - kept) <= rounding).all() else "integers differ"
        if result.startswith("float8"):
            # What is beyond the largest is the largest.
            sums = np.clip(sums, *(float(of) for of in (ml_dtypes.finfo(dtype(result)).min, ml_dtypes.finfo(dtype(result)).max)))
        return wrong(values, sums, magnitude, k, name if floats else "float32", result, slope)

    @staticmethod
    def numbers(array, types):
        array = np.asarray(array)
        if types in FORMATS and array.dtype.kind == "u":
            array = array.view({1: None, 2: dtype("bfloat16")}[array.itemsize] if types.startswith("e") and array.itemsize == 2 else dtype(FORMATS[types]))
        return array.astype(np.float64)


def attended(q, k, v, causal, scale, window=(-1, -1), softcap=0.0, slopes=None, sinks=None):
    """The result of attention and the log-sum-exp in double precision. `slopes` and `sinks` have a number for each head."""
    q, k, v = (np.asarray(x, np.float64) for x in (q, k, v))
    share = q.shape[-3] // max(k.shape[-3], 1)
    k, v = (np.repeat(x, share, axis=-3) for x in (k, v))
    scores = q @ k.swapaxes(-1, -2) * scale
    rows, keys = scores.shape[-2:]
    after = np.arange(keys) - np.arange(rows)[:, None] - keys + rows
    if softcap:
        scores = softcap * np.tanh(scores / softcap)
    if slopes is not None:
        scores = scores - np.asarray(slopes, np.float64)[..., None, None] * np.abs(after)
    left, right = window[0], 0 if causal else window[1]
    scores = np.where(((right < 0) | (after <= right)) & ((left < 0) | (-after <= left)), scores, -np.inf)
    with np.errstate(all="ignore"):
        sink = np.broadcast_to(-np.inf if sinks is None else np.asarray(sinks, np.float64)[:, None, None], (*scores.shape[:-1], 1))
        most = np.maximum(scores.max(-1, initial=-np.inf, keepdims=True), sink)
        weights = np.exp(scores - np.where(np.isfinite(most), most, 0))
        sums = weights.sum(-1, keepdims=True) + np.exp(sink - np.where(np.isfinite(most), most, 0))
        o = np.where(sums > 0, weights / sums, 0) @ v
        return o, np.where(sums > 0, np.log(sums) + most, -np.inf)[..., 0]


class Attention:
    """`falchion.attention` of random lengths, heads, masks and strides; with sequences of different lengths, or a cache of pages."""

    function = staticmethod(falchion.attention)

    def __init__(self, rng):
        of = np.float16 if not ml_dtypes or rng.integers(2) else ml_dtypes.bfloat16
        shared, share, d = int(rng.integers(1, 3)), int(rng.integers(1, 3)), 64
        length, keys = (int(pick(rng, [0, *range(1, 33)])) for _ in range(2))
        form = pick(rng, ["equal", "equal", "packed", "pages"])
        lead = pick(rng, [(), (1,), (2,), (0,)]) if form == "equal" else ()
        tensor = lambda heads, rows: (matrix(rng, (*lead, heads, rows, d), np.dtype(of).name) * np.float16(0.7)).astype(of)
        heads_after = lambda x: np.ascontiguousarray(x.swapaxes(-2, -3)).swapaxes(-2, -3) if rng.integers(2) else x
        self.given = {name: heads_after(tensor(heads, rows)) for name, heads, rows in (("q", shared * share, length), ("k", shared, keys), ("v", shared, keys))}
        whole = pick(rng, [np.int32, np.int64])
        if form == "packed":
            count = int(rng.integers(1, 4))
            for name, rows in (("cu_seqlens_q", length), ("cu_seqlens_k", keys)):
                self.given[name] = np.array([0, *np.sort(rng.integers(0, rows + 1, count - 1)), rows], whole)
        if form == "pages":
            page, each, count = 16, int(rng.integers(1, 4)), int(rng.integers(1, 3))
            cache = lambda: tensor(shared, page)[None].repeat(each * count + 1, 0)
            self.given |= {"q": tensor(shared * share, length)[None].repeat(count, 0), "k": cache(), "v": cache()}
            self.given["block_table"] = rng.permutation(each * count + 1)[: each * count].reshape(count, each).astype(whole)
            self.given["cache_seqlens"] = rng.integers(0, each * page + 1, count).astype(whole)
        self.given |= {"causal": bool(rng.integers(2)), "log_sum_exp": True}
        sequences = self.given["q"].shape[0] if self.given["q"].ndim == 4 else 1
        sequences = len(self.given.get("cu_seqlens_q", range(sequences + 1))) - 1
        heads = shared * share
        if rng.integers(4) == 0:
            self.given["softcap"] = float(rng.uniform(0.5, 5))
        if rng.integers(4) == 0:
            shape = pick(rng, [(heads,), (sequences, heads)])
            self.given["alibi_slopes"] = rng.uniform(0, 0.5, shape).astype(np.float32)
        if rng.integers(4) == 0:
            self.given["sinks"] = rng.normal(0, 4, heads).astype(np.float32)
        if rng.integers(3) == 0:
            self.given["window"] = (int(rng.integers(0, 20)), int(rng.integers(0, 9)))
        if rng.integers(3) == 0:
            shape = self.given["q"].shape
            self.given["out"] = np.full(shape, np.nan, pick(rng, [of, np.float32]))
            self.given["log_sum_exp"] = np.full(shape[:-1], np.nan, np.float32)

    def arguments(self):
        given = dict(self.given)
        return [given.pop(name) for name in "qkv"], given

    def wrong(self, given, found):
        q, k, v = (np.asarray(given[name]) for name in "qkv")
        o, sums = found if isinstance(found, tuple) else (found, None)
        mask = (given.get("causal", False), q.shape[-1] ** -0.5, given.get("window", (-1, -1)), given.get("softcap", 0.0))
        slopes, sinks = (given.get(name) for name in ("alibi_slopes", "sinks"))
        # Those of each sequence, or of all.
        own = lambda i: (slopes if np.ndim(slopes) < 2 else slopes[i], sinks)
        if "cu_seqlens_q" in given:
            ends = [np.asarray(given[name]).astype(int) for name in ("cu_seqlens_q", "cu_seqlens_k")]
            spans = zip(ends[0], ends[0][1:], ends[1], ends[1][1:])
            parts = [attended(q[:, a:b], k[:, c:d], v[:, c:d], *mask, *own(i)) for i, (a, b, c, d) in enumerate(spans)]
            wanted, of_sums = (np.concatenate(of, 1) for of in zip(*parts))
        elif "block_table" in given:
            parts = []
            for i, (one, table, length) in enumerate(zip(q if q.ndim == 4 else q[None], given["block_table"], given["cache_seqlens"])):
                seen = [x[table].swapaxes(0, 1).reshape(x.shape[1], -1, x.shape[3])[:, :length] for x in (k, v)]
                parts.append(attended(one, *seen, *mask, *own(i)))
            wanted, of_sums = (np.stack(of).reshape(*q.shape[:-2], *of[0].shape[1:]) for of in zip(*parts))
        else:
            # Slopes of one sequence of which the tensors have no number.
            of = slopes[0] if np.ndim(slopes) == 2 and q.ndim == 3 else slopes
            wanted, of_sums = attended(q, k, v, *mask, of, sinks)
        if o.shape != wanted.shape:
            return f"shape {o.shape}, {wanted.shape} was expected"
        unit = 2.0**-8 if q.dtype != np.float16 else 2.0**-11
        error = np.abs(np.asarray(o, np.float64) - wanted).max(initial=0)
        if not error <= 8 * unit * max(1.0, np.abs(wanted).max(initial=0)):
            return f"O differs by {error}"
        if sums is not None:
            finite = np.isfinite(of_sums)
            if (np.isfinite(sums) != finite).any() or not (np.abs(sums[finite] - of_sums[finite]) <= 2e-3).all():
                return "the log-sum-exp differs"
        return None


class Gradient:
    """`falchion.attention_backward`, whose gradients are compared with those in double precision."""

    function = staticmethod(falchion.attention_backward)

    def __init__(self, rng):
        heads, length, keys = int(rng.integers(1, 3)), *(int(pick(rng, [0, *range(1, 30)])) for _ in range(2))
        q, k, v, d_o = ((matrix(rng, (heads, rows, 64), "float16") * np.float16(0.7)).astype(np.float16) for rows in (length, keys, keys, length))
        causal = bool(rng.integers(2))
        o, sums = attended(q, k, v, causal, 0.125)
        self.given = {"q": q, "k": k, "v": v, "o": o.astype(np.float16), "d_o": d_o, "log_sum_exp": sums.astype(np.float32), "causal": causal}

    def arguments(self):
        given = dict(self.given)
        return [given.pop(name) for name in ("q", "k", "v", "o", "d_o", "log_sum_exp")], given

    def wrong(self, given, found):
        q, k, v, o, d_o, sums = (np.asarray(given[name], np.float64) for name in ("q", "k", "v", "o", "d_o", "log_sum_exp"))
        rows, keys = q.shape[1], k.shape[1]
        seen = (np.arange(keys) - np.arange(rows)[:, None] - keys + rows <= 0) | (not given.get("causal", False))
        with np.errstate(all="ignore"):
            p = np.where(seen, np.exp(q @ k.swapaxes(1, 2) * 0.125 - sums[..., None]), 0)
        d_s = p * (d_o @ v.swapaxes(1, 2) - (d_o * o).sum(-1, keepdims=True)) * 0.125
        for name, of, wanted in zip(("q", "k", "v"), found, (d_s @ k, d_s.swapaxes(1, 2) @ q, p.swapaxes(1, 2) @ d_o)):
            if of.shape != wanted.shape or not np.abs(of.astype(np.float64) - wanted).max(initial=0) <= 8e-3 * max(1.0, np.abs(wanted).max(initial=0)):
                return f"the gradient of {name} differs"
        return None


class Weights:
    """`falchion.matmul` with few-bit or sparse weights that are prepared from arrays."""

    def __init__(self, rng):
        n, k, m = int(rng.integers(1, 20)), 4 * int(rng.integers(1, 20)), int(rng.integers(1, 9))
        # Of four neighbours, no two have the same magnitude.
        ranks = rng.permuted(np.tile(np.arange(1.0, 5), (n * k // 4, 1)), axis=1) + rng.uniform(0, 0.5, (n * k // 4, 4))
        self.given = {"weight": (ranks * rng.choice([-1, 1], ranks.shape)).reshape(n, k).astype(np.float16)}
        self.sparse, self.x = bool(rng.integers(2)), rng.standard_normal((m, k)).astype(np.float16)

    def function(self, weight):
        operand = falchion.sparse.compress(weight, prune=True) if self.sparse else falchion.weights.quantize(weight, group=32)
        return falchion.matmul(self.x, operand)

    def arguments(self):
        return [self.given["weight"]], {}

    def wrong(self, given, found):
        weight = np.asarray(given["weight"]).astype(np.float64)
        n, k = weight.shape
        if self.sparse:
            fours = np.abs(weight).reshape(n, -1, 4)
            order = np.argsort(np.argsort(-fours, axis=-1, kind="stable"), axis=-1)
            weight = np.where((order < 2).reshape(n, k), weight, 0)
            tolerance = 2e-2
        else:
            tolerance = 0.2 * k**0.5 + 0.1
        wanted = self.x.astype(np.float64) @ weight.T
        error = np.abs(found.astype(np.float64) - wanted).max(initial=0)
        return None if found.shape == wanted.shape and error <= tolerance * max(1.0, np.abs(weight).max()) else f"it differs by {error}"


KINDS = [Matmul] * 16 + [Attention] * 2 + [Gradient] + [Weights] * 3

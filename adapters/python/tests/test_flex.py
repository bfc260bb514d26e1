"""`falchion.flex`: the signature, functions of scores and of masks next to the same in `f64`, what lists of blocks say, and what is refused. Skipped
without torch."""

import functools
import gc
import inspect
import math
import re
import weakref

import pytest

torch = pytest.importorskip("torch")
if not hasattr(pytest.importorskip("torch.nn.attention.flex_attention"), "AuxRequest"):
    pytest.skip("this torch has no AuxRequest", allow_module_level=True)

import falchion.flex as fx
import falchion.torch as ft
from torch._dynamo._trace_wrapped_higher_order_op import TransformGetItemToIndex

NEEDED = inspect.Parameter.empty
# The parameters, defaults and kinds of torch 2.15.
SIGNATURE = [
    ("query", NEEDED),
    ("key", NEEDED),
    ("value", NEEDED),
    ("score_mod", None),
    ("block_mask", None),
    ("scale", None),
    ("enable_gqa", False),
    ("return_lse", False),
    ("kernel_options", None),
    ("return_aux", None),
]
BATCH, HEADS, SHARED = 2, 4, 2
TOLERANCES = {torch.float16: (3e-3, 8e-3), torch.bfloat16: (1.2e-2, 3e-2)}


def close(found, wanted, tolerance, least=1e-3):
    assert found.shape == wanted.shape
    error = (found.double() - wanted.double()).abs().max() / wanted.double().abs().max().clamp(min=least)
    assert error <= tolerance, error


def over_all(function, leading):
    """A function of numbers as one of tensors (B, H, L, S)."""
    for dims in ((None, None, None, 0), (None, None, 0, None), (None, 0, None, None), (0, None, None, None)):
        function = torch.vmap(function, in_dims=(0,) * leading + dims)
    return function


def plain(q, k, v, score=None, mask=None, scale=None, blocks=None):
    """The result and the log-sum-exp in f64; `blocks` are numbers of blocks as `falchion.flex` has them, and their sizes."""
    share = q.shape[1] // k.shape[1]
    k, v = (x.repeat_interleave(share, 1) for x in (k, v))
    x = q @ k.mT * (q.shape[-1] ** -0.5 if scale is None else scale)
    places = [torch.arange(extent) for extent in x.shape]
    with TransformGetItemToIndex():
        x = x if score is None else over_all(score, 1)(x, *places)
        seen = torch.ones(x.shape, dtype=torch.bool) if mask is None else over_all(mask, 0)(*places)
    if blocks is not None:
        numbers, (rows, columns) = blocks
        numbers = numbers[:, :, torch.arange(x.shape[2]) // rows][..., torch.arange(x.shape[3]) // columns]
        seen = (numbers == 2) | ((numbers == 1) & seen)
    x = x.masked_fill(~seen, -torch.inf)
    weights = torch.softmax(x, -1).masked_fill(x.isneginf().all(-1, keepdim=True), 0)
    return weights @ v, torch.logsumexp(x, -1)


def tensors(rows, keys, dtype=torch.float16, heads=(HEADS, SHARED), batch=BATCH):
    torch.manual_seed(rows + keys)
    return [torch.randn(batch, h, n, 64).to(dtype) for h, n in ((heads[0], rows), (heads[1], keys), (heads[1], keys))]


def check(inputs, score=None, mask=None, block_mask=None, blocks=None, gradients=True, **words):
    """Results, log-sum-exp and gradients."""
    of_result, of_gradients = TOLERANCES[inputs[0].dtype]
    own = [x.clone().requires_grad_(gradients) for x in inputs]
    wide = [x.double().requires_grad_(gradients) for x in inputs]
    found, aux = fx.flex_attention(*own, score, block_mask, enable_gqa=True, return_aux=fx.AuxRequest(lse=True), **words)
    wanted, sums = plain(*wide, score, mask, blocks=blocks, **words)
    close(found, wanted, of_result)
    assert aux.max_scores is None and aux.lse.dtype == torch.float32 and not aux.lse.requires_grad
    assert (aux.lse.isneginf() == sums.isneginf()).all()
    assert (found.detach()[sums.isneginf()] == 0).all()
    assert (aux.lse.double() - sums).nan_to_num().abs().max() < 4e-3
    if gradients:
        torch.manual_seed(3)
        d_o = torch.randn(found.shape).to(found.dtype)
        found.backward(d_o)
        wanted.backward(d_o.double())
        for one, other in zip(own, wide):
            close(one.grad, other.grad, of_gradients, 0.05)


torch.manual_seed(1)
ROWS, KEYS = 33, 47
SLOPES, SINGLE = torch.rand(HEADS), torch.tensor(0.37)
BIAS = torch.randn(BATCH, HEADS, ROWS, KEYS)
TABLE = torch.randn(32, HEADS)
BUCKETS = torch.randint(0, 32, (ROWS, KEYS))
DOCUMENTS = torch.randint(0, 3, (BATCH, KEYS)).sort().values
LENGTHS = torch.tensor([40, 0], dtype=torch.int32)
KEEPS = torch.rand(ROWS, KEYS) < 0.5
CAPS = [20.0, 30.0]


def alibi(score, b, h, q_idx, kv_idx):
    return score + SLOPES[h] * (kv_idx - q_idx)


def powers(score, b, h, q_idx, kv_idx):
    return score + torch.exp2(-((h + 1) * 8.0 / HEADS)) * (kv_idx - q_idx)


def capped(score, b, h, q_idx, kv_idx):
    score = score / CAPS[0]
    return CAPS[0] * torch.tanh(score)


def relative(score, b, h, q_idx, kv_idx):
    return score + (q_idx - kv_idx)


def relative_table(score, b, h, q_idx, kv_idx):
    return score + TABLE[torch.clamp(q_idx - kv_idx, -15, 15) + 15, h]


def causal(b, h, q_idx, kv_idx):
    return q_idx >= kv_idx


def sliding(b, h, q_idx, kv_idx):
    return (q_idx >= kv_idx) & (q_idx - kv_idx <= 9)


def document(b, h, q_idx, kv_idx):
    return DOCUMENTS[b, q_idx] == DOCUMENTS[b, kv_idx]


def prefix(b, h, q_idx, kv_idx):
    return kv_idx < LENGTHS[b]


def checkers(b, h, q_idx, kv_idx):
    return (q_idx + kv_idx) % 2 == 0


class Window:
    """A mask that is no function."""

    def __init__(self, size):
        self.size = size

    def __call__(self, b, h, q_idx, kv_idx):
        return (q_idx - kv_idx).abs() < self.size


SCORES = {
    "the same": lambda score, b, h, q, k: score,
    "alibi": alibi,
    "alibi by powers": powers,
    "slopes as powers of a number": lambda score, b, h, q, k: score - 2.0 ** (-h - 1.0) * (q - k).abs(),
    "cap": capped,
    "cap and scale": lambda score, b, h, q, k: capped(score * SINGLE, b, h, q, k),
    "distance": relative,
    "table by distance": relative_table,
    "table by buckets": lambda score, b, h, q, k: score + TABLE[BUCKETS[q, k], h],
    "table by buckets, one index after the other": lambda score, b, h, q, k: score + TABLE[BUCKETS[q][k]][h],
    "table from its end": lambda score, b, h, q, k: score + TABLE[q - k - 1 - (q - k) // 32 * 32 - 31, -1],
    "bias": lambda score, b, h, q, k: score + BIAS[b, h, q, k],
    "bias, one index after the other": lambda score, b, h, q, k: score + BIAS[b][h][q, k],
    "bias with slices": lambda score, b, h, q, k: score + BIAS[b, :, 1:-1:2][..., k][h, q // 3],
    "bias of one head": lambda score, b, h, q, k: score + BIAS[1, 2, q, k],
    "bias that is expanded": lambda score, b, h, q, k: score + BIAS[:1, :1].expand_as(BIAS)[b, h, q, k],
    "bias as it does not lie": lambda score, b, h, q, k: score + BIAS.permute(3, 1, 2, 0)[k, h, q, b],
    "bias in bfloat16": lambda score, b, h, q, k: score + BIAS.bfloat16()[b, h, q, k],
    "bias in float16": lambda score, b, h, q, k: score + BIAS.half()[b, h, q, k],
    "bias in float64": lambda score, b, h, q, k: score + BIAS.double()[b, h, q, k],
    "bias in 8 bits": lambda score, b, h, q, k: score + BIAS.to(torch.float8_e4m3fn)[b, h, q, k].float(),
    "bias in 8 other bits": lambda score, b, h, q, k: score - BIAS.to(torch.float8_e5m2)[b, h, q, k].to(torch.float32),
    "bias in int8": lambda score, b, h, q, k: score + BIAS.to(torch.int8)[b, h, q, k] / 4,
    "bias in int16": lambda score, b, h, q, k: score + BIAS.to(torch.int16)[b, h, q, k] * 0.5,
    "scalars": lambda score, b, h, q, k: score * SINGLE + 2 - CAPS[1] / 10,
    "scalars on the left": lambda score, b, h, q, k: 2.0 * SINGLE - SINGLE * score / 3,
    "a mask": lambda score, b, h, q, k: torch.where(q >= k, score, -float("inf")),
    "a mask, filled": lambda score, b, h, q, k: (score * 2).masked_fill(KEEPS[q, k], float("-inf")),
    "a mask, least number": lambda score, b, h, q, k: torch.where((q - k < 5) | (k == h), score, torch.finfo(torch.float32).min),
    "a mask as a number": lambda score, b, h, q, k: score + (q > k) * 1.5 + (q > k).float() - (k == 3).to(score.dtype),
    "functions": lambda score, b, h, q, k: torch.sigmoid(score) + torch.sin(score) * torch.cos(q * 0.1) + torch.log(1 + (q - k).abs()) + torch.erf(score),
    "methods": lambda score, b, h, q, k: score.exp2().log2().clamp(-2, 2) + (score.square() + 1).sqrt().reciprocal() - (1 + q).float().rsqrt(),
    "more functions": lambda score, b, h, q, k: torch.nn.functional.silu(score) + torch.maximum(score, score.new_zeros(())) + score.relu(),
    "the least one": lambda score, b, h, q, k: torch.minimum(score, q / 9),
    "powers": lambda score, b, h, q, k: score**2 / 4 - score**3 / 50 + (q + 1) ** 0.5 - (k + 1.0) ** -1 + (1 + k) ** -0.5 + ((q - k) / 9) ** 2,
    "signs": lambda score, b, h, q, k: score * torch.sign(q - k) + (score > 0) * 2 - torch.full_like(score, 0.25) - torch.sign(score),
    "equal numbers": lambda score, b, h, q, k: torch.where(SLOPES[h] == SLOPES[2], score, -score) + torch.where((q / 2) != (k / 2), 0.0, 1.0),
    "all of it": lambda score, b, h, q, k: capped(alibi(relative_table(score, b, h, q, k), b, h, q, k) * SINGLE, b, h, q, k) - BIAS[b, h, q, k],
}
MASKS = {
    "noop": fx.noop_mask,
    "causal": causal,
    "causal from the end": lambda b, h, q, k: q + (KEYS - ROWS) >= k,
    "sliding": sliding,
    "document": document,
    "document and causal": fx.and_masks(document, causal),
    "prefix or causal": fx.or_masks(prefix, causal),
    "prefix": prefix,
    "chunks": lambda b, h, q, k: (q // 8 == k // 8) & (q >= k),
    "checkers": checkers,
    "dilated": lambda b, h, q, k: (q >= k) & ((q - k) % 3 == 0),
    "floors": lambda b, h, q, k: ((q - k) // 5 % 3 == 1) | ((k - q) % -4 == -1) | ((q - 20) // (2 * k - 41) == -2) | ((q - 20) % (2 * k - 41) == 3),
    "towards zero": lambda b, h, q, k: (torch.fmod(q - k, 5) == -2) | (torch.div(q - k, 5, rounding_mode="trunc") == 0),
    "bits": lambda b, h, q, k: ((q - k) & 3 == 1) | ((q - k) >> 3 == -1) | (k == q << 1) | (~q + k == 4),
    "an array of truths": lambda b, h, q, k: KEEPS[q, k] & ~KEEPS[q, -1],
    "truths": lambda b, h, q, k: (q >= k) ^ (k > 20) | torch.logical_not(torch.logical_xor(h == 1, b > 0)) & ((k < 3) == (q < 5)),
    "heads": lambda b, h, q, k: (q >= k) | (h == 1),
    "real numbers": lambda b, h, q, k: (q * 0.5 >= k) | (SLOPES[h] * k < 2),
    "where": lambda b, h, q, k: torch.where(h < 2, q >= k, q - k < 4),
    "new values": lambda b, h, q, k: b.new_ones((), dtype=torch.bool) & (k < k.new_full((), 30)) & (q < torch.full_like(q, 25)),
    "a partial function": functools.partial(lambda size, b, h, q, k: q - k < size, 4),
    "an object": Window(6),
    "or_masks of and_masks": fx.or_masks(fx.and_masks(sliding, document), fx.and_masks(checkers, prefix)),
}


def test_signature():
    found = list(inspect.signature(fx.flex_attention).parameters.values())
    assert [(of.name, of.default) for of in found] == SIGNATURE
    kinds = [inspect.Parameter.POSITIONAL_OR_KEYWORD] * 9 + [inspect.Parameter.KEYWORD_ONLY]
    assert [of.kind for of in found] == kinds


@pytest.mark.parametrize("dtype", TOLERANCES, ids=str)
@pytest.mark.parametrize("score", SCORES)
def test_scores(score, dtype):
    check(tensors(ROWS, KEYS, dtype), SCORES[score])


@pytest.mark.parametrize("dtype", TOLERANCES, ids=str)
@pytest.mark.parametrize("mask", MASKS)
def test_masks(mask, dtype, monkeypatch):
    says = []
    own = fx._says
    monkeypatch.setattr(fx, "_says", lambda *x: says.append(own(*x)) or says[-1])
    mask = MASKS[mask]
    function = mask if inspect.isfunction(mask) else lambda b, h, q, k: mask(b, h, q, k)
    block_mask = fx.create_block_mask(function, BATCH, HEADS, ROWS, KEYS, device="cpu", BLOCK_SIZE=16)
    block_mask.mask_mod = mask
    check(tensors(ROWS, KEYS, dtype), alibi, mask, block_mask)
    assert says == [fx._NOTHING]


@pytest.mark.parametrize("heads", [(4, 4), (6, 1), (3, 3)])
@pytest.mark.parametrize(("rows", "keys"), [(1, 1), (1, 61), (61, 1), (129, 131), (40, 17)])
def test_lengths(rows, keys, heads):
    block_mask = fx.create_block_mask(causal, None, None, rows, keys, device="cpu")
    check(tensors(rows, keys, heads=heads), capped, causal, block_mask, scale=0.2)
    check(tensors(rows, keys, heads=heads))


# What is done, and the texts of it.
TEXTS = [
    (None, None, (None, None)),
    (SCORES["the same"], causal, (None, "q>=k")),
    (alibi, sliding, ("x+a0[h]*(k-q)", "q>=k&q-k<=9")),
    (capped, None, ("tanh(x/20)*20", None)),
    (SCORES["a mask"], None, (None, "q>=k")),
    (SCORES["a mask"], document, (None, "a0[b,q]:s32==a0[b,k]:s32&q>=k")),
    (SCORES["a mask, filled"], None, ("x*2", "!(a0[q,k]:u8!=0)")),
    (SCORES["bias that is expanded"], None, ("x+a0[q,k]", None)),
    (SCORES["bias in bfloat16"], None, ("x+a0[b,h,q,k]:bf16", None)),
    (SCORES["table by buckets"], None, ("v0=a0[q,k]:s32;x+a1[where(v0<0,v0+32,v0),h]", None)),
    (lambda s, b, h, q, k: s + torch.where(q > k, 2.0, 3.0) / 2.0, None, ("x+real(where(q>k,2,3))/2", None)),
    (lambda s, b, h, q, k: s + q * 2.0 / 3, None, ("x+real(q)*2/3", None)),
    (lambda s, b, h, q, k: s + q / 3, None, ("x+real(q)/3", None)),
    (lambda s, b, h, q, k: s - -q - (k - (b - h)) * -2.5e-7, None, ("x-(-q)-(k-(b-h))*(-2.5e-07)", None)),
    (lambda s, b, h, q, k: s * (2**31 - 1 - q) + 2**40 - 1e300, None, ("x*(1073741824+1073741823-q)+1099511627776.0-inf", None)),
    (lambda s, b, h, q, k: 1.5, None, ("1.5", None)),
    (lambda s, b, h, q, k: q > k, None, ("where(q>k,1,0)", None)),
    (None, fx.noop_mask, (None, None)),
    (None, fx.and_masks(fx.noop_mask, causal, causal), (None, "q>=k")),
    (None, fx.or_masks(lambda b, h, q, k: q > k, causal), (None, "q>k|q>=k")),
    (None, lambda b, h, q, k: ~~(q >= k), (None, "q>=k")),
    (None, lambda b, h, q, k: (q // 64 == k // 64) & (k % 2 == 0), (None, "q/64==k/64&k%2==0")),
    (None, lambda b, h, q, k: torch.zeros((), dtype=torch.bool), (None, "a0[0]:u8!=0")),
    (None, lambda b, h, q, k: False, (None, "k<0")),
    (None, lambda b, h, q, k: True, (None, None)),
]


@pytest.mark.parametrize(("score", "mask", "texts"), TEXTS, ids=str)
def test_texts(score, mask, texts):
    query, key, _ = tensors(ROWS, KEYS)
    block_mask = None
    if mask is not None:
        block_mask, _ = lists(torch.full((1, 1, 1, 1), mask(*[torch.tensor(0)] * 4) is not False), None, 64, mask)
    assert fx._texts(query, key, score, block_mask)[:2] == texts


def test_equal_functions_have_one_text():
    """Whatever tensors they read."""
    query, key, _ = tensors(ROWS, KEYS)
    texts = {fx._texts(query, key, lambda s, b, h, q, k, of=torch.rand(HEADS): s + of[h], None)[0] for _ in range(3)}
    assert texts == {"x+a0[h]"}


def test_tensors_are_those_of_the_call():
    """Also those that were replaced, and those that were written."""
    inputs = tensors(ROWS, KEYS)
    slopes = torch.zeros(HEADS)
    score = lambda s, b, h, q, k: s + slopes[h] * k
    for change in range(3):
        check(inputs, score, gradients=False)
        if change:
            slopes = torch.rand(HEADS)
        else:
            slopes.fill_(0.3)


def test_tensors_are_read_as_they_lie():
    query, key, _ = tensors(ROWS, KEYS)
    arrays = fx._texts(query, key, SCORES["bias as it does not lie"], None)[2]
    assert arrays["a0"].data_ptr() == BIAS.data_ptr() and arrays["a0"].shape == (KEYS, HEADS, ROWS, BATCH)
    truths = fx._texts(query, key, SCORES["a mask, filled"], None)[2]["a0"]
    assert truths.dtype == torch.uint8 and truths.data_ptr() == KEEPS.data_ptr()
    # One tensor is one array.
    assert list(fx._texts(query, key, lambda s, b, h, q, k: s + SLOPES[h] + SLOPES[b] * SLOPES[2], None)[2]) == ["a0", "a1"]


def test_inputs_as_they_lie():
    for views in (lambda x: x.transpose(1, 2).contiguous().transpose(1, 2), lambda x: torch.cat([x, x], -1)[..., :64], lambda x: x[:, :, ::2]):
        inputs = [views(x) for x in tensors(66, 94)]
        check(inputs, lambda s, b, h, q, k: s + SLOPES[h] * (k - q) / 8)


def test_keys_of_all_sequences():
    """A batch of one becomes that of the mask."""
    q, k, v = tensors(ROWS, KEYS)
    block_mask = fx.create_block_mask(document, BATCH, None, ROWS, KEYS, device="cpu", BLOCK_SIZE=16)
    k, v = k[:1].clone().requires_grad_(), v[:1].clone().requires_grad_()
    found = fx.flex_attention(q, k, v, None, block_mask, enable_gqa=True)
    wide = [k.detach().double().requires_grad_(), v.detach().double().requires_grad_()]
    wanted, _ = plain(q.double(), *(x.expand(2, -1, -1, -1) for x in wide), None, document)
    close(found, wanted, 3e-3)
    found.float().sin().sum().backward()
    wanted.sin().sum().backward()
    for one, other in zip((k, v), wide):
        close(one.grad, other.grad, 8e-3)


def test_results():
    inputs = tensors(ROWS, KEYS)
    o = fx.flex_attention(*inputs, capped, enable_gqa=True)
    both = fx.flex_attention(*inputs, capped, enable_gqa=True, return_lse=True)
    aux = fx.flex_attention(*inputs, capped, enable_gqa=True, return_aux=fx.AuxRequest())
    assert torch.equal(o, both[0]) and torch.equal(o, aux[0]) and aux[1] == fx.AuxOutput(None, None)
    assert both[1].shape == (BATCH, HEADS, ROWS)
    options = {"BLOCK_M": 64, "fwd_num_stages": 2, "bwd_BLOCK_N1": 32, "PRESCALE_QK": True, "BACKEND": "AUTO", "ROWS_GUARANTEED_SAFE": True}
    assert torch.equal(o, fx.flex_attention(*inputs, capped, enable_gqa=True, kernel_options=options))
    with torch.autocast("cpu", torch.bfloat16):
        cast = fx.flex_attention(*(x.float() for x in inputs), capped, enable_gqa=True)
    assert torch.equal(cast, fx.flex_attention(*(x.bfloat16() for x in inputs), capped, enable_gqa=True))


# Lists of blocks.


def lists(partial, full=None, block=16, mask=causal, lengths=(ROWS, KEYS)):
    """A BlockMask of blocks (B, H, rows, columns) that are listed; and their numbers."""
    partial = torch.as_tensor(partial, dtype=torch.int32)
    full = None if full is None else torch.as_tensor(full, dtype=torch.int32)
    ordered = lambda of: (of.sum(-1).int(), torch.argsort(of, dim=-1, descending=True, stable=True).int())
    both = ordered(partial), (None, None) if full is None else ordered(full)
    found = fx.BlockMask.from_kv_blocks(*both[0], *both[1], BLOCK_SIZE=block, mask_mod=mask, seq_lengths=lengths)
    numbers = partial if full is None else torch.where(full > 0, 2, partial)
    return found, (numbers, found.BLOCK_SIZE)


def random_blocks(*shape):
    return (torch.rand(shape) < 0.5).int()


@pytest.mark.parametrize("mask", [causal, document, fx.noop_mask, MASKS["heads"]], ids=["causal", "document", "noop", "heads"])
@pytest.mark.parametrize("lead", [(1, 1), (BATCH, 1), (1, HEADS), (BATCH, HEADS)], ids=str)
@pytest.mark.parametrize("block", [16, (32, 8)], ids=str)
def test_lists_say_more_than_masks(mask, lead, block):
    torch.manual_seed(sum(lead))
    rows, columns = (block, block) if isinstance(block, int) else block
    shape = (*lead, -(-ROWS // rows), -(-KEYS // columns))
    inputs = tensors(ROWS, KEYS)
    partial, full = random_blocks(*shape), random_blocks(*shape)
    # One that the masks do not see whole.
    partial[..., 0, -1], full[..., 0, -1] = 0, 1
    for more, says in ((None, fx._SOME), (full * (1 - partial), fx._WHOLE)):
        block_mask, blocks = lists(partial, more, block, mask)
        check(inputs, alibi, mask, block_mask, blocks=blocks)
        assert fx._kept[block_mask].says == (says if mask is not fx.noop_mask else fx._SOME)


def test_lists_without_leading_dimensions():
    shape = (3, 3)
    block_mask, (numbers, size) = lists(random_blocks(*shape), 1 - random_blocks(*shape).clamp(min=1), mask=fx.noop_mask)
    check(tensors(ROWS, KEYS), None, None, block_mask, blocks=(numbers[None, None], size))


def test_what_is_kept_of_lists(monkeypatch):
    calls = []
    own = fx._says
    monkeypatch.setattr(fx, "_says", lambda *x: calls.append(1) or own(*x))
    inputs = tensors(ROWS, KEYS)
    documents = DOCUMENTS.clone()
    mask = lambda b, h, q, k: documents[b, q] == documents[b, k]
    block_mask = fx.create_block_mask(mask, BATCH, None, ROWS, KEYS, device="cpu", BLOCK_SIZE=8)
    numbers = fx._dense(block_mask, KEYS)

    def checked(times, blocks=None):
        calls.clear()
        for _ in range(2):
            check(inputs, None, block_mask.mask_mod, block_mask, blocks=blocks, gradients=False)
        assert len(calls) == times

    checked(1)
    # Other batches are others; what a mask reads was written; the mask is another one; the lists were written, or are others.
    before = documents.clone()
    documents.copy_(documents.flip(1))
    checked(1, (numbers, (8, 8)))
    documents.copy_(before)
    checked(1)
    block_mask.mask_mod = causal
    checked(1, (numbers, (8, 8)))
    block_mask.mask_mod = mask
    checked(1)
    block_mask.full_kv_num_blocks.zero_()
    checked(1, (numbers % 2, (8, 8)))
    block_mask.kv_num_blocks = torch.zeros_like(block_mask.kv_num_blocks)
    checked(1, (numbers * 0, (8, 8)))
    assert block_mask in fx._kept
    of = weakref.ref(block_mask)
    del block_mask
    gc.collect()
    assert of() is None


def test_tensors_that_masks_make(monkeypatch):
    """They are new ones in each call, and lists are looked at once."""
    calls = []
    own = fx._says
    monkeypatch.setattr(fx, "_says", lambda *x: calls.append(1) or own(*x))
    mask = lambda b, h, q, k: (DOCUMENTS + 1)[b, q] == (DOCUMENTS.view(-1) + 1)[b * KEYS + k]
    block_mask = fx.create_block_mask(mask, BATCH, None, ROWS, KEYS, device="cpu", BLOCK_SIZE=8)
    for _ in range(3):
        check(tensors(ROWS, KEYS), None, mask, block_mask, gradients=False)
    assert calls == [1]


def test_masks_that_lists_do_not_know():
    """A mask of each sequence with the lists of the first one."""
    block_mask = fx.create_block_mask(document, None, None, ROWS, KEYS, device="cpu", BLOCK_SIZE=16)
    numbers = fx._dense(block_mask, KEYS)
    check(tensors(ROWS, KEYS), None, document, block_mask, blocks=(numbers, (16, 16)))


def test_masks_in_parts(monkeypatch):
    """A long mask is looked at in parts."""
    counts = []
    own = fx.create_mask
    monkeypatch.setattr(fx, "create_mask", lambda *x: counts.append(x[3]) or own(*x))
    rows, keys = 150, (1 << 24) // 100
    block_mask, _ = lists(torch.ones(1, 1, 2, 1), block=(128, keys), lengths=(rows, keys))
    query, key = torch.empty(1, 1, rows, 64), torch.empty(1, 1, keys, 64)
    assert fx._texts(query, key, None, block_mask)[1] == "q>=k" and counts == [100, 50]


def test_sliced_masks():
    whole = fx.create_block_mask(causal, None, None, 64, KEYS, device="cpu", BLOCK_SIZE=16)
    block_mask = whole[:, :, 2:]
    inputs = tensors(32, KEYS)
    with pytest.raises(RuntimeError, match="Cannot use mask_mod from a sliced BlockMask"):
        fx.flex_attention(*inputs, None, block_mask, enable_gqa=True)
    block_mask.mask_mod = lambda b, h, q, k: causal(b, h, q + 32, k)
    check(inputs, None, block_mask.mask_mod, block_mask)


def test_functions_are_compiled():
    inputs = [x.requires_grad_() for x in tensors(ROWS, KEYS)]
    block_mask = fx.create_block_mask(sliding, None, None, ROWS, KEYS, device="cpu", BLOCK_SIZE=16)
    run = lambda *x: fx.flex_attention(*(2 * of for of in x), alibi, block_mask, enable_gqa=True) + 1
    found = []
    for of in (run, torch.compile(run, backend="aot_eager")):
        for x in inputs:
            x.grad = None
        o = of(*inputs)
        o.float().sin().sum().backward()
        found.append((o, *(x.grad for x in inputs)))
    for one, other in zip(*found):
        close(one, other, 1e-3)


# Refusals.

Q, K = torch.ones(2, 4, 5, 64).half(), torch.ones(2, 2, 9, 64).half()
MASK, OF_THREE = (fx.create_block_mask(causal, batch, None, 5, 9, device="cpu") for batch in (None, 3))
call = lambda *x, **words: fx.flex_attention(*(x or (Q, K, K)), **({"enable_gqa": True} | words))


def named(score, b, h, q_idx, kv_idx):
    """A function with a name, for errors."""
    return BODY(score, b, h, q_idx, kv_idx)


def of_score(words, body):
    def run():
        global BODY
        BODY = body
        call(score_mod=named)

    return f"score_mod `named` {words}", run


def masked(mask, **words):
    block_mask = fx.BlockMask.from_kv_blocks(torch.ones(1, 1, 1), torch.zeros(1, 1, 1, 1, dtype=torch.int32), mask_mod=mask, seq_lengths=(5, 9), **words)
    return lambda: call(block_mask=block_mask)


LEARNED = torch.rand(4).requires_grad_()
TRUTH = "asks whether something is true that depends on a score, a position or a tensor: torch.where was needed in place of if"
NUMBER = "asks for the number of something that depends on a score, a position or a tensor: a tensor was needed where a list is read"


@pytest.mark.parametrize(
    ("words", "run"),
    [
        ("query has elements of torch.float32, torch.float16 or torch.bfloat16 was needed", lambda: call(*[Q.float()] * 3)),
        ("key has elements of torch.bfloat16, torch.float16 was needed as query has", lambda: call(Q, K.bfloat16(), K)),
        ("query has shape (4, 5, 64), (batch, heads, rows, elements) was needed", lambda: call(Q[0], K, K)),
        ("key is on meta, cpu was needed as query is", lambda: call(Q, K.to("meta"), K)),
        ("value has shape (2, 2, 5, 64), (2, 2, 9, elements) was needed", lambda: call(Q, K, Q[:, :2])),
        ("key has heads of 32 elements, 64 were needed", lambda: call(Q, K[..., :32], K)),
        ("key has 2 heads, 4 were needed as query has, or enable_gqa=True", lambda: call(enable_gqa=False)),
        ("query has 3 heads, a multiple of 2 was needed, the heads of key", lambda: call(Q[:, :3], K, K)),
        ("key and value have 1 sequences, 2 were needed as query has, or 1 with a block_mask of 2", lambda: call(Q, K[:1], K[:1])),
        ("key and value have 1 sequences, 2 were needed", lambda: call(Q, K[:1], K[:1], block_mask=MASK)),
        ("return_lse is True and return_aux is given", lambda: call(return_lse=True, return_aux=fx.AuxRequest())),
        ("return_aux has max_scores=True, False was needed", lambda: call(return_aux=fx.AuxRequest(max_scores=True))),
        ("kernel_options has 'BLOCK_X', one of num_warps, num_stages", lambda: call(kernel_options={"BLOCK_X": 3})),
        ("kernel_options has 'OUTPUT_MAX', one of", lambda: call(kernel_options={"OUTPUT_MAX": True})),
        ("kernel_options has BACKEND='FLASH', 'AUTO' was needed", lambda: call(kernel_options={"BACKEND": "FLASH"})),
        ("block_mask is of 5 queries and 9 keys, 4 and 9 were needed", lambda: call(Q[:, :, :4], K, K, block_mask=MASK)),
        ("block_mask is of 5 queries and 9 keys, 5 and 8 were needed", lambda: call(Q, *[K[:, :, :8]] * 2, block_mask=MASK)),
        ("block_mask is on meta, cpu was needed as query is", lambda: call(block_mask=MASK.to("meta"))),
        ("block_mask has kv_num_blocks of shape (3, 1, 1), (2 or 1, 4 or 1, 1) was needed", lambda: call(block_mask=OF_THREE)),
        ("block_mask has kv_num_blocks of shape (1, 1, 1), (2 or 1, 4 or 1, 2) was needed", masked(causal, BLOCK_SIZE=4)),
        ("is 40, a multiple of 16 from 32", lambda: call(*[Q[..., :40]] * 3)),
        ("mask_mod `<lambda>` returns a whole number, a truth was needed", masked(lambda b, h, q, k: q - k)),
        ("mask_mod `<lambda>` returns a real number, a truth was needed", masked(lambda b, h, q, k: SLOPES[h])),
        (f"mask_mod `<lambda>` {TRUTH}", masked(lambda b, h, q, k: q > 3 and k > 3)),
        of_score(TRUTH, lambda s, b, h, q, k: s if q > k else -s),
        of_score(TRUTH, lambda s, b, h, q, k: s * (not h)),
        of_score(TRUTH, lambda s, b, h, q, k: max(s, 0)),
        of_score(NUMBER, lambda s, b, h, q, k: s + [1, 2, 3, 4][h]),
        of_score(NUMBER, lambda s, b, h, q, k: math.exp(s)),
        of_score(NUMBER, lambda s, b, h, q, k: sum(range(q))),
        of_score(NUMBER, lambda s, b, h, q, k: s + BIAS[:q].sum()),
        of_score("calls torch.bucketize, which has no translation", lambda s, b, h, q, k: s + torch.bucketize(q, SLOPES)),
        of_score("calls torch.Tensor.item, which has no translation", lambda s, b, h, q, k: s + h.item()),
        of_score("calls torch.Tensor.erfinv, which has no translation", lambda s, b, h, q, k: s.erfinv()),
        of_score("calls torch.floor, which has no translation", lambda s, b, h, q, k: torch.floor(s)),
        of_score("calls torch.nn.functional.softplus, which has no translation", lambda s, b, h, q, k: torch.nn.functional.softplus(s)),
        of_score("calls torch.stack, which has no translation", lambda s, b, h, q, k: torch.stack([s, s])[0]),
        of_score("calls torch.tensor, which has no translation", lambda s, b, h, q, k: torch.tensor([s])),
        of_score("calls torch.Tensor.sum, which has no translation", lambda s, b, h, q, k: s + BIAS[b].sum()),
        of_score("calls torch.Tensor.index_select, which has no translation", lambda s, b, h, q, k: s + SLOPES.index_select(0, h)),
        of_score("calls torch.Tensor.add_, which has no translation", lambda s, b, h, q, k: s.add_(1)),
        of_score("writes into a tensor", lambda s, b, h, q, k: s.__setitem__((), 3)),
        of_score("calls torch.Tensor.__setitem__, which has no translation", lambda s, b, h, q, k: SLOPES.clone().__setitem__(h, 3)),
        of_score("takes `%` of real numbers, which has no translation: whole ones", lambda s, b, h, q, k: s % 2),
        of_score("takes `//` of real numbers, which has no translation: whole ones", lambda s, b, h, q, k: s // 2),
        of_score("divides with rounding_mode='trunc', which has a translation of whole numbers", lambda s, b, h, q, k: s.div(2, rounding_mode="trunc")),
        of_score("takes `|` of numbers, which has no translation: truths were needed", lambda s, b, h, q, k: s + (q | k)),
        of_score("takes `&` of whole numbers, which has a translation with 2**n - 1 alone", lambda s, b, h, q, k: s + (q & 5)),
        of_score("shifts by a number that is no constant of 0 to 30", lambda s, b, h, q, k: s + (1 << h)),
        of_score("takes a power that has no translation", lambda s, b, h, q, k: s**q),
        of_score("takes a power that has no translation", lambda s, b, h, q, k: s + 2**h),
        of_score("divides a whole number by 0", lambda s, b, h, q, k: s + q // 0),
        of_score("makes a real number one of torch.int32, which has no translation", lambda s, b, h, q, k: s.to(torch.int32)),
        of_score("makes a real number one of torch.int64, which has no translation", lambda s, b, h, q, k: s.long()),
        of_score("makes a whole number one of torch.uint8, which has no translation", lambda s, b, h, q, k: (q - k).byte()),
        of_score("uses a tensor of shape (4,) as a number: an index of each dimension was needed", lambda s, b, h, q, k: s + SLOPES),
        of_score("uses a tensor of shape (33, 47) as a number: an index of each dimension was needed", lambda s, b, h, q, k: s + BIAS[b, h]),
        of_score("uses 'nothing' as a number", lambda s, b, h, q, k: "nothing"),
        of_score("uses None as a number", lambda s, b, h, q, k: None),
        of_score("uses nan as a number", lambda s, b, h, q, k: s + float("nan")),
        of_score("uses 4294967296 as a whole number", lambda s, b, h, q, k: s + q * 2**32),
        of_score("reads a tensor of shape (4,) with 2 indices, at most 1 were needed", lambda s, b, h, q, k: s + SLOPES[h, q]),
        of_score("reads a tensor of shape (4,) by a real number: whole numbers were needed", lambda s, b, h, q, k: s + SLOPES[s]),
        of_score("reads a tensor of shape (4,) by a truth: whole numbers were needed", lambda s, b, h, q, k: s + SLOPES[h > 1]),
        of_score("reads a tensor of shape (2, 4, 33, 47) by None: whole numbers were needed", lambda s, b, h, q, k: s + BIAS[b, None]),
        of_score("reads a tensor of shape (0,), which has no elements", lambda s, b, h, q, k: s + SLOPES[:0][h]),
        of_score("reads a tensor of torch.complex64, one of float32,", lambda s, b, h, q, k: s + SLOPES.to(torch.complex64)[h]),
        of_score("reads a tensor on meta, cpu was needed", lambda s, b, h, q, k: s + SLOPES.to("meta")[h]),
        of_score("reads a tensor by 5 indices, at most 4 were needed", lambda s, b, h, q, k: s + torch.stack([BIAS, BIAS])[b, b, h, q, k]),
        of_score("reads a tensor of shape (4,) that requires a gradient, which arrays do not have: detach()", lambda s, b, h, q, k: s + LEARNED[h]),
        of_score("calls torch.clamp with arguments that have no translation", lambda s, b, h, q, k: s.clamp(low=3)),
        of_score("makes a tensor of shape (3,) of a value", lambda s, b, h, q, k: s + s.new_ones(3)),
        of_score("makes a tensor of shape (1, 2) of a value", lambda s, b, h, q, k: s + s.new_full((1, 2), 3)),
        of_score("reads a tensor of shape () that requires a gradient, which arrays do not have", lambda s, b, h, q, k: s + LEARNED[0]),
        ("reads has 4294967296, -2147483648 to 2147483647 was needed", lambda: call(score_mod=lambda s, b, h, q, k: s + torch.tensor([1, 2**32])[b])),
        ("the text has", lambda: call(score_mod=lambda s, b, h, q, k: functools.reduce(lambda a, i: a + (q - i).abs() * s, range(2000), s))),
    ],
)
def test_refusals(words, run):
    with pytest.raises(ValueError, match=re.escape(words)):
        run()


def test_what_is_no_tensor():
    with pytest.raises(TypeError, match="key is a ndarray, a tensor of torch was needed"):
        call(Q, K.numpy(), K)
    with pytest.raises(TypeError, match="block_mask is a Tensor, a BlockMask was needed"):
        call(block_mask=torch.ones(5, 9))


def test_values_of_another_call():
    kept = []
    call(score_mod=lambda s, b, h, q, k: kept.append(s) or s)
    with pytest.raises(ValueError, match="uses a value that it was given in another call"):
        call(score_mod=lambda s, b, h, q, k: s + kept[0])


def test_without_gradients_tensors_may_require_one():
    with torch.no_grad():
        found = call(score_mod=lambda s, b, h, q, k: s + LEARNED[h])
    close(found, call(score_mod=lambda s, b, h, q, k: s + LEARNED.detach()[h]), 0)


def test_what_functions_ask_of_values():
    def score_mod(score, b, h, q_idx, kv_idx):
        assert score.dtype == torch.float32 and q_idx.dtype == torch.int32 and (q_idx > 0).dtype == torch.bool
        assert score.device == Q.device and score.shape == () and score.ndim == score.dim() == 0 and score.numel() == 1
        assert BIAS[b, h].shape == (ROWS, KEYS) and not hasattr(score, "no_such_name")
        return torch.zeros_like(score, dtype=torch.float32) + score.detach().clone().type_as(score)

    assert torch.equal(call(score_mod=score_mod), call())


def test_no_array_has_a_gradient_elsewhere():
    """The refusal of `falchion.torch.attention` is there, too."""
    with pytest.raises(ValueError, match="an array of score or sees requires a gradient"):
        ft.attention(Q, K, K, score="x+a[h]", arrays={"a": LEARNED})

"""torch's tensors, on the CPU: the operations, their gradients, and `torch.compile`. Skipped without torch."""

import re

import falchion
import pytest

torch = pytest.importorskip("torch")

import falchion.torch as ft


def close(found, expected, tolerance=2e-3):
    assert found.shape == expected.shape
    error = (found.double() - expected.double()).abs().max() / expected.double().abs().max().clamp(min=1e-9)
    assert error <= tolerance, error


def test_tensors_are_multiplied_as_they_lie():
    torch.manual_seed(1)
    for dtype in [torch.float16, torch.bfloat16, torch.float32, torch.float64]:
        a, w = torch.randn(20, 72, dtype=dtype), torch.randn(40, 72, dtype=dtype)
        y = falchion.matmul(a, w.t())
        assert y.dtype == dtype
        close(y, a.double() @ w.double().t(), 1e-2 if dtype == torch.bfloat16 else 2e-3)
    a, b = torch.randn(3, 20, 72), torch.randn(72, 40)
    close(falchion.matmul(a, b.expand(3, 72, 40)), a.double() @ b.double())
    a, b = torch.randn(20, 72).to(torch.float8_e4m3fn), torch.randn(40, 72).to(torch.float8_e4m3fn)
    y = falchion.matmul(a, b.t(), scale_a=torch.rand(20), scale_b=torch.ones(40))
    assert y.dtype == torch.bfloat16


def test_weights_of_tensors():
    weight = torch.randn(64, 128, dtype=torch.bfloat16) * 0.1
    operand = falchion.weights.quantize(weight)
    x = torch.randn(12, 128, dtype=torch.bfloat16)
    close(falchion.matmul(x, operand.to("cpu")), x.double() @ weight.double().t(), 0.15)


def test_the_operations_are_operations():
    x, w, b = torch.randn(9, 24), torch.randn(17, 24), torch.randn(17)
    for arguments in [(x, w, b), (x, w, None), tuple(t.requires_grad_() for t in (x, w, b))]:
        torch.library.opcheck(torch.ops.falchion.linear, arguments)
    arguments = (x.detach(), w.detach().t(), "gelu(acc + bias[n])", None, ["bias"], [b.detach()], [], [])
    torch.library.opcheck(torch.ops.falchion.matmul, arguments)
    with pytest.raises(ValueError, match="a requires a gradient"):
        falchion.matmul(x, w.detach().t())


@pytest.mark.parametrize("bias", [True, False])
def test_layers_have_torchs_gradients(bias):
    torch.manual_seed(2)
    plain = torch.nn.Sequential(torch.nn.Linear(24, 40, bias=bias), torch.nn.GELU(), torch.nn.Linear(40, 8, bias=bias))
    ours = torch.nn.Sequential(torch.nn.Linear(24, 40, bias=bias), torch.nn.GELU(), torch.nn.Linear(40, 8, bias=bias))
    ours.load_state_dict(plain.state_dict())
    ft.replace_linears(ours)
    assert [type(layer) for layer in ours] == [ft.Linear, torch.nn.GELU, ft.Linear]
    x = torch.randn(2, 7, 24)
    results = [model(x) for model in (plain, ours)]
    close(results[1], results[0], 1e-5)
    for result in results:
        (result**2).sum().backward()
    for one, other in zip(plain.parameters(), ours.parameters()):
        close(other.grad, one.grad, 1e-4)


def test_compile_has_no_break():
    torch.manual_seed(3)
    model = ft.replace_linears(torch.nn.Sequential(torch.nn.Linear(24, 40), torch.nn.ReLU(), torch.nn.Linear(40, 8)))
    compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
    x = torch.randn(5, 24)
    expected = model(x)
    close(compiled(x), expected, 1e-6)
    compiled(x).sum().backward()
    fused = torch.compile(
        lambda a, b, bias: ft.matmul(a, b, epilogue="relu(acc + bias[n])", bias=bias) * 2, fullgraph=True, backend="aot_eager"
    )
    a, b, bias = torch.randn(5, 24), torch.randn(24, 16), torch.randn(16)
    close(fused(a, b, bias), torch.relu(a @ b + bias) * 2, 1e-5)


def test_attention_is_an_operation():
    torch.manual_seed(4)
    q, k, v = (torch.randn(2, heads, 70, 64, dtype=torch.float16) for heads in (4, 2, 2))
    torch.library.opcheck(torch.ops.falchion.attention, (q, k, v, True, None, None, False, 0.0, *[None] * 13, [], []))
    wide = [x.double() for x in (q, k.repeat_interleave(2, 1), v.repeat_interleave(2, 1))]
    expected = torch.nn.functional.scaled_dot_product_attention(*wide, is_causal=True)
    o, sums = ft.attention(q, k, v, causal=True, log_sum_exp=True)
    assert o.dtype == q.dtype and sums.dtype == torch.float32
    close(o, expected)
    after = [x.transpose(1, 2).contiguous().transpose(1, 2) for x in (q, k, v)]
    assert torch.equal(falchion.attention(*after, causal=True), o)
    compiled = torch.compile(lambda q, k, v: ft.attention(q, k, v, causal=True) + 1, fullgraph=True, backend="aot_eager")
    close(compiled(q, k, v), expected + 1)
    with pytest.raises(ValueError, match="q requires a gradient"):
        falchion.attention(q.requires_grad_(), k, v)
    with torch.no_grad():
        close(ft.attention(q, k, v), torch.nn.functional.scaled_dot_product_attention(*wide))


def test_scores_of_attention():
    """A cap, slopes of heads and sinks, also of each sequence; and the gradient of what sinks change."""
    torch.manual_seed(5)
    q, k, v = (torch.randn(2, h, n, 64).half() for h, n in ((4, 20), (2, 33), (2, 33)))
    slopes, sinks = torch.rand(2, 4), torch.randn(4) * 3
    wide = [x.double() for x in (q, k.repeat_interleave(2, 1), v.repeat_interleave(2, 1))]
    distance = (torch.arange(33)[None] - torch.arange(20)[:, None] - 13).abs()

    def plain(q, k, v, cap, slopes, sinks):
        scores = q @ k.mT / 8
        scores = cap * torch.tanh(scores / cap) if cap else scores
        scores = scores - slopes[..., None, None] * distance
        columns = torch.cat([scores, sinks[:, None, None].expand(2, 4, 20, 1)], -1)
        return torch.softmax(columns, -1)[..., :-1] @ v

    for each in (slopes, slopes[0]):
        wanted = plain(*wide, 2.0, each.double(), sinks.double())
        close(falchion.attention(q, k, v, softcap=2.0, alibi_slopes=each, sinks=sinks), wanted)
        close(ft.attention(q, k, v, softcap=2.0, alibi_slopes=each, sinks=sinks), wanted)
        numpy = (x.numpy() for x in (q, k, v))
        close(torch.from_numpy(falchion.attention(*numpy, softcap=2.0, alibi_slopes=each.numpy(), sinks=sinks.numpy())), wanted)
    own = [x.clone().requires_grad_() for x in (q, k, v, sinks)]
    others = [x.double().requires_grad_() for x in (q, k, v, sinks)]
    d_o = torch.randn(2, 4, 20, 64).half()
    run = lambda q, k, v, sinks: ft.attention(q, k, v, sinks=sinks, softcap=2.0, alibi_slopes=slopes)
    for of in (run, torch.compile(run, fullgraph=True, backend="aot_eager")):
        for x in (*own, *others):
            x.grad = None
        of(*own).backward(d_o)
        q64, k64, v64, sinks64 = others
        repeated = (k64.repeat_interleave(2, 1), v64.repeat_interleave(2, 1))
        plain(q64, *repeated, 2.0, slopes.double(), sinks64).backward(d_o.double())
        for found, expected in zip(own, others):
            close(found.grad, expected.grad)


def test_attention_in_8_bits():
    """A cache of 8 bits with factors, and 8-bit queries."""
    torch.manual_seed(6)
    q, k, v = (torch.randn(1, h, n, 64) for h, n in ((4, 9), (2, 33), (2, 33)))
    e4m3 = torch.float8_e4m3fn
    narrow = [x.to(e4m3) for x in (k, v)]
    of_k, of_v = torch.tensor([0.5, 2.0]), torch.tensor([3.0, 0.25])
    wide = [(x.double() * of[:, None, None]).repeat_interleave(2, 1) for x, of in zip(narrow, (of_k, of_v))]
    expected = torch.nn.functional.scaled_dot_product_attention(q.half().double(), *wide)
    for attend in (falchion.attention, ft.attention):
        close(attend(q.half(), *narrow, k_descale=of_k, v_descale=of_v), expected)
    all = [x.to(e4m3) for x in (q, k, v)]
    wide = [x.double().repeat_interleave(4 // x.shape[1], 1) for x in all]
    expected = torch.nn.functional.scaled_dot_product_attention(wide[0], wide[1] * 0.5, wide[2])
    found = falchion.attention(*all, k_descale=torch.tensor(0.5))
    assert found.dtype == torch.bfloat16
    assert (found.double() - expected).abs().max() < 0.1
    out = torch.empty(1, 4, 9, 64, dtype=torch.float16)
    assert falchion.attention(*all, k_descale=torch.tensor([0.5]), out=out) is out
    for words, wrong in [
        ("q_descale is given and q has elements of 16 bits", lambda: falchion.attention(q.half(), *narrow, q_descale=of_k)),
        ("k_descale has shape (3,), () or (1,) or (2,) was needed", lambda: falchion.attention(q.half(), *narrow, k_descale=torch.ones(3))),
        ("v_descale has shape (1,), (2,) was needed as k_descale has", lambda: falchion.attention(q.half(), *narrow, k_descale=of_k, v_descale=of_k[:1])),
        ("sinks has shape (2,), (4,) was needed", lambda: falchion.attention(q.half(), *narrow, sinks=of_k)),
        ("alibi_slopes has shape (2,), (4,) or (1, 4) was needed", lambda: falchion.attention(q.half(), *narrow, alibi_slopes=of_k)),
        ("sinks has elements of float16, float32 was needed", lambda: falchion.attention(q.half(), *narrow, sinks=torch.ones(4).half())),
        ("softcap is -1, a number from 0.000001 to 4096 was needed", lambda: falchion.attention(q.half(), *narrow, softcap=-1.0)),
        ("v has elements of float16", lambda: falchion.attention(q.half(), narrow[0], v.half())),
        ("k_descale has -1, a finite number above zero was needed", lambda: falchion.attention(q.half(), *narrow, k_descale=-of_k[:1] * 2)),
        ("softcap is 0, a number from", lambda: falchion.attention(q.half(), *narrow, softcap=1e-60)),
        ("softcap is 100000, a number from", lambda: falchion.attention(q.half(), *narrow, softcap=1e5)),
        ("sinks requires a gradient", lambda: falchion.attention(q.half(), *narrow, sinks=torch.ones(4).requires_grad_())),
        ("a factor requires a gradient", lambda: ft.attention(q.half(), *narrow, k_descale=of_k.clone().requires_grad_())),
        ("heads have 576 elements", lambda: ft.attention(torch.ones(1, 1, 1, 576).half().requires_grad_(), torch.ones(1, 1, 3, 576).half())),
        ("alibi_slopes requires a gradient", lambda: ft.attention(q.half(), k.half(), v.half(), alibi_slopes=torch.ones(4).requires_grad_())),
        ("k has elements of torch.float8_e4m3fn and a tensor requires a gradient", lambda: ft.attention(q.half().requires_grad_(), *narrow)),
    ]:
        with pytest.raises(ValueError, match=re.escape(words)):
            wrong()


def test_latent_attention_has_no_v():
    torch.manual_seed(5)
    q, k = (torch.randn(2, heads, length, 576, dtype=torch.float16) for heads, length in ((16, 3), (1, 70)))
    wide = [x.double() for x in (q, k, k[..., :512])]
    expected = torch.nn.functional.scaled_dot_product_attention(*wide, scale=0.07, enable_gqa=True)
    for o in (ft.attention(q, k, scale=0.07), torch.compile(ft.attention, backend="aot_eager")(q, k, scale=0.07)):
        close(o, expected)
    with pytest.raises(ValueError, match="v is None and heads have 64 elements"):
        ft.attention(q[..., :64], k[..., :64])


def test_linear_takes_any_dimensions():
    torch.manual_seed(6)
    w, b = torch.randn(40, 24), torch.randn(40)
    for x in [torch.randn(24), torch.randn(3, 24), torch.randn(2, 3, 24), torch.randn(2, 3, 5, 24), torch.randn(0, 24), torch.randn(2, 0, 24), torch.randn(3, 2, 24).transpose(0, 1), torch.randn(2, 3, 48)[..., ::2], torch.randn(24, 5).t()]:
        both = [[t.clone(memory_format=torch.preserve_format).requires_grad_() for t in (x, w, b)] for _ in range(2)]
        results = [f(*arguments) for f, arguments in zip((torch.nn.functional.linear, ft.linear), both)]
        assert results[1].shape == results[0].shape
        if x.numel():
            close(results[1], results[0], 1e-5)
        for result in results:
            (result**2).sum().backward()
        for found, expected in zip(both[1], both[0]):
            assert found.grad.shape == expected.grad.shape
            if x.numel():
                close(found.grad, expected.grad, 1e-5)
    with torch.no_grad():
        close(ft.linear(x, w), torch.nn.functional.linear(x, w), 1e-5)


def test_experts_have_gradients():
    torch.manual_seed(9)
    offsets = torch.tensor([0, 5, 5, 20], dtype=torch.int32)
    both = [[torch.randn(20, 24, generator=torch.Generator().manual_seed(1)).requires_grad_(), torch.randn(3, 16, 24, generator=torch.Generator().manual_seed(2)).requires_grad_()] for _ in range(2)]
    torch.library.opcheck(torch.ops.falchion.experts, (*both[0], offsets))
    found = ft.experts(*both[0], offsets)
    x, weight = both[1]
    expected = torch.cat([x[begin:end] @ weight[i].t() for i, (begin, end) in enumerate(((0, 5), (5, 5), (5, 20)))])
    close(found, expected, 1e-5)
    for result in (found, expected):
        (result**2).sum().backward()
    for own, other in zip(*both):
        close(own.grad, other.grad, 1e-5)
    compiled = torch.compile(lambda x, weight: ft.experts(x, weight, offsets).sin(), fullgraph=True, backend="aot_eager")
    compiled(*both[0]).sum().backward()


def test_attention_of_sequences_and_pages():
    torch.manual_seed(7)
    q, k = torch.randn(2, 90, 64).half(), torch.randn(2, 90, 64).half()
    begins = torch.tensor([0, 30, 90], dtype=torch.int32)
    found = ft.attention(q, k, k, causal=True, cu_seqlens_q=begins)
    compiled = torch.compile(lambda q: ft.attention(q, k, k, causal=True, cu_seqlens_q=begins) * 2, fullgraph=True, backend="aot_eager")
    close(compiled(q), found * 2)
    for begin, end in ((0, 30), (30, 90)):
        close(found[:, begin:end], ft.attention(*(x[:, begin:end] for x in (q, k, k)), causal=True))
    with pytest.raises(ValueError, match="cu_seqlens_q is .0, 30, 91., numbers from 0 to 90"):
        ft.attention(q, k, k, cu_seqlens_q=begins + torch.tensor([0, 0, 1], dtype=torch.int32))
    with pytest.raises(ValueError, match="lengths is given, one of softcap, alibi_slopes"):
        ft.attention(q, k, k, lengths=begins)
    cache, table = torch.randn(5, 16, 2, 64).half(), torch.tensor([[3, 0, 4]], dtype=torch.int32)
    found = ft.attention(q[None, :, :4], cache.transpose(1, 2), cache.transpose(1, 2), block_table=table, cache_seqlens=torch.tensor([41], dtype=torch.int32))
    keys = cache[[3, 0, 4]].flatten(0, 1)[:41].transpose(0, 1)
    close(found[0], ft.attention(q[:, :4], keys, keys))


def test_sequences_have_gradients():
    torch.manual_seed(9)
    inputs = [torch.randn(heads, 100, 64).half().requires_grad_() for heads in (4, 2, 2)]
    begins, begins_k = (torch.tensor(of, dtype=torch.int32) for of in ([0, 30, 30, 100], [0, 45, 50, 100]))
    o = ft.attention(*inputs, causal=True, cu_seqlens_q=begins, cu_seqlens_k=begins_k)
    d_o = torch.randn(o.shape).half()
    o.backward(d_o)
    for i, length in enumerate((30, 0, 70)):
        (begin, end), (first, last) = ((of[i], of[i + 1]) for of in (begins.tolist(), begins_k.tolist()))
        if length == 0:
            # Keys that no query sees.
            assert all(x.grad[:, first:last].count_nonzero() == 0 for x in inputs[1:])
            continue
        own = [x.detach()[:, a:b].clone().requires_grad_() for x, (a, b) in zip(inputs, ((begin, end), (first, last), (first, last)))]
        ft.attention(*own, causal=True).backward(d_o[:, begin:end])
        for x, y, (a, b) in zip(own, inputs, ((begin, end), (first, last), (first, last))):
            close(y.grad[:, a:b], x.grad)
    cache, table = torch.randn(5, 2, 16, 64).half(), torch.tensor([[3, 0, 4]], dtype=torch.int32)
    with pytest.raises(ValueError, match="block_table is given and a tensor requires a gradient"):
        ft.attention(inputs[0][None, :, :4], cache, cache, block_table=table, cache_seqlens=torch.tensor([41], dtype=torch.int32))


def test_windows_have_gradients():
    torch.manual_seed(8)
    inputs = [torch.randn(1, 2, 70, 64).half().requires_grad_() for _ in range(3)]
    wide = [x.detach().double().requires_grad_() for x in inputs]
    rows, keys = torch.arange(70)[:, None], torch.arange(70)
    mask = (keys >= rows - 9) & (keys <= rows + 4)
    torch.nn.functional.scaled_dot_product_attention(*wide, attn_mask=mask).sin().sum().backward()
    ft.attention(*inputs, window=(9, 4)).sin().sum().backward()
    for found, expected in zip(inputs, wide):
        close(found.grad, expected.grad, 1e-2)


@pytest.mark.parametrize("causal", [False, True])
def test_attention_has_torchs_gradients(causal):
    torch.manual_seed(5)
    inputs = [(torch.randn(2, heads, 70, 64) * 0.7).half().requires_grad_() for heads in (4, 2, 2)]
    wide = [x.detach().double().requires_grad_() for x in inputs]
    shared = [wide[0], *(x.repeat_interleave(2, 1) for x in wide[1:])]
    d_o = torch.randn(2, 4, 70, 64).half()
    torch.nn.functional.scaled_dot_product_attention(*shared, is_causal=causal).backward(d_o.double())
    ft.attention(*inputs, causal=causal).backward(d_o)
    for found, expected in zip(inputs, wide):
        close(found.grad, expected.grad, 5e-3)
    torch.library.opcheck(torch.ops.falchion.attention, (*inputs, causal, None, None, False, 0.0, *[None] * 13, [], []))
    compiled = torch.compile(lambda q, k, v: ft.attention(q, k, v, causal=causal).float().sin().sum(), fullgraph=True, backend="aot_eager")
    compiled(*inputs).backward()
    o, sums = falchion.attention(*(x.detach() for x in inputs), causal=causal, log_sum_exp=True)
    arguments = [x.detach().numpy() for x in (*inputs, o, d_o, sums)]
    for found, expected in zip(falchion.attention_backward(*arguments, causal=causal, deterministic=True), wide):
        close(torch.from_numpy(found), expected.grad, 5e-3)
    with pytest.raises(ValueError, match="log_sum_exp has shape .1, 4, 70., a packed array of shape .2, 4, 70. was needed"):
        falchion.attention_backward(*arguments[:5], arguments[5][:1])


def test_tables_are_torchs_own_integers():
    torch.manual_seed(12)
    x, weight, offsets = torch.randn(20, 24), torch.randn(3, 16, 24), torch.tensor([0, 5, 5, 20])
    assert offsets.dtype == torch.int64
    assert torch.equal(ft.experts(x, weight, offsets), ft.experts(x, weight, offsets.to(torch.int32)))
    q, begins = torch.randn(2, 90, 64).half().requires_grad_(), torch.tensor([0, 30, 90])
    ft.attention(q, q, q, cu_seqlens_q=begins).float().sum().backward()
    cache, table, lengths = torch.randn(5, 2, 16, 64).half(), torch.tensor([[3, 0, 4]]), torch.tensor([41])
    paged = [ft.attention(q.detach()[None, :, :4], cache, cache, block_table=table.to(of), cache_seqlens=lengths.to(of)) for of in (torch.int32, torch.int64)]
    assert torch.equal(*paged)

    class OnCard(torch.Tensor):
        """A tensor that says that it is on a card, where tables are not converted."""

        is_cuda = True
        get_device = lambda self: 1

    with pytest.raises(ValueError, match=r"groups has elements of int64 on cuda:1, int32 was needed: pass groups.to.torch.int32."):
        falchion.matmul(x, weight.mT, groups=offsets.as_subclass(OnCard))
    with pytest.raises(ValueError, match="groups has the number -3000000000, numbers that int32 holds"):
        falchion.matmul(x, weight.mT, groups=torch.tensor([-3000000000, 5, 5, 20]))


def twice(f, *inputs):
    inputs = [x.clone().requires_grad_() for x in inputs]
    first = torch.autograd.grad((f(*inputs).float() ** 2).sum(), inputs, create_graph=True)
    return torch.autograd.grad(sum((x.float() ** 2).sum() for x in first), inputs)


def test_what_has_no_rule_is_refused():
    x, w, experts = torch.randn(8, 16), torch.randn(24, 16), torch.randn(2, 24, 16)
    q, offsets = torch.randn(1, 2, 16, 64, dtype=torch.float16), torch.tensor([0, 3, 8], dtype=torch.int32)
    operations = {
        "linear": (lambda x: ft.linear(x, w), x),
        "experts": (lambda x: ft.experts(x, experts, offsets), x),
        "attention": (lambda q: ft.attention(q, q, q), q),
        "matmul": (lambda x: ft.matmul(x, w.t()), x),
    }
    for name, (f, x) in operations.items():

        def forward():
            with torch.autograd.forward_ad.dual_level():
                return f(torch.autograd.forward_ad.make_dual(x, x))

        for words, call in [
            ("vmap", lambda: torch.func.vmap(f)(x[None])),
            ("jvp", lambda: torch.func.jvp(f, (x,), (x,))),
            ("jvp", forward),
            ("torch.func.grad", lambda: torch.func.grad(lambda x: f(x).sum())(x)),
        ]:
            with pytest.raises(NotImplementedError, match=f"falchion.torch.{name} has no rule for {words}"):
                call()
        if name != "matmul":
            with pytest.raises(NotImplementedError, match=f"the gradient of falchion.torch.{name} has no gradient"):
                twice(f, x)
            # Nothing else changes: the first gradient is there, with a graph and without one.
            own = [x.clone().requires_grad_() for _ in range(2)]
            for x, graph in zip(own, [False, True]):
                (f(x).float() ** 2).sum().backward(create_graph=graph)
            assert (own[0].grad == own[1].grad).all() and own[0].grad.abs().max() > 0


# Shapes of masks of 2 sequences, 4 heads, 33 queries and 47 keys.
SHAPES = [(2, 4, 33, 47), (1, 4, 33, 47), (2, 1, 33, 47), (33, 47), (4, 33, 47), (2, 1, 1, 47), (2, 4, 33, 1), (1, 1, 1, 1), (33, 1), (47,), ()]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("dtype", [torch.bool, torch.float32, torch.float16, torch.bfloat16], ids=str)
def test_torchs_masks(dtype, shape):
    torch.manual_seed(sum(shape))
    own = torch.bfloat16 if dtype == torch.bfloat16 else torch.float16
    inputs = [torch.randn(2, heads, n, 64).to(own).requires_grad_() for heads, n in ((4, 33), (2, 47), (2, 47))]
    mask = torch.rand(shape) < 0.7 if dtype == torch.bool else torch.randn(shape).to(dtype)
    if len(shape) > 1:
        # A query that sees no key.
        mask[..., 0, :] = False if dtype == torch.bool else -torch.inf
    wide = [x.detach().double().requires_grad_() for x in inputs]
    of_wide = mask if dtype == torch.bool else mask.double()
    expected = torch.nn.functional.scaled_dot_product_attention(*wide, of_wide.expand(2, 4, 33, 47), scale=0.2, enable_gqa=True)
    d_o = torch.randn(expected.shape).to(own)
    expected.backward(d_o.double())
    tolerance = 8 if own == torch.bfloat16 else 1
    # Masks are read as they lie.
    for given in (mask, mask.mT.contiguous().mT if len(shape) > 1 else mask, mask.expand(2, 4, 33, 47)):
        for x in inputs:
            x.grad = None
        o = ft.scaled_dot_product_attention(*inputs, given, scale=0.2, enable_gqa=True)
        close(o, expected, 3e-3 * tolerance)
        o.backward(d_o)
        for found, of in zip(inputs, wide):
            error = (found.grad.double() - of.grad).abs().max() / of.grad.abs().max().clamp(min=0.05)
            assert error <= 8e-3 * tolerance, error


def test_masks_of_heads_alone():
    torch.manual_seed(3)
    q, k = torch.randn(4, 5, 64).half(), torch.randn(4, 9, 64).half()
    for mask in (torch.rand(4, 5, 9) < 0.5, torch.rand(4, 1, 9) < 0.5, torch.randn(5, 9)):
        of_wide = mask if mask.dtype == torch.bool else mask.double()
        expected = torch.nn.functional.scaled_dot_product_attention(q.double(), k.double(), k.double(), of_wide)
        close(ft.scaled_dot_product_attention(q, k, k, mask), expected, 3e-3)
        compiled = torch.compile(ft.scaled_dot_product_attention, fullgraph=True, backend="aot_eager")
        close(compiled(q, k, k, mask), expected, 3e-3)
    assert not ft.scaled_dot_product_attention(q, k[:, :0], k[:, :0], torch.ones(5, 0, dtype=torch.bool)).any()


def test_masks_that_are_refused():
    q, k = torch.ones(2, 4, 5, 64).half(), torch.ones(2, 4, 9, 64).half()
    learned = torch.zeros(5, 9).requires_grad_()
    for mask, more, words in [
        (torch.ones(5, 9), {"is_causal": True}, "attn_mask is a tensor of shape (5, 9) and is_causal is True, one of them was needed"),
        (torch.ones(5, 5), {}, "attn_mask has shape (5, 5), one that becomes (2, 4, 5, 9) by broadcasting was needed"),
        (torch.ones(1, 2, 4, 5, 9), {}, "attn_mask has shape (1, 2, 4, 5, 9), one that becomes (2, 4, 5, 9)"),
        (torch.ones(5, 9, dtype=torch.int32), {}, "attn_mask has elements of torch.int32, torch.bool, torch.float32 or torch.float16 was needed"),
        (torch.ones(5, 9).bfloat16(), {}, "attn_mask has elements of torch.bfloat16, torch.bool, torch.float32 or torch.float16 was needed"),
        (torch.ones(5, 9).double(), {}, "attn_mask has elements of torch.float64, torch.bool, torch.float32 or torch.float16 was needed"),
        (learned, {}, "attn_mask requires a gradient, which it does not have: detach() was needed"),
    ]:
        with pytest.raises(ValueError, match=re.escape(words)):
            ft.scaled_dot_product_attention(q, k, k, mask, **more)
    with pytest.raises(TypeError, match="attn_mask is a list, a tensor of torch was needed"):
        ft.scaled_dot_product_attention(q, k, k, [True])
    with torch.no_grad():
        assert ft.scaled_dot_product_attention(q, k, k, learned).shape == q.shape

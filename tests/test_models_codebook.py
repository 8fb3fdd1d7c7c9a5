"""The codebook read-out against naive versions and entmax."""

import itertools
import math

import entmax
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings, strategies as st

from complearn.evaluation.costs import Ledger
from complearn.models.codebook.codebook import Codebook, _find_scale, usage
from complearn.models.codebook.maximum import ChunkedMax, best_tokens, largest_products, masked_max, take_maxima
from complearn.models.codebook.read_out import CHUNK, _rounding_bound, read_codes
from complearn.models.codebook.sparsemax import newton_threshold, prefix_threshold, sparsemax, threshold


def by_loop(z):
    "Sparsemax by bisection on the threshold, in double precision."
    z = z.double()
    low = z.max() - 1
    high = z.max()
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (middle, high) if (z - middle).clamp(min=0).sum() > 1 else (low, middle)
    return (z - (low + high) / 2).clamp(min=0)


@pytest.mark.parametrize("dim", [1, 2, 7, 64, 65, 300, 5000])
@pytest.mark.parametrize("scale", [1e-6, 1e-3, 0.05, 1.0, 30.0, 1e4])
def test_sparsemax_equals_entmax(dim, scale):
    z = scale * torch.randn(9, dim, generator=torch.Generator().manual_seed(dim))
    ours = sparsemax(z)
    theirs = entmax.sparsemax(z, dim=-1)
    assert torch.allclose(ours, theirs, atol=2e-6)
    assert torch.allclose(ours.sum(-1), torch.ones(9), atol=2e-5 * max(1, math.log10(dim)))
    assert (ours >= 0).all()


@pytest.mark.parametrize("dim", [3, 130, 1000])
def test_sparsemax_equals_bisection_in_double(dim):
    z = 0.2 * torch.randn(4, dim, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    assert torch.allclose(sparsemax(z), torch.stack([by_loop(row) for row in z]), atol=1e-12)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(-3, 3), min_size=1, max_size=200), st.floats(0.01, 50))
def test_sparsemax_with_ties(values, scale):
    z = scale * torch.tensor(values, dtype=torch.float64)[None]
    w = sparsemax(z)
    assert torch.allclose(w, entmax.sparsemax(z, dim=-1), atol=1e-9)
    for a, b in ((0, i) for i in range(len(values))):
        assert (values[a] != values[b]) or w[0, a] == w[0, b]  # equal scores, equal weights


def test_sparsemax_all_equal_is_uniform():
    for dim in (5, 100, 3000):
        assert torch.allclose(sparsemax(torch.zeros(2, dim)), torch.full((2, dim), 1 / dim), rtol=1e-4)


def test_sparsemax_of_a_large_shift_is_the_same():
    z = torch.randn(3, 50, dtype=torch.float64)
    assert torch.allclose(sparsemax(z), sparsemax(z + 1e6), atol=1e-8)


@pytest.mark.parametrize("finite", [1, 2, 40, 400])
def test_sparsemax_ignores_minus_infinity(finite):
    z = 0.1 * torch.randn(5, 500, generator=torch.Generator().manual_seed(finite))
    z[:, finite:] = -torch.inf
    w = sparsemax(z)
    assert torch.isfinite(w).all() and (w[:, finite:] == 0).all()
    assert torch.allclose(w[:, :finite], entmax.sparsemax(z[:, :finite], dim=-1), atol=1e-6)
    z.requires_grad_()
    (sparsemax(z) ** 2).sum().backward()
    assert torch.isfinite(z.grad).all() and (z.grad[:, finite:] == 0).all()


@pytest.mark.parametrize(
    "dtype, tolerance", [(torch.bfloat16, 1e-2), (torch.float16, 2e-3), (torch.float32, 1e-6), (torch.float64, 1e-7)]
)
def test_sparsemax_dtypes(dtype, tolerance):
    z = 0.3 * torch.randn(6, 400, generator=torch.Generator().manual_seed(0))
    w = sparsemax(z.to(dtype))
    assert w.dtype == dtype
    assert torch.allclose(w.double(), entmax.sparsemax(z.to(dtype).double(), dim=-1), atol=tolerance)


@pytest.mark.parametrize("dim", [3, 200])
def test_sparsemax_refuses_a_row_that_is_masked_as_a_whole(dim):
    z = torch.randn(2, 3, dim)
    z[1, 0] = z[1, 2] = -torch.inf
    with pytest.raises(
        ValueError, match="got 2 rows whose scores are all minus infinity, first row 3: .* leave at least one entry"
    ):
        sparsemax(z)
    z[1, 0, 0] = z[1, 2, -1] = -1e30  # padding beside a single entry, however small, stays allowed
    weights = sparsemax(z)
    assert weights[1, 0, 0] == weights[1, 2, -1] == 1 and torch.allclose(weights.sum(-1), torch.ones(2, 3))


def test_a_caption_without_a_token_that_may_speak_is_an_error():
    codebook = Codebook(8, 4, temperature=1.0)
    mask = torch.tensor([[True, False], [False, False]])
    scores, _ = codebook.scores(torch.randn(2, 2, 4), mask)
    with pytest.raises(ValueError, match="first row 1"):
        codebook.read_out(scores)


def test_sparsemax_other_dimensions():
    z = torch.randn(3, 20, 4)
    assert torch.allclose(sparsemax(z, dim=1), entmax.sparsemax(z, dim=1), atol=1e-6)


@pytest.mark.parametrize("scale", [0.1, 1.0, 5.0])
def test_sparsemax_derivatives(scale):
    z = (scale * torch.randn(4, 12, dtype=torch.float64, generator=torch.Generator().manual_seed(3))).requires_grad_()
    assert torch.autograd.gradcheck(sparsemax, z)
    assert torch.autograd.gradgradcheck(sparsemax, z)
    direction = torch.randn(4, 12, dtype=torch.float64)
    _, forward = torch.func.jvp(sparsemax, (z.detach(),), (direction,))
    _, back = torch.func.vjp(sparsemax, z.detach())
    assert torch.allclose(forward, back(direction)[0])  # the Jacobian is symmetric
    theirs = z.detach().clone().requires_grad_()
    pull = torch.randn(4, 12, dtype=torch.float64)
    (sparsemax(z) * pull).sum().backward()
    (entmax.sparsemax(theirs, dim=-1) * pull).sum().backward()
    assert torch.allclose(z.grad, theirs.grad, atol=1e-12)


@pytest.mark.parametrize("scale", [1e-7, 1e-5, 1e-3])
def test_climb_is_needed_and_right(scale):
    z = scale * torch.randn(3, 2000)  # a support of hundreds: the first look is not enough
    z = z - z.amax(-1, keepdim=True)
    assert not prefix_threshold(z, 64)[1].any() and ((z > threshold(z)).sum(-1) > 64).all()
    assert torch.allclose(sparsemax(z), entmax.sparsemax(z, dim=-1), atol=1e-7)


@pytest.mark.parametrize("dim", [70, 500, 4000])
def test_climb_from_any_lower_bound(dim):
    z = 0.01 * torch.randn(5, dim, generator=torch.Generator().manual_seed(dim)) - 0.05
    wanted = prefix_threshold(z, dim)[0]
    for bound in (-1.1, -0.5, wanted - 1e-3, wanted - 1e-9):
        assert torch.allclose(newton_threshold(z, torch.as_tensor(bound).expand(5, 1).clone()), wanted, atol=1e-6)


def test_rows_of_all_kinds_at_once():
    "Some rows end inside the first look, some do not, one is a tie of everything."
    z = torch.randn(4, 900, generator=torch.Generator().manual_seed(0)) * torch.tensor([[5.0], [1e-4], [0.0], [0.05]])
    assert torch.allclose(sparsemax(z), torch.stack([by_loop(row) for row in z]).float(), atol=1e-6)


def test_masked_max_against_a_loop():
    scores = torch.randn(5, 7, 11)
    mask = torch.rand(5, 7) < 0.6
    mask[:, 3] = True
    values, firing = masked_max(scores, mask)
    for b in range(5):
        for c in range(11):
            best = max((scores[b, n, c].item(), n) for n in range(7) if mask[b, n])
            assert (values[b, c].item(), firing[b, c].item()) == best


def test_released_padding_bug():
    """The released code multiplies padding by zero: every code of a padded caption scores at least 0, and the code
    depends on the padding."""
    tokens = F.normalize(torch.randn(1, 4, 16), dim=-1)
    codes = F.normalize(torch.randn(100, 16), dim=-1)
    padded = F.pad(tokens, (0, 0, 0, 3))
    mask = torch.tensor([[True] * 4 + [False] * 3])

    def released(tokens, mask):
        return ((tokens @ codes.T) * mask[..., None]).amax(1)

    assert not torch.allclose(released(padded, mask), released(tokens, mask[:, :4]))
    assert (released(padded, mask) >= 0).all()
    ours = best_tokens(padded, codes, mask)[0]
    assert torch.allclose(ours, best_tokens(tokens, codes)[0]) and (ours < 0).any()


MAX_SHAPES = ((8, 6, 5, 30), (1, 1, 3, 1), (5, 1, 4, 7), (3, 9, 4, 1), (2, 4, 6, 70))  # rows, tokens, width, codes


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("held", [1, 40, 200, 10_000])
@pytest.mark.parametrize("shape", MAX_SHAPES)
@pytest.mark.parametrize("pulling", [0, 1, 3, 1000])  # codes of each row with a gradient
def test_chunked_max_has_the_same_values_and_gradients(masked, held, shape, pulling, monkeypatch):
    """In bf16 two tokens may round to the same score, so there the winner's place is not compared."""
    monkeypatch.setattr("complearn.models.codebook.maximum.BLOCK", 16)
    rows, each, width, count = shape
    g = torch.Generator().manual_seed(held)
    for dtype, close in ((torch.float64, 1e-12), (torch.float32, 1e-5), (torch.bfloat16, 0.1)):
        tokens = torch.randn(rows, each, width, generator=g)
        codes = torch.randn(count, width, generator=g)
        leaves = [tensor.to(dtype).requires_grad_() for tensor in (tokens, codes)]
        mask = torch.rand(rows, each, generator=g) < 0.5 if masked else None
        if masked:
            mask[:, 0] = True
        pull = torch.randn(rows, count, generator=g) * (torch.rand(rows, count, generator=g).argsort(1) < pulling)
        wanted, fired = masked_max(leaves[0] @ leaves[1].T, mask)
        got, firing = ChunkedMax.apply(*leaves, mask, held)
        assert torch.allclose(wanted, got, rtol=close, atol=close)
        assert dtype == torch.bfloat16 or torch.equal(fired, firing)
        if not torch.equal(fired, firing):
            continue
        gradients = [torch.autograd.grad((values * pull.to(dtype)).sum(), leaves) for values in (wanted, got)]
        assert all(b.dtype == dtype and torch.allclose(a, b, rtol=close, atol=close) for a, b in zip(*gradients))


def test_chunked_max_passes_gradcheck():
    tokens, codes = (torch.randn(*shape, dtype=torch.float64).requires_grad_() for shape in ((3, 4, 5), (9, 5)))
    mask = torch.tensor([[1, 1, 0, 1], [0, 0, 1, 0], [1, 1, 1, 1]]).bool()

    def read(tokens, codes):
        return sparsemax(2 * ChunkedMax.apply(tokens, codes, mask, 20)[0])

    assert torch.autograd.gradcheck(read, (tokens, codes))


def test_chunks_never_hold_all_scores():
    "Neither forward nor backward makes a tensor of batch x token x code; without chunks both do."
    made = {}
    for held in (49 * 512 * 2, 49 * 512 * 100):  # two rows at once; all
        tokens = torch.randn(16, 49, 8, requires_grad=True)
        codes = torch.randn(512, 8, requires_grad=True)
        with Ledger() as ledger:
            best_tokens(tokens, codes, held=held)[0].sum().backward()
        made[held] = ledger.largest // 4
    assert list(made.values()) == [49 * 512 * 2, 16 * 49 * 512]


def naive_read_out(tokens, mask, codes, similarity, scale):
    "Eqs. 2 and 3, code by code."
    messages = []
    all_weights = []
    for queries, seen in zip(tokens, mask):
        r = []
        for code in codes:
            fits = []
            for query in queries[seen]:
                cosine = query @ code / (query.norm() * code.norm())
                fits.append(cosine if similarity == "cosine" else query @ code / len(code) ** 0.5)
            r.append(max(fits))
        weights = entmax.sparsemax(scale * torch.stack(r), dim=-1)
        messages.append(sum(w * code for w, code in zip(weights, codes)))
        all_weights.append(weights)
    return torch.stack(all_weights), torch.stack(messages)


@pytest.mark.parametrize("similarity", ["cosine", "dot"])
@pytest.mark.parametrize("init", ["unit", "normal"])
def test_read_out_against_naive(similarity, init):
    torch.manual_seed(0)
    codebook = Codebook(codes=20, width=8, init=init, similarity=similarity, temperature=0.5)
    tokens = torch.randn(3, 5, 8)
    mask = torch.tensor([[1, 1, 1, 1, 1], [0, 1, 1, 0, 0], [1, 0, 0, 0, 1]]).bool()
    r, firing = codebook.scores(tokens, mask)
    weights, message = codebook.read_out(r, "language")
    wanted = naive_read_out(tokens, mask, codebook.codes, similarity, 2.0)
    assert torch.allclose(weights, wanted[0], atol=1e-5) and torch.allclose(message, wanted[1], atol=1e-5)
    assert mask.gather(1, firing).all()


def test_the_maximum_takes_the_first_of_equal_tokens():
    """Also where a token's number has more digits than the products' format."""
    for dtype, each in itertools.product(
        (torch.float64, torch.float32, torch.bfloat16, torch.float16), (1, 7, 300, 2050)
    ):
        products = torch.randn(3, each, 5, generator=torch.Generator().manual_seed(each)).to(dtype)
        if each > 1:
            products[0, [each // 2, -1], 1] = 9.0
            products[1] = -torch.inf
        values, places = products.max(1)
        first = (products == values[:, None]).long().argmax(1)
        got, at = take_maxima(products.clone())
        assert torch.equal(got.to(dtype), values) and torch.equal(at, first)


READ_SHAPES = ((1, 1, 3, 1), (4, 1, 5, 40), (3, 7, 4, 1), (5, 9, 8, 300))  # rows, tokens, width, codes


@pytest.mark.parametrize("shape", READ_SHAPES)
@pytest.mark.parametrize("scale", [1e-3, 3.0, 1e3])  # all codes in the support, some, one
@pytest.mark.parametrize("unit", [True, False])
@pytest.mark.parametrize("refined", [True, False])
@pytest.mark.parametrize("held", [None, 30])
def test_reading_codes_is_the_single_operations(shape, scale, unit, refined, held, monkeypatch):
    """Values and gradients of message, weights and scores against autograd through the formulas, with masked rows."""
    monkeypatch.setattr("complearn.models.codebook.maximum.BLOCK", 16)
    rows, each, width, count = shape
    g = torch.Generator().manual_seed(rows)
    tokens = F.normalize(torch.randn(rows, each, width, generator=g), dim=-1).requires_grad_()
    codes = (3 * torch.randn(count, width, generator=g)).requires_grad_()
    mask = torch.rand(rows, each, generator=g) < 0.6
    mask[:, 0] = True
    scale = torch.tensor(scale)
    r, fired = masked_max(tokens @ (F.normalize(codes, dim=-1) if unit else codes).T, mask)
    weights = entmax.sparsemax(scale * r, dim=-1)
    wanted = (r, weights, weights @ codes)
    scores, firing, *rest = read_codes(tokens, codes, scale, mask, unit, refined=refined, held=held)
    support = weights > 0
    assert torch.equal(firing[support], fired[support]) and torch.allclose(scores, r, atol=0.1 if refined else 1e-5)
    got = (scores, *rest)
    assert all(torch.allclose(a, b, rtol=1e-4, atol=2e-4) for a, b in zip(wanted[1:], got[1:]))
    pulls = [torch.randn(value.shape, generator=g) for value in wanted]
    pulls[0] = pulls[0] * support  # outside the support a search in bf16 may take another token
    for used in ([0], [1], [2], [1, 2], [0, 1, 2]):
        losses = [sum((values[i] * pulls[i]).sum() for i in used) for values in (wanted, got)]
        gradients = [torch.autograd.grad(loss, (tokens, codes), retain_graph=True) for loss in losses]
        assert all(torch.allclose(a, b, rtol=1e-3, atol=1e-3 * max(1, float(scale))) for a, b in zip(*gradients))


@pytest.mark.parametrize("unit", [True, False])
def test_reading_codes_passes_gradcheck(unit):
    def draw(*shape):
        return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(5))

    tokens = draw(3, 4, 5).requires_grad_()
    codes = draw(9, 5).requires_grad_()
    mask = torch.tensor([[1, 1, 0, 1], [0, 0, 1, 0], [1, 1, 1, 1]]).bool()
    scale = torch.tensor(2.0, dtype=torch.float64)

    def read(tokens, codes):
        scores, _, weights, message = read_codes(tokens, codes, scale, mask, unit, held=20)
        return scores, weights, message

    assert torch.autograd.gradcheck(read, (tokens, codes))


@pytest.mark.parametrize("dtype, close", [(torch.bfloat16, 0.08), (torch.float16, 0.01)])
def test_half_precision_is_read_in_fp32(dtype, close):
    def draw(*shape):
        return torch.randn(*shape, generator=torch.Generator().manual_seed(7))

    tokens = F.normalize(draw(4, 6, 32), dim=-1).to(dtype).requires_grad_()
    codes = draw(80, 32).to(dtype).requires_grad_()
    exact = [tensor.detach().float().requires_grad_() for tensor in (tokens, codes)]
    found, wanted = (read_codes(*leaves, torch.tensor(6.0)) for leaves in ((tokens, codes), exact))
    assert all(value.dtype == torch.float32 for value in (found[0], found[2], found[3]))
    assert (found[3] - wanted[3]).norm() < close * wanted[3].norm()
    ours, theirs = (
        torch.autograd.grad(values[3].sin().sum(), leaves)
        for values, leaves in ((found, (tokens, codes)), (wanted, exact))
    )
    assert all(a.dtype == dtype and (a.float() - b).norm() < 3 * close * b.norm() for a, b in zip(ours, theirs))


@pytest.mark.parametrize("spread", [1e-3, 1.0, 30.0])
@pytest.mark.parametrize("shape", [(3, 1, 8, 40), (2, 7, 64, 300), (4, 5, 513, 20)])
def test_scores_from_bf16_stay_within_the_measured_bound(shape, spread):
    """Of vectors of any length, with outliers and numbers that sit between two of bf16; and the bound is not idle."""
    rows, each, width, count = shape
    g = torch.Generator().manual_seed(5)
    tokens = spread * torch.randn(rows, each, width, generator=g)
    codes = torch.randn(count, width, generator=g) ** 3
    tokens[0, 0, : width // 2] = 1 + 1 / 256  # half way between two of bf16
    lengths = codes.norm(dim=1)
    rough = largest_products(tokens, codes, None, 2**20, torch.bfloat16)[0] / lengths
    exact = masked_max(tokens.double() @ (codes / lengths[:, None]).double().T)[0]
    off = (rough - exact).abs()
    bound = _rounding_bound(tokens, codes, lengths, rough)
    assert (off <= bound).all() and off.amax() > bound.amax() / 200


EXACT = 1.0  # in bf16: kept, and rounded by almost a part in 256
LOSING = 1 + 2**-8 - 2**-20


@pytest.mark.parametrize(
    "tokens, codes, least",
    [((LOSING,) * 64, (EXACT,) * 64, 0.4), ((EXACT,) * 64, (LOSING,) * 64, 0.4), ((1 + 2**-7,), (1.5,), 0.6)],
)
def test_no_part_of_the_bound_can_be_left_out(tokens, codes, least):
    """Tokens alone lose, codes alone lose, and the product alone does: half way between two numbers of bf16."""
    tokens = torch.tensor([[tokens]])
    codes = torch.tensor([codes])
    lengths = codes.norm(dim=1)
    rough = largest_products(tokens, codes, None, 2**20, torch.bfloat16)[0] / lengths
    exact = (tokens[0].double() @ (codes / lengths[:, None]).double().T)[0]
    off = float((rough - exact).abs())
    bound = float(_rounding_bound(tokens, codes, lengths, rough))
    assert least * bound < off <= bound


@pytest.mark.parametrize("padding", [1e30, float("inf"), float("nan")])
def test_padding_of_any_size_has_no_part_in_a_search_in_bf16(padding):
    g = torch.Generator().manual_seed(4)
    tokens = F.normalize(torch.randn(6, 1, 64, generator=g) + 0.01 * torch.randn(6, 9, 64, generator=g), dim=-1)
    mask = torch.arange(9) < torch.tensor([9, 5, 1, 3, 8, 2])[:, None]
    tokens = torch.where(mask[..., None], tokens, padding)
    codes = F.normalize(torch.randn(400, 64, generator=g), dim=-1)
    scale = torch.tensor(15.0)
    full, refined = (read_codes(tokens, codes, scale, mask, refined=way) for way in (False, True))
    assert torch.equal(full[2] > 0, refined[2] > 0) and torch.allclose(full[2], refined[2], atol=1e-6)
    assert torch.equal(full[1][full[2] > 0], refined[1][full[2] > 0])


def test_a_search_in_bf16_finds_a_support_that_rounding_hides():
    """Many codes lie at the edge of the support: some of it is outside the support of rounded scores."""
    g = torch.Generator().manual_seed(5)
    tokens = F.normalize(torch.randn(3, 5, 32, generator=g), dim=-1)
    codes = F.normalize(torch.randn(6000, 32, generator=g), dim=-1)
    scale = torch.tensor(0.004)
    full, refined, rough = (
        read_codes(tokens, codes, scale, **how) for how in ({}, {"refined": True}, {"dtype": torch.bfloat16})
    )
    support = full[2] > 0
    assert support.sum(1).min() > 2 * CHUNK and (support & (rough[2] == 0)).any(1).all()
    assert torch.equal(refined[2] > 0, support) and torch.equal(refined[1][support], full[1][support])
    assert torch.allclose(full[2], refined[2], atol=1e-7)


def test_a_token_that_is_not_a_number_shows_in_its_row_alone():
    tokens = F.normalize(torch.randn(3, 4, 16), dim=-1)
    codes = F.normalize(torch.randn(50, 16), dim=-1)
    tokens[1, 2, 3] = torch.nan
    for refined in (False, True):
        message = read_codes(tokens, codes, torch.tensor(9.0), refined=refined)[3]
        assert message.isnan().all(1).tolist() == [False, True, False] and message[[0, 2]].isfinite().all()


def test_a_search_in_bf16_loses_no_winner():
    """Tokens that nearly tie: the products in bf16 alone take other winners, the refined ones those of fp32."""
    g = torch.Generator().manual_seed(2)
    tokens = F.normalize(torch.randn(8, 1, 64, generator=g) + 0.01 * torch.randn(8, 12, 64, generator=g), dim=-1)
    codes = F.normalize(torch.randn(500, 64, generator=g), dim=-1)
    scale = torch.tensor(20.0)
    full, refined, rough = (
        read_codes(tokens, codes, scale, **how) for how in ({}, {"refined": True}, {"dtype": torch.bfloat16})
    )
    support = full[2] > 0
    assert torch.equal(full[1][support], refined[1][support]) and torch.equal(refined[2] > 0, support)
    assert torch.allclose(full[3], refined[3], atol=1e-6)
    assert (rough[1] != full[1])[support].float().mean() > 0.1


@pytest.mark.parametrize("search", ["full", "bf16"])
def test_a_codebook_reads_at_once_what_it_reads_in_two_steps(search):
    codebook = Codebook(300, 16, temperature=0.1, search=search)
    tokens = torch.randn(5, 7, 16)
    scores, firing = codebook.scores(tokens)
    weights, message = codebook.read_out(scores)
    found = codebook.read(tokens)
    assert torch.allclose(found[2], weights, atol=1e-5) and torch.allclose(found[3], message, atol=1e-5)
    assert torch.equal(found[1][weights > 0], firing[weights > 0])
    assert torch.allclose(found[0], scores, atol=1e-6) == (search == "full")
    with pytest.raises(ValueError, match="search"):
        Codebook(3, 4, search="fast")


def test_reading_codes_holds_neither_all_products_nor_the_codes_twice():
    tokens = torch.randn(16, 49, 64, requires_grad=True)
    codes = torch.randn(8192, 64, requires_grad=True)
    with Ledger() as ledger:
        read_codes(tokens, codes, torch.tensor(50.0), held=2**16)[3].sum().backward()
    gradients = 4 * (tokens.numel() + codes.numel())
    table = 4 * 16 * 8192
    assert ledger.largest <= max(4 * codes.numel(), 2 * table)
    assert ledger.most < gradients + 10 * table < 4 * 16 * 49 * 8192


def test_init_norms():
    assert torch.allclose(Codebook(50, 16, init="unit").codes.norm(dim=-1), torch.ones(50))
    assert abs(Codebook(500, 64, init="normal").codes.norm(dim=-1).mean() - 8) < 0.2


@pytest.mark.parametrize("codes, share", [(256, 0.15), (1024, 0.15), (256, 0.05), (64, 0.5)])
def test_found_scale_gives_the_share(codes, share):
    torch.manual_seed(0)
    codebook = Codebook(codes, 32, share=share)
    r, _ = codebook.scores(torch.randn(64, 20, 32))
    scale = codebook.calibrate(r, "vision")
    weights, _ = codebook.read_out(r, "vision")
    assert abs((weights > 0).float().mean().item() - share) < 0.02
    codebook.read_out(5 * r, "vision")
    assert codebook.vision_scale.item() == scale  # reading out changes nothing


@pytest.mark.parametrize("training", [True, False])
def test_a_codebook_that_was_not_calibrated_cannot_be_read_out(training):
    """Neither in training nor in evaluation does a forward pass find a scale and write a buffer; each agent has its
    own."""
    codebook = Codebook(64, 8).train(training)
    r = torch.randn(16, 64)
    before = {name: value.clone() for name, value in codebook.state_dict().items()}
    with pytest.raises(ValueError, match="scale of the vision agent is not calibrated"):
        codebook.read_out(r)
    assert all(torch.equal(value, before[name]) for name, value in codebook.state_dict().items())
    codebook.calibrate(r, "vision")
    codebook.read_out(r)
    with pytest.raises(ValueError, match="scale of the language agent is not calibrated"):
        codebook.read_out(r, "language")


def test_scale_is_saved_and_not_found_again():
    first = Codebook(64, 8)
    second = Codebook(64, 8)
    r = torch.randn(16, 64)
    first.calibrate(r, "vision")
    wanted = first.read_out(r)[0]
    second.calibrate(3 * r, "vision")
    second.load_state_dict(first.state_dict())
    assert torch.equal(second.vision_scale, first.vision_scale)
    assert torch.equal(second.read_out(r)[0], wanted)


def test_fixed_temperature_is_not_calibrated():
    codebook = Codebook(64, 8, temperature=0.25)
    codebook.read_out(torch.randn(4, 64))
    assert codebook.vision_scale == codebook.language_scale == 4


def test_scale_that_cannot_be_found_says_why():
    with pytest.raises(ValueError, match="no scale gives a support of 15.0% of 40 codes .* hardly differ"):
        _find_scale(torch.zeros(8, 40))
    with pytest.raises(ValueError, match="no scale gives"):
        _find_scale(torch.full((8, 40), torch.nan))


def test_wrong_switches_are_named():
    with pytest.raises(ValueError, match="'unit' or 'normal'"):
        Codebook(8, 4, init="zeros")


def test_autocast_scores_are_near_and_fp32():
    torch.manual_seed(0)
    codebook = Codebook(64, 32, temperature=1.0)
    tokens = torch.randn(4, 9, 32)
    exact, _ = codebook.scores(tokens)
    with torch.autocast("cpu", torch.bfloat16):
        rough, _ = codebook.scores(tokens)
        weights, _ = codebook.read_out(rough)
    assert rough.dtype == torch.float32 and weights.dtype == torch.float32 and not torch.equal(rough, exact)
    assert (rough - exact).abs().max() < 0.02 and torch.allclose(weights.sum(-1), torch.ones(4), atol=1e-4)


def test_usage():
    even = usage(torch.eye(4))
    one = usage(torch.tensor([[1.0, 0, 0, 0]] * 3))
    assert even == {
        "support": 1.0,
        "support_share": 0.25,
        "entropy": pytest.approx(math.log(4)),
        "effective": pytest.approx(4),
        "dead_share": 0.0,
    }
    assert one["entropy"] == 0 and one["dead_share"] == 0.75


@pytest.mark.gpu
def test_on_a_gpu_as_on_the_cpu():
    torch.manual_seed(0)
    codebook = Codebook(256, 32, temperature=0.5)
    tokens = torch.randn(32, 49, 32)
    cpu = codebook.read_out(codebook.scores(tokens)[0])
    codebook.cuda()
    gpu = codebook.read_out(codebook.scores(tokens.cuda())[0])
    assert all(torch.allclose(a, b.cpu(), atol=1e-4) for a, b in zip(cpu, gpu))
    tokens = F.normalize(tokens, dim=-1)
    scale = torch.tensor(9.0)
    for refined in (False, True):
        cpu = read_codes(tokens, codebook.codes.detach().cpu(), scale, refined=refined)
        gpu = read_codes(tokens.cuda(), codebook.codes.detach(), scale.cuda(), refined=refined)
        assert torch.allclose(cpu[2], gpu[2].cpu(), atol=1e-4) and torch.allclose(cpu[3], gpu[3].cpu(), atol=1e-4)


@pytest.mark.parametrize("share", (0.1, 0.15, 0.4))
def test_the_found_scale_is_not_where_a_code_just_leaves(share):
    """There rounding (other batch shapes, other processors) would decide which codes get a gradient."""
    scores = torch.randn(8, 24, generator=torch.Generator().manual_seed(0))
    scale = _find_scale(scores, share)
    support = [sparsemax(scale * factor * scores) > 0 for factor in (1 - 1e-6, 1, 1 + 1e-6)]
    assert torch.equal(support[0], support[1]) and torch.equal(support[1], support[2])
    assert abs(support[1].float().mean() - share) < 1 / 24

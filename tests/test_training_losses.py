"""Losses against loops, closed forms and finite differences; phases and schedules against their definitions."""

import itertools
import math
from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from complearn.evaluation.costs import Ledger
from complearn.models.codebook.sparsemax import sparsemax
from complearn.training.engine.optimization import adamw
from complearn.training.engine.phases import (
    Phase,
    batches_before,
    full_rate_steps,
    lr_factor,
    match_names,
    set_trainable,
)
from complearn.training.methods.iterated import divide_steps, iterated
from complearn.training.methods.scales import SCALES
from complearn.training.objectives import losses
from complearn.training.objectives.contrastive import in_batch_accuracy, vector_accuracy
from complearn.training.objectives.losses import (
    JointPairs,
    contrastive_loss,
    distil_cosine,
    distil_kl,
    distil_sampled,
    distil_sparsemax,
    find_temperature,
    hashed_uniform,
    heard_shares,
    log_sums,
    sampled_labels,
    shared_mass,
    token_numbers,
    vector_info_nce,
)


def unit(n, d, seed):
    return F.normalize(
        torch.randn(n, d, generator=torch.Generator().manual_seed(seed), dtype=torch.float64), dim=-1
    ).float()


def loop(image, text, scale, image_ids):
    n = len(image)
    loss = 0.0
    for queries, keys in ((image, text), (text, image)):
        for i in range(n):
            scores = {
                j: scale * float(queries[i].double() @ keys[j].double())
                for j in range(n)
                if j == i or image_ids[i] != image_ids[j]
            }
            top = max(scores.values())
            loss += top + math.log(sum(math.exp(s - top) for s in scores.values())) - scores[i]
    return loss / (2 * n)


@pytest.mark.parametrize(
    "n,d,scale,photos,held", itertools.product((2, 5, 16), (3, 32), (1.0, 14.3, 100.0), (0, 2), (None, 33))
)
def test_contrastive_equals_a_loop(n, d, scale, photos, held):
    image = unit(n, d, 0)
    text = unit(n, d, 1)
    ids = torch.arange(n) // (photos or 1)
    found = contrastive_loss(image, text, torch.tensor(scale), lambda top, bottom: ids[top:bottom, None] == ids, held)
    assert found.item() == pytest.approx(loop(image, text, scale, ids.tolist()), abs=2e-5 * scale)


def plain_contrastive(image, text, scale, same):
    "The loss as autograd has it, with the whole table; in double precision."
    logits = scale.double() * image.double() @ text.double().T
    own = torch.arange(len(image))
    logits = logits.masked_fill(same & (own[:, None] != own), -torch.inf)
    return (F.cross_entropy(logits, own) + F.cross_entropy(logits.T, own)) / 2


@pytest.mark.parametrize("n,d,photos,held", itertools.product((1, 3, 17, 40), (2, 24), (0, 1, 3), (None, 1, 130)))
@pytest.mark.parametrize(
    "dtype, close", [(torch.float64, 1e-5), (torch.float32, 1e-5), (torch.bfloat16, 0.02), (torch.float16, 0.003)]
)
def test_contrastive_in_blocks_has_the_same_value_and_gradients(n, d, photos, held, dtype, close):
    """Photos with one caption, with two or three; all of one photo; one row at a time, some, all."""
    image, text = (unit(n, d, seed).to(dtype).requires_grad_() for seed in (0, 1))
    ids = torch.arange(n) // photos if photos else torch.zeros(n, dtype=torch.int64)
    scale = torch.tensor(14.3, requires_grad=True)
    leaves = (image, text, scale)
    wanted = plain_contrastive(*leaves, ids[:, None] == ids)
    got = contrastive_loss(*leaves, lambda top, bottom: ids[top:bottom, None] == ids, held)
    assert got.dtype == torch.float32 and torch.allclose(got.double(), wanted, atol=1e-5)
    gradients = zip(torch.autograd.grad(3 * wanted, leaves), torch.autograd.grad(3 * got, leaves))
    assert all(b.dtype == a.dtype and torch.allclose(a, b, rtol=close, atol=close) for a, b in gradients)


@pytest.mark.parametrize("held", [None, 10])
def test_log_sums_of_either_side_alone_pass_gradcheck(held):
    """Also the scale's gradient of each side by itself, and a key that is a negative of no row."""
    g = torch.Generator().manual_seed(3)

    def draw(*shape):
        return torch.randn(*shape, generator=g, dtype=torch.float64).requires_grad_()

    excluded = torch.rand(4, 5, generator=g) < 0.3
    excluded[:, 3] = True
    excluded[:, 0] = False
    leaves = (draw(4, 3), draw(5, 3), torch.tensor(2.0, dtype=torch.float64, requires_grad=True), draw(4), draw(5))

    def sums(*given):
        return log_sums(*given, lambda top, bottom: excluded[top:bottom], held)

    finite = [0, 1, 2, 4]
    assert torch.autograd.gradcheck(lambda *given: sums(*given)[0], leaves)
    assert torch.autograd.gradcheck(lambda *given: sums(*given)[1][finite], leaves)
    assert torch.autograd.gradcheck(lambda *given: sums(*given)[0].sum() * sums(*given)[1][finite].prod(), leaves)


def test_a_large_batch_never_holds_its_square():
    """Neither the similarities nor the mask of equal pairs; the memory of a batch four times as large grows with the
    vectors alone."""
    most = {}
    for count in (512, 2048):
        image, text = (unit(count, 8, seed).requires_grad_() for seed in (0, 1))
        scale = torch.tensor(14.3, requires_grad=True)
        pairs = JointPairs(torch.arange(count) // 2, torch.arange(count), 0, count)
        with Ledger() as ledger:
            contrastive_loss(image, text, scale, pairs.same, held=2**14).backward()
            vector_accuracy(image, text, pairs, held=2**14)
        assert ledger.largest <= 4 * 2**14
        most[count] = ledger.most
    assert most[2048] < 8 * 4 * 2**14 + 40 * 2048 * 8 * 4 < 2048**2 * 4 and most[2048] < 2 * most[512]


def test_contrastive_is_symmetric_and_a_large_scale_does_not_overflow():
    image = unit(8, 4, 0)
    text = unit(8, 4, 1)
    scale = torch.tensor(100.0)
    assert torch.allclose(contrastive_loss(image, text, scale), contrastive_loss(text, image, scale))
    assert torch.isfinite(contrastive_loss(image, -image, torch.tensor(1e4)))


@pytest.mark.parametrize("held", [None, 1, 40])
def test_accuracy_of_vectors_is_that_of_their_scores(held):
    image = unit(23, 4, 5)
    text = F.normalize(unit(23, 4, 5) + 0.6 * unit(23, 4, 6), dim=-1)
    text[3] = text[4]  # a tie counts as wrong
    pairs = JointPairs(torch.arange(23) // 2, torch.arange(23) % 20, 0, 23)
    wanted = in_batch_accuracy(image @ text.T, pairs.same())
    assert 0 < wanted < 1 and vector_accuracy(image, text, pairs, held) == wanted


def test_accuracy_of_vectors_is_exact_under_autocast():
    close = torch.tensor([0.9985, 0.9981])  # of which bf16 makes 1 and 1
    image = torch.tensor([[1.0, 0.0], [0.0, 1.0]])
    text = torch.stack([close, (1 - close**2).sqrt()], 1)
    pairs = JointPairs(torch.arange(2), None, 0, 2)
    wanted = vector_accuracy(image, text, pairs)
    with torch.autocast("cpu", torch.bfloat16):
        assert vector_accuracy(image, text, pairs) == wanted == 0.75


def test_contrastive_ignores_autocast():
    image = unit(8, 64, 0)
    text = unit(8, 64, 1)
    scale = torch.tensor(50.0)
    with torch.autocast("cpu", torch.bfloat16):
        inside = contrastive_loss(image, text, scale)
    assert inside.dtype == torch.float32 and torch.equal(inside, contrastive_loss(image, text, scale))


def test_masked_rivals_get_no_gradient():
    queries = unit(3, 4, 0)
    keys = unit(3, 4, 1).requires_grad_()
    same = torch.tensor([[1, 1, 0], [0, 1, 0], [0, 0, 1]]).bool()
    own = torch.arange(3)
    loss = F.cross_entropy((10 * queries @ keys.T)[:1, [0, 2]], torch.tensor([0]))
    (expected,) = torch.autograd.grad(loss, keys)
    (found,) = torch.autograd.grad(vector_info_nce(queries[:1], keys, torch.tensor(10.0), own[:1], same[:1]), keys)
    assert torch.allclose(found, expected, atol=1e-6) and found[1].abs().max() == 0


@pytest.mark.parametrize("T", (0.1, 1.0, 3.0))
def test_kl_is_kl(T):
    old = torch.randn(6, 20)
    new = torch.randn(6, 20, requires_grad=True)
    p = (old / T).double().softmax(-1)
    q = (new / T).double().softmax(-1)
    assert distil_kl(old, new, T).item() == pytest.approx((p * (p / q).log()).sum(-1).mean().item(), rel=1e-4)
    assert distil_kl(old, new, T) >= 0 and distil_kl(old.requires_grad_(), old, T).abs() < 1e-6
    distil_kl(old, new, T).backward()
    assert old.grad is None and torch.allclose(new.grad.double(), (q - p).detach() / T / 6, atol=1e-5)


def test_sparsemax_loss_is_convex_with_the_right_gradient():
    target = sparsemax(torch.randn(5, 12))
    scores = torch.randn(5, 12, requires_grad=True)
    loss = distil_sparsemax(target, scores, sparsemax(scores))
    (gradient,) = torch.autograd.grad(loss, scores)
    assert loss > 0 and torch.allclose(gradient, (sparsemax(scores) - target) / 5, atol=1e-6)
    # the loss as a function of the scores, by finite differences: weights move too, and their effect cancels
    step = 1e-3 * torch.randn(5, 12, generator=torch.Generator().manual_seed(3))
    high, low = (distil_sparsemax(target, scores + s, sparsemax(scores + s)) for s in (step, -step))
    assert (high - low).item() / 2 == pytest.approx((gradient * step).sum().item(), rel=2e-2, abs=1e-7)


def test_cosine_does_not_see_length():
    x = torch.randn(4, 8)
    assert distil_cosine(x, 5 * x).abs() < 1e-6 and distil_cosine(x, -x).item() == pytest.approx(2, abs=1e-5)


def splitmix_bits(number, salt):  # Steele et al. 2014, in Python's own integers
    mask = 2**64 - 1
    z = (number + (salt + 1) * 0x9E3779B97F4A7C15) & mask
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & mask
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & mask
    return z ^ (z >> 31)


def splitmix(number, salt):
    return ((splitmix_bits(number, salt) >> 40) + 0.5) / 2**24


@pytest.mark.parametrize("bits", (0, -1))
def test_no_hashed_draw_is_0_or_1(bits, monkeypatch):
    """Half of the last place is rounded up, and the inverse of a distribution function at 1 is infinite."""
    monkeypatch.setattr(losses, "mixed_bits", lambda numbers, salt: torch.full_like(numbers, bits))
    found = hashed_uniform(torch.tensor([7]))
    assert 0 < found < 1 and torch.special.ndtri(found).isfinite()


@pytest.mark.parametrize("salt", (0, 1, 17))
def test_hashed_draws_are_splitmix(salt):
    numbers = [0, 1, 2, -1, 2**62, -(2**63), 12345678901234]
    found = hashed_uniform(torch.tensor(numbers), salt)
    assert found.tolist() == pytest.approx([splitmix(number, salt) for number in numbers], abs=1e-7)
    assert torch.equal(found, hashed_uniform(torch.tensor(numbers), torch.tensor(salt)))


@pytest.mark.parametrize("T", (0.3, 1.0, 4.0))
def test_sampled_labels_follow_the_teacher_and_hang_on_caption_and_generation(T):
    scores = torch.randn(1, 12)
    ids = torch.randint(-(2**62), 2**62, (40_000,))
    labels = sampled_labels(scores.expand(len(ids), 12), T, ids, 3)
    assert (labels.bincount(minlength=12) / len(ids) - (scores[0] / T).softmax(0)).abs().max() < 0.012
    order = torch.randperm(len(ids))[:100]
    assert torch.equal(sampled_labels(scores.expand(100, 12), T, ids[order], 3), labels[order])
    others = sampled_labels(scores.expand(len(ids), 12), T, ids, 4)
    alike = ((scores[0] / T).softmax(0) ** 2).sum()  # of independent draws
    assert abs((labels == others).float().mean() - alike) < 0.02


@pytest.mark.parametrize("subset", (0.1, 0.3, 1.0))
def test_what_is_heard_is_a_share_of_the_captions_and_weighs_as_the_whole(subset):
    ids = torch.randint(-(2**62), 2**62, (20_000,))
    shares = heard_shares(ids, subset, 1)
    assert abs((shares > 0).float().mean() - subset) < 0.015 and abs(shares.sum() - 1) < 0.05
    assert torch.equal(heard_shares(ids[5:9], subset, 1) > 0, shares[5:9] > 0)
    both = ((shares > 0) & (heard_shares(ids, subset, 2) > 0)).float().mean()
    assert abs(both - subset**2) < 0.015  # each generation hears others


def test_a_caption_has_one_number_whatever_its_padding():
    ids = torch.tensor([[5, 7, 9, 0], [7, 5, 9, 0], [5, 7, 9, 9]])
    mask = torch.tensor([[1, 1, 1, 0], [1, 1, 1, 0], [1, 1, 1, 1]]).bool()
    numbers = token_numbers(ids, mask)
    assert len(set(numbers.tolist())) == 3
    assert torch.equal(token_numbers(ids[:2, :3], mask[:2, :3]), numbers[:2])
    expected = sum(splitmix_bits(token, place) for place, token in enumerate((5, 7, 9))) % 2**64
    assert numbers[0].item() % 2**64 == expected


def test_distillation_of_some_rows_is_the_sum_over_these_rows():
    old = torch.randn(6, 9)
    new = torch.randn(6, 9, requires_grad=True)
    shares = torch.tensor([0.5, 0, 0.5, 0, 0, 0])
    rows = [0, 2]
    labels = old.argmax(-1)
    pairs = [
        (distil_kl(old, new, 0.5, shares), distil_kl(old[rows], new[rows], 0.5)),
        (distil_cosine(old, new, shares), distil_cosine(old[rows], new[rows])),
        (distil_sampled(labels, new, 0.5, shares), F.cross_entropy(2 * new[rows], labels[rows])),
        (
            distil_sparsemax(sparsemax(old), new, sparsemax(new), shares),
            distil_sparsemax(sparsemax(old)[rows], new[rows], sparsemax(new)[rows]),
        ),
    ]
    for found, expected in pairs:
        assert found.item() == pytest.approx(expected.item(), rel=1e-5)
        (gradient,) = torch.autograd.grad(found, new)
        assert gradient[[1, 3, 4, 5]].abs().max() == 0 < gradient[rows].abs().max()
    assert distil_sampled(labels, new).item() == pytest.approx(F.cross_entropy(new, labels).item(), rel=1e-5)


def test_rates_over_a_run():
    phases = [Phase("a", 10, None, ramp=4), Phase("b", 5, None), Phase("c", 10, None, schedule="phase", ramp=2)]
    assert lr_factor(phases, 0, 0) == pytest.approx(0.25)
    assert lr_factor(phases, 1, 0) == pytest.approx((1 + math.cos(math.pi * 10 / 25)) / 2)
    assert lr_factor(phases, 2, 0) == pytest.approx(0.5) and lr_factor(phases, 2, 5) == pytest.approx(0.5)
    assert all(0 < lr_factor(phases, i, s) <= 1 for i, p in enumerate(phases) for s in range(p.steps))


def test_a_rate_that_is_halved():
    """After every 15 of 100 epochs, whatever the schedule: six halvings."""
    phase = Phase("a", 1000, None, schedule="phase", ramp=10, halve=150)
    assert [lr_factor([phase], 0, step) for step in (0, 9, 149, 150, 299, 300, 999)] == [
        0.1,
        1.0,
        1.0,
        0.5,
        0.5,
        0.25,
        2.0**-6,
    ]
    with pytest.raises(ValueError, match="halve >= 0"):
        Phase("a", 10, None, halve=-1)


@pytest.mark.parametrize("decoupled", [True, False])
def test_parts_learn_at_their_shares_of_the_rate(decoupled):
    """Against an optimizer of torch for each part alone."""
    kind = torch.optim.AdamW if decoupled else torch.optim.Adam
    nets = [torch.nn.ModuleDict({"old": torch.nn.Linear(3, 3), "new": torch.nn.Linear(3, 3)}) for _ in range(2)]
    nets[1].load_state_dict(nets[0].state_dict())
    one = adamw(
        dict(nets[0].named_parameters()),
        0.1,
        0.05,
        (0.95, 0.999),
        shares={"*": 1.0, "old.*": 0.01},
        decoupled=decoupled,
    )
    parts = [(part, p.ndim) for part in nets[1] for p in nets[1][part].parameters()]
    rates = {"old": 1e-3, "new": 0.1}
    betas = (0.95, 0.999)

    def some(part, n):
        return [p for p in nets[1][part].parameters() if p.ndim == n]

    several = [kind(some(part, n), rates[part], betas, weight_decay=0.05 * (n > 1)) for part, n in parts]
    for step in range(4):
        for net, optimizers in zip(nets, ([one], several)):
            net.zero_grad()
            x = torch.arange(6.0).reshape(2, 3) + step
            sum(net[part](x).square().sum() for part in net).backward()
            for optimizer in optimizers:
                optimizer.step()
    for a, b in zip(nets[0].parameters(), nets[1].parameters()):
        torch.testing.assert_close(a, b)
    with pytest.raises(ValueError, match="'head.*' matches no parameter"):
        adamw(dict(nets[0].named_parameters()), shares={"head.*": 2.0})


def test_phases_that_share_a_name_share_a_cosine_and_a_constant_rate_stays():
    """Against the definition: the phases of a generation, taken alone, are a run; and the sum of the rates is the area
    under the curve."""
    warm = Phase("a", 8, None, schedule="g0", ramp=2)
    later = Phase("d", 3, None, schedule="constant", ramp=2)
    generation = [Phase("b", 6, None, schedule="g1", ramp=3), Phase("c", 10, None, schedule="g1")]
    phases = [warm, *generation, later]
    alone = [replace(phase, schedule="run") for phase in generation]
    for index, phase in enumerate(generation):
        rates = [lr_factor(phases, index + 1, step) for step in range(phase.steps)]
        assert rates == [lr_factor(alone, index, step) for step in range(phase.steps)]
    assert [lr_factor(phases, 3, step) for step in range(3)] == [0.5, 1.0, 1.0]
    total = full_rate_steps(phases)
    assert total["d"] == 2.5 and total["c"] == pytest.approx(sum(lr_factor(alone, 1, step) for step in range(10)))


def test_a_ramp_takes_at_most_half_of_a_distillation():
    """It ate the whole of it before, so that a frozen codebook and a free one were the same."""
    model = nn.ModuleDict({"language": nn.Linear(1, 1), "vision": nn.Linear(1, 1)})
    phases = iterated(model, 20, 10, 20, 2, ramp=500, distillation="contrastive")
    assert [phase.ramp for phase in phases] == [5, 5, 0, 5, 0]
    assert divide_steps(SCALES["full"], 2000)["ramp"] <= divide_steps(SCALES["full"], 2000)["distil"] // 2


@pytest.mark.parametrize("effective", [2.0, 8.0, 30.0])
def test_the_distillations_temperature_gives_the_stated_number_of_codes(effective):
    scores = 0.3 * torch.randn(16, 64)
    p = (scores.double() / find_temperature(scores, effective)).softmax(-1)
    assert torch.exp(-(p * p.log()).sum(-1).mean()).item() == pytest.approx(effective, rel=1e-3)
    for wrong in (1.0, 64.0):
        with pytest.raises(ValueError, match="lies between 1 and 64"):
            find_temperature(scores, wrong)
    with pytest.raises(ValueError, match="its scores hardly differ"):
        find_temperature(torch.ones(4, 64), effective)


def test_shared_mass_is_one_minus_the_total_variation():
    old = torch.randn(5, 12)
    new = torch.randn(5, 12)
    p = (old / 0.3).softmax(-1)
    q = (new / 0.3).softmax(-1)
    assert shared_mass(old, new, 0.3).item() == pytest.approx(1 - 0.5 * (p - q).abs().sum(-1).mean().item(), abs=1e-6)


def test_a_phase_with_its_own_loader_does_not_move_the_runs():
    own = type("L", (), {"batches": None})()
    phases = [
        Phase("a", 10, None),
        Phase("b", 5, None, loader=own),
        Phase("c", 3, None),
        Phase("d", 5, None, loader=own),
    ]
    phases.append(Phase("e", 5, None, loader=lambda state: own))
    assert [batches_before(phases, i) for i in range(5)] == [0, 0, 10, 5, 0]


@pytest.mark.parametrize("wrong", ({"schedule": ""}, {"steps": 0}, {"ramp": -1}, {"optim": {"rate": 1}}))
def test_a_wrong_phase_names_itself(wrong):
    with pytest.raises(ValueError, match="distil-03"):
        Phase(**{"name": "distil-03", "steps": 5, "objective": None} | wrong)


def test_patterns():
    names = ["vision.a", "language.a", "codebook.codes"]
    assert match_names(names, ["*", "-codebook.*"]) == {"vision.a", "language.a"}
    assert match_names(names, ["vision.*"]) == {"vision.a"}
    with pytest.raises(ValueError, match="codebok.*codebook, language, vision"):
        match_names(names, ["*", "-codebok.*"])


def test_a_frozen_parameter_with_a_stale_gradient_does_not_move():
    model = nn.ModuleDict({"a": nn.Linear(2, 2), "b": nn.Linear(2, 2)})
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    (model["a"](torch.ones(1, 2)) + model["b"](torch.ones(1, 2))).sum().backward()
    optimizer.step()
    model["a"].requires_grad_(False)
    before = model["a"].weight.clone()
    optimizer.step()
    assert not torch.equal(before, model["a"].weight)  # the trap
    set_trainable(model, ["*", "-a.*"])
    before = model["a"].weight.clone()
    model["b"](torch.ones(1, 2)).sum().backward()
    optimizer.step()
    assert torch.equal(before, model["a"].weight)

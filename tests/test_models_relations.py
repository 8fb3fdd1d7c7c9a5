"""Relations between things: norms, gradients and composition; naive loops for attention, phrases and search heads."""

import math

import pytest
import torch
from torch import nn

from complearn.data.pairs import Batch
from complearn.models.grounded.relations import (
    Predicates,
    RelationModule,
    SearchHeads,
    _phrase_vectors,
    _triplet_scores,
    compose,
    likeness,
    relate,
    search,
)


def module(width=16, heads=4, d=6, predicates=("on", "under", "near"), objects=("cat", "mat"), seed=0):
    torch.manual_seed(seed)
    return RelationModule(width, predicates, objects, heads=heads, d=d, hidden=8, dropout=0.0)


@pytest.mark.parametrize("d, count", [(2, 1), (4, 3), (8, 7)])
def test_scores_are_the_triple_sum(d, count):
    torch.manual_seed(d)
    predicates = Predicates([str(k) for k in range(count)], d)
    subject = torch.randn(5, d)
    other = torch.randn(5, d)
    found = predicates(subject, other)
    for n in range(5):
        for p in range(count):
            raw = predicates.raw[p]
            norm = math.sqrt(sum(float(raw[i, j]) ** 2 for i in range(d) for j in range(d)))
            by_hand = sum(float(subject[n, i] * raw[i, j] * other[n, j]) / norm for i in range(d) for j in range(d))
            assert found[n, p].item() == pytest.approx(by_hand, abs=1e-5)


def test_the_norm_is_one_whatever_the_optimizer_does():
    predicates = Predicates(("a", "b", "c"), 4)
    optimizer = torch.optim.AdamW(predicates.parameters(), lr=0.5, weight_decay=0.1)
    first = predicates.matrices.detach().clone()
    for step in range(20):
        torch.manual_seed(step)
        subject = torch.randn(6, 4)
        other = torch.randn(6, 4)
        optimizer.zero_grad()
        nn.functional.cross_entropy(predicates(subject, other), torch.arange(6) % 3).backward()
        assert all(predicates.raw.grad[p].abs().sum() > 0 for p in range(3)), "every matrix gets a gradient"
        optimizer.step()
        torch.testing.assert_close(predicates.matrices.flatten(1).norm(dim=1), torch.ones(3))
    assert (predicates.matrices - first).abs().max() > 0.1


def test_a_gradient_only_turns_a_matrix():
    """Changing the length of the parameter changes nothing, so the gradient is at right angles to it."""
    predicates = Predicates(("a", "b"), 3)
    predicates(torch.randn(4, 3), torch.randn(4, 3)).square().sum().backward()
    along = (predicates.raw * predicates.raw.grad).flatten(1).sum(1)
    torch.testing.assert_close(along, torch.zeros(2), atol=1e-5, rtol=0)


@pytest.mark.parametrize("heads", [1, 2, 8])
def test_grounding_is_attention_head_by_head(heads):
    relations = module(heads=heads)
    phrases = torch.randn(2, 3, 16)
    positions = torch.randn(2, 5, 16)
    found = relations.ground(phrases, positions)
    size = 16 // heads
    for b in range(2):
        for k in range(3):
            for h in range(heads):
                part = slice(h * size, (h + 1) * size)
                query = (relations.query.weight @ phrases[b, k])[part]
                keys = (positions[b] @ relations.key.weight.T)[:, part]
                values = (positions[b] @ relations.value.weight.T + relations.value.bias)[:, part]
                by_hand = (keys @ query / math.sqrt(size)).softmax(0) @ values
                torch.testing.assert_close(found[b, k, part], by_hand, atol=1e-5, rtol=1e-4)
    torch.testing.assert_close(relations.ground(phrases[:, 0], positions), found[:, 0], atol=1e-5, rtol=1e-4)


def test_the_grounded_phrase_holds_nothing_of_the_phrase_itself():
    """In an image that is the same everywhere every phrase finds the same."""
    relations = module()
    same = torch.randn(1, 1, 16).expand(1, 6, 16)
    found = relations.ground(torch.randn(1, 4, 16), same)
    torch.testing.assert_close(found, found[:, :1].expand_as(found), atol=1e-5, rtol=1e-4)


class Stream(nn.Module):
    """Stands in for a language stream: a state is a row of a table; id 1 does not speak."""

    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(9, 4)

    def forward(self, ids, mask):
        return self.table(ids), mask & (ids != 1)


def test_a_phrase_is_the_mean_of_its_words_and_an_empty_place_is_zero():
    stream = Stream()
    ids = torch.tensor([[[1, 4, 6], [1, 5, 0], [0, 0, 0]], [[1, 8, 0], [0, 0, 0], [0, 0, 0]]])
    vectors = _phrase_vectors(stream, ids, ids > 0)
    for i in range(2):
        for k in range(3):
            said = [stream.table.weight[n] for n in ids[i, k].tolist() if n > 1]
            by_hand = torch.stack(said).mean(0) if said else torch.zeros(4)
            torch.testing.assert_close(vectors[i, k], by_hand)
    vectors.sum().backward()
    assert stream.table.weight.grad[[4, 5, 6, 8]].abs().sum() > 0
    assert stream.table.weight.grad[[0, 1, 2]].abs().sum() == 0


def test_triplets_pick_their_phrases():
    relations = module()
    grounded = torch.randn(2, 3, 16)
    triplets = torch.tensor([[[0, 1, 2], [2, 0, 0]], [[1, 2, 0], [-1, -1, -1]]])
    scores = _triplet_scores(relations, grounded, triplets)
    for i, t in ((0, 0), (0, 1), (1, 0)):
        a, _, b = triplets[i, t].tolist()
        one = relations.project(grounded[i, a])
        two = relations.project(grounded[i, b])
        by_hand = torch.stack([one @ m @ two for m in relations.matrices])
        torch.testing.assert_close(scores[i, t], by_hand, atol=1e-5, rtol=1e-4)


def best_relation(first, second):
    "The matrix of norm 1 that scores a pair highest (Zhang et al. 2021, Eq. 5)."
    return nn.functional.normalize(first, dim=-1)[..., :, None] * nn.functional.normalize(second, dim=-1)[..., None, :]


def test_composition():
    torch.manual_seed(1)
    one, two, three = torch.randn(3, 5, 8)
    torch.testing.assert_close(compose(best_relation(one, two), best_relation(two, three)), best_relation(one, three))

    def score(m):
        return torch.einsum("nd,nde,ne->n", one, m, two)

    best = score(best_relation(one, two))
    for _ in range(50):  # no other matrix of norm 1 scores higher
        rival = nn.functional.normalize(torch.randn(5, 64), dim=1).view(5, 8, 8)
        assert (score(rival) <= best + 1e-6).all()
    matrices = module(d=8).matrices
    assert likeness(matrices, matrices).argmax(1).tolist() == [0, 1, 2]
    torch.testing.assert_close(likeness(matrices, matrices).diagonal(), torch.ones(3))


def test_search_heads_are_equations_15_to_17():
    torch.manual_seed(0)
    heads = SearchHeads(6)
    keys = torch.randn(2, 4, 6)
    queries = torch.randn(2, 3, 6)
    mask = torch.tensor([[True, True, True], [True, False, False]])

    def by_hand(head, vectors):
        rows = [torch.relu(v @ head[0].weight.T + head[0].bias) @ head[2].weight.T + head[2].bias for v in vectors]
        mean = sum(rows) / len(rows)
        return mean / mean.norm()

    image = heads.image(keys)
    text = heads.text(queries, mask)
    for i in range(2):
        torch.testing.assert_close(image[i], by_hand(heads.vision, keys[i]))
        torch.testing.assert_close(text[i], by_hand(heads.language, queries[i][mask[i]]))


def test_faults_say_what_is_missing():
    with pytest.raises(ValueError, match="does not divide into 5 heads"):
        RelationModule(16, ("on",), ("cat",), heads=5)
    with pytest.raises(ValueError, match="distinct names"):
        Predicates(("on", "on"))
    batch = Batch(None, None, None, torch.arange(2), ("a", "b"))
    model = nn.Module()
    with pytest.raises(ValueError, match='configuration "relations"'):
        relate(model, batch)
    with pytest.raises(ValueError, match="has no search heads"):
        search(model, batch)
    model.relations = module()
    with pytest.raises(ValueError, match="has no Triplets .* made by TripletEncoder"):
        relate(model, batch)

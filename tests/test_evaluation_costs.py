"""Time and memory: what is counted, what is not, and that the ways take turns."""

import json
import re
from pathlib import Path

import pytest
import torch

from complearn.evaluation.costs import Cost, Ledger, clock, measure_ways


def test_views_and_changes_in_place_are_not_new():
    before = torch.zeros(1000)
    with Ledger() as ledger:
        before.view(10, 100).t().add_(1)
        torch.add(before, 1, out=before)
    assert ledger.most == ledger.largest == 0


def test_what_is_freed_no_longer_counts():
    with Ledger() as ledger:
        for _ in range(5):
            torch.ones(1000)
        kept = [torch.ones(1000) for _ in range(3)]
    assert ledger.most == 12_000 == 4000 * len(kept) and ledger.largest == 4000
    del kept
    assert ledger.now == 0


def test_gradients_are_counted_but_not_as_the_largest():
    leaf = torch.ones(50, 40, requires_grad=True)
    with Ledger([leaf]) as ledger:
        (gradient,) = torch.autograd.grad((leaf[:, :10].contiguous() ** 2).sum(), leaf)
    assert ledger.largest == 4 * 500 and ledger.most >= 4 * 2000 and gradient.shape == leaf.shape


def test_ways_take_turns_in_alternating_order(monkeypatch):
    called = []
    now = iter(range(100))
    monkeypatch.setattr("complearn.evaluation.costs.clock", lambda device: next(now))
    monkeypatch.setattr("complearn.evaluation.costs.gc.collect", int)  # slow in a process of many tests
    costs = measure_ways({name: lambda name=name: called.append(name) for name in "ab"}, turns=3)
    assert "".join(called) == "ab" + "ab" + "ba" + "ab"
    assert costs["a"].seconds == [1, 1, 1] == costs["b"].seconds


def test_a_ratio_is_taken_within_a_turn():
    assert Cost([2.0, 40.0, 6.0]).over(Cost([1.0, 10.0, 2.0])) == (3.0, 2.0, 4.0)


@pytest.mark.gpu
def test_memory_on_a_gpu():
    costs = measure_ways({"one": lambda: torch.ones(2**20, device="cuda") + 0}, turns=1, device="cuda")
    assert costs["one"].most == 2**23 and costs["one"].largest == 0 and clock("cuda") > 0


def test_the_costs_in_the_documentation_are_those_of_the_files():
    """Each row of the four tables of docs/speed.md, from data/measured/benchmarks."""
    root = Path(__file__).parents[1]

    def read(name):
        return json.loads((root / "data" / "measured" / "benchmarks" / f"{name}.results.json").read_text())["methods"]

    def cells(*values):
        return [f"{value:.2f}" for value in values]

    rows = []
    text = (root / "docs" / "speed.md").read_text()
    for split, v in read("readout").items():
        autograd = v["naive_over_ours"] * v["ours_over_bare"]
        rows.append(
            [split.rsplit(" ", 1)[1], *cells(autograd, v["ours_over_bare"], v["searched_over_bare"], v["memory_ratio"])]
        )
    for split, v in read("contrastive").items():
        names = ("plain_over_ours", "open_clip_over_ours", "ours_MB", "plain_MB", "open_clip_MB")
        rows.append([split.split()[1], *cells(*(v[name] for name in names))])
    assert all(f"| {' | '.join(row)} |" in text for row in rows)
    steps = re.findall(r"^\| ((?:clip|codebook) \w+) \| (\w+ \w+) \| (\S+) \|$", text, re.M)
    measured = read("step")
    assert len(steps) == 5
    assert all(cells(measured[f"{step} over {other}"]["ratio"]) == [value] for step, other, value in steps)
    scale = json.loads((root / "data" / "measured" / "benchmarks" / "scale.results.json").read_text())["rows"]
    value = {(row["data"], row["split"], row["metric"]): row["value"] for row in scale}
    for pairs in (10_000, 100_000, 1_000_000):
        first = 1e6 * value[f"{pairs} pairs", "first reading", "processor"] / pairs
        later = {
            name: value[f"{pairs} pairs", "later start to its first batch", name] for name in ("processor", "memory")
        }
        assert f"| {pairs:,} | {first:.0f} | {later['processor']:.2f} | {later['memory'] / pairs:.0f} |" in text
    large = read("step_base")
    codebook, clip = (
        large[f"{name} fp32"]["ratio"] for name in ("codebook fp32 over clip", "clip fp32 over open_clip")
    )
    assert f"takes {codebook:.2f} times that of CLIP, and CLIP's {clip:.2f} times that of `open_clip`" in text
    stacks = read("step_stacks")
    ratios = [values["ratio"] for name, values in stacks.items() if name.endswith("stacked over one by one")]
    assert len(ratios) == 4
    assert f"take {min(ratios):.2f} to {max(ratios):.2f} of their time one by one" in text
    folder = root / "data" / "measured" / "benchmarks"
    counted = json.loads((folder / "step_stacks.results.json").read_text())["rows"]
    products = next(row["value"] for row in counted if row["metric"] == "operations_ratio")
    assert f"has {products:.2f} times the products of CLIP's" in text


def test_the_costs_of_larger_data_in_the_documentation_are_extrapolated_from_the_file():
    """The table of docs/scale.md: three measured rows, two that follow from them and say so."""
    root = Path(__file__).parents[1]
    text = (root / "docs" / "scale.md").read_text()
    scale = json.loads((root / "data" / "measured" / "benchmarks" / "scale.results.json").read_text())["rows"]
    value = {(row["data"], row["split"], row["metric"]): row["value"] for row in scale}

    def cost(pairs, split):
        return value[f"{pairs} pairs", split, "processor"]

    later = "later start to its first batch"
    million = 1_000_000
    for pairs in (10_000, 100_000, million):
        first = cost(pairs, "first reading")
        assert f"| {pairs:,} | {first:,.0f} | {cost(pairs, later):.1f} | measured |" in text
    slope = (cost(million, later) - cost(100_000, later)) / 900_000
    for pairs in (3_000_000, 12_000_000):
        first = cost(million, "first reading") * pairs / million
        start = cost(million, later) + slope * (pairs - million)
        assert f"| {pairs:,} | {first:,.0f} | {start:.1f} | extrapolated |" in text
    speed = value["1000000 pairs", "loading, 0 workers", "pairs_per_second"]
    assert f"{speed:,.0f} pairs a second from one thread" in text
    assert f"would take {12e6 / speed / 3600:.1f} hours of loading on that machine (an extrapolation)" in text

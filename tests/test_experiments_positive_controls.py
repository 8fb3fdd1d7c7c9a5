"""The positive controls of grounding and of the search slider: names of hues, and vectors with known answers."""

import numpy as np
import pytest
from conftest import ROOT
from notebook_cells import run_cells
from scipy import stats

from complearn.analysis.words.rings import ring_plane, ring_scores
from complearn.core.results import Result, rows_table
from complearn.data.images import load_images
from complearn.data.readers.registry import read
from complearn.data.worlds.hues import HUES, hue_colour, hue_names, ring_distances

HUE_NAMES = "experiments/hue_names"
SLIDER = "experiments/slider_control"
VERDICTS = {"hue_names": "write_ring_verdict", "slider_control": "write_slider_verdict"}


def test_a_ring_is_as_far_around_as_a_slow_loop_says():
    for places in (2, 5, 24):
        slow = [[min((a - b) % places, (b - a) % places) for b in range(places)] for a in range(places)]
        assert ring_distances(places).tolist() == slow


def test_each_seed_has_names_of_its_own_and_captions_say_nothing_of_hues():
    pairs = read("hue_ring", n=3000, seed=5)
    assert hue_names(5) != hue_names(6) and sorted(hue_names(5)) == sorted(hue_names(6))
    captions = [pair.caption.split() for pair in pairs]
    assert {len(words) for words in captions} == {3} and {words[0] for words in captions} == {"a"}
    counts = np.zeros((HUES, 3))
    shapes = sorted({words[2] for words in captions})
    for _, name, shape in captions:
        counts[hue_names(5).index(name), shapes.index(shape)] += 1
    expected = 3000 / counts.size
    assert np.abs(counts - expected).max() < 5 * np.sqrt(expected), "no name goes with a shape"


def test_a_picture_shows_its_hue_and_its_identity_is_what_it_shows():
    pairs = [*read("hue_ring", n=300, seed=2), *read("hue_ring", n=300, seed=3), *read("hue_ring", n=9, part="test")]
    pictures = load_images([pair.image for pair in pairs], 32)
    shown = {}
    for pair, picture in zip(pairs, pictures):
        shown.setdefault(picture.tobytes(), set()).add(pair.image_id)
    assert all(len(names) == 1 for names in shown.values())
    assert len(shown) == len({pair.image_id for pair in pairs})
    for pair, picture in zip(pairs[:300], pictures):
        place = hue_names(2).index(pair.labels["hue"])
        middle = picture[pair.image.y, pair.image.x].astype(float)
        apart = [np.abs(middle - hue_colour(other / HUES)).sum() for other in range(HUES)]
        assert int(np.argmin(apart)) == place


@pytest.mark.parametrize("arguments", [{"n": 0}, {"jitter": -1}])
def test_a_ring_without_pairs_is_refused(arguments):
    with pytest.raises(Exception, match="one pair or more|Type-check|greater"):
        read("hue_ring", **arguments)


def test_scores_of_a_ring_do_not_depend_on_turning_scale_or_further_axes():
    angles = 2 * np.pi * np.arange(HUES) / HUES
    ring = np.stack([np.cos(angles), np.sin(angles)], 1)
    turned = np.pad(3 * ring, ((0, 0), (0, 5))) @ np.linalg.qr(np.random.default_rng(0).normal(size=(7, 7)))[0]
    for vectors in (ring, turned):
        scores = ring_scores(vectors)
        assert scores.correlation > 0.99 and scores.neighbours == 1 and scores.plane == pytest.approx(1)
        assert np.allclose(ring_plane(vectors), ring, atol=1e-6)
    mixed = ring_scores(ring[np.random.default_rng(1).permutation(HUES)])
    assert abs(mixed.correlation) < 0.3 and mixed.neighbours < 0.5


def test_every_arm_of_the_hues_is_measured_before_and_after_with_equal_steps(smoke):
    run = smoke(HUE_NAMES)
    assert run.good, run.text
    result = Result.read(run.folder)
    table = rows_table(result.rows)
    table = table[table.data == "hue_ring"]
    assert set(table.method) == {"grounded", "shuffled pairs", "text only", "frozen"}
    assert set(table.metric) == {"correlation", "neighbours", "plane"}
    steps = table[table.phase != "untrained"].groupby("method").step.max()
    assert steps.nunique() == 1 and steps.iloc[0] > 0
    wide = table.assign(after=table.phase != "untrained").pivot(
        index=["method", "metric"], columns="after", values="value"
    )
    assert (wide.loc["frozen", True] == wide.loc["frozen", False]).all(), "towers at rest say what they said"
    assert (wide.loc["grounded", True] != wide.loc["grounded", False]).any()
    assert wide[False].groupby("metric").nunique().eq(1).all(), "all arms begin with the same words"
    text = (run.folder / "report.ipynb").read_text()
    assert "By construction these arms cannot know" in text and "nothing has been learned yet" in text


def test_the_slider_finds_both_halves_until_noise_hides_them(smoke):
    run = smoke(SLIDER)
    assert run.good, run.text
    table = rows_table(Result.read(run.folder).rows)
    middle = table[(table.metric == "top") & (table.split == "mixed at 0.5")].pivot(
        index="data", columns="method", values="value"
    )
    gains = table[table.metric == "gain_top"].pivot(index="data", columns="method", values="value")
    assert gains.equal["noise 1"] > 0.2 > gains.equal["no signal"]
    for name in ("texts narrower 6:1", "pictures narrower 6:1"):
        assert middle.equal[name] == middle.equal["noise 1"], "dividing by the spread undoes it"
        assert middle.raw[name] < middle.equal[name]


@pytest.mark.parametrize("name, before", [(HUE_NAMES, "first_seed ="), (SLIDER, "def describe(oracle")])
def test_one_declared_comparison_is_not_corrected(name, before, tmp_path):
    """Its p value is that of one paired test, as data/README reads it; all other comparisons describe."""
    name = name.removeprefix("experiments/")
    measured = ROOT / "data" / "measured" / f"{name}.results.json"
    names = run_cells(name, before, report_from=str(measured), out_dir=str(tmp_path))
    table = rows_table(Result.read(measured).rows)
    if name == "hue_names":
        ends = table[(table.metric == "correlation") & (table.phase != "untrained")]
        ours, theirs = (ends[ends.method == arm].set_index("seed").value for arm in ("grounded", "shuffled pairs"))
        test = stats.ttest_rel(ours.astype(float), theirs.reindex(ours.index).astype(float))
    else:
        gains = table[(table.metric == "gain_top") & (table.method == "equal") & (table.data == "noise 1")]
        test = stats.ttest_1samp(gains.value.astype(float), 0)
    (said,) = [text for text in names[VERDICTS[name]]().told if "primary comparison" in text]
    assert f"p = {test.pvalue:.2g}. It is the only one, so nothing is corrected; all others describe." in said


@pytest.mark.parametrize(
    "name, change, said",
    [
        (HUE_NAMES, {"arms": ["sound"]}, "arms: there is no 'sound'"),
        (HUE_NAMES, {"preset": "tiny"}, "preset is one of"),
        (SLIDER, {"preset": "tiny"}, "preset is one of"),
    ],
)
def test_what_is_unknown_is_refused_before_anything_is_measured(name, change, said, experiment, tmp_path):
    run = experiment(name, tmp_path, **change)
    assert not run.result.good and said in run.text and not (tmp_path / "results.json").exists()

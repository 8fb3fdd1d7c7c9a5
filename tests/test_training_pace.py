"""At which rate a run starts: new parts at the preset's, pretrained towers at that of a fine-tuning, and what a person
states as stated."""

import json
import re

import nbformat
import pytest
from conftest import ROOT

from complearn.core.config import strict
from complearn.core.runs import Run, differences
from complearn.models.registry import build, tuned_towers
from complearn.training.engine.phases import match_names
from complearn.training.methods.catalogue import METHODS
from complearn.training.methods.scales import FINE_TUNING, SCALES, Scale
from complearn.training.runs.config import RunConfig
from complearn.training.runs.launch import prepare
from complearn.training.runs.measured import _written_out
from complearn.training.runs.study import Study, method_rows

SCALE = SCALES["demo"]
STEPS = 400
TINY = SCALE.model()
CLIP = {"vision": "open_clip:ViT-B-32:openai", "text": "open_clip:ViT-B-32:openai"}
BERT = "hf:bert-base-uncased"
FROZEN = {"tower": "open_clip:ViT-B-32:openai", "frozen": True}


def study(model, rows=("clip",), scale=SCALE, switches=None, **train):
    rows = rows if isinstance(rows, dict) else method_rows(rows)
    parts = (scale.model(model.get("vision"), model.get("text")), scale.train(STEPS, 64) | train, switches or {})
    return Study("/nowhere", rows, [0], {"name": "generated", "args": scale.world}, scale, STEPS, *parts)


def rates(made):
    return made["train"]["lr"], made["train"].get("shares"), made["method"]["args"]["ramp"]


USUAL = (SCALE.lr, None, SCALE.ramp_for(STEPS))
RAMP = round(FINE_TUNING["ramp"] * STEPS)
SHARE = pytest.approx(FINE_TUNING["lr"] / SCALE.lr)


@pytest.mark.parametrize(
    ("model", "expected"),
    [
        ({}, USUAL),
        ({"vision": "efficientnet_lite0"}, USUAL),  # frozen, with a new head and a new text tower
        ({"vision": "efficientnet_lite0", "text": "minilm"}, USUAL),
        ({"vision": FROZEN, "text": "tiny"}, USUAL),
        ({"vision": {"tower": "timm:test_vit", "weights": False}}, USUAL),
        ({"vision": {"tower": "open_clip:ViT-B-32", "random_weights": True}}, USUAL),
        ({"vision": "resnet"}, USUAL),
        (CLIP, (1e-5, None, RAMP)),
        (CLIP | {"vision": FROZEN}, (1e-5, None, RAMP)),
        ({"vision": CLIP["vision"]}, (SCALE.lr, {"vision.tower.*": SHARE}, RAMP)),
        ({"text": BERT}, (SCALE.lr, {"language.tower.*": SHARE}, RAMP)),
        (
            {"vision": "timm:vgg16", "text": BERT},
            (SCALE.lr, {"vision.tower.*": SHARE, "language.tower.*": SHARE}, RAMP),
        ),
        (
            CLIP | {"text": "open_clip:ViT-B-16:openai"},
            (SCALE.lr, {"vision.tower.*": SHARE, "language.tower.*": SHARE}, RAMP),
        ),
    ],
)
def test_pretrained_towers_start_at_a_fine_tuning_rate_and_what_is_new_at_the_presets(model, expected):
    assert rates(study(model).configuration("clip", 0)) == expected


def test_heads_and_codebooks_over_pretrained_towers_are_new():
    made = study(CLIP, ["codebook_clip"]).configuration("codebook_clip", 0)
    assert rates(made) == (SCALE.lr, {"vision.tower.*": SHARE, "language.tower.*": SHARE}, RAMP)


@pytest.mark.parametrize(
    ("target", "lasting"), [("language", {"vision.tower.*"}), ("vision", {"language.tower.*"}), ("alternate", set())]
)
def test_a_tower_that_a_generation_replaces_has_to_learn_from_nothing(target, lasting):
    made = study(CLIP, {"row": {"method": "il_clip", "il_clip": {"target": target}}}).configuration("row", 0)
    assert set(made["train"].get("shares", {})) == lasting and made["train"]["lr"] == SCALE.lr
    controls = study(CLIP, ["codebook_restarts"]).configuration("codebook_restarts", 0)
    assert set(controls["train"]["shares"]) == {"vision.tower.*", "language.tower.*"}, "nobody is replaced there"


def test_what_a_person_states_wins():
    for lr in (3e-4, "3e-4"):
        assert rates(study(CLIP, scale=SCALE.stated(lr)).configuration("clip", 0)) == (3e-4, None, RAMP)
    assert rates(study(CLIP, scale=SCALE.stated(ramp=7)).configuration("clip", 0)) == (1e-5, None, 7)
    assert rates(study({}, scale=SCALE.stated(3e-4, 7)).configuration("clip", 0)) == (3e-4, None, 7)
    assert rates(study(CLIP, lr=2e-4).configuration("clip", 0)) == (2e-4, None, RAMP)
    assert rates(study(CLIP, lr=SCALE.lr).configuration("clip", 0)) == (SCALE.lr, None, RAMP), (
        "stated, though the preset's"
    )
    assert rates(study(CLIP, switches={"train": {"lr": 2e-4}}).configuration("clip", 0)) == (2e-4, None, RAMP)
    assert rates(study(CLIP, switches={"clip": {"ramp": 3}}).configuration("clip", 0)) == (1e-5, None, 3)
    shares = {"vision.*": 0.5}
    assert rates(study(CLIP, switches={"train": {"shares": shares}}).configuration("clip", 0)) == (
        SCALE.lr,
        shares,
        RAMP,
    )
    row = {"a": {"method": "clip", "train": {"lr": 2e-4}}, "b": {"method": "clip"}}
    assert [rates(study(CLIP, row).configuration(label, 0))[0] for label in row] == [2e-4, 1e-5]
    for wrong in ((-1, 0), (0, -3), ("fast", 0), (float("nan"), 0)):
        with pytest.raises(ValueError, match="lr is a number above 0 and ramp a number of steps, or 0"):
            SCALE.stated(*wrong)


def test_methods_with_rates_of_their_own_keep_them():
    text = {"vision": "efficientnet_lite0", "text": BERT}
    made = study(text, ["grounded"]).configuration("grounded", 0)
    assert made["train"]["lr"] == SCALE.lr
    assert "shares" not in made["train"]
    assert made["method"]["args"] == {"steps": STEPS, "ramp": 50}
    stated = study(text, ["grounded", "relating"], scale=SCALE.stated(1e-4, 9))
    assert stated.configuration("grounded", 0)["method"]["args"] == {
        "steps": STEPS,
        "ramp": 9,
        "lr": 1e-4,
        "new_lr": None,
    }
    relating = METHODS["relating"].plain_arguments(SCALE.stated(1e-4, 9), STEPS, {})
    assert (relating["lr"], relating["language_lr"], relating["search_lr"], relating["ramp"]) == (1e-4, None, 1e-4, 9)
    row = {"composer": {"method": "composer", "composer": {"lr": 4e-5}, "model": {"trees": "rules"}}}
    assert "shares" not in study({"text": BERT}, row).configuration("composer", 0)["train"]
    plain = study({"text": BERT}, ["composer"]).configuration("composer", 0)
    assert plain["train"]["shares"] == {"language.tower.*": SHARE}, "its text tower trains, its heads are new"


def test_a_study_says_at_which_rate_pretrained_towers_start():
    said = study(CLIP, ["clip", "codebook_clip", "negclip"]).describe_start()
    end = "ramp 40 steps (lr and ramp change it)"
    assert said == [
        f"clip, negclip: from pretrained towers; lr 1e-05, {end}",
        "clip, negclip: the temperature is that of the pretrained CLIP",
        f"codebook_clip: from pretrained towers; lr 0.001, 1e-05 for vision.tower, 1e-05 for language.tower, {end}",
        "codebook_clip: the temperature starts as of a new model, since new heads stand "
        "over the towers of a pretrained CLIP",
    ]
    assert study({}).describe_start() == [] == study({"vision": "efficientnet_lite0"}).describe_start()
    alone = "clip: the temperature starts as of a new model, since the vision tower alone comes from a pretrained CLIP"
    assert study({"vision": FROZEN}).describe_start() == [alone]
    assert study({"vision": FROZEN}, switches={"model": {"logit_scale": 50.0}}).describe_start() == []


@pytest.mark.parametrize("kind", ["dual", "classifier", "composer", "vse", "two_stream", "stages", "clip_stages"])
def test_the_patterns_of_a_kind_are_its_towers(kind):
    """The names by which pretrained towers get a rate of their own are names of parameters."""
    from complearn.data.word_tokenizer import WordTokenizer

    vision = {"tower": "timm:test_vit", "weights": False, "frozen": False}
    text = training_text()
    config = {"dual": {}, "classifier": {"classes": ["a", "b"]}, "stages": {"stages": 2}}.get(kind, {})
    config |= (
        {"vision": vision}
        | ({} if kind in ("classifier", "stages") else {"text": text})
        | ({} if kind == "dual" else {"kind": kind})
    )
    model = build(config, WordTokenizer.fit(["a red circle"]))
    tuned, new = tuned_towers(config | {"vision": vision | {"weights": True}})
    names = match_names([name for name, _ in model.named_parameters()], tuned)
    assert new and names and all(".tower." in name for name in names)
    assert names == {
        name for name, _ in model.named_parameters() if ".tower." in name and not name.startswith("language.")
    }


def training_text():
    return {"tower": "tiny", "width": 16, "depth": 1, "heads": 1}


def test_a_run_without_a_study_starts_as_its_towers_do(tmp_path, capsys):
    config = {
        "method": {"name": "clip", "args": {"steps": 50}},
        "model": CLIP,
        "data": {"name": "generated", "args": {}},
        "train": {"batch_size": 8},
    }
    run = prepare(tmp_path / "a", config)
    assert run.config["train"]["lr"] == 1e-5 and run.config["method"]["args"] == {"steps": 50, "ramp": 5}
    assert capsys.readouterr().out == "from pretrained towers: lr 1e-05, ramp 5 steps (lr and ramp change it)\n"
    assert prepare(tmp_path / "a", config).config == run.config, "the same command opens the same run"
    capsys.readouterr()
    stated = json.loads(json.dumps(config))
    stated["train"]["lr"] = 5e-4
    assert prepare(tmp_path / "b", stated).config == stated and not capsys.readouterr().out
    assert RunConfig.read(run.config).train.optim["lr"] == 1e-5
    mixed = prepare(tmp_path / "c", config | {"model": CLIP | {"text": "tiny"}})
    assert RunConfig.read(mixed.config).train.optim["shares"] == {"vision.tower.*": pytest.approx(0.02)}
    assert Run.open(tmp_path / "c").config["train"]["lr"] == 5e-4


@pytest.mark.parametrize(
    ("switches", "told"),
    [
        ({"trian": {}}, "no switch of 'trian' .did you mean 'train'.*there are clip, codebook, model, train"),
        ({"train": {"lrr": 1}}, "train key 'lrr' .did you mean 'lr'.*there are lr, shares, .*batch_size"),
        ({"model": {"logit": 1}}, "model key 'logit'.*there are vision, text, .*logit_scale"),
        ({"clip": {"blokcs": 1}}, "method 'clip' key 'blokcs' .did you mean 'blocks'.*there are steps, ramp, blocks"),
        ({"codebook": {"code": 3}}, "codebook key 'code' .did you mean 'codes'.*there are codes, init"),
    ],
)
def test_a_switch_that_does_not_exist_is_answered_with_those_that_do(switches, told):
    rows = {"clip": {"method": "clip", "model": {"codebook": {}}}}
    with pytest.raises(ValueError, match=told):
        RunConfig.read(study({}, rows, switches=switches).configuration("clip", 0))


def measured_studies():
    "Results files of studies that hold the configuration of each run, by name."
    for file in sorted((ROOT / "data" / "measured").glob("*.results.json")):
        setting = json.loads(file.read_text())["setting"]
        if {"rows", "scale", "runs", "train", "model", "steps"} <= setting.keys():
            yield pytest.param(setting, id=file.name.removesuffix(".results.json"))


@pytest.mark.parametrize("setting", measured_studies())
def test_what_was_measured_with_pretrained_towers_keeps_its_configuration(setting):
    """A notebook states no learning rate, so the study decides it: as it did when the row was measured."""
    known = {name: value for name, value in setting["scale"].items() if name in Scale.__dataclass_fields__}
    known["lr"] = setting["train"]["lr"]  # a notebook's own presets replace that of the scale
    train = {name: value for name, value in setting["train"].items() if name != "lr"}
    for label in setting["rows"]:
        records = [record for record in setting["runs"].values() if record["method"] == label]
        for record in records[:1]:
            configuration = record["configuration"]
            parts = (setting["steps"], setting["model"], train, setting["switches"])
            again = Study(
                "/nowhere",
                setting["rows"],
                [record["seed"]],
                configuration["data"],
                strict(Scale, known, "scale"),
                *parts,
            )
            made = again.configuration(label, record["seed"])
            assert differences(_written_out(made)["train"], _written_out(configuration)["train"]) == []
            method = configuration["method"]
            if method["args"].get("balance") == "paper":  # written into the files afterwards, see data/README.md
                made["method"]["args"].setdefault("balance", "paper")
            assert differences(made["method"], method) == []


TRAINING = (
    "ablations",
    "classification",
    "composer",
    "grounded_words",
    "grounding",
    "hard_negatives",
    "iterated_learning",
    "learnability",
)
TRAINING += ("lipschitz", "masked_language_model", "multistage", "multistage_clip", "search")


@pytest.mark.parametrize("name", TRAINING)
def test_rate_and_ramp_are_parameters_of_a_notebook_that_trains(name):
    cells = nbformat.read(ROOT / "nbs" / "experiments" / f"{name}.ipynb", 4).cells
    (parameters,) = [cell.source for cell in cells if "parameters" in cell.metadata.get("tags", [])]
    names = re.findall(r"^(\w+): \w+ =", parameters, re.M)
    place = names.index("steps")
    assert names[place : place + 3] == ["steps", "lr", "ramp"]
    code = "".join(cell.source for cell in cells if cell.cell_type == "code" and cell.source != parameters)
    reach_training = ".stated(lr, ramp)" in code or ("float(lr) or " in code and "int(ramp) or " in code)
    assert reach_training, "they reach what is trained"
    if "switches" in names and name != "multistage":
        assert re.search(r"^switches: .*by method, codebook, model or train", parameters, re.M)


def test_a_study_says_which_pretrained_agents_a_method_replaces():
    "Iterated learning from a CLIP begins its first generation with a language agent that knows nothing."
    tail = "replaced by random weights"
    lines = study(CLIP, ["clip", "il_clip", "il_negclip", "fresh_language"]).describe_start()
    assert [line for line in lines if tail in line] == [
        f"il_clip, il_negclip: the pretrained language agent is {tail} at the first generation",
        f"fresh_language: the pretrained language agent is {tail} at the start",
    ]
    both = study(CLIP, ["il_clip"], switches={"il_clip": {"target": "alternate", "generations": 2}}).describe_start()
    assert f"il_clip: the pretrained language and vision agents are {tail} at their first generations" in both
    frozen = CLIP | {"text": {"tower": CLIP["text"], "frozen": True}}
    for towers in ({}, frozen, {"vision": CLIP["vision"]}):
        assert not [line for line in study(towers, ["il_clip"]).describe_start() if tail in line]


def test_a_study_says_at_which_temperature_a_clip_of_transformers_starts(tmp_path):
    (tmp_path / "config.json").write_text('{"model_type": "clip"}')
    name = f"hf:{tmp_path}"
    told = "clip: the temperature starts as of a new model, since "
    both = study({"vision": name, "text": name}).describe_start()
    assert f"{told}new heads stand over the towers of a pretrained CLIP" in both
    assert f"{told}the text tower alone comes from a pretrained CLIP" in study({"text": name}).describe_start()

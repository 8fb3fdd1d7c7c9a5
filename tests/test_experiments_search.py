"""The search experiment on photos with captions: what they hold, which queries they give, and a whole run."""

import json
from types import SimpleNamespace

import pytest
from notebook_cells import run_cells
from PIL import Image

THINGS = ("dog", "horse", "car", "chair")


def write_photos(folder, names=THINGS):
    """48 photos with two captions each: two of four things, and one that a single caption names."""
    (folder / "images").mkdir(parents=True)
    lines = ["image,caption"]
    for n in range(48):
        first = names[n % 4]
        second = names[(n + 1 + n // 4 % 3) % 4]
        Image.new("RGB", (24, 24), (5 * n, 40 * (n % 4), 90)).save(folder / "images" / f"{n}.png")
        lines += [f"{n}.png,Two {first}s beside a {second}.", f'{n}.png,"A {second}, a {first} and a boat"']
    (folder / "captions.csv").write_text("\n".join(lines))
    return {"name": "folder", "args": {"folder": str(folder), "images": "images"}}


@pytest.fixture
def asked(tmp_path, smoke):
    "What all these runs have in common: photos, and a model that the smoke run trained."
    run = next((smoke("experiments/search").folder / "runs").glob("clip-s*"))
    given = {
        "pairs": json.dumps(write_photos(tmp_path / "photos")),
        "methods": [],
        "models": json.dumps({"clip": str(run)}),
    }
    return given | {"out_dir": str(tmp_path / "out"), "device": "cpu", "world": "captions"}


def test_a_photo_holds_what_several_captions_name_in_the_singular_or_plural(asked, monkeypatch):
    monkeypatch.delenv("COMPLEARN_REAL_DATA", raising=False)
    names = run_cells("search", "def kind_of", **asked)
    assert len(names["gallery"]) == 36 and len(names["fresh"]) == 12
    held = names["things_of"]
    assert all(len(things) == 2 and things < {*THINGS} for things in held.values())
    assert {pair.image_id for pair in names["gallery"]}.isdisjoint(pair.image_id for pair in names["fresh"])


def test_kinds_of_targets_share_things_with_the_picture_the_text_or_both(asked, monkeypatch):
    monkeypatch.delenv("COMPLEARN_REAL_DATA", raising=False)
    names = run_cells("search", "def ask", **asked)
    assert list(names["lines"][0]) == ["picture", "text", "like the picture", "like both", "like the text"]
    assert [line["text"] for line in names["lines"]] == [one["text"] for one in names["drawn"]]
    held = [names["things_of"][pair.image_id] for pair in names["gallery"]]
    assert len(names["drawn"]) == 16
    for one in names["drawn"]:
        seen = set(one["picture"].split(" and "))
        other = one["text"].split()[-1]
        assert other not in seen and all(len(items) >= 2 for items in one["kinds"].values())
        for item, things in enumerate(held):
            wanted = ("mixed" if things & seen else "text") if other in things else "image" if things == seen else None
            assert [kind for kind, items in one["kinds"].items() if item in items] == ([wanted] if wanted else [])


def test_a_trained_model_is_asked_on_photos_with_captions(asked, experiment, tmp_path):
    run = experiment(
        "experiments/search",
        tmp_path / "out",
        **{name: asked[name] for name in ("world", "pairs", "methods", "models")},
    )
    assert run.good
    results = json.loads((run.folder / "results.json").read_text())
    assert results.setting["world"] == "captions" and results.setting["models"]["clip"]
    gains = [row for row in results.rows if row["metric"] == "gain_top"]
    assert [row["data"] for row in gains] == ["captions"] and gains[0]["n"] > 1


def test_stripes_are_asked_beside_dots(asked, experiment, tmp_path):
    photos = write_photos(tmp_path / "zoo", ("zebra", "horse", "car", "chair"))
    run = experiment(
        "experiments/search", tmp_path / "out", **asked | {"world": "stripes", "pairs": json.dumps(photos)}
    )
    assert run.good
    results = json.loads((run.folder / "results.json").read_text())
    asked_about = {line["picture"].split()[0] for line in results.setting["drawn"]}
    ahead = [row for row in results.rows if row["split"] == "mixed at 0.5" and row["metric"] == "ahead"]
    assert asked_about == {"stripes", "dots"}
    assert [(row["data"], row["n"]) for row in ahead] == [("stripes", 12), ("dots", 12)]
    assert [row["data"] for row in results.rows if row["method"] == "chance"] == ["stripes"] * 2


def test_pictures_are_as_large_as_the_given_models_see_them(asked, monkeypatch):
    scorer = SimpleNamespace(collate=SimpleNamespace(transform=SimpleNamespace(size=96)))
    monkeypatch.setattr("complearn.training.runs.snapshots.Snapshot.scorer", lambda self, device: scorer)
    assert run_cells("search", "def captioned_photos", **asked)["scale"].size == 96
    assert run_cells("search", "def captioned_photos", **asked | {"size": 48})["scale"].size == 48


def test_a_given_model_that_cannot_search_is_refused_before_anything_is_trained(asked, monkeypatch):
    monkeypatch.setattr("complearn.models.registry.search_fault", lambda config: "has no search heads")
    with pytest.raises(ValueError, match="models: clip: clip-s0 has no search heads"):
        run_cells("search", "def captioned_photos", **asked)


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"methods": ["clip"]}, "asks trained models: give -p methods '\\[\\]' and models, such as"),
        ({"models": "{}"}, "asks trained models: give -p methods '\\[\\]' and models, such as"),
        ({"models": "results/run"}, "models names each model and its run folder"),
        ({"world": "stripes"}, "needs two photos of zebras and two of horses; found 0 and"),
    ],
)
def test_what_photos_cannot_answer_is_told_before_anything_is_asked(asked, changed, told):
    with pytest.raises(ValueError, match=told):
        run_cells("search", "def ask", **asked | changed)


def test_stripes_are_bands_of_a_width_and_dots_cover_about_half(asked):
    names = run_cells("search", "def kind_of", **asked)
    upright, dots = (names["pattern"](kind, 0, 16).convert("L") for kind in ("stripes", "dots"))
    assert upright.getpixel((3, 9)) == upright.getpixel((3, 200)) == 0 and upright.getpixel((19, 9)) == 255
    assert 0.4 < sum(value == 0 for value in dots.tobytes()) / 256**2 < 0.6

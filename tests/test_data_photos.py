"""Cut-outs in scenes: reading and fetching them, what their captions say, and that pictures, captions and negatives
agree."""

import io
import multiprocessing
import os
import pickle
import shutil
import signal
import subprocess
import sys
import tarfile
from collections import Counter
from dataclasses import replace
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
import training_runs
from PIL import Image, ImageDraw

from complearn.data.images import BrokenImage, load_images
from complearn.data.readers.registry import read
from complearn.data.reports import BadData
from complearn.data.sprites import cutouts
from complearn.data.sprites.composites import BACKDROPS, Collage, boxes
from complearn.data.sprites.cutouts import Album, _drawn_label, open_cutout, read_cutouts
from complearn.data.sprites.galleries import COATS, TRANSITIONS, _inner_square, _places_of, read_gallery
from complearn.data.sprites.skins import ranked_nouns, skin_fingerprint
from complearn.data.sprites.stamps import (
    DRAWINGS,
    INSTALLED,
    PHOTOGRAPHS,
    Label,
    _download_deb,
    _unpack_deb,
    fetch_stamps,
    is_photograph,
    list_stamps,
    main,
    read_label,
    read_stamps,
    stamps_folder,
)
from complearn.data.worlds.rendering import Scene
from complearn.data.worlds.world import world_from
from complearn.language.edits.scenes import SCENE_OPERATORS
from complearn.language.lexicon.wordnet import WordNet
from complearn.language.scenes.geometry import layout_problems, relation_truth
from complearn.language.scenes.grammar import say
from complearn.language.scenes.graphs import Item, SceneGraph
from complearn.language.scenes.nouns import Form, Noun, article, may_name, plural
from complearn.language.scenes.pictured import has_picture
from complearn.language.scenes.propositions import Absent, Exists, Phrase, Relates, Statement, truth
from complearn.language.scenes.sampling import _are_exclusive

INKS = {"red": (220, 30, 30), "green": (30, 160, 40), "yellow": (240, 220, 30), "zebra": (60, 60, 60),
    "horse": (140, 90, 40),
        "rose": (230, 60, 120), "flower": (200, 120, 240), "fire truck": (190, 20, 60),
        "mouse": (120, 110, 130)}  # fmt: skip
STAMPS = [  # file, caption, ink, width, height
    ("food/apple_green", "A green apple.", "green", 60, 60), ("food/apple_red", "A red apple.", "red", 60, 64),
    ("food/apple_fuji", "A “Fuji” apple.", "yellow", 60, 60), ("food/pepper_green", "A green pepper.", "green", 50, 70),
    ("food/pepper_red", "A red pepper.", "red", 50, 70), ("animals/zebra", "A zebra.", "zebra", 100, 70),
    ("animals/horse", "A horse.", "horse", 100, 75), ("animals/horse-2", "A horse.", "horse", 90, 75),
    ("plants/rose", "A rose.", "rose", 64, 64), ("plants/flower", "A flower.", "flower", 64, 64),
    ("vehicles/firetruck", "A fire truck.", "fire truck", 120, 60), ("animals/mouse", "A mouse.", "mouse", 80, 40),
    ("food/broccoli", "Eat your broccoli!", "green", 60, 60), ("animals/cartoon/cat", "A cat.", "yellow", 60, 60),
    ("symbols/letter", "A letter.", "red", 60, 60),
]  # fmt: skip
# which coordinate grows, and to which side
ALONG = {"left of": (0, 1), "right of": (0, -1), "above": (1, 1), "below": (1, -1)}


def write_stamp(folder, name, caption, ink=(200, 40, 40), width=60, height=60):
    (folder / name).parent.mkdir(parents=True, exist_ok=True)
    picture = Image.new("RGBA", (width + 6, height + 6))  # an empty border, to be cut off
    ImageDraw.Draw(picture).ellipse((3, 3, width + 2, height + 2), (*ink, 255))
    picture.save(folder / f"{name}.png")
    if caption is not None:
        (folder / f"{name}.txt").write_text(f"{caption}\nde.utf8=...\n", encoding="utf-8")


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    folder = tmp_path_factory.mktemp("stamps")
    for name, caption, ink, width, height in STAMPS:
        write_stamp(folder, name, caption, INKS[ink], width, height)
    return folder


def world(home, **changes):
    return world_from(
        {"preset": "photos", "folder": str(home), "shapes": "all", "n_train": 200, "n_test": 40, "disjoint": False}
        | changes
    )


# --- captions
# ----------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("caption, label", [
    ("A zebra.", Label("zebra")), ("A green apple.", Label("apple", "green")), ("An electric "
                                                                                "kettle.", Label("electric kettle")),
    ("A “Granny Smith” apple.", Label("apple")), ("A very small pumpkin.", Label("pumpkin")), ("A sliced "
                                                                                               "lime.",
                                                                                               Label("lime", None,
     ("sliced",))),
    ("A peacock (a male peafowl).", Label("peacock")), ("A dumper. It carries its load in the front.", Label("dumper")),
    ("A male black rhino.", Label("rhinoceros", None, ("male",))), ("A red kangaroo.", Label("kangaroo")),
    ("An orange.", Label("orange")),
    ("A Red Gazania.", Label("gazania", "red")), ("A chile pepper.", Label("chili pepper")),
    *[(text, None) for text in ("Eat your broccoli!", "A pair of cherries.", "Two flowers.", "", "   ", "“No U-Turn”.",
        "A blue and yellow flag.",
                                "The Sun.", "Boom!!!", "A 35mm camera.", "A green.", "斑马", "A big eared rabbit.")],
])  # fmt: skip
def test_the_noun_of_a_caption(caption, label):
    assert read_label(caption) == label


@pytest.mark.parametrize("file, name, noun", [
    ("1f993.webp", "zebra face", "zebra"), ("1f34f.webp", "green apple", "apple"), ("1f347.webp", "grapes", None),
    ("1f600.webp",
     "grinning face", None),
    ("1f68c.webp", "bus", "bus"), ("1f47b.webp", "ghost", None), ("notes.webp", "zebra", None),
    ("1f355.webp", "slice of pizza", None),
])  # fmt: skip
def test_the_noun_of_a_drawn_object(file, name, noun):
    told = _drawn_label(file, name)
    assert (told and told[0].noun) == noun


def test_which_nouns_exclude_each_other():
    for said, shown in (("flower", "rose"), ("bear", "teddy bear"), ("truck", "fire truck"), ("chicken", "hen"),
        ("apple", "apple core"),
                        ("bird", "guinea fowl"), ("gravestone", "headstone"), ("beetle", "vw beetle"),
                        ("aerial tramway", "mountain cableway"), ("fallen leaf", "maple leaf"),
                        ("sandwich", "hamburger"),
                        ("herb", "four leaf clover"), ("herb", "seedling"), ("bento box", "takeout box"),
                        ("dolphin", "orca"),
                        ("adjustable wrench", "plumber wrench"), ("wheelie bin", "home compost "
                                                                                 "bin"), ("squirrel", "marmot"),
                        ("tennis ball", "soccer ball"), ("cement truck", "cement mixer"), ("plant", "rose"),
                        ("animal", "rooster"),
                        ("recreational vehicle", "automobile"), ("tepee", "tent"), ("fort", "fortress"),
                        ("sign", "railroad crossing")):  # fmt: skip
        assert may_name(said, shown) is None and may_name(shown, said) is None, (said, shown)
    for said, shown in (
        ("horse", "zebra"),
        ("lion", "tiger"),
        ("basketball", "football"),
        ("rose", "iris"),
        ("apple", "pear"),
        ("cat", "dog"),
    ):
        assert may_name(said, shown) is False and may_name(shown, said) is False, (said, shown)
    assert may_name("zebra", "zebra") is True


def test_nouns_are_words_and_survive_a_process():
    apple = Noun.of("apple", [Form("a", "red")], "food")
    again = pickle.loads(pickle.dumps(apple))
    assert apple == "apple" == again
    assert again.forms == apple.forms
    assert again.category == "food"
    assert repr(apple) == "'apple'"
    assert [plural(n) for n in ("mouse", "fire truck", "sheep", "fox", "butterfly", "woman")] == [
        "mice",
        "fire trucks",
        "sheep",
        "foxes",
        "butterflies",
        "women",
    ]
    assert [article(w) for w in ("otter", "unicorn", "hour", "zebra")] == ["an", "a", "an", "a"]


# --- truth ------------------------------------------------------------------------------------------------------------


def test_what_is_not_stated_is_unknown():
    apple = Noun.of("apple", [Form("g", "green"), Form("f")])
    rose = Noun.of("rose", [Form("r")])
    zebra = Noun.of("zebra", [Form("z")])
    flower = Noun.of("flower", [Form("w")])
    horse = Noun.of("horse", [Form("h")])
    graph = SceneGraph(
        (Item(apple, None, "large", None, 0.25, 0.5, 0.2, "f"), Item(rose, None, "small", None, 0.75, 0.5, 0.1, "r"))
    )

    def is_true(*clauses):
        return truth(Statement(clauses), graph)

    assert (
        is_true(Exists(Phrase(apple))) is True
        and is_true(Exists(Phrase(apple, "green"))) is None
        and is_true(Exists(Phrase(horse))) is False
    )
    assert is_true(Absent(Phrase(apple, "green"))) is None and is_true(Absent(Phrase(zebra, "green"))) is True
    assert is_true(Exists(Phrase(flower))) is None and is_true(Exists(Phrase(flower, size="large"))) is False
    assert (
        is_true(Relates(Phrase(apple), "left of", Phrase(rose))) is True
        and is_true(Relates(Phrase(rose), "left of", Phrase(apple))) is False
    )
    assert (
        is_true(Relates(Phrase(apple), "left of", Phrase(flower))) is None
        and is_true(Relates(Phrase(flower), "left of", Phrase(apple))) is False
    )
    counts = [is_true(Exists(Phrase(apple, "green", count=n))) for n in (1, 2)]
    assert counts == [None, False] and is_true(Exists(Phrase(apple, count=1))) is True
    assert relation_truth(graph, "touching", 0, 1) is False and relation_truth(graph, "same colour as", 0, 1) is None
    assert relation_truth(graph, "inside", 1, 0) is False and not layout_problems(graph)
    close = SceneGraph((graph.items[0], replace(graph.items[1], x=0.5)))
    assert relation_truth(close, "touching", 0, 1) is None and len(layout_problems(close)) == 1
    assert not _are_exclusive(Phrase(rose), Phrase(flower)) and _are_exclusive(Phrase(rose), Phrase(zebra))
    assert not has_picture(Phrase(zebra, "red"))
    with pytest.raises(ValueError, match="shape among"):
        Phrase("zebra")  # a plain word is no noun with pictures


def test_captions_of_nouns():
    truck = Noun.of("fire truck", [Form("t")])
    mouse = Noun.of("mouse", [Form("m")])
    claim = Statement((Relates(Phrase(truck, size="large"), "left of", Phrase(mouse)),))
    caption = say(claim, style="plain")
    assert caption.text == "a large fire truck left of a mouse" and caption.tree.leaves() == caption.text.split()
    spans = {(span.atom.slot, span.atom.kind): caption.text.split()[span.start : span.stop] for span in caption.spans}
    assert spans["subject", "shape"] == ["fire", "truck"]
    assert say(Statement((Exists(Phrase(mouse, count=2)),)), style="plain").text == "two mice"


# --- scenes -----------------------------------------------------------------------------------------------------------


def seen(scene, size=128):
    """For each item of a rendered scene: middle of its visible pixels, longer side, mean colour; all in pixels of the
    picture."""
    picture = load_images([scene], size)[0].astype(float)
    labels = scene.item_map(size)
    found = []
    for number in range(1, len(scene.graph.items) + 1):
        rows, columns = np.nonzero(labels == number)
        side = max(np.ptp(rows), np.ptp(columns)) + 1
        found.append(
            (
                (columns.min() + columns.max() + 1) / 2,
                (rows.min() + rows.max() + 1) / 2,
                side,
                picture[labels == number].mean(0),
            )
        )
    return found


def plainly(world, graph):
    return replace(world.scene(graph, "x"), noise=0.0, jitter=0.0)


def test_pixels_are_where_the_graph_says(home):
    here = world(home)
    for k in range(25):
        scene = plainly(here, here.draw("train", k)[0])
        assert isinstance(scene, Collage) and not layout_problems(scene.graph)
        inks = {name: INKS[ink] for name, _, ink, *_ in STAMPS}
        for item, (x, y, side, colour), (left, top, right, bottom) in zip(
            scene.graph.items, seen(scene), boxes(scene, 128)
        ):
            assert abs(x - 128 * item.x) <= 1.5 and abs(y - 128 * item.y) <= 1.5 and abs(side - 256 * item.radius) <= 2
            assert np.abs(colour - inks[item.picture]).max() < 12, item
            assert max(right - left, bottom - top) - side <= 2
            assert left >= 0
            assert top >= 0
            assert right <= 128
            assert bottom <= 128


def judge(claim, graph, places):
    "Truth of a claim by the pixels' places and by names; knows nothing of the language room's own judgement."

    def fit(phrase):
        return [n for n,
            item in enumerate(graph.items) if str(item.shape) == str(phrase.shape) and phrase.size in (None, item.size)
                and (phrase.colour is None or f"_{phrase.colour}" in item.picture)]  # fmt: skip

    verdicts = []
    for clause in claim.clauses:
        if isinstance(clause, Relates):
            pairs = [(a, b) for a in fit(clause.subject) for b in fit(clause.object) if a != b]
            axis, side = ALONG[clause.relation]
            verdicts.append(any(side * (places[b][axis] - places[a][axis]) > 0.08 * 128 for a, b in pairs))
        else:
            n = len(fit(clause.phrase))
            verdicts.append(
                n == 0
                if isinstance(clause, Absent)
                else n > 0
                if clause.phrase.count is None
                else n == clause.phrase.count
            )
    return all(verdicts)


KINDS = ("attribute", "conjunction", "relation", "count", "negation", "long")


@pytest.mark.parametrize("split", ["random", "systematic"])
def test_every_negative_is_false_and_every_caption_true(home, split):
    here = world(home, split=split, kinds=KINDS, objects=(2, 3), wording="plain")
    asked = Counter()
    for operator in SCENE_OPERATORS:
        for one in here.edits(operator, 4, "seen").edits:
            asked[operator] += 1
            assert truth(one.caption, one.source_graph) is False and truth(one.source, one.graph) is False
            for claim, own, other in (
                (one.source, one.source_graph, one.graph),
                (one.caption, one.graph, one.source_graph),
            ):
                assert truth(claim, own) is True
                for graph, expected in ((own, True), (other, False)):
                    told = judge(claim, graph, seen(plainly(here, graph)))
                    assert told == expected, (operator, say(claim).text, graph)
    assert {"swap_att", "swap_obj", "replace_att", "replace_obj", "replace_rel", "add_obj", "negate"} <= {
        op for op, n in asked.items() if n
    }


def test_colours_are_said_only_where_a_caption_states_them(home):
    here = world(home, kinds=("conjunction",), mention=(0.0, 0.0, 1.0))
    said = Counter()
    for k in range(60):
        graph, claim = here.draw("train", k)
        for _, _, phrase in claim.phrases():
            said[str(phrase.shape), phrase.colour] += 1
    assert {colour for (noun, colour) in said if noun == "apple"} == {"green", "red", None}
    assert all(colour is None for noun, colour in said if noun in ("zebra", "horse", "rose", "fire truck"))
    swaps = here.edits("swap_att", 3).edits
    assert swaps and all({p.shape for _, _, p in one.caption.phrases()} == {"apple", "pepper"} for one in swaps)


def test_an_edit_keeps_the_pictures_of_what_it_does_not_touch(home):
    here = world(home)
    kept = 0
    for one in here.edits("swap_obj", 10).edits:
        old, new = ({str(item.shape): item.picture for item in graph.items} for graph in (one.source_graph, one.graph))
        kept += old == new
    assert kept >= 8


def test_a_rose_and_a_flower_are_never_in_one_world_by_chance(home):
    assert len({"rose", "flower"} & {*ranked_nouns("photos", str(home))}) == 1
    both = world(home, shapes=("rose", "flower", "zebra"))  # by name they may be
    claims = [both.draw("train", k) for k in range(40)]
    for _, claim in claims:
        phrases = [phrase for _, _, phrase in claim.phrases()]
        assert {phrase.shape for phrase in phrases} != {"rose", "flower"} or {phrase.size for phrase in phrases} == {
            "small",
            "large",
        }
    for one in both.edits("replace_obj", 10).edits:
        assert truth(one.caption, one.source_graph) is False


def test_the_same_scene_gives_the_same_pixels_in_any_batch(home):
    here = world(home, backdrop="clouds")
    scenes = [here.pair("train", k).image for k in range(6)] + [
        Scene(SceneGraph((Item("star", "red", "large", "plain", 0.5, 0.5, 0.2),)))
    ]
    together = load_images(scenes, 48)
    assert all((load_images([scene], 48)[0] == picture).all() for scene, picture in zip(scenes, together))
    assert (Collage.render_batch(scenes[:6], 48) == together[:6]).all()
    assert (Scene.render_batch(scenes[6:], 48) == together[6:]).all()
    assert (here.train[0].image == load_images(scenes[:1], 64)[0]).all()
    assert pickle.loads(pickle.dumps(here.pair("train", 2))).image == scenes[2]
    assert len(np.unique(together[:, 0, 0], axis=0)) > 3


@pytest.mark.parametrize("backdrop", BACKDROPS)
def test_backdrops_leave_things_as_they_are(home, backdrop):
    here = world(home, backdrop=backdrop, gradient=0.0)
    scene = plainly(here, here.draw("train", 1)[0])
    picture = load_images([scene], 96)[0]
    labels = scene.item_map(96)
    assert (backdrop == "plain") == (len(np.unique(picture[labels == 0][:400], axis=0)) < 3) or backdrop == "colours"
    assert np.ptp(picture[:4, :4].reshape(-1, 3).astype(int), axis=0).max() < 12


# --- worlds -----------------------------------------------------------------------------------------------------------


def test_splits_of_a_skin(home):
    here = world(home, split="systematic", sizes=("small", "large"))
    held = here.split.held_out
    assert {word for word, _ in held} <= {"small", "large", "left of", "right of", "above", "below"} and held
    small = {noun for word, noun in held if word in ("small", "large")}
    for k in range(30):
        graph, claim = here.draw("train", k)
        assert not here.split.is_novel(claim)
        assert not {(item.size, str(item.shape)) for item in graph.items if str(item.shape) in small} & held
    assert all(here.split.is_novel(here.draw("test", k)[1]) for k in range(8))
    disjoint = world(home, disjoint=True)
    train = {disjoint.draw("train", k)[1] for k in range(60)}
    assert not train & {disjoint.draw("test", k)[1] for k in range(30)}
    for part in ("test", "seen"):
        assert here.benchmark("sugarcrepe", 2, part) and here.benchmark("winoground", 1, part)
    assert {"a zebra", "an apple"} <= set(here.recognition(4).classes)


def test_held_pictures_are_seen_only_in_the_test(home):
    here = world(home, held_pictures=0.5)
    shown = {
        part: {item.picture for k in range(60) for item in here.draw(part, k)[0].items}
        for part in ("train", "seen", "test")
    }
    horses = {part: {name for name in names if "horse" in name} for part, names in shown.items()}
    assert len(horses["train"]) == 1 == len(horses["test"])
    assert horses["train"] == horses["seen"]
    assert horses["train"] != horses["test"]
    assert "animals/zebra" in shown["train"] & shown["test"]


def test_a_fingerprint_is_of_the_content_and_old_worlds_keep_theirs(home, tmp_path):
    moved = tmp_path / "elsewhere"
    shutil.copytree(home, moved)
    assert world(home).train.fingerprint() == world(moved).train.fingerprint()
    write_stamp(moved, "animals/zebra", "A zebra.", (0, 0, 255))
    assert skin_fingerprint("photos", str(moved)) != skin_fingerprint("photos", str(home))
    assert world_from("small").train.fingerprint() == "3e6b1536c5fa6ab5"


def test_presets_of_shapes_take_a_skin_and_errors_say_what_there_is(home):
    for preset in ("small", "middle", "rich"):
        here = world_from({"preset": preset, "skin": "photos", "folder": str(home), "n_train": 8})
        assert here.train[0].image.shape[-1] == 3
        assert {*here.config.relations} <= {"left of", "right of", "above", "below"}
    pairs = read("generated", part="test", preset="photos", folder=str(home), n_test=3, size=32, disjoint=False)
    assert len(pairs) == 3 and pairs[2].image.shape == (32, 32, 3) and pairs[2].graph.items[0].picture
    for wrong, said in (
        ({"shapes": ("zebr",)}, "zebra"),
        ({"shapes": 400}, "expected 1 to"),
        ({"skin": "cartoons"}, "photos, drawn"),
        ({"relations": ("inside",)}, "cannot decide inside"),
        ({"backdrop": "forest"}, "clouds"),
        ({"held_pictures": 1.5}, "share"),
    ):
        with pytest.raises(ValueError, match=said):
            world(home, **wrong)


# --- reading ----------------------------------------------------------------------------------------------------------


def test_photographs_are_told_from_drawings_by_place():
    assert all(
        map(
            is_photograph,
            ("animals/mammals/equines/zebra", "food/fruit/apple_red", "seasonal/halloween/grave-a", "town/uk_post_box"),
        )
    )
    assert not any(
        map(
            is_photograph,
            ("animals/birds/cartoon/tux", "town/flags/redflag", "seasonal/easter/chick", "clothes/t_sock"),
        )
    )


def test_reading_stamps(home, monkeypatch):
    pairs = read("photos", folder=str(home))
    names = [pair.id for pair in pairs]
    assert "symbols/letter" not in names and "animals/cartoon/cat" not in names and len(names) == 13
    assert len(read_stamps(home, drawings=True)) == 14
    by_name = {pair.id: pair for pair in pairs}
    assert by_name["food/apple_red"].labels == {
        "noun": "apple",
        "colour": "red",
        "category": "food",
        "photograph": True,
    }
    assert by_name["food/broccoli"].labels["noun"] is None
    told = read_cutouts("photos", home)
    assert (
        len(told.cutouts) == 12
        and told.left_out == {"drawings": 1, "whose caption is no simple noun phrase": 1}
        and "12 cut-outs" in str(told)
    )
    monkeypatch.setenv("COMPLEARN_PHOTOS", str(home))
    assert stamps_folder() == home and stamps_folder(home) == home


@pytest.fixture
def few(tmp_path):
    for k in range(3):
        write_stamp(tmp_path, f"animals/zebra{k}", "A zebra.")
    return tmp_path


@pytest.mark.parametrize("fault, said", [
    ("missing caption", "no such file beside"), ("empty caption", "caption of image 'animals/bad.png' is "
                                                                  "empty"), ("latin", "not UTF-8"),
    ("broken", "unreadable"), ("cut", "unreadable"), ("empty file", "unreadable"),
])  # fmt: skip
def test_bad_stamps_are_named_and_counted(few, fault, said):
    write_stamp(
        few, "animals/bad", None if fault == "missing caption" else "" if fault == "empty caption" else "A cow."
    )
    if fault == "latin":
        (few / "animals/bad.txt").write_bytes(b"A fa\xe7ade.\n")
    if fault in ("broken", "cut", "empty file"):
        content = (few / "animals/bad.png").read_bytes()
        (few / "animals/bad.png").write_bytes({"broken": b"no picture", "cut": content[:60], "empty file": b""}[fault])
    with pytest.raises(BadData, match=said):
        read_stamps(few)
    with pytest.warns(UserWarning, match="1 "):
        assert len(read_stamps(few, max_bad=0.5)) == 3
    assert "animals/bad" not in [one.name for one in read_cutouts("photos", few).cutouts]


def test_pictures_of_every_mode_and_size(tmp_path):
    disc = Image.new("L", (50, 40))
    ImageDraw.Draw(disc).ellipse((4, 4, 45, 35), 255)
    colour = Image.merge("RGBA", (disc.point(lambda v: 200), disc.point(lambda v: 30), disc.point(lambda v: 30), disc))
    palette = colour.convert("RGB").quantize(4)
    palette.info["transparency"] = palette.getpixel((0, 0))
    kinds = {"rgba": colour, "grey": Image.merge("LA", (disc.point(lambda v: 90), disc)),
        "one": Image.new("RGBA", (1, 1), (255, 0, 0,
        255)),
             "nothing": Image.new("RGBA", (50, 50)), "opaque": Image.new("RGB", (50, 40), (9, 9, 9)),
             "faint": Image.new("RGBA", (50,
              50), (9, 9, 9, 12)),
             "line": Image.new("RGBA", (300, 3), (9, 9, 9, 255)), "deep": Image.fromarray(np.full((40, 50), 40_000,
                     np.uint16)),
             "black": Image.new("1", (50, 40), 1), "huge": Image.new("RGBA", (2000, 1500),
                 (9, 99, 9, 255))}  # fmt: skip
    (tmp_path / "animals").mkdir()
    for name, picture in kinds.items():
        picture.save(tmp_path / "animals" / f"{name}.png")
        (tmp_path / "animals" / f"{name}.txt").write_text("A cow.")
    found = read_cutouts("photos", tmp_path)
    assert {one.name.split("/")[1] for one in found.cutouts} == {"rgba", "grey", "opaque", "deep", "black", "huge"}
    assert found.left_out["broken"] == 2
    assert found.left_out["too small"] == 1
    assert found.left_out["too thin or faint"] == 1
    assert open_cutout(tmp_path / "animals/rgba.png").size == (42, 32)
    assert max(open_cutout(tmp_path / "animals/huge.png").size) == 320
    pages = Album(tmp_path, ".png")
    for name in ("rgba", "grey", "opaque"):
        layer = pages.scaled(f"animals/{name}", 21)
        assert layer.shape[1] == 21 and layer.dtype == np.uint8 and (layer[:, :, :3] <= layer[:, :, 3:]).all()
    with pytest.raises(BrokenImage, match="nothing to see"):
        open_cutout(tmp_path / "animals/nothing.png")


def test_a_cut_out_that_was_replaced_in_its_size_and_time_is_scaled_anew(tmp_path):
    pages = Album(tmp_path, ".bmp")
    seen = []
    for grey in (10, 200):
        Image.new("RGB", (40, 30), (grey,) * 3).save(tmp_path / "a.bmp")
        os.utime(tmp_path / "a.bmp", (0, 0))
        seen.append(pages.scaled("a", 20)[..., 0].max())
    assert seen == [10, 200] and pages.scaled("a", 20) is pages.scaled("a", 20)


def test_scaling_never_draws_the_invisible_in(tmp_path):
    pixels = np.zeros((64, 64, 4), np.uint8)
    pixels[..., 1] = 255  # invisible pixels are bright green
    pixels[8:56, 8:56] = (200, 0, 0, 255)
    Image.fromarray(pixels).save(tmp_path / "square.png")
    canvas = np.zeros((3, 40, 40), np.float32)
    Album(tmp_path, ".png").paste(canvas, "square", 0.5, 0.5, 0.3)
    assert canvas[1].max() == 0 and canvas[0].max() == 200 and abs(canvas[0].sum() / 200 - 24**2) < 30


def test_objects_of_the_two_parts_share_no_picture(home):
    """One cut-out on plain ground has few places in a small picture: the test's are drawn until training has none of
    them."""
    asked = {
        "n_train": 120,
        "n_test": 40,
        "world": {"preset": "small", "skin": "photos", "folder": str(home), "shapes": 2, "size": 16},
    }
    asked["world"] |= {"gradient": 0.0, "noise": 0.0, "jitter": 0.0}
    train, test, again = (read("objects", part=part, **asked) for part in ("train", "test", "test"))
    known = {pair.image.tobytes() for pair in train}
    items = world_from(asked["world"]).recognition(160).items
    first = load_images([scene for scene, _ in items[120:]], 16)
    changed = [k for k, picture in enumerate(first) if not np.array_equal(picture, test[k].image)]
    assert changed == [k for k, picture in enumerate(first) if picture.tobytes() in known] != []
    assert not any(pair.image.tobytes() in known for pair in test)
    assert [pair.labels for pair in test] == [train[k % 2].labels for k in range(40)]
    assert all(np.array_equal(one.image, other.image) for one, other in zip(test, again))
    with pytest.raises(BadData, match=r"fewer training images \(n_train\)"):
        read(
            "objects", **asked | {"part": "test", "n_train": 1500, "n_test": 20, "world": asked["world"] | {"size": 8}}
        )


def test_a_noun_that_is_not_there_names_its_neighbours(home):
    for noun, hint in (("zebar", "spelt most like it: zebra"), ("unicorn", "the first by the alphabet: apple")):
        with pytest.raises(ValueError, match=f"no cut-out of '{noun}' among .*; {hint}"):
            world(home, shapes=[noun])


def test_a_source_without_pictures_is_named_and_not_the_scratch_folder(tmp_path, capsys):
    (tmp_path / "mine").mkdir()
    assert main([str(tmp_path / "mine"), "--to", str(tmp_path / "to")]) == 1
    assert f"error: {tmp_path / 'mine'}: no PNG in it" in capsys.readouterr().err and not (tmp_path / "to").exists()


def test_wrong_folders_say_what_to_do(tmp_path, monkeypatch):
    monkeypatch.delenv("COMPLEARN_PHOTOS", raising=False)
    monkeypatch.setenv("COMPLEARN_CACHE", str(tmp_path / "cache"))
    if not (Path("/") / INSTALLED).is_dir():
        with pytest.raises(BadData, match="python -m complearn.data.sprites.stamps"):
            read_stamps()
    for call in (
        lambda: read_stamps(tmp_path),
        lambda: read_stamps(tmp_path / "nowhere"),
        lambda: world_from({"preset": "photos", "folder": tmp_path}),
    ):
        with pytest.raises(BadData, match="python -m complearn.data.sprites.stamps"):
            call()
    with pytest.raises(BadData, match=r"names.tsv"):
        world_from({"preset": "drawn", "folder": str(tmp_path)})
    (tmp_path / "names.tsv").write_text("picture\tword\n1f34f.webp\tgreen apple\n")
    with pytest.raises(BadData, match="line 2: expected the columns file and name"):
        read_cutouts("drawn", tmp_path)


def test_a_world_of_drawn_objects(tmp_path):
    rows = [
        ("1f34f", "green apple"),
        ("1f34e", "red apple"),
        ("1f993", "zebra face"),
        ("1f434", "horse face"),
        ("1f600", "grinning face"),
    ]
    for code, _ in rows:
        picture = Image.new("RGBA", (60, 60))
        ImageDraw.Draw(picture).rectangle((5, 5, 54, 54), (30, 160, 40, 255))
        picture.save(tmp_path / f"{code}.webp", lossless=True)
    (tmp_path / "names.tsv").write_text("file\tname\n" + "".join(f"{code}.webp\t{name}\n" for code, name in rows))
    here = world_from({"preset": "drawn", "folder": str(tmp_path), "shapes": "all", "n_train": 8, "disjoint": False})
    assert {*here.config.words("shapes")} == {"apple", "zebra", "horse"}
    assert {*here.config.words("colours")} == {"red", "green"}
    assert here.train[0].image.shape == (64, 64, 3) and here.train[0].image.std() > 5


def test_drawn_objects_of_several_endings_lie_anywhere_below_the_folder(tmp_path):
    for file in ("1f34f.webp", "more/1f34e.png", "1f993.png", "1f434.webp"):
        (tmp_path / "names.tsv").parent.mkdir(exist_ok=True)
        (tmp_path / file).parent.mkdir(exist_ok=True)
        Image.new("RGBA", (60, 60), (30, 160, 40, 255)).save(tmp_path / file, lossless=True)
    rows = [
        "1f34f.webp\tgreen apple",
        "more/1f34e.png\tred apple",
        "1f993.png\tzebra face",
        "1f434.webp\thorse face",
        "1f993.png\tzebra",
    ]
    (tmp_path / "names.tsv").write_text("\n".join(["file\tname", *rows]))
    found = read_cutouts("drawn", tmp_path)
    assert {one.name for one in found.cutouts} == {row.split("\t")[0] for row in rows}
    assert found.left_out["named twice"] == 1
    here = world_from({"preset": "drawn", "folder": str(tmp_path), "shapes": "all", "n_train": 8, "disjoint": False})
    assert all(here.train[k].image.std() > 5 for k in range(8))
    assert len(read_gallery(str(tmp_path), skin="drawn", size=48)) >= 4


@pytest.mark.parametrize("file", ["../1f993.png", "/etc/1f993.png", "a/../../1f993.png", "out/1f993.png"])
def test_a_name_that_leads_out_of_the_folder_is_refused(tmp_path, file):
    home = tmp_path / "home"
    home.mkdir()
    (home / "out").symlink_to(tmp_path)
    (home / "names.tsv").write_text(f"file\tname\n1f34f.webp\tgreen apple\n{file}\tzebra face\n")
    with pytest.raises(BadData, match=r"names.tsv line 3: .*1f993.png' leads out of"):
        read_cutouts("drawn", home)


# --- fetching ---------------------------------------------------------------------------------------------------------


def write_deb(path, files, mode="xz", link=None):
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode=f"w:{mode}" if mode else "w") as archive:
        for name, content in files.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))
        if link:
            entry = tarfile.TarInfo(link[0])
            entry.type = tarfile.SYMTYPE
            entry.linkname = link[1]
            archive.addfile(entry)
    members = {"debian-binary": b"2.0\n", "control.tar.xz": b"odd", f"data.tar.{mode}".rstrip("."): packed.getvalue()}
    with path.open("wb") as file:
        file.write(b"!<arch>\n")
        for name, content in members.items():
            file.write(
                f"{name:<16}{'0':<12}{'0':<6}{'0':<6}{'100644':<8}{len(content):<10}`\n".encode()
                + content
                + b"\n" * (len(content) % 2)
            )
    return path


@pytest.fixture
def files(home):
    names = [f"{name}{ending}" for name, *_ in STAMPS for ending in (".png", ".txt")]
    return {f"./{INSTALLED}/{name}": (home / name).read_bytes() for name in names} | {
        f"./{INSTALLED}/animals/zebra.ogg": b"neigh", "./usr/share/doc/readme.txt": b"no stamp",
            f"./{INSTALLED}/copyright": b"GPL-2"}  # fmt: skip


@pytest.mark.parametrize("mode", ["xz", "gz", "bz2"])
def test_fetching_from_a_package(tmp_path, files, mode, capsys):
    deb = write_deb(tmp_path / "stamps.deb", files, mode, link=(f"./{INSTALLED}/animals/link.png", "/etc/passwd"))
    assert main([str(deb), "--to", str(tmp_path / "out")]) == 0
    assert "14 pictures, 13 of them photographs" in capsys.readouterr().out
    there = {path.relative_to(tmp_path / "out").as_posix() for path in (tmp_path / "out").rglob("*") if path.is_file()}
    assert "animals/zebra.png" in there and "copyright" in there and "SOURCE.txt" in there
    assert not any(name.endswith(".ogg") or name.startswith("symbols") or "link" in name for name in there)
    assert main([str(tmp_path / "out"), "--to", str(tmp_path / "again")]) == 0
    assert len(list_stamps(tmp_path / "again")) == 14
    assert main([str(deb), "--to", str(tmp_path / "out")]) == 0  # what it wrote itself may be replaced


def test_an_installed_folder_is_copied_to_the_cache_and_found(tmp_path, files, monkeypatch):
    monkeypatch.setenv("COMPLEARN_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("COMPLEARN_PHOTOS", raising=False)
    _unpack_deb(write_deb(tmp_path / "stamps.deb", files), tmp_path / "root" / INSTALLED, INSTALLED)
    to = fetch_stamps(tmp_path / "root")
    assert to == tmp_path / "cache" / "photos" / "stamps" and len(list_stamps(to)) == 14
    if not (Path("/") / INSTALLED).is_dir():
        assert stamps_folder() == to


@pytest.mark.parametrize(
    "name", ["../../evil.png", f"./{INSTALLED}/../../../../evil.png", "/etc/evil.png", f"{INSTALLED}/a/../../evil.png"]
)
def test_a_path_that_leaves_the_folder_is_refused(tmp_path, files, name, capsys):
    deb = write_deb(tmp_path / "bad.deb", {**files, name: b"x"})
    assert main([str(deb), "--to", str(tmp_path / "in" / "out")]) == 1
    assert "refused" in capsys.readouterr().err and not (tmp_path / "in" / "out").exists()
    assert not list(tmp_path.rglob("evil*")) and not list((tmp_path / "in").iterdir())


def test_broken_packages_are_named_and_leave_what_was_there(tmp_path, files, capsys):
    good = write_deb(tmp_path / "good.deb", files)
    assert main([str(good), "--to", str(tmp_path / "out")]) == 0
    content = good.read_bytes()
    start = content.index(b"data.tar.xz") + 60
    broken = {"cut off": content[:-200],
        "does not begin": b"PK\x03\x04" + content,
        "cannot be read": content[:start] + b"\0" * 40 + content[start + 40 :],
              "no data.tar": content[: start - 60],
              "broken member": content[:20] + b"x" * 80 + content[100:]}  # fmt: skip
    for fault, damaged in broken.items():
        (tmp_path / "bad.deb").write_bytes(damaged)
        assert main([str(tmp_path / "bad.deb"), "--to", str(tmp_path / "out")]) == 1, fault
        message = capsys.readouterr().err
        assert "bad.deb cannot be read as a Debian package (dpkg-deb: " in message, (fault, message)
        assert len(list_stamps(tmp_path / "out")) == 14
    for source, said in (
        (tmp_path / "none.deb", "does not exist"),
        (write_deb(tmp_path / "other.deb", {"./x.txt": b"x"}), "no PNG in it"),
    ):
        assert main([str(source), "--to", str(tmp_path / "out2")]) == 1
        assert said in capsys.readouterr().err and not (tmp_path / "out2").exists()
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("do not lose")
    assert main([str(good), "--to", str(tmp_path / "mine")]) == 1 and (tmp_path / "mine" / "thesis.txt").exists()


def test_a_kill_at_any_time_leaves_the_folder_of_before_or_the_new_one(tmp_path, files):
    """There is no moment at which it is gone, and the next command clears what the killed one left."""
    good = write_deb(tmp_path / "good.deb", files)
    out = tmp_path / "there" / "stamps"
    assert main([str(good), "--to", str(out)]) == 0
    for number in (1, 30, 60, 90, 120, 150):
        child = multiprocessing.get_context("fork").Process(target=fetch_and_die, args=(good, out, number))
        child.start()
        child.join(60)
        assert child.exitcode in (0, -signal.SIGKILL)
        assert len(list_stamps(out)) == 14, number
    assert child.exitcode == 0, "the last is beyond the end"
    assert [path.name for path in out.parent.iterdir()] == ["stamps"]


def fetch_and_die(deb, out, number):
    operations = []

    def strike(event, arguments):
        if event in training_runs.FILE_EVENTS and arguments and str(arguments[0]).startswith(str(out.parent)):
            operations.append(event)
            if len(operations) == number:
                os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(strike)
    fetch_stamps(deb, out)
    os._exit(0)


def test_only_a_folder_that_was_written_here_is_replaced(tmp_path, files, capsys):
    good = write_deb(tmp_path / "good.deb", files)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "SOURCE.txt").write_text("where my thesis comes from")
    assert main([str(good), "--to", str(tmp_path / "mine")]) == 1
    assert "not written by this command" in capsys.readouterr().err
    assert [path.name for path in (tmp_path / "mine").iterdir()] == ["SOURCE.txt"]
    (tmp_path / "empty").mkdir()
    assert main([str(good), "--to", str(tmp_path / "empty")]) == 0 == main([str(good), "--to", str(tmp_path / "empty")])
    assert {path.name for path in tmp_path.iterdir()} == {"good.deb", "mine", "empty"}


@pytest.mark.parametrize("mode", ["xz", "gz", "bz2", pytest.param("zst", marks=pytest.mark.zstd)])
def test_a_package_that_unpacks_to_too_much_is_refused(tmp_path, files, mode):
    bomb = {**files, "./usr/share/zeros": bytes(8 << 20)}
    deb = write_zst(tmp_path, bomb) if mode == "zst" else write_deb(tmp_path / "bomb.deb", bomb, mode)
    assert deb.stat().st_size < 1 << 18
    with pytest.raises(BadData, match=f"{deb.name}: more than 4 MB when unpacked.*raise max_bytes="):
        _unpack_deb(deb, tmp_path / "out", INSTALLED, max_bytes=4 << 20)
    assert _unpack_deb(deb, tmp_path / "out", INSTALLED) == len(files) - 1


def write_zst(folder, files):
    content = write_deb(folder / "plain.deb", files, "").read_bytes()
    start = content.index(b"data.tar ") + 60
    size = int(content[start - 12 : start - 2])
    packed = subprocess.run(
        ["zstd", "-qc"], input=content[start : start + size], capture_output=True, check=True
    ).stdout
    header = f"{'data.tar.zst':<16}{'0':<12}{'0':<6}{'0':<6}{'100644':<8}{len(packed):<10}`\n".encode()
    (folder / "zst.deb").write_bytes(content[: start - 60] + header + packed)
    return folder / "zst.deb"


@pytest.mark.zstd
def test_broken_zstandard_data_is_named(tmp_path, files):
    deb = write_zst(tmp_path, {**files, "./usr/noise": np.random.default_rng(0).bytes(1 << 18)})
    content = deb.read_bytes()
    place = content.index(b"data.tar.zst") + 60 + (1 << 17)
    deb.write_bytes(content[:place] + bytes(byte ^ 255 for byte in content[place : place + 9]) + content[place + 9 :])
    with pytest.raises(BadData, match="zst.deb cannot be read as a Debian package"):
        _unpack_deb(deb, tmp_path / "out", INSTALLED)


@pytest.mark.zstd
def test_zstandard_packages_are_read(tmp_path, files):
    assert _unpack_deb(write_zst(tmp_path, files), tmp_path / "out", INSTALLED) == len(files) - 1


def test_without_dpkg_the_error_says_what_to_do(tmp_path, files, monkeypatch):
    deb = write_deb(tmp_path / "stamps.deb", files)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(
        BadData, match="no dpkg-deb here to unpack stamps.deb; unpack it elsewhere .* and name the folder"
    ):
        _unpack_deb(deb, tmp_path / "out", INSTALLED)


def test_without_apt_the_error_says_where_to_get_the_package(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert main(["--to", str(tmp_path / "out")]) == 1
    assert "packages.debian.org/tuxpaint-stamps-default" in capsys.readouterr().err
    (tmp_path / "apt-get").write_text("#!/bin/sh\necho 'E: Unable to locate package' >&2\nexit 100\n")
    os.chmod(tmp_path / "apt-get", 0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    assert main(["--to", str(tmp_path / "out")]) == 1 and "Unable to locate" in capsys.readouterr().err
    (tmp_path / "apt-get").write_text("#!/bin/sh\nexec sleep 20\n")
    with pytest.raises(BadData, match="apt-get download stamps did not end within 0.2 s.*packages.debian.org"):
        _download_deb("stamps", tmp_path, timeout=0.2)


# --- galleries --------------------------------------------------------------------------------------------------------


def test_inner_squares_hold_nothing_but_the_thing():
    draw = np.random.default_rng(0)
    for k in range(20):
        mask = draw.random((30, 40)) < 0.97
        left, top, right, bottom = _inner_square(mask, k)
        assert mask[top:bottom, left:right].all() and right - left == bottom - top > 0
        if k == 0:
            side = right - left
            assert not any(
                mask[y : y + side + 2, x : x + side + 2].all() for y in range(29 - side) for x in range(39 - side)
            )
    assert _inner_square(np.zeros((5, 5), bool)) == (0, 0, 0, 0)


def test_galleries_say_what_their_pictures_are(home):
    gallery = read_gallery(str(home), size=64, views=2)
    names = [pair.id for pair in gallery]
    assert len(set(names)) == len(names) and all(pair.image.shape == (64, 64, 3) for pair in gallery)
    crops = [pair for pair in gallery if pair.labels["is_pattern"]]
    assert {pair.labels["category"] for pair in crops} == {"animals"}
    assert {pair.labels["noun"] for pair in crops} >= {"zebra", "horse"}
    zebra = next(pair for pair in crops if pair.labels["noun"] == "zebra")
    assert zebra.caption == "a striped pattern"
    assert np.abs(zebra.image.astype(int) - INKS["zebra"]).max() <= 3  # no outline, no background
    assert set(_places_of(gallery, TRANSITIONS[0])) == {"pattern", "mixed", "word"}
    assert _places_of(gallery, TRANSITIONS[1]) is None
    assert len(read("gallery", folder=str(home), nouns=["zebra"], coats="none", size=32)) == 1
    with pytest.raises(ValueError, match="no cut-out of unicorn"):
        read_gallery(str(home), nouns=["unicorn"])


# --- real pictures ----------------------------------------------------------------------------------------------------


@pytest.mark.real
def test_real_stamps(real_data):
    folder = stamps_folder(real_data)
    names = list_stamps(folder)
    assert len(names) > 500
    assert all(any(name.startswith(one) for name in names) for one in (*DRAWINGS, *PHOTOGRAPHS)), (
        "a listed stamp is not there"
    )
    photos = sum(map(is_photograph, names))
    assert 320 <= photos <= 360
    assert len(read_stamps(folder, check="header")) == photos
    found = read_cutouts("photos", folder)
    assert len(found.cutouts) >= 250 and len(ranked_nouns("photos", str(folder))) >= 120
    told = {one.name.split("/")[-1]: one.label for one in found.cutouts}
    assert told["zebra"] == Label("zebra")
    assert told["apple_green"].colour == "green"
    assert told["gnu-stand"].colour is None
    assert {name for names in COATS.values() for name in names} <= {*told}


# kin in WordNet by a sense that nobody has in mind before a picture: words that end so, with words that end so
TECHNICAL = {
    "tree": "almond apple apricot avocado cherimoya orange mango olive peach pear pecan pomegranate tangerine",
    "herb": "aubergine banana broccoli carrot torch pineapple strawberry tomato", "ornament": "flag wreath "
                                                                                              "pole", "root": "carrot",
    "bulb": "lightbulb", "wedge": "sandwich", "cucumber": "melon", "raptor": "owl vulture", "butterfly": "peacock",
    "beetle": "hammer",
    "gull": "mug", "turtle": "t-shirt",
}  # fmt: skip


@pytest.mark.real
def test_no_two_nouns_that_exclude_each_other_are_kin_in_wordnet(real_data):
    net = WordNet(real_data / "wordnet")
    found = 0
    apart = {frozenset((end, other)) for end, others in TECHNICAL.items() for other in others.split()}
    photographs = cutouts._photos(stamps_folder(real_data), True, Counter())
    for offered in (photographs, cutouts._drawn(cutouts._drawn_folder(real_data), Counter())):
        for a, b in combinations(sorted({one.label.noun for one in offered}), 2):
            if net.kin(a, b):
                found += 1
                technical = frozenset((a.split()[-1], b.split()[-1])) in apart
                assert technical or may_name(a, b) is not False, (a, b)
    assert found > 150


@pytest.mark.real
@pytest.mark.parametrize("skin", ["photos", "drawn"])
def test_real_scenes(real_data, skin):
    here = world_from({"preset": skin, "folder": str(real_data), "n_train": 40, "n_test": 10, "wording": "plain"})
    for operator in ("swap_att", "swap_obj", "replace_att", "replace_obj", "replace_rel", "add_obj"):
        edits = here.edits(operator, 2).edits
        assert len(edits) == 2
        for one in edits:
            for claim, graph, expected in (
                (one.source, one.source_graph, True),
                (one.caption, one.source_graph, False),
                (one.caption, one.graph, True),
            ):
                assert truth(claim, graph) is expected
                assert all(
                    here.scene(graph, "x").item_map(64).ravel().tolist().count(n + 1) > 15
                    for n in range(len(graph.items))
                )


@pytest.mark.real
def test_real_galleries_hold_the_questions(real_data):
    gallery = read_gallery(str(real_data), categories=["animals"], coats="patterned", size=48)
    assert [one for one in TRANSITIONS if _places_of(gallery, one) is None] == []
    crops = [pair for pair in gallery if pair.labels["is_pattern"]]
    zebra = next(pair.image.astype(float).mean(-1) for pair in crops if pair.labels["noun"] == "zebra")
    horse = (
        next(coat for coat in read_gallery(str(real_data), nouns=["horse"], size=48) if coat.labels["is_pattern"])
        .image.astype(float)
        .mean(-1)
    )
    assert zebra.std() > 2 * horse.std()

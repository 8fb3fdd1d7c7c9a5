"""The generated world: what is promised of its splits, and an independent judge of its captions and pictures."""

import json
import multiprocessing
import os
import subprocess
import sys
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, replace
from functools import lru_cache, partial
from multiprocessing import get_context

import numpy as np
import pytest
from checker import RGB, WORDS, is_true, look, read_caption

from complearn.core.seeds import rng
from complearn.data.divergence.measure import compound_divergence
from complearn.data.images import load_images
from complearn.data.negatives import Negatives, negative_caption
from complearn.data.readers.registry import read
from complearn.data.worlds.config import WORLDS, WorldConfig
from complearn.data.worlds.edits import DrawPlaces, draw_scene
from complearn.data.worlds.questions import BENCHMARKS, audit
from complearn.data.worlds.rendering import Scene
from complearn.data.worlds.splits import SPLITS, Split, compounds, held_out_pairs
from complearn.data.worlds.world import World, read_generated, same_bag_rivals, shared_world, world_from
from complearn.language.edits.scenes import SCENE_OPERATORS
from complearn.language.scenes.graphs import COLOURS, SHAPES, SIZES, TEXTURES, Item, SceneGraph
from complearn.language.scenes.propositions import bindings

FAIR = 224  # pixels at which the judge looks


@lru_cache
def tiny(name="small", **changes):
    return World(replace(WORLDS[name], **{"n_train": 600, "n_test": 80, **changes}))


def seen_in(scene):
    return look(load_images([scene], FAIR)[0], scene.item_map(FAIR))


# --- the judge can see and read
# ------------------------------------------------------------------------------------------------------


def test_the_judge_knows_the_vocabulary_but_has_its_own():
    assert set(SHAPES) <= set(WORDS["shape"]) and set(COLOURS) == set(RGB) and set(TEXTURES) <= set(WORDS["texture"])


def test_the_judge_measures_single_objects():
    draw = np.random.default_rng(0)
    wrong = Counter()

    def word(options):
        return str(draw.choice(list(options)))

    for _ in range(200):
        size = word(SIZES)
        radius = draw.uniform(*SIZES[size])
        item = Item(word(SHAPES), word(COLOURS), size, word(TEXTURES), *draw.uniform(radius, 1 - radius, 2), radius)
        (found,) = seen_in(Scene(SceneGraph((item,))))
        wrong.update((kind, getattr(item, kind), getattr(found, kind)) for kind in ("shape", "colour", "size",
                "texture")
                     if getattr(item, kind) != getattr(found, kind))  # fmt: skip
        assert abs(found.x - item.x) < 0.01 and abs(found.y - item.y) < 0.01
    assert not wrong


@pytest.mark.parametrize("text, claims", [
    ("a red circle", [("is", {"colour": "red", "shape": "circle"})]),
    ("in this scene there are exactly two big violet rhombuses", [
        ("is", {"count": 2, "size": "large", "colour": "purple", "shape": "diamond"})]),
    ("a disc with stripes is the same colour as a cross", [("colour", {"shape": "circle", "texture": "striped"},
                {"shape": "cross"})]),
    ("there is a star as well as two crosses but no little heart", [
        ("is", {"shape": "star"}), ("is", {"count": 2, "shape": "cross"}),
        ("no", {"size": "small", "shape": "heart"})]),
    ("a thing in contact with a small object", [("touching", {}, {"size": "small"})]),
])  # fmt: skip
def test_the_judge_reads(text, claims):
    assert read_caption(text) == claims


def test_the_judge_refuses_a_word_it_does_not_know():
    with pytest.raises(AssertionError, match="'gleaming'"):
        read_caption("a gleaming circle")


def test_the_judge_notices_what_is_wrong_with_a_picture():
    left = Item("square", "red", "large", "plain", 0.25, 0.5, 0.15)
    right = Item("circle", "blue", "large", "striped", 0.7, 0.55, 0.15)
    text = "a plain red square is left of a striped blue circle"
    assert is_true(text, seen_in(Scene(SceneGraph((left, right)))))
    changes = ({"colour": "pink"}, {"shape": "diamond"}, {"texture": "dotted"}, {"x": 0.72, "y": 0.2})
    for broken in (replace(left, **change) for change in changes):
        assert not is_true(text, seen_in(Scene(SceneGraph((broken, right)))))


# --- the judge on the world
# ----------------------------------------------------------------------------------------------------------


def judge(split, operators, n, preset="rich"):
    """Wrong verdicts over a world's edits: caption A must be true of picture A and false of picture B, and the other
    way round."""
    world = tiny(preset, split=split)
    wrong = []
    scenes = 0
    for operator in operators:
        edits = world.edits(operator, n).edits
        assert len(edits) == n, f"{operator} in the {split} split yields {len(edits)} of {n} edits"
        for k, one in enumerate(edits):
            texts = [world.say(claim, k).text for claim in (one.source, one.caption)]
            for side, graph in enumerate((one.source_graph, one.graph)):
                seen = seen_in(Scene(graph))  # plain light: the judge measures by fixed thresholds
                scenes = scenes + 1
                wrong += [
                    (operator, text, other == side)
                    for other, text in enumerate(texts)
                    if is_true(text, seen) != (other == side)
                ]
    return scenes, wrong


@pytest.mark.parametrize("split", SPLITS)
def test_every_positive_is_true_and_every_negative_false_in_pixels(split):
    scenes, wrong = judge(split, SCENE_OPERATORS, 2)
    assert scenes == 36 and not wrong


def test_captions_of_training_pairs_are_true_in_pixels():
    for preset in WORLDS:
        world = tiny(preset)
        for pair in [world.pair("train", k) for k in range(12)]:
            assert is_true(pair.caption, seen_in(Scene(pair.graph))), pair.caption


@pytest.mark.slow
def test_thousands_of_scenes(monkeypatch):
    # a new process each, without the checks of every call: five times as fast
    monkeypatch.setenv("COMPLEARN_TYPECHECK", "0")
    jobs = [(split, (operator,), 42) for split in SPLITS for operator in SCENE_OPERATORS]
    with ProcessPoolExecutor(2, get_context("spawn")) as pool:
        told = list(pool.map(judge, *zip(*jobs)))
    assert sum(scenes for scenes, _ in told) >= 3_000
    assert not [line for _, wrong in told for line in wrong]


# --- blind scorers
# -------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("split", SPLITS)
def test_blind_scorers_are_at_chance_in_every_cell(split):
    table = audit(tiny("rich", split=split), 4, fit=60)
    assert set(zip(table.operator, table.side)) == {
        (operator, side) for operator in SCENE_OPERATORS for side in ("caption", "image")
    }
    assert (table["yield"] > 0).all() and (table.n == 4).all() and (table.wordings == 4).all()
    assert (table[["length", "bigrams", "typical"]].stack() - 0.5).abs().max() <= 0.03


@pytest.mark.slow
def test_as_drawn_no_blind_scorer_is_far_from_chance():
    """Before the questions are asked both ways, the edits alone already tell little: that is the grammar's doing, and
    is measured here."""
    table = audit(tiny("rich", size=32, n_train=2000), 100, fit=500)
    drawn = table[["length_as_drawn", "bigrams_as_drawn", "typical_as_drawn"]].stack()
    assert (drawn - 0.5).abs().mean() < 0.06 and (drawn - 0.5).abs().max() < 0.25


# --- pairs
# ----------------------------------------------------------------------------------------------------------------------


def test_a_sample_depends_on_its_number_alone():
    one = tiny("middle")
    other = tiny("middle", n_train=90)
    order = [70, 3, 89, 64, 0]
    for k, pair in zip(order, [other.train[k] for k in order]):
        assert pair.caption == one.train[k].caption and (pair.image == one.train[k].image).all()
        assert pair.graph == one.train[k].graph and pair.tree.leaves() == pair.caption.split()
    assert one.train[3].caption != tiny("middle", seed=1).train[3].caption


def test_another_process_draws_the_same():
    code = (
        "from complearn.data.worlds.world import read_generated as r; p = r('test', n_test=9)[7]; print(p.caption, "
        "p.image.sum())"
    )
    how = {"capture_output": True, "text": True, "check": True, "timeout": 300, "stdin": subprocess.DEVNULL}
    said = subprocess.run([sys.executable, "-c", code], **how).stdout
    pair = read_generated("test", n_test=9)[7]
    assert said == f"{pair.caption} {pair.image.sum()}\n"


def test_a_world_is_shared_by_its_configuration(tmp_path):
    """Worlds of a folder are not: its pictures may have changed."""
    settings = {"preset": "small", "n_train": 8}
    first = shared_world(settings)
    assert shared_world({"n_train": 8}) is first is shared_world(replace(WORLDS["small"], n_train=8))
    assert world_from(settings) is not first
    others = [shared_world(settings | {"seed": seed}) for seed in (1, 2)]
    assert shared_world(settings) is not first
    assert shared_world(settings | {"seed": 2}) is others[1]  # the last two are kept
    assert read_generated(preset="small", n_train=8, seed=2) is others[1].train


def test_pairs_drawn_at_once_are_those_drawn_on_demand(monkeypatch):
    wanted = Negatives(calls=2)
    worlds = [world_from({"preset": "middle", "n_train": 70}) for _ in range(2)]
    worlds[0].train.draw_all(wanted)

    def text(pairs, k):
        return (pairs[k].caption, negative_caption(pairs[k], pairs[k].caption, 5, wanted))

    expected = [text(worlds[1].train, k) for k in range(70)]
    monkeypatch.setattr(World, "draw", None)  # nothing is drawn later
    monkeypatch.setattr("complearn.data.negatives.compose_edits", None)
    assert [text(worlds[0].train, k) for k in range(70)] == expected
    assert all((worlds[0].train[k].image == worlds[1].train[k].image).all() for k in range(70))


def test_pairs_are_a_sequence():
    pairs = tiny().train
    assert len(pairs) == 600
    assert pairs[-1].id == "train-599"
    assert [pair.id for pair in pairs[2:5]] == ["train-2", "train-3", "train-4"]
    assert pairs[0].image.shape == (32, 32, 3) and pairs[0].image.dtype == np.uint8
    with pytest.raises(IndexError, match="pair 600 of 600"):
        pairs[600]


def test_pictures_too_large_to_keep_are_left_as_scenes(monkeypatch):
    kept = tiny().test[5]
    monkeypatch.setattr("complearn.data.worlds.world.MAX_STORED", 1000)
    pair = World(tiny().config).test[5]
    assert isinstance(pair.image, Scene)
    assert (load_images([pair.image], 32)[0] == kept.image).all()
    assert pair.caption == kept.caption


def test_the_fingerprint_is_the_configuration():
    assert tiny().train.fingerprint() == tiny().train.fingerprint()
    assert (
        len({pairs.fingerprint() for pairs in (tiny().train, tiny().test, tiny(seed=1).train, tiny(noise=0.1).train)})
        == 4
    )


def test_same_bag_rivals_against_pairs():
    captions = tiny().captions(60)
    slow = [len({b for b in captions if b != a and sorted(a.split()) == sorted(b.split())}) for a in captions]
    assert same_bag_rivals(captions) == slow and max(slow) > 0


# --- splits -----------------------------------------------------------------------------------------------------------


def questions(world, names=("sugarcrepe", "images", "winoground", "crepe_systematicity")):
    return [question for name in names for question in world.benchmark(name, 2)]


CASES = [
    ("small", "random"),
    ("small", "systematic"),
    ("middle", "random"),
    ("rich", "productive"),
    ("rich", "divergence"),
]


@pytest.mark.parametrize("preset, split", CASES)
def test_no_image_of_an_evaluation_is_in_training_and_where_promised_no_caption(preset, split):
    world = tiny(preset, split=split)
    asked = questions(world)
    fresh = [*world.test, *world.seen]
    scenes = [image for question in asked for image in question.images] + [
        item for item, _ in world.recognition(40).items
    ]
    pictures = {pixels.tobytes() for pixels in load_images(scenes, world.config.size)} | {
        pair.image.tobytes() for pair in fresh
    }
    assert not pictures & {pair.image.tobytes() for pair in world.train}
    said = {text for question in asked for text in question.captions} | {pair.caption for pair in fresh}
    shared = said & set(world.captions())
    assert bool(shared) == (not world.config.disjoint)  # a small world has too few captions, and says so
    assert world.describe()["disjoint_captions"] == world.config.disjoint


def test_systematic_training_never_sees_or_says_a_held_out_pair():
    world = tiny("middle", split="systematic")
    held = world.split.held_out
    colours = {pair for pair in held if pair[0] in COLOURS}
    assert len(colours) == round(0.2 * 5 * 6) and len(held - colours) == round(0.2 * 5 * 5)
    for part, many in (("train", 200), ("seen", 50)):
        for graph, statement in (world.draw(part, k) for k in range(many)):
            assert not held & bindings(statement) and not colours & {(item.colour, item.shape) for item in graph.items}
    tested = [world.draw("test", k)[1] for k in range(80)]
    assert all(held & bindings(statement) for statement in tested)
    assert held == set().union(*(held & bindings(statement) for statement in tested))  # each of them is tested

    def words(part):
        return {word for k in range(200) for word in world.pair(part, k).caption.split()}

    assert words("test") <= words("train")


def test_systematic_questions_are_seen_and_unseen():
    world = tiny("middle", split="systematic")
    found = Counter(question.split for question in world.benchmark("crepe_systematicity", 12))
    assert found == {f"{task}/{new}": 12 for task in ("atom", "compound") for new in ("seen", "unseen")}
    held = world.split.held_out
    for part in ("seen", "test"):
        for one in world.edits("swap_att", 10, part).edits:
            assert bool(held & (bindings(one.source) | bindings(one.caption))) == (part == "test")
    assert not any("unseen" in question.split for question in tiny().benchmark("crepe_systematicity", 4))


@pytest.mark.parametrize(
    "words, shapes, share", [(3, 3, 0.2), (8, 8, 0.25), (5, 3, 0.6), (3, 5, 0.4), (4, 2, 0.5), (7, 4, 0.1)]
)
def test_held_out_pairs_leave_every_word_and_shape_something(words, shapes, share):
    held = held_out_pairs([f"w{k}" for k in range(words)], [f"s{k}" for k in range(shapes)], share, seed=3)
    assert len(held) == max(1, round(share * words * shapes))
    by_word = Counter(word for word, _ in held)
    by_shape = Counter(shape for _, shape in held)
    assert max(by_word.values()) < shapes and max(by_shape.values()) < words
    lost = [by_word[f"w{k}"] for k in range(words)] if words >= shapes else [by_shape[f"s{k}"] for k in range(shapes)]
    assert max(lost) - min(lost) <= 1


def test_holding_out_everything_is_refused():
    with pytest.raises(ValueError, match="cannot hold out 9 of 9 pairs.*a word would vanish"):
        held_out_pairs("abc", "xyz", 1.0, 0)
    assert held_out_pairs((), ("circle",), 0.2, 0) == frozenset()


def test_productive_tests_are_longer_and_their_words_are_known():
    world = tiny("middle", split="productive")
    most = world.split.atoms
    counts = {part: [len(world.draw(part, k)[1].atoms()) for k in range(60)] for part in ("train", "seen", "test")}
    assert max(counts["train"]) <= most
    assert max(counts["seen"]) <= most < min(counts["test"])
    assert len(set(counts["test"])) > 2
    asked = world.benchmark("crepe_productivity", 2)
    levels = {int(question.split.split("/")[1]) for question in asked}
    assert min(levels) <= most < max(levels)
    assert {question.split.split("/")[0] for question in asked} == {"replace", "swap", "negate"}


def test_a_productive_split_that_tests_new_words_is_refused():
    with pytest.raises(ValueError, match="only the longer say above, below, left of, right of"):
        tiny(split="productive")
    with pytest.raises(ValueError, match="one side is empty"):
        tiny("rich", split="productive", train_atoms=90)


def test_divergent_tests_diverge():
    world = tiny("rich", split="divergence")
    told = {part: world.divergence(part, 80) for part in ("seen", "test")}
    assert told["test"] > told["seen"] + 0.08
    chosen = sum(
        (compounds(one.source) + compounds(one.caption) for one in world.edits("replace_att", 20).edits), Counter()
    )
    usual = sum(
        (compounds(one.source) + compounds(one.caption) for one in world.edits("replace_att", 20, "seen").edits),
        Counter(),
    )
    assert compound_divergence(world.compounds, chosen) > compound_divergence(world.compounds, usual) + 0.05
    assert world.test[3].id != "test-3" or world.test[4].id != "test-4"  # chosen among more


# --- questions --------------------------------------------------------------------------------------------------------


def test_a_complexity_is_that_of_both_captions():
    world = tiny("rich")
    for atoms in (4, 7):
        found = world.edits("replace_att", 5, atoms=atoms).edits
        assert len(found) == 5
        assert all(len(claim.atoms()) == atoms for one in found for claim in (one.source, one.caption))
    assert world.edits("swap_rel", 5, atoms=3).edits == []  # two relations take six words at least


@pytest.mark.parametrize("name", BENCHMARKS)
def test_every_question_is_asked_from_both_sides(name):
    asked = tiny("middle" if name == "crepe_productivity" else "rich").benchmark(
        name, 2 if name == "crepe_productivity" else 4
    )
    form = {"cola": "image", "images": "image", "winoground": "group", "patterns": "group"}.get(name, "text")
    assert {question.form for question in asked} == {form} and len({question.id for question in asked}) == len(asked)
    assert all(len(question.image_ids) == len(question.images) for question in asked)
    assert all(
        " ".join(tree.leaves()) == caption
        for question in asked
        for caption, tree in zip(question.captions, question.trees)
    )
    assert all(len(question.trees) == len(question.captions) for question in asked)
    if form != "group":
        for first, second in zip(asked[::2], asked[1::2]):
            one, other = (getattr(question, "captions" if form == "text" else "images") for question in (first, second))
            assert one == other[::-1] and first.id[:-2] == second.id[:-2] and first.image_ids != second.image_ids


def test_the_mirror_of_sugarcrepe_has_its_seven_splits():
    asked = Counter(question.split for question in tiny("rich").benchmark("sugarcrepe", 4))
    assert asked == dict.fromkeys(
        ("add_att", "add_obj", "replace_att", "replace_obj", "replace_rel", "swap_att", "swap_obj"), 4
    )


def test_an_operator_without_captions_leaves_its_cell_out_and_says_so():
    world = tiny()
    assert "add_att" not in {question.split for question in world.benchmark("sugarcrepe", 4)}  # colours are always said
    assert world.edits("add_att", 1).share == 0 and world.edits("add_att", 1).tried == 0  # known beforehand
    assert world.edits("swap_rel", 1).edits == []


def test_more_questions_begin_with_the_same():
    few, many = (tiny("middle").benchmark("winoground", n) for n in (3, 9))
    assert few[:3] == many[:3]


def test_recognition_covers_its_classes():
    told = tiny().recognition(18)
    assert Counter(label for _, label in told.items) == dict.fromkeys(range(9), 2) and "a red circle" in told.classes
    assert all(
        len(scene.graph.items) == 1 and template.count("{}") == 1
        for scene, _ in told.items
        for template in told.templates
    )
    for scene, label in told.items:
        assert is_true(told.classes[label], seen_in(Scene(scene.graph)))
    assert "an orange heart" in tiny("rich").recognition(1).classes


# --- settings ---------------------------------------------------------------------------------------------------------


def test_settings_survive_json():
    for config in WORLDS.values():
        assert WorldConfig(**json.loads(json.dumps(asdict(config)))) == config


def test_all_shapes_may_be_asked_for_by_word():
    """As a reader's arguments come from a command line."""
    pairs = read("generated", preset="small", shapes="all", n_train=4, n_test=4)
    assert pairs.world.config.words("shapes") == world_from({"preset": "small", "shapes": 8}).config.words("shapes")


@pytest.mark.parametrize("settings, message", [
    ({"colors": 3}, "no world setting 'colors' .did you mean 'colours'.*; there are shapes, colours"),
    ({"preset": "huge"}, "no preset 'huge'; there are small, middle, rich, photos, drawn"),
    ({"shapes": 99}, "shapes: expected 1 to 8"),
    ({"shapes": ["blob"]}, "blob"),
    ({"split": "odd"}, "no split 'odd'; there are random, systematic, productive, divergence"),
    ({"wording": "loud"}, "no wording 'loud'; there are plain, varied"),
    ({"n_train": 0}, "at least 1; got 0"),
    ({"objects": [1, 1]}, "conjunction, relation need relations, or more objects than 1"),
])  # fmt: skip
def test_bad_settings_are_named(settings, message):
    with pytest.raises(ValueError, match=message):
        world_from(settings)


def test_bad_names_are_named():
    with pytest.raises(ValueError, match="no benchmark 'valse'; there are sugarcrepe, "):
        tiny().benchmark("valse", 2)
    with pytest.raises(ValueError, match="no part 'dev'; there are train, seen, test"):
        read_generated("dev")
    with pytest.raises(ValueError, match="no split 'odd'"):
        Split("odd")


def test_relations_may_stay_with_every_shape_where_half_of_the_colours_pairs_are_held_out():
    world = tiny("small", split="systematic", held_out=0.5, shapes=4, colours=4, held_relations=False)
    held = world.split.held_out
    assert len(held) == 8 and {word for word, _ in held} <= set(COLOURS)
    pairs = set().union(*(bindings(world.draw("train", k)[1]) for k in range(400)))
    relations = {pair for pair in pairs if pair[0] in world.config.relations}
    assert len(relations) == 4 * 4 and not held & pairs
    usual = tiny("small", split="systematic", held_out=0.5, shapes=4, colours=4)
    assert len(usual.split.held_out) == 16 and world.space != usual.space
    assert "held_relations" not in usual.config.identity()  # the ids of worlds made before stay what they were


RARE = {"kinds": ("long",), "split": "divergence", "disjoint": True, "objects": (3, 4), "n_train": 30, "n_test": 8}


def test_pairs_that_were_found_are_found_again_without_what_was_refused(tmp_path, monkeypatch):
    monkeypatch.setenv("COMPLEARN_CACHE", str(tmp_path))

    def draws(world):
        return [world.draw(part, k) for part in ("train", "seen", "test") for k in range(8)]

    world = World(replace(WORLDS["small"], **RARE, seed=3))
    plain = [
        draw_scene(world.scenes[part], world.split, part, rng(3, "pair", part, k))
        for part in ("train", "seen", "test")
        for k in range(8)
    ]
    assert draws(world) == plain, "the same as without a file"
    captions = world.captions()
    (file,) = (tmp_path / "worlds").glob("*.json")
    again = World(replace(WORLDS["small"], **RARE, seed=3))
    tried = []
    monkeypatch.setattr("complearn.data.worlds.edits.draw_statement", counted(tried))
    assert draws(again) == plain and again.captions() == captions
    assert len(tried) <= 2 * 24 + 30 + 2, "each is found at once; those that hold nothing are drawn by `realise` alone"
    other = World(replace(WORLDS["small"], **RARE, seed=4))
    assert draws(other)[0] != plain[0] and other._places.file != file, "another world has another file"
    other._places.save()
    assert len(list((tmp_path / "worlds").glob("*.json"))) == 2
    assert World(replace(WORLDS["small"], n_train=30))._places.file is None, "a random split refuses little"


def add_places(file, number):
    for k in range(20):
        places = DrawPlaces(file)
        places.places[f"{number}-{k}"] = [number, 0, k]
        places.fresh = 1
        places.save()


def test_places_that_several_processes_find_at_once_all_stay(tmp_path):
    file = tmp_path / "places.json"
    writers = [multiprocessing.get_context("fork").Process(target=add_places, args=(file, k)) for k in range(3)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join(120)
        assert writer.exitcode == 0
    assert len(DrawPlaces(file).places) == 60 and [path.name for path in tmp_path.iterdir()] == ["places.json"]


def test_places_that_are_read_count_as_used(tmp_path):
    file = tmp_path / "places.json"
    add_places(file, 0)
    os.utime(file, (100, 100))
    DrawPlaces(file)
    assert file.stat().st_mtime > 100, "else make_room deletes it first"


def counted(tried):
    """`draw_statement`, which notes that it was asked."""
    from complearn.language.scenes.sampling import draw_statement

    def draw(*arguments, **options):
        tried.append(arguments[0])
        return draw_statement(*arguments, **options)

    return draw


@pytest.mark.parametrize("damage", ["a digit", "no checksum", "cut off", "a list", "no places"])
def test_damaged_places_are_named_and_searched_again(damage, tmp_path):
    world = World(replace(WORLDS["small"], **RARE, seed=3))
    file = tmp_path / "places.json"

    def draw(places, k):
        return places.draw(f"{k}", rng(k), partial(draw_scene, world.scenes["train"], world.split, "train"))

    places = DrawPlaces(file)
    found = [draw(places, k) for k in range(3)]
    places.save()
    text = file.read_text()
    content = json.loads(text)
    changed = {
        "a digit": text.replace(str(content["places"]["1"][0]), str(content["places"]["1"][0] + 1)),
        "no checksum": json.dumps({"places": content["places"]}),
        "cut off": text[: len(text) // 2],
        "a list": "[1, 2]",
        "no places": "{}",
    }
    file.write_text(changed[damage])
    with pytest.warns(UserWarning, match="pairs of a world are searched again: "):
        damaged = DrawPlaces(file)
    assert not damaged.places and [draw(damaged, k) for k in range(3)] == found
    damaged.save()
    assert DrawPlaces(file).places == places.places


def test_two_processes_keep_what_both_found(tmp_path):
    world = World(replace(WORLDS["small"], **RARE, seed=3))
    one, other = (DrawPlaces(tmp_path / "places.json") for _ in range(2))
    for places, k in ((one, 1), (other, 2)):
        places.draw(
            f"{k}", rng(k), lambda *args, **more: draw_scene(world.scenes["train"], world.split, "train", *args, **more)
        )
        places.save()
    assert {*DrawPlaces(tmp_path / "places.json").places} == {"1", "2"}

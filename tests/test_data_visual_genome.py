"""Visual Genome: names and merges, WordNet, files, cleaning rules by counts, faults; triplets of scene graphs in
batches."""

import ast
import json
import re
from collections import Counter

import pytest
import torch
from conftest import ROOT

from complearn.data.fixtures.specimens import _write_small_wordnet, write_visual_genome
from complearn.data.images import Transform
from complearn.data.pairs import Collate
from complearn.data.readers.registry import read
from complearn.data.reports import BadData
from complearn.data.visual_genome.files import _json_items
from complearn.data.visual_genome.names import (
    OBJECT_CLASSES,
    PREDICATE_ALIASES,
    PUBLISHED_NEAR,
    RELATION_LABELS,
    _alias_table,
    _merged_counts,
    _strip_predicate,
    is_swapped,
    merge_predicate,
    read_aliases,
)
from complearn.data.visual_genome.reader import read_visual_genome
from complearn.data.visual_genome.triplets import (
    Triplet,
    TripletEncoder,
    Triplets,
    _item_phrases,
    graph_triplets,
    relation_names,
)
from complearn.data.word_tokenizer import WordTokenizer
from complearn.language.lexicon.wordnet import Classes, UnknownSynset, WordNet, write_wordnet
from complearn.language.scenes.geometry import relation_truth

# --- names


def test_the_two_lists_are_the_papers():
    assert len(RELATION_LABELS) == len(set(RELATION_LABELS)) == 114
    assert len(OBJECT_CLASSES) == len(set(OBJECT_CLASSES)) == 55
    assert RELATION_LABELS[0] == "on" and RELATION_LABELS[-1] == "work on" and "in front of" in RELATION_LABELS
    assert OBJECT_CLASSES[0] == "feline.n.01"
    assert {"vessel.n.02", "communication.n.02", "artifact.n.01"} <= set(OBJECT_CLASSES)


@pytest.mark.parametrize("word", PUBLISHED_NEAR)
def test_the_published_merges_come_out_as_published(word):
    assert merge_predicate(word) == "near" and merge_predicate(word.upper()) == "near"


def test_every_label_means_itself_and_no_word_means_two():
    table = _alias_table()
    assert all(merge_predicate(label) == label for label in RELATION_LABELS)
    assert set(table.values()) == set(RELATION_LABELS)
    assert all(merge_predicate(word) == label for word, label in table.items())
    assert [_strip_predicate(text) for text in ("is on a", "a", "are", "that is the")] == ["on", "a", "are", "the"]


def test_passive_predicates_turn_the_pair_around():
    """Every predicate that ends in "by" under an active label, and no label itself."""
    passive = ("by", "held", "worn", "covered")
    by = {word for word, entry in PREDICATE_ALIASES.items() if word.endswith(" by") and entry.label not in passive}
    active = {word for word in by if not word.split()[0].endswith("ing") or word == "being pulled by"}
    same = {"owned by", "filled by", "connected by", "on a leash held by"}
    assert {word for word in active if not is_swapped(word)} == same
    assert not any(map(is_swapped, RELATION_LABELS)) and not is_swapped("holding") and is_swapped("is eaten by the")


def test_counts_are_filtered_before_they_are_merged():
    raw = {"on": 251, "on a": 250, "IS ON": 300, "wearing": 1000, "zapping": 400}
    assert _merged_counts(raw) == ({"on": 551, "wear": 1000}, {"zapping": 400}, {"on a": 250})
    assert _merged_counts({"zapping": 400}, aliases={"zapping": "hits"}) == ({"hit": 400}, {}, {})


@pytest.mark.real
def test_visual_genomes_own_lists_have_labels(real_data):
    words = (real_data / "visual_genome" / "predicate_list.txt").read_text().split("\n")
    assert [word for word in words if word and merge_predicate(word) is None] == []
    aliases = read_aliases(real_data / "visual_genome" / "predicate_alias.txt")
    assert aliases["next to"] == "near" and merge_predicate("are under the", aliases) == "under" and len(aliases) > 3000


# --- WordNet


def test_closures_and_classes_on_a_small_wordnet(tmp_path):
    kinds = {"entity": (), "animal": ("entity",), "vessel.n.02": ("entity",), "pet": ("animal",)}
    kinds |= {"cat": ("animal", "pet"), "boat": ("vessel.n.02",)}
    net = WordNet(write_wordnet(tmp_path, kinds))
    assert [net.synset(place)[0][0] for place in net.above("cat.n.01")] == ["cat", "animal", "pet", "entity"]
    classes = Classes(net, ("pet.n.01", "animal.n.01", "vessel.n.02"))
    told = [classes(f"{word}.n.01") for word in ("cat", "boat", "entity")]
    assert told == ["pet.n.01", "vessel.n.02", None], "the first of the list wins"
    for name, said in (("dog.n.01", "no noun 'dog'"), ("cat.n.07", "has 1 noun senses"), ("cat", "a noun is called")):
        with pytest.raises(UnknownSynset, match=said):
            classes(name)
    with pytest.raises(FileNotFoundError, match="index.noun"):
        WordNet(tmp_path / "nowhere")


def test_index_and_data_of_two_releases_are_noticed(tmp_path):
    net = WordNet(write_wordnet(tmp_path, {"entity": (), "animal": ("entity",)}))
    (tmp_path / "data.noun").write_text("0" + (tmp_path / "data.noun").read_text())
    with pytest.raises(UnknownSynset, match="two releases"):
        list(net.above("animal.n.01"))


@pytest.mark.real
def test_the_55_classes_are_in_wordnet(real_data):
    classes = Classes(WordNet(real_data / "wordnet"), OBJECT_CLASSES)
    expected = {
        "zebra": "equine",
        "cat": "feline",
        "dog": "mammal",
        "shirt": "clothing",
        "truck": "wheeled_vehicle",
        "boy": "person",
    }
    expected |= {"man": "man", "pizza": "food", "cup": "tableware", "tree": "tree", "clock": "measuring_instrument"}
    assert {word: classes(f"{word}.n.01").split(".")[0] for word in expected} == expected
    assert len(classes.places) == 55 and classes("sky.n.01") is None


# --- files


@pytest.mark.parametrize("chunk", [1, 7, 10_000])
def test_a_list_is_read_item_by_item_at_any_chunk(tmp_path, chunk):
    items = [{"a": [1, {"b": '],[ \\" é'}]}, 17, -2.5e3, "x", None, [], {}]
    (tmp_path / "list.json").write_text(json.dumps(items, indent=1, ensure_ascii=False), encoding="utf-8")
    assert list(_json_items(tmp_path / "list.json", chunk=chunk)) == items


def test_a_cut_list_says_after_how_many(tmp_path):
    text = json.dumps([{"a": k} for k in range(5)])
    for length, said in ((len(text) - 1, "after 4"), (22, "after 2"), (0, "JSON list was expected")):
        (tmp_path / "cut.json").write_text(text[:length])
        with pytest.raises(BadData, match=said):
            list(_json_items(tmp_path / "cut.json", chunk=5))


@pytest.fixture
def genome(tmp_path):
    return write_visual_genome(tmp_path / "vg", n=16)


def entries(folder, name):
    return json.loads((folder / f"{name}.json").read_text())


def change(folder, name, edit):
    content = entries(folder, name)
    edit(content)
    (folder / f"{name}.json").write_text(json.dumps(content))


def little(folder, **more):
    return read_visual_genome(folder, **({"part": "all", "rare": 0, "min_triplets": 1} | more))


def by_hand(folder):
    """The triplets of each image, as the rules of the docstrings say, without attributes."""
    names = {box["object_id"]: box["names"][0] for item in entries(folder, "objects") for box in item["objects"]}
    classes = {"cat": "feline.n.01", "table": "furniture.n.01", "tree": "tree.n.01"}
    labels = {"above": "above", "is under": "under", "to the left of": "near", "next to": "near"}
    found = {}
    counts = Counter()
    for item in entries(folder, "relationships"):
        kept = []
        for one in item["relationships"]:
            a, b = (names[one[side]["object_id"]] for side in ("subject", "object"))
            made = Triplet(a, labels[one["predicate"]], b, classes[a], classes[b])
            rule = "both ends called the same" if a == b else "said twice" if made in kept else None
            counts[rule or "triplets"] += 1
            kept += [] if rule else [made]
        found[f"vg{item['image_id']}"] = tuple(kept)
    return found, counts


def test_cleaning_against_a_loop(genome):
    pairs = little(genome, max_attributes=0, min_triplets=0)
    found, counts = by_hand(genome)
    assert {pair.id: pair.labels["triplets"] for pair in pairs} == found
    assert {name: pairs.counts[name] for name in counts} == dict(counts)
    assert pairs.counts["relationships"] == sum(counts.values())
    assert pairs[0].image.is_file()
    assert pairs[0].caption is None
    assert "dropped: " in str(pairs.report) and set(pairs.captions()) <= {"cat", "table", "tree"}


def test_attributes_make_phrases(genome):
    told = {word for pair in little(genome) for word in pair.labels["triplets"][0].subject.split()}
    assert "large" in told and told & {"red", "green", "blue"}
    (genome / "attributes.json").unlink()
    assert all(len(t.subject.split()) == 1 for pair in little(genome) for t in pair.labels["triplets"]), (
        "attributes are optional"
    )


def test_each_rule_counts_what_it_drops(genome):
    whole = little(genome, max_attributes=0)
    frequent = Counter(one["predicate"] for item in entries(genome, "relationships") for one in item["relationships"])
    least = sorted(frequent.values())[1]
    rare = little(genome, max_attributes=0, rare=least)
    assert rare.counts["rare predicate"] == sum(n for n in frequent.values() if n <= least)
    some = little(genome, max_attributes=0, min_triplets=3)
    assert (
        some.counts["images with few triplets"]
        == sum(len(t) < 3 for t in by_hand(genome)[0].values())
        == 16 - len(some)
    )
    change(
        genome,
        "objects",
        lambda items: [box.update(synsets=["sky.n.01"], names=["sky"]) for i in items for box in i["objects"][:1]],
    )
    dropped = little(genome, max_attributes=0)
    kept = little(genome, max_attributes=0, keep_unclassed=True)
    assert dropped.counts["object outside the classes"] > 0 and kept.counts["object outside the classes"] == 0
    assert any(t.subject_class is None for pair in kept for t in pair.labels["triplets"])
    assert whole.fingerprint() != dropped.fingerprint() and whole.fingerprint() == whole.fingerprint()


def test_predicates_without_a_label_are_named(genome, tmp_path):
    change(
        genome,
        "relationships",
        lambda items: [one.update(predicate="zapping") for i in items for one in i["relationships"][:1]],
    )
    pairs = little(genome)
    assert pairs.counts["predicate without a label"] > 0 and "zapping" in str(pairs.report)
    (tmp_path / "alias.txt").write_text("near,zapping,buzzing\n")
    assert little(genome, aliases=tmp_path / "alias.txt").counts["predicate without a label"] == 0


def test_merged_objects_and_synsets_by_name(genome):
    def rename(items):
        for item in items:
            for box in item["objects"]:
                box["merged_object_ids"], box["object_id"], box["synsets"] = (
                    [box["object_id"]],
                    box["object_id"] + 500,
                    [],
                )

    before = [pair.labels for pair in little(genome, max_attributes=0)]
    change(genome, "objects", rename)
    assert [pair.labels for pair in little(genome, max_attributes=0)] == before, (
        "object_synsets.json and merged numbers lead to the same"
    )


def test_train_and_test_share_no_image_and_are_the_same_every_time(genome):
    parts = [{pair.id for pair in little(genome, part=part, n_test=5)} for part in ("train", "test", "all")]
    assert len(parts[1]) == 5 and not parts[0] & parts[1] and parts[0] | parts[1] == parts[2]
    assert parts[1] == {pair.id for pair in little(genome, part="test", n_test=5)}
    assert parts[1] != {pair.id for pair in little(genome, part="test", n_test=5, seed=1)}
    with pytest.raises(BadData, match="too few for a test part of 5000"):
        little(genome, part="train", n_test=5000)


def test_missing_and_cut_files_are_named(genome):
    for name in ("image_data", "objects", "relationships"):
        path = genome / f"{name}.json"
        text = path.read_text()
        path.write_text(text[: len(text) // 2])
        with pytest.raises(BadData, match=f"{name}.json: cut off after"):
            little(genome)
        path.unlink()
        with pytest.raises(BadData, match=f"{name}.json.*does not exist.*Visual Genome 1.4 comes as"):
            little(genome)
        path.write_text(text)
    with pytest.raises(BadData, match="WordNet.*name it with wordnet="):
        little(genome, wordnet=genome / "VG_100K")
    _write_small_wordnet(genome / "other")
    assert len(little(genome, wordnet=genome / "other")) == len(little(genome))


def test_missing_images_objects_and_synsets_are_counted_and_named(genome):
    (genome / "VG_100K" / "3.jpg").unlink()
    with pytest.raises(BadData, match="3.jpg"):
        little(genome)
    with pytest.warns(UserWarning, match="image not found"):
        assert "vg3" not in [pair.id for pair in little(genome, max_bad=0.2)]
    change(genome, "relationships", lambda items: items[4]["relationships"][0]["subject"].update(object_id=99))
    with pytest.raises(BadData, match="object 99 is not among image 5's in objects.json.*mend the data"):
        little(genome)
    change(genome, "objects", lambda items: items[5]["objects"][0].update(synsets=["snark.n.01"]))
    with pytest.warns(UserWarning):
        pairs = little(genome, max_bad=0.3)
    assert pairs.counts["object not there"] == 1
    assert pairs.counts["unknown synset"] >= 1
    assert "no noun 'snark'" in str(pairs.report)


def test_a_file_of_another_kind_is_refused(genome):
    (genome / "relationships.json").write_text("[[1, 2]]")
    with pytest.raises(
        BadData, match="relationships.json item 0: should be a mapping .*is this Visual Genome.s relationships"
    ):
        little(genome)


# --- triplets of scene graphs


@pytest.fixture(scope="module")
def scenes():
    pairs = read("generated", n_train=60, n_test=4, objects=(2, 3), sizes=("small", "large"))
    pairs.stored = False
    return [pairs.world.pair("train", k) for k in range(60)]


SIDES = ("left of", "right of", "above", "below")


def test_triplets_follow_from_the_graph(scenes):
    held = 0
    for pair in scenes:
        phrases = _item_phrases(pair.graph)
        graph = pair.graph
        said = [phrase for phrase in phrases if phrase]
        assert len(set(said)) == len(said), "a phrase fits one thing alone"
        for t in graph_triplets(graph, SIDES):
            i = phrases.index(t.subject)
            j = phrases.index(t.object)
            assert [name for name in SIDES if relation_truth(graph, name, i, j)] == [t.predicate]
            assert (t.subject_class, t.object_class) == (graph.items[i].shape, graph.items[j].shape)
            held += 1
        every = {str(t) for t in graph_triplets(graph, SIDES, single=False)}
        assert {str(t) for t in graph_triplets(graph, SIDES)} <= every
    assert held > 60


def test_a_batch_holds_each_images_triplets(scenes):
    tokenizer = WordTokenizer.fit([pair.caption for pair in scenes] + ["small large"])
    triplets = TripletEncoder(SIDES, ("circle", "square", "triangle"), None, tokenizer=tokenizer)
    batch = Collate(Transform(8), tokenizer, steps=(triplets,))(scenes[:12])
    encoded = batch[Triplets]
    for i, pair in enumerate(scenes[:12]):
        found = graph_triplets(pair.graph, SIDES)
        phrases = encoded.phrases[i]
        rows = [row for row in encoded.numbers[i].tolist() if row[1] >= 0]
        assert [(phrases[a], SIDES[p], phrases[b]) for a, p, b in rows] == [
            (t.subject, t.predicate, t.object) for t in found
        ]
        for k, phrase in enumerate(phrases):
            alone = tokenizer([phrase])
            real = encoded.phrase_mask[i, k]
            assert encoded.phrase_ids[i, k][real].tolist() == alone.ids[0].tolist()
            assert triplets.objects[encoded.phrase_classes[i, k]] == phrase.split()[-1]
        assert not encoded.phrase_mask[i, len(phrases) :].any()
    parts = batch.chunk(3)
    assert torch.equal(torch.cat([part[Triplets].numbers for part in parts]), encoded.numbers)


def test_few_of_many_triplets_are_drawn_by_the_draw(scenes):
    triplets = TripletEncoder(SIDES, ("circle", "square", "triangle"), 2)
    many = max(scenes, key=lambda pair: len(graph_triplets(pair.graph, SIDES)))
    chosen = [triplets.draw_triplets(many, draw) for draw in range(20)]
    assert all(len(some) == 2 for some in chosen)
    assert chosen == [triplets.draw_triplets(many, draw) for draw in range(20)]
    assert set(sum(chosen, ())) == set(graph_triplets(many.graph, SIDES)), "each of them comes at some time"


def test_names_for_a_model(scenes):
    names = relation_names(scenes, SIDES)
    assert set(names["predicates"]) == set(SIDES) and set(names["objects"]) == {"circle", "square", "triangle"}
    with pytest.raises(BadData, match="none of the model's 1 objects"):
        TripletEncoder(SIDES, ("circle",))(scenes[:6])
    with pytest.raises(BadData, match="neither triplets nor a scene graph"):
        relation_names([type(scenes[0])(None, "a", "1", "1")])


# --- lists of the package


def test_the_lists_are_installed_with_the_package():
    patterns = ast.literal_eval(re.search(r"package_data=(\{.*?\}),\n", (ROOT / "setup.py").read_text())[1])[
        "complearn"
    ]
    files = {path.name for pattern in patterns for path in (ROOT / "complearn").glob(pattern)}
    assert {"object_classes.json", "relation_labels.json", "predicate_aliases.csv", "word_lists.json"} <= files

"""Concepts and predicates by the rules of Appendix A, the graph of many captions, and what it answers."""

import json
import multiprocessing
import os
import re
import signal
import subprocess
import sys
from collections import Counter
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings, strategies as st

from complearn.core.checksums import LIST
from complearn.core.config import RequestError
from complearn.core.files import BadData
from complearn.core.seeds import rng
from complearn.language.concepts import graph as graphs
from complearn.language.concepts.denotations import (
    compositions,
    denotation,
    image_compounds,
    mentions,
    neighbourhood,
    relations,
    search_concepts,
    unseen,
    wholes,
)
from complearn.language.concepts.graph import (
    FILES,
    TABLES,
    GraphPart,
    build_graph,
    read_graph,
    write_graph,
    write_graph_parts,
)
from complearn.language.concepts.networks import graph_network
from complearn.language.concepts.rules import (
    GOVERNORS,
    LABELS,
    NOUN_TAGS,
    PHRASE_LABELS,
    _noun_chunks,
    caption_shapes,
    check_shapes,
    concept_heights,
    find_concepts,
    find_predicates,
    foreign_shape,
    prune_parse,
    prune_tree,
    rebracketed,
    tree_shape,
    tree_shapes,
)
from complearn.language.parsing.base import Parse, Word
from complearn.language.parsing.brackets import tree_parse
from complearn.language.parsing.registry import parse
from complearn.language.trees import Tree, parse_bracketed

DOGS = "(S (NP (CD two) (NNS dogs)) (VP (VBP are) (VBG running) (PP (IN on) (NP (DT the) (NN grass)))))"
PIZZA = (
    "(S (NP (DT a) (JJ small) (NN pizza)) (VP (VBN cut) (PP (IN in) (NN half)) (IN on) (NP (DT a) (JJ white) (NN "
    "plate))))"
)


def parsed(*texts):
    return [tree_parse(" ".join(tree.leaves()), tree) for tree in map(parse_bracketed, texts)]


def taken_apart(text):
    """The first concept's predicate, and the words of its parts."""
    structure = parse_bracketed(text)
    concepts = find_concepts(structure)
    words = structure.leaves()
    return find_predicates(concepts, words)[0], [" ".join(words[c.start : c.stop]) for c in concepts if c.parent == 0]


@pytest.mark.parametrize(
    "text, predicate, parts",
    [
        (DOGS, "[NP] are running on [NP]", ["two dogs", "the grass"]),  # the two examples of Table 8
        (PIZZA, "[NP] cut in half on [NP]", ["a small pizza", "a white plate"]),
        # without tags
        (
            "(S (NP two dogs) (VP (VBP run) (PP (IN on) (NP (DT the) (NN grass)))))",
            "two dogs run on [NP]",
            ["the grass"],
        ),
        ("(ROOT (S (NP (NP (NNS dogs))) (VP (VP (VBP run)))))", "[NP] run", ["dogs"]),  # unary chains
        ("(S (VP (VB run) (ADVP (RB away))))", "run away", []),  # no noun
        ("(FRAG (NP (NN dog)) (NP (NN ball)))", "[NP] [NP]", ["dog", "ball"]),
        ("(NP (NP (DT a) (NN dog)) (. .))", "a [NN]", ["dog"]),  # nothing is composed of itself
        ("(S (NP (`` ``) (NP (DT a) (NN dog)) (, ,)) (VP (VBZ runs)) (. .))", "[NP] , runs", ["a dog"]),
        ("(X (. !) (. !))", "! !", []),
        # under any other label a noun is a primitive
        ("(FRAG (NN dog) (PP (IN on) (NP (NN grass))))", "[NN] on [NP]", ["dog", "grass"]),
        ("(NP (DT an) (NML (NN ice) (NN cream)) (NN truck))", "an [NN] [NN] [NN]", ["ice", "cream", "truck"]),
        (
            "(S (SBAR (IN while) (S (NP (PRP it)) (VP (VBZ rains)))) (NP (NN man)) (VP (VBZ runs)))",
            "while it rains [NP] runs",
            ["man"],
        ),
    ],
)
def test_concepts_by_the_rules_of_appendix_a(text, predicate, parts):
    assert taken_apart(text) == (predicate, parts)


def test_a_single_noun_is_its_own_primitive():
    (concept,) = find_concepts(parse_bracketed("(NN dog)"))
    assert concept.primitive and find_predicates([concept], ["dog"]) == [""] and concept_heights([concept]) == [0]


def concepts_as_written(tree):
    """The rules once more, as the appendix reads: words and label of every concept, its parts inside it, step by
    step."""

    def nouns(node):
        return node.label in NOUN_TAGS if is_word(node) else any(nouns(child) for child in node.children)

    def is_word(node):
        return isinstance(node.children[0], str)

    def collapse(node):
        labels = [node.label]
        while not is_word(node) and len(node.children) == 1:
            node = node.children[0]
            labels.append(node.label)
        return node, next((label for label in labels if label in PHRASE_LABELS), "")

    def parts(node):
        found = []
        for child in () if is_word(node) else node.children:
            inner, label = collapse(child)
            if nouns(inner) and (label or is_word(inner) and node.label not in GOVERNORS):
                found.append((label or inner.label, inner.leaves(), parts(inner)))
            else:
                found += parts(inner)
        return found

    root, label = collapse(tree)
    return (label or (root.label if is_word(root) and nouns(root) else "S"), root.leaves(), parts(root))


TAGGED = st.builds(
    lambda tag, word: Tree(tag, (word,)),
    st.sampled_from(["NN", "NNS", "DT", "IN"]),
    st.sampled_from(["dog", "a", "on"]),
)
TREES = st.recursive(
    TAGGED,
    lambda inner: st.builds(
        lambda label, children: Tree(label, tuple(children)),
        st.sampled_from(["NP", "VP", "PP", "S", "FRAG", "NML", "ADJP"]),
        st.lists(inner, min_size=1, max_size=4),
    ),
    max_leaves=15,
)


@settings(max_examples=150, deadline=None)
@given(TREES)
def test_concepts_are_those_of_the_rules_step_by_step(tree):
    concepts = find_concepts(tree)
    words = tree.leaves()

    def nested(number):
        concept = concepts[number]
        inside = [nested(k) for k, other in enumerate(concepts) if other.parent == number]
        return (concept.label, words[concept.start : concept.stop], inside)

    assert nested(0) == concepts_as_written(tree)
    assert all(
        c.label in LABELS and concepts[c.parent].start <= c.start < c.stop <= concepts[c.parent].stop
        for c in concepts[1:]
    )
    blanks = [sum(slot.startswith("[") for slot in predicate.split()) for predicate in find_predicates(concepts, words)]
    assert blanks == [sum(c.parent == k for c in concepts) for k in range(len(concepts))]


def test_deep_and_long_sentences_are_taken_apart():
    deep = Tree("NP", (Tree("DT", ("the",)), Tree("NN", ("dog",))))
    for _ in range(295):
        deep = Tree("NP", (deep, Tree("PP", (Tree("IN", ("near",)), Tree("NN", ("ball",))))))
    long = Tree("S", tuple(Tree("NP", (Tree("JJ", ("red",)), Tree("NN", ("dog",)))) for _ in range(100)))
    assert concept_heights(find_concepts(deep))[0] == 296
    graph = build_graph([tree_parse(" ".join(tree.leaves()), tree) for tree in (deep, long)])
    assert graph.statistics()["greatest height"] == 296 and graph.report.counts == {}


def test_pruned_trees_keep_their_words_and_lose_phrases():
    tree = parse_bracketed(PIZZA)
    assert prune_tree(tree, 0.0, rng(0)) == tree
    assert len(prune_tree(tree, 1.0, rng(0)).spans()) == 1 + len(tree.leaves())
    shares = [np.mean([len(prune_tree(tree, share, rng(k)).spans()) for k in range(300)]) for share in (0.1, 0.3, 0.5)]
    inner = len(tree.spans()) - 1 - len(tree.leaves())
    assert np.allclose([1 - (n - 1 - len(tree.leaves())) / inner for n in shares], [0.1, 0.3, 0.5], atol=0.05)
    (whole,) = parsed(PIZZA)
    assert prune_parse(whole, 0.5, 3) == prune_parse(whole, 0.5, 3)
    assert prune_parse(whole, 0.5, 3).tree.leaves() == tree.leaves()
    with pytest.raises(ValueError, match="from 0 to 1, not 30"):
        prune_tree(tree, 30, rng(0))


# --- many captions


@pytest.fixture(scope="module")
def graph():
    texts = [
        DOGS,
        PIZZA,
        "(NP (NP (DT A) (NN dog)) (PP (IN on) (NP (DT the) (NN grass))) (. .))",
        "(S (NP (NNS dogs)) (VP (VBP run)))",
    ]
    return build_graph(parsed(*texts), ["1", "2", "3", "1"], ["a", "b", "c", "d"])


def test_captions_are_counted_and_not_how_often_they_say_a_thing():
    twice = "(NP (NP (DT a) (NN dog)) (CC and) (NP (DT a) (NN dog)))"
    counted = build_graph(parsed(twice, "(NP (NP (DT a) (NN dog)) (CC and) (NP (DT a) (NN cat)))"))
    assert len(counted.lines(counted.places["a dog"][0])) == 3
    assert wholes(counted, "a dog")["captions"].tolist() == [1, 1]
    assert compositions(counted, "a dog").values.tolist() == [["a [NN]", ["dog"], 2]]
    assert relations(counted, "a dog").values.tolist() == [["[NP] and [NP]", 2]]


def test_captions_share_their_concepts(graph):
    assert denotation(graph, "THE  grass") == ["1", "3"] and denotation(graph, "dogs", "the grass") == ["1"]
    assert compositions(graph, "a dog on the grass").values.tolist() == [["[NP] on [NP]", ["a dog", "the grass"], 1]]
    assert set(wholes(graph, "dogs")["whole"]) == {"two dogs", "dogs run"}
    assert search_concepts(graph, "dogs")["concept"].tolist()[0] == "dogs" and len(search_concepts(graph, "rass")) == 0
    assert (
        graph.statistics() | {"captions": 4, "images": 3, "primitives": 5, "predicates": 9, "concepts": 9}
        == graph.statistics()
    )
    with pytest.raises(ValueError, match="no concept 'two cats', and none with these words"):
        denotation(graph, "two cats")
    view = neighbourhood(graph, "the grass")
    assert {"two dogs are running on the grass", "a dog on the grass", "grass"} <= set(view)


def test_counts_are_those_of_a_plain_count(graph):
    names = graph.captions["image"].to_numpy()[graph.parts["caption"].to_numpy()]
    expected = pd.Series(names).groupby(graph.parts["concept"].to_numpy()).nunique()
    assert graph.image_counts.tolist() == expected.tolist()
    assert image_compounds(graph)["1"] == {"[NP] are running on [NP]": 1, "two [NNS]": 1, "the [NN]": 1, "[NP] run": 1}
    assert image_compounds(graph, "primitives")["1"] == {"dogs": 2, "grass": 1}
    new = unseen(build_graph(parsed(DOGS)), graph, "predicates")
    assert "the [NN]" not in set(new["text"]) and "[NP] on [NP]" in set(new["text"])
    assert unseen(build_graph(parsed(DOGS)), graph, "primitives")["text"].tolist() == ["pizza", "plate", "dog"]


def test_a_graph_comes_back_from_its_folder_and_a_broken_one_is_named(graph, tmp_path):
    folder = write_graph(tmp_path / "graph", graph)
    assert write_graph(folder, graph) == folder  # over itself
    again = read_graph(folder)
    assert all(getattr(again, name).equals(getattr(graph, name)) for name in TABLES) and again.report == graph.report
    assert denotation(again, "the grass") == ["1", "3"]
    with pytest.raises(BadData, match="no concept graph there"):
        read_graph(tmp_path)
    with pytest.raises(FileExistsError, match=r"holds other files \(graph\); name a new folder"):
        write_graph(tmp_path, graph)
    (folder / LIST).unlink()  # as a graph that another program wrote
    graph.parts.assign(concept=99).to_parquet(folder / "parts.parquet")
    with pytest.raises(BadData, match="line 0 of parts has concept 99, and there are 14; write it with"):
        read_graph(folder)
    (folder / "parts.parquet").write_bytes(b"PAR1")
    with pytest.raises(BadData, match="graph/parts.parquet"):
        read_graph(folder)
    (folder / "graph.json").write_text(json.dumps({"schema": 9, "report": {}, "statistics": {}}))
    with pytest.raises(BadData, match="schema 9"):
        read_graph(folder)


def numbered_caption(number):
    "A caption that shares its nouns with many others."
    return f"a tone{number % 11} dog{number % 7} on mat{number % 97} cloth{number}"


def numbered_parse(number):
    caption = numbered_caption(number)
    words = caption.split(" ")
    starts = np.cumsum([0, *(len(word) + 1 for word in words)]).tolist()
    spans = [(start, start + len(word)) for start, word in zip(starts, words)]
    leaves = [Tree(tag, (word,)) for tag, word in zip(("DT", "JJ", "NN", "IN", "NN", "NN"), words)]
    place = Tree("PP", (leaves[3], Tree("NP", tuple(leaves[4:]))))
    tree = Tree("NP", (Tree("NP", tuple(leaves[:3])), place))
    return Parse(caption, tuple(map(Word, words, spans)), tree, parser="numbers")


def numbered_parses(numbers):
    return map(numbered_parse, numbers)


def numbered_part(numbers, parses=None, named=True):
    captions = [numbered_caption(number) for number in numbers]
    ids = [f"id {number}" if named else "" for number in numbers]
    images = [f"{number // 3}.jpg" for number in numbers]
    return GraphPart(captions, images, ids, parses or partial(numbered_parses, numbers))


def same_files(folder, other):
    return all((folder / name).read_bytes() == (other / name).read_bytes() for name in FILES)


@pytest.mark.parametrize("named", [True, False])
@pytest.mark.parametrize("ends", [[60], [1, 3, 30, 30, 60], [*range(0, 61, 7), 60]])
def test_write_graph_parts_writes_what_write_graph_writes_of_all(named, ends, tmp_path, monkeypatch):
    monkeypatch.setattr(graphs, "_ROWS", 25)  # tables have several groups of rows
    monkeypatch.setattr(graphs, "_BLOCK", 16)
    parses = list(numbered_parses(range(60)))
    parses[10] = parse(["run away"], "rules", progress=False)[0]
    parses[40] = parse([" "], "rules", progress=False)[0]
    whole = numbered_part(range(60), named=named)
    once = write_graph(tmp_path / "once", build_graph(parses, whole.images, whole.ids))
    parts = []
    for start, end in zip([0, *ends], ends):
        texts = [parse.caption for parse in parses[start:end]]
        parts.append(
            GraphPart(texts, whole.images[start:end], whole.ids[start:end], lambda k=start, n=end: parses[k:n])
        )
    header = write_graph_parts(tmp_path / "parts", parts)
    assert same_files(once, tmp_path / "parts")
    assert header.report.captions == 59 and header.report.counts == {
        "without a noun": 1,
        "without a tree": 1,
        "left out": 1,
    }
    assert [path.name for path in sorted(tmp_path.iterdir())] == ["once", "parts"]


def test_write_graph_parts_of_no_captions_is_an_empty_graph(tmp_path):
    write_graph_parts(tmp_path / "parts", [])
    assert same_files(write_graph(tmp_path / "once", build_graph([])), tmp_path / "parts")


def killed_parses(numbers):
    os.kill(os.getpid(), signal.SIGKILL)


def killed_build(folder):
    parts = [numbered_part(range(20)), numbered_part(range(20, 40)), numbered_part(range(40, 60), dict)]
    parts[2] = numbered_part(range(40, 60), partial(killed_parses, range(40, 60)))
    write_graph_parts(folder, parts)


@pytest.mark.parametrize("changed", ["nothing", "a damaged part", "a missing part", "another caption"])
def test_write_graph_parts_goes_on_after_a_kill(changed, tmp_path):
    folder = tmp_path / "graph"
    process = multiprocessing.get_context("fork").Process(target=killed_build, args=(folder,))
    process.start()
    process.join()
    assert process.exitcode == -signal.SIGKILL and not folder.exists()
    work = tmp_path / ".graph.parts"
    built = []

    def counted(numbers):
        built.append(numbers.start)
        return numbered_parses(numbers)

    numbers = [range(20), range(20, 40), range(40, 60)]
    if changed == "a damaged part":
        content = (work / "000000" / "parts.parquet").read_bytes()
        (work / "000000" / "parts.parquet").write_bytes(content[:-9] + b"?" + content[-8:])
    if changed == "a missing part":
        (work / "000001" / "concepts.parquet").unlink()
    if changed == "another caption":
        numbers[1] = range(21, 41)
    write_graph_parts(folder, [numbered_part(each, partial(counted, each)) for each in numbers])
    also = {"nothing": [], "a damaged part": [0], "a missing part": [20], "another caption": [21]}[changed]
    assert built == [*also, 40] and not work.exists()
    parses = [parse for each in numbers for parse in numbered_parses(each)]
    parts = [numbered_part(each) for each in numbers]
    images, ids = ([value for part in parts for value in getattr(part, name)] for name in ("images", "ids"))
    assert same_files(write_graph(tmp_path / "once", build_graph(parses, images, ids)), folder)


def test_write_graph_parts_is_for_one_process_and_leaves_nothing_behind_an_error(tmp_path):
    def second():
        with pytest.raises(RequestError, match="graph is being built by another process; wait for it, stop it, or"):
            write_graph_parts(tmp_path / "graph", [numbered_part(range(2))])
        return numbered_parses(range(2))

    write_graph_parts(tmp_path / "graph", [numbered_part(range(2), second)])
    with pytest.raises(ZeroDivisionError):
        write_graph_parts(tmp_path / "other", [numbered_part(range(2), lambda: 1 / 0)])
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "a.jpg").write_bytes(b"a photo")
    with pytest.raises(FileExistsError, match="photos holds other files"):
        write_graph_parts(tmp_path / "photos", [])
    assert [path.name for path in sorted(tmp_path.iterdir())] == ["graph", "photos"]


PEAK = """
import resource, sys
sys.path[:0] = {paths!r}
import test_language_concepts as tests
tests.graphs._ROWS = 2048  # what is held of a table is held from the first size on
peaks = []
for n in (3_000, 12_000):
    numbers = [range(start, start + 500) for start in range(0, n, 500)]
    tests.write_graph_parts({folder!r}, map(tests.numbered_part, numbers))
    peaks.append(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
print((peaks[1] - peaks[0]) * 1024 / 9_000)
"""


def test_write_graph_parts_needs_under_400_bytes_of_memory_for_a_further_caption(tmp_path):
    paths = [str(Path(__file__).parent), *sys.path]
    code = PEAK.format(paths=paths, folder=str(tmp_path / "graph"))
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=os.environ | {"COMPLEARN_TYPECHECK": ""}
    )
    assert done.returncode == 0, done.stderr
    assert float(done.stdout) < 400  # bytes; 1,100 when all captions were held


def test_trees_that_do_not_fit_are_counted_and_replaced(tmp_path):
    captions = ["two dogs run", "a cat sleeps", "a man runs", "run away", ""]
    lines = ["(S (NP (CD two) (NNS dogs)) (VP (VBP run)))", "(NP (DT the) (NN dog))", "(S (NP (NN man)"]
    lines += ["(S (VP (VB run) (RB away)))", "(X ())"]
    (tmp_path / "trees.txt").write_text("\n".join(lines))
    parses = parse(captions, "brackets", path=str(tmp_path / "trees.txt"))
    graph = build_graph(parses)
    assert graph.report.captions == 4
    assert graph.report.counts == {"without a tree": 3, "left out": 1, "without a noun": 1}
    assert "trees.txt line 2: leaf 0 is 'the'" in str(graph.report) and "line 3: '(' at character" in str(graph.report)
    assert denotation(graph, "a cat") == ["1"]
    assert build_graph(parses, flat=False).report.captions == 2
    with pytest.raises(ValueError, match="shorter"):
        build_graph(parses, ["1"])


def test_captions_without_a_model_are_parsed_by_rules():
    parses = parse(["Two dogs on the grass.", " "], "rules", progress=False)
    assert [bool(each.error) for each in parses] == [False, True]
    assert build_graph(parses[:1]).predicates["text"].tolist() == ["[NP] on [NP]", "two [NN]", "the [NN]"]


def test_the_captions_of_a_concept_are_those_of_its_lines(graph):
    assert mentions(graph, "the grass").values.tolist() == [
        ["a", "1", graph.texts[0][0]],
        ["c", "3", "a dog on the grass"],
    ]
    assert mentions(graph, "the grass", "[NP] on [NP]")["id"].tolist() == ["c"]
    for text in graph.places:
        assert list(dict.fromkeys(mentions(graph, text)["image"])) == denotation(graph, text)
        used = set(wholes(graph, text, 99)["predicate"])
        ids = [set(mentions(graph, text, predicate)["id"]) for predicate in used]
        assert not used or set.union(*ids) <= set(mentions(graph, text)["id"])
    with pytest.raises(ValueError, match="no predicate around 'the grass' .*; there are"):
        mentions(graph, "the grass", "[NP] under [NP]")
    with pytest.raises(ValueError, match=r"in Python with search_concepts\(graph, 'grass'\)"):
        mentions(graph, "purple grass")


@pytest.mark.parametrize(
    "nested",
    [
        "(PP (IN In) (NP (NP (NN front)) (PP (IN of) (NP (DT a) (NN house)))))",
        "(PP (IN In) (NP (NN front) (PP (IN of) (NP (DT a) (NN house)))))",
        "(PP (IN In) (NN front) (IN of) (NP (DT a) (NN house)))",
    ],
)
def test_in_front_of_is_one_relation_however_a_tree_nests_it(nested):
    tree = parse_bracketed(f"(NP (NP (DT a) (NN dog)) {nested})")
    concepts = find_concepts(tree)
    words = tree.leaves()
    said = [" ".join(words[concept.start : concept.stop]) for concept in concepts]
    assert said == ["a dog In front of a house", "a dog", "dog", "a house", "house"]
    assert find_predicates(concepts, words)[0] == "[NP] in front of [NP]"


def test_the_front_of_a_house_is_a_thing():
    tree = parse_bracketed("(NP (NP (DT the) (NN front)) (PP (IN of) (NP (DT a) (NN house))))")
    concepts = find_concepts(tree)
    assert find_predicates(concepts, tree.leaves())[0] == "[NP] of [NP]"
    assert [concept.label for concept in concepts if concept.primitive] == ["NN", "NN"]


NESTED = {  # the same words and noun phrases under trees of three shapes
    "[0, [1, 2]]": "(NP (NP (DT a) (NN {})) (PP (IN on) (NP (NP (JJ green) (NN grass)) (PP (IN by) (NP (NNS firs))))))",
    "[[0, 1], 2]": "(S (NP (NP (DT a) (NN {})) (PP (IN on) (NP (JJ green) (NN grass)))) (VP (VBZ is) (NP (NNS firs))))",
    "[0, 1, 2]": "(S (NP (DT a) (NN {})) (VP (IN on) (NP (JJ green) (NN grass)) (PP (IN near) (NP (NNS firs)))) (. .))",
}


def noun_phrases(structure):
    parts, places = _noun_chunks(structure)
    return [" ".join(parts[place].leaves()) for place in places]


@pytest.mark.parametrize("own", NESTED)
def test_a_foreign_tree_keeps_noun_phrases_and_has_the_shape_of_another_caption(own):
    structures = {
        f"{noun} {shape}": parse_bracketed(text.format(noun))
        for shape, text in NESTED.items()
        for noun in ("dog", "cat", "cow")
    }
    shapes = tree_shapes(structures.values())
    assert shapes == {3: dict.fromkeys(NESTED, 3)}
    drawn = Counter()
    for seed in range(300):
        structure = structures[f"dog {own}"]
        changed = rebracketed("a dog", structure, "foreign", seed, shapes)
        assert changed.leaves() == structure.leaves() and noun_phrases(changed) == noun_phrases(structure)
        assert tree_shape(changed) == foreign_shape("a dog", structure, shapes, seed)
        assert changed == rebracketed("a dog", structure, "foreign", seed, shapes), "the same each time"
        drawn[tree_shape(changed)] += 1
    # eight other captions, two of which have its own shape
    assert all(abs(count / 300 - (2 if shape == own else 3) / 8) < 0.1 for shape, count in drawn.items())


def test_a_tree_whose_words_have_no_tags_keeps_its_words():
    structure = parse_bracketed("(S (NP a dog) (VP sits (PP on (NP a log))))")
    for how in ("random", "chunks", "foreign"):
        assert rebracketed("a dog", structure, how).leaves() == structure.leaves()


def test_a_caption_alone_with_its_number_of_noun_phrases_keeps_its_tree():
    structure = parse_bracketed(NESTED["[0, [1, 2]]"].format("dog"))
    for shapes in ({}, {4: {"[0, 1, 2, 3]": 7}}, {3: {"[0, [1, 2]]": 1}}):
        assert foreign_shape("a dog", structure, shapes) is None
        assert rebracketed("a dog", structure, "foreign", shapes=shapes) is structure
    pair = parse_bracketed("(S (NP (DT a) (NN dog)) (VP (VBZ is) (PP (IN on) (NP (NN grass)))))")
    joined = rebracketed("a dog", pair, "foreign", shapes={})
    assert str(joined) == "(S (NP (DT a) (NN dog)) (VBZ is) (IN on) (NP (NN grass)))", "two can be joined in one way"


@pytest.mark.parametrize(
    "text, shape",
    [
        ("(S (VB run))", "[]"),
        ("(NP (NN dog))", "[0]"),
        (
            "(S (NP (DT a) (NN dog)) (, ,) (NP (NP (DT a) (NN cat) (, ,)) (CC and) (NP (DT a) (NN cow))) (. .))",
            "[0, [1, 2]]",
        ),
        ("(NP (NP (DT a) (NN dog)) (PP (IN in) (NP (NP (NN front)) (PP (IN of) (NP (DT a) (NN house))))))", "[0, 1]"),
    ],
)
def test_a_shape_knows_no_marks_and_no_in_front_of(text, shape):
    structure = parse_bracketed(text)
    assert tree_shape(structure) == shape
    for how in ("random", "chunks", "foreign"):
        changed = rebracketed("it", structure, how)
        assert changed.leaves() == structure.leaves() and noun_phrases(changed) == noun_phrases(structure)


@pytest.mark.parametrize(
    "shape",
    [
        "[0, 1]",
        "[0, 1, 2, 3]",
        "[0, [1], 2]",
        "[1, 0, 2]",
        "[0, 1, 2",
        "0, 1, 2",
        "[[0, 1, 2]]",
        "[0, x, 2]",
        "[0, null, 2]",
    ],
)
def test_a_shape_that_joins_something_else_is_named(shape):
    check_shapes({3: {"[0, [1, 2]]": 5}})
    with pytest.raises(ValueError, match=re.escape(repr(shape)) + " is no shape of 3 noun phrases"):
        check_shapes({3: {shape: 1}})


def test_the_shapes_of_photo_captions_are_whole():
    shapes = caption_shapes()
    check_shapes(shapes)
    assert sorted(shapes) == [3, 4, 5, 6, 7] and sum(shapes[3].values()) == 12139


def test_captions_of_a_concept_are_counted_once():
    """ "a dog next to a dog" is one caption with a dog in it."""
    twice = "(NP (NP (DT a) (NN dog)) (PP (JJ next) (TO to) (NP (DT a) (NN dog))))"
    graph = build_graph(parsed(twice, "(NP (DT a) (NN dog))"))
    table = unseen(build_graph(parsed(DOGS)), graph, "primitives")
    assert table.values.tolist() == [["dog", 2]]
    nodes = [data for _, data in graph_network(graph).nodes(data=True) if data["kind"] == "predicate"]
    assert sorted(data["captions"] for data in nodes) == [1, 2]


def test_a_caption_with_an_accent_that_is_a_sign_gets_a_flat_tree():
    graph = build_graph([Parse("A man\u2019s cafe\u0301 \u2764\ufe0f", error="none")])
    assert graph.report.captions == 1 and len(graph.concepts)

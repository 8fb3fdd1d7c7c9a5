"""What a concept graph counts: forms that are one, probabilities against sets of images, triples, the whole network."""

import json
import math
from itertools import permutations

import networkx as nx
import numpy as np
import pytest

from complearn.core.config import RequestError
from complearn.core.seeds import rng
from complearn.language.concepts.denotations import denotation
from complearn.language.concepts.forms import merge_forms, word_forms
from complearn.language.concepts.graph import build_graph, read_graph, write_graph
from complearn.language.concepts.networks import graph_network, write_network
from complearn.language.concepts.probabilities import entailments, phrase_associations, phrase_table
from complearn.language.concepts.triples import predicate_roles, relation_triples
from complearn.language.parsing.brackets import tree_parse
from complearn.language.trees import parse_bracketed


def parsed(*texts):
    return [tree_parse(" ".join(tree.leaves()), tree) for tree in map(parse_bracketed, texts)]


def sentence(subject, verb, place):
    """The tree of `a dog runs on the grass`: determiner and noun, verb, determiner and noun."""
    nouns = [f"(NP (DT {determiner}) (NN {noun}))" for determiner, noun in (subject, place)]
    return f"(S {nouns[0]} (VP (VBZ {verb}) (PP (IN on) {nouns[1]})))"


@pytest.fixture(scope="module")
def graph():
    """60 captions of 25 images, in which the same few things do the same few things."""
    draw = rng(0, "denotations")
    subjects = [("a", "dog"), ("the", "dog"), ("the", "dogs"), ("a", "cat"), ("a", "man")]
    verbs = ["runs", "run", "sits", "sleeping"]
    places = [("the", "grass"), ("a", "mat"), ("the", "mats")]
    texts = []
    for _ in range(60):
        subject, verb, place = (options[draw.integers(len(options))] for options in (subjects, verbs, places))
        texts.append(sentence(subject, verb, place))
    return build_graph(parsed(*texts), [f"{draw.integers(25)}.jpg" for _ in texts])


def image_sets(graph):
    """The images of each phrase, one caption after the other."""
    sets = {}
    images = graph.captions["image"].tolist()
    for line in graph.parts.itertuples(index=False):
        sets.setdefault(graph.texts[0][line.concept], set()).add(images[line.caption])
    return sets


def test_phrase_table_counts_sets_of_images_and_captions(graph):
    sets = image_sets(graph)
    n_images = graph.captions["image"].nunique()
    table = phrase_table(graph).set_index("phrase")
    assert table["images"].to_dict() == {phrase: len(images) for phrase, images in sets.items()}
    for phrase, images in sets.items():
        assert table.loc[phrase, "probability"] == len(images) / n_images
        lines = [line for number in graph.places[phrase] for line in graph.lines(number)]
        n_captions = len(set(graph.parts["caption"].to_numpy()[lines].tolist()))
        assert table.loc[phrase, "caption_share"] == n_captions / len(graph.captions)
    assert phrase_table(graph)["images"].is_monotonic_decreasing
    assert phrase_table(graph, least=5)["images"].min() >= 5


@pytest.mark.parametrize("block", [2, 512])
def test_entailments_and_associations_are_those_of_sets(graph, block, monkeypatch):
    monkeypatch.setattr("complearn.language.concepts.probabilities._BLOCK", block)
    sets = image_sets(graph)
    n = graph.captions["image"].nunique()
    expected = {}
    pmi = {}
    for premise, hypothesis in permutations(sets, 2):
        both = len(sets[premise] & sets[hypothesis])
        if both >= 3:
            pmi[premise, hypothesis] = math.log(both * n / (len(sets[premise]) * len(sets[hypothesis])))
            if both / len(sets[premise]) >= 0.6:
                expected[premise, hypothesis] = both / len(sets[premise])
    table = entailments(graph, threshold=0.6, least=3, parts=True)
    found = table.set_index(["premise", "hypothesis"])["probability"].to_dict()
    assert found == expected and len(found) > 20
    pairs = phrase_associations(graph, least=3, parts=True)
    assert len(pairs) == len(pmi) // 2
    for row in pairs.itertuples(index=False):
        assert np.isclose(row.pmi, pmi[row.phrase, row.other])
        both = len(sets[row.phrase] & sets[row.other])
        assert row.images == both and np.isclose(row.normalized_pmi, row.pmi / -math.log(both / n))


def test_entailments_leave_out_what_holds_by_the_words(graph):
    without = {tuple(row) for row in entailments(graph, 0.6, 3)[["premise", "hypothesis"]].itertuples(index=False)}
    everything = entailments(graph, 0.6, 3, parts=True)
    for premise, hypothesis in everything[["premise", "hypothesis"]].itertuples(index=False):
        assert ((premise, hypothesis) in without) == (f" {hypothesis} " not in f" {premise} ")
    with pytest.raises(RequestError, match="above 0 and up to 1, not 0"):
        entailments(graph, 0)
    with pytest.raises(RequestError, match="at least 1, not 0"):
        phrase_associations(graph, 0)


def test_a_share_at_the_threshold_is_enough():
    """.55 times 100 is more than 55 for a computer."""
    dog, cat = ("(NP (DT a) (NN dog))", "(NP (DT a) (NN cat))")
    texts = [dog] * 100 + [cat] * 55
    graph = build_graph(parsed(*texts), [f"{k}.jpg" for k in (*range(100), *range(55))])
    table = entailments(graph, threshold=0.55).set_index(["premise", "hypothesis"])["probability"]
    assert table["a dog", "a cat"] == 0.55


def test_phrases_that_every_image_shows_have_nothing_to_say():
    pairs = phrase_associations(build_graph(parsed(*["(NP (DT a) (NML (NN ice) (NN cream)) (NN truck))"] * 5)))
    assert pairs.loc[pairs["phrase"] == "ice", "normalized_pmi"].tolist() == [0, 0]


@pytest.mark.parametrize(
    "merge, same, apart",
    [
        ("number", ["the dog", "the dogs"], ["a dog"]),
        ("lemmas", ["the mat", "the mats"], ["a mat"]),
        ("articles", ["a dog", "the dog", "the dogs"], ["a cat"]),
    ],
)
def test_merge_forms_joins_the_images_of_forms(merge, same, apart, graph):
    sets = image_sets(graph)
    merged = merge_forms(graph, merge)
    images = set().union(*(sets.get(phrase, set()) for phrase in same))
    for phrase in same:
        if phrase in graph.places:
            assert set(denotation(merged, phrase)) == images
    for phrase in apart:
        assert set(denotation(merged, phrase)) >= sets[phrase]
        assert merged.places[phrase] != merged.places[same[0] if same[0] in graph.places else same[1]]
    assert phrase_table(merged)["images"].max() >= phrase_table(graph)["images"].max()
    assert len(merged.captions) == len(graph.captions) and len(merged.parts) == len(graph.parts)


def test_word_forms_merges_no_words_that_are_not_forms():
    texts = [
        "(S (NP (DT a) (NN piece)) (VP (PP (IN of) (NP (NN clothing)))))",
        "(S (NP (DT a) (NN piece)) (VP (PP (IN of) (NP (NN cloth)))))",
        "(S (NP (DT a) (NN glass)) (VP (VBZ stands)))",
        "(S (NP (NNS glasses)) (VP (VBP stand)))",
        "(S (NP (DT a) (NN boy)) (VP (VBZ eats) (NP (NN grass))))",
        "(S (NP (NNS boys)) (VP (VBD ate) (NP (NN grass))))",
        "(S (NP (NNS boys)) (VP (VBP are) (VP (VBG eating) (NP (NN grass)))))",
        "(S (NP (DT a) (NN boy)) (VP (VBZ carries) (NP (NN grass))))",
        "(S (NP (NNS boys)) (VP (VBG carrying) (NP (NN grass))))",
    ]
    graph = build_graph(parsed(*texts))
    assert word_forms(graph, "number") == {
        "boys": "boy",
        "stands": "stand",
        **dict.fromkeys(("am", "is", "are"), "be"),
    }
    lemmas = word_forms(graph, "lemmas")
    assert {lemmas[word] for word in ("eats", "ate", "eating")} == {"eat"}
    assert {lemmas[word] for word in ("carries", "carrying")} == {"carry"}
    assert not {"clothing", "glasses", "grass"} & set(lemmas)
    with pytest.raises(RequestError, match="number, lemmas, articles"):
        word_forms(graph, "stems")


def test_a_merged_graph_is_a_graph_that_can_be_written(graph, tmp_path):
    merged = merge_forms(graph, "articles")
    again = read_graph(write_graph(tmp_path / "graph", merged))
    assert phrase_table(again).equals(phrase_table(merged))


@pytest.mark.parametrize(
    "predicate, roles",
    [
        ("[NP] are running on [NP]", [(0, "are running on", 1)]),
        ("[NP] chases [NP] on [NP] near [NP]", [(0, "chases", 1), (0, "on", 2), (0, "near", 3)]),
        ("[NP] , [NP] and [NP] sit", []),
        ("[NP] , [NP] and [NP] sit on [NP]", [(0, "sit on", 3), (1, "sit on", 3), (2, "sit on", 3)]),
        ("[NP] holding [NP] , [NP]", [(0, "holding", 1), (0, "holding", 2)]),
        ("[NP] [SBAR] on [NP]", [(0, "on", 2)]),
        ("an [NN] [NN] and the [NN] on [NP]", [(1, "on", 3), (2, "on", 3)]),
        ("[NP] on an [NN] [NN] near [NP]", [(0, "on", 2), (0, "near", 3)]),
        ("while it rains [NP] , runs on [NP]", [(0, "runs on", 1)]),
        ("a [NN] [NN]", []),
        ("[NP] near a [NN] on [NP]", [(0, "near", 1), (0, "on", 2)]),
        ("a [NN] of [NN]", [(0, "of", 1)]),
        ("[NP] the [NP] on [NP]", [(0, "on", 2)]),
        ("runs away", []),
    ],
)
def test_predicate_roles(predicate, roles):
    assert predicate_roles(predicate) == roles


def test_relation_triples_name_heads_and_count_captions_and_images():
    nested = "(S (NP (NP (DT a) (NN dog)) (PP (IN in) (NP (DT a) (NN hat)))) (VP (VBZ sees) (NP (DT a) (NN cat))))"
    twice = "(NP (NP (DT a) (NN dog)) (PP (IN in) (NP (DT a) (NN hat))))"
    graph = build_graph(parsed(nested, twice, twice), ["1", "1", "2"])
    assert relation_triples(graph).values.tolist() == [
        ["a dog", "in", "a hat", 3, 2],
        ["a dog", "sees", "a cat", 1, 1],
    ]
    whole = relation_triples(graph, whole=True)
    assert ["a dog in a hat", "sees", "a cat", 1, 1] in whole.values.tolist()


@pytest.mark.parametrize("name", ["graph.graphml", "graph.json"])
def test_a_network_comes_back_from_its_file(name, graph, tmp_path):
    merged = merge_forms(graph, "number")
    network = graph_network(merged, entailments(merged, 0.6, 3))
    kinds = nx.get_edge_attributes(network, "kind").values()
    assert set(kinds) == {"composition", "part", "entails"}
    concepts = {data["text"]: data for _, data in network.nodes(data=True) if data["kind"] != "predicate"}
    table = phrase_table(merged).set_index("phrase")
    assert concepts["the grass"]["probability"] == table.loc["the grass", "probability"]
    path = write_network(tmp_path / name, network)
    if name.endswith("json"):
        again = nx.node_link_graph(json.loads(path.read_text()), edges="edges")
    else:
        again = nx.read_graphml(path, force_multigraph=True)
    assert dict(again.nodes(data=True)) == dict(network.nodes(data=True))
    edges = [
        sorted(each.edges(data=True), key=lambda edge: (edge[:2], str(sorted(edge[2].items()))))
        for each in (again, network)
    ]
    assert [(a, b, {k: v for k, v in d.items() if k != "id"}) for a, b, d in edges[0]] == edges[1]


def test_a_part_that_comes_twice_has_two_edges_and_control_characters_no_place_in_xml(tmp_path):
    twice = "(NP (NP (DT a) (NN dog\x07)) (CC and) (NP (DT a) (NN dog\x07)))"
    network = graph_network(build_graph(parsed(twice)))
    places = sorted(data["place"] for *_, data in network.edges(data=True) if data["kind"] == "part")
    assert places == [0, 0, 1]
    again = nx.read_graphml(write_network(tmp_path / "graph.graphml", network), force_multigraph=True)
    assert "a dog" in nx.get_node_attributes(again, "text").values()
    with pytest.raises(RequestError, match=r"\.graphml or \.json"):
        write_network(tmp_path / "graph.gexf", network)

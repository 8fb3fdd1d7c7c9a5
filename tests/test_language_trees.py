"Trees: reading and writing brackets, word ranges, and what a broken bracket says."

import pytest
from hypothesis import given, settings, strategies as st

from complearn.language.trees import Tree, parse_bracketed, walk

WORDS = st.text("abcxyz()'-0,.", min_size=1, max_size=6).filter(lambda w: "-LRB-" not in w and "-RRB-" not in w)
LABELS = st.sampled_from(["S", "NP", "VP", "PP", "NN", "-NONE-", "WHNP-1"])
TREES = st.recursive(
    st.builds(lambda label, word: Tree(label, (word,)), LABELS, WORDS),
    lambda inner: st.builds(
        lambda label, children: Tree(label, tuple(children)), LABELS, st.lists(inner | WORDS, min_size=1, max_size=4)
    ),
    max_leaves=15,
)


@settings(max_examples=150, deadline=None)
@given(TREES)
def test_brackets_round_trip(tree):
    assert parse_bracketed(str(tree)) == tree
    assert parse_bracketed("\n  ".join(str(tree).split(" "))) == tree


@settings(max_examples=100, deadline=None)
@given(TREES)
def test_spans_are_nested_ranges_of_the_leaves(tree):
    words = tree.leaves()
    assert tree.spans()[0] == (tree.label, 0, len(words))
    for node, start, stop in walk(tree):
        assert node.leaves() == words[start:stop]


def test_treebank_file_without_a_label():
    assert parse_bracketed("( (S (NN a)))") == Tree("ROOT", (Tree("S", (Tree("NN", ("a",)),)),))


def test_deep_trees_are_read_without_recursion():
    tree = parse_bracketed("(X " * 5000 + "a" + ")" * 5000)
    for _ in range(4999):
        tree = tree.children[0]
    assert tree == Tree("X", ("a",))


@pytest.mark.parametrize(
    "text, says",
    [
        ("", "empty"),
        ("dog", "character 0: expected '\\('"),
        ("(NP (NN dog)", "character 0 is never closed"),
        ("(NP (NN dog)))", "character 13"),
        ("(NP dog) (NP cat)", "character 9: '\\(' follows"),
        ("(NP ())", "character 4: the bracket holds no word"),
        ("(NP)", "holds no word"),
    ],
)
def test_broken_brackets_are_named(text, says):
    with pytest.raises(ValueError, match=says):
        parse_bracketed(text)

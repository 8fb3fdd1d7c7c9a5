"""Word lists, ratings and norms: what is read, and what is said of files that are not as they should be."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from complearn.data.fixtures.specimens import SPECIMENS
from complearn.data.lexicons import lexicon as wordlists
from complearn.data.lexicons.formats import (
    _word_list_fault,
    category_norms,
    count_occurrences,
    coverage,
    join_norms,
    read_categories,
    read_concreteness,
    read_norms,
    read_sensorimotor,
    sense_norms,
)
from complearn.data.lexicons.lexicon import open_lexicon
from complearn.data.reports import BadData


def test_categories_count_a_word_once_and_say_so(tmp_path):
    (tmp_path / "big_cats-4.txt").write_text("Lion\ntiger\nlion\n\n")
    (tmp_path / "fruit.txt").write_text("apple\n")
    found, notes = read_categories(tmp_path)
    assert found == {"big cats": ("lion", "tiger"), "fruit": ("apple",)}
    assert len(notes) == 2 and "lion" in notes[0] and "3 words, not as many" in notes[1]


def test_faults_of_a_category_folder_are_named(tmp_path):
    with pytest.raises(FileNotFoundError, match="nowhere is not a folder.*a word per line"):
        read_categories(tmp_path / "nowhere")
    with pytest.raises(BadData, match="holds no .txt file"):
        read_categories(tmp_path)
    (tmp_path / "empty-0.txt").write_text("\n \n")
    with pytest.raises(BadData, match="empty-0.txt holds no word"):
        read_categories(tmp_path)
    (tmp_path / "empty-0.txt").unlink()
    (tmp_path / "cats-1.txt").write_text("lion\n")
    (tmp_path / "cats.txt").write_text("tiger\n")
    with pytest.raises(BadData, match="second file of the category 'cats'"):
        read_categories(tmp_path)


NOT_UTF8 = [("categories", "semcat/animal-2.txt", 1), ("concreteness", "concreteness.tsv", 2),
    ("sensorimotor", "senses.csv", 2),
            ("norms", "norms.dat", 2), ("wordnet", "index.noun", 4)]  # fmt: skip


@pytest.mark.parametrize("name, file, line", NOT_UTF8)
def test_a_line_that_is_not_utf8_is_named(tmp_path, name, file, line):
    SPECIMENS[name].write(tmp_path)
    lines = (tmp_path / file).read_bytes().split(b"\n")
    lines[line - 1] = b"\xe9" + lines[line - 1]
    (tmp_path / file).write_bytes(b"\n".join(lines))
    with pytest.raises(BadData, match=f"{Path(file).name} line {line}: not UTF-8 .byte 0xe9.; save the file as UTF-8"):
        SPECIMENS[name].read(tmp_path)


@pytest.mark.parametrize("file, old, new, message", [("index.noun", "animal n 1", "animal n x", "index.noun, the line "
                                                                                                "of 'animal'"),
                                                      ("data.noun", " n 01 entity", " n zz entity", "data.noun at byte "
                                                                                                    "0")])  # fmt: skip
def test_a_broken_line_of_wordnet_is_named(tmp_path, file, old, new, message):
    SPECIMENS["wordnet"].write(tmp_path)
    text = (tmp_path / file).read_text()
    assert old in text
    (tmp_path / file).write_text(text.replace(old, new))
    with pytest.raises(BadData, match=message):
        SPECIMENS["wordnet"].read(tmp_path)


def test_ratings_of_either_format(tmp_path):
    (tmp_path / "a.tsv").write_text(
        'Word\tBigram\tConc.M\nZebra\t0\t4.86\nnull\t0\t2.0\nnan\t0\t4.0\n"quote\t0\t1.5\nsnark\t0\t\n'
    )
    assert read_concreteness(tmp_path / "a.tsv").to_dict() == {"zebra": 4.86, "null": 2.0, "nan": 4.0, '"quote': 1.5}
    (tmp_path / "b.csv").write_text('Word,Concreteness,Brysbaert\n"a, b",4.1,\nzebra,1,4.86\n')
    assert read_concreteness(tmp_path / "b.csv").to_dict() == {"zebra": 4.86}, (
        "the published column goes before a derived one"
    )


def test_upper_and_lower_case_are_one_word_and_the_first_line_counts(tmp_path):
    (tmp_path / "a.tsv").write_text("Word\tConc.M\nMay\t2.0\nmay\t1.5\n")
    assert read_concreteness(tmp_path / "a.tsv").to_dict() == {"may": 2.0}


def test_lines_end_at_line_feeds_and_cells_may_be_quoted(tmp_path):
    (tmp_path / "a.tsv").write_text(
        "Word\tNote\tConc.M\nfire\u2028fly\ta\x0cb\x1c\t4.5\n\nzebra\t\t4.86\r\n", newline=""
    )
    assert read_concreteness(tmp_path / "a.tsv").to_dict() == {"fire\u2028fly": 4.5, "zebra": 4.86}
    (tmp_path / "b.csv").write_text('Word,Note,Brysbaert\nzebra,"striped,\n\u2028and ""wild""",4.86\nhorse,,high\n')
    with pytest.raises(BadData, match="line 4: Brysbaert of 'horse' is 'high'"):
        read_concreteness(tmp_path / "b.csv")
    (tmp_path / "c.csv").write_text('Word,Brysbaert\nzebra,"4.86\nhorse,4\n')
    with pytest.raises(BadData, match="c.csv: no table.*quotation mark"):
        read_concreteness(tmp_path / "c.csv")
    (tmp_path / "cats-2.txt").write_text("lion\x0c\nbig\u2028cat\n")
    assert read_categories(tmp_path)[0] == {"cats": ("lion", "big\u2028cat")}


def test_only_lists_of_words_are_categories(tmp_path):
    (tmp_path / "README.txt").write_text("zebra\n")
    (tmp_path / "concreteness.txt").write_text("Word\tConc.M\nzebra\t4.86\nmercy\t1.6\n")
    (tmp_path / "plain.txt").write_text("zebra 4.86\nmercy 1.6\n")
    (tmp_path / "prose.txt").write_text("These ratings were collected by many people.\n\nUse them well.\n")
    with pytest.raises(BadData, match="lists a category's words.*README.txt: left out.*one text file per category"):
        open_lexicon(tmp_path)
    (tmp_path / "animal-2.txt").write_text("zebra\nboeing 747\n")
    found = open_lexicon(tmp_path)
    assert [*found.categories] == ["animal"] and found.concreteness["mercy"] == 1.6
    assert _word_list_fault("license-plates-40", ["zebra"]) is None
    assert _word_list_fault("LICENSE.txt", ["zebra"]) and _word_list_fault("readme_first", ["zebra"])
    assert [note.split(":")[0] for note in found.notes[:-1]] == [
        "README.txt",
        "concreteness.txt",
        "plain.txt",
        "prose.txt",
    ]


def test_what_is_joined_is_counted_and_named(tmp_path):
    rows = [("bat_(animal)", "has_wings"), ("bat_(sport)", "is_wooden"), ("bat_(sport)", "is_long")]
    rows += [("crane_(bird)", "has_wings"), ("axe", "is_long")]
    lines = ["concept\tfeature type\tfeature", *(f"{name}\tvisual\t{feature}" for name, feature in rows)]
    (tmp_path / "norms.dat").write_text("\n".join(lines))
    (tmp_path / "animal-1.txt").write_text("bat\n")
    (tmp_path / "concreteness.tsv").write_text("Word\tConc.M\nMay\t2.0\nmay\t1.5\nbat\t4\n")
    norms = read_norms(tmp_path)
    assert norms.words == ("axe", "bat", "crane") and norms.has.sum(1).tolist() == [1, 3, 1]
    assert norms.notes == (
        "norms.dat: 1 words with several concepts, which have the features of all: bat (bat_(animal), bat_(sport))",
    )
    notes = open_lexicon(tmp_path).notes
    assert norms.notes[0] in notes and any("1 words stand in several spellings" in note for note in notes)


@pytest.mark.parametrize(
    "text, message",
    [
        ("Word\tScore\nzebra\t1\n", "no column Conc.M or .*its header is Word, Score"),
        ("Item\tConc.M\nzebra\t1\n", "no column Word"),
        ("Word\tConc.M\nzebra\thigh\n", "line 2: Conc.M of 'zebra' is 'high', not a number; 1 such"),
        ("Word\tConc.M\nzebra\t4\nhorse\t5\nzebra\t3\n", "lines 2, 4: 'zebra' has 2 ratings"),
        ("Word\tConc.M\nzebra\t4\textra\n", "line 2: 3 cells, and the header has 2"),
        ("Word\tConc.M\n", "holds 1 lines; expected a header"),
        ("", "holds 0 lines"),
    ],
)
def test_faults_of_ratings_are_named(tmp_path, text, message):
    (tmp_path / "a.tsv").write_text(text)
    with pytest.raises(BadData, match=message):
        read_concreteness(tmp_path / "a.tsv")


def test_missing_ratings(tmp_path):
    with pytest.raises(FileNotFoundError, match="a.tsv does not exist"):
        read_concreteness(tmp_path / "a.tsv")


def test_senses_in_both_published_headers(tmp_path):
    names = ["Auditory", "Gustatory", "Haptic", "Interoceptive", "Olfactory", "Visual"]
    (tmp_path / "a.csv").write_text("Word," + ",".join(names) + "\nzebra,1,0,1,0,1,4.5\nsnark,1,,1,0,1,4\n")
    (tmp_path / "b.csv").write_text(
        "Word," + ",".join(f"{n}.mean" for n in names) + ",Visual.SD\nZEBRA,1,0,1,0,1,4.5,0.2\n"
    )
    for name in ("a.csv", "b.csv"):
        found = read_sensorimotor(tmp_path / name)
        assert list(found.index) == ["zebra"] and found.visual["zebra"] == 4.5
    assert sense_norms(found).has.tolist() == [[False] * 5 + [True]]


def test_norms_of_cslbs_format(tmp_path):
    lines = ["domain\tconcept\tfeature type\tfeature\tpf"]
    lines += [f"x\tthing_{k}\tfunctional\tdoes_cut\t5" for k in range(5)] + [
        "x\tbat_(animal)\tvisual perceptual\thas_wings\t3"
    ] * 2
    (tmp_path / "norms.dat").write_text("\n".join(lines))
    norms = read_norms(tmp_path)
    assert norms.words == ("bat", *(f"thing {k}" for k in range(5))) and norms.features == ("does_cut", "has_wings")
    assert norms.types == ("functional", "visual perceptual") and norms.has.sum(0).tolist() == [5, 1]
    kept = norms.keep(norms.words, least=1)
    assert kept.features == ("does_cut", "has_wings") and norms.keep(norms.words, least=2).features == ()
    with pytest.raises(BadData, match="no column feature type"):
        (tmp_path / "bad").mkdir()
        (tmp_path / "bad" / "norms.dat").write_text("concept\tfeature\na\tb\n")
        read_norms(tmp_path / "bad")


def test_norms_side_by_side_keep_the_words_of_both():
    left = category_norms({"a": ("x", "y"), "b": ("y",)})
    right = sense_norms(pd.DataFrame({"visual": [4.0, 1.0]}, ["y", "z"]))
    both = join_norms(left, right)
    assert both.words == ("y",)
    assert both.has.tolist() == [[True, True, True]]
    assert both.types == ("category", "category", "sense")


def test_coverage_and_counts():
    told = coverage(["a", "b", "a", *map(str, range(20))], {"a"}, "a rating")
    assert told.known == ("a",)
    assert len(told.missing) == 21
    assert "1 of 22 words have a rating; 21 have none (b, 0, 1" in str(told)
    seen = count_occurrences(["red", "fire truck", "Red"], ["Red red fire, truck", "a fire truck"])
    assert seen["red"] == 2 and seen["fire truck"] == 1, "a comma stands between"


def test_a_lexicon_without_anything_is_our_own(monkeypatch):
    monkeypatch.delenv("COMPLEARN_REAL_DATA", raising=False)
    monkeypatch.setattr(wordlists, "packaged_table", lambda name: None)
    found = open_lexicon()
    assert not found.human and found.concreteness["zebra"] == 5 and found.concreteness["mercy"] == 1
    assert set(found.norms.types) == {"category"} and "our own" in found.sources["categories"]
    assert {"zebra", "panda", "plane", "bowl", "strawberry", "puppy", "glacier", "sunny", "summer"} <= set(found.words)
    few = found.few(4, 3)
    assert len(few.categories) == 4 and max(map(len, few.categories.values())) == 3 and "4 of 16" in few.notes[-1]
    with pytest.raises(FileNotFoundError, match="nowhere does not exist; it holds semcat"):
        open_lexicon("nowhere")


@pytest.mark.real
def test_the_published_lists(real_data):
    found = open_lexicon(real_data / "lexicon")
    assert len(found.categories) == 110 and len(found.words) == 6559 and len(found.concreteness) == 39_954
    assert sum(map(len, found.categories.values())) == 10_010 and any("mockingbird" in note for note in found.notes)
    assert "5,623 of 6,559 words have a concreteness rating; 936 have none" in found.notes[-1]
    assert np.isclose(found.concreteness["roadsweeper"], 4.85)

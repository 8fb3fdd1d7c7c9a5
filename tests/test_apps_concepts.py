"""The commands for concept graphs and splits, from a terminal's arguments to files."""

import json
from dataclasses import replace
from functools import partial

import pandas as pd
import pytest

import complearn
from complearn.analysis.trees.figures import lost_words
from complearn.apps.concepts import command
from complearn.apps.concepts.command import _split_remarks, main
from complearn.data.divergence.measure import DivergenceSplit, read_split
from complearn.data.word_tokenizer import WordTokenizer
from complearn.language.concepts.denotations import compositions
from complearn.language.concepts.graph import read_graph
from complearn.language.parsing.registry import read_parses, write_correction
from complearn.training.methods.scales import SCALES
from complearn.training.runs.launch import launch
from complearn.training.runs.study import Study

TREES = {
    "a dog on grass": "(NP (NP (DT a) (NN dog)) (PP (IN on) (NP (NN grass))))",
    "a cat on grass": "(NP (NP (DT a) (NN cat)) (PP (IN on) (NP (NN grass))))",
    "a dog under a cat": "(NP (NP (DT a) (NN dog)) (PP (IN under) (NP (DT a) (NN cat))))",
}


@pytest.fixture
def files(tmp_path, capsys):
    lines = list(TREES)
    (tmp_path / "trees.txt").write_text("\n".join(TREES.values()))
    pd.DataFrame({"image_id": ["1", "2", "2"], "caption": lines}).to_csv(tmp_path / "captions.csv", index=False)
    arguments = ["parse", str(tmp_path / "captions.csv"), str(tmp_path / "parses.jsonl"), "--parser", "brackets"]
    assert main([*arguments, "--settings", f"{{path: {tmp_path / 'trees.txt'}}}"]) == 0
    capsys.readouterr()
    return tmp_path


def test_captions_are_parsed_and_become_a_graph_and_a_split(files, capsys):
    captions = str(files / "captions.csv")
    folder = str(files / "graph")
    assert main(["graph", captions, folder, "--parses", str(files / "parses.jsonl")]) == 0
    assert "3 captions in the graph" in capsys.readouterr().out
    assert (
        read_graph(folder).statistics() | {"images": 2, "predicates": 3, "average height": 2}
        == read_graph(folder).statistics()
    )
    assert main(["split", folder, str(files / "split.json"), "--size", "2"]) == 2  # nothing would be left to train on
    assert "hold a primitive that training would lack" in capsys.readouterr().err
    assert main(["split", folder, str(files / "split.json"), "--train", folder, "--size", "1", "--windows", "2"]) == 0
    assert read_split(files / "split.json").parts["mcd"] in (["1"], ["2"]) and "divergence" in capsys.readouterr().out
    words = [
        "split",
        captions,
        str(files / "words.json"),
        "--train",
        captions,
        "--size",
        "1",
        "--windows",
        "0",
        "--compounds",
        "words",
    ]
    assert main([*words, "--quiet"]) == 0


def test_a_folder_of_photographs_is_never_replaced_by_a_graph(files, capsys, monkeypatch):
    photos = files / "photos"
    photos.mkdir()
    for k in range(4):
        (photos / f"{k}.jpg").write_bytes(b"a photo")
    monkeypatch.setattr(command, "_each_pair", lambda *source: pytest.fail("it is said before captions are read"))
    assert main(["graph", str(files / "captions.csv"), str(photos), "--parser", "rules", "--quiet"]) == 2
    assert "photos holds other files (0.jpg, 1.jpg, 2.jpg, ...); name a new folder" in capsys.readouterr().err
    assert len(list(photos.iterdir())) == 4


@pytest.mark.parametrize("source", ["rules", "parses", "given trees"])
def test_graph_is_the_same_in_portions_and_goes_on_after_a_stop(source, files, monkeypatch):
    captions = str(files / "captions.csv")
    further = []
    if source == "rules":
        further = ["--parser", "rules"]
    if source == "parses":
        further = ["--parses", str(files / "parses.jsonl")]
    if source == "given trees":
        trees = [json.dumps({"caption": caption, "tree": tree}) for caption, tree in TREES.items()]
        (files / "trees.jsonl").write_text("\n".join(trees) + "\n")
        captions = f"{{name: captions, args: {{files: {captions}}}}}"
        captions = f"{{name: corrected, args: {{source: {captions}, file: {files / 'trees.jsonl'}, parser: ''}}}}"
    arguments = ["graph", captions, str(files / "graph"), *further, "--quiet"]
    assert main(arguments) == 0
    once = {path.name: path.read_bytes() for path in (files / "graph").iterdir()}
    monkeypatch.setattr(command, "_CAPTIONS", 2)
    built = []
    prune = command.prune_parse

    def counted(parse, stops, **options):
        if stops and len(built) == 2:
            raise KeyboardInterrupt
        built.append(parse.caption)
        return prune(parse, **options)

    monkeypatch.setattr(command, "prune_parse", partial(counted, stops=True))
    with pytest.raises(KeyboardInterrupt):
        main(arguments)
    monkeypatch.setattr(command, "prune_parse", partial(counted, stops=False))
    assert main(arguments) == 0
    assert len(built) == 3  # the first portion was not parsed again
    assert {path.name: path.read_bytes() for path in (files / "graph").iterdir()} == once


@pytest.mark.parametrize("n_parses", [1, 2, 4, 5])
def test_graph_counts_parses_and_captions_that_differ_in_any_portion(n_parses, files, monkeypatch, capsys):
    monkeypatch.setattr(command, "_CAPTIONS", 1)
    lines = (files / "parses.jsonl").read_text().splitlines()
    (files / "other.jsonl").write_text("\n".join((lines * 2)[:n_parses]))
    arguments = ["graph", str(files / "captions.csv"), str(files / "graph"), "--parses", str(files / "other.jsonl")]
    assert main(arguments) == 2
    assert f"{n_parses} parses for 3 captions; parse that file of captions again" in capsys.readouterr().err


def test_what_training_never_shows_is_listed(files, capsys):
    (files / "new.txt").write_text("a dog above a cat\na dog above grass")
    captions = [str(files / "captions.csv"), str(files / "new.txt"), "--parser", "rules", "--quiet"]
    assert main(["unseen", *captions, "--output", str(files / "unseen.csv")]) == 0
    assert pd.read_csv(files / "unseen.csv").values.tolist() == [["[NP] above [NP]", 2]]
    assert "1 predicates of the test captions are not in training; the most frequent:\n" in capsys.readouterr().out
    assert main(["unseen", *captions, "--kind", "primitives"]) == 0
    # and no empty table
    assert capsys.readouterr().out.splitlines()[-1] == "0 primitives of the test captions are not in training"


def test_a_tree_that_was_corrected_is_used_in_place_of_the_files(files, monkeypatch):
    monkeypatch.setenv("COMPLEARN_CORRECTIONS", str(files / "corrections.jsonl"))
    arguments = [
        "graph",
        *(str(files / name) for name in ("captions.csv", "graph")),
        "--parses",
        str(files / "parses.jsonl"),
    ]
    caption = "a dog on grass"
    assert main(arguments) == 0
    assert compositions(read_graph(files / "graph"), caption)["predicate"].tolist() == ["[NP] on [NP]"]
    (parse,) = read_parses(files / "parses.jsonl")[:1]
    write_correction(files / "corrections.jsonl", parse, "(NP (DT a) (NN dog) (PP (IN on) (NN grass)))")
    assert main(arguments) == 0
    assert compositions(read_graph(files / "graph"), caption)["predicate"].tolist() == ["a [NN] on grass"]


def test_a_folder_of_photos_is_read_as_its_reader_reads_it(album, tmp_path):
    assert main(["graph", str(album), str(tmp_path / "graph"), "--parser", "rules", "--quiet"]) == 0
    images = {pair.image_id for pair in complearn.read(album)}
    assert set(read_graph(tmp_path / "graph").captions["image"]) == images
    photos = ["split", str(album), str(tmp_path / "split.json"), "--size", "5", "--windows", "2", "--parser", "rules"]
    assert main([*photos, "--train", str(tmp_path / "graph"), "--quiet"]) == 0
    assert set(read_split(tmp_path / "split.json").parts["mcd"]) <= images


def test_pruned_trees_make_another_graph(files):
    arguments = ["graph", str(files / "captions.csv"), str(files / "graph"), "--parses", str(files / "parses.jsonl")]
    assert main([*arguments, "--prune", "1.0"]) == 0
    assert read_graph(files / "graph").statistics()["concepts"] == 3  # the sentences alone


@pytest.mark.parametrize(
    "arguments, says",
    [
        (["graph", "{}/absent.csv", "{}/graph"], "does not exist"),
        (["graph", "{}/captions.csv", "{}/graph", "--prune", "30", "--parser", "rules"], "from 0 to 1, not 30"),
        (["graph", "{}/captions.csv", "{}/graph", "--parses", "{}/short.jsonl"], "1 parses for 3 captions"),
        (
            ["graph", "{}/captions.csv", "{}/graph", "--parses", "{}/others.jsonl"],
            "line 2: the parse of 'a cow', and the caption is 'a cat",
        ),
        (["split", "{{name: koko}}", "{}/split.json"], "no reader 'koko'"),
        (["split", "{}/captions.csv", "{}/split.json", "--size", "0", "--parser", "rules"], "size is at least 1"),
        (["unseen", "{}/empty", "{}/captions.csv", "--parser", "rules"], "there is no concept graph in it"),
        (["graph", "{}/empty", "{}/graph"], "'{{name: folder, args: {{folder: "),
        (["graph", "{}", "{}/graph"], "no column 'image' (did you mean 'image_id'?)"),
        (
            ["graph", "{}/captions.csv", "{}/graph", "--parser", "brackets"],
            "then graph CAPTIONS FOLDER --parses parses.jsonl",
        ),
        (
            ["graph", "{}/captions.csv", "{}/graph", "--column", "text"],
            "no column 'text'; there are 'image_id', 'caption'; name the one that holds the captions: --column",
        ),
        (["unseen", "{}/captions.csv", "{}/captions.csv", "--parser", "none"], "no parser 'none'"),
    ],
)
def test_what_cannot_be_done_is_said(arguments, says, files, capsys):
    lines = (files / "parses.jsonl").read_text().splitlines()
    (files / "short.jsonl").write_text(lines[0])
    (files / "empty").mkdir()
    other = json.loads(lines[1]) | {
        "caption": "a cow",
        "spans": [[0, 1], [2, 5]],
        "tag": ["DT", "NN"],
        "tree": "",
        "sentences": [[0, 2]],
    }
    (files / "others.jsonl").write_text("\n".join([lines[0], json.dumps(other), lines[2]]))
    assert main([part.format(files) for part in arguments]) == 2
    assert says.replace("{{", "{").replace("}}", "}") in capsys.readouterr().err


def test_the_column_of_captions_may_have_another_name(files, capsys):
    pd.DataFrame({"image_id": ["1", "2"], "text": ["a dog on grass", "a cow on grass"]}).to_csv(
        files / "named.csv", index=False
    )
    column = ["--column", "text", "--parser", "rules", "--quiet"]
    named = str(files / "named.csv")
    assert main(["graph", named, str(files / "graph"), *column]) == 0
    assert read_graph(files / "graph").statistics()["captions"] == 2
    assert main(["unseen", str(files / "graph"), named, *column]) == 0 and "0 predicates" in capsys.readouterr().out
    split = ["split", named, str(files / "split.json"), "--train", str(files / "graph"), "--size", "1", *column]
    assert main([*split, "--compounds", "words"]) == 2  # a graph has no words
    assert main([*split, "--windows", "1"]) == 0


def test_a_split_says_what_it_could_not_choose(files, capsys):
    captions = [
        str(files / "captions.csv"),
        str(files / "split.json"),
        "--train",
        str(files / "captions.csv"),
        "--parser",
        "rules",
    ]
    assert main(["split", *captions, "--size", "2", "--windows", "4", "--quiet"]) == 0
    assert "1 of 4 windows could be chosen: 2 images are too few" in capsys.readouterr().out
    assert main(["split", *captions, "--size", "1", "--windows", "0", "--quiet", "--search"]) == 0
    assert "of single words" in capsys.readouterr().out
    assert json.loads((files / "split.json").read_text())["setting"]["search"] is True
    assert main(["split", *captions, "--size", "9", "--quiet"]) == 2
    assert "ask for fewer, or give more training captions" in capsys.readouterr().err
    levels = {"mcd": 0.086, "window_1": 0.102, "window_2": 0.1, "all": 0.0}
    (remark,) = _split_remarks(DivergenceSplit({"mcd": ["1"]}, levels, {"usable": 9}), 2)
    assert remark.startswith("window_1 is further from training than mcd")
    assert _split_remarks(DivergenceSplit({"mcd": ["1"]}, levels | {"mcd": 0.2}, {"usable": 9}), 2) == []


def test_a_parser_that_needs_a_file_is_not_offered(capsys):
    with pytest.raises(SystemExit):
        main(["graph", "--help"])
    shown = " ".join(capsys.readouterr().out.split())
    assert "one of benepar, rules, spacy, stanza (default" in shown


def test_what_a_model_does_not_read_is_counted():
    tokenizer = WordTokenizer.fit(["a dog on grass"], context=6)
    line = lost_words(tokenizer, ["a dog on a red car", "a cow"])
    assert line == "1 of 6 words are unknown to this run; 1 captions were cut at its 4 words"
    assert lost_words(tokenizer, ["a dog"]) == "0 of 2 words are unknown to this run; 0 captions were cut"


def test_scores_of_phrases_are_written(tmp_path, capsys):
    preset = SCALES["smoke"]
    text = {"tower": "tiny", "width": 16, "depth": 1, "heads": 2}
    source = {
        "name": "generated",
        "args": {"n_train": 32, "n_test": 8, "size": 16, "kinds": ["conjunction"], "shapes": 4, "colours": 4},
    }
    towers = {"vision": text | {"patch": 8}, "text": text}
    rows = {"vse": {"method": "vse"}, "clip": {"method": "clip"}}
    study = Study(tmp_path, rows, [0], source, preset, 2, towers, preset.train(2, 8))
    for label in rows:
        launch(study.run(label, 0).path)

    def folder(label):
        return str(study.run(label, 0).path)

    output = str(tmp_path / "scores.csv")
    assert main(["scores", folder("vse"), "", output, "--most", "5"]) == 0
    shown = capsys.readouterr().out
    assert "5 captions" in shown and " words are unknown to this run; 0 captions were cut" in shown
    table = pd.read_csv(output)
    model = study.snapshot("vse", 0).model("cpu")
    pairs = study.snapshot("vse", 0).pairs()[:5]
    factor = model.logit_scale.exp().item()
    images = model.encode_images(model.collate([replace(pair, caption=None) for pair in pairs]))
    scores = model.similarity(images, model.encode_texts(model.collate([replace(pair, image=None) for pair in pairs])))
    for k, line in enumerate(table[table.parent == -1].itertuples()):
        assert (line.own, line.other) == pytest.approx([factor * float(scores[n % 5, k]) for n in (k, k + 1)], abs=1e-3)
        assert line.text == pairs[k].caption
    assert {"a", "and"}.isdisjoint(table[table.primitive].text) and (table.image != table.other_image).all()
    assert main(["scores", folder("clip"), "", output]) == 2
    assert "does not score concepts" in capsys.readouterr().err
    assert main(["scores", folder("vse"), "", output, "--most", "1"]) == 2
    assert "all 1 captions are of one image" in capsys.readouterr().err


def test_graph_writes_what_is_counted_and_asks_a_graph_that_is_there(files, capsys):
    folder = str(files / "graph")
    arguments = ["graph", str(files / "captions.csv"), folder, "--parses", str(files / "parses.jsonl")]
    tables = ["--phrases", str(files / "phrases.csv"), "--triples", str(files / "triples.csv")]
    assert main([*arguments, *tables]) == 0
    phrases = pd.read_csv(files / "phrases.csv").set_index("phrase")
    assert phrases.loc["grass", "probability"] == 1 and phrases.loc["a cat", "probability"] == 0.5
    assert phrases.loc["a dog", "caption_share"] == pytest.approx(2 / 3)
    triples = pd.read_csv(files / "triples.csv")
    assert sorted(triples.iloc[:, :3].values.tolist()) == [
        ["a cat", "on", "grass"],
        ["a dog", "on", "grass"],
        ["a dog", "under", "a cat"],
    ]
    capsys.readouterr()
    more = ["--entailments", str(files / "entailments.csv"), "--pairs", str(files / "pairs.csv")]
    more += ["--export", str(files / "network.json"), "--least", "1", "--threshold", "0.9", "--merge", "number"]
    assert main(["graph", folder, *more]) == 0
    said = capsys.readouterr().out
    entailed = pd.read_csv(files / "entailments.csv")
    assert ["a cat", "grass"] in entailed[["premise", "hypothesis"]].values.tolist()
    assert entailed["probability"].min() >= 0.9 and f"{len(entailed)} entailments" in said
    edges = json.loads((files / "network.json").read_text())["edges"]
    assert sum(edge["kind"] == "entails" for edge in edges) == len(entailed) and "merged by number" in said


@pytest.mark.parametrize(
    "words, says",
    [
        (["graph", "captions.csv"], "captions.csv is no graph; name a folder for it"),
        (["graph", "graph"], "nothing is asked of graph; name a file, e.g. --phrases"),
        (["graph", "graph", "other"], "graph is a graph; leave other out"),
        (
            ["graph", "graph", "--phrases", "p.csv", "--prune", "0.1", "--column", "text"],
            "graph is a graph already, and --prune, --column says how one is made; give the captions and a folder",
        ),
        (["graph", "graph", "--export", "graph.png"], r"graph.png: a network is written as .graphml or .json"),
        (["graph", "graph", "--entailments", "e.csv", "--threshold", "2"], "above 0 and up to 1, not 2.0"),
    ],
)
def test_graph_says_what_it_cannot_count(words, says, files, capsys, monkeypatch):
    monkeypatch.chdir(files)
    assert main(["graph", "captions.csv", "graph", "--parses", "parses.jsonl"]) == 0
    capsys.readouterr()
    assert main(words) == 2
    assert says in capsys.readouterr().err

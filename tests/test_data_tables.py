"""Tables of captions in the forms that people and the field's own programs write."""

import json

import pandas as pd
import pytest
from PIL import Image

from complearn.core.config import RequestError
from complearn.core.files import find_captions
from complearn.data.benchmarks.items import Choice, correct_items, count_notes
from complearn.data.benchmarks.sugarcrepe import read_sugarcrepe
from complearn.data.benchmarks.valse import read_foils
from complearn.data.negatives import Negatives, negative_caption
from complearn.data.readers.coco import read_flickr
from complearn.data.readers.edits import read_captions
from complearn.data.readers.files import open_table, parse_list, read_rows
from complearn.data.readers.folders import read_folder
from complearn.data.readers.registry import read
from complearn.data.reports import BadData
from complearn.evaluation.bench.monitors import monitor_settings
from complearn.evaluation.bench.suites import read_bench

NAMES = ("barn.png", "pier.png", "mill.png")
TEXTS = ("A barn, red; old.", "Two boats | one pier", 'The "old" mill')


@pytest.fixture
def photos(tmp_path):
    for k, name in enumerate(NAMES):
        Image.new("RGB", (12, 9), (40 * k, 90, 10)).save(tmp_path / name)
    return tmp_path


def captions(pairs):
    return [pair.caption for pair in pairs]


# --- what stands between cells


@pytest.mark.parametrize("separator", [",", ";", "\t", "|"])
@pytest.mark.parametrize("name", ["t.csv", "t.TSV", "t.txt", "t.Csv"])
def test_open_table_tells_the_separator_from_the_header(photos, separator, name):
    """What pandas writes with any separator is read back, under any of the endings."""
    frame = pd.DataFrame({"image": NAMES, "caption": TEXTS, "split": ["a", "b", "a"]})
    frame.to_csv(photos / name, sep=separator, index=False, quoting=1)
    assert captions(read_folder(photos, name)) == list(TEXTS)
    assert open_table(photos / name).separator == separator


def test_the_separator_of_the_ending_wins_where_the_header_holds_it(tmp_path):
    (tmp_path / "a.csv").write_text("image,one; two; three\n1.png,x\n")
    assert open_table(tmp_path / "a.csv").columns == ("image", "one; two; three")
    assert open_table(tmp_path / "a.csv", ";").columns == ("image,one", "two", "three")


@pytest.mark.parametrize("word, sign", [("tab", "\t"), ("\\t", "\t"), ("semicolon", ";"), ("^", "^")])
def test_separator_is_a_character_or_its_name(photos, word, sign):
    (photos / "t.csv").write_text(f"image{sign}caption\n{NAMES[0]}{sign}A barn\n")
    assert captions(read("folder", folder=str(photos), captions_file="t.csv", separator=word)) == ["A barn"]
    assert captions(read("captions", files=str(photos / "t.csv"), separator=word)) == ["A barn"]


def test_a_separator_that_is_none_is_refused(photos):
    (photos / "t.csv").write_text("image,caption\n")
    (photos / "t.jsonl").write_text("{}\n")
    for separator in ("::", '"', "\n"):
        with pytest.raises(RequestError, match="separator is the character between cells, such as ';' or 'tab'"):
            open_table(photos / "t.csv", separator)
    with pytest.raises(RequestError, match="t.jsonl holds JSON objects, and no separator"):
        open_table(photos / "t.jsonl", ",")


# --- headers


def test_a_fault_of_the_header_is_named_before_any_rows(photos):
    (photos / "t.csv").write_text(f"picture,words\n{NAMES[0]}\n{NAMES[1]},a,b\n")
    with pytest.raises(BadData, match=r"t.csv line 1: no column 'image'; there are 'picture', 'words'; name the right"):
        read_folder(photos, "t.csv")
    (photos / "t.csv").write_text(f"image,captoin\n{NAMES[0]}\n")
    with pytest.raises(
        BadData, match=r"no column 'caption' \(did you mean 'captoin'\?\).*name the right one with caption="
    ):
        read_folder(photos, "t.csv")
    (photos / "t.csv").write_text(f'"image,caption\n{NAMES[0]},A barn\n')
    with pytest.raises(BadData, match="t.csv line 1: the header cannot be read: .*quotation mark"):
        read_folder(photos, "t.csv")


def test_a_table_without_a_header_is_told_so(photos):
    (photos / "t.csv").write_text("".join(f"{name},A thing\n" for name in NAMES))
    with pytest.raises(BadData, match="this looks like a row: write a header above it, such as image,caption"):
        read_folder(photos, "t.csv")


def test_a_header_with_two_signs_says_how_to_name_one(photos):
    (photos / "t.csv").write_text(f"image;caption, English\n{NAMES[0]};A barn\n")
    with pytest.raises(BadData, match="or say separator=';' if semicolons are between its cells"):
        read_folder(photos, "t.csv")
    assert captions(read_folder(photos, "t.csv", caption="caption, English", separator=";")) == ["A barn"]


def test_names_of_columns_may_have_capitals_and_spaces(photos):
    (photos / "t.csv").write_text(f"Image, Caption\n{NAMES[0]},A barn\n")
    assert captions(read_folder(photos, "t.csv")) == ["A barn"]


FORMS = {
    "open_clip": ("t.csv", "filepath\ttitle", "{}\t{}"),
    "Flickr30k": ("t.csv", "image_name| comment_number| comment", "{}| 0| {}"),
    "image folder": ("metadata.csv", "file_name,text", "{},{}"),
    "SugarCrepe": ("t.csv", "filename,caption,negative_caption", "{},{},Another thing"),
    "index": ("t.csv", ",image,caption", "7,{},{}"),
}


@pytest.mark.parametrize("form", FORMS)
def test_read_folder_knows_the_columns_of_the_fields_own_files(photos, form):
    name, header, row = FORMS[form]
    (photos / name).write_text("\n".join([header, *(row.format(file, "A thing") for file in NAMES)]) + "\n")
    pairs = read_folder(photos, "" if name.startswith("metadata") else name)
    assert [pair.image_id for pair in pairs] == list(NAMES) and set(captions(pairs)) == {"A thing"}
    rows = read_captions(photos / name)
    assert set(captions(rows)) == {"A thing"} and [row.image_id for row in rows] == list(NAMES)


def test_a_column_that_was_found_by_itself_is_noted(photos):
    (photos / "t.csv").write_text(f"filepath\ttitle\n{NAMES[0]}\tA barn\n")
    assert "images of column 'filepath' and captions of column 'title'" in str(read_folder(photos, "t.csv").report)
    assert "captions of column 'title'" in str(read_captions(photos / "t.csv").report)


def test_a_column_that_a_person_names_is_that_one_alone(photos):
    (photos / "t.csv").write_text(f"image,caption,title\n{NAMES[0]},A barn,Barn\n")
    assert captions(read_folder(photos, "t.csv", caption="title")) == ["Barn"]
    (photos / "t.csv").write_text(f"image,title\n{NAMES[0]},Barn\n")
    with pytest.raises(BadData, match="no column 'caption'; there are 'image', 'title'"):
        read_folder(photos, "t.csv", caption="caption")


# --- which file


def test_find_captions_takes_the_first_of_the_usual_names(photos):
    for name in ("metadata.jsonl", "captions.txt", "Captions.CSV"):
        (photos / name).write_text("image,caption\n" if name != "metadata.jsonl" else "")
        assert find_captions(photos).name == name


def test_a_folder_without_a_table_says_what_it_holds(photos):
    (photos / "train.tsv").write_text("image\tcaption\n")
    with pytest.raises(BadData, match="name it with captions_file=; there are train.tsv"):
        read_folder(photos)
    (photos / "train.tsv").unlink()
    (photos / "pier.txt").write_text("A pier\n")
    with pytest.raises(BadData, match="there are texts beside the pictures: read them with the reader 'sidecar'"):
        read_folder(photos)
    (photos / "empty").mkdir()
    with pytest.raises(BadData, match="captions.csv: the captions file does not exist.*the folder is empty"):
        read_folder(photos / "empty")


@pytest.mark.filterwarnings("ignore:.*skipped")
def test_a_text_beside_each_picture_is_read(photos):
    for name, text in zip(NAMES, TEXTS):
        (photos / name).with_suffix(".txt").write_text(text + "\n")
    pairs = read("sidecar", folder=str(photos))
    assert {pair.image_id: pair.caption for pair in pairs} == dict(zip(NAMES, TEXTS))


def test_wrong_captions_that_begin_late_are_read(photos):
    """JSON lines have no header: a key may first come in any of them."""
    rows = [{"image": NAMES[k % 3], "caption": f"Barn {k}."} for k in range(120)]
    rows[-1]["negative"] = "No barn."
    (photos / "late.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert read_folder(photos, "late.jsonl")[-1].negatives.captions == ("No barn.",)


# --- Flickr


FLICKR = ("1007129816_e794419615.png", "1009434119_febe49276a.png")


def test_read_flickr_gives_a_caption_one_id_in_every_form(tmp_path):
    for name in FLICKR:
        Image.new("RGB", (8, 8)).save(tmp_path / name)
    rows = [(name, k, f"Thing {k}, of {name[:4]}") for name in FLICKR for k in range(3)]
    forms = {
        "a.token": "".join(f"{name}#{k}\t{text}\n" for name, k, text in rows),
        "captions.txt": "image,caption\n" + "".join(f'{name},"{text}"\n' for name, _, text in rows),
        "b.csv": "image_name| comment_number| comment\n" + "".join(f"{name}| {k}| {text}\n" for name, k, text in rows),
        "c.csv": "image|comment_number|comment\n" + "".join(f"{name}|{k}|{text}\n" for name, k, text in rows),
        "d.csv": "image_name,comment_number,comment\n" + "".join(f'{name},{k},"{text}"\n' for name, k, text in rows),
    }
    found = []
    for name, content in forms.items():
        (tmp_path / name).write_text(content)
        found.append([(pair.id, pair.image_id, pair.caption) for pair in read_flickr(tmp_path, tmp_path / name)])
    assert len(found[0]) == 6 and all(each == found[0] for each in found)
    folder = read_folder(tmp_path, "captions.txt")
    assert captions(folder) == [text for _, _, text in rows]


@pytest.mark.filterwarnings("ignore:.*skipped")
def test_read_flickr_names_the_row_of_a_table_that_lacks_a_cell(tmp_path):
    """Flickr30k's own table has one such row."""
    Image.new("RGB", (8, 8)).save(tmp_path / FLICKR[0])
    rows = [f"{FLICKR[0]}| {k}| Thing {k}" for k in range(4)] + [f"{FLICKR[0]}| 4   A dog runs ."]
    (tmp_path / "results.csv").write_text("\n".join(["image_name| comment_number| comment", *rows]))
    pairs = read_flickr(tmp_path, tmp_path / "results.csv", max_bad=0.5)
    assert len(pairs) == 4 and "results.csv line 6: a row of 3 columns was expected" in str(pairs.report)


def test_a_file_of_lines_is_no_table(tmp_path):
    (tmp_path / "a.txt").write_text("text, on a wall, in an image\na title, and a caption\n")
    assert len(read_captions(tmp_path / "a.txt")) == 2
    (tmp_path / "b.txt").write_text("image,caption\n1.png,A barn\n")
    assert captions(read_captions(tmp_path / "b.txt")) == ["A barn"]


# --- wrong captions to train on


def test_read_folder_gives_the_wrong_captions_of_a_table_to_training(photos):
    rows = [
        (NAMES[0], "A red barn", "A blue barn"),
        (NAMES[0], "A red barn", "A red boat"),
        (NAMES[1], "Two boats", ""),
        (NAMES[2], "A mill", "a MILL"),
    ]
    pd.DataFrame(rows, columns=["image", "caption", "negative"]).to_csv(photos / "t.csv", index=False)
    pairs = read_folder(photos, "t.csv")
    assert [list(pair.negatives) for pair in pairs] == [["A blue barn", "A red boat"], [], []]
    text = str(pairs.report)
    assert "1 of 3 captions have wrong ones of column 'negative'" in text and "1 rows say more of" in text
    assert "1 negative like its caption (t.csv line 5: 'a MILL' has the words of 'A mill')" in text
    drawn = {negative_caption(pairs[0], pairs[0].caption, draw, Negatives("given")) for draw in range(20)}
    assert drawn == {"A blue barn", "A red boat"}
    assert negative_caption(pairs[1], pairs[1].caption, 0, Negatives("auto")) is None  # as it is of edited captions
    assert all(pair.negatives is None for pair in read_folder(photos, "t.csv", negative=""))


def test_read_folder_reads_negclips_lists_of_wrong_captions(photos):
    wrong = [["A barn beside a pier's end", 'A "pier" beside a barn'], ["One"], []]
    frame = pd.DataFrame({"title": TEXTS, "filepath": NAMES, "neg_caption": wrong, "neg_image": [[1, 2]] * 3})
    frame.to_csv(photos / "train_neg_clip.tsv", sep="\t")
    pairs = read_folder(photos, "train_neg_clip.tsv")
    assert [list(pair.negatives) for pair in pairs] == wrong and captions(pairs) == list(TEXTS)
    lines = [{"image": name, "caption": text, "negative": texts} for name, text, texts in zip(NAMES, TEXTS, wrong[:2])]
    (photos / "t.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert [list(pair.negatives) for pair in read_folder(photos, "t.jsonl")] == wrong[:2]


def test_read_folder_reads_negclips_wrong_captions_without_neg_image(photos):
    wrong = [["A barn beside a pier's end"], ["One", "Two"], []]
    frame = pd.DataFrame({"title": TEXTS, "filepath": NAMES, "neg_caption": wrong})
    frame.to_csv(photos / "train.tsv", sep="\t")
    pairs = read_folder(photos, "train.tsv")
    assert [list(pair.negatives) for pair in pairs] == wrong and "neg_image" not in str(pairs.report)
    frame.assign(neg_image=[[1, 2]] * 3).to_csv(photos / "both.tsv", sep="\t")
    both = read_folder(photos, "both.tsv")
    assert [(pair.caption, pair.negatives) for pair in both] == [(pair.caption, pair.negatives) for pair in pairs]


def test_read_folder_says_that_neg_image_alone_holds_no_wrong_captions(photos):
    frame = pd.DataFrame({"title": TEXTS, "filepath": NAMES, "neg_image": [[1, 2]] * 3, "wrong": ["No."] * 3})
    frame.to_csv(photos / "train.tsv", sep="\t")
    pairs = read_folder(photos, "train.tsv")
    assert all(pair.negatives is None for pair in pairs)
    told = "column 'neg_image' is not read: it numbers other rows, and there is no column of wrong captions, "
    assert told + "'negative' or 'negative_caption' or 'neg_caption'; if it has another" in str(pairs.report)
    named = read_folder(photos, "train.tsv", negative="wrong")
    assert [list(pair.negatives) for pair in named] == [["No."]] * 3 and "not read" not in str(named.report)
    with pytest.raises(
        BadData, match=r"no column 'neg_caption'; there are '', 'title', 'filepath', 'neg_image', 'wrong'; name"
    ):
        read_folder(photos, "train.tsv", negative="neg_caption")


def test_parse_list_takes_no_texts_that_only_stand_side_by_side():
    assert parse_list("['a' 'b']") is None and parse_list("['a'\n 'b']") is None
    assert parse_list("['a, b', \"it's\"]") == ["a, b", "it's"] and parse_list("[]") == []
    assert parse_list("[1]") is None and parse_list("a cup") is None and parse_list("[" * 5000) is None


@pytest.mark.parametrize("separator", [";", "\t"])
def test_read_foils_reads_what_read_folder_reads(photos, separator):
    frame = pd.DataFrame({"filename": NAMES, "caption": TEXTS, "negative_caption": ["No."] * 3, "kind": list("xyx")})
    frame.to_csv(photos / "foils.csv", sep=separator, index=False)
    assert [item.captions[1] for item in read_foils(photos)] == ["No."] * 3
    assert [list(pair.negatives) for pair in read_folder(photos, "foils.csv")] == [["No."]] * 3


# --- splits


def test_read_folder_reads_the_rows_of_a_split(photos):
    frame = pd.DataFrame({"image": NAMES, "caption": TEXTS, "split": ["train", "restval", "test"], "fold": [1, 2, 2]})
    frame.to_csv(photos / "t.csv", index=False)
    assert captions(read_folder(photos, "t.csv", split="train+restval")) == list(TEXTS[:2])
    assert captions(read_folder(photos, "t.csv", split="2", split_column="fold")) == list(TEXTS[1:])
    everything = read_folder(photos, "t.csv")
    assert len(everything) == 3 and "rows of all splits (train 1, restval 1, test 1)" in str(everything.report)
    with pytest.raises(BadData, match=r"no split 'tset' \(did you mean 'test'\?\); there are restval, test, train"):
        read_folder(photos, "t.csv", split="tset")
    with pytest.raises(BadData, match="no column 'part'; .*name the right one with split_column="):
        read_folder(photos, "t.csv", split="a", split_column="part")


# --- missing captions


@pytest.mark.filterwarnings("ignore:.*skipped")
@pytest.mark.parametrize("word", ["NaN", "nan", "None", "NULL", "<NA>", "#N/A"])
def test_a_word_for_a_missing_value_is_no_caption(photos, word):
    frame = pd.DataFrame({"image": NAMES, "caption": ["A barn", None, "None of the boats"]})
    frame.to_csv(photos / "captions.csv", index=False, na_rep=word)
    for records in (read_folder(photos, max_bad=1.0), read_captions(photos / "captions.csv")):
        assert captions(records) == ["A barn", "None of the boats"]
        assert f"1 missing caption (captions.csv line 3: {word} stands for a missing value" in str(records.report)


# --- streams and published counts


def test_a_streamed_data_set_is_told_so(photos):
    datasets = pytest.importorskip("datasets")
    table = datasets.Dataset.from_dict({"image": [str(photos / name) for name in NAMES], "text": list(TEXTS)})
    stream = table.to_iterable_dataset()
    for given in (stream, datasets.IterableDatasetDict({"train": stream})):
        with pytest.raises(
            BadData,
            match="it is streamed, and a stream has no list of pairs; say stream=True to train on it, load it without",
        ):
            read("hf", dataset=given)
    taken = datasets.Dataset.from_list(list(stream.take(2)), features=stream.features)
    assert captions(read("hf", dataset=taken)) == list(TEXTS[:2])


def test_count_notes_says_where_a_split_is_not_whole(tmp_path):
    items = [Choice("swap", (), (), str(k)) for k in range(3)] + [Choice("mine", (), (), "m")]
    assert count_notes({"swap": 3}, items) == []
    assert count_notes({"swap": 5, "add": 2}, items) == ["swap: 3 items where 5 are published"]
    records = {str(k): {"filename": f"{k}.jpg", "caption": f"A {k}.", "negative_caption": "B."} for k in range(4)}
    (tmp_path / "swap_att.json").write_text(json.dumps(records))
    report = str(read_sugarcrepe(tmp_path, None, ["swap_att"]).report)
    assert "swap_att: 4 items where 666 are published" in report


# --- rows


def test_rows_with_more_cells_than_the_header_say_which_sign_to_quote(tmp_path):
    (tmp_path / "a.csv").write_text("image;caption\n1.png;red; blue\n2.png;green\n3.png\n")
    faults = [row.fault for row in read_rows(tmp_path / "a.csv")]
    assert faults == [
        "a row of 2 columns was expected, not of 3; put quotation marks around a text with semicolons",
        "",
        "a row of 2 columns was expected",
    ]


# --- items that are known to be wrong


@pytest.fixture
def known(photos):
    """A table of foils, its arguments, and a list of what is wrong with it."""
    frame = pd.DataFrame({"image": NAMES, "caption": TEXTS, "negative": ["No."] * 3, "kind": ["x", "x", "y"]})
    frame.to_csv(photos / "foils.csv", index=False)
    listed = {"version": "2", "without": {"x:foils 2": "both hold"}, "captions": {"y:foils 4": [TEXTS[2], "A pier"]}}
    (photos / "known.json").write_text(json.dumps(listed))
    return {"folder": str(photos)}, listed, str(photos / "known.json")


def test_read_bench_leaves_out_and_corrects_items_by_id(known):
    args, listed, file = known
    for asked in (listed, {"file": file, "version": 2}):
        items = read_bench({"foils": args | {"corrections": asked}})["foils"].items()
        assert [(item.id, item.captions[1]) for item in items] == [("x:foils 3", "No."), ("y:foils 4", "A pier")]
        assert "corrections version 2: 1 items left out, 1 corrected" in str(items.report) and items.report.kept == 2
    assert len(read_bench({"foils": args})["foils"].items()) == 3
    items = read_bench({"foils": args | {"corrections": ["x:foils 3"]}})["foils"].items()
    assert [item.id for item in items] == ["x:foils 2", "y:foils 4"]
    with pytest.raises(BadData, match="corrections are a list of ids, or a mapping with a version, not 'x:foils 3'"):
        read_bench({"foils": args | {"corrections": "x:foils 3"}})
    with pytest.raises(ValueError, match="does not take .*items are left out or corrected with 'corrections'"):
        read_bench({"foils": args | {"exclude": ["x:foils 3"]}})


def test_a_list_of_corrections_is_refused_where_it_is_not_the_one_that_was_asked_for(known):
    args, listed, file = known
    wrong = {
        "known.json is version 2, and version 1 was asked for": {"file": file, "version": 1},
        "corrections: version is missing": {"file": file},
        "no item is called a:1; ids look like x:foils 2": {"version": 1, "without": {"a:1": "?"}},
        "item x:foils 2 has 2 captions, and 1 are given": {"version": 1, "captions": {"x:foils 2": ["A"]}},
        "item x:foils 2 would have no right answer": {"version": 1, "captions": {"x:foils 2": ["A", "a"]}},
    }
    for message, asked in wrong.items():
        with pytest.raises(BadData, match=message):
            read_bench({"foils": args | {"corrections": asked}})


def test_correct_items_notes_ids_that_are_not_there(known):
    items = [Choice("a", (), ("A", "B"), "a:1"), Choice("a", (), ("A", "B"), "a:2")]
    corrected = correct_items(items, {"version": "x", "without": {"a:1": "", "b:1": ""}})
    assert [item.id for item in corrected] == ["a:2"] and "1 of the list are not there (b:1)" in str(corrected.report)


def test_monitor_settings_take_no_more_than_the_monitor_does():
    judge = {"sugarcrepe": {"folder": "a", "images": "b", "splits": ["swap_obj"], "corrections": {"version": 1}}}
    asked = monitor_settings({"name": "folder", "args": {}}, judge, 5)
    assert asked["sugarcrepe"]["args"] == {"folder": "a", "images": "b", "n": 5}

"The functions of `complearn` itself: what each takes, and what is an error at once."

import json
import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import albums
import numpy as np
import pytest
import torch
import training_runs
from PIL import Image

import complearn
from complearn.api import _check_models, _pictures
from complearn.core.config import RequestError
from complearn.core.files import photo_reader
from complearn.core.results import Result
from complearn.core.runs import Run
from complearn.data.fixtures.specimens import _write_shard, write_benchmarks
from complearn.data.readers.held_out import held_out_part, write_source
from complearn.data.readers.registry import read_gallery, read_source
from complearn.evaluation.bench import judging
from complearn.evaluation.bench.bench import judge as judge_bench
from complearn.evaluation.bench.judging import answers_table, judged_models, with_intervals
from complearn.evaluation.bench.photos import photo_bench
from complearn.evaluation.bench.planning import plan_study
from complearn.models.registry import save_model
from complearn.training.methods.scales import SCALES
from complearn.training.runs.launch import launch, prepare
from complearn.training.runs.snapshots import Snapshot, run_data
from complearn.training.runs.starts import _from_run, read_start

FUNCTIONS = ("search", "codes", "stages")


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    "Two steps of a Codebook-CLIP."
    torch.set_num_threads(1)
    config = training_runs.config({"name": "codebook_clip", "args": {"steps": 2}})
    return launch(prepare(tmp_path_factory.mktemp("runs") / "codebook_clip-s0", config).path, progress=False).path


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    "A folder of three pictures with captions."
    folder = tmp_path_factory.mktemp("photos")
    for number in range(3):
        pixels = np.full((24, 24, 3), 60 * number, dtype=np.uint8)
        Image.fromarray(pixels).save(folder / f"{number}.png")
    lines = [f"{number}.png,a square number {number}\n" for number in range(3)]
    (folder / "captions.csv").write_text("image,caption\n" + "".join(lines))
    return folder


def test_images_are_taken_as_a_folder_as_a_path_and_as_pairs(run, photos):
    "A folder's name was read letter by letter."
    pairs = complearn.read(photos)
    for given in (str(photos), photos, pairs):
        for open_app in (complearn.codes, complearn.search):
            app = open_app(run, given)
            assert type(app).__name__ in ("CodeExplorer", "SearchApp")
        shown = complearn.codes(run, given).controller.sources[0]._pairs
        assert len(shown() if callable(shown) else shown) == 3


def test_a_model_to_search_with_is_called_by_its_run(run, photos, tmp_path):
    """As on the page that is served for the run's folder."""
    [served] = [source.name for source in complearn.search(run.parent).controller.sources]
    assert served == "codebook_clip-s0"
    labelled = {"mine": complearn.load(run, device="cpu")}
    for model, name in (
        (str(run.parent), served),  # a folder with one run below it
        (run, served),
        (f"{run}@contrastive", f"{served}@contrastive"),
        (f"mine={run}", "mine"),
        (labelled["mine"], served),
        (labelled, "mine"),
    ):
        app = complearn.search(model, photos)
        assert [source.name for source in app.controller.sources] == [name]
    app.run_action("search_picture", item=0)
    assert set(app.hits.model) == {"mine"}


def test_captions_next_to_pictures_are_read_in_a_gallery(photos, tmp_path):
    "As a training reads them; a text next to few of many pictures is no caption."
    for number in range(3):
        shutil.copy(photos / f"{number}.png", tmp_path)
        (tmp_path / f"{number}.txt").write_text(f"a square number {number}\n")
    expected = [f"a square number {number}" for number in range(3)]
    for read_pairs in (read_gallery, lambda folder: _pictures(folder, "maps")):
        assert [pair.caption for pair in read_pairs(tmp_path)] == expected
    (tmp_path / "1.txt").unlink()
    pictures = read_gallery(str(tmp_path))
    assert [pair.caption for pair in pictures] == [None] * 3 and "captions are not read" in str(pictures.report)


def test_captions_are_taken_as_a_folder_as_a_path_and_as_pairs(photos):
    pairs = complearn.read(photos)
    for given in (str(photos), photos, photos / "captions.csv", pairs, [pair.caption for pair in pairs]):
        assert len(complearn.edits(given).controller.gallery.pairs) == 3


def test_published_forms_are_read_by_the_names_of_their_files(tmp_path):
    write_benchmarks(tmp_path)
    flickr = tmp_path / "flickr8k"
    of_folder = complearn.read(flickr)
    assert (
        len(of_folder)
        == len({pair.image_id for pair in of_folder})
        == len(complearn.read(flickr / "Flickr8k.token.txt"))
    )
    assert {pair.image.parent for pair in of_folder} == {flickr / "images"}
    shards = tmp_path / "shards"
    shards.mkdir()
    samples = [{"jpg": pair.image.read_bytes(), "txt": pair.caption.encode()} for pair in of_folder]
    _write_shard(shards / "00000.tar", {f"{k:05d}": sample for k, sample in enumerate(samples)})
    captions = [pair.caption for pair in of_folder]
    for place in (shards, shards / "00000.tar"):
        assert [pair.caption for pair in complearn.read(place)] == captions


def test_a_token_file_reads_nothing_behind_a_link(tmp_path):
    private = tmp_path / "private"
    private.mkdir()
    Image.new("RGB", (8, 8)).save(private / "1.jpg")
    line = "1.jpg#0\ta red dog\n"
    (private / "captions.token").write_text(line)
    strange = tmp_path / "strange"
    strange.mkdir()
    (strange / "Flickr8k.token.txt").write_text(line)
    (strange / "Images").symlink_to(private)
    assert photo_reader(strange) is None
    (strange / "Images").unlink()
    (strange / "Flickr8k.token.txt").unlink()
    shutil.copy(private / "1.jpg", strange / "1.jpg")
    (strange / "Flickr8k.token.txt").symlink_to(private / "captions.token")
    os.mkfifo(strange / "other.token")
    assert photo_reader(strange) is None
    (strange / "Flickr8k.token.txt").unlink()
    (strange / "Flickr8k.token.txt").write_text(line)
    assert photo_reader(strange)["args"]["images"] == str(strange)


def test_a_training_that_cannot_begin_leaves_no_folder(tmp_path, photos):
    broken = tmp_path / "broken"
    shutil.copytree(photos, broken)
    next(iter(sorted(broken.glob("*.png")))).write_bytes(b"no picture")
    out = tmp_path / "results"
    with pytest.raises(ValueError, match="unreadable"):
        complearn.train("clip", broken, out=out)
    assert not out.exists()
    out.mkdir()  # a person's own
    with pytest.raises(ValueError, match="unreadable"):
        complearn.train("clip", broken, out=out)
    assert out.is_dir()


def test_a_token_file_without_its_photos_is_no_data(tmp_path):
    (tmp_path / "Flickr8k.token.txt").write_text("1.jpg#0\ta red dog\n")
    with pytest.raises(ValueError, match="captions.csv: the captions file does not exist"):
        complearn.read(tmp_path)
    with pytest.raises(ValueError, match="holds no captions; give a folder with captions.csv"):
        complearn.train("clip", tmp_path)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_folder_that_is_not_there_is_an_error_at_once(tmp_path, run, name):
    gone = tmp_path / "typo"
    with pytest.raises((FileNotFoundError, ValueError), match="no folder .*typo"):
        getattr(complearn, name)(str(gone))
    with pytest.raises(FileNotFoundError, match=f"{name}: there is no folder {gone}; give a folder of pictures"):
        getattr(complearn, name)(run, gone)


@pytest.mark.parametrize("name", ["edits", "concepts", "negatives"])
def test_a_file_of_captions_that_is_not_there_is_an_error_at_once(tmp_path, name):
    with pytest.raises(
        FileNotFoundError, match=f"{name}: there is no file .*cap.csv; give a file of captions, a folder"
    ):
        getattr(complearn, name)(tmp_path / "cap.csv")


def test_a_folder_that_exists_is_a_model_whatever_its_name(run, tmp_path):
    for name in ("lr=0.001/clip-s0", "anna@uni/clip-s0"):
        shutil.copytree(run, tmp_path / name)
        _check_models([tmp_path / name, f"mine={tmp_path / name}", f"{tmp_path / name}@contrastive"], "judge")
        with pytest.raises(FileNotFoundError, match=f"judge: there is no {tmp_path}/.*/typo; give a run's folder"):
            _check_models(str(tmp_path / name / "typo"), "judge")


def test_what_is_no_model_and_what_are_no_pairs_are_errors_at_once(photos, run):
    with pytest.raises(ValueError, match="search: 5 is no model; give what complearn.load takes"):
        complearn.search(5, photos)
    with pytest.raises(ValueError, match="edits: 5 is no model"):
        complearn.edits(photos, 5)
    with pytest.raises(ValueError, match="codes: list is no list of pairs; give a folder of pictures"):
        complearn.codes(run, [str(photos / "0.png")])
    with pytest.raises(ValueError, match="codes: 5 is no run"):
        complearn.codes(5)


def test_a_model_that_is_no_run_needs_pictures(tmp_path, run):
    pytest.importorskip("open_clip")
    (tmp_path / "mine.pt").touch()
    remedy = "brings no pictures to search in; give a folder of pictures or pairs"
    for model in (f"ViT-B-32:{tmp_path / 'mine.pt'}", complearn.load(run, device="cpu")):
        with pytest.raises(ValueError, match=remedy):
            complearn.search(model)
    with pytest.raises(FileNotFoundError, match="codes: .* holds no run; a run is a folder with a config.json"):
        complearn.codes(tmp_path)


def test_a_device_by_a_wrong_name_is_an_error_in_our_words(run):
    for wrong in ("gpu", "cuda:x"):
        with pytest.raises(ValueError, match=f"no device '{wrong}'; there are auto, cpu, cuda"):
            complearn.load(run, device=wrong)


# --- training, judging, studies -------------------------------------------------------------------------------------

MISTAKES = {
    'train("negclp", "photos")': "no method 'negclp' (did you mean 'negclip'?)",
    'train("negclip", "fotos")': "train: there is no .*fotos; give a folder with captions.csv",
    'train("negclip", "empty")': "empty is empty; give a folder with captions.csv",
    'train("negclip", "photos", batch_size=64)': "has 45 lines of captions, which do not fill a batch of 64",
    'train("negclip", 5)': "5 are no pairs",
    'train("negclip", "{name: cocoa, args: {}}")': "no reader 'cocoa' (did you mean 'coco'?)",
    'read("photos", reader="foldr")': "no reader 'foldr' (did you mean 'folder'?)",
    'judge("runs/typo")': "judge: there is no .*runs/typo; give a run's folder",
    'judge("photos", benchmarks="dat")': "judge: there is no folder .*dat; give the one that holds sugarcrepe/",
    'judge("photos", "fotos")': "judge: there is no .*fotos",
    'study([], "photos")': "study: no method to train",
    'study({"a": {"method": "clp"}}, "photos")': "no method 'clp' (did you mean 'clip'?)",
    'runs("fotos")': "fotos is not a folder",
}


@pytest.fixture(scope="module")
def trained(album, tmp_path_factory, warm):
    "NegCLIP on 45 photos, in a process of its own as a person trains it."
    out = tmp_path_factory.mktemp("trained")
    with warm.starts():
        return complearn.train("negclip", album, preset="smoke", steps=4, out=out, device="cpu")


def test_mistakes_are_errors_before_torch_is_imported(album):
    (album.parent / "empty").mkdir()
    script = "import sys, complearn\n"
    for call in MISTAKES:
        script += f"try:\n    complearn.{call}\nexcept (OSError, ValueError) as error:\n    print(error)\n"
        script += f"else:\n    print('no error in', {call!r})\n"
    script += "print('torch' in sys.modules)\n"
    words = [sys.executable, "-c", script]
    env = os.environ | {"COMPLEARN_TYPECHECK": "0"}
    done = subprocess.run(words, capture_output=True, text=True, cwd=album.parent, env=env, timeout=120)
    *messages, imported = done.stdout.splitlines()
    assert imported == "False", done.stderr
    assert len(messages) == len(MISTAKES)
    for message, (call, expected) in zip(messages, MISTAKES.items()):
        parts = expected.split(".*")
        assert all(part in message for part in parts), (call, message)


def test_a_tenth_of_the_images_is_held_out_and_the_batch_fits(trained):
    asked = json.loads((trained.path.parents[1] / "split.json").read_text())["parts"]["test"]
    assert len(asked) == 4 and trained.config["train"]["batch_size"] == 41
    assert trained.config["train"]["negatives"] == {"source": "auto"} and trained.done["step"] == 4
    pairs = run_data(trained)
    assert len(pairs) == 41 and not {pair.image_id for pair in pairs} & set(asked)


def test_the_same_call_opens_the_run_that_is_there(trained, album, capsys):
    records = trained.records()
    again = complearn.train("negclip", album, preset="smoke", steps=4, out=trained.path.parents[1], device="cpu")
    assert again.path == trained.path and again.records() == records
    said = capsys.readouterr().out
    assert "41 captions of 41 images, and 4 images held out for questions; 4 steps of 41 pairs" in said
    assert "(all of them; the preset's 64 are more)" in said


def test_another_request_in_the_same_folder_is_refused(trained, album):
    out = trained.path.parents[1]
    with pytest.raises(FileExistsError, match="train.lr: 0.001 there, 0.01 asked for"):
        complearn.train("negclip", album, preset="smoke", steps=4, lr=0.01, out=out, device="cpu")
    with pytest.raises(ValueError, match="split.json holds out other images"):
        complearn.train("negclip", album, preset="smoke", steps=4, hold_out=0.2, out=out, device="cpu")


def test_a_training_is_that_of_a_study(trained, album, tmp_path):
    "The configuration that `Study` makes, and the weights that `launch` leaves."
    source = {"name": "folder", "args": {"folder": str(album)}}
    plan = plan_study(["negclip"], source, tmp_path, preset="smoke", steps=4)
    run = plan.study.run("negclip", 0)

    def without_places(config):
        return json.loads(json.dumps(config).replace(str(tmp_path), "OUT"))

    ours = json.loads(json.dumps(trained.config).replace(str(trained.path.parents[1]), "OUT"))
    assert without_places(run.config) == ours
    launch(run.path, "cpu", progress=False)
    mine, theirs = (Snapshot(one).weights() for one in (run, trained))
    assert mine.keys() == theirs.keys()
    for name, value in mine.items():
        torch.testing.assert_close(value, theirs[name], rtol=1e-3, atol=1e-4)


def test_a_run_is_asked_about_the_images_that_were_held_out(trained):
    result = complearn.judge(trained, device="cpu")
    assert set(result.setting["questions"]) == {"held out/retrieval", "held out/exchanges"}
    table = result.table
    chance = table[(table.method == "chance") & (table.data == "held out/retrieval")]
    values = {(line.split, line.metric): line.value for line in chance.itertuples()}
    assert values["image_to_text", "r@1"] == 0.25 and values["image_to_text", "gallery"] == 4
    asked = read_source(held_out_part(trained.config["data"]))
    bench = photo_bench(asked, "held out")
    snapshot = Snapshot(trained)
    expected = judge_bench(snapshot.model(), bench, "negclip", 0, snapshot.phase, snapshot.step)
    own = [row for row in result.rows if row["method"] == "negclip" and not row["metric"].startswith("train_overlap")]
    assert own == expected
    shown = answers_table(result)
    assert {"negclip", "chance", "blind_ngram", "gallery"} <= set(shown)
    texts = with_intervals(shown, result)
    key = ("held out/retrieval", "image_to_text", "r@1")
    one = next(row for row in own if (row["split"], row["metric"]) == key[1:])
    assert texts.loc[key, "negclip"] == f"{100 * one['value']:.1f} [{100 * one['low']:.0f}, {100 * one['high']:.0f}]"
    assert texts.loc[key, "chance"] == 25 and texts.loc[key, "gallery"] == 4


def test_several_models_answer_the_same_questions(trained, album, tmp_path):
    models = {"now": trained, "opened": complearn.load(trained.path, device="cpu")}
    result = complearn.judge(models, benchmarks={"swaps": {"name": "folder", "args": {"folder": str(album)}}},
                             overlap="keep", out=tmp_path, device="cpu")  # fmt: skip
    assert [about["method"] for about in result.setting["models"]] == ["now", "opened"]
    shown = answers_table(Result.read(tmp_path))
    assert (shown["now"] == shown["opened"]).all()
    assert result.setting["overlap"]["report"]["now"].startswith("41 of 41 training pairs compared")
    with pytest.raises(ValueError, match="one model is named twice"):
        complearn.judge([trained, trained], device="cpu")


def test_photos_and_benchmarks_are_asked_of_any_model(trained, album, tmp_path):
    result = complearn.judge(complearn.load(trained.path, device="cpu"), album, device="cpu")
    assert set(result.setting["questions"]) == {"photos/retrieval", "photos/exchanges"}
    write_benchmarks(tmp_path / "data")
    result = complearn.judge(
        trained, benchmarks=tmp_path / "data", only=["sugarcrepe", "coco_retrieval"], limit=3, device="cpu"
    )
    assert {"sugarcrepe", "coco_retrieval"} <= set(result.setting["questions"])
    assert {"chance", "blind_length"} <= {row["method"] for row in result.rows}
    for probe in (False, True):
        result = complearn.judge(trained, benchmarks=tmp_path / "data", only="cifar10", probe=probe, device="cpu")
        assert ("linear_probe" in {row["split"] for row in result.rows}) == probe
    (tmp_path / "nothing").mkdir()
    with pytest.raises(ValueError, match="no benchmark was found in .*nothing"):
        complearn.judge(trained, benchmarks=tmp_path / "nothing", device="cpu")
    with pytest.raises(ValueError, match="no images were held out of its training"):
        complearn.judge(complearn.load(trained.path, device="cpu"), device="cpu")


def test_a_folder_by_a_relative_path_is_read_with_its_table(album, monkeypatch):
    monkeypatch.chdir(album.parent)
    for folder in (f"{album.name}/", album.name, Path(album.name), f"./{album.name}"):
        assert len(complearn.read(folder)) == len(complearn.read(album)) == 45
    assert len(complearn.read(album.name, captions_file="captions.csv")) == 45


def test_benchmarks_without_images_and_those_that_are_missing_are_said(trained, tmp_path, capsys):
    """A folder of questions whose pictures lie behind a link that leads out of it."""
    question = {"filename": "one.jpg", "caption": "a red circle", "negative_caption": "a blue circle"}
    for split in ("add_att", "add_obj", "replace_att", "replace_obj", "replace_rel", "swap_att", "swap_obj"):
        file = tmp_path / "data" / "sugarcrepe" / f"{split}.json"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps({"0": question}))
    (tmp_path / "val2017").mkdir()
    Image.new("RGB", (8, 8)).save(tmp_path / "val2017" / "one.jpg")
    (tmp_path / "data" / "coco").mkdir()
    (tmp_path / "data" / "coco" / "val2017").symlink_to(tmp_path / "val2017")
    result = complearn.judge(trained, benchmarks=tmp_path / "data", device="cpu")
    said = capsys.readouterr().out
    assert "sugarcrepe: only its texts are there, so no model is asked: " in said and "--allow-outside" in said
    assert "not in this folder: " in said and "winoground" in said and "--only NAME says how to get one" in said
    assert "negclip" not in set(answers_table(result))
    trusted = complearn.judge(trained, benchmarks=tmp_path / "data", allow_outside=True, device="cpu")
    assert "negclip" in set(answers_table(trusted)) and "sugarcrepe" in trusted.setting["questions"]
    assert "only its texts" not in capsys.readouterr().out
    with pytest.raises(ValueError, match="no benchmark was found"):
        complearn.judge(trained, benchmarks=tmp_path / "data", only=["winoground"], device="cpu")
    assert "winoground is missing: no " in capsys.readouterr().out


def test_pairs_that_were_read_or_made_are_trained_on(album, tmp_path, here):
    by_name = complearn.read(album)
    run = complearn.train("clip", by_name, preset="smoke", steps=2, out=tmp_path / "read", device="cpu")
    assert run.config["data"]["args"]["source"] == {"name": "folder", "args": {"folder": str(album)}}
    own = [replace(pair, id=f"mine {number}") for number, pair in enumerate(by_name[:20])]
    run = complearn.train("clip", own, preset="smoke", steps=2, out=tmp_path / "own", device="cpu")
    assert run.config["data"]["args"]["source"]["args"]["captions_file"] == str(tmp_path / "own" / "pairs.jsonl")
    assert len(run_data(run)) == 18 and run.config["train"]["batch_size"] == 18
    with pytest.raises(ValueError, match="an image that is no file"):
        complearn.train("clip", [replace(pair, image=b"x") for pair in own], out=tmp_path / "bytes")


def test_text_files_and_parquet_are_taken_as_photos(trained, album, tmp_path):
    pandas = pytest.importorskip("pandas")
    beside = tmp_path / "beside"
    table = {"image": [], "text": []}
    for number in range(6):
        picture = (album / f"{number}.png").read_bytes()
        beside.mkdir(exist_ok=True)
        (beside / f"{number}.png").write_bytes(picture)
        (beside / f"{number}.txt").write_text(albums.caption(number) + "\n")
        table["image"].append(picture)
        table["text"].append(albums.caption(number))
    pandas.DataFrame(table).to_parquet(tmp_path / "photos.parquet")
    recalls = []
    for place in (beside, tmp_path / "photos.parquet"):
        rows = complearn.judge(trained, place, overlap="keep", device="cpu").rows
        recalls.append([row["value"] for row in rows if row["method"] == "negclip" and row["metric"] == "r@1"])
    assert recalls[0] == recalls[1] and len(recalls[0]) == 2
    asked = complearn.judge(trained, album / "captions.csv", overlap="keep", device="cpu").setting["questions"]
    assert asked["photos/retrieval"] == 45


def test_a_study_is_measured_and_resumes(album, tmp_path, here, monkeypatch):
    asked = {"preset": "smoke", "steps": 2, "out": tmp_path, "device": "cpu"}
    result = complearn.study(["clip", "negclip"], album, seeds=1, **asked)
    assert {"clip", "negclip", "chance"} <= {row["method"] for row in result.rows}
    assert result.setting["seeds"] == [0] and set(result.setting["runs"]) == {"clip-s0", "negclip-s0"}
    monkeypatch.setattr("complearn.training.runs.study.run_all", None)  # nothing is trained again
    assert complearn.study(["clip", "negclip"], album, seeds=1, **asked).rows == result.rows
    with pytest.raises(ValueError, match="nothing judges these runs"):
        complearn.study(["clip"], album, hold_out=0, out=tmp_path / "none")
    with pytest.raises(ValueError, match="no seed to train"):
        complearn.study(["clip"], album, seeds=0, out=tmp_path / "none")


def test_generated_pictures_are_trained_on(tmp_path, here):
    run = complearn.train("clip", "generated", preset="smoke", steps=2, out=tmp_path, device="cpu")
    assert run.config["data"]["args"]["seed"] == 0 and run.config["train"]["batch_size"] == 64
    assert "monitor" in run.config["evaluate"]


# --- what a training starts from -------------------------------------------------------------------------------------

PRETRAINED = {"open_clip": albums.write_open_clip, "transformers": albums.write_clip_model}


@pytest.mark.parametrize("form", list(PRETRAINED))
def test_a_pretrained_folder_is_fine_tuned_at_its_rate_and_temperature(form, album, tmp_path, here):
    pytest.importorskip(form)
    folder = PRETRAINED[form](tmp_path / "model")
    run = complearn.train("negclip", album, start=folder, preset="smoke", steps=2, out=tmp_path / "out", device="cpu")
    assert run.config["train"]["lr"] == 1e-5
    before = complearn.load(folder, device="cpu")
    after = complearn.load(run.path, device="cpu")
    scale = getattr(before.model, "logit_scale", None)
    torch.testing.assert_close(after.logit_scale, scale, rtol=0, atol=1e-3)
    pairs = complearn.read(album)[:4]
    batches = [model.collate(pairs) for model in (before, after)]
    torch.testing.assert_close(batches[0].images, batches[1].images)
    result = complearn.judge({"before": folder, "after": run}, device="cpu")
    assert {"before", "after"} <= {row["method"] for row in result.rows}


def test_the_activation_of_judged_weights_can_be_said(monkeypatch):
    said = []
    monkeypatch.setattr(judging, "find_models", lambda name, device, quick_gelu: said.append(quick_gelu) or [])
    for quick_gelu in (True, False, None):
        with pytest.raises(ValueError, match="no model to judge"):
            judging.judged_models("ViT-B-32:mine.pt", "cpu", quick_gelu)
    assert said == [True, False, None]


def test_a_training_starts_from_every_form_that_load_takes(trained, album, tmp_path):
    pytest.importorskip("open_clip")
    scale = SCALES["demo"]
    folder = albums.write_open_clip(tmp_path / "model")
    towers = read_start(folder, scale, frozen=("vision",)).model
    assert towers["vision"] == {"tower": f"open_clip:{folder}", "frozen": True}
    assert towers["text"] == {"tower": f"open_clip:{folder}"}
    assert read_start(complearn.load(folder, device="cpu"), scale).model["text"] == towers["text"]
    file = folder / "open_clip_model.safetensors"
    with_file = read_start(f"ViT-B-32:{file}", scale, quick_gelu=True).model
    assert with_file["vision"] == {"tower": f"open_clip:ViT-B-32:{file}", "quick_gelu": True}
    for given in (trained, trained.path, f"{trained.path}@contrastive", complearn.load(trained.path, device="cpu")):
        start = read_start(given, scale)
        assert start.weights["run"] == str(trained.path) and start.weights["phase"] == "contrastive"
        assert start.model == trained.config["model"] and start.rates["lr"] == trained.config["train"]["lr"]
    with pytest.raises(ValueError, match="frozen belongs to a pretrained CLIP"):
        read_start(trained, scale, frozen=("vision",))
    with pytest.raises(ValueError, match="there is no start"):
        read_start(None, scale, frozen=("text",))
    with pytest.raises(ValueError, match="no tower to freeze 'txt'"):
        read_start(folder, scale, frozen=("txt",))
    saved = save_model(complearn.load(trained.path, device="cpu"), tmp_path / "saved")
    start = read_start(saved, scale)
    assert start.weights["saved"] == str(saved) and start.model["vision"] == trained.config["model"]["vision"]
    with pytest.raises(ValueError, match="frozen belongs to a pretrained CLIP"):
        read_start(saved, scale, frozen=("vision",))
    with pytest.raises((OSError, ValueError), match="typo"):
        read_start(tmp_path / "typo", scale)


def test_a_training_goes_on_from_another_run(trained, album, tmp_path, here):
    run = complearn.train("clip", album, start=trained, preset="smoke", steps=1, out=tmp_path, device="cpu")
    start = run.config["start"]
    assert (run.path / start["run"]).resolve() == trained.path.resolve() and start["phase"] == "contrastive"
    before, after = (Snapshot(one).weights() for one in (trained, run))
    name = next(name for name in before if name.startswith("vision") and before[name].ndim == 2)
    assert not torch.equal(before[name], after[name])
    assert (before[name] - after[name]).abs().max() < 0.01  # one step from there, not from new weights
    assert (
        after.keys() == before.keys()
        and (run.path / "tokenizer.json").read_bytes() == (trained.path / "tokenizer.json").read_bytes()
    )


def test_a_training_starts_from_a_saved_model_as_from_the_run_that_it_was_saved_from(trained, album, tmp_path, here):
    "It was refused."
    saved = save_model(complearn.load(trained.path, device="cpu"), tmp_path / "saved")
    asked = {"preset": "smoke", "steps": 2, "lr": trained.config["train"]["lr"], "device": "cpu"}
    of_run = complearn.train("negclip", album, start=trained, out=tmp_path / "of_run", **asked)
    of_saved = complearn.train("negclip", album, start=saved, out=tmp_path / "of_saved", **asked)
    mine, theirs = (Snapshot(one).weights() for one in (of_saved, of_run))
    assert mine.keys() == theirs.keys() and all(torch.equal(mine[name], theirs[name]) for name in mine)
    again = complearn.train("negclip", album, start=saved, out=tmp_path / "of_saved", **asked)
    assert again.path == of_saved.path and not os.path.isabs(again.config["start"]["saved"])
    result = complearn.judge({"saved": saved, "after": again}, device="cpu")
    assert "not checked for the data of the saved model saved" in result.setting["overlap"]["not checked"]["after"]
    longer = complearn.train(
        "negclip", album, start=again, out=tmp_path / "longer", **asked
    )  # one start after the other
    assert longer.done["step"] == 2


def test_a_saved_model_of_pretrained_towers_is_trained_without_the_folder_that_they_came_from(album, tmp_path, here):
    pytest.importorskip("open_clip")
    folder = albums.write_open_clip(tmp_path / "clip")
    asked = {"preset": "smoke", "steps": 2, "device": "cpu"}
    run = complearn.train("clip", album, start=folder, out=tmp_path / "first", **asked)
    saved = save_model(complearn.load(run, device="cpu"), tmp_path / "saved")
    (tmp_path / "clip").rename(tmp_path / "gone")
    after = complearn.train("clip", album, start=saved, out=tmp_path / "second", **asked)
    assert after.config["train"]["lr"] == 1e-5 and after.config["model"]["text"]["tower"] == "saved"
    before = complearn.load(saved, device="cpu").state_dict()
    trained = complearn.load(after, device="cpu").state_dict()
    assert before.keys() == trained.keys()
    moved = max((before[name] - trained[name]).abs().max().item() for name in before)
    assert 0 < moved < 1e-3  # from there, and not from new weights
    with pytest.raises(ValueError, match="whose model is another: codebook"):  # as from a run
        complearn.train("codebook_clip", album, start=saved, out=tmp_path / "codes", **asked)


def test_a_saved_model_that_was_changed_or_is_gone_is_named(trained, album, tmp_path, here):
    saved = save_model(complearn.load(trained.path, device="cpu"), tmp_path / "saved")
    plan = plan_study(["clip"], {"name": "folder", "args": {"folder": str(album)}}, tmp_path / "out", start=saved,
                      preset="smoke", steps=1)  # fmt: skip
    run = plan.study.run("clip", 0)
    other = complearn.load(trained.path, device="cpu")
    with torch.no_grad():
        other.logit_scale += 1
    save_model(other, saved)
    with pytest.raises(ValueError, match="was prepared for other weights than .*saved/model.safetensors holds by now"):
        launch(run.path, "cpu", progress=False)
    (saved / "model.safetensors").write_bytes(b"cut")
    with pytest.raises(ValueError, match="model.safetensors"):
        launch(run.path, "cpu", progress=False)
    saved.rename(tmp_path / "gone")
    with pytest.raises(FileNotFoundError, match="there is no folder .*saved; bring the saved model back"):
        launch(run.path, "cpu", progress=False)


def test_a_run_and_its_start_are_asked_what_neither_has_seen(trained, album, tmp_path, here):
    "They bring two files of held-out images, which was an error after the training."
    asked = {"start": trained, "preset": "smoke", "steps": 1, "device": "cpu"}
    run = complearn.train("negclip", album, out=tmp_path / "same", **asked)
    result = complearn.judge({"start": trained, "negclip": run}, device="cpu")
    assert {"start", "negclip"} <= {row["method"] for row in result.rows}
    assert result.setting["questions"]["held out/retrieval"] == 4
    albums.write_photos(tmp_path / "more", count=55)  # the album's and ten others
    run = complearn.train("negclip", tmp_path / "more", hold_out=0.4, out=tmp_path / "larger", **asked)
    result = complearn.judge({"start": trained, "negclip": run}, device="cpu")
    split = json.loads((tmp_path / "larger" / "split.json").read_text())["parts"]["test"]
    seen = {pair.image_id for pair in run_data(trained)}
    assert 0 < len(seen & set(split)) < len(split)
    assert result.setting["questions"]["held out/retrieval"] == len(set(split) - seen)
    for models in ([run, trained], [trained, run]):
        named = dict(zip("ab", models))
        assert complearn.judge(named, device="cpu").setting["questions"] == result.setting["questions"]


def test_a_training_whose_start_knows_the_held_out_images_is_refused_at_once(trained, album, tmp_path, capsys):
    asked = {"start": trained, "preset": "smoke", "steps": 1, "device": "cpu"}
    refused = "was trained on . of the 4 images that are held out for questions.*give the seed and the hold_out"
    with pytest.raises(ValueError, match=refused):
        complearn.train("negclip", album, seed=1, out=tmp_path / "other", **asked)
    assert not list(tmp_path.rglob("*.json"))  # the same folder takes the remedy
    plan = plan_study(["negclip"], {"name": "folder", "args": {"folder": str(album)}}, tmp_path / "more",
                      start=trained, hold_out=0.3, preset="smoke")  # fmt: skip
    assert (
        "14 images held out for questions (10 of them not new to negclip-s0, from which this starts, and left out)"
        in plan.about
    )


def test_a_study_leaves_out_what_its_start_was_trained_on(trained, album, tmp_path, here):
    "It asked about these images all the same."
    asked = {"start": trained, "hold_out": 0.3, "preset": "smoke", "steps": 1, "device": "cpu"}
    result = complearn.study(["clip"], album, out=tmp_path / "drop", **asked)
    split = json.loads((tmp_path / "drop" / "split.json").read_text())["parts"]["test"]
    seen = {pair.image_id for pair in run_data(trained)}
    new = len(set(split) - seen)
    table = result.table

    def galleries(table):
        sizes = table[(table.method == "chance") & (table.metric == "gallery")]
        return set(sizes[sizes.data == "held out/retrieval"].value)

    assert len(split) == 14 and galleries(table) == {new} == {4}
    facts = result.setting["runs"]["clip-s0"]["facts"]["overlap"]["known to the start"]
    assert facts["held out/retrieval"] == 10 and facts["held out/exchanges"] > 0
    kept = complearn.study(["clip"], album, out=tmp_path / "keep", overlap="keep", **asked)
    assert galleries(kept.table) == {14}
    with pytest.raises(ValueError, match="the models were trained on what they are asked"):
        complearn.study(["clip"], album, out=tmp_path / "refuse", overlap="refuse", **asked)
    assert not list((tmp_path / "refuse").rglob("*.json"))


def test_two_methods_are_compared_on_the_images_that_both_held_out(trained, album, tmp_path, here):
    "Each has a split.json of its own with the same images in it."
    run = complearn.train("clip", album, preset="smoke", steps=1, out=tmp_path, device="cpu")
    result = complearn.judge([trained, run], device="cpu")
    assert {"negclip", "clip"} <= {row["method"] for row in result.rows}
    assert result.setting["questions"]["held out/retrieval"] == 4
    other = complearn.train("clip", album, preset="smoke", steps=1, seed=1, out=tmp_path / "other", device="cpu")
    with pytest.raises(ValueError, match="these runs bring 2 different sets of questions"):
        complearn.judge([trained, other], device="cpu")


def test_two_runs_of_one_method_are_called_by_the_shortest_distinct_names(trained, tmp_path):
    "Their columns were headed by whole paths."
    for name in ("first", "second", "second/deeper"):
        shutil.copytree(trained.path, tmp_path / name / "runs" / "negclip-s0")
    first, second, third = (tmp_path / name / "runs" / "negclip-s0" for name in ("first", "second", "second/deeper"))
    shown = answers_table(complearn.judge([first, second], device="cpu"))
    assert list(shown)[:2] == ["first", "second"]
    one, two = (complearn.judge(runs, device="cpu").setting["blind_ngram"] for runs in ([first], [first, second]))
    assert one == two, "captions of both runs are those of one data set"
    for given, names in {
        (first, f"{second}@contrastive"): ["negclip", "negclip@contrastive"],
        (first, second, third): ["first", "second", "second/deeper"],
        (second, third): ["second/runs/negclip-s0", "deeper/runs/negclip-s0"],
        (f"a={first}", second): ["a", "negclip"],
    }.items():
        assert [one.name for one in judged_models(list(given))] == names
    shutil.copytree(trained.path, tmp_path / "more" / "negclip-s1")
    seeds = judged_models([first, tmp_path / "more" / "negclip-s1"])  # means over seeds have one column
    assert [(one.name, one.seed) for one in seeds] == [("negclip", 0), ("negclip", 1)]
    saved = save_model(complearn.load(first, device="cpu"), tmp_path / "saved" / "negclip")
    assert [one.name for one in judged_models([saved, first])] == ["saved/negclip", "negclip"]


def test_a_run_on_pictures_behind_links_is_judged_where_a_person_allows_it(album, tmp_path, here):
    "Its own data could not be read again, so that nothing was compared."
    folder = tmp_path / "linked"
    folder.mkdir()
    (folder / "captions.csv").write_bytes((album / "captions.csv").read_bytes())
    for picture in album.glob("*.png"):
        (folder / picture.name).symlink_to(picture)
    pairs = {"name": "folder", "args": {"folder": str(folder), "allow_outside": True}}
    run = complearn.train("clip", pairs, preset="smoke", steps=1, out=tmp_path / "out", device="cpu")
    result = complearn.judge(run, device="cpu")
    assert result.setting["questions"]["held out/retrieval"] == 4
    assert result.setting["overlap"]["not checked"] == {}
    allowed = complearn.judge(run.path, device="cpu", allow_outside=True)
    assert allowed.rows == result.rows and allowed.setting["overlap"] == result.setting["overlap"]
    with pytest.raises(ValueError, match="says allow_outside, which only a person may say; .*--allow-outside"):
        complearn.judge(run.path, device="cpu")
    other = complearn.judge(run.path, album, overlap="keep", device="cpu")
    assert "which only a person may say" in other.setting["overlap"]["not checked"]["clip"]


def test_runs_are_a_table(trained, tmp_path):
    table = complearn.runs(trained.path.parents[1])
    assert table.to_dict("records")[0] | {"loss": 0} == {
        "run": "runs/negclip-s0", "method": "negclip", "seed": 0, "state": "done", "phase": "contrastive", "step": 4,
        "loss": 0, "problem": "",
    }  # fmt: skip
    with pytest.raises(FileNotFoundError, match="holds no run"):
        complearn.runs(tmp_path)


def test_a_start_from_a_run_keeps_the_slower_rates_of_its_parts(trained):
    """Else towers that were fine-tuned at a hundredth of the rate would go on at all of it."""
    rates = {"lr": 1e-3, "shares": {"vision.tower.*": 0.01}}
    tuned = Run(trained.path)
    tuned.config = trained.config | {"train": trained.config["train"] | rates}
    assert _from_run(Snapshot(tuned, "contrastive"), ()).rates == rates


def test_a_part_of_pairs_with_wrong_captions_is_not_trained_on_without_them(album, tmp_path):
    """A table of captions has no place for them, and rules would have made others in their place."""
    pairs = [replace(pair, negatives=("a wrong caption",)) for pair in complearn.read(album)[:8]]
    with pytest.raises(RequestError, match="has wrong captions, which a table of captions would lose"):
        write_source(pairs, tmp_path)
    assert write_source([replace(pair, negatives=None) for pair in pairs], tmp_path)["name"] == "folder"

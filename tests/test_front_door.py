"The functions of `complearn` itself: what each takes, and what is an error at once."

import numpy as np
import pytest
import torch
import training_runs
from PIL import Image

import complearn
from complearn.training.runs.launch import launch, prepare

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


def test_captions_are_taken_as_a_folder_as_a_path_and_as_pairs(photos):
    pairs = complearn.read(photos)
    for given in (str(photos), photos, photos / "captions.csv", pairs, [pair.caption for pair in pairs]):
        assert len(complearn.edits(given).controller.gallery.pairs) == 3


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_folder_that_is_not_there_is_an_error_at_once(tmp_path, run, name):
    gone = tmp_path / "typo"
    with pytest.raises((FileNotFoundError, ValueError), match="no folder .*typo"):
        getattr(complearn, name)(str(gone))
    with pytest.raises(FileNotFoundError, match=f"{name}: there is no folder {gone}; give a folder of pictures"):
        getattr(complearn, name)(run, gone)


@pytest.mark.parametrize("name", ["edits", "concepts"])
def test_a_file_of_captions_that_is_not_there_is_an_error_at_once(tmp_path, name):
    with pytest.raises(
        FileNotFoundError, match=f"{name}: there is no file .*cap.csv; give a file of captions, a folder"
    ):
        getattr(complearn, name)(tmp_path / "cap.csv")


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

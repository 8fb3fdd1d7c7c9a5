"""What training and evaluation share: photos that were renamed, resized or compressed again, and what a run's ancestors
have seen."""

import json
from dataclasses import replace

import numpy as np
import pytest
from PIL import Image

from complearn.data.benchmarks.items import Crop
from complearn.data.copies import LIMIT, are_copies, thumbnail
from complearn.data.fixtures.specimens import write_visual_genome
from complearn.data.images import open_image
from complearn.data.overlap import find_overlap
from complearn.data.pairs import Pair
from complearn.data.readers.registry import read
from complearn.evaluation.blind import Corpus


def smooth(seed, size=(320, 240)):
    """A picture of soft colours, as a photo is at a small size."""
    coarse = np.random.default_rng(seed).integers(0, 256, (6, 8, 3), np.uint8)
    return Image.fromarray(coarse).resize(size, Image.Resampling.BICUBIC)


def saved(picture, path, **options):
    picture.save(path, **options)
    return path


TURNED = Image.Exif()
TURNED[0x0112] = 6  # orientation: to be turned by 90 degrees to the right

COPIES = {
    "quality.jpg": lambda picture: (picture, {"quality": 30}),
    "other.png": lambda picture: (picture, {}),
    "half.jpg": lambda picture: (picture.resize((160, 120)), {}),
    "squashed.webp": lambda picture: (picture.resize((128, 128)), {}),
    "turned.jpg": lambda picture: (picture.transpose(Image.Transpose.ROTATE_90), {"exif": TURNED}),
}  # fmt: skip


@pytest.mark.parametrize("name", COPIES)
def test_a_photo_is_known_after_it_was_compressed_again_or_resized(tmp_path, name):
    train = [Pair(saved(smooth(k), tmp_path / f"p{k}.jpg"), f"Photo {k}.", f"t{k}", f"t{k}") for k in range(6)]
    picture, options = COPIES[name](smooth(2))
    copy = saved(picture, tmp_path / name, **options)
    for image in (copy, copy.read_bytes(), Crop(copy, (0, 0, 9, 9))):
        shared = find_overlap(train, [Pair(image, "Other words.", "e", "e")])
        assert shared.images == shared.copies == ("t2",) and "1 of them known by its look alone (t2)" in str(shared)
    assert Corpus.collect(train, [Pair(copy, "Other words.", "e", "e")], "here").left_out == 1
    assert (
        find_overlap([replace(train[2], image_id="000000000007")], [Pair(copy, "b", "e", "000000000008.jpg")]).images
        == ()
    )
    assert find_overlap([replace(train[2], image_id="000000000007")], [Pair(copy, "b", "e", "2345.jpg")]).images == (
        "t2",
    )


def test_drawn_pictures_are_copies_of_nothing(tmp_path):
    """Scenes and arrays are compared by content alone, and files of drawings differ where a thing has moved."""
    pixels = np.full((64, 64, 3), 255, np.uint8)
    drawings = [pixels.copy() for _ in range(2)]
    for k, drawing in enumerate(drawings):
        drawing[20:30, 20 + 8 * k : 30 + 8 * k] = (200, 40, 40)
    files = [saved(Image.fromarray(drawing), tmp_path / f"{k}.png") for k, drawing in enumerate(drawings)]
    assert not are_copies(files[:1], files[1:]).any() and are_copies(files, files).all()
    near = drawings[0].copy()
    near[0, 0] = 254
    assert not find_overlap([Pair(drawings[0], "a", "0", "x")], [Pair(near, "b", "1", "y")]).images
    world = read("generated", preset="small", n_train=64, n_test=8)
    assert thumbnail(world[0].image) is None
    assert thumbnail(tmp_path / "none.jpg") is None
    assert thumbnail(b"no picture") is None


def test_a_photo_of_visual_genome_is_known_by_its_number_in_coco(tmp_path):
    folder = write_visual_genome(tmp_path, n=16)
    images = json.loads((folder / "image_data.json").read_text())
    images[2]["coco_id"] = 139
    (folder / "image_data.json").write_text(json.dumps(images))
    pairs = read("visual_genome", folder=folder, part="all", rare=0, min_triplets=1)
    third = next(pair for pair in pairs if pair.id == "vg3")
    assert third.image_id == "000000000139" and all(pair.image_id == pair.id for pair in pairs if pair.id != "vg3")
    asked = [
        Pair(open_image(third.image).resize((300, 300)), "A.", "0", "COCO_val2014_000000000139.jpg"),
        Pair(smooth(1), "B.", "1", "000000000002"),
    ]
    assert find_overlap(pairs, asked).images == ("vg3",)


@pytest.mark.real
@pytest.mark.slow
def test_no_two_photos_of_flickr8k_are_copies_but_one_that_is_there_twice(real_data):
    files = sorted((real_data / "flickr8k/Images").glob("*.jpg"))
    colours = np.stack([thumbnail(file) for file in files])
    some = np.ascontiguousarray(colours[:, ::24])
    pairs = [
        (i, j) for i in range(len(files)) for j in i + 1 + np.flatnonzero(np.abs(some[i + 1 :] - some[i]).max(1) < 60)
    ]
    distances = {(files[i].stem, files[j].stem): np.abs(colours[i] - colours[j]).max() for i, j in pairs}
    assert [names for names, d in distances.items() if d <= LIMIT] == [
        ("2851198725_37b6027625", "3050606344_af711c726c")
    ]
    assert sorted(distances.values())[:1] == [0] and min(d for d in distances.values() if d) > 2 * LIMIT

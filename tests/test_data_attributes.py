"""Data sets of independent attributes, two views of a batch, and batches of one group each."""

import gzip
import math
from collections import Counter

import numpy as np
import pytest
import torch
from PIL import Image

from complearn.core.seeds import derive, uniforms
from complearn.data.attributes.celeba import independent, read_celeba
from complearn.data.attributes.cifar_mnist import _labelled_pixels, _shrink, read_cifar_mnist
from complearn.data.attributes.cluster_sampler import ClusterSampler
from complearn.data.attributes.stl10 import read_stl10
from complearn.data.attributes.trifeature import Trifeature, read_trifeature
from complearn.data.attributes.two_views import (
    BLUR_NUMBERS,
    DRAWN,
    NUMBERS,
    Chances,
    Crops,
    DrawChances,
    Views,
    _CropViews,
    two_views,
    with_views,
)
from complearn.data.fixtures.specimens import _write_celeba, _write_cifar_mnist, _write_stl10
from complearn.data.images import BrokenImage, Transform, load_images
from complearn.data.loading import Loader, fingerprint
from complearn.data.pairs import Collate, Pair, keep_labels, preload
from complearn.data.readers.registry import read
from complearn.data.reports import BadData

FOUR = Transform(32, (0.5,) * 4, (0.5,) * 4)


def test_every_combination_comes_as_often_as_any_other_and_parts_share_no_image():
    parts = {
        part: read("trifeature", part=part, samples=2, shapes=3, textures=2, colours=4) for part in ("train", "test")
    }
    combinations = [tuple(pair.labels.values()) for pair in parts["train"]]
    assert len(combinations) == 48 and len(set(combinations)) == 24
    assert not {pair.image.draw for pair in parts["train"]} & {pair.image.draw for pair in parts["test"]}
    assert fingerprint(parts["train"]) != fingerprint(
        read_trifeature(samples=2, shapes=3, textures=2, colours=4, seed=1)
    )
    with pytest.raises(ValueError, match="part"):
        read("trifeature", part="val")


@pytest.mark.parametrize("size", [32, 96])
def test_an_object_is_the_same_at_any_size_and_never_leaves_the_picture(size):
    images = [Trifeature(k % 10, (3 * k) % 10, k % 7, derive(0, k)) for k in range(40)]
    pixels = load_images(images, size)
    assert (pixels[:, 0] == 30).mean() > 0.95 and (pixels[:, :, -1] == 30).mean() > 0.95
    coarse = pixels.reshape(40, 16, size // 16, 16, size // 16, 3).mean((2, 4))
    assert abs(coarse - load_images(images, 16)).mean() < 8


def test_uniform_numbers_depend_on_their_own_seed_alone():
    draws = [derive(0, k) for k in range(2000)]
    numbers = uniforms(draws, 4)
    assert (uniforms(draws[5:6], 2) == numbers[5:6, :2]).all() and len(np.unique(numbers)) == numbers.size
    counts = np.histogram(numbers, 20, (0, 1))[0]
    assert abs(counts - numbers.size / 20).max() < 5 * (numbers.size / 20) ** 0.5


def test_photographs_and_digits_from_their_own_files(tmp_path):
    digits = _write_cifar_mnist(tmp_path)
    pairs = read_cifar_mnist(tmp_path, tmp_path, n=30)
    assert len(pairs) == 30 and pairs[0].image.shape == (32, 32, 4) and "20 kept" in str(pairs.report)
    assert {pair.labels["mnist"] for pair in pairs} == set("012345")
    for pair in pairs:
        assert (pair.image[2:-2, 2:-2, 3] == digits[int(pair.labels["mnist"])]).all()
    record = (tmp_path / "cifar-10-batches-bin" / "data_batch_1.bin").read_bytes()
    red = np.frombuffer(record, np.uint8)[1:1025].reshape(32, 32)
    pixels, names, _ = _labelled_pixels("cifar", tmp_path, "train")
    assert (pixels[0, :, :, 0] == red).all() and names[:4] == ["automobile", "airplane", "truck", "cat"]


@pytest.mark.parametrize(
    ("file", "content", "message"),
    [
        (
            "cifar-10-batches-bin/data_batch_2.bin",
            b"x" * 3000,
            "data_batch_2.bin: 3000 bytes are no whole number of records",
        ),
        (
            "train-images-idx3-ubyte.gz",
            gzip.compress(b"\0\0\x08\x03" + b"\0" * 40, mtime=0)[:-9],
            "idx3-ubyte.gz: .*again",
        ),
        (
            "train-images-idx3-ubyte.gz",
            gzip.compress(b"\0\0\x08\x03\0\0\0\x06\0\0\0\x1c\0\0\0\x1c", mtime=0),
            "idx3-ubyte.gz: .*again",
        ),
        ("train-labels-idx1-ubyte.gz", gzip.compress(b"\0\0\x08\x01\0\0\0\x02\0\1", mtime=0), "6 images and 2 labels"),
        ("train-labels-idx1-ubyte.gz", gzip.compress(b"\0\0\x08\x01\0\0\0\x01\x0b", mtime=0), "digits 0 to 9"),
        ("train-labels-idx1-ubyte.gz", b"", "train-labels-idx1-ubyte.gz: "),
    ],
)
def test_a_damaged_file_is_named(tmp_path, file, content, message):
    _write_cifar_mnist(tmp_path)
    (tmp_path / file).write_bytes(content)
    with pytest.raises(BadData, match=message):
        read_cifar_mnist(tmp_path, tmp_path)


def ramp(width, height):
    "A picture whose red tells the column and whose green tells the line."
    x, y = np.meshgrid(np.arange(width), np.arange(height))
    return np.stack([x, y, 0 * x], -1).astype(np.uint8)


def test_views_box_is_that_of_boxes_on_a_square_and_keeps_the_stated_area_and_ratio():
    views = Views(area=(0.2, 0.5))
    chances = torch.rand(200, NUMBERS, generator=torch.Generator().manual_seed(0))
    for row, (x, y) in zip(chances.tolist(), views.boxes(chances)):
        (left, top, right, bottom), mirrored = views.box(row, 90, 90)
        place = [(x[2] - abs(x[0])) * 45 + 45, (y[2] - y[1]) * 45 + 45]
        size = [abs(x[0]) * 90, y[1] * 90]
        assert np.allclose([left, top, right - left, bottom - top], [*place, *size], atol=1e-4)
        assert mirrored == (x[0] < 0)
        (left, top, right, bottom), _ = views.box(row, 200, 100)
        width, height = right - left, bottom - top
        assert 0 <= left and right <= 200 + 1e-9 and 0 <= top and bottom <= 100 + 1e-9
        share = 0.2 + 0.3 * row[0]
        ratio = math.exp(math.log(0.75) + math.log(16 / 9) * row[1])
        assert height == 100 or np.isclose(width / height, ratio) and np.isclose(width * height, share * 20_000)


@pytest.mark.parametrize("fit", ["crop", "pad", "squash"])
def test_crop_views_cuts_its_crops_out_of_the_whole_picture(fit, tmp_path):
    Image.fromarray(ramp(240, 120)).save(tmp_path / "wide.png")
    transform = Transform(16, (0.5,) * 3, (0.5,) * 3, fit)
    views = Views(area=(0.05, 0.1), jitter=0, grey=0)
    pair = Pair(tmp_path / "wide.png", None, "wide", "wide")
    draws = list(range(40))
    chances, crops = _CropViews(views, transform)([pair] * 40, draws)
    assert torch.equal(chances.numbers, DrawChances()([pair] * 40, draws).numbers)
    assert crops.images.shape == (40, 2, 3, 16, 16)
    scaled = two_views(transform([pair.image] * 40), chances.numbers, views, transform.mean, transform.std)
    whole = two_views(None, chances.numbers, views, transform.mean, transform.std, crops.images)
    assert whole.shape == scaled.shape == (80, 3, 16, 16)
    reds = (255 * (crops.images[:, :, 0] / 2 + 0.5)).round()
    if fit == "crop":  # crops lie in all of the picture, not in its middle alone
        assert reds.min() < 40 and reds.max() > 200
    if fit == "squash":
        assert (whole - scaled).abs().mean() < 0.03  # the same places
    again = _CropViews(views, transform)([pair] * 2, [7, 3])[1].images
    assert torch.equal(again, crops.images[[7, 3]]) and _CropViews(views, transform)([pair]) is None


def test_crop_views_shows_what_a_scaled_picture_has_lost():
    stripes = np.zeros((256, 256, 3), np.uint8)
    stripes[:, ::4] = 255  # of four pixels each: scaled to 16 pixels they are grey
    stripes[:, 1::4] = 255
    transform = Transform(16, (0.5,) * 3, (0.5,) * 3)
    views = Views(area=(1 / 256, 1 / 256), ratio=(1, 1), jitter=0, grey=0)
    chances, crops = _CropViews(views, transform)([Pair(stripes, None, "a", "a")], [1])
    scaled = two_views(transform([stripes]), chances.numbers, views, transform.mean, transform.std)
    assert crops.images.std() > 0.5 and scaled.std() < 0.1


def test_with_views_leaves_pictures_of_the_towers_size_to_the_device():
    world = read("trifeature", samples=1, shapes=2, textures=2, colours=2)
    collate = Collate(Transform(32, (0.5,) * 3, (0.5,) * 3), None)
    views = Views(area=(0.5, 1.0))
    drawn = with_views(collate, views, world)
    assert drawn.steps == (DrawChances(),) and drawn.pixels
    held = preload(world, 32)
    assert with_views(collate, views, held).steps == (DrawChances(),) and not held.scaled
    four = [Pair(np.zeros((32, 32, 4), np.uint8), None, "a", "a")]
    assert with_views(Collate(FOUR, None), views, four).steps == (DrawChances(),)
    photos = [Pair(ramp(40, 33), None, "a", "a")]
    cut = with_views(collate, views, photos)
    assert cut.steps == (_CropViews(views, collate.transform),) and preload(photos, 32).scaled
    batch = cut(photos, [5])
    assert batch.images is None and batch[Crops].images.shape == (1, 2, 3, 32, 32) and len(batch) == 1
    mixed = with_views(collate, views, [*world, *photos])([world[0], *photos], [1, 2])
    assert mixed[Crops].images.shape == (2, 2, 3, 32, 32)


def test_photographs_and_digits_from_folders_of_classes(tmp_path):
    for kind, size in (("photos", 40), ("digits", 28)):
        for name in ("1", "2"):
            (tmp_path / kind / name).mkdir(parents=True)
            for k in range(3):
                Image.fromarray(np.full((size, size), 60 * k + 20, np.uint8)).save(tmp_path / kind / name / f"{k}.png")
    pairs = read_cifar_mnist(tmp_path / "photos", tmp_path / "digits")
    assert len(pairs) == 6 and pairs[0].image.shape == (32, 32, 4)
    batch = Collate(FOUR, None, steps=(keep_labels, DrawChances()))(pairs, [1, 2, 3, 4, 5, 6])
    assert batch.images.shape == (6, 4, 32, 32) and batch[Chances].numbers.shape == (6, DRAWN) and batch.ids is None
    with pytest.raises(BrokenImage, match="an image of 3 channels for a tower of 4"):
        FOUR([np.zeros((32, 32, 3), np.uint8)])


@pytest.mark.slow
@pytest.mark.real
def test_the_real_photographs_and_digits(real_data):
    files = (real_data / "images" / f"{name}_test.parquet" for name in ("cifar10", "mnist"))
    pairs = read("cifar_mnist", **dict(zip(("cifar", "mnist"), map(str, files))), n=300)
    assert len(pairs) == 300
    assert len({pair.labels["cifar"] for pair in pairs}) == 10 == len({pair.labels["mnist"] for pair in pairs})
    assert pairs[0].image[:, :, 3].mean() < 90 < pairs[0].image[:, :, :3].mean() + 60


def changed(name, factor):
    """Views that change one thing alone, and the numbers that make the change largest."""
    still = {
        "area": (1, 1),
        "ratio": (1, 1),
        "mirror": 0,
        "jitter": 1,
        "brightness": 0,
        "contrast": 0,
        "saturation": 0,
        "hue": 0,
        "grey": 0,
    }
    return Views(**still | {name: factor})


@pytest.mark.parametrize("name", ["brightness", "contrast", "saturation"])
def test_light_and_colour_agree_with_torchvision(name):
    functional = pytest.importorskip("torchvision.transforms.v2.functional")
    pixels = torch.rand(3, 3, 16, 16)
    chances = torch.full((3, NUMBERS), 0.5)
    chances[:, 5:8] = torch.tensor([0.0, 0.75, 1.0])[:, None]
    views = changed(name, 0.4).draw(pixels, chances)
    for view, picture, factor in zip(views, pixels, (0.6, 1.2, 1.4)):
        assert torch.allclose(view, getattr(functional, f"adjust_{name}")(picture, factor), atol=2e-3)


@pytest.mark.parametrize("size, kernel", [(16, 3), (64, 7), (224, 23)])
def test_blur_agrees_with_torchvision_picture_by_picture(size, kernel):
    functional = pytest.importorskip("torchvision.transforms.v2.functional")
    pixels = torch.rand(4, 4, size, size)
    chances = torch.zeros(4, NUMBERS + BLUR_NUMBERS)
    chances[:, NUMBERS] = torch.tensor([0.1, 0.1, 0.1, 0.9])  # the last is not blurred
    chances[:, NUMBERS + 1] = torch.tensor([0.0, 0.5, 1.0, 0.5])
    views = Views(jitter=0, grey=0, blur=0.5, sigma=(0.5, 2.0)).tint(pixels, chances)
    for view, picture, sigma in zip(views, pixels, (0.5, 1.25, 2.0)):
        assert torch.allclose(view, functional.gaussian_blur(picture, [kernel, kernel], [sigma, sigma]), atol=1e-5)
    assert torch.equal(views[3], pixels[3])
    with pytest.raises(ValueError, match="sigma lies above 0, the smaller number first"):
        Views(sigma=(2.0, 0.1))


@pytest.mark.parametrize("size", [32, 64])
def test_both_views_of_a_pair_have_their_own_blur_whole_or_scaled(size):
    picture = np.random.default_rng(0).integers(0, 256, (size, size, 3), dtype=np.uint8)
    transform = Transform(32, (0.5,) * 3, (0.5,) * 3)
    still = {"area": (1, 1), "ratio": (1, 1), "mirror": 0, "jitter": 0, "grey": 0}
    pairs = [Pair(picture, None, str(k), str(k)) for k in range(64)]
    drawn = {}
    for blur in (0.0, 0.5):
        views = Views(**still, blur=blur, sigma=(0.5, 2.0))
        batch = with_views(Collate(transform, None), views, pairs)(pairs, list(range(64)))
        crops = batch.get(Crops)
        images = None if crops is not None else batch.images
        numbers = batch[Chances].numbers
        drawn[blur] = two_views(
            images, numbers, views, transform.mean, transform.std, None if crops is None else crops.images
        )
    changed = ((drawn[0.5] - drawn[0.0]).flatten(1).abs().amax(1) > 1e-4).view(2, 64)
    asked = numbers[:, 2 * NUMBERS :].view(64, 2, BLUR_NUMBERS).permute(1, 0, 2)
    assert not torch.equal(changed[0], changed[1])
    assert torch.equal(changed, asked[..., 0] < 0.5)


def test_crops_agree_with_torchvision():
    functional = pytest.importorskip("torchvision.transforms.v2.functional")
    pixels = torch.rand(1, 4, 32, 32)
    views = Views(area=(0.25, 0.25), ratio=(1, 1), jitter=0, grey=0, mirror=1)
    chances = torch.zeros(1, NUMBERS)
    chances[0, 3] = 0.5  # left edge at 8, top edge at 4
    chances[0, 4] = 0.25
    expected = functional.horizontal_flip(functional.resized_crop(pixels, 4, 8, 16, 16, [32, 32], antialias=False))
    assert torch.allclose(views.draw(pixels, chances)[..., 1:-1, 1:-1], expected[..., 1:-1, 1:-1], atol=1e-5)


def test_a_view_depends_on_its_own_numbers_alone_and_leaves_the_fourth_channel_its_light():
    pixels = torch.rand(8, 4, 16, 16)
    chances = torch.rand(8, NUMBERS)
    grey = Views(hue=0.5, grey=1.0, jitter=1.0, area=(1, 1), ratio=(1, 1), mirror=0)
    views = grey.draw(pixels, chances)
    assert torch.allclose(views[3:4], grey.draw(pixels[3:4], chances[3:4]))
    assert torch.allclose(views[:, 3], pixels[:, 3], atol=1e-6) and torch.allclose(views[:, 0], views[:, 1], atol=1e-5)


@pytest.mark.parametrize("values", [{"area": (0.5, 0.2)}, {"area": (0.0, 1.0)}, {"ratio": (0.0, 1.0)}])
def test_views_of_nothing_are_refused(values):
    with pytest.raises(ValueError, match="the smaller number first"):
        Views(**values)


def grouped_loader(groups, rank=0, world=1, batch=8, small="partial"):
    pairs = read_trifeature(samples=1, shapes=5, textures=4, colours=len(groups) // 20)
    sampler = ClusterSampler(np.asarray(groups), batch, 3, small, world)
    return Loader(
        pairs, Collate(Transform(16, (0.5,) * 3, (0.5,) * 3), None), batch, 3, rank=rank, world=world, sampler=sampler
    )


def test_processes_share_the_group_and_draw_disjoint_images_from_it():
    groups = np.random.default_rng(0).integers(0, 3, 60)
    loaders = [grouped_loader(groups, rank, 2) for rank in (0, 1)]
    known = {}
    for number in range(loaders[0].batches_per_epoch):
        indices = loaders[0].indices(number)
        known[number] = set(groups[indices])
        shares = [loader.batch(number).keys for loader in loaders]
        assert len(known[number]) == 1 and not set(shares[0]) & set(shares[1]) and len(shares[0]) == len(shares[1]) == 4
    assert set.union(*known.values()) == {0, 1, 2}


def test_epochs_differ_and_any_batch_can_be_drawn_first():
    groups = np.arange(60) % 4
    loader = grouped_loader(groups)
    other = grouped_loader(groups)
    batches = [loader.indices(k).tolist() for k in range(3 * loader.batches_per_epoch)]
    assert other.indices(2).tolist() == batches[2]
    assert grouped_loader(groups).indices(len(batches) - 1).tolist() == batches[-1]
    epochs = [
        sum(batches[k : k + loader.batches_per_epoch], []) for k in range(0, len(batches), loader.batches_per_epoch)
    ]
    assert epochs[0] != epochs[1] and all(len(epoch) == len(set(epoch)) for epoch in epochs)


def test_small_groups_give_smaller_batches_or_none():
    groups = [0] * 45 + [1] * 6 + [2] * 8 + [3]
    partial, drop = (ClusterSampler(np.array(groups), 8, 0, small) for small in ("partial", "drop"))
    assert partial.left_out == {3: 1} and drop.left_out == {1: 6, 3: 1}
    sizes = sorted(len(partial.indices(0, k)) for k in range(partial.batches_per_epoch))
    assert sizes == [6] + [8] * 6 and drop.batches_per_epoch == 6
    with pytest.raises(ValueError, match=r"none of the 60 groups has 2 images .*make fewer groups"):
        ClusterSampler(np.arange(60), 8, 0)
    with pytest.raises(ValueError, match="take batches of at most 20"):
        ClusterSampler(np.arange(60) % 3, 32, 0, "drop")


def test_photographs_at_half_the_side_are_means_of_four_pixels(tmp_path):
    _write_cifar_mnist(tmp_path)
    whole, half = (read_cifar_mnist(tmp_path, tmp_path, size=size) for size in (32, 16))
    assert half[3].image.shape == (16, 16, 4) and half[3].labels == whole[3].labels
    assert abs(half[3].image[5, 2] - whole[3].image[10:12, 4:6].astype(float).mean((0, 1))).max() <= 0.5
    assert _shrink(np.full((1, 32, 32, 3), 9, np.uint8), 8).tolist() == np.full((1, 8, 8, 3), 9).tolist()
    with pytest.raises(ValueError, match="size"):
        read_cifar_mnist(tmp_path, tmp_path, size=12)


@pytest.mark.parametrize(("balance", "size"), [("equal", 40), ("marginal", 90)])
def test_drawn_attributes_are_independent_and_as_many_as_can_be(balance, size):
    items = [(1, 1)] * 10 + [(1, 0)] * 40 + [(0, 1)] * 40 + [(0, 0)] * 60
    counts = Counter(items[k] for k in independent(items, 0, balance))
    total = sum(counts.values())
    assert abs(total - size) <= 4 and total >= size - 4
    first, second = (
        {value: sum(n for key, n in counts.items() if key[k] == value) for value in (0, 1)} for k in (0, 1)
    )
    for (a, b), n in counts.items():
        assert abs(n - first[a] * second[b] / total) < 1.5
    if balance == "marginal":
        assert abs(first[1] / total - 50 / 150) < 0.03
    assert independent(items, 0, balance) != independent(items, 1, balance)


def test_faces_are_read_from_text_and_from_csv_with_their_parts(tmp_path):
    _write_celeba(tmp_path)
    pairs = read_celeba(tmp_path, "train", ("Black_Hair", "Male"))
    combinations = [(a, b) for a in ("yes", "no") for b in ("yes", "no")]
    assert Counter(tuple(pair.labels.values()) for pair in pairs) == dict.fromkeys(combinations, 2)
    assert all(pair.labels == {"Black_Hair": "yes" if k % 2 else "no", "Male": "yes" if k // 2 % 2 else "no"}
               for pair in pairs for k in [int(pair.id[:6]) - 1])  # fmt: skip
    assert {int(pair.id[:6]) for pair in read_celeba(tmp_path, "test", ("Black_Hair", "Male"))} == {9, 10, 11, 12}
    assert len(read_celeba(tmp_path, "all", ("Smiling",), "none")) == 12
    for name in ("list_attr_celeba", "list_eval_partition"):
        lines = (tmp_path / f"{name}.txt").read_text().splitlines()
        lines = (
            ["image_id," + lines[1].replace(" ", ","), *lines[2:]]
            if name == "list_attr_celeba"
            else ["image_id,partition", *lines]
        )
        (tmp_path / f"{name}.csv").write_text("\n".join(",".join(line.split()) for line in lines))
        (tmp_path / f"{name}.txt").unlink()
    assert [(pair.id, pair.labels) for pair in read_celeba(tmp_path, "train", ("Black_Hair", "Male"))] == [
        (pair.id, pair.labels) for pair in pairs
    ]


@pytest.mark.parametrize(
    ("change", "arguments", "message"),
    [
        (lambda text: text.replace("12\n", "13\n", 1), {}, "line 1: '13' images were to come, and 12 did"),
        (lambda text: text.replace("000004.png  1", "000004.png  2"), {}, "line 6: '000004.png' has 3 values"),
        (
            lambda text: text.replace("000004.png  1", "000004.png"),
            {},
            "line 6: '000004.png' has 2 values; expected are 3",
        ),
        (lambda text: text.replace("000005.png", "000001.png"), {}, "line 7: '000001.png' stands there already"),
        (lambda text: text, {"attributes": ("Blond",)}, "no attribute in list_attr_celeba.txt 'Blond'"),
        (
            lambda text: text,
            {"attributes": ("Male", "Smiling", "Black_Hair"), "part": "train"},
            r"occurs in none of 8 items; leave out",
        ),
        (lambda text: text, {"part": "val"}, "no image of .val."),
    ],
)
def test_a_broken_table_of_faces_is_named(tmp_path, change, arguments, message):
    _write_celeba(tmp_path)
    path = tmp_path / "list_attr_celeba.txt"
    path.write_text(change(path.read_text()))
    with pytest.raises(ValueError, match=message):
        read_celeba(tmp_path, **({"attributes": ("Black_Hair", "Male")} | arguments))


def test_photographs_of_stl10_stand_upright_and_those_without_a_class_have_no_label(tmp_path):
    _write_stl10(tmp_path)
    content = (tmp_path / "train_X.bin").read_bytes()
    pairs = read_stl10(tmp_path)
    assert [pair.labels for pair in pairs] == [{"class": "airplane"}, {"class": "truck"}, {"class": "cat"}, None, None]
    k = 2
    channel = 1
    column = 40
    line = 7
    assert pairs[k].image[line, column, channel] == content[((k * 3 + channel) * 96 + column) * 96 + line]
    assert load_images([pairs[4].image], 96).shape == (1, 96, 96, 3) and len(read_stl10(tmp_path, "train", n=2)) == 2
    (tmp_path / "train_y.bin").write_bytes(bytes([1, 11, 4]))
    with pytest.raises(BadData, match="3 classes .1 to 11. for 3 photographs, of 1 to 10"):
        read_stl10(tmp_path, "train")
    (tmp_path / "unlabeled_X.bin").write_bytes(content[:-1])
    with pytest.raises(BadData, match="no whole number of photographs"):
        read_stl10(tmp_path, "unlabeled")
    with pytest.raises(BadData, match="test_X.bin"):
        read_stl10(tmp_path, "test")


def test_an_image_of_other_channels_than_the_towers_is_refused(tmp_path):
    """Four channels are no transparency, with and without random crops; a file with transparency is put on white, as
    ever."""
    photo = np.full((16, 16, 4), 200, np.uint8)
    photo[..., 3] = 0  # where there is no digit
    for transform, draws in ((Transform(16), None), (Transform(16, area=(0.5, 1.0)), [1]), (Transform(8), None)):
        with pytest.raises(
            BrokenImage, match=r"uint8 \(16, 16, 4\): an image of 4 channels for a tower of 3; give the model a tower"
        ):
            transform([photo], draws)
    with pytest.raises(BrokenImage, match="an image of 3 channels for a tower of 4"):
        Transform(16, mean=(0.5,) * 4, std=(0.5,) * 4)([photo[..., :3]])
    with pytest.raises(ValueError, match="are for three channels, not for 4; take area, mirror and jitter out"):
        Transform(16, mean=(0.5,) * 4, std=(0.5,) * 4, mirror=True)([photo], [1])
    with pytest.raises(BrokenImage, match="an image of 4 channels for a tower of 3"):
        preload([Pair(photo, None, "0", "0")], 16)
    assert Transform(16, mean=(0.5,) * 4, std=(0.5,) * 4)([photo]).shape == (1, 4, 16, 16)
    Image.fromarray(photo).save(tmp_path / "clear.png")
    assert (load_images([tmp_path / "clear.png", Image.fromarray(photo), photo[..., 0]], 16)[:2] == 255).all()

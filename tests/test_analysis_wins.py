"Wins and losses of two models against counting by hand; matched codes."

from dataclasses import replace
from html.parser import HTMLParser
from math import comb

import numpy as np
import pandas as pd
import pytest
from stand_ins import StandIn, hashed

from complearn.analysis.pictures.galleries import Wins, _item_texts, _win_page, save_wins
from complearn.data.benchmarks.items import Choice
from complearn.evaluation.statistics import mcnemar
from complearn.evaluation.tasks.choices import evaluate_choices


def picture(k):
    return np.full((8, 8, 3), 20 * k, np.uint8)


def frame(right, margin, items):
    lines = {
        "id": [item.id for item in items],
        "split": [item.split for item in items],
        "metric": "accuracy",
        "right": right,
    }
    lines |= {"margin": margin, "photo": [int(item.image_ids[0]) for item in items], "captions": range(len(items))}
    return pd.DataFrame(lines | {"scores": [(0.5 + m, 0.5) for m in margin]})


@pytest.fixture
def wins():
    """Eight items of four photos: A is right on the first of each photo and B on the second, but for the last photo."""
    items = [
        Choice("swap" if k < 6 else "add", (picture(k // 2),), (f"right {k}", f"wrong <{k}>"), f"{k}", (f"{k // 2}",))
        for k in range(8)
    ]
    first = np.array([True, False, True, False, True, False, True, True])
    second = np.array([False, True, False, True, False, True, False, False])
    sizes = np.array([0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8])
    frames = {
        "A": frame(first, np.where(first, sizes, -sizes), items),
        "B": frame(second, np.where(second, 0.45, -0.45), items),
    }
    return Wins.compare(frames, items)


def test_items_of_one_photo_count_as_one(wins):
    counts = wins.counts().set_index("split")
    assert counts.loc["all", ["n", "only A", "only B", "both", "neither"]].tolist() == [8, 5, 3, 0, 0]
    assert counts.loc["all", ["groups", "groups for A", "groups for B"]].tolist() == [4, 1, 0]  # three photos are level
    assert counts.loc["all", "p_items"] == pytest.approx(2 * sum(comb(8, k) for k in range(4)) / 2**8)
    assert counts.loc["all", "p"] == 1
    # two items are no more than one photo
    assert counts.loc["add", ["groups for A", "p_items", "p"]].tolist() == [1, 0.5, 1]


@pytest.mark.parametrize("first,second", ((0, 0), (1, 0), (3, 9), (20, 20), (40, 12)))
def test_mcnemar_is_the_sum_of_binomial_tails(first, second):
    n = first + second
    k = min(first, second)
    assert mcnemar(first, second) == pytest.approx(min(1, 2 * sum(comb(n, i) for i in range(k + 1)) / 2**n))


def test_selection_by_split_winner_and_margin(wins):
    # the less clear of the two verdicts decides
    assert [*wins.select().lines.id] == ["4", "5", "6", "7", "3", "2", "1", "0"]
    assert [*wins.select(split="swap", winner="B", margin=0.25).lines.id] == ["5", "3"]
    assert len(wins.select(n=2).lines) == 2
    for wrong in ({"split": "swop"}, {"winner": "C"}, {"metric": "group_score"}):
        with pytest.raises(ValueError, match="swap, add|A, B|accuracy"):
            wins.select(**wrong)


def test_one_model_is_right_or_wrong(wins):
    """Its counts needed a second model, and its mistakes were headed "wrong is right"."""
    items = list(wins.choices.values())
    right = np.array([True] * 5 + [False] * 3)
    one = Wins.of_one("A", frame(right, np.where(right, 0.2, -0.2), items), items)
    counts = one.counts().set_index("split")[["n", "right", "wrong"]]
    assert counts.T.to_dict("list") == {"swap": [6, 5, 1], "add": [2, 0, 2], "all": [8, 5, 3]}
    headings = [_item_texts(one, row)[0] for row in (0, 7)]
    assert headings == ["swap, accuracy: A is right", "add, accuracy: A is wrong"]


def test_models_that_were_not_asked_the_same_are_refused(wins):
    items = list(wins.choices.values())
    verdicts = [frame([True] * n, [0.1] * n, items[:n]) for n in (8, 7)]
    with pytest.raises(ValueError, match="A has 8 lines and B 7, of which 7 are the same"):
        Wins.compare(dict(zip("AB", verdicts)), items)


class _Page(HTMLParser):
    def __init__(self, text):
        super().__init__()
        self.tags = []
        self.sources = []
        self.words = []
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        self.tags.append(tag)
        self.sources += [value for name, value in attributes if name in ("src", "href")]

    def handle_data(self, data):
        self.words.append(data)


def test_a_page_is_one_file_and_draws_captions_as_they_are(wins):
    page = _Page(_win_page(wins.select(), wins.counts()))
    assert page.tags.count("img") == 8 and all(source.startswith("data:image/png;base64,") for source in page.sources)
    assert any("✗ wrong <3>  [A 0.500; B 0.500]" in words for words in page.words)


def test_every_form_of_item_is_written_and_read_again(tmp_path):
    text = [Choice("text", (picture(k),), (f"a{k}", f"b{k}", f"c{k}"), f"t{k}", right=2) for k in range(6)]
    image = [Choice("image", (picture(k), picture(k + 1)), (f"d{k}",), f"i{k}") for k in range(6)]
    group = [Choice("group", (picture(k), picture(k + 1)), (f"e{k}", f"f{k}"), f"g{k}") for k in range(6)]
    items = text + image + group

    def scorer(name):
        return StandIn(lambda image: hashed(image.tobytes()), lambda text: hashed(f"{name}: {text}"))

    frames = {name: evaluate_choices(scorer(name), items) for name in ("A", "B")}
    wins = Wins.compare(frames, items)
    figure, files = save_wins(wins, tmp_path, "mixed", shown=50)
    table = pd.read_csv(files[0])
    selected = wins.select()
    assert len(table) == len(selected.lines) == len(figure.layout.annotations)
    assert {path.suffix for path in files} >= {".csv", ".html"}
    numbers = {"text": 3, "image": 2, "group": 4}
    assert all(len(line["A: scores"].split()) == numbers[line.split] for _, line in table.iterrows())
    for _, line in selected.lines[selected.lines.split == "text"].iterrows():
        assert line.margin_0 == pytest.approx(min(line.scores_0[:2]) - line.scores_0[2]) or line.metric == "text_only"
    empty = replace(wins, lines=wins.lines.head(0))
    assert len(empty.table()) == 0 and "<img" not in _win_page(empty)

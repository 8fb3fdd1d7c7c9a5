"""Swaps of plain captions: what may change places, what may not, and how many real captions can take one."""

import csv
import gzip
import re
from dataclasses import replace
from unittest.mock import Mock

import pytest
from hypothesis import given, settings, strategies as st

from complearn.language.edits import captions as caption_edits
from complearn.language.edits.captions import CAPTION_OPERATORS, MOST_WORDS, draw_swap, exchange, swap_reach, swaps
from complearn.language.parsing.chunks import noun_chunks

NOUNS = {
    "A man in a red shirt rides a brown horse.": ["man", "shirt", "horse"],
    "Two dogs playing with a ball on the grass": ["dogs", "ball", "grass"],
    "A couple of people sitting in chairs under an umbrella.": ["people", "chairs", "umbrella"],
    "There are a lot of people sitting by the fountain.": ["people", "fountain"],
    "a parked car next to a fire hydrant": ["car", "hydrant"],
    "A woman taking a selfie in front of a large mirror.": ["woman", "selfie", "mirror"],
    "Several men in hard hats are operating a giant pulley system.": ["men", "hats", "system"],
    "a person 's hand holds a cup": ["hand", "cup"],
    "A man\u2019s dog isn\u2019t near the car, they're on sand": ["dog", "car", "sand"],
    "A dog 's running on a beach": ["dog", "beach"],
    "A cafe\u0301 near a park": ["cafe\u0301", "park"],
}


@pytest.mark.parametrize("caption", NOUNS)
def test_noun_phrases_are_found(caption):
    assert [caption[slice(*one.noun)] for one in noun_chunks(caption)] == NOUNS[caption]


EVEN = (
    "A cat and a dog.", "a cat next to a dog", "A cat with a dog", "a man standing beside a woman", "a cat, a dog and "
                                                                                                    "a bird", "A dog.",
    "A man near a man", "a woman kissing a man", "the cat and the dog are sleeping", "...", "",
)  # fmt: skip


@pytest.mark.parametrize("caption", EVEN)
def test_what_says_the_same_the_other_way_round_is_refused(caption):
    assert swaps(caption) == [] and draw_swap(caption, 3) is None


MUTUAL = (
    "a man holding hands with a woman", "A man is shaking hands with a woman.", "a car parked opposite a truck",
    "a car is parked directly opposite a truck", "a man sitting across from a woman", "a man across the table from a "
                                                                                      "woman",
    "a man dancing with a woman", "a road parallel to a river", "a road running parallel to a "
                                                                "river", "a boy hugs a girl",
    "a boy warmly hugging a girl", "a boy is hugged by a girl", "a man is married to a woman", "a man kissed a woman",
    "a cat and a dog facing each other", "a cat faces a dog", "a man meets a woman", "a man met with a "
                                                                                     "woman", "a boy embraces a girl",
    "a man walking hand in hand with a woman", "a man standing face to face with a woman", "a boy and a girl holding "
                                                                                           "hands",
)  # fmt: skip


@pytest.mark.parametrize("caption", MUTUAL)
def test_what_is_always_mutual_is_refused(caption):
    assert swaps(caption) == []


@pytest.mark.parametrize(
    "caption",
    ["a woman walking a dog", "a dog facing away from a cat", "a boy handing a gift to a girl", "a man parks a car"],
)
def test_what_only_looks_mutual_is_swapped(caption):
    assert swaps(caption)


def test_a_mutual_pair_may_still_exchange_what_it_binds():
    made = {one.caption for one in swaps("a tall man holding hands with a young woman")}
    assert made == {"a young man holding hands with a tall woman", "a tall woman holding hands with a young man"}


def test_an_even_pair_may_still_exchange_what_it_binds():
    made = {one.caption for one in swaps("A black cat and a white dog.")}
    assert made == {"A white cat and a black dog.", "A black dog and a white cat."}


def test_the_three_operators():
    made = {(one.operator, one.caption) for one in swaps("A small dog rides a brown horse.")}
    assert made == {
        ("swap_obj", "A small horse rides a brown dog."),
        ("swap_att", "A brown dog rides a small horse."),
        ("swap_phrase", "A brown horse rides a small dog."),
    }
    assert {one.operator for one in swaps("A small dog rides a brown horse.", ("swap_obj",))} == {"swap_obj"}
    with pytest.raises(ValueError, match="no operator 'swap_rel'.*; there are swap_att, swap_obj, swap_phrase"):
        swaps("a cat", ("swap_rel",))


def test_articles_numbers_and_first_letters():
    assert swaps("An owl watches a mouse.")[0].caption == "A mouse watches an owl."
    assert not any(one.operator == "swap_obj" for one in swaps("two dogs on a sofa"))  # "two sofa"
    assert exchange("A cat eats an apple", (2, 5), (14, 19))[0] == "An apple eats a cat"
    assert exchange("An umbrella under a dog", (3, 11), (20, 23))[0] == "A dog under an umbrella"
    assert exchange("A utility pole by an owl", (2, 14), (21, 24))[0] == "An owl by a utility pole"
    # as the author wrote it
    assert exchange("An SUV near a bus", (3, 6), (14, 17))[0] == "A bus near an SUV"
    # what describes, what names a kind
    assert not any(one.operator == "swap_att" for one in swaps("a young man hits a tennis ball"))


def test_nouns_are_exchanged_with_nouns_of_the_same_number():
    """Plurals without an s count, and an s alone makes none."""
    assert not any(one.operator == "swap_obj" for one in swaps("Two men on a boat ."))
    assert not any(one.operator == "swap_obj" for one in swaps("Two dogs on a bus ."))
    assert "two cats chase the mice" in {one.caption for one in swaps("two mice chase the cats", ("swap_obj",))}


@settings(max_examples=40, deadline=None)
@given(st.text(alphabet="abcdeghimnorst ,.-'AT\n\té", max_size=60), st.integers(0, 2**40))
def test_any_text_is_taken_and_the_draw_decides(caption, draw):
    one = draw_swap(caption, draw)
    assert one == draw_swap(caption, draw)
    if one is not None:

        def bag(text):
            return sorted("a" if word == "an" else word for word in re.findall(r"\w+", text.lower()))

        assert one.operator in CAPTION_OPERATORS and bag(one.caption) == bag(caption) and one.caption != caption
        ((a, b), first), ((c, d), second) = one.spans
        assert 0 <= a < b <= c < d <= len(caption) and one.source == caption

        def part(text, span):
            return re.sub(r"\s+", " ", text[slice(*span)]).lower().removeprefix("an ").removeprefix("a ")

        assert part(one.caption, first) == part(caption, (c, d)) and part(one.caption, second) == part(caption, (a, b))


LONG = {
    "sentences": "A man in a red shirt rides a brown horse near two green trees. ",
    "modifiers": "red " * 30 + "ball by " + "blue " * 30 + "cup, ",
    "links": "a cat and a dog, ",
    "quantities": "lots of the ",
}


@pytest.mark.parametrize("text", LONG.values(), ids=LONG)
def test_a_longer_caption_costs_no_more_exchanges(text, monkeypatch):
    counts = []
    for repetitions in (12, 120):
        calls = [Mock(wraps=getattr(caption_edits, name)) for name in ("exchange", "is_symmetric")]
        with monkeypatch.context() as patch:
            patch.setattr(caption_edits, "exchange", calls[0])
            patch.setattr(caption_edits, "is_symmetric", calls[1])
            swaps(text * repetitions)
        counts.append([call.call_count for call in calls])
    assert counts[0] == counts[1] and counts[0][0] <= MOST_WORDS**2 and counts[0][1] <= MOST_WORDS


def test_only_the_first_words_of_a_long_caption_are_exchanged():
    caption = "A man rides a horse. " * 30
    reach = swap_reach(caption)
    assert len(re.findall(r"\w+", caption[:reach])) == MOST_WORDS and swap_reach("a cat") == 5
    edits = swaps(caption)
    assert edits and all(edit.caption[-len(caption[reach:]) :] == caption[reach:] for edit in edits)
    assert all(span[1] <= reach for edit in edits for pair in edit.spans for span in pair)
    assert swaps(caption[:reach]) == [
        replace(edit, caption=edit.caption[: -len(caption[reach:])], source=caption[:reach]) for edit in edits
    ]


@pytest.mark.parametrize("filling", [" ", ",", "and ", ", ", "very ", "&"])
def test_long_runs_between_two_phrases_end(filling):
    assert isinstance(swaps("a dog" + filling * 20_000 + "sees a cat"), list)


@pytest.mark.real
def test_most_real_captions_take_a_swap(real_data):
    with open(real_data / "captions" / "negclip_coco_valid.tsv", encoding="utf-8") as file:
        coco = [line["title"] for line in csv.DictReader(file, delimiter="\t")][:400]
    with gzip.open(real_data / "captions" / "flickr30k_train.1.en.gz", "rt", encoding="utf-8") as file:
        flickr = [line.strip() for line, _ in zip(file, range(400))]

    def bag(text):
        return sorted("a" if word == "an" else word for word in re.findall(r"\w+", text.lower()))

    for captions, least in ((coco, 0.9), (flickr, 0.9)):
        made = [(caption, draw_swap(caption, k)) for k, caption in enumerate(captions)]
        assert sum(one is not None for _, one in made) / len(made) > least
        for caption, one in made:
            assert one is None or (bag(one.caption) == bag(caption) and one.caption.lower() != caption.lower())
    # the released negatives of NegCLIP exchange words too: a good part of our options are among theirs
    with open(real_data / "captions" / "negclip_coco_valid.tsv", encoding="utf-8") as file:
        lines = [line for line, _ in zip(csv.DictReader(file, delimiter="\t"), range(300))]

    def plain(text):
        return re.sub(r"[^a-z0-9 ]", "", text.lower()).split()

    def theirs(line):
        return re.findall(r"'([^']{9,})'", line["neg_caption"])

    hit = [
        plain(one) in [plain(ours.caption) for ours in swaps(line["title"])] for line in lines for one in theirs(line)
    ]
    assert sum(hit) / len(hit) > 0.25

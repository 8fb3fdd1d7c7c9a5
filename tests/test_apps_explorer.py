"""The concept explorer: its controller's answers and errors, its tables, and the app on a page."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from browser import attach, check_requests, open_chromium, screenshot

from complearn.analysis.trees.figures import node_scores
from complearn.apps.concepts.controller import ConceptsController, concepts
from complearn.apps.concepts.messages import _sentence_nodes
from complearn.core.runs import Run
from complearn.data.divergence.measure import pairs_graph, pairs_parses
from complearn.data.pairs import Pair
from complearn.data.word_tokenizer import WordTokenizer
from complearn.data.worlds.world import world_from
from complearn.language.concepts.graph import write_graph
from complearn.language.parsing.brackets import tree_parse
from complearn.language.parsing.registry import read_corrections
from complearn.language.trees import parse_bracketed
from complearn.models.registry import build, read_model

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
        Pair(shade if pictures else None, text, str(k), name, parse_bracketed(tree))
        for k, ((text, tree), name, shade) in enumerate(places)
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
    assert not asked(app, "search", text="a d")["found"]["more"]
    found = asked(app, "search", text="a d")["found"]["rows"]
    assert found == [["a dog", False, 1], ["a dog on grass", False, 1], ["a dog near a cat", False, 1]]
    dog = asked(app, "open_concept", text="A  dog")
    assert dog["concept"]["parts"] == [["a [NN]", ["dog"], 2]]
    assert dog["concept"]["images"] == 1
    assert dog["concept"]["captions"] == 2
    assert sorted(dog["concept"]["wholes"]) == [
        ["[NP] near [NP]", "a dog near a cat", 1],
        ["[NP] on [NP]", "a dog on grass", 1],
    ]
    assert dog["pictures"]["rows"] == [{"image": "1.jpg", "ids": ["0", "1"], "captions": [*TREES][:2], "picked": False}]
    grass = asked(app, "open_concept", text="grass")["concept"]
    assert grass["relations"] == [["[NP] on [NP]", "a dog on grass", 2]], "a phrase of the captions says what it is"
    assert grass["images"] == 2
    assert grass["primitive"]
    assert not grass["n_parts"]
    assert app.relations.values.tolist() == [
        ["whole", "[NP] on [NP]", "a dog on grass", 1],
        ["whole", "[NP] on [NP]", "a cat on grass", 1],
    ]


def test_a_page_of_pictures_that_is_not_there_is_the_last_one():
    app = concepts(make_pairs())
    asked(app, "open_concept", text="grass")
    assert asked(app, "show_page", start=99)["pictures"]["start"] == 1 == app.controller.view.start
    again = concepts(make_pairs(), view=app.view)
    assert again.controller.view == app.controller.view


def test_an_address_of_before_has_its_views_selection():
    app = concepts(make_pairs())
    assert app.selection.empty and "open one" in str(pytest.raises(ValueError, lambda: app.relations).value)
    app.run_action("open_concept", text="grass")
    assert app.selection["id"].tolist() == ["0", "2"] and app.selection["caption"][0] == "A dog on grass"
    before = app.run_action("pick", image="2.jpg").view
    app.run_action("open_concept", text="a dog", predicate="[NP] near [NP]")
    assert app.selection.values.tolist() == [["a dog", "[NP] near [NP]", "1.jpg", "1", "a dog near a cat"]]
    after = app.view
    back = asked(app, "connect", view=before)
    assert back["concept"]["text"] == "grass" and back["pictures"]["n_picked"] == 1
    assert app.selection["id"].tolist() == ["2"] and "2,a cat on grass" in asked(app, "export_table")["table"]["text"]
    assert asked(app, "pick", image="2.jpg")["pictures"]["n_picked"] == 0
    assert asked(app, "connect", view=after)["concept"]["predicate"] == "[NP] near [NP]" and app.view == after
    asked(app, "show_page", start=0)
    asked(app, "open_concept", text="A dog", predicate="[NP] near [NP]")
    assert app.view == after, "the same concept is not a new view"


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
    assert app.controller.view.text == "a dog" and not app.controller.view.predicate
    for action in ("clear", "show_page"):
        assert "search one" in refusal(concepts(make_pairs()), action)


def test_what_can_not_be_read_says_what_to_do(tmp_path):
    for arguments, remedy in (
        ({"captions": str(tmp_path / "none.csv")}, "check the path"),
        ({"graph": str(tmp_path)}, "write it with: complearn graph"),
        ({"captions": []}, "give captions"),
        ({"captions": ["a dog"], "parser": "nothing"}, "no parser 'nothing'; there are brackets"),
    ):
        assert remedy in refusal(concepts(**arguments), "connect"), arguments


def test_a_picture_that_is_gone_costs_itself_alone(tmp_path):
    pairs = make_pairs()
    pairs[2] = Pair(tmp_path / "gone.jpg", *(getattr(pairs[2], name) for name in ("caption", "id", "image_id", "tree")))
    app = concepts(pairs)
    messages = app.controller.handle({"action": "open_concept", "text": "grass"})
    content, files = messages[-1]
    assert files[0]
    assert not files[1]
    assert "1 of these pictures cannot be shown" in content["note"]
    assert "restore it" in content["note"]
    assert content["rows"][1]["captions"] == ["a cat on grass"]


def test_a_graph_alone_has_captions_and_with_its_pairs_pictures(tmp_path):
    graph = concepts(make_pairs()).run_action("connect").controller.source.graph
    write_graph(tmp_path / "graph", graph)
    alone = asked(concepts(tmp_path / "graph"), "open_concept", text="grass")["pictures"]
    assert alone["rows"][0]["captions"] == ["a dog on grass"] and "to see their pictures" in alone["note"]
    assert asked(concepts(make_pairs(), tmp_path / "graph"), "open_concept", text="grass")["pictures"]["note"] == ""
    others = [Pair(pair.image, pair.caption, pair.id, f"other-{pair.image_id}") for pair in make_pairs()]
    assert "the captions that the graph was made of" in asked(concepts(others, graph), "connect")["graph"]["note"]


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    """Corrections of one test are not another's."""
    monkeypatch.setenv("COMPLEARN_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("COMPLEARN_CORRECTIONS", raising=False)


def small_model(kind="composer", captions=TREES, context=None):
    little = {"tower": "tiny", "width": 16, "depth": 1, "heads": 2}
    config = {"kind": kind, "layers": 3} if kind == "composer" else {}
    config |= {"vision": little | {"size": 16, "patch": 8}, "text": little}
    return build(read_model(config), WordTokenizer.fit([*captions], context), seed=1).eval()


def test_every_concept_of_a_sentence_has_the_models_scores_for_both_pictures():
    pairs = make_pairs()
    model = small_model()
    app = concepts(pairs, models={"small": model, "clip": small_model("clip")})
    content = asked(app, "open_sentence", id="1")["sentence"]
    expected = node_scores(model, pairs[1], {"own": pairs[1].image, "other": pairs[2].image})
    assert content["images"] == ["1.jpg", "2.jpg"] and content["model"] == "small"
    assert (
        [node["text"] for node in content["nodes"]]
        == expected.text.tolist()
        == ["a dog near a cat", "a dog", "dog", "a cat", "cat"]
    )
    for name in ("own", "other"):
        assert (
            [node[name] for node in content["nodes"]]
            == pytest.approx(expected[name].tolist())
            == app.scores[name].tolist()
        )
    cells = {tuple(cell[1:3]): cell[4] for cell in content["cells"] if cell[4] >= 0}
    assert cells == {(0, 5): 0, (0, 2): 1, (1, 2): 2, (3, 5): 3, (4, 5): 4}
    assert asked(app, "another_picture")["sentence"]["images"][1] == "3.jpg"
    refused = asked(app, "open_model", source="clip")["sentence"]
    assert "does not score concepts; take a model of kind composer" in refused["note"]
    assert refused["nodes"][0]["own"] is None
    assert asked(app, "close_sentence")["sentence"]["text"] == ""


def test_marks_at_the_ends_and_words_that_were_cut_do_not_shift_scores():
    parse = tree_parse('"Two dogs!"', parse_bracketed("(NP (`` \") (CD Two) (NNS dogs) (. !) ('' \"))"))
    scores = pd.DataFrame([(1, "Two dogs", 0.5, 0.25)], columns=["start", "text", "own", "other"])
    nodes, cells = _sentence_nodes(parse, scores)
    assert nodes == [{"text": "two dogs", "own": 0.5, "other": 0.25}, {"text": "dogs", "own": None, "other": None}]
    assert cells[0] == ["NP", 0, 5, 2, 0]


def test_without_a_model_the_sentence_says_so(tmp_path):
    app = concepts(make_pairs())
    assert (
        "Start the app with --runs FOLDER; in a notebook" in asked(app, "open_sentence", id="1")["sentence"]["unscored"]
    )
    words = concepts(make_pairs(pictures=False))
    assert (
        "--runs FOLDER and captions that have pictures" in asked(words, "open_sentence", id="1")["sentence"]["unscored"]
    )
    Run.create(tmp_path / "run", {"method": "made up"})
    app = concepts(make_pairs(), runs=tmp_path)
    assert (
        "No scores: run is no training of complearn.launch"
        in asked(app, "open_sentence", id="1")["sentence"]["unscored"]
    )
    assert asked(concepts(make_pairs(), models=small_model()), "open_sentence", id="1")["sentence"]["unscored"] == ""


def test_the_page_says_that_a_parser_is_loaded_once(tmp_path):
    def busy(pairs, graph=None):
        """What the page hears while two trees are opened."""
        app = concepts(pairs, graph, parser="rules")
        lines = []
        app.controller.notify = lambda message: lines.append(message[0]["text"])
        for number in ("0", "1"):
            asked(app, "open_sentence", id=number)
        return lines

    pairs = make_pairs()
    bare = [replace(pair, tree=None) for pair in pairs]
    folder = write_graph(tmp_path / "graph", pairs_graph(pairs, pairs_parses(pairs)))
    assert busy(bare, str(folder))[1:] == [
        "loading the parser: some seconds, once; later trees open quickly",
        "opening the tree",
    ]
    assert busy(bare) == ["loading the parser and finding the concepts of 4 captions", *["opening the tree"] * 2]
    assert busy(pairs) == ["finding the concepts of 4 captions", *["opening the tree"] * 2]


def test_a_search_says_that_there_are_more():
    found = asked(concepts(), "connect")["found"]
    assert len(found["rows"]) == 40 and found["more"]


def test_a_tree_that_is_corrected_stays_corrected_and_is_scored():
    wrong = "(NP (DT a) (NN dog) (PP (IN near) (NP (DT a) (NN cat))))"
    pairs = make_pairs()
    pairs[1] = Pair(pairs[1].image, "a dog near a cat", "1", "1.jpg", parse_bracketed(wrong))
    app = concepts(pairs, models=small_model())
    before = asked(app, "open_sentence", id="1")["sentence"]
    assert before["tree"] == wrong and not before["corrected"] and len(before["nodes"]) == 4
    for tree, place in (
        (wrong[:-1], "'(' at character 0 is never closed"),
        (wrong.replace("dog", "cow"), "leaf 1 is 'cow', and the caption goes on with 'dog near"),
        (wrong + ")", "character 56: ')' follows a finished tree"),
    ):
        assert place in (text := refusal(app, "correct", tree=tree)) and "mend it there" in text
    after = asked(app, "correct", tree=TREES["a dog near a cat"])["sentence"]
    assert after["corrected"] and after["file"] in after["note"] and len(after["nodes"]) == len(app.scores) == 5
    again = concepts(pairs)
    assert asked(again, "open_concept", text="a dog")["concept"]["captions"] == 2, (
        "the graph is made of corrected trees"
    )
    assert asked(again, "open_sentence", id="1")["sentence"]["tree"] == TREES["a dog near a cat"]
    back = asked(again, "correct", tree="")["sentence"]
    assert back["tree"] == wrong and not back["corrected"]


def test_a_tree_is_kept_for_the_caption_as_it_was_written_where_ids_differ(tmp_path):
    tree = TREES["A dog on grass"]
    lines = ["A dog on grass.", "a cat on grass"]
    named = [Pair(None, text, f"train.csv line {k}", f"{k}.jpg") for k, text in enumerate(lines)]
    write_graph(tmp_path / "graph", pairs_graph(named, pairs_parses(named, "rules")))
    picture = np.zeros((8, 8, 3), np.uint8)
    pairs = [Pair(picture, text, f"train:{k}.0", f"{k}.jpg") for k, text in enumerate(lines)]
    app = concepts(pairs, tmp_path / "graph", parser="rules")
    opened = asked(app, "open_sentence", id="train.csv line 0")["sentence"]
    assert opened["text"] == "A dog on grass." and opened["id"] == "train.csv line 0"
    assert asked(app, "open_concept", text="grass")["pictures"]["rows"][0]["captions"] == ["A dog on grass."]
    asked(app, "correct", tree=f"{tree[:-1]} (. .))")
    assert read_corrections(app.controller.source.corrections).keys() == {"A dog on grass."}
    others = [
        replace(pair, caption="a dog there", id=each.id, image_id=f"other {each.image_id}")
        for pair, each in zip(pairs, named)
    ]
    for given in ([], others):
        app = concepts(given, tmp_path / "graph", parser="rules")
        assert asked(app, "open_sentence", id="train.csv line 1")["sentence"]["text"] == "a cat on grass"
        assert "make the graph from the same captions" in refusal(app, "correct", tree=TREES["a cat on grass"])
    assert read_corrections(app.controller.source.corrections).keys() == {"A dog on grass."}


def test_a_sentence_that_is_too_long_for_its_model_says_so():
    app = concepts(make_pairs(), models=small_model(context=5))
    content = asked(app, "open_sentence", id="1")["sentence"]
    assert content["unscored"].startswith("model reads this sentence up to “a dog near”: ")
    assert [node["own"] is None for node in content["nodes"]] == [True, False, False, True, True]
    assert asked(concepts(make_pairs(), models=small_model()), "open_sentence", id="1")["sentence"]["unscored"] == ""


def test_a_sentence_that_can_not_be_shown_says_what_to_do(tmp_path):
    app = concepts(make_pairs(pictures=False), models=small_model())
    assert "open one of those under a picture" in refusal(app, "open_sentence", id="9")
    for action in ("correct", "another_picture"):
        assert "click Tree under a picture" in refusal(app, action)
    assert "open the app with pairs" in asked(app, "open_sentence", id="0")["sentence"]["note"]
    assert "there is no other picture" in refusal(app, "another_picture")

    def broken(captions):
        raise OSError("the disk is gone")

    app = concepts(["a dog near a cat"], parser=broken)
    failed = asked(app, "open_sentence", id="caption-0")["sentence"]
    assert "the disk is gone" in failed["note"] and "Correct it by hand" in failed["note"] and failed["cells"] == []
    assert len(asked(app, "correct", tree=TREES["a dog near a cat"])["sentence"]["nodes"]) == 5
    app.controller.source.corrections.write_text("broken\n")
    assert "delete corrections.jsonl.parts.json" in refusal(app, "open_sentence", id="caption-0")


def test_a_run_without_a_model_is_listed_with_the_reason(tmp_path):
    Run.create(tmp_path / "run", {"method": "made up"})
    app = concepts(make_pairs(), runs=tmp_path)
    assert app.controller.chosen == -1
    assert "run is no training of complearn.launch" in refusal(app, "open_model", source="run")
    note = asked(concepts(make_pairs(), runs=tmp_path / "none"), "connect")["graph"]["note"]
    assert "none is not a folder; give a folder that holds runs." in note


@pytest.mark.parametrize("name", sorted(ConceptsController.actions))
def test_no_request_of_a_page_makes_an_exception_escape(name):
    app = concepts(make_pairs(), models={"small": small_model()})
    app.run_action("open_concept", text="a dog").run_action("open_sentence", id="0")
    check_requests(app.controller, name)


@pytest.mark.browser
def test_on_a_page(tmp_path):
    app = concepts()
    faults = []

    def text(selector, value):
        return page.wait_for_function(f"document.querySelector('{selector}')?.textContent.includes({value!r})")

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
        more = "more => document.querySelector('.cl-found').classList.contains('cl-more') === more"
        page.fill("input", "")
        page.wait_for_selector("[data-concept=triangle]")
        page.wait_for_function(more, arg=True)
        page.locator(".cl-found > button").last.scroll_into_view_if_needed()
        page.wait_for_function(more, arg=False)
        page.fill("input", "a red square and a blue triangle")
        page.wait_for_function("document.querySelectorAll('[data-concept]').length === 1")
        assert page.locator(".cl-found .cl-bar").count() == 0, "there is nothing to compare"
        page.click(".cl-tile > button >> nth=1")
        page.wait_for_selector(".cl-tile > [aria-pressed=true]")
        screenshot(page, "concepts-1-light")
        page.click("[data-predicate='[NP] below [NP]']")
        text('[aria-label="part of"] h3', "… below …")
        assert page.locator(".cl-shown").get_by_text("[NP]").count() == 0, "no label of a tree"
        assert page.inner_text("[aria-label='made of'] .cl-phrase-line").split() == ["a", "red", "triangle"]
        page.click("[aria-label='made of'] [data-jump=triangle]")
        text(".cl-heading", "primitive")
        page.keyboard.press("Alt+ArrowLeft")
        page.wait_for_selector("[data-predicate='[NP] below [NP]'][aria-pressed=true]")
        assert page.locator(".cl-top button", has_text="Back").count() == 0, "one pair of buttons goes back and forward"
        page.get_by_label("the view before").click()
        page.wait_for_selector(".cl-tile > [aria-pressed=true]")
        assert page.locator("[data-predicate][aria-pressed=true]").count() == 0
        page.keyboard.press("Alt+ArrowRight")
        page.wait_for_selector("[data-predicate='[NP] below [NP]'][aria-pressed=true]")
        page.fill("input", "a purple dog")
        page.press("input", "Enter")
        text(".cl-status", "search for one of its words")
        page.wait_for_selector(".cl-shown.cl-stale")
        assert page.locator(".cl-found > *").count() == 0, "the news stands once"
        assert page.locator("text=Still open: a red triangle").is_visible()
        screenshot(page, "concepts-6-not-found")
        page.fill("input", "triangle")
        page.wait_for_selector("[data-concept=triangle]")
        assert page.locator(".cl-stale").count() == 0 and page.inner_text(".cl-status") == ""
        page.close()
        page = attach(browser, "concepts", app.controller, dark=True)  # the page is opened again
        page.wait_for_selector("[data-predicate='[NP] below [NP]'][aria-pressed=true]")
        screenshot(page, "concepts-2-dark")
        page.set_viewport_size({"width": 480, "height": 900})
        screenshot(page, "concepts-3-narrow")
        for width, columns in ((420, 1), (1600, 3), (2560, 3)):
            page.set_viewport_size({"width": width, "height": 900})
            grid = "getComputedStyle(document.querySelector('.cl-graph')).gridTemplateColumns.split(' ').length"
            assert page.evaluate(grid) == columns and page.evaluate("document.documentElement.scrollWidth") == width
        beside = page.locator("[aria-label='part of']").bounding_box(), page.locator(".cl-pictures").bounding_box()
        assert beside[1]["x"] > beside[0]["x"] + beside[0]["width"], "pictures use the width of a wide window"
        page.close()
    assert not faults


EXPLAINED = """() => [...document.querySelectorAll('.cl-term')].filter((node) => node.checkVisibility()).map((node) =>
  [node.textContent, document.getElementById(node.getAttribute('aria-describedby')).textContent])"""


@pytest.mark.browser
def test_terms_are_explained_where_they_first_appear():
    pairs = make_pairs()
    app = concepts(pairs, models=small_model())
    with open_chromium() as browser:
        page = attach(browser, "concepts", app.controller)
        page.click("[data-concept='a dog']")
        page.click("[data-tree] >> nth=0")
        page.wait_for_selector("[data-node] small")
        terms = dict(page.evaluate(EXPLAINED))
        for word in ("concept", "predicate", "captions", "images", "score"):
            assert len(terms[word]) > 30, word
        assert any("primitives" in term and "not made of others" in meaning for term, meaning in terms.items())
        page.locator(".cl-term", has_text="predicate").last.focus()
        assert page.locator(".cl-meaning:popover-open").inner_text() == terms["predicate"]
        page.locator(".cl-sentence .cl-term").focus()
        page.keyboard.press("Escape")
        assert page.locator(".cl-meaning:popover-open").count() == 0 and page.locator(".cl-sentence").is_visible(), (
            "Escape puts the meaning away first, and then the sentence"
        )
        labels = page.locator(".cl-tree .cl-tag").all_inner_texts()
        assert {"determiner", "preposition"} <= set(labels) and not {"DT", "NN", "NP"} & set(labels)
        page.keyboard.press("Escape")
        page.wait_for_selector(".cl-sentence", state="hidden")
        page.close()


@pytest.mark.browser
def test_a_sentence_on_a_page():
    pairs = [world_from("small").pair("test", k) for k in range(40)]
    faults = []
    app = concepts(pairs, models={"untrained": small_model(captions=[pair.caption for pair in pairs])})
    with open_chromium() as browser:
        page = attach(browser, "concepts", app.controller)
        page.on("pageerror", lambda error: faults.append(f"{error}\n{error.stack}"))
        page.click("[data-concept='a red triangle']")
        page.click("[data-tree] >> nth=0")
        page.wait_for_selector("[data-node] small")
        page.hover("[data-node='2']")
        own, other = app.scores[["own", "other"]].iloc[2]
        shown = page.inner_text(".cl-detail")
        assert page.locator(".cl-sentence p .cl-node").all_inner_texts() == [
            "its own picture scores higher",
            "the other scores higher",
        ]
        assert "noun phrase" in page.inner_text(".cl-tree") and "Boxes are concepts" in page.inner_text(".cl-sentence")
        assert f"{own:.3f} for its own picture, {other:.3f} for the other" in shown and "triangle" in shown
        assert f"{other:.3f}" in page.locator(".cl-pair figcaption").all_inner_texts()[1]
        screenshot(page, "concepts-4-sentence")
        page.click("[data-edit]")
        tree = page.input_value("[aria-label='correction of the tree'] textarea")
        page.fill("[aria-label='correction of the tree'] textarea", tree[:-1])
        page.click("[data-keep]")
        page.wait_for_function("document.querySelector('.cl-status').textContent.includes('never closed')")
        assert page.input_value("[aria-label='correction of the tree'] textarea") == tree[:-1], (
            "what was typed is still there"
        )
        words = " ".join(f"(X {word})" for word in app.controller.sentence.pair.caption.split())
        page.fill("[aria-label='correction of the tree'] textarea", f"(S {words})")
        page.click("[data-keep]")
        page.wait_for_function("document.querySelector('.cl-sentence .cl-remark').textContent.includes('is kept in')")
        assert page.locator("[data-node]").count() == 1
        page.close()
        page = attach(browser, "concepts", app.controller, dark=True)  # the page is opened again
        page.click("[data-edit]")
        page.click("text=As the parser found it")
        page.wait_for_selector("[data-node='2']")
        screenshot(page, "concepts-5-sentence-dark")
        page.focus("[data-node='1']")
        page.keyboard.press("Escape")
        page.wait_for_selector(".cl-sentence", state="hidden")
        assert page.evaluate("document.activeElement.dataset.tree") == page.get_attribute(
            "[data-tree] >> nth=0", "data-tree"
        )
        page.close()
    assert not faults and app.controller.sentence is None

"""The review of edits: decisions are kept at once, an interrupted review goes on, what stands is read as a file of
edits."""

import json

import numpy as np
import pytest
from browser import attach, check_requests, open_chromium, screenshot
from PIL import Image

from complearn.apps.edits.review import ReviewController, review
from complearn.apps.serving import OPTIONS, _app_settings
from complearn.data.pairs import Pair
from complearn.data.readers.edits import Decision, _reviewed_values, read_edits, training_command
from complearn.data.readers.registry import read

EDIT = {"caption": "a cat on a bed", "operator": "replace_obj", "spans": [[[2, 5], [2, 5]]], "grammatical": True}
LINES = [
    {
        "id": "1",
        "image_id": "1",
        "caption": "a dog on a bed",
        "negatives": ["a cat on a bed", "a dog on an bed"],
        "edits": [EDIT],
    },
    {"id": "2", "image_id": "2", "caption": "nothing here", "negatives": [], "error": "there is no word in it"},
    {
        "id": "3",
        "image_id": "3",
        "caption": "two \N{CAT FACE} birds",
        "negatives": ["two cow"],
        "edits": [{"caption": "two cow"}],
    },
]


@pytest.fixture
def path(tmp_path):
    text = [json.dumps(line) for line in LINES]
    (tmp_path / "negatives.jsonl").write_text("\n".join([*text[:2], "{broken", text[2], '{"id": "4"}']) + "\n")
    return tmp_path / "negatives.jsonl"


def asked(app, action, **arguments):
    """The messages of an action by their type."""
    return {content["type"]: content for content, _ in app.controller.handle({"action": action, **arguments})}


def test_pictures_come_from_a_reader_too(tmp_path):
    Image.new("RGB", (8, 8)).save(tmp_path / "a.png")
    (tmp_path / "captions.csv").write_text("image,caption\na.png,a dog\n")
    line = {"id": "1", "image_id": "a.png", "caption": "a dog", "negatives": ["a cat"]}
    (tmp_path / "edits.jsonl").write_text(json.dumps(line) + "\n")
    app = review(tmp_path / "edits.jsonl", f"{{name: folder, args: {{folder: '{tmp_path}'}}}}")
    (picture,) = next(
        buffers for content, buffers in app.controller.handle({"action": "connect"}) if content["type"] == "item"
    )
    assert len(picture) > 20
    settings = _app_settings(
        "review", {**dict.fromkeys(OPTIONS), "captions": "{name: folder}", "edits": str(tmp_path / "edits.jsonl")}
    )
    assert settings["captions"] == "{name: folder}"


def test_a_review_goes_on_where_it_stopped_and_what_stands_is_read(path):
    app = review(path)
    opened = asked(app, "connect")
    assert "2 bad line (negatives.jsonl line 3" in opened["file"]["faults"][0]
    assert "mend these lines" in opened["file"]["faults"][0]
    assert opened["item"]["source"] == [["a ", -1], ["dog", 0], [" on a bed", -1]] and opened["item"]["total"] == 3
    assert asked(app, "decide", verdict="accepted")["item"]["negative"] == "a dog on an bed"
    app = review(path)  # as after a crash: nothing was saved by hand
    assert asked(app, "connect")["item"]["place"] == 1
    asked(app, "decide", verdict="rejected")
    done = asked(app, "decide", verdict="corrected", correction=" two  cows ")["item"]
    assert done["counts"] == {"accepted": 1, "rejected": 1, "corrected": 1} and done["correction"] == "two cows"
    assert asked(app, "export")["exported"]["text"].endswith(
        "is written: 1 accepted and 1 corrected; 1 rejected left out"
    )
    reviewed = read_edits(path.with_name("negatives.reviewed.jsonl"))
    assert [record.negatives for record in reviewed] == [["a cat on a bed"], [], ["two cows"]]
    assert reviewed[0].edits == [EDIT]
    command = asked(app, "export")["exported"]["command"]
    assert command == training_command(path.with_name("negatives.reviewed.jsonl"))
    folder = path.parent / "my photos"
    folder.mkdir()
    Image.new("RGB", (8, 8)).save(folder / "1.png")
    (folder / "captions.csv").write_text("image,caption\n1.png,a dog on a bed\n")
    photos = {"name": "folder", "args": {"folder": str(folder)}}
    command = asked(review(path, json.dumps(photos)), "export")["exported"]["command"]
    assert command == training_command(path.with_name("negatives.reviewed.jsonl"), photos), "those it was opened with"
    assert "my photos" in command
    assert app.decisions.verdict.tolist() == ["accepted", "rejected", "corrected"]
    assert path.read_text().count("\n") == 5, "the file under review is as it was"


def test_an_export_says_what_is_left_out_and_may_keep_what_is_open(path):
    app = review(path)
    target = path.with_name("negatives.reviewed.jsonl")
    exported = asked(app, "export")["exported"]
    assert exported["text"].endswith("is written: nothing stands; 3 open left out") and exported["command"] == ""
    app.run_action("decide", verdict="rejected")
    assert asked(app, "export")["exported"]["text"].endswith("nothing stands; 2 open and 1 rejected left out")
    app.run_action("decide", verdict="accepted")
    assert asked(app, "export")["exported"]["text"].endswith("1 accepted; 1 open and 1 rejected left out")
    assert [record.negatives for record in read_edits(target)] == [["a dog on an bed"], [], []]
    assert asked(app, "export", keep_open=True)["exported"]["text"].endswith(
        "1 accepted and 1 open; 1 rejected left out"
    )
    assert [record.negatives for record in read_edits(target)] == [["a dog on an bed"], [], ["two cow"]]
    assert json.loads(target.read_text().splitlines()[2])["reviews"] == [
        {"negative": "two cow", "verdict": "open", "correction": ""}
    ]
    assert app.decisions.verdict.tolist() == ["rejected", "accepted"], "what is kept open stays undecided"


def test_the_edited_reader_trains_on_what_was_accepted(path):
    folder = path.parent / "photos"
    folder.mkdir()
    from PIL import Image

    for name in ("1", "3"):
        Image.new("RGB", (8, 8)).save(folder / f"{name}.png")
    (folder / "captions.csv").write_text("image,caption\n1.png,a dog on a bed\n3.png,two \N{CAT FACE} birds\n")
    app = review(path)
    app.run_action("decide", verdict="accepted").run_action("export")
    reviewed = path.with_name("negatives.reviewed.jsonl")
    pairs = read("edited", source={"name": "folder", "args": {"folder": str(folder)}}, edits=str(reviewed))
    assert [list(pair.negatives) for pair in pairs] == [["a cat on a bed"], []]


def test_what_can_not_be_decided_says_what_to_do_and_loses_nothing(path):
    app = review(path)
    for arguments, remedy in (
        ({"verdict": "maybe"}, "verdict"),
        ({"verdict": "corrected"}, "the correction is empty"),
        ({"verdict": "corrected", "correction": "A dog  on a bed"}, "the caption itself"),
        ({"verdict": "corrected", "correction": "a cat on a bed"}, "accept it"),
        ({"verdict": "corrected", "correction": "\x00"}, "empty"),
    ):
        assert remedy in asked(app, "decide", **arguments)["error"]["text"], arguments
    asked(app, "decide", verdict="accepted")
    assert "verdict" in asked(app, "decide", verdict="maybe")["error"]["text"] and len(app.decisions) == 1
    asked(app, "go", place=0)
    assert asked(app, "decide", verdict="open")["item"]["verdict"] == ""
    assert app.decisions.empty
    assert review(path).decisions.empty
    assert asked(app, "go", place=99)["item"]["place"] == 2 and asked(app, "go", place=-5)["item"]["place"] == 0


@pytest.mark.parametrize(
    "content, remedy",
    [
        (None, "write it with: complearn edits"),
        ("", "no line holds id"),
        ('{"broken\n', "no line holds id"),
        ('{"id": "1", "image_id": "1", "caption": "a dog", "negatives": []}\n', "holds no negative"),
        (b"\xff\xfe\x00", "UTF-8"),
    ],
)
def test_a_file_that_can_not_be_reviewed_is_a_message_with_the_remedy(content, remedy, tmp_path):
    if content is not None:
        (tmp_path / "negatives.jsonl").write_bytes(content if isinstance(content, bytes) else content.encode())
    assert remedy in asked(review(tmp_path / "negatives.jsonl"), "connect")["error"]["text"]


def test_a_line_that_was_cut_off_costs_itself_alone(path):
    app = review(path).run_action("decide", verdict="accepted").run_action("decide", verdict="rejected")
    journal = app.controller.journal
    journal.write_bytes(journal.read_bytes()[:-9])
    app = review(path)
    lost = asked(app, "connect")["file"]["faults"][1]
    assert app.decisions.verdict.tolist() == ["accepted"] and "1 bad line" in lost and "again" in lost
    app.run_action("decide", verdict="rejected")
    assert review(path).decisions.verdict.tolist() == ["accepted", "rejected"]


def test_negatives_are_listed_by_verdict_operator_and_words_and_decided_together(path):
    app = review(path)
    shown = asked(app, "connect")["list"]
    assert [row["place"] for row in shown["rows"]] == [*range(shown["total"])] and shown["total"] > 2
    texts = ["".join(piece[0] for piece in row["pieces"]) for row in shown["rows"]]
    word = texts[0].split()[-1]
    named = asked(app, "list_items", words=f" {word.upper()} ")["list"]
    assert [row["place"] for row in named["rows"]] == [k for k, text in enumerate(texts) if word in text.split()]
    for operator, title in shown["operators"]:
        rows = asked(app, "list_items", operator=operator)["list"]["rows"]
        assert rows and {row["title"] for row in rows} == {title}
    asked(app, "list_items", verdict="open")
    answer = asked(app, "decide_many", places=[0, 2, 0], verdict="rejected")
    assert app.decisions.verdict.tolist() == ["rejected"] * 2 and answer["item"]["place"] == 0
    assert [row["verdict"] for row in answer["list"]["rows"]][:3] == ["rejected", "open", "rejected"]  # none jumps away
    assert [row["place"] for row in asked(app, "list_items", verdict="rejected")["list"]["rows"]] == [0, 2]
    assert review(path).decisions.verdict.tolist() == ["rejected"] * 2  # they are in the journal
    asked(app, "decide_many", places=[2], verdict="accepted")
    asked(app, "decide_many", places=[0], verdict="open")
    assert app.decisions.verdict.tolist() == ["accepted"]
    assert app.view["verdict"] == "rejected", "the list is a part of the view"
    assert "no negative is chosen" in asked(app, "decide_many", places=[], verdict="open")["error"]["text"]
    assert "there is no negative 99" in asked(app, "decide_many", places=[99], verdict="open")["error"]["text"]
    assert "there are open" in asked(app, "list_items", verdict="good")["error"]["text"]


@pytest.mark.parametrize("name", sorted(ReviewController.actions))
def test_no_request_of_a_page_makes_an_exception_escape(path, name):
    check_requests(review(path).run_action("decide", verdict="accepted").controller, name)


def test_taking_back_is_of_the_negative_that_is_shown_or_else_of_the_last_decision(path):
    app = review(path)
    assert not asked(app, "connect")["item"]["takes_back"]
    assert "no decision to take back" in asked(app, "take_back")["error"]["text"]
    asked(app, "decide", verdict="accepted")
    assert asked(app, "decide", verdict="rejected")["item"]["place"] == 2, "the view has moved on"
    for place, left in ((1, ["accepted"]), (0, [])):
        item = asked(app, "take_back")["item"]
        assert item["place"] == place and item["verdict"] == "" and app.decisions.verdict.tolist() == left
        app.run_action("go", place=2)
    assert review(path).decisions.empty, "what was taken back is taken back on disk"
    asked(app, "go", place=0)
    asked(app, "decide", verdict="accepted")
    again = review(path, view={"place": 0})  # it was decided before: only the negative itself is taken back
    assert asked(again, "take_back")["item"]["verdict"] == "" and again.decisions.empty


def test_a_batch_is_taken_back_whole_and_gives_the_earlier_verdicts_again(path):
    app = review(path)
    app.run_action("go", place=1)
    app.run_action("decide", verdict="rejected")
    answer = asked(app, "decide_many", places=[0, 1, 2], verdict="accepted")
    assert answer["item"]["takes_back"] and "3 negatives changed to accepted" in answer["item"]["note"]
    before = app.controller.journal.read_bytes()
    assert "3 negatives have their earlier verdicts" in asked(app, "take_back")["item"]["note"]
    assert [app.controller.verdict_of(place) for place in range(3)] == ["open", "rejected", "open"]
    written = app.controller.journal.read_bytes()
    assert written.startswith(before) and len(written) > len(before), "the journal only grows"
    assert review(path).decisions.verdict.tolist() == ["rejected"]
    app.run_action("decide_many", places=[1], verdict="open").run_action("take_back")
    assert app.decisions.verdict.tolist() == ["rejected"], "a batch of one gives its verdict again, too"
    app.run_action("take_back")
    assert app.decisions.empty and not asked(app, "go", place=0)["item"]["takes_back"]


def test_the_last_decision_is_undone_wherever_the_view_is_and_made_again(path):
    app = review(path)
    assert not asked(app, "connect")["item"]["undoes"]
    assert "none was made here" in asked(app, "undo")["error"]["text"]
    assert "was taken back" in asked(app, "redo")["error"]["text"]
    asked(app, "decide", verdict="accepted")
    asked(app, "decide_many", places=[1, 2], verdict="rejected")
    asked(app, "go", place=0)
    item = asked(app, "undo")["item"]
    assert item["undoes"] and item["redoes"] and app.decisions.verdict.tolist() == ["accepted"]
    item = asked(app, "undo")["item"]
    assert item["place"] == 0 and not item["undoes"] and app.decisions.empty
    asked(app, "redo")
    assert app.decisions.verdict.tolist() == ["accepted"]
    assert not asked(app, "redo")["item"]["redoes"]
    assert app.decisions.verdict.tolist() == ["accepted", "rejected", "rejected"]
    assert review(path).decisions.verdict.tolist() == ["accepted", "rejected", "rejected"], "on disk too"
    asked(app, "undo")
    asked(app, "go", place=1)
    assert not asked(app, "decide", verdict="accepted")["item"]["redoes"], "a new decision ends what could be redone"


@pytest.mark.browser
def test_ctrl_z_takes_back_decisions_and_then_views(path):
    app = review(path)
    with open_chromium() as browser:
        page = attach(browser, "review", app.controller)
        page.wait_for_selector(".cl-line")

        def press(key, shown, left):
            page.locator(".cl-card").press(key)
            said = f"document.querySelector('.cl-progress').textContent.includes('{left} open')"
            page.wait_for_function(f"document.querySelector('.cl-card').textContent.includes('{shown} of 3') && {said}")

        press("a", 2, 2)
        press("r", 3, 1)
        press("ArrowLeft", 2, 1)
        press("ArrowLeft", 1, 1)
        press("Control+z", 2, 2)
        assert app.decisions.verdict.tolist() == ["accepted"], "the last decision, wherever the view is"
        press("Control+z", 1, 3)
        assert app.decisions.empty
        press("Control+Shift+z", 2, 2)
        press("Control+y", 3, 1)
        assert app.decisions.verdict.tolist() == ["accepted", "rejected"]
        page.get_by_role("button", name="the view before").click()
        page.wait_for_function("document.querySelector('.cl-card').textContent.includes('2 of 3')")
        assert len(app.decisions) == 2, "the arrow is of the view alone"
        title = page.get_by_role("button", name="the view before").get_attribute("title")
        assert title == "the view before (Ctrl and Z, once no decision made here is left to take back)"
        assert "Ctrl and Z: the last one" in page.get_attribute("[data-verdict=open]", "title")
        press("Control+z", 2, 2)
        press("Control+z", 1, 3)
        press("ArrowRight", 2, 3)
        press("Control+z", 1, 3)
        press("u", 1, 3)
        assert page.is_disabled("[data-verdict=open]"), "there is nothing left to take back"
        press("a", 2, 2)
        press("u", 1, 3)
        assert app.decisions.empty


SHELL = "document.body.append(Object.assign(document.createElement('div'), { className: 'jp-LabShell' }))"


@pytest.mark.browser
@pytest.mark.parametrize("is_served", [True, False])
def test_keys_work_anywhere_on_a_page_that_voila_serves_and_not_in_jupyterlab(path, is_served):
    app = review(path)
    with open_chromium() as browser:
        page = attach(browser, "review", app.controller)
        page.wait_for_selector(".cl-line")
        page.evaluate(SHELL)  # JupyterLab has it, and so do the pages of voila
        if is_served:
            page.evaluate("document.documentElement.dataset.complearnServed = ''")
        page.evaluate("document.activeElement.blur()")
        page.keyboard.press("a")
        page.locator(".cl-card").press("r")
        left = 1 if is_served else 2
        page.wait_for_function(f"document.querySelector('.cl-progress').textContent.includes('{left} open')")
        assert app.decisions.verdict.tolist() == (["accepted"] * is_served + ["rejected"])


LINE = "document.querySelector('.cl-texts .cl-line:last-child').textContent"


@pytest.mark.browser
def test_on_a_page(path):
    app = review(path, [Pair(np.full((40, 60, 3), 90, np.uint8), None, "1", "1")])
    faults = []
    with open_chromium() as browser:
        page = attach(browser, "review", app.controller)
        page.on("pageerror", lambda error: faults.append(f"{error}\n{error.stack}"))
        page.wait_for_selector(".cl-texts mark >> nth=1")
        assert (
            page.locator(".cl-texts mark").all_inner_texts() == ["dog", "cat"]
            and page.locator(".cl-texts img").is_visible()
        )
        page.get_by_label("verdict of the listed negatives").select_option("open")
        page.get_by_label("tick negative 2").check()
        page.get_by_role("button", name="Reject ticked").click()
        page.wait_for_selector(".cl-rows li:nth-child(2) [data-state=rejected]")
        page.get_by_role("button", name="Take back ticked").click()  # the tick has stayed
        page.wait_for_selector(".cl-rows li:nth-child(2) [data-state=open]")
        screenshot(page, "review-1-open")
        page.mouse.click(640, 890)  # outside of the app: the keyboard is nowhere
        assert page.evaluate("document.activeElement === document.body")
        page.keyboard.press("a")
        page.wait_for_function(
            "document.querySelector('.cl-texts .cl-line:last-child').textContent === 'a dog on an bed'"
        )
        page.locator(".cl-body").click(position={"x": 5, "y": 5})  # its empty margin
        page.keyboard.press("e")
        page.fill("textarea", "A dog on a bed")
        page.keyboard.press("Enter")
        page.wait_for_function("document.querySelector('.cl-status').textContent.includes('the caption itself')")
        assert page.input_value("textarea") == "A dog on a bed", "what was typed is still there"
        page.fill("textarea", "a dog under a bed")
        page.keyboard.press("Enter")
        page.wait_for_function(f"{LINE} === 'two cow'")
        page.close()
        page = attach(browser, "review", app.controller, dark=True)  # the page is opened again
        page.wait_for_function(
            "document.querySelector('.cl-progress').textContent.includes('1 accepted, 0 rejected, 1 corrected, 1 open')"
        )
        page.click("[data-verdict=rejected]")
        page.wait_for_function("document.querySelector('.cl-progress').textContent.startsWith('100 %')")
        page.keyboard.press("ArrowLeft")
        page.wait_for_function(
            "document.querySelector('.cl-texts .cl-line:last-child').textContent === 'a dog under a bed'"
        )
        screenshot(page, "review-2-done")
        page.click("text=Export")
        page.wait_for_function("document.querySelector('.cl-status').textContent.includes('1 rejected left out')")
        page.get_by_role("button", name="copy: To train on it").click()
        page.wait_for_function("document.querySelector('.cl-body [role=status].cl-small.cl-muted').textContent !== ''")
        page.click("[data-verdict=open]")
        page.check("text=keep the open ones")
        page.click("text=Export")
        page.wait_for_function(
            "document.querySelector('.cl-status').textContent.includes('1 accepted and 1 open; 1 rejected left out')"
        )
        assert "complearn train negclip '{name: edited" in page.locator(".cl-code >> visible=true").inner_text()
        screenshot(page, "review-3-exported")
        page.close()
    assert not faults
    assert read_edits(path.with_name("negatives.reviewed.jsonl"))[0].negatives == ["a cat on a bed", "a dog on an bed"]


def test_numbers_of_negatives_stay_with_their_negatives(tmp_path):
    """A negative that is left out or corrected takes its numbers with it."""
    line = {"id": "0", "image_id": "0", "caption": "a cat", "negatives": ["A cat!", "a dog", "a cow"]}
    line |= {"fluency": [0.1, 0.2, 0.3], "truth": [None, 0.5, 0.6], "margin": []}
    line |= {"edits": [{"caption": text, "operator": "replace_obj"} for text in line["negatives"]]}
    (tmp_path / "negatives.jsonl").write_text(json.dumps(line) + "\n")
    (record,) = read_edits(tmp_path / "negatives.jsonl")
    assert (record.negatives, record.fluency, record.truth, record.margin) == (
        ["a dog", "a cow"],
        [0.2, 0.3],
        [0.5, 0.6],
        [],
    )
    assert [values["caption"] for values in record.edits] == ["a dog", "a cow"]
    decisions = [Decision("0", "a cat", text, "accepted") for text in record.negatives]
    values = _reviewed_values(record, {decision.key: decision for decision in decisions})
    assert (values["negatives"], values["fluency"], values["truth"]) == (["a dog", "a cow"], [0.2, 0.3], [0.5, 0.6])
    values = _reviewed_values(record, {decisions[1].key: decisions[1]})
    assert (values["negatives"], values["fluency"], values["truth"]) == (["a cow"], [0.3], [0.6])
    corrected = Decision("0", "a cat", "a dog", "corrected", "a horse")
    values = _reviewed_values(record, {decision.key: decision for decision in (corrected, decisions[1])})
    assert (values["negatives"], values["fluency"]) == (["a horse", "a cow"], []), "nobody measured the horse"

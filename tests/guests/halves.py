"""A parser from outside complearn: the first word, and the rest."""

from complearn.language.parsing.base import register_parser


@register_parser("halves", gives=("tree",))
def parse_in_halves(captions):
    for caption in captions:
        first, *rest = caption.split()
        yield f"(S (A {first}) (B {' '.join(f'(W {word})' for word in rest)}))"

"""An independent judge of the generated world: it reads captions as text and scenes as pixels.

It knows the English of the captions and measures colour, shape, size, texture and place on a rendered picture and its
mask of visible
pixels. It imports nothing from the generator's language room, neither truth nor outlines nor colours; what it finds is
its own.
"""

import re
from dataclasses import dataclass

import numpy as np
from scipy.ndimage import binary_erosion, binary_fill_holes, distance_transform_edt, label

# --- reading
# ----------------------------------------------------------------------------------------------------------------------

RGB = {"red": (222, 36, 36), "green": (30, 150, 50), "blue": (32, 74, 222), "yellow": (246, 220, 40),
    "purple": (134, 42, 170),
       "orange": (250, 128, 16), "cyan": (40, 206, 226), "pink": (255, 140, 200), "brown": (112, 66, 26),
       "black": (16, 16, 16)}  # fmt: skip
WORDS = {
    "shape": {w: w for w in ("circle", "square", "triangle", "star", "cross", "diamond", "heart", "arrow")}
    | {"disc": "circle", "rhombus": "diamond", "object": None, "thing": None},
    "colour": {w: w for w in RGB} | {"violet": "purple"},
    "size": {"small": "small", "little": "small", "large": "large", "big": "large"},
    "texture": {"plain": "plain", "solid": "plain", "striped": "striped", "dotted": "dotted", "checked": "checked"}
    | {"checkered": "checked", "stripes": "striped", "dots": "dotted", "checks": "checked"},
    "count": {"one": 1, "two": 2, "three": 3, "four": 4, "five": 5},
}
LINKS = {
    "left of": "left", "to the left of": "left", "right of": "right", "to the right of": "right", "above": "above",
    "higher than": "above",
    "below": "below", "lower than": "below", "inside": "inside", "within": "inside", "touching": "touching",
    "in contact with": "touching", "of the same colour as": "colour", "the same colour as": "colour", "of the same "
    "shape as": "shape",
    "the same shape as": "shape",
}  # fmt: skip
OPENING = re.compile(r"^(in this scene )?(there (is|are) )?(a picture of |the picture shows )?(there (is|are) )?")
LINK = re.compile(r"^(.*?) (?:is )?(" + "|".join(sorted(map(re.escape, LINKS), key=len, reverse=True)) + r") (.*)$")


def read_phrase(text: str) -> dict:
    "What a noun phrase asks for: a value for each kind of word it has."
    asked = {}
    for word in text.split():
        if word in ("a", "an", "with", "exactly"):
            continue
        word = (
            word
            if word in ("cross",) or any(word in words for words in WORDS.values())
            else re.sub(r"(?<=ss|us)es$|s$", "", word)
        )
        kinds = [kind for kind, words in WORDS.items() if word in words]
        assert len(kinds) == 1, f"{word!r} in {text!r} is not a word of the world"
        assert kinds[0] not in asked, f"{text!r} says {kinds[0]} twice"
        asked[kinds[0]] = WORDS[kinds[0]][word]
    assert "shape" in asked, f"{text!r} has no noun"
    return {kind: value for kind, value in asked.items() if value is not None}


def read_caption(text: str) -> list[tuple]:
    "The claims of a caption: ('is', phrase), ('no', phrase) or (relation, subject, object)."
    claims = []
    for clause in re.split(r" as well as | and | but | while ", OPENING.sub("", text, count=1)):
        clause = re.sub(r"^there (is|are) ", "", clause)
        found = LINK.match(clause)
        if found:
            claims.append((LINKS[found[2]], read_phrase(found[1]), read_phrase(found[3])))
        elif clause.startswith("no "):
            claims.append(("no", read_phrase(clause[3:])))
        else:
            claims.append(("is", read_phrase(clause)))
    return claims


# --- seeing -----------------------------------------------------------------------------------------------------------


def _forms(n: int = 48) -> dict[str, np.ndarray]:
    "What the shapes are, by their own formulas, over the bounding box."
    v, u = np.meshgrid(*[(np.arange(n) + 0.5) / n * 2 - 1] * 2, indexing="ij")
    across = u * 0.951  # a pentagram is not as wide as its circle, and its middle lies below that of its box
    down = (v - 0.1056) / 1.1056
    angle = np.arctan2(across, -down)
    far = np.hypot(across, down)
    spike = np.abs((angle / (2 * np.pi / 5) + 0.5) % 1 - 0.5) * (2 * np.pi / 5)  # angle from the nearest spike
    tip = 1.0
    dent = 0.5
    line = tip * dent * np.sin(np.pi / 5) / (dent * np.sin(np.pi / 5 - spike) + tip * np.sin(spike))
    x = u * 1.14
    y = -v * 1.08 + 0.12
    return {
        "circle": u**2 + v**2 <= 1,
        "square": np.ones((n, n), bool),
        "triangle": np.abs(u) <= (v + 1) / 2,
        "star": far <= line,
        "cross": (np.abs(u) <= 0.4) | (np.abs(v) <= 0.4),
        "diamond": np.abs(u) + np.abs(v) <= 1,
        "heart": (x**2 + y**2 - 1) ** 3 - x**2 * y**3 <= 0,
        "arrow": np.where(u < 0, np.abs(v) <= 0.45, np.abs(v) <= 1 - u),
    }


FORMS = _forms()


@dataclass
class Seen:
    "One object as measured."

    shape: str
    colour: str
    size: str
    texture: str
    x: float  # middle of the bounding box, share of the side
    y: float
    filled: np.ndarray  # its pixels, with those of anything inside it
    mask: np.ndarray  # its visible pixels


def measure_shape(filled: np.ndarray) -> str:
    "The form that overlaps best with an object, which fills its bounding box."
    place = (np.arange(48) + 0.5) / 48
    box = filled[np.ix_((place * filled.shape[0]).astype(int), (place * filled.shape[1]).astype(int))]
    return max(FORMS, key=lambda form: (box & FORMS[form]).sum() / (box | FORMS[form]).sum())


def measure_colour(pixels: np.ndarray) -> str:
    "The named colour that most pixels are close to."
    away = np.linalg.norm(pixels[:, None].astype(float) - np.array(list(RGB.values())), axis=2)
    close = np.bincount(away.argmin(1)[away.min(1) < 30], minlength=len(RGB))
    assert close.any(), "no pixel has the colour that any word names"
    return list(RGB)[int(close.argmax())]


def measure_texture(picture: np.ndarray, mask: np.ndarray, filled: np.ndarray, colour: str) -> str:
    """How a second ink is spread: nowhere, in whole rows, in spots that leave the first ink in one piece, or cutting it
    into pieces."""
    rim = 1.5 + 0.03 * np.sqrt(filled.sum())
    core = (distance_transform_edt(np.pad(filled, 1))[1:-1, 1:-1] > rim) & binary_erosion(mask, border_value=1)
    other = np.linalg.norm(picture.astype(float) - RGB[colour], axis=2) > 60
    if other[core].mean() < 0.08:
        return "plain"
    wide = np.flatnonzero(core.sum(1) >= 0.5 * core.sum(1).max())  # a narrow tip may lie within one check
    means = np.array([other[row][core[row]].mean() for row in wide])
    empty = (means < 0.12).mean()
    full = (means > 0.88).mean()
    if full > 0.15 and empty + full > 0.6:
        return "striped"
    pieces = np.bincount(label(core & ~other)[0].ravel())[1:]
    return "dotted" if empty > 0.12 or pieces.max() > 0.6 * pieces.sum() else "checked"


def look(picture: np.ndarray, labels: np.ndarray) -> list[Seen]:
    "Measure every object of a picture, given which pixels belong to which."
    size = len(labels)
    seen = []
    for number in range(1, labels.max() + 1):
        mask = labels == number
        assert mask.sum() >= 20, f"object {number} cannot be seen"
        rows = np.flatnonzero(mask.any(1))
        columns = np.flatnonzero(mask.any(0))
        (top, bottom), (left, right) = ((line[0], line[-1] + 1) for line in (rows, columns))
        box = np.s_[top:bottom, left:right]
        filled = binary_fill_holes(mask[box])
        colour = measure_colour(picture[mask])
        across = max(bottom - top, right - left)
        texture = measure_texture(picture[box], mask[box], filled, colour)
        whole = np.zeros_like(mask)
        whole[box] = filled
        seen.append(Seen(measure_shape(filled), colour, "small" if across / size < 0.22 else "large", texture,
                         (left + right) / 2 / size, (top + bottom) / 2 / size, whole, mask))  # fmt: skip
    return seen


# --- judging ----------------------------------------------------------------------------------------------------------


def holds(relation: str, a: Seen, b: Seen) -> bool:
    "Whether one object is seen to stand in a relation to another."
    if relation in ("colour", "shape"):
        return getattr(a, relation) == getattr(b, relation)
    along = {"left": b.x - a.x, "right": a.x - b.x, "above": b.y - a.y, "below": a.y - b.y}
    if relation in along:
        return along[relation] > 0.08

    def within(inner, outer):
        return (inner.mask & outer.filled).sum() > 0.98 * inner.mask.sum() and inner.filled.sum() < outer.filled.sum()

    if relation == "inside":
        return within(a, b)
    return not within(a, b) and not within(b, a) and distance_transform_edt(~b.mask)[a.mask].min() < 0.018 * len(a.mask)


def is_true(caption: str, seen: list[Seen]) -> bool:
    "Whether every claim of a caption is true of what is seen."

    def fits(asked):
        return [o for o in seen if all(getattr(o, kind) == value for kind, value in asked.items() if kind != "count")]

    verdicts = []
    for kind, *asked in read_caption(caption):
        if kind == "is":
            n = len(fits(asked[0]))
            verdicts.append(n == asked[0]["count"] if "count" in asked[0] else n > 0)
        elif kind == "no":
            verdicts.append(not fits(asked[0]))
        else:
            verdicts.append(any(holds(kind, a, b) for a in fits(asked[0]) for b in fits(asked[1]) if a is not b))
    return all(verdicts)

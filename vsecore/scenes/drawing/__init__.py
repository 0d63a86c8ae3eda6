"""Paints a scene: a soft flat illustration in which every fact can be seen.

Each thing is painted four times larger than it is shown, reduced once and kept: the same dog
in another picture is pasted, not painted again. That is what makes thousands of pictures a matter of seconds.
"""

from collections.abc import Callable
from functools import lru_cache

import numpy as np
from PIL import Image

from vsecore.scenes.catalogue import CATALOGUE
from vsecore.scenes.drawing import animals, people, still, vehicles
from vsecore.scenes.drawing.brush import MARGIN, PALETTE, Brush, Colour, dark, light, mix
from vsecore.scenes.drawing.places import LOOKS, background
from vsecore.scenes.facts import SIDE, Scene, Thing
from vsecore.scenes.laws import HAND_HEIGHTS, borne_by, drawing_order, ties_of

__all__ = ["PALETTE", "draw"]

# What paints each kind is the function of its name.
PAINTERS: dict[str, Callable[[Brush, Colour, int, int], None]] = {
    kind: vars(module)[kind]
    for module in (people, animals, vehicles, still)
    for kind in CATALOGUE.keys() & vars(module).keys()
}

# In how many versions a thing is painted: hats, hair, ribbons. One where nothing is left to chance.
THING_LOOKS = {
    **dict.fromkeys(("man", "woman", "boy", "girl"), 12),
    **dict.fromkeys(("dog", "tree", "bush", "snowman", "sandcastle"), 4),
    **dict.fromkeys(("cat", "horse", "sailboat", "cloud", "house"), 2),
}
GLOWS = {"sun": (255, 226, 120), "moon": (226, 226, 255), "star": (240, 232, 200)}

# Which of seven segments a digit lights: top, upper left, upper right, middle, lower left, lower right, foot.
_SEGMENTS = "1110111 0010010 1011101 1011011 0111010 1101011 1101111 1010010 1111111 1111011"
_STROKES = ((0, 0, 4, 1), (0, 0, 1, 4), (3, 0, 4, 4), (0, 3, 4, 4), (0, 3, 1, 7), (3, 3, 4, 7), (0, 6, 4, 7))


@lru_cache(maxsize=6000)
def _sprite(
    kind: str,
    colour: str,
    facing: str | None,
    across: int,
    down: int,
    look: int,
    reach: int,
    moonlit: bool,
    zoom: int,
) -> Image.Image:
    """One thing with its outline, MARGIN * zoom pixels larger than its box on each side."""
    known = CATALOGUE[kind]
    brush = Brush(known.width, known.height, across * zoom, down * zoom, zoom)
    tone = PALETTE[colour]
    PAINTERS[kind](brush, tone, look, reach)
    if known.group == "person":
        outline = mix(dark(tone, 0.5), (74, 58, 66), 0.6)  # skin and hair have the same rim as the coat
    elif colour == "black":
        outline = light(tone, 0.3)
    else:
        outline = dark(tone, 0.22 if kind == "cloud" else 0.44)
    if moonlit:
        outline = mix(outline, (206, 210, 244), 0.5)
    return brush.finish(outline, facing == "left")


def _soft(across: int, down: int, tone: Colour, middle: float, strength: int) -> Image.Image:
    """An ellipse of light or shadow, opaque in the middle and faint at its edge."""
    x = (np.arange(across) + 0.5 - across / 2) / (across / 2)
    y = (np.arange(down) + 0.5 - down / 2) / (down / 2)
    distance = np.sqrt(x[None, :] ** 2 + y[:, None] ** 2)
    alpha = np.clip(middle - middle * distance, 0, 1) * strength
    image = Image.new("RGBA", (across, down), (*tone, 0))
    image.putalpha(Image.fromarray(alpha.round().astype(np.uint8)))
    return image


@lru_cache(maxsize=2000)
def _shadow(across: int, zoom: int, water: bool) -> Image.Image:
    """A soft dark ellipse, as wide as a thing, that sets it on the ground."""
    tone, strength = ((30, 70, 110), 70) if water else ((52, 44, 70), 84)
    return _soft(across * zoom, max(4, across // 7 + 3) * zoom, tone, 1.25, strength)


@lru_cache(maxsize=200)
def _glow(across: int, zoom: int, tone: Colour) -> Image.Image:
    """A faint round light, wider by half than the sun or the star that gives it."""
    pixels = across * zoom + 2 * (across // 4) * zoom
    return _soft(pixels, pixels, tone, 1, 100)


def _paste(
    canvas: Image.Image, thing: Thing, look: int, reach: int, grounded: bool, moonlit: bool, zoom: int
) -> None:
    left, top, right, bottom = thing.box
    if thing.kind in GLOWS:
        glow = _glow(right - left, zoom, GLOWS[thing.kind])
        half = (glow.width - (right - left) * zoom) // 2
        canvas.paste(glow, (left * zoom - half, top * zoom - half), glow)
    if grounded:
        shadow = _shadow(right - left, zoom, CATALOGUE[thing.kind].stands == "water")
        canvas.paste(shadow, (left * zoom, (bottom - 1) * zoom - shadow.height // 2), shadow)
    sprite = _sprite(
        thing.kind, thing.colour, thing.facing, right - left, bottom - top, look, reach, moonlit, zoom
    )
    canvas.paste(sprite, ((left - MARGIN) * zoom, (top - MARGIN) * zoom), sprite)


def _tag(canvas: Image.Image, scene: Scene, zoom: int) -> None:
    """The mark's number on a small white tag, in the corner where it hides least."""
    digits = str(scene.mark)
    width, height = 5 * len(digits) + 4, 11
    corners = [(x, y) for y in (SIDE - height - 1, 1) for x in (SIDE - width - 1, 1)]

    def hidden(corner: tuple[int, int]) -> int:
        x, y = corner
        across = [min(x + width, thing.box[2]) - max(x, thing.box[0]) for thing in scene.things]
        down = [min(y + height, thing.box[3]) - max(y, thing.box[1]) for thing in scene.things]
        return sum(max(0, a) * max(0, d) for a, d in zip(across, down, strict=True))

    brush = Brush(width, height, width * zoom, height * zoom, zoom)
    brush.bar(0, 0, width, height, (255, 254, 250), 2.4)
    for place, digit in enumerate(digits):
        for stroke, on in zip(_STROKES, _SEGMENTS.split()[int(digit)], strict=True):
            if on == "1":
                a, b, c, d = stroke
                brush.bar(2.5 + 5 * place + a, 2 + b, 2.5 + 5 * place + c, 2 + d, (54, 50, 74))
    tag = brush.finish((120, 116, 140), flip=False)
    x, y = min(corners, key=hidden)
    canvas.paste(tag, ((x - MARGIN) * zoom, (y - MARGIN) * zoom), tag)


def draw(scene: Scene, size: int = SIDE) -> np.ndarray:
    """The picture of a scene.

    Args:
        scene: what is to be seen.
        size: width and height in pixels; 112 for training, 448 for a figure.

    Returns:
        (size, size, 3) uint8, red green blue.

    Raises:
        ValueError: `size` is below 16.
    """
    if size < 16:
        raise ValueError(f"size: got {size} pixels, want at least 16")
    zoom = -(-size // SIDE)
    ties = ties_of(scene.relations)
    reach = {i: HAND_HEIGHTS[scene.things[j].kind] for relation, i, j in ties if relation == "holding"}
    borne = borne_by(ties)
    canvas = background(scene.place, scene.look % LOOKS, zoom).copy()
    for row in drawing_order(scene.things, ties):
        thing = scene.things[row]
        grounded = row not in borne and CATALOGUE[thing.kind].stands not in ("air", "sky")
        look = (scene.look // LOOKS + 5 * row) % THING_LOOKS.get(thing.kind, 1)
        _paste(canvas, thing, look, reach.get(row, 0), grounded, scene.place == "night", zoom)
    if scene.mark is not None:
        _tag(canvas, scene, zoom)
    if size != SIDE * zoom:
        canvas = canvas.resize((size, size), Image.Resampling.LANCZOS)
    return np.asarray(canvas)  # (size, size, 3)

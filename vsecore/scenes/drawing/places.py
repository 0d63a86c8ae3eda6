"""The eight places, painted from the far to the near; nothing in them is a kind of the catalogue."""

from collections.abc import Callable
from functools import lru_cache
from math import pi, sin

import numpy as np
from PIL import Image

from vsecore.scenes.drawing.brush import FINE, MARGIN, Brush, Colour, dark, light, mix
from vsecore.scenes.facts import SIDE

LOOKS = 8  # a place comes in so many views

# Colours of the sky from the top to the horizon, two moods a place.
SKIES = {
    "beach": ("6abee2 acdee8 faf0d6", "78b6e2 cee2ec ffe8d2"),
    "park": ("8ac8e8 c4e2ea f6f4da", "96c4e6 cedcec faead8"),
    "street": ("96c8e6 cee2e8 faeed8", "a8bee0 ded6e2 fce4ce"),
    "harbour": ("8ab2d8 e2d8de ffe0c2", "7ebcdc c8e2e6 ffeed0"),
    "snow": ("a0bae2 ced0ea fae2e4", "92c2e4 c6daee f2eef0"),
    "farm": ("7ec2e6 bee0e6 fcf2cc", "92bce2 e2dede ffe6be"),
    "lake": ("7ab4dc cae0ea ffecd8", "82a6d2 decede ffdccc"),
    "night": ("161a42 32326c 7a5c8c", "122046 24426e 606e92"),
}


def _gradient(colours: str, pixels: int, bottom: int) -> np.ndarray:
    """Rows of colour from the top down to `bottom`, the last one below it: (pixels, pixels, 3)."""
    stops = [bytes.fromhex(colour) for colour in colours.split()]
    where = np.linspace(0, bottom, len(stops))
    rows = [np.interp(np.arange(pixels), where, [stop[channel] for stop in stops]) for channel in range(3)]
    return np.broadcast_to(np.stack(rows, axis=1)[:, None, :], (pixels, pixels, 3))


def _ridge(
    brush: Brush,
    top: float,
    swing: float,
    phase: float,
    colour: Colour,
    waves: float = 1.5,
    foot: float = 115,
) -> None:
    """A hill line: two waves of different length, filled down to the foot."""
    line = []
    for x in range(-4, 118, 2):
        turn = 2 * pi * waves * x / SIDE + phase
        line.append((float(x), top + swing * (0.7 * sin(turn) + 0.3 * sin(2.3 * turn + 1))))
    brush.polygon([*line, (117, foot), (-4, foot)], colour)
    brush.line(line, 0.5, light(colour, 0.3))


def _band(brush: Brush, top: float, bottom: float, colour: Colour) -> None:
    brush.bar(-4, top, SIDE + 4, bottom, colour)


def _scatter(look: int, count: int, top: float, bottom: float) -> list[tuple[float, float]]:
    """Points strewn evenly over a strip, the same for the same look (Roberts' R2 sequence)."""
    points = []
    for step in range(count):
        x = ((step + 1) * 0.7548777 + look * 0.37) % 1
        y = ((step + 1) * 0.5698403 + look * 0.21) % 1
        points.append((x * SIDE, top + y * (bottom - top)))
    return points


def _water(brush: Brush, look: int, top: float, bottom: float, far: Colour, near: Colour) -> None:
    """Stripes from the far colour to the near one, with glints that grow towards the viewer."""
    stripes = 9
    for stripe in range(stripes):
        start = top + (bottom - top) * (stripe / stripes) ** 1.3
        _band(brush, start, bottom, mix(far, near, stripe / (stripes - 1)))
    for x, y in _scatter(look, 26, top + 1.5, bottom - 1):
        share = (y - top) / (bottom - top)
        length = 2 + 5 * share
        tone = mix(mix(far, near, share), (255, 255, 255), 0.42)
        brush.bar(x - length, y, x + length, y + 0.35 + 0.4 * share, tone, 0.3)


def _grass(brush: Brush, look: int, top: float, bottom: float, colour: Colour, count: int = 26) -> None:
    """Tufts of three blades."""
    for x, y in _scatter(look + 3, count, top, bottom):
        tall = 0.7 + 1.3 * (y - 60) / 52
        for lean in (-0.6, 0.0, 0.6):
            brush.line([(x + lean, y), (x + lean * 1.9, y - tall)], 0.3, colour)


def beach(brush: Brush, look: int) -> None:
    headland = (136, 176, 178)
    side = -1 if look % 2 else 1
    middle = 20 if side < 0 else 92
    brush.blob(
        [(middle - 34, 57), (middle - 16, 50), (middle, 47.6), (middle + 14, 50.4), (middle + 34, 57)],
        headland,
    )
    brush.blob([(middle - 20, 57), (middle - 4, 52.6), (middle + 24, 57)], dark(headland, 0.1))
    _water(brush, look, 54, 80, (62, 146, 186), (132, 210, 212))
    for y, tone in ((70.5, (168, 224, 222)), (74.6, (190, 232, 228))):
        _ridge(brush, y, 0.7, look + y, tone, 2.2, y + 1)
    sand = (246, 224, 176)
    _ridge(brush, 77.4, 1.6, look, (250, 252, 250), 1.2)
    _ridge(brush, 79.0, 1.6, look, (214, 190, 142), 1.2)
    _ridge(brush, 80.0, 1.5, look + 0.2, sand, 1.2)
    _ridge(brush, 96, 1.6, look + 2, (249, 231, 190), 1.0)
    for x, y in _scatter(look, 20, 84, 110):
        brush.bar(x - 3, y, x + 3, y + 0.5, (234, 206, 154), 0.3)
    for x, y in _scatter(look + 5, 9, 86, 110):
        brush.ellipse(x, y, 0.8, 0.55, (206, 176, 138))


def park(brush: Brush, look: int) -> None:
    _ridge(brush, 54, 5, look * 0.9, (168, 206, 190), 1.1)
    _ridge(brush, 60, 3, look * 1.3 + 2, (142, 196, 150), 1.6)
    for number in range(30):  # the edge of a far wood
        middle, tall = number * 4 - 2, (number * 7 + look * 3) % 5
        brush.ellipse(
            middle,
            64.6,
            3.4,
            2.6 + tall * 0.5,
            ((126, 184, 138), (136, 190, 142), (118, 178, 134))[number % 3],
        )
    _ridge(brush, 66, 1.0, look, (164, 208, 130), 1.0)
    _ridge(brush, 80, 2, look + 1.5, (150, 200, 118), 0.8)
    _ridge(brush, 95, 2, look + 3, (136, 190, 108), 0.9)
    _grass(brush, look, 70, 110, (118, 174, 96))
    bend = 16 if look % 2 else -16
    path = [
        (56 + bend * 0.2, 66),
        (60 + bend * 0.2, 66),
        (50 - bend * 0.9, 80),
        (62 + bend, 116),
        (30 + bend, 116),
        (38 - bend, 80),
    ]
    brush.blob(path, (238, 222, 184))
    for x, y in _scatter(look + 1, 12, 72, 109):
        brush.ellipse(x, y, 0.55, None, (250, 246, 226))


def _facade(
    brush: Brush, left: float, right: float, top: float, wall: Colour, pane: Colour, style: int
) -> None:
    brush.bar(left, top, right, 72, wall)
    brush.bar(left - 0.6, top - 1.2, right + 0.6, top + 1.4, dark(wall, 0.16), 0.4)
    width = right - left
    columns = max(2, round(width / 6.4))
    step = width / columns
    y, row = top + 4.6, 0
    while y < 58:
        for column in range(columns):
            x = left + step * (column + 0.5)
            lit = pane if (column * 3 + row * 5 + style) % 4 else light(pane, 0.4)
            brush.bar(x - step * 0.27, y, x + step * 0.27, y + 4.6, lit, 0.4)
        y, row = y + 8, row + 1
    awning = (
        mix(wall, (214, 120, 104), 0.35),
        mix(wall, (96, 150, 160), 0.4),
        mix(wall, (216, 170, 96), 0.4),
    )[style % 3]
    brush.bar(left + 1.4, 60.4, right - 1.4, 63.2, awning, 0.6)
    brush.bar(left + 2.4, 63.2, right - 2.4, 70, mix(pane, wall, 0.25))


def street(brush: Brush, look: int) -> None:
    walls: tuple[Colour, ...] = (
        (236, 214, 196),
        (214, 222, 220),
        (240, 226, 190),
        (222, 206, 214),
        (204, 216, 226),
        (232, 202, 186),
    )
    left = -3 - look % 5
    for number in range(7):
        width = (19, 15, 22, 17, 20, 16, 21)[(number + look) % 7]
        top = (27, 37, 31, 42, 34, 28, 39)[(number * 3 + look) % 7]
        _facade(brush, left, left + width, top, walls[(number + look) % 6], (168, 196, 212), number + look)
        left += width
    _band(brush, 69, 80, (222, 216, 208))
    _band(brush, 69, 70.2, (198, 192, 188))
    _band(brush, 79, 81, (190, 186, 184))
    _band(brush, 81, 98, (134, 138, 150))
    _band(brush, 81, 83, (124, 128, 140))
    for x in range(-6 + (look * 3) % 9, 118, 15):
        brush.bar(x, 88.6, x + 8, 89.8, (244, 240, 226), 0.4)
    _band(brush, 98, 100, (190, 186, 184))
    _band(brush, 100, 116, (230, 224, 214))
    for x in range(-14, 126, 14):
        brush.line([(x + 3, 100), (x - 2, 116)], 0.4, (208, 202, 194))
    _band(brush, 105.6, 106, (212, 206, 198))


def harbour(brush: Brush, look: int) -> None:
    far = (190, 184, 200)
    _ridge(brush, 53, 2.4, look, mix(far, (226, 210, 210), 0.5), 1.3)
    left = -4 + (look * 5) % 8
    for number in range(8):
        width, top = (14, 10, 18, 12)[(number + look) % 4], (47, 44, 49, 42, 46)[(number * 2 + look) % 5]
        tone = ((196, 184, 190), (206, 188, 180), (184, 182, 198))[(number + look) % 3]
        brush.bar(left, top, left + width, 58, tone)
        brush.polygon(
            [(left - 0.8, top + 0.4), (left + width / 2, top - 3.6), (left + width + 0.8, top + 0.4)],
            dark(tone, 0.12),
        )
        left += width + 1
    tower = 92 if look % 2 else 18
    brush.polygon(
        [(tower - 2.6, 58), (tower + 2.6, 58), (tower + 1.7, 30), (tower - 1.7, 30)], (238, 228, 222)
    )
    brush.polygon([(tower - 2.2, 45), (tower + 2.2, 45), (tower + 2, 39), (tower - 2, 39)], (212, 150, 146))
    brush.bar(tower - 2.2, 26.6, tower + 2.2, 30.4, (212, 150, 146), 0.6)
    brush.bar(tower - 1.2, 27.6, tower + 1.2, 29.6, (255, 240, 190))
    _water(brush, look, 57, 94, (112, 162, 190), (84, 150, 176))
    _band(brush, 93, 116, (214, 196, 172))
    _band(brush, 93, 95, (236, 222, 200))
    _band(brush, 95, 97, (170, 148, 130))
    for x in range(-8 + (look * 3) % 6, 122, 13):
        brush.line([(x, 97), (x - 2.6, 116)], 0.45, (188, 168, 146))
    _band(brush, 104.2, 104.8, (194, 174, 152))
    for x in (14 + (look * 7) % 12, 84 + (look * 5) % 14):
        brush.bar(x - 1.6, 90.6, x + 1.6, 95.6, (104, 96, 108), 0.6)
        brush.bar(x - 2.4, 89.8, x + 2.4, 91.6, (120, 112, 122), 0.8)


def _mountain(brush: Brush, x: float, top: float, half: float, foot: float, rock: Colour) -> None:
    """A peak with a cap of snow and a shaded side."""
    brush.polygon([(x, top), (x + half, foot), (x - half, foot)], rock)
    brush.polygon([(x, top), (x + half, foot), (x + half * 0.1, foot)], dark(rock, 0.12))
    share = 0.36
    cap = top + (foot - top) * share
    edge = half * share
    jag = [
        (x + edge, cap),
        (x + edge * 0.45, cap - 2.4),
        (x + edge * 0.1, cap + 1.6),
        (x - edge * 0.4, cap - 1.8),
        (x - edge, cap),
    ]
    brush.polygon([(x, top), *jag], (250, 250, 253))


def snow(brush: Brush, look: int) -> None:
    for number, (peak, top, half) in enumerate(((18, 36, 36), (86, 32, 40), (52, 43, 30))):
        _mountain(
            brush, peak + (look * 9) % 16 - 6, top + (look * (number + 2)) % 5, half, 68, (172, 184, 212)
        )
    _ridge(brush, 61, 3, look, (222, 230, 244), 1.2)
    _ridge(brush, 67, 2, look + 2, (233, 239, 249), 1.0)
    _ridge(brush, 79, 2.4, look + 4, (224, 233, 246), 0.8)
    _ridge(brush, 81, 2.4, look + 4, (240, 245, 252), 0.8)
    _ridge(brush, 95, 2, look + 1, (228, 236, 248), 0.9)
    _ridge(brush, 97, 2, look + 1, (245, 248, 253), 0.9)
    for x, y in _scatter(look, 22, 70, 110):
        brush.bar(x - 2, y, x + 2, y + 0.4, (212, 224, 242), 0.3)


def farm(brush: Brush, look: int) -> None:
    _ridge(brush, 53, 4, look, (164, 200, 178), 1.2)
    _ridge(brush, 58.6, 2.4, look * 1.7 + 1, (226, 206, 122), 0.9)
    for number in range(20):
        x = number * 7 - 12 + look % 6
        brush.line([(56 + (x - 56) * 0.55, 60.4), (56 + (x - 56) * 1.3, 70)], 0.5, (208, 184, 98))
    _ridge(brush, 66.4, 1, look + 2, (164, 204, 116), 1)
    _ridge(brush, 77, 1, look + 3, (150, 194, 104), 1)
    for x in range(-6, 120, 11):
        brush.bar(x, 61.6, x + 1.4, 68.6, (250, 244, 230), 0.3)
    for y in (62.8, 65.4):
        brush.bar(-4, y, 116, y + 1, (250, 244, 230), 0.3)
    _ridge(brush, 82, 0.7, look, (196, 158, 112), 1.0)
    _ridge(brush, 83, 0.7, look, (222, 190, 144), 1.0)
    _ridge(brush, 89.4, 0.5, look, (208, 174, 128), 1.0, 91)
    _ridge(brush, 97.6, 0.8, look + 1, (138, 184, 92), 1.0)
    _grass(brush, look, 70, 80, (126, 174, 90), 12)
    _grass(brush, look + 1, 100, 111, (118, 168, 82), 16)


def lake(brush: Brush, look: int) -> None:
    shift = (look * 9) % 18 - 8
    for peak, top, half in ((22, 33, 34), (92, 36, 34), (58, 42, 28)):
        _mountain(brush, peak + shift, top + look % 3, half, 60, (150, 162, 196))
    _ridge(brush, 55, 2, look, (124, 166, 150), 1.6)
    for number in range(44):
        x = number * 2.7 - 3
        tall = 3 + (number * 7 + look * 3) % 4
        brush.polygon(
            [(x - 1.5, 58.4), (x, 58 - tall), (x + 1.5, 58.4)], ((96, 146, 130), (108, 156, 138))[number % 2]
        )
    _water(brush, look, 58, 96, (142, 190, 206), (84, 156, 188))
    _band(brush, 58, 60, (122, 172, 178))
    _ridge(brush, 93.4, 1.2, look, (226, 206, 160), 0.9)
    _ridge(brush, 95.4, 1.2, look, (152, 196, 112), 0.9)
    _ridge(brush, 104, 1.4, look + 2, (138, 186, 102), 1.0)
    _grass(brush, look, 99, 111, (118, 168, 88), 20)


def night(brush: Brush, look: int) -> None:
    _ridge(brush, 55, 3, look, (62, 64, 112), 1.2)
    left = -3 - look % 4
    for number in range(9):
        width, top = (11, 15, 9, 13)[(number + look) % 4], (40, 50, 45, 53, 37)[(number * 2 + look) % 5]
        wall = ((44, 46, 88), (52, 50, 94), (40, 52, 90))[number % 3]
        brush.bar(left, top, left + width, 72, wall)
        for x in range(3, width - 2, 3):
            for y in range(top + 4, 66, 5):
                if (x * 5 + y * 3 + number + look) % 4 == 0:
                    brush.bar(left + x - 0.8, y, left + x + 0.8, y + 2.2, (255, 218, 138), 0.2)
                elif (x + y + number) % 3 == 0:
                    brush.bar(left + x - 0.8, y, left + x + 0.8, y + 2.2, light(wall, 0.14), 0.2)
        left += width + (number + look) % 2
    _ridge(brush, 68, 0.8, look, (70, 104, 112), 1.0)
    _ridge(brush, 74, 0.8, look + 2, (64, 96, 106), 1.0)
    _band(brush, 81, 98, (84, 86, 116))
    _band(brush, 80, 81.4, (120, 122, 148))
    for x in range(-6 + (look * 3) % 9, 118, 15):
        brush.bar(x, 88.6, x + 8, 89.6, (226, 212, 168), 0.4)
    _band(brush, 97.4, 99, (120, 122, 148))
    _band(brush, 99, 116, (66, 98, 106))
    _grass(brush, look, 101, 111, (86, 124, 122), 18)


PAINTERS: dict[str, Callable[[Brush, int], None]] = {
    painter.__name__: painter for painter in (beach, park, street, harbour, snow, farm, lake, night)
}


@lru_cache(maxsize=128)
def background(place: str, look: int, zoom: int) -> Image.Image:
    """A view of a place, SIDE * zoom pixels wide and high. Do not paint on it: paint on a copy."""
    pixels = SIDE * zoom
    sky = Image.fromarray(_gradient(SKIES[place][look % 2], pixels, 60 * zoom).round().astype(np.uint8))
    brush = Brush(SIDE, SIDE, pixels, pixels, zoom)
    PAINTERS[place](brush, look)
    edge = MARGIN * zoom * FINE
    land = brush.image.crop((edge, edge, edge + pixels * FINE, edge + pixels * FINE))
    land = land.resize((pixels, pixels), Image.Resampling.LANCZOS)
    sky.paste(land, (0, 0), land)
    return sky

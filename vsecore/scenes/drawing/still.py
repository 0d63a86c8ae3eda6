"""Plants, toys, the things of the sky and what is built."""

from itertools import pairwise
from math import cos, pi, sin

from vsecore.scenes.drawing.brush import INK, PALETTE, Brush, Colour, dark, light, mix

BARK = (124, 88, 66)
STEM = (72, 140, 80)


def tree(brush: Brush, colour: Colour, look: int, reach: int) -> None:
    brush.polygon("17.4,34 22.6,34 23,50 25.4,60 14.6,60 17,50", BARK)
    brush.line("20,44 26.6,35", 1.8, BARK)
    brush.line("20,47 13,38", 1.8, BARK)
    brush.polygon("20.6,36 22.6,36 23,50 25.4,60 20.6,60", dark(BARK, 0.2))
    crown = [
        (12, 30, 11.4),
        (28.4, 30, 11.2),
        (20, 34.4, 10),
        (9.4, 20, 9),
        (31, 20, 9),
        (20, 12, 11.6),
        (20, 23, 13),
    ]
    for x, y, radius in crown:
        brush.ellipse(x, y + 1.4, radius, None, dark(colour, 0.2))
    for x, y, radius in crown:
        brush.ellipse(x - 0.6, y - 0.4, radius * 0.92, None, colour)
    for x, y, radius in ((15, 10.6, 6.6), (9.4, 19.4, 5.2), (23, 19.6, 6), (12.6, 29, 5.4)):
        brush.ellipse(x, y, radius, radius * 0.8, light(colour, 0.24))
    for step in range(7):
        x, y = 7 + (step * 11 + look * 5) % 26, 12 + (step * 7 + look * 3) % 22
        brush.slice(x, y, 2.2, 1.8, 10, 170, dark(colour, 0.16))


def _frond(brush: Brush, reach: float, drop: float, lift: float, leaf: Colour, vein: Colour) -> None:
    """A palm leaf: an arch from the crown of the trunk, its lower edge cut into fingers."""
    spine = []
    for step in range(9):
        t = step / 8
        spine.append((25 + reach * t, 17.4 + drop * t**2 - lift * 4 * t * (1 - t) * 0.5))
    lower = []
    for step, (x, y) in enumerate(spine):
        wide = 8.4 * (1 - abs(step / 8 - 0.4) * 1.45)
        lower.append((x - reach * 0.02, y + max(0.4, wide) * (1.0 if step % 2 else 0.7)))
    brush.polygon([*spine, *reversed(lower)], leaf)
    brush.line(spine[:8], 0.9, vein)


def palm(brush: Brush, colour: Colour, look: int, reach: int) -> None:
    trunk = (172, 126, 84)
    spine = [(18, 62), (19.6, 50), (22.6, 36), (25, 20)]
    for (x0, y0), (x1, y1), width in zip(spine, spine[1:], (5.4, 4.6, 3.8), strict=False):
        brush.line([(x0, y0 - 2.4), (x1, y1)], width, trunk)
    brush.polygon("13.4,62 23,62 20.6,54 16.6,54", trunk)
    for down in range(24, 60, 5):
        middle = 25 - (down - 20) * 0.17
        brush.line([(middle - 2, down), (middle + 2, down + 1.2)], 0.8, dark(trunk, 0.3))
    for span, drop, lift, shade in (
        (-23.6, 15, 6, 0.26),
        (16.6, 17, 6, 0.26),
        (-15, 18.6, 4, 0.34),
        (10, 19, 4, 0.34),
        (-20, 2, 12, 0.08),
        (15, 3, 12, 0.08),
        (-9, -14, 4, 0.0),
        (7, -14.4, 4, 0.0),
    ):
        _frond(brush, span, drop, lift, dark(colour, shade), light(colour, 0.25 - shade / 2))
    for x, y in ((22.8, 20.6), (26.6, 21.4), (24.6, 22.8)):
        brush.ellipse(x, y, 2.1, None, (116, 76, 52))


def bush(brush: Brush, colour: Colour, look: int, reach: int) -> None:
    mounds = [(7, 14, 6.8), (27, 14, 6.8), (17, 9, 8.8), (11.6, 13, 8), (23, 13, 8)]
    for x, y, radius in mounds:
        brush.ellipse(x, y, radius, None, dark(colour, 0.2))
    brush.bar(1.4, 13, 32.6, 21, dark(colour, 0.2), 4)
    for x, y, radius in mounds:
        brush.ellipse(x - 0.5, y - 0.7, radius * 0.88, radius * 0.84, colour)
    for across, down in ((13.6, 5.6), (6.0, 11.4), (22.0, 9.4), (27.6, 13.0)):
        brush.ellipse(across, down, 3.2, 2.4, light(colour, 0.25))
    berry = (240, 110, 110) if colour == PALETTE["green"] else (226, 190, 244)
    for step in range(6):
        brush.ellipse(5 + (step * 9 + look * 4) % 25, 9 + (step * 5 + look) % 9, 0.9, None, berry)


def flower(brush: Brush, colour: Colour, look: int, reach: int) -> None:
    brush.line("7,9 6.7,15 7,21.4", 1.6, STEM)
    brush.blob("7,19 1.6,17.8 0.8,14.2 4.8,15.4", STEM)
    brush.blob("7,17.4 11.4,16.2 13.2,12.6 9,13.4", light(STEM, 0.15))
    for step in range(6):
        angle = pi * step / 3 + 0.5
        brush.ellipse(
            7 + 3.7 * cos(angle), 6.8 + 3.7 * sin(angle), 3.1, None, colour if step % 2 else dark(colour, 0.1)
        )
    brush.ellipse(7, 6.8, 2.5, None, (255, 206, 84) if colour != PALETTE["yellow"] else (170, 104, 56))


def ball(brush: Brush, colour: Colour, look: int, reach: int) -> None:
    brush.ellipse(7.5, 7.5, 7.2, None, colour)
    brush.blob("0.6,7 4,8.8 11,8.8 14.4,7 14.2,9.8 10.8,12 4,12 0.9,9.8", light(colour, 0.75))
    brush.slice(7.5, 7.5, 7.2, 7.2, 50, 130, dark(colour, 0.2))
    brush.ellipse(4.8, 3.8, 2, 1.4, light(colour, 0.65))


def kite(brush: Brush, colour: Colour, look: int, reach: int) -> None:
    """The string ends in the middle of the box's foot, where a hand may hold it."""
    string = [(10.5, 25), (8.6, 29), (12.2, 33.5), (9.2, 38), (10.5, 43.6)]
    brush.line(string, 0.6, (112, 98, 100))
    for (x, y), side in zip(string[1:4], (1, -1, 1), strict=True):
        bow = light(colour, 0.3) if side > 0 else (252, 236, 206)
        brush.polygon([(x, y), (x - 3.6, y - 1.8), (x - 3.4, y + 1.6)], bow)
        brush.polygon([(x, y), (x + 3.6, y - 1.4), (x + 3.4, y + 1.9)], dark(bow, 0.1))
    brush.polygon("10.5,0.2 20.8,10.4 10.5,25.6 0.2,10.4", colour)
    brush.polygon("10.5,0.2 10.5,10.4 0.2,10.4", light(colour, 0.42))
    brush.polygon("10.5,10.4 20.8,10.4 10.5,25.6", dark(colour, 0.16))
    brush.line("10.5,0.6 10.5,25", 0.55, dark(colour, 0.42))
    brush.line("0.8,10.4 20.2,10.4", 0.55, dark(colour, 0.42))


def balloon(brush: Brush, colour: Colour, look: int, reach: int) -> None:
    """The string ends in the middle of the box's foot, where a hand may hold it."""
    brush.line("7.5,20 8.7,26 6.6,32 7.5,37.6", 0.6, (112, 98, 100))
    brush.polygon("7.5,17.8 5.5,21 9.5,21", dark(colour, 0.25))
    brush.blob("7.5,0.2 13,2.6 14.8,8.6 12,15 7.5,19 3,15 0.2,8.6 2,2.6", colour)
    brush.blob("12.4,5 13.6,9 11.2,14 8.6,16.4 11.6,10.6", dark(colour, 0.15))
    brush.ellipse(4.7, 5.4, 1.7, 2.8, light(colour, 0.7))


def umbrella(brush: Brush, colour: Colour, look: int, reach: int) -> None:
    """The pole ends in the middle of the box's foot: in a hand or in the sand."""
    brush.line("17,2 17,36", 1.3, (140, 102, 74))
    pale = light(colour, 0.66) if colour != PALETTE["black"] else (92, 92, 106)
    ribs = (0.4, 7, 13.6, 20.4, 27, 33.6)
    for row, (x0, x1) in enumerate(pairwise(ribs)):
        tone = pale if row % 2 else colour
        arc = [(x0 + (17 - x0) * (1 - cos(a)), 15.6 - 14 * sin(a)) for a in (0, 0.3, 0.6, 0.9, 1.2, 1.57)]
        back = [(x1 + (17 - x1) * (1 - cos(a)), 15.6 - 14 * sin(a)) for a in (1.57, 1.2, 0.9, 0.6, 0.3, 0)]
        brush.polygon([*arc, *back, ((x0 + x1) / 2, 13.6)], tone)
    brush.ellipse(17, 1.2, 0.9, None, dark(colour, 0.2))
    brush.line("17,34.6 17,36.2", 1.9, (104, 74, 58))


def snowman(brush: Brush, colour: Colour, look: int, reach: int) -> None:
    scarf = PALETTE[("red", "blue", "green", "purple", "orange")[look % 5]]
    brush.line("8,21.4 1,15.6", 1, BARK)
    brush.line("20,21.4 27,15.6", 1, BARK)
    brush.line("2.6,17 1,19.2", 0.8, BARK)
    brush.line("25.4,17 27,19.2", 0.8, BARK)
    for y, radius in ((32.4, 9.6), (22, 7.4), (12.4, 6.2)):
        brush.ellipse(14, y, radius, None, dark(colour, 0.13))
        brush.ellipse(13.4, y - 0.5, radius * 0.91, None, colour)
    for y in (21.6, 25, 31):
        brush.ellipse(14.4, y, 0.8, None, INK)
    brush.bar(8.6, 15.8, 19.4, 18.2, scarf, 1.2)
    brush.polygon("16.4,17 19.2,17 20.4,24.6 17.2,24.6", dark(scarf, 0.14))
    for x in (12, 16.4):
        brush.ellipse(x, 11, 0.8, 0.95, INK)
    brush.polygon("14.2,12 20.6,13.4 14.2,14.2", (240, 140, 50))
    brush.bar(9.8, 0.4, 18.2, 6.4, (64, 60, 74), 0.8)
    brush.bar(9.8, 4.4, 18.2, 6.2, scarf)
    brush.bar(7, 6, 21, 7.7, (64, 60, 74), 0.8)


def sledge(brush: Brush, colour: Colour, look: int, reach: int) -> None:
    """Painted looking to the right: the runners curl up in front."""
    brush.line("2,14.6 31,14.6 35.4,12.6 36.8,8.4 34.8,5.4 32.6,6.6", 1.6, (128, 118, 122))
    for x in (7, 17, 27):
        brush.bar(x, 6, x + 2.2, 14.2, dark(colour, 0.28))
    brush.bar(1.8, 3.8, 32.6, 7.6, colour, 1.2)
    brush.line("3,5.1 31,5.1", 0.7, light(colour, 0.4))
    brush.line("32.6,6 36.6,2.4 37.2,1", 0.5, (150, 116, 84))


def sandcastle(brush: Brush, colour: Colour, look: int, reach: int) -> None:
    sand = mix(colour, (214, 158, 72), 0.34)
    shade = dark(sand, 0.24)

    def tower(left: float, top: float, right: float) -> None:
        brush.bar(left, top, right, 28, sand)
        step = (right - left) / 5
        for notch in (0, 2, 4):
            brush.bar(left + notch * step, top - 2.4, left + (notch + 1) * step, top + 0.5, sand)
        brush.bar(right - step, top, right, 28, dark(sand, 0.12))

    brush.bar(4, 17, 32, 28, dark(sand, 0.07))
    tower(12.4, 10, 23.6)
    tower(1.2, 14, 10.2)
    tower(25.8, 14, 34.8)
    brush.slice(18, 28, 4, 8, 180, 360, shade)
    for x, y in ((5.6, 19), (30.2, 19), (18, 14.6)):
        brush.bar(x - 0.9, y - 1.6, x + 0.9, y + 1.6, shade, 0.9)
    brush.line("18,8 18,0.6", 0.8, (122, 90, 74))
    brush.polygon("18.2,0.4 25,2.4 18.2,4.6", PALETTE[("red", "blue", "purple")[look % 3]])
    brush.blob("0.4,28 6,25.4 18,26.6 30,25.4 35.6,28", light(sand, 0.2))


def sun(brush: Brush, colour: Colour, look: int, reach: int) -> None:
    for step in range(12):
        angle = 2 * pi * step / 12
        brush.polygon(
            [
                (12 + 7.4 * cos(angle - 0.17), 12 + 7.4 * sin(angle - 0.17)),
                (12 + 11.8 * cos(angle), 12 + 11.8 * sin(angle)),
                (12 + 7.4 * cos(angle + 0.17), 12 + 7.4 * sin(angle + 0.17)),
            ],
            colour,
        )
    brush.ellipse(12, 12, 7.6, None, colour)
    brush.ellipse(12, 12, 6.2, None, light(colour, 0.22))
    brush.ellipse(10.6, 10.4, 3.2, None, light(colour, 0.45))


def moon(brush: Brush, colour: Colour, look: int, reach: int) -> None:
    brush.ellipse(10, 10, 9.7, None, colour)
    for x, y, radius in ((3.4, 10.4, 1.2), (8, 16.4, 1.5), (4, 6, 0.8)):
        brush.ellipse(x, y, radius, None, dark(colour, 0.1))
    brush.erase(14.4, 7.2, 8.0)


def star(brush: Brush, colour: Colour, look: int, reach: int) -> None:
    points = []
    for step in range(10):
        radius, angle = (8.0, 3.6)[step % 2], pi * step / 5 - pi / 2
        points.append((8 + radius * cos(angle), 8.4 + radius * sin(angle)))
    brush.polygon(points, colour)
    brush.ellipse(7.6, 8, 2.4, None, light(colour, 0.5))


def cloud(brush: Brush, colour: Colour, look: int, reach: int) -> None:
    puffs = [(8, 12.4, 6.2), (31.4, 12.6, 5.8), (15.4, 8.6, 7.6), (24.6, 8.2, 7.2), (20, 12, 6.6)]
    if look % 2:
        puffs = [(40 - x, y, radius) for x, y, radius in puffs]
    for x, y, radius in puffs:
        brush.ellipse(x, y, radius, None, dark(colour, 0.1))
    brush.bar(2.6, 11, 37, 18.4, dark(colour, 0.1), 3.6)
    for x, y, radius in puffs:
        brush.ellipse(x - 0.4, y - 0.8, radius * 0.9, radius * 0.86, colour)
    for x, y, radius in puffs[2:4]:
        brush.ellipse(x - 1.4, y - 2.4, radius * 0.5, radius * 0.4, light(colour, 0.45))


def bench(brush: Brush, colour: Colour, look: int, reach: int) -> None:
    iron = (84, 82, 94)
    for x in (5, 32.4):
        brush.bar(x, 1.2, x + 2.4, 22, iron, 0.8)
        brush.line([(x + 1, 12), (x - 2.4, 9)], 1.2, iron)
    for y in (1, 5.2):
        brush.bar(0.6, y, 39.4, y + 3.2, colour, 1)
        brush.line([(1.8, y + 0.8), (38.2, y + 0.8)], 0.5, light(colour, 0.35))
    for x in (2.6, 34.8):
        brush.bar(x, 14, x + 2.4, 22, dark(iron, 0.2), 0.6)
    brush.bar(0.6, 12, 39.4, 15.6, light(colour, 0.14), 1.2)
    brush.bar(0.6, 14.2, 39.4, 16.2, dark(colour, 0.25), 0.8)


def house(brush: Brush, colour: Colour, look: int, reach: int) -> None:
    roof = {
        PALETTE["red"]: (112, 78, 76),
        PALETTE["brown"]: (196, 104, 72),
        PALETTE["blue"]: (84, 88, 112),
    }.get(colour, (190, 84, 70))
    brush.bar(43.9, 4.3, 50, 20.3, (172, 112, 92))
    brush.bar(42.9, 2.8, 51.1, 5.6, (140, 88, 76), 0.8)
    brush.bar(6.3, 24.1, 57.1, 58.4, colour)
    brush.bar(6.3, 50.8, 57.1, 58.4, dark(colour, 0.14))
    brush.polygon("31.8,1.3 63,27.4 0.5,27.4", roof)
    brush.polygon("31.8,7.9 52.8,25.9 10.7,25.9", light(colour, 0.16))
    brush.line("1.5,27.2 31.8,2 62,27.2", 2.8, roof)
    pane = (255, 230, 160) if look % 2 else (190, 226, 240)
    brush.ellipse(31.8, 18.5, 4.1, None, (252, 248, 240))
    brush.ellipse(31.8, 18.5, 2.9, None, pane)
    for x in (10.9, 41.1):
        brush.bar(x, 31.8, x + 11.4, 43.7, (252, 248, 240), 0.8)
        brush.bar(x + 1.3, 33, x + 10.2, 42.4, pane)
        brush.line([(x + 5.7, 33), (x + 5.7, 42.4)], 0.9, (252, 248, 240))
        brush.line([(x + 1.3, 37.6), (x + 10.2, 37.6)], 0.9, (252, 248, 240))
        brush.bar(x - 0.5, 43.4, x + 11.9, 45.7, dark(colour, 0.35), 0.6)
    door = (130, 86, 62) if colour != PALETTE["brown"] else (92, 128, 116)
    brush.bar(26.2, 36.3, 37.3, 58.4, (252, 248, 240), 1.5)
    brush.bar(27.4, 37.6, 36.1, 58.4, door, 1.3)
    brush.ellipse(34.2, 48.8, 0.9, None, (250, 214, 110))


def lamp(brush: Brush, colour: Colour, look: int, reach: int) -> None:
    brush.bar(5.9, 12, 8.1, 56, colour)
    brush.bar(4.6, 47, 9.4, 56, colour, 1)
    brush.bar(2.8, 55, 11.2, 58, dark(colour, 0.15), 1)
    brush.bar(4.8, 16.6, 9.2, 18.4, light(colour, 0.2), 0.6)
    brush.polygon("2.4,4 11.6,4 9.8,14 4.2,14", (255, 232, 150))
    brush.polygon("4.4,5 6.6,5 6.2,13 5.2,13", (255, 250, 220))
    brush.bar(3.8, 13, 10.2, 15, colour, 0.6)
    brush.polygon("0.9,5 7,0.6 13.1,5", colour)

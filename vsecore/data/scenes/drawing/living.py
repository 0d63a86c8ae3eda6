"""People and animals. Everything is painted looking to the right; `draw` turns it round."""

from __future__ import annotations

from collections.abc import Callable
from math import cos, pi, sin

from vsecore.data.scenes.drawing.brush import INK, PALETTE, Brush, Colour, dark, light, mix

SKINS: tuple[Colour, ...] = ((250, 214, 184), (232, 184, 142), (196, 138, 96), (142, 94, 66))
HAIRS: tuple[Colour, ...] = ((66, 46, 40), (150, 96, 52), (224, 178, 96), (44, 40, 48), (178, 82, 46))
TROUSERS: tuple[Colour, ...] = ((74, 88, 124), (96, 84, 92), (70, 98, 104))
NOSE = (60, 48, 52)


def _eye(brush: Brush, x: float, y: float, size: float = 0.8) -> None:
    brush.ellipse(x, y, size, size * 1.25, INK)
    brush.ellipse(x + size * 0.3, y - size * 0.45, size * 0.35, None, (255, 255, 255))


def _face(brush: Brush, x: float, y: float, radius: float, skin: Colour) -> None:
    """A head that looks a little to the right, with eyes, a smile and a blush."""
    brush.ellipse(x, y, radius, radius * 1.05, skin)
    for ahead in (0.12, 0.66):
        brush.ellipse(x + ahead * radius, y + 0.14 * radius, 0.13 * radius, 0.18 * radius, INK)
    blush = mix(skin, (238, 106, 96), 0.45)
    brush.ellipse(x - 0.16 * radius, y + 0.42 * radius, 0.2 * radius, 0.13 * radius, blush)
    brush.ellipse(x + 0.82 * radius, y + 0.42 * radius, 0.13 * radius, 0.12 * radius, blush)
    smile = [
        (x + (0.4 + 0.26 * cos(a)) * radius, y + (0.36 + 0.2 * sin(a)) * radius) for a in (0.3, 1.1, 2.0, 2.8)
    ]
    brush.line(smile, 0.11 * radius, mix(skin, (120, 40, 40), 0.7))


def _arms(
    brush: Brush, sleeve: Colour, skin: Colour, shoulder: float, half: float, hip: float, reach: int
) -> None:
    """The far arm and the near one, which holds something `reach` percent down the body, or hangs (0)."""
    middle, width, height = brush.width / 2, brush.width, brush.height
    thick = width * 0.19
    brush.line([(middle - half, shoulder), (middle - half - 1.6, hip)], thick, dark(sleeve, 0.12))
    brush.ellipse(middle - half - 1.7, hip + 1.2, thick * 0.48, None, skin)
    if reach == 0:
        brush.line([(middle + half, shoulder), (middle + half + 1.6, hip)], thick, dark(sleeve, 0.2))
        brush.ellipse(middle + half + 1.7, hip + 1.2, thick * 0.48, None, skin)
        return
    x, y = width - 1.6, height * reach / 100
    elbow = (
        middle + half + (2.2 if y < shoulder else 1.4),
        shoulder + (hip - shoulder) * (0.1 if y < shoulder else 0.5),
    )
    brush.line([(middle + half - 0.6, shoulder + 0.4), elbow, (x - 0.6, y + 0.4)], thick, dark(sleeve, 0.2))
    brush.ellipse(x - 0.3, y, thick * 0.52, None, skin)


def _legs(
    brush: Brush, cloth: Colour, shoe: Colour, top: float, apart: float, width: float, sole: float = 1.0
) -> None:
    middle, bottom = brush.width / 2, brush.height
    for side, shade in ((-1, 0.1), (1, 0.0)):
        x = middle + side * apart
        brush.bar(x - width / 2, top, x + width / 2, bottom - 1.5, dark(cloth, shade), 0.8)
        brush.bar(
            x - width / 2 - 0.1, bottom - 2.5 * sole, x + width / 2 + 1.3, bottom, dark(shoe, shade), 1.1
        )


def man(brush: Brush, colour: Colour, look: int, reach: int) -> None:
    """Broad shoulders, a short coat, a hat or a beard."""
    skin, hair = SKINS[look % 4], HAIRS[look % 5]
    _legs(brush, TROUSERS[look % 3], (62, 50, 52), 29, 2.7, 4.3)
    brush.bar(8.2, 10.5, 11.8, 16, dark(skin, 0.12), 1)
    brush.blob(
        [
            (4.2, 15.6),
            (7, 13.8),
            (13, 13.8),
            (15.8, 15.6),
            (15.6, 24),
            (16, 34),
            (10, 34.8),
            (4, 34),
            (4.4, 24),
        ],
        colour,
    )
    brush.polygon(
        [(8, 13.6), (12.4, 13.6), (10.4, 18.4)], light(colour, 0.75) if look % 2 else (244, 240, 232)
    )
    brush.line([(10.4, 18.4), (10.4, 34)], 0.5, dark(colour, 0.35))
    for y in (21.5, 25.5, 29.5):
        brush.ellipse(11.7, y, 0.5, None, dark(colour, 0.45))
    brush.bar(5.2, 28, 8.4, 31, dark(colour, 0.16), 0.5)
    _face(brush, 10.2, 7.4, 5.2, skin)
    if look % 3 == 0:  # a beard
        brush.slice(10.2, 9.2, 5.3, 4.2, 4, 176, hair)
        brush.ellipse(12.4, 9.4, 1.9, 0.8, mix(skin, (170, 60, 60), 0.7))
    elif look % 3 == 1:  # a moustache
        brush.bar(10.6, 8.5, 14.4, 9.5, hair, 0.5)
    if look % 2:
        felt = ((98, 84, 78), (84, 92, 112), (122, 102, 72))[look % 3]
        brush.bar(5.6, 0.2, 14.8, 4.4, felt, 1.8)
        brush.bar(5.6, 3.0, 14.8, 4.4, dark(felt, 0.4))
        brush.bar(2.9, 3.9, 17.4, 5.4, felt, 0.8)
    else:
        brush.slice(9.9, 5.0, 5.7, 4.8, 172, 352, hair)
        brush.ellipse(5.3, 7.0, 1.0, 1.9, hair)
    _arms(brush, colour, skin, 16.4, 5.1, 28.5, reach)


def woman(brush: Brush, colour: Colour, look: int, reach: int) -> None:
    """Long hair or a bun, a long flared coat with a belt."""
    skin, hair = SKINS[(look // 2) % 4], HAIRS[(look + 1) % 5]
    if look % 3:
        brush.blob([(4.4, 6), (9, 0.8), (14.2, 3), (13.2, 10), (12.6, 17.6), (8, 18.6), (3.6, 17.4)], hair)
    else:
        brush.ellipse(5.2, 3.4, 2.9, None, hair)
    _legs(brush, light(skin, 0.1), (108, 66, 58), 34, 2.2, 2.8, 2.2)
    brush.bar(8.6, 10, 11.6, 16, dark(skin, 0.12), 1)
    brush.blob(
        [
            (5.6, 15),
            (8, 13.6),
            (12.4, 13.6),
            (14.6, 15),
            (13.6, 23),
            (17, 36.4),
            (10, 38.4),
            (3, 36.4),
            (6.4, 23),
        ],
        colour,
    )
    brush.polygon([(7.8, 13.4), (12.6, 13.4), (10.4, 17)], light(colour, 0.7))
    brush.line([(10.3, 17), (10.3, 37.4)], 0.5, dark(colour, 0.32))
    brush.bar(6.3, 22.4, 13.8, 24.2, dark(colour, 0.4), 0.6)
    brush.bar(9.4, 22.2, 11.4, 24.4, (240, 208, 120), 0.4)
    _face(brush, 10.2, 7.4, 5.0, skin)
    brush.slice(9.8, 5.2, 5.7, 5.0, 165, 350, hair)
    brush.ellipse(5.2, 8.2, 1.3, 3.2, hair)
    if look % 5 == 1:
        brush.bar(4.6, 1.0, 14.4, 3.8, light(colour, 0.2), 1.6)
        brush.ellipse(9.5, 0.9, 1.4, None, light(colour, 0.5))
    _arms(brush, colour, skin, 16.4, 4.0, 27, reach)


def boy(brush: Brush, colour: Colour, look: int, reach: int) -> None:
    """A child with a cap or tousled hair, shorts and bare knees."""
    skin, hair = SKINS[(look // 3) % 4], HAIRS[(look + 3) % 5]
    _legs(brush, skin, (88, 74, 92), 27, 2.4, 3.1, 1.2)
    shorts = TROUSERS[(look + 1) % 3]
    brush.bar(4.0, 24.5, 8.3, 31, dark(shorts, 0.08), 0.8)
    brush.bar(8.3, 24.5, 12.8, 31, shorts, 0.8)
    brush.blob(
        [
            (4, 14.8),
            (6.5, 13.2),
            (10.6, 13.2),
            (13, 14.8),
            (13, 20),
            (13.2, 26.4),
            (8.5, 27),
            (3.8, 26.4),
            (4, 20),
        ],
        colour,
    )
    if look % 2:
        brush.bar(4.2, 18, 12.9, 20.4, light(colour, 0.6))
    else:
        brush.line([(8.6, 14), (8.6, 26)], 0.5, dark(colour, 0.35))
        brush.polygon([(6.8, 13), (10.6, 13), (8.7, 15.6)], light(colour, 0.7))
    _face(brush, 8.6, 7.7, 5.3, skin)
    if look % 2:
        cap = mix(colour, (250, 248, 240), 0.25)
        brush.slice(8.3, 5.4, 5.7, 5.2, 180, 360, cap)
        brush.bar(8.6, 4.2, 16.4, 5.6, dark(cap, 0.18), 0.7)
    else:
        brush.slice(8.3, 5.2, 5.8, 4.8, 170, 352, hair)
        for x in (4.6, 7.4, 10.2):
            brush.polygon([(x - 1.8, 3.2), (x + 0.6, -0.2), (x + 2.2, 3)], hair)
    _arms(brush, colour, skin, 15.8, 4.0, 23.5, reach)


def girl(brush: Brush, colour: Colour, look: int, reach: int) -> None:
    """A child with pigtails and a short swinging coat."""
    skin, hair = SKINS[(look // 5) % 4], HAIRS[(look + 2) % 5]
    ribbon = PALETTE[("yellow", "red", "blue")[look % 3]]
    for x in (2.2, 14.4):
        brush.blob([(x - 1.4, 7.2), (x + 1.4, 7.2), (x + 1.9, 11.4), (x, 15), (x - 1.9, 11.4)], hair)
    _legs(brush, (244, 240, 234), (150, 66, 72), 27.5, 2.1, 2.7, 1.3)
    brush.blob(
        [
            (5.2, 14.4),
            (7, 13.2),
            (10.2, 13.2),
            (11.9, 14.4),
            (11.6, 19),
            (15.2, 29.2),
            (8.5, 31),
            (1.9, 29.2),
            (5.4, 19),
        ],
        colour,
    )
    brush.line([(3.2, 27.6), (8.5, 29.2), (13.9, 27.6)], 0.9, light(colour, 0.55))
    brush.polygon([(6.4, 13), (10.8, 13), (8.7, 15.8)], light(colour, 0.75))
    for y in (18, 21.4):
        brush.ellipse(8.8, y, 0.55, None, light(colour, 0.75))
    _face(brush, 8.5, 7.6, 5.3, skin)
    brush.slice(8.4, 5.4, 5.9, 5.2, 168, 350, hair)
    brush.line([(3.3, 7.4), (3.6, 4.6)], 1.2, hair)
    for x in (2.6, 14.1):
        brush.ellipse(x, 7.0, 1.1, None, ribbon)
    _arms(brush, colour, skin, 15.8, 3.2, 23, reach)


def dog(brush: Brush, colour: Colour, look: int, reach: int) -> None:
    """Long body, tail up, a hanging ear and a collar."""
    shade, pale = dark(colour, 0.22), light(colour, 0.45)
    brush.line([(4.5, 12.5), (2.2, 9), (2.4, 4.6)], 2.3, colour)
    for x in (7.4, 17.4):
        brush.bar(x, 15, x + 2.9, 24.6, shade, 1.2)
    brush.blob(
        [(3.4, 12), (8, 9.8), (16, 10.2), (21, 8.4), (23, 12), (21.4, 18.4), (12, 17.8), (5.4, 18.8)], colour
    )
    brush.ellipse(12, 17, 5.4, 1.4, pale)
    for x in (4.2, 19.2):
        brush.bar(x, 15, x + 3.2, 25, colour, 1.3)
        brush.bar(x, 23, x + 4, 25, pale, 1)
    brush.blob(
        [
            (17.6, 5),
            (20.4, 1.6),
            (24.4, 2),
            (26.4, 5),
            (29.6, 6.4),
            (29.4, 9.2),
            (25, 10.8),
            (20, 11),
            (18, 9),
        ],
        colour,
    )
    brush.ellipse(27, 8.2, 2.6, 1.9, pale)
    brush.ellipse(29, 6.5, 1.0, 0.8, NOSE if colour != PALETTE["black"] else (150, 110, 110))
    brush.line([(26, 9.6), (28.2, 9.5)], 0.4, dark(colour, 0.6))
    brush.blob(
        [(18.2, 2.6), (20.8, 2.6), (21.2, 7.4), (19.2, 10.6), (17, 8.6)],
        dark(colour, 0.35) if colour != PALETTE["black"] else (84, 82, 94),
    )
    _eye(brush, 24.1, 5.0, 0.85) if colour != PALETTE["black"] else _night_eye(brush, 24.1, 5.0, 0.9)
    brush.line(
        [(18.2, 11.8), (23.4, 11.6)],
        1.3,
        PALETTE[("red", "blue", "yellow")[look % 3]] if look % 4 else PALETTE["green"],
    )


def _night_eye(brush: Brush, x: float, y: float, size: float, colour: Colour = (250, 240, 214)) -> None:
    """An eye that shows on black fur."""
    brush.ellipse(x, y, size, size * 1.15, colour)
    brush.ellipse(x + size * 0.2, y, size * 0.5, size * 0.8, INK)


def cat(brush: Brush, colour: Colour, look: int, reach: int) -> None:
    """A sitting cat: round head with two pointed ears, a curled tail and whiskers."""
    shade, pale = dark(colour, 0.2), light(colour, 0.55)
    black = colour == PALETTE["black"]
    brush.line([(6, 22.6), (2.4, 20), (1.9, 15), (4, 12), (5.4, 13)], 2.4, shade)
    brush.blob([(9, 12), (16, 11), (19.4, 16), (20, 24.6), (5.4, 25), (4.6, 20)], colour)
    brush.ellipse(17, 18.5, 2.4, 4.6, pale if not black else light(colour, 0.22))
    brush.ellipse(8.2, 21, 4, 3.9, shade)
    for x in (14.6, 18):
        brush.bar(x - 1.5, 19, x + 1.5, 25, colour, 1.4)
        brush.ellipse(x + 0.4, 24, 1.9, 1, pale if not black else light(colour, 0.25))
    brush.polygon([(10, 6), (10.4, 0.1), (15.2, 3.6)], colour)
    brush.polygon([(17.4, 3.6), (22.4, 0.1), (22.6, 6.4)], colour)
    brush.polygon([(11, 4.6), (11.2, 1.8), (13.6, 3.8)], (240, 160, 156))
    brush.polygon([(19, 3.6), (21.7, 1.8), (21.6, 4.8)], (240, 160, 156))
    brush.ellipse(16.3, 8, 7, 5.7, colour)
    if not black:
        for x in (14.6, 16.4, 18.2):
            brush.line([(x, 2.8), (x, 4.8)], 0.7, dark(colour, 0.32))
        for y in (15.6, 18):
            brush.line([(6.4, y), (9.8, y - 0.5)], 0.9, dark(colour, 0.3))
    brush.ellipse(17.2, 10.6, 3.2, 2.2, pale if not black else light(colour, 0.25))
    for x in (13.9, 19.9):
        _night_eye(brush, x, 7.6, 1.3, (196, 226, 120) if look % 2 else (250, 214, 104))
    brush.polygon([(16.2, 9.2), (18.2, 9.2), (17.2, 10.4)], (226, 120, 124))
    whisker = (236, 234, 236) if black else dark(colour, 0.4)
    for y in (9.6, 11.4):
        brush.line([(20.4, 10.4), (24.4, y)], 0.3, whisker)
        brush.line([(13.6, 10.4), (9.2, y)], 0.3, whisker)


def horse(brush: Brush, colour: Colour, look: int, reach: int) -> None:
    """An arched neck with a mane, long legs, a long tail."""
    black = colour == PALETTE["black"]
    shade = dark(colour, 0.22)
    mane = {PALETTE["brown"]: (62, 42, 38), PALETTE["white"]: (206, 190, 164)}.get(colour, dark(colour, 0.5))
    if black:
        mane, shade = (96, 92, 108), (38, 37, 46)
    brush.blob([(6, 16), (3.2, 17), (1.2, 24), (1.8, 32), (4.6, 31), (5, 24), (7.4, 19.6)], mane)
    for x in (10.6, 27.4):
        brush.polygon(
            [(x - 1, 25), (x + 3.4, 25), (x + 2.6, 33), (x + 2.4, 41), (x - 0.2, 41), (x, 33)], shade
        )
    brush.blob(
        [
            (5, 18),
            (9, 14.6),
            (18, 15.4),
            (27, 14.4),
            (32.4, 17),
            (33, 23),
            (28, 27.4),
            (17, 28.2),
            (9, 28),
            (5, 24),
        ],
        colour,
    )
    for x in (6.4, 30):
        brush.polygon(
            [(x - 1.2, 24), (x + 4, 24), (x + 2.8, 33), (x + 2.6, 40), (x - 0.4, 40), (x, 33)], colour
        )
    for x in (6.1, 10.3, 27.1, 29.7):
        brush.bar(x, 39, x + 3.2, 42, (74, 62, 60), 0.6)
    brush.blob(
        [
            (26, 17),
            (29.4, 9),
            (33.6, 3.6),
            (38, 3.4),
            (40.6, 6.4),
            (45, 12),
            (44.4, 15),
            (41.6, 15.6),
            (37.6, 11.6),
            (35.4, 13),
            (33.6, 22),
            (28, 24),
        ],
        colour,
    )
    brush.polygon([(33.6, 4.6), (34.4, 0.2), (37.2, 3.8)], colour)
    brush.blob(
        [(34.6, 1.8), (32, 4), (28.6, 9.6), (25.2, 16.6), (28, 17.6), (31, 12.4), (34, 7.4), (36.4, 4)], mane
    )
    brush.ellipse(43.2, 13.6, 2.0, 1.7, light(colour, 0.35))
    brush.ellipse(43.8, 12.9, 0.5, None, NOSE)
    _night_eye(brush, 38.2, 7.4, 1.1) if black else _eye(brush, 38.2, 7.4, 0.95)
    if look % 2 and not black:
        brush.line([(40.4, 6.4), (42.2, 10)], 1.0, (252, 250, 244))


def cow(brush: Brush, colour: Colour, look: int, reach: int) -> None:
    """A heavy body with patches, horns and a pink muzzle."""
    patch = (250, 246, 238) if colour != PALETTE["white"] else (222, 214, 206)
    pink, shade = (242, 176, 168), dark(colour, 0.2)
    brush.line([(4, 9), (1.8, 13), (2, 20)], 1.1, shade)
    brush.ellipse(2, 21.4, 1.3, 2, dark(colour, 0.4))
    for x in (10, 25.6):
        brush.bar(x, 20, x + 4, 32, shade, 0.8)
    brush.blob(
        [
            (3.4, 9),
            (8, 5.8),
            (20, 6.2),
            (31, 5.6),
            (34.4, 9),
            (34, 18),
            (30, 23.4),
            (18, 24.4),
            (7, 23.6),
            (3.4, 17),
        ],
        colour,
    )
    brush.ellipse(12, 24, 3.2, 2.2, pink)
    brush.blob([(9, 6.6), (15, 6.8), (17.6, 11), (14, 16), (9, 14), (7.4, 10)], patch)
    brush.blob([(22, 12), (27, 10.6), (29.6, 15), (27, 20.4), (22, 19.4)], patch)
    for x in (5.6, 29.4):
        brush.bar(x, 20, x + 4.2, 33, colour, 0.8)
    for x in (5.6, 10, 25.6, 29.4):
        brush.bar(x - 0.1, 30.4, x + 4.2, 33, (84, 70, 68), 0.6)
    for x, tip in ((34.2, 32.6), (40.8, 42.8)):
        brush.line([(x, 4.6), (tip, 2.6), (tip + (0.4 if tip < 35 else -0.4), 0.8)], 1.5, (240, 226, 196))
    brush.ellipse(31, 7.2, 2.8, 1.5, shade)
    brush.ellipse(43.2, 7.0, 2.5, 1.4, shade)
    brush.blob(
        [(32.4, 5.4), (37.4, 3.2), (42.2, 5.4), (42.4, 11), (42.8, 16), (37.8, 18.8), (32.4, 16), (32.4, 11)],
        colour,
    )
    brush.blob([(36, 4.2), (38.8, 4.2), (39.6, 10), (37.4, 12), (35.4, 10)], patch)
    brush.ellipse(38, 15.6, 5.6, 3.4, pink)
    for x in (36, 40.2):
        brush.ellipse(x, 15.2, 0.7, 0.9, dark(pink, 0.5))
    for x in (34.6, 40.6):
        _night_eye(brush, x, 9.2, 1.0) if colour == PALETTE["black"] else _eye(brush, x, 9.2, 0.9)


def sheep(brush: Brush, colour: Colour, look: int, reach: int) -> None:
    """A cloud of wool on four thin legs."""
    black = colour == PALETTE["black"]
    face = (72, 64, 70) if not black else (206, 178, 160)
    for x in (6.6, 10.6, 18.6, 22.4):
        brush.bar(x, 18, x + 2.4, 26, dark(face, 0.1), 0.8)
    for step in range(13):
        angle = 2 * pi * step / 13
        brush.ellipse(
            14.6 + 10.2 * cos(angle),
            11.8 + 6.2 * sin(angle),
            3.8,
            None,
            dark(colour, 0.07) if step < 7 else colour,
        )
    brush.ellipse(14.6, 11.8, 11, 7.4, colour)
    curl = dark(colour, 0.18) if not black else light(colour, 0.22)
    for x, y in ((8.4, 9.6), (13.4, 7.6), (12.2, 13.4), (18, 11.8), (7.4, 14.6), (17.6, 16.4)):
        brush.slice(x, y, 1.9, 1.7, 180, 350, curl)
        brush.slice(x, y + 0.6, 1.4, 1.2, 180, 350, colour)
    brush.blob([(22.6, 4.6), (27.4, 4), (31, 8), (31.2, 12), (28.4, 14.6), (24.4, 13), (22.4, 9)], face)
    brush.ellipse(22.4, 8.2, 2.7, 1.4, dark(face, 0.15))
    for x, y in ((22.8, 4.2), (25.4, 2.8), (27.8, 4.2)):
        brush.ellipse(x, y, 2.2, None, colour)
    _night_eye(brush, 27.6, 8.2, 1.0)
    brush.ellipse(30.4, 11.4, 0.6, 0.45, dark(face, 0.5))


def duck(brush: Brush, colour: Colour, look: int, reach: int) -> None:
    """Swims: a round head on a boat of feathers, an orange bill."""
    brush.blob(
        [
            (1, 8.6),
            (5.4, 10.6),
            (12, 9.6),
            (17.4, 9.8),
            (20.4, 13),
            (18.4, 17.6),
            (11, 18.8),
            (4.6, 17.4),
            (1.6, 13),
        ],
        colour,
    )
    brush.blob([(5, 11.6), (11.8, 10.6), (14.6, 13.4), (10.4, 16), (5, 14.6), (2.6, 11)], dark(colour, 0.17))
    brush.line([(6, 14.2), (10.4, 14.6)], 0.5, dark(colour, 0.32))
    head = colour if colour != PALETTE["brown"] else (60, 118, 84)
    brush.blob([(13.4, 10.6), (14, 6), (18.6, 6), (19.2, 10.4), (16.8, 12.6)], head)
    brush.ellipse(16.6, 4.8, 4.4, 4.3, head)
    if colour == PALETTE["brown"]:
        brush.line([(14, 9.6), (18.9, 9.6)], 1.0, (250, 246, 236))
    brush.blob([(20, 4.4), (23.4, 5), (23.8, 6.6), (20, 7.2)], (240, 148, 46))
    _eye(brush, 18.2, 4.0, 0.85)
    brush.bar(4.4, 18.0, 18.6, 19, (238, 248, 252), 0.5)


def bird(brush: Brush, colour: Colour, look: int, reach: int) -> None:
    """A small round bird, its wings up."""
    pale = light(colour, 0.6) if colour != PALETTE["white"] else (236, 226, 214)
    if colour == PALETTE["black"]:
        pale = light(colour, 0.35)
    beak = (244, 160, 44) if colour != PALETTE["yellow"] else (228, 112, 52)
    brush.polygon([(0.2, 7.4), (7, 9), (7, 13), (1.4, 12)], dark(colour, 0.25))
    brush.blob([(9.6, 9.4), (6.4, 4.6), (6.6, 0.4), (10.8, 2.4), (13.8, 7.6)], dark(colour, 0.28))
    brush.blob([(4, 10.4), (9, 6.8), (15, 6.6), (19, 9), (17.4, 13.8), (11.6, 16.2), (6.4, 14.4)], colour)
    brush.ellipse(13.4, 13.2, 4, 2.4, pale)
    brush.ellipse(16.4, 7.6, 3.9, 3.7, colour)
    brush.polygon([(19.6, 6.6), (22, 8), (19.4, 9.4)], beak)
    brush.blob([(8, 11), (8, 5.4), (10.4, 1.6), (13.6, 6), (13.6, 10.6), (11, 12.4)], dark(colour, 0.13))
    _night_eye(brush, 17.4, 6.9, 0.9) if colour in (PALETTE["black"], PALETTE["blue"]) else _eye(
        brush, 17.4, 6.9, 0.8
    )
    for x in (10.6, 13):
        brush.line([(x, 15.4), (x + 0.2, 16.6)], 0.6, beak)


PAINTERS: dict[str, Callable[[Brush, Colour, int, int], None]] = {
    "man": man,
    "woman": woman,
    "boy": boy,
    "girl": girl,
    "dog": dog,
    "cat": cat,
    "horse": horse,
    "cow": cow,
    "sheep": sheep,
    "duck": duck,
    "bird": bird,
}

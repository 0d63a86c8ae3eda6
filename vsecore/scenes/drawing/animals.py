"""Animals. Everything is painted looking to the right; `draw` turns it round."""

from math import cos, pi, sin

from vsecore.scenes.drawing.brush import INK, PALETTE, Brush, Colour, dark, light

NOSE = (60, 48, 52)


def _eye(brush: Brush, x: float, y: float, size: float = 0.8) -> None:
    brush.ellipse(x, y, size, size * 1.25, INK)
    brush.ellipse(x + size * 0.3, y - size * 0.45, size * 0.35, None, (255, 255, 255))


def dog(brush: Brush, colour: Colour, look: int, reach: int) -> None:
    """Long body, tail up, a hanging ear and a collar."""
    shade, pale = dark(colour, 0.22), light(colour, 0.45)
    brush.line("4.5,12.5 2.2,9 2.4,4.6", 2.3, colour)
    for x in (7.4, 17.4):
        brush.bar(x, 15, x + 2.9, 24.6, shade, 1.2)
    brush.blob("3.4,12 8,9.8 16,10.2 21,8.4 23,12 21.4,18.4 12,17.8 5.4,18.8", colour)
    brush.ellipse(12, 17, 5.4, 1.4, pale)
    for x in (4.2, 19.2):
        brush.bar(x, 15, x + 3.2, 25, colour, 1.3)
        brush.bar(x, 23, x + 4, 25, pale, 1)
    brush.blob("17.6,5 20.4,1.6 24.4,2 26.4,5 29.6,6.4 29.4,9.2 25,10.8 20,11 18,9", colour)
    brush.ellipse(27, 8.2, 2.6, 1.9, pale)
    brush.ellipse(29, 6.5, 1.0, 0.8, NOSE if colour != PALETTE["black"] else (150, 110, 110))
    brush.line("26,9.6 28.2,9.5", 0.4, dark(colour, 0.6))
    brush.blob(
        "18.2,2.6 20.8,2.6 21.2,7.4 19.2,10.6 17,8.6",
        dark(colour, 0.35) if colour != PALETTE["black"] else (84, 82, 94),
    )
    _eye(brush, 24.1, 5.0, 0.85) if colour != PALETTE["black"] else _night_eye(brush, 24.1, 5.0, 0.9)
    brush.line(
        "18.2,11.8 23.4,11.6",
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
    brush.line("6,22.6 2.4,20 1.9,15 4,12 5.4,13", 2.4, shade)
    brush.blob("9,12 16,11 19.4,16 20,24.6 5.4,25 4.6,20", colour)
    brush.ellipse(17, 18.5, 2.4, 4.6, pale if not black else light(colour, 0.22))
    brush.ellipse(8.2, 21, 4, 3.9, shade)
    for x in (14.6, 18):
        brush.bar(x - 1.5, 19, x + 1.5, 25, colour, 1.4)
        brush.ellipse(x + 0.4, 24, 1.9, 1, pale if not black else light(colour, 0.25))
    brush.polygon("10,6 10.4,0.1 15.2,3.6", colour)
    brush.polygon("17.4,3.6 22.4,0.1 22.6,6.4", colour)
    brush.polygon("11,4.6 11.2,1.8 13.6,3.8", (240, 160, 156))
    brush.polygon("19,3.6 21.7,1.8 21.6,4.8", (240, 160, 156))
    brush.ellipse(16.3, 8, 7, 5.7, colour)
    if not black:
        for x in (14.6, 16.4, 18.2):
            brush.line([(x, 2.8), (x, 4.8)], 0.7, dark(colour, 0.32))
        for y in (15.6, 18):
            brush.line([(6.4, y), (9.8, y - 0.5)], 0.9, dark(colour, 0.3))
    brush.ellipse(17.2, 10.6, 3.2, 2.2, pale if not black else light(colour, 0.25))
    for x in (13.9, 19.9):
        _night_eye(brush, x, 7.6, 1.3, (196, 226, 120) if look % 2 else (250, 214, 104))
    brush.polygon("16.2,9.2 18.2,9.2 17.2,10.4", (226, 120, 124))
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
    brush.blob("6,16 3.2,17 1.2,24 1.8,32 4.6,31 5,24 7.4,19.6", mane)
    for x in (10.6, 27.4):
        brush.polygon(
            [(x - 1, 25), (x + 3.4, 25), (x + 2.6, 33), (x + 2.4, 41), (x - 0.2, 41), (x, 33)], shade
        )
    brush.blob("5,18 9,14.6 18,15.4 27,14.4 32.4,17 33,23 28,27.4 17,28.2 9,28 5,24", colour)
    for x in (6.4, 30):
        brush.polygon(
            [(x - 1.2, 24), (x + 4, 24), (x + 2.8, 33), (x + 2.6, 40), (x - 0.4, 40), (x, 33)], colour
        )
    for x in (6.1, 10.3, 27.1, 29.7):
        brush.bar(x, 39, x + 3.2, 42, (74, 62, 60), 0.6)
    brush.blob(
        "26,17 29.4,9 33.6,3.6 38,3.4 40.6,6.4 45,12 44.4,15 41.6,15.6 37.6,11.6 35.4,13 33.6,22 28,24",
        colour,
    )
    brush.polygon("33.6,4.6 34.4,0.2 37.2,3.8", colour)
    brush.blob("34.6,1.8 32,4 28.6,9.6 25.2,16.6 28,17.6 31,12.4 34,7.4 36.4,4", mane)
    brush.ellipse(43.2, 13.6, 2.0, 1.7, light(colour, 0.35))
    brush.ellipse(43.8, 12.9, 0.5, None, NOSE)
    _night_eye(brush, 38.2, 7.4, 1.1) if black else _eye(brush, 38.2, 7.4, 0.95)
    if look % 2 and not black:
        brush.line("40.4,6.4 42.2,10", 1.0, (252, 250, 244))


def cow(brush: Brush, colour: Colour, look: int, reach: int) -> None:
    """A heavy body with patches, horns and a pink muzzle."""
    patch = (250, 246, 238) if colour != PALETTE["white"] else (222, 214, 206)
    pink, shade = (242, 176, 168), dark(colour, 0.2)
    brush.line("4,9 1.8,13 2,20", 1.1, shade)
    brush.ellipse(2, 21.4, 1.3, 2, dark(colour, 0.4))
    for x in (10, 25.6):
        brush.bar(x, 20, x + 4, 32, shade, 0.8)
    brush.blob("3.4,9 8,5.8 20,6.2 31,5.6 34.4,9 34,18 30,23.4 18,24.4 7,23.6 3.4,17", colour)
    brush.ellipse(12, 24, 3.2, 2.2, pink)
    brush.blob("9,6.6 15,6.8 17.6,11 14,16 9,14 7.4,10", patch)
    brush.blob("22,12 27,10.6 29.6,15 27,20.4 22,19.4", patch)
    for x in (5.6, 29.4):
        brush.bar(x, 20, x + 4.2, 33, colour, 0.8)
    for x in (5.6, 10, 25.6, 29.4):
        brush.bar(x - 0.1, 30.4, x + 4.2, 33, (84, 70, 68), 0.6)
    for x, tip in ((34.2, 32.6), (40.8, 42.8)):
        brush.line([(x, 4.6), (tip, 2.6), (tip + (0.4 if tip < 35 else -0.4), 0.8)], 1.5, (240, 226, 196))
    brush.ellipse(31, 7.2, 2.8, 1.5, shade)
    brush.ellipse(43.2, 7.0, 2.5, 1.4, shade)
    brush.blob("32.4,5.4 37.4,3.2 42.2,5.4 42.4,11 42.8,16 37.8,18.8 32.4,16 32.4,11", colour)
    brush.blob("36,4.2 38.8,4.2 39.6,10 37.4,12 35.4,10", patch)
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
    brush.blob("22.6,4.6 27.4,4 31,8 31.2,12 28.4,14.6 24.4,13 22.4,9", face)
    brush.ellipse(22.4, 8.2, 2.7, 1.4, dark(face, 0.15))
    for x, y in ((22.8, 4.2), (25.4, 2.8), (27.8, 4.2)):
        brush.ellipse(x, y, 2.2, None, colour)
    _night_eye(brush, 27.6, 8.2, 1.0)
    brush.ellipse(30.4, 11.4, 0.6, 0.45, dark(face, 0.5))


def duck(brush: Brush, colour: Colour, look: int, reach: int) -> None:
    """Swims: a round head on a boat of feathers, an orange bill."""
    brush.blob("1,8.6 5.4,10.6 12,9.6 17.4,9.8 20.4,13 18.4,17.6 11,18.8 4.6,17.4 1.6,13", colour)
    brush.blob("5,11.6 11.8,10.6 14.6,13.4 10.4,16 5,14.6 2.6,11", dark(colour, 0.17))
    brush.line("6,14.2 10.4,14.6", 0.5, dark(colour, 0.32))
    head = colour if colour != PALETTE["brown"] else (60, 118, 84)
    brush.blob("13.4,10.6 14,6 18.6,6 19.2,10.4 16.8,12.6", head)
    brush.ellipse(16.6, 4.8, 4.4, 4.3, head)
    if colour == PALETTE["brown"]:
        brush.line("14,9.6 18.9,9.6", 1.0, (250, 246, 236))
    brush.blob("20,4.4 23.4,5 23.8,6.6 20,7.2", (240, 148, 46))
    _eye(brush, 18.2, 4.0, 0.85)
    brush.bar(4.4, 18.0, 18.6, 19, (238, 248, 252), 0.5)


def bird(brush: Brush, colour: Colour, look: int, reach: int) -> None:
    """A small round bird, its wings up."""
    pale = light(colour, 0.6) if colour != PALETTE["white"] else (236, 226, 214)
    if colour == PALETTE["black"]:
        pale = light(colour, 0.35)
    beak = (244, 160, 44) if colour != PALETTE["yellow"] else (228, 112, 52)
    brush.polygon("0.2,7.4 7,9 7,13 1.4,12", dark(colour, 0.25))
    brush.blob("9.6,9.4 6.4,4.6 6.6,0.4 10.8,2.4 13.8,7.6", dark(colour, 0.28))
    brush.blob("4,10.4 9,6.8 15,6.6 19,9 17.4,13.8 11.6,16.2 6.4,14.4", colour)
    brush.ellipse(13.4, 13.2, 4, 2.4, pale)
    brush.ellipse(16.4, 7.6, 3.9, 3.7, colour)
    brush.polygon("19.6,6.6 22,8 19.4,9.4", beak)
    brush.blob("8,11 8,5.4 10.4,1.6 13.6,6 13.6,10.6 11,12.4", dark(colour, 0.13))
    _night_eye(brush, 17.4, 6.9, 0.9) if colour in (PALETTE["black"], PALETTE["blue"]) else _eye(
        brush, 17.4, 6.9, 0.8
    )
    for x in (10.6, 13):
        brush.line([(x, 15.4), (x + 0.2, 16.6)], 0.6, beak)

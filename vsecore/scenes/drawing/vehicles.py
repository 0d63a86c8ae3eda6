"""Vehicles. Everything is painted looking to the right; `draw` turns it round."""

from math import cos, pi, sin

from vsecore.scenes.drawing.brush import PALETTE, Brush, Colour, dark, light, mix

GLASS = (190, 226, 240)
RUBBER = (58, 56, 66)
LAMP = (255, 236, 158)


def _wheel(brush: Brush, x: float, y: float, radius: float) -> None:
    brush.ellipse(x, y, radius, None, RUBBER)
    brush.ellipse(x, y, radius * 0.52, None, (206, 210, 216))
    brush.ellipse(x, y, radius * 0.2, None, (120, 124, 134))


def _pane(brush: Brush, left: float, top: float, right: float, bottom: float) -> None:
    brush.bar(left, top, right, bottom, GLASS, 1)
    slant = (right - left) * 0.35
    brush.polygon(
        [
            (left + slant, top + 0.5),
            (left + 1.8 * slant, top + 0.5),
            (left + slant, bottom - 0.5),
            (left + 0.4, bottom - 0.5),
        ],
        light(GLASS, 0.6),
    )


def car(brush: Brush, colour: Colour, look: int, reach: int) -> None:
    brush.blob("10,10 14,2.4 20,0.6 29,0.8 33.6,3.4 38.6,10.6 24,12", colour)
    _pane(brush, 15.0, 3.2, 22.6, 9.6)
    brush.polygon("24.4,3.2 30.6,3.4 35,9.6 24.4,9.6", GLASS)
    brush.polygon("27,3.4 29.4,3.4 27.6,9.4 25.2,9.4", light(GLASS, 0.6))
    brush.blob("1.2,12 8,9.2 24,9.4 38,9.4 46.6,11.2 49.4,15 49,20.6 25,21.6 1.4,20.6 0.6,16", colour)
    brush.bar(1.4, 17.4, 49, 21, dark(colour, 0.2), 1.6)
    brush.line("23.6,10.6 23.6,19.4", 0.45, dark(colour, 0.38))
    brush.bar(19.2, 12.4, 22.4, 13.4, dark(colour, 0.4), 0.5)
    brush.ellipse(47, 13.8, 1.9, 1.5, LAMP)
    brush.bar(0.9, 12.6, 3, 15.4, (206, 66, 60) if colour != PALETTE["red"] else (250, 176, 92), 0.7)
    for x in (11.4, 38.4):
        brush.ellipse(x, 19.6, 6.3, 5.8, dark(colour, 0.42))
        _wheel(brush, x, 20, 5)


def bus(brush: Brush, colour: Colour, look: int, reach: int) -> None:
    brush.bar(0.8, 0.6, 65.2, 33.6, colour, 5)
    brush.bar(1.8, 0.6, 64, 3.6, light(colour, 0.35), 2)
    for x in (4.6, 15.4, 26.2, 37):
        _pane(brush, x, 6.4, x + 9.2, 15.8)
    brush.bar(48, 6.4, 54.6, 31.6, light(GLASS, 0.25), 1)
    brush.line("51.3,6.8 51.3,31.4", 0.6, dark(colour, 0.25))
    brush.bar(57.2, 6.4, 65, 18.4, GLASS, 1.2)
    brush.polygon("60,7 62.4,7 60,18 57.6,18", light(GLASS, 0.6))
    brush.bar(1.0, 20.4, 47, 23.6, light(colour, 0.72))
    brush.bar(0.9, 29.4, 65.1, 33.6, dark(colour, 0.26), 2)
    brush.ellipse(63.4, 25.4, 1.7, 2, LAMP)
    for x in (14, 57.4 - 2):
        brush.ellipse(x, 31.2, 6.6, 6.2, dark(colour, 0.45))
        _wheel(brush, x, 32.4, 5.4)


def truck(brush: Brush, colour: Colour, look: int, reach: int) -> None:
    load, band = colour, (252, 244, 226) if colour != PALETTE["white"] else (120, 164, 206)
    brush.bar(0.8, 27, 56, 31, (92, 92, 104), 1)
    brush.bar(0.8, 1, 38.6, 28.4, load, 1.6)
    for x in (8.6, 16, 23.4, 30.8):
        brush.line([(x, 2.4), (x, 27)], 0.6, dark(load, 0.2))
    brush.bar(0.8, 11.4, 38.6, 17.4, band)
    brush.bar(0.8, 1, 38.6, 3.4, light(load, 0.3), 1.2)
    brush.blob("40.6,8 45,5.6 52,6 55.4,13 58.8,17 59.2,28.6 50,29.4 40.6,29", colour)
    brush.polygon("46.4,8.6 51.4,8.6 54.4,15.6 46.4,15.6", GLASS)
    brush.polygon("48.4,8.8 50.2,8.8 49,15.4 47.2,15.4", light(GLASS, 0.6))
    brush.line("44.2,9 44.2,27.4", 0.5, dark(colour, 0.35))
    brush.bar(45.6, 18.4, 48.6, 19.5, dark(colour, 0.4), 0.4)
    brush.bar(52.6, 25.8, 59.8, 29.4, (176, 180, 190), 1)
    brush.ellipse(57.2, 21.4, 1.6, 1.9, LAMP)
    for x in (9.4, 21, 50.4):
        _wheel(brush, x, 29.8, 5.1)


def bicycle(brush: Brush, colour: Colour, look: int, reach: int) -> None:
    for x in (8.6, 31.4):
        brush.ring(x, 18.6, 7.2, 1.6, RUBBER)
        for step in range(4):
            angle = pi * step / 4 + 0.3
            brush.line(
                [
                    (x - 6.4 * cos(angle), 18.6 - 6.4 * sin(angle)),
                    (x + 6.4 * cos(angle), 18.6 + 6.4 * sin(angle)),
                ],
                0.25,
                (176, 180, 188),
            )
        brush.ellipse(x, 18.6, 1.2, None, (150, 154, 162))
    crank, seat, head, front = (18, 19), (14.6, 8.4), (27.6, 7.6), (31.4, 18.6)
    for path in ([(8.6, 18.6), crank, head], [crank, seat, head], [(8.6, 18.6), seat]):
        brush.line(path, 2.2, colour)
    brush.line([(27, 4), head, front], 2.2, dark(colour, 0.12))
    brush.line("14.6,8.4 14,5", 1.3, (120, 124, 132))
    brush.blob("10,3.6 14,3 18.4,3.6 15,5.6 10.6,5.8", (88, 62, 52))
    brush.line("27,4 28.4,1.6 32,2.2 32.4,3.6", 1.3, (88, 62, 52))
    brush.ellipse(18, 19, 2.1, None, (122, 126, 136))
    brush.line("18,19 20.4,23.4", 0.9, (100, 104, 114))
    brush.bar(18.8, 22.9, 22, 24.1, RUBBER, 0.5)
    brush.ellipse(31.6, 6.2, 1.3, None, LAMP)


def boat(brush: Brush, colour: Colour, look: int, reach: int) -> None:
    """A low boat with a small cabin towards the bow."""
    wood, cabin = (196, 150, 104), (250, 244, 230) if colour != PALETTE["white"] else (236, 196, 128)
    brush.bar(28, 4.6, 40, 15, cabin, 1.4)
    brush.bar(26.8, 2.8, 41.2, 5.6, dark(colour, 0.12) if colour != PALETTE["white"] else (204, 96, 80), 1.2)
    for x in (29.8, 35):
        _pane(brush, x, 7.2, x + 3.8, 11.4)
    brush.line("30.4,3 30.4,0.8", 0.8, (96, 82, 78))
    brush.polygon("30.6,0.4 35,1.4 30.6,2.6", (232, 96, 80) if colour != PALETTE["red"] else (250, 214, 96))
    brush.blob("0.6,12.6 10,13.8 28,14 40,13.4 47.6,10.8 45,17 41,22.4 24,23.2 6,22.6 2.4,18", colour)
    brush.line("1.4,14 12,14.8 30,15 40,14.4 46.4,12.2", 1.3, light(wood, 0.25))
    brush.line(
        "3.4,19 20,20 43,18.8", 1.1, light(colour, 0.55) if colour != PALETTE["white"] else (98, 148, 196)
    )
    for x in (12, 20, 28):
        brush.ellipse(
            x, 17.6, 1.1, None, light(colour, 0.7) if colour != PALETTE["white"] else (98, 148, 196)
        )
    _wash(brush, 22.6)


def _wash(brush: Brush, y: float) -> None:
    """The line of foam where a hull meets the water."""
    width = brush.width
    brush.bar(width * 0.07, y, width * 0.9, y + 1.2, (240, 249, 252), 0.6)


def sailboat(brush: Brush, colour: Colour, look: int, reach: int) -> None:
    """The colour is the sails'."""
    hull = (150, 98, 66) if look % 2 else (246, 240, 228)
    brush.line("18,1 18,40", 1.3, (104, 78, 62))
    brush.blob("16.6,3 16.8,20 16.6,35 9,35.4 2.4,34.2 9.4,22", colour)
    brush.blob("19.4,5 25,14 33.4,33.4 26,35 19.4,34.6 19.6,20", mix(colour, (255, 252, 240), 0.36))
    for y in (14, 24):
        brush.line([(11.6 - (y - 14) * 0.42, y + 0.6), (16.4, y)], 0.5, dark(colour, 0.24))
    brush.polygon("18,0.4 23.4,1.8 18,3.4", (224, 84, 72) if colour != PALETTE["red"] else (250, 212, 92))
    brush.blob("0.8,37 12,38.4 27,38.2 37.6,36.2 33,44 28,47 9,47 4,43.4", hull)
    brush.line("1.8,38.4 14,39.4 35.4,38", 1.2, dark(hull, 0.3))
    brush.line("5,43 18,43.8 32.6,42.8", 0.9, light(hull, 0.4) if look % 2 else (98, 148, 196))
    _wash(brush, 46.6)


def plane(brush: Brush, colour: Colour, look: int, reach: int) -> None:
    accent = {PALETTE["white"]: (74, 136, 204), PALETTE["grey"]: (226, 98, 74)}.get(colour, (250, 246, 236))
    brush.polygon("1.2,0.8 6.4,0.8 13.4,9.2 4.6,10", dark(colour, 0.12))
    brush.polygon("26,9 20.4,1.6 24.4,1.6 34,9", dark(colour, 0.25))
    brush.blob("2,8.4 12,7 36,6.6 46,8 51.4,12.2 47,15.6 34,16.6 16,16 5,12.6", colour)
    brush.line("6,12.4 22,13.6 48.6,13", 1.4, accent)
    brush.polygon("43.4,8.4 46.4,8.8 49,11.2 43.8,11.2", GLASS)
    for x in (16.4, 21, 25.6, 30.2, 34.8, 39.4):
        brush.ellipse(x, 10.2, 1.3, 1.4, GLASS)
    brush.polygon("33.6,13.2 23.8,13.2 13.6,21.4 18.8,21.4", dark(colour, 0.2))
    brush.ellipse(25.4, 18, 3.6, 1.6, dark(colour, 0.36))
    brush.polygon("9.4,9.8 3.6,9.6 0.4,13 4,13", dark(colour, 0.24))


def tractor(brush: Brush, colour: Colour, look: int, reach: int) -> None:
    brush.bar(38.2, 5.6, 40.6, 18, (92, 90, 100), 0.8)
    brush.bar(10, 3.4, 12, 20, dark(colour, 0.3))
    brush.bar(23.6, 3.4, 25.4, 20, dark(colour, 0.3))
    brush.bar(11.6, 4, 24, 18, light(GLASS, 0.2), 0.6)
    brush.polygon("14.4,4.6 17.4,4.6 14.6,17.6 11.8,17.6", light(GLASS, 0.65))
    brush.bar(7.6, 0.8, 27.4, 4.4, colour, 1.6)
    brush.blob("24,15 38,14.2 44.6,16 45.6,22 44.6,28 34,29 24,29", colour)
    brush.bar(6, 18.4, 26, 29, dark(colour, 0.14), 2)
    for y in (18.6, 21.4, 24.2):
        brush.line([(31.6, y), (39, y)], 0.7, dark(colour, 0.36))
    brush.ellipse(44.2, 19.4, 1.5, 1.8, LAMP)
    brush.ellipse(12.6, 24.4, 12.2, 12.2, RUBBER)
    for step in range(12):
        angle = 2 * pi * step / 12
        brush.ellipse(12.6 + 11.2 * cos(angle), 24.4 + 11.2 * sin(angle), 1.5, None, dark(RUBBER, 0.5))
    brush.ellipse(12.6, 24.4, 6.4, None, (250, 210, 96) if colour != PALETTE["yellow"] else (226, 92, 70))
    brush.ellipse(12.6, 24.4, 2.2, None, (110, 96, 92))
    _wheel(brush, 37.6, 29.6, 7)

"""People. Everything is painted looking to the right; `draw` turns it round."""

from math import cos, sin

from vsecore.scenes.drawing.brush import INK, PALETTE, Brush, Colour, dark, light, mix

SKINS: tuple[Colour, ...] = ((250, 214, 184), (232, 184, 142), (196, 138, 96), (142, 94, 66))
HAIRS: tuple[Colour, ...] = ((66, 46, 40), (150, 96, 52), (224, 178, 96), (44, 40, 48), (178, 82, 46))
TROUSERS: tuple[Colour, ...] = ((74, 88, 124), (96, 84, 92), (70, 98, 104))


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
    brush.blob("4.2,15.6 7,13.8 13,13.8 15.8,15.6 15.6,24 16,34 10,34.8 4,34 4.4,24", colour)
    brush.polygon("8,13.6 12.4,13.6 10.4,18.4", light(colour, 0.75) if look % 2 else (244, 240, 232))
    brush.line("10.4,18.4 10.4,34", 0.5, dark(colour, 0.35))
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
        brush.blob("4.4,6 9,0.8 14.2,3 13.2,10 12.6,17.6 8,18.6 3.6,17.4", hair)
    else:
        brush.ellipse(5.2, 3.4, 2.9, None, hair)
    _legs(brush, light(skin, 0.1), (108, 66, 58), 34, 2.2, 2.8, 2.2)
    brush.bar(8.6, 10, 11.6, 16, dark(skin, 0.12), 1)
    brush.blob("5.6,15 8,13.6 12.4,13.6 14.6,15 13.6,23 17,36.4 10,38.4 3,36.4 6.4,23", colour)
    brush.polygon("7.8,13.4 12.6,13.4 10.4,17", light(colour, 0.7))
    brush.line("10.3,17 10.3,37.4", 0.5, dark(colour, 0.32))
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
    brush.blob("4,14.8 6.5,13.2 10.6,13.2 13,14.8 13,20 13.2,26.4 8.5,27 3.8,26.4 4,20", colour)
    if look % 2:
        brush.bar(4.2, 18, 12.9, 20.4, light(colour, 0.6))
    else:
        brush.line("8.6,14 8.6,26", 0.5, dark(colour, 0.35))
        brush.polygon("6.8,13 10.6,13 8.7,15.6", light(colour, 0.7))
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
    brush.blob("5.2,14.4 7,13.2 10.2,13.2 11.9,14.4 11.6,19 15.2,29.2 8.5,31 1.9,29.2 5.4,19", colour)
    brush.line("3.2,27.6 8.5,29.2 13.9,27.6", 0.9, light(colour, 0.55))
    brush.polygon("6.4,13 10.8,13 8.7,15.8", light(colour, 0.75))
    for y in (18, 21.4):
        brush.ellipse(8.8, y, 0.55, None, light(colour, 0.75))
    _face(brush, 8.5, 7.6, 5.3, skin)
    brush.slice(8.4, 5.4, 5.9, 5.2, 168, 350, hair)
    brush.line("3.3,7.4 3.6,4.6", 1.2, hair)
    for x in (2.6, 14.1):
        brush.ellipse(x, 7.0, 1.1, None, ribbon)
    _arms(brush, colour, skin, 15.8, 3.2, 23, reach)

"""The palette, and a brush that paints one thing in units of its own size."""

from collections.abc import Sequence
from math import cos, pi, sin

from PIL import Image, ImageChops, ImageDraw

Colour = tuple[int, int, int]
Point = tuple[float, float]
Outline = str | Sequence[Point]
"""Points of a line or an area; as text they are written as in SVG, "x,y x,y"."""

# Soft tones after Okabe and Ito (2008): told apart by lightness too, so also without red or green.
PALETTE: dict[str, Colour] = {
    "red": (230, 66, 62),
    "orange": (246, 146, 46),
    "yellow": (255, 216, 72),
    "green": (90, 178, 96),
    "blue": (66, 146, 226),
    "purple": (124, 66, 160),
    "white": (253, 252, 248),
    "black": (50, 49, 58),
    "brown": (108, 70, 44),
    "grey": (152, 157, 165),
}
INK = (52, 46, 60)
MARGIN = 2  # pixels of the finished picture around a thing's box, for its outline
FINE = 4  # a thing is painted so many times larger than it is shown


def mix(first: Colour, second: Colour, share: float) -> Colour:
    """The first colour with so much of the second in it, from 0 to 1."""
    red, green, blue = (round(a + (b - a) * share) for a, b in zip(first, second, strict=True))
    return red, green, blue


def light(colour: Colour, share: float = 0.3) -> Colour:
    """The colour in sunlight."""
    return mix(colour, (255, 253, 244), share)


def dark(colour: Colour, share: float = 0.25) -> Colour:
    """The colour in shadow; white turns a cool grey and black stays visible."""
    return mix(colour, (38, 34, 62), share)


def smooth(points: Sequence[Point], steps: int = 7) -> list[Point]:
    """A closed curve through the points (Catmull-Rom)."""
    curve: list[Point] = []
    count = len(points)
    for row in range(count):
        a, b, c, d = (points[(row + offset) % count] for offset in (-1, 0, 1, 2))
        for step in range(steps):
            t = step / steps
            x, y = (
                0.5
                * (2 * q + (r - p) * t + (2 * p - 5 * q + 4 * r - s) * t**2 + (3 * q - p - 3 * r + s) * t**3)
                for p, q, r, s in zip(a, b, c, d, strict=True)
            )
            curve.append((x, y))
    return curve


def _points(outline: Outline) -> Sequence[Point]:
    if not isinstance(outline, str):
        return outline
    return [(float(x), float(y)) for x, y in (point.split(",") for point in outline.split())]


class Brush:
    """Paints in a thing's own units: (0, 0) is its box's top left, (width, height) its bottom right.

    Args:
        width: the thing's width, in its own units.
        height: the thing's height, in its own units.
        across: pixels from left to right that the box will have when shown.
        down: pixels from top to bottom that it will have.
        zoom: how many times larger than 112 pixels the finished picture is.
    """

    def __init__(self, width: float, height: float, across: int, down: int, zoom: int = 1) -> None:
        self.width, self.height = width, height
        margin = MARGIN * zoom
        self._rim = round(0.5 * FINE * zoom)  # half a pixel of the 112-pixel picture
        self._shown = (across + 2 * margin, down + 2 * margin)
        self._x, self._y = across * FINE / width, down * FINE / height
        self._start = margin * FINE
        self.image = Image.new("RGBA", (self._shown[0] * FINE, self._shown[1] * FINE), (0, 0, 0, 0))
        self._pen = ImageDraw.Draw(self.image)

    def _at(self, points: Sequence[Point]) -> list[Point]:
        return [(self._start + x * self._x, self._start + y * self._y) for x, y in points]

    def _ellipse(self, x: float, y: float, across: float, down: float) -> tuple[float, float, float, float]:
        """The box in pixels of an ellipse with these radii."""
        (left, top), (right, bottom) = self._at([(x - across, y - down), (x + across, y + down)])
        return left, top, right, bottom

    def polygon(self, outline: Outline, colour: Colour) -> None:
        """A filled polygon."""
        self._pen.polygon(self._at(_points(outline)), fill=colour)

    def blob(self, outline: Outline, colour: Colour) -> None:
        """A filled closed curve through the points."""
        self._pen.polygon(self._at(smooth(_points(outline))), fill=colour)

    def ellipse(self, x: float, y: float, across: float, down: float | None, colour: Colour) -> None:
        """A filled ellipse around (x, y) with these radii; a circle where `down` is None."""
        self._pen.ellipse(self._ellipse(x, y, across, across if down is None else down), fill=colour)

    def erase(self, x: float, y: float, radius: float) -> None:
        """A round hole through which the place is seen."""
        self._pen.ellipse(self._ellipse(x, y, radius, radius), fill=(0, 0, 0, 0))

    def bar(
        self, left: float, top: float, right: float, bottom: float, colour: Colour, radius: float = 0.0
    ) -> None:
        """A filled rectangle with round corners."""
        (a, b), (c, d) = self._at([(left, top), (right, bottom)])
        self._pen.rounded_rectangle((a, b, c, d), radius * min(self._x, self._y), fill=colour)

    def line(self, outline: Outline, width: float, colour: Colour) -> None:
        """A line with round ends and joints."""
        spots = self._at(_points(outline))
        thick = max(1, round(width * min(self._x, self._y)))
        self._pen.line(spots, fill=colour, width=thick, joint="curve")
        half = thick / 2
        for x, y in (spots[0], spots[-1]):
            self._pen.ellipse((x - half, y - half, x + half, y + half), fill=colour)

    def ring(self, x: float, y: float, radius: float, width: float, colour: Colour) -> None:
        """A circle's line."""
        steps = [2 * pi * step / 28 for step in range(29)]
        self.line([(x + radius * cos(a), y + radius * sin(a)) for a in steps], width, colour)

    def slice(
        self, x: float, y: float, across: float, down: float, start: float, stop: float, colour: Colour
    ) -> None:
        """A slice of an ellipse between two angles in degrees, clockwise from three o'clock."""
        self._pen.pieslice(self._ellipse(x, y, across, down), start, stop, fill=colour)

    def finish(self, outline: Colour, flip: bool) -> Image.Image:
        """The thing at its shown size, with soft light from above and a rim of its own darker tone."""
        shape = self.image.getchannel("A")
        lit = _lit(self.image)
        grown = shape
        for step in range(12):
            shift = (round(self._rim * cos(step * pi / 6)), round(self._rim * sin(step * pi / 6)))
            grown = ImageChops.lighter(grown, ImageChops.offset(shape, *shift))
        rim = Image.new("RGBA", self.image.size, (*outline, 0))
        rim.putalpha(grown)
        rim.alpha_composite(lit)
        if flip:
            rim = rim.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
        return rim.resize(self._shown, Image.Resampling.LANCZOS)


def _lit(image: Image.Image) -> Image.Image:
    """The painting a little lighter at the top and darker at the foot."""
    width, height = image.size
    shade = Image.linear_gradient("L").resize((width, height))
    fall = shade.point([round(255 - 0.07 * step) for step in range(256)])
    return ImageChops.multiply(
        image, Image.merge("RGBA", (fall, fall, fall, Image.new("L", image.size, 255)))
    )

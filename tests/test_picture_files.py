"""Pictures are read as people see them, and nothing but pictures is opened."""

import numpy as np
import pytest
from PIL import ExifTags, Image

from vsecore.data.picture_files import open_picture

TURN = Image.Transpose
# What EXIF's orientation undoes, by its definition: how a camera that is held otherwise stores the picture.
STORED = {
    1: None,
    2: TURN.FLIP_LEFT_RIGHT,
    3: TURN.ROTATE_180,
    4: TURN.FLIP_TOP_BOTTOM,
    5: TURN.TRANSPOSE,
    6: TURN.ROTATE_90,
    7: TURN.TRANSVERSE,
    8: TURN.ROTATE_270,
}


@pytest.fixture
def upright():
    """No two corners alike, and wider than high."""
    colours = np.array([[[255, 0, 0], [0, 255, 0]], [[0, 0, 255], [255, 255, 255]]], np.uint8)
    return Image.fromarray(colours.repeat(60, 0).repeat(80, 1))  # 160 × 120


def difference(one, other):
    assert one.size == other.size and one.mode == other.mode == "RGB"
    return float(np.abs(np.asarray(one).astype(float) - np.asarray(other)).mean())


@pytest.mark.parametrize("kind", ["jpg", "png", "webp", "tif"])
@pytest.mark.parametrize("orientation", STORED)
def test_a_picture_stands_upright(upright, tmp_path, kind, orientation):
    exif = Image.Exif()
    exif[ExifTags.Base.Orientation] = orientation
    turn = STORED[orientation]
    path = tmp_path / f"picture.{kind}"
    (upright if turn is None else upright.transpose(turn)).save(path, exif=exif, quality=95)
    assert difference(open_picture(path), upright) < 3
    small = open_picture(path, at_least=30)
    assert difference(small, upright.resize(small.size)) < 6


def test_a_damaged_note_of_the_camera_does_no_harm(upright, tmp_path):
    exif = Image.Exif()
    exif[ExifTags.Base.Orientation] = 6
    upright.save(tmp_path / "whole.jpg", exif=exif)
    note = exif.tobytes()
    for row, wrong in enumerate([note[:14], note[:6] + b"??" + note[8:], b"Exif\0\0"]):
        upright.save(tmp_path / f"{row}.jpg", exif=wrong)
        assert difference(open_picture(tmp_path / f"{row}.jpg"), upright) < 3


def test_sixteen_bits_are_scaled_to_eight(tmp_path):
    ramp = np.linspace(0, 65535, 64).round().astype(np.uint16).reshape(8, 8)
    wanted = ramp / 257
    for name in ("grey.png", "grey.tif"):
        Image.fromarray(ramp).save(tmp_path / name)
        assert (np.asarray(open_picture(tmp_path / name)) == np.round(wanted)[..., None]).all()


def test_what_is_transparent_lies_on_white(upright, tmp_path):
    see_through = upright.copy()
    see_through.putalpha(Image.new("L", upright.size, 0))
    half = upright.copy()
    half.putalpha(Image.new("L", upright.size, 128))
    palette = upright.convert("P", palette=Image.Palette.ADAPTIVE, colors=4)
    see_through.save(tmp_path / "colours.png")
    see_through.save(tmp_path / "colours.webp", lossless=True)
    see_through.convert("LA").save(tmp_path / "grey.png")
    palette.save(tmp_path / "palette.png", transparency=bytes(4))
    for name in ("colours.png", "colours.webp", "grey.png", "palette.png"):
        assert np.asarray(open_picture(tmp_path / name)).min() == 255, name
    half.save(tmp_path / "half.png")
    wanted = (np.asarray(upright) * 128.0 + 255 * 127) / 255
    assert np.abs(np.asarray(open_picture(tmp_path / "half.png")) - wanted).max() <= 1
    palette.save(tmp_path / "opaque.png")
    assert difference(open_picture(tmp_path / "opaque.png"), upright) < 1


def test_of_an_animation_the_first_picture_is_seen_and_printers_colours_are_read(upright, tmp_path):
    later = [Image.new("RGB", upright.size, colour) for colour in ("black", "white")]
    for name in ("gif", "png", "webp", "tif", "mpo"):
        upright.save(tmp_path / f"film.{name}", save_all=True, append_images=later, quality=95)
        assert difference(open_picture(tmp_path / f"film.{name}"), upright) < 3
    upright.convert("CMYK").save(tmp_path / "print.jpg", quality=95)
    assert difference(open_picture(tmp_path / "print.jpg"), upright) < 3


@pytest.mark.parametrize("kind", ["eps", "pdf", "ppm", "tga", "ico", "jp2"])
def test_other_kinds_of_file_stay_closed(upright, tmp_path, kind):
    upright.save(tmp_path / f"picture.{kind}")
    disguised = (tmp_path / f"picture.{kind}").rename(tmp_path / "picture.jpg")
    with pytest.raises(ValueError, match=r"picture.jpg cannot be read as a picture"):
        open_picture(disguised)


@pytest.mark.parametrize("kind", ["jpg", "png", "webp", "bmp", "gif", "tif"])
def test_a_damaged_picture_is_read_or_refused_in_one_sentence(upright, tmp_path, kind):
    path, dice = tmp_path / f"picture.{kind}", np.random.default_rng(0)
    upright.save(path)
    good = path.read_bytes()
    for _ in range(60):
        damaged = bytearray(good)
        for place in dice.integers(0, len(good), 3):
            damaged[place] = dice.integers(256)
        path.write_bytes(damaged[: dice.integers(1, len(good) + 1)] if dice.random() < 0.3 else damaged)
        try:
            assert open_picture(path).mode == "RGB"
        except ValueError as error:
            assert f"{path} cannot be read as a picture" in str(error)

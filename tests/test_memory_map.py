"""A `.npy` file is mapped only if its header is true."""

import os
import warnings
from pathlib import Path

import numpy as np
import pytest

from vsecore.data.feature_folder import MappedPictures

NUMBERS = np.arange(6 * 4 * 8, dtype=np.float32).reshape(6, 4, 8)


def write(path: Path, header: str | bytes, numbers: bytes = NUMBERS.tobytes(), version: int = 1) -> Path:
    text = header.encode("latin-1") if isinstance(header, str) else header
    length = len(text).to_bytes(2 if version == 1 else 4, "little")
    path.write_bytes(b"\x93NUMPY" + bytes([version, 0]) + length + text + numbers)
    return path


def header(shape: str = "(6, 4, 8)", descr: str = "'<f4'", fortran: str = "False") -> str:
    return f"{{'descr': {descr}, 'fortran_order': {fortran}, 'shape': {shape}}}\n"


@pytest.mark.parametrize("kind", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize("order", ["C", "F"])
def test_floats_are_what_they_were_in_either_order(tmp_path: Path, kind: type, order: str) -> None:
    np.save(tmp_path / "ims.npy", np.asarray(NUMBERS, kind, order=order))
    pictures = MappedPictures(tmp_path / "ims.npy")
    assert np.array_equal(np.asarray(pictures), NUMBERS) and pictures.dtype == kind
    assert np.array_equal(pictures[::2][np.array([2, 0])], NUMBERS[[4, 0]])
    assert np.array_equal(np.asarray(pictures[::-1]), NUMBERS[::-1])


def test_a_header_that_python_2_wrote_is_read_without_a_word(tmp_path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        for version in (1, 2):
            path = write(tmp_path / "ims.npy", header("(6L, 4L, 8L)"), version=version)
            assert np.array_equal(np.asarray(MappedPictures(path)), NUMBERS)


LIES = [
    header("(7, 4, 8)"),
    header(descr="'>f4'"),
    header(descr="[('a', '<f4')]"),
    header("(" * 200),
    "",
]


@pytest.mark.parametrize("text", LIES, ids=range(len(LIES)))
def test_a_header_that_lies_is_refused_in_one_sentence(tmp_path: Path, text: str) -> None:
    path = write(tmp_path / "ims.npy", text)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(ValueError, match=r"ims.npy") as caught:
            MappedPictures(path)
    assert "\n" not in str(caught.value) and len(str(caught.value)) < 500


def test_no_more_is_read_than_the_rows_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    np.save(tmp_path / "ims.npy", NUMBERS)
    pictures, size, read = MappedPictures(tmp_path / "ims.npy"), NUMBERS[0].nbytes, []
    preadv = os.preadv

    def counting(file: int, buffers: list[memoryview], at: int) -> int:
        came = preadv(file, [buffers[0][: size - 5]], at)  # a disk may give less than was asked for
        read.append((at - 128, came))
        return came

    monkeypatch.setattr(os, "preadv", counting)
    wanted = np.array([[4, 1], [2, 5]])
    assert np.array_equal(pictures[wanted], NUMBERS[wanted])
    assert sum(came for _, came in read) == wanted.size * size
    assert {at // size for at, _ in read} == {1, 2, 4, 5} and read == sorted(read, key=lambda one: one[0])
    assert np.array_equal(pictures[3], NUMBERS[3]) and pictures[np.array([], int)].shape == (0, 4, 8)


def test_a_file_that_is_cut_off_while_it_is_read_is_told(tmp_path: Path) -> None:
    np.save(tmp_path / "ims.npy", NUMBERS)
    pictures = MappedPictures(tmp_path / "ims.npy")
    os.truncate(tmp_path / "ims.npy", 128 + NUMBERS[:5].nbytes + 3)
    assert np.array_equal(pictures[np.array([4])], NUMBERS[[4]])
    with pytest.raises(ValueError, match="cut off"):
        pictures[np.array([5])]


def test_where_rows_cannot_be_read_they_are_mapped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    np.save(tmp_path / "ims.npy", NUMBERS)
    monkeypatch.delattr(os, "preadv")
    assert np.array_equal(MappedPictures(tmp_path / "ims.npy")[np.array([5, 0])], NUMBERS[[5, 0]])

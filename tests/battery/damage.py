"""Ways to damage a file, drawn by hypothesis: in its bytes, in terms of its format, or as a thing on disk."""

from __future__ import annotations

import contextlib
import json
import os
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from hypothesis import strategies as st
from PIL import Image
from safetensors import safe_open
from safetensors.torch import save_file

Draw = Callable[[st.SearchStrategy[Any]], Any]

ODD_VALUES: list[Any] = [None, True, False, 0, -1, 1.5, 2**70, -(2**70), 1e300, float("nan"), float("inf")]
ODD_VALUES += ["", "x", "a\nb", "\ud800", "\0", "../../outside", " ..", "/etc/hostname", "x" * 10_000]
ODD_VALUES += [[], {}, [None], [[]], {"": None}, [1, 2, 3], {"a": {"b": []}}]

FOREIGN = [b"", b"\0" * 100, b"{}", b"[]", b"null", b"\xff\xfe\x00\x01", b"\x93NUMPY", b"PK\x03\x04"]
FOREIGN += [b"<!DOCTYPE html><html><body>404 Not Found</body></html>", b"\x89PNG\r\n\x1a\n"]
FOREIGN += [b"\x80\x04cos\nsystem\n(S'true'\ntR.", b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n"]
FOREIGN += [b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n"]
"""What a download may leave instead of the file that was wanted."""


def damage(path: Path, draw: Draw) -> str:
    """Damage a file, and say how."""
    kinds = [_bytes, _thing]
    kinds += {
        ".json": [_json, _json, _json],
        ".npy": [_array, _array, _npy_header],
        ".txt": [_lines, _lines],
        ".csv": [_lines, _lines],
        ".sqlite": [_bytes, _bytes, _cell],
        ".safetensors": [_tensors, _facts, _facts],
        ".pth": [_pth, _pth],
        ".jpg": [_picture, _picture],
    }.get(path.suffix, [])
    way = draw(st.sampled_from(kinds))
    return f"{path.name}: {way(path, draw)}"


def _bytes(path: Path, draw: Draw) -> str:
    content = bytearray(path.read_bytes())
    place = draw(st.integers(0, max(len(content) - 1, 0)))
    way = draw(st.sampled_from(["cut", "flip", "insert", "delete", "zero", "foreign"]))
    if way == "cut":
        del content[place:]
    elif way == "flip" and content:
        content[place] ^= 1 << draw(st.integers(0, 7))
    elif way == "insert":
        content[place:place] = draw(st.binary(min_size=1, max_size=9))
    elif way == "delete":
        del content[place : place + draw(st.integers(1, 200))]
    elif way == "zero":
        stop = min(place + draw(st.integers(1, 200)), len(content))
        content[place:stop] = bytes(stop - place)
    else:
        content = bytearray(draw(st.sampled_from(FOREIGN)))
    path.write_bytes(content)
    return f"{way} at byte {place}"


def _thing(path: Path, draw: Draw) -> str:
    way = draw(st.sampled_from(["missing", "folder", "fifo", "dead link", "device"]))
    path.unlink()
    if way == "folder":
        path.mkdir()
    elif way == "fifo":
        os.mkfifo(path)
    elif way == "dead link":
        path.symlink_to(path.with_name("nowhere"))
    elif way == "device":
        path.symlink_to(os.devnull)
    return way


def _json(path: Path, draw: Draw) -> str:
    content, said = _changed_json(json.loads(path.read_text("utf-8")), draw)
    path.write_text(json.dumps(content), "utf-8")  # lone surrogates as \ud800, as other programs write them
    return said


def _changed_json(content: Any, draw: Draw) -> tuple[Any, str]:
    """Change one value, anywhere in nested lists and objects."""
    places = list(_places(content, ()))
    place = draw(st.sampled_from(places))
    if not place:
        return draw(st.sampled_from(ODD_VALUES)), "another whole"
    holder = content
    for step in place[:-1]:
        holder = holder[step]
    way = draw(st.sampled_from(["replace", "replace", "delete", "repeat", "swap"]))
    last = place[-1]
    if way == "delete":
        del holder[last]
    elif way == "repeat" and isinstance(holder, list):
        holder.insert(last, holder[last])
    elif way == "swap":
        other = draw(st.sampled_from(list(range(len(holder)) if isinstance(holder, list) else holder)))
        holder[last], holder[other] = holder[other], holder[last]
    else:
        holder[last] = draw(st.sampled_from(ODD_VALUES))
    return content, f"{way} {'.'.join(map(str, place))}"


def _places(content: Any, place: tuple[Any, ...]) -> Any:
    yield place
    if isinstance(content, dict | list):
        for key in content if isinstance(content, dict) else range(len(content)):
            yield from _places(content[key], (*place, key))


def _lines(path: Path, draw: Draw) -> str:
    lines = path.read_text("utf-8").split("\n")
    row, other = (draw(st.integers(0, len(lines) - 1)) for _ in range(2))
    way = draw(
        st.sampled_from(["drop", "repeat", "swap", "blank", "long", "Latin-1", "surrogate", "NUL", "odd"])
    )
    if way == "drop":
        del lines[row]
    elif way == "repeat":
        lines.insert(row, lines[row])
    elif way == "swap":
        lines[row], lines[other] = lines[other], lines[row]
    elif way == "blank":
        lines[row] = draw(st.sampled_from(["", " ", "\t", "\r", "\u2028"]))
    elif way == "long":
        lines[row] *= 10_000
    elif way == "odd":
        words = lines[row].split(" ")
        words[draw(st.integers(0, len(words) - 1))] = draw(
            st.sampled_from(["nan", "inf", "1e999", "x", "#", "-", '"', ",", "..", "/"])
        )
        lines[row] = " ".join(words)
    content = "\n".join(lines).encode()
    at = draw(st.integers(0, len(content)))
    strange = {"Latin-1": b"\xe4", "surrogate": b"\xed\xa0\x80", "NUL": b"\0"}.get(way, b"")
    path.write_bytes(content[:at] + strange + content[at:])
    return f"{way} line {row}"


def _array(path: Path, draw: Draw) -> str:
    array = np.load(path)
    if array.dtype.names:  # checksums
        array = array.view(np.uint8).reshape(len(array), -1)
    row = draw(st.integers(0, len(array) - 1))
    ways: dict[str, Callable[[], np.ndarray]] = {
        "big-endian": lambda: array.astype(array.dtype.newbyteorder(">")),
        "Fortran order": lambda: np.asfortranarray(array),
        "float64": lambda: array.astype(np.float64),
        "int8": lambda: array.astype(np.int8),
        "complex": lambda: array.astype(np.complex64),
        "objects": lambda: array.astype(object),
        "text": lambda: array.astype("U8"),
        "a row less": lambda: array[:-1],
        "no row": lambda: array[:0],
        "a row more": lambda: array[[*range(len(array)), row]],
        "narrower": lambda: array[..., :-1],
        "fewer elements": lambda: array[:, :-1],
        "flat": lambda: array.reshape(len(array), -1),
        "one deeper": lambda: array[None],
        "scalar": lambda: array.ravel()[0],
        "NaN": lambda: _with(array, row, np.nan),
        "infinity": lambda: _with(array, row, np.inf),
    }
    way = draw(st.sampled_from(sorted(ways)))
    np.save(path, ways[way](), allow_pickle=True)
    return f"{way} ({row})"


def _with(array: np.ndarray, row: int, value: float) -> np.ndarray:
    changed = array.copy() if array.dtype.kind == "f" else array.astype(np.float32)
    changed[row].flat[-1] = value
    return changed


def _npy_header(path: Path, draw: Draw) -> str:
    content = path.read_bytes()
    shape = str(np.load(path).shape).encode()
    odd = [
        "()",
        "(-1, 2, 3)",
        "(9999999999999, 9, 9)",
        "(2**62, 8, 8)",
        "(1, 2",
        "'x'",
        "(1.5, 2, 3)",
        "None",
        "(0, 0, 0)",
    ]
    to = draw(st.sampled_from(odd)).encode()
    path.write_bytes(content.replace(shape, to[: len(shape)].ljust(len(shape)), 1))
    return f"header says shape {to!r}"


def _cell(path: Path, draw: Draw) -> str:
    """Another value in a table of SQLite, which lets any value stand anywhere."""
    with contextlib.closing(sqlite3.connect(path)) as opened:
        told = opened.execute(
            "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%'"
        )
        table = draw(st.sampled_from([name for (name,) in told]))
        columns = [row[1] for row in opened.execute(f"PRAGMA table_info({table})")]
        column = draw(st.sampled_from(columns))
        value = draw(
            st.sampled_from([0, -1, 1.5, "x", "", b"", b"\xff", b"../../outside", "x" * 10_000, "{}"])
        )
        with contextlib.suppress(sqlite3.IntegrityError):  # it refuses another type of its own key
            opened.execute(f"UPDATE {table} SET {column} = ? WHERE rowid = 1", (value,))
        opened.commit()
    return f"{table}.{column} is {value!r:.40}"


def _tensors(path: Path, draw: Draw) -> str:
    with safe_open(path, framework="pt") as file:
        metadata, tensors = file.metadata(), {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    name = draw(st.sampled_from(sorted(tensors)))
    tensor = tensors.pop(name)
    ways: dict[str, Callable[[], dict[str, torch.Tensor]]] = {
        "gone": dict,
        "renamed": lambda: {f"{name}x": tensor},
        "int8": lambda: {name: tensor.to(torch.int8)},
        "bool": lambda: {name: tensor.bool()},
        "float64": lambda: {name: tensor.double()},
        "half": lambda: {name: tensor.half()},
        "flat": lambda: {name: tensor.reshape(-1).clone()},
        "transposed": lambda: {
            name: tensor.T.contiguous() if tensor.ndim == 2 else tensor.reshape(1, -1).clone()
        },
        "NaN": lambda: {name: _not_a_number(tensor)},
        "empty": lambda: {name: torch.zeros(0)},
        "one more": lambda: {name: tensor, "stranger": torch.ones(3)},
    }
    way = draw(st.sampled_from(sorted(ways)))
    save_file(tensors | ways[way](), path, metadata)
    return f"{name} {way}"


def _not_a_number(tensor: torch.Tensor) -> torch.Tensor:
    return torch.full_like(tensor, float("nan")) if tensor.is_floating_point() else tensor


def _facts(path: Path, draw: Draw) -> str:
    """The JSON inside a checkpoint's metadata."""
    with safe_open(path, framework="pt") as file:
        metadata, tensors = file.metadata() or {}, {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    if "facts" not in metadata:
        return "left whole"
    content, said = _changed_json(json.loads(metadata["facts"]), draw)
    save_file(tensors, path, metadata | {"facts": json.dumps(content)})
    return f"facts: {said}"


def _pth(path: Path, draw: Draw) -> str:
    state = torch.load(path, weights_only=True)
    name = draw(st.sampled_from(sorted(state)))
    tensor = state[name]
    wholes: dict[str, Any] = {
        "a list": list(state.values())[:3],
        "a number": 7,
        "nothing": None,
        "text": "weights",
        "a tensor": tensor,
        "nested": {"a": {"b": state}},
        "empty": {},
        "numbers for tensors": dict.fromkeys(state, 1.0),
        "without one": {key: value for key, value in state.items() if key != name},
        "with a stranger": state | {"stranger": torch.ones(3)},
        "another shape": state | {name: torch.ones(2, 3, 5)},
        "complex": state | {name: tensor.to(torch.complex64)},
        "NaN": state | {name: _not_a_number(tensor)},
        "sparse": state | {name: tensor.to_sparse()},
        "numbered": dict(enumerate(state.values())),
        "int8": state | {name: tensor.to(torch.int8)},
    }
    way = draw(st.sampled_from(sorted(wholes)))
    torch.save(wholes[way], path)
    return f"{way} ({name})"


def _picture(path: Path, draw: Draw) -> str:
    """Other pictures under the same name."""
    formats = {
        "EPS": "RGB",
        "PDF": "RGB",
        "PPM": "RGB",
        "TIFF": "F",
        "PNG": "I;16",
        "GIF": "P",
        "WEBP": "RGBA",
        "BMP": "1",
    }
    name = draw(st.sampled_from(sorted(formats)))
    size = draw(st.sampled_from([(1, 1), (1, 500), (80, 60)]))
    Image.new(formats[name], size).save(path, format=name)
    return f"{name} {formats[name]} of {size}"

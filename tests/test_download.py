import hashlib
import http.server
import io
import json
import random
import signal
import stat
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.client import HTTPMessage
from pathlib import Path
from types import SimpleNamespace

import pytest
from PIL import Image
from typer.testing import CliRunner

from vsecore import cli
from vsecore.data import collections, files, sources, unpacking
from vsecore.data.download import ZIP, Received, _Redirects, download
from vsecore.data.karpathy import check_photographs
from vsecore.data.receipts import read_receipt
from vsecore.data.sources import COLLECTIONS, Archive, Collection
from vsecore.data.unpacking import Member, read_members, unpack

BODY = random.Random(0).randbytes(300_000)
SHA = hashlib.sha256(BODY).hexdigest()


@dataclass
class Site:
    """What a server does, and what it was asked. Each item of a list is for one answer."""

    bodies: dict[str, bytes] = field(default_factory=lambda: {"/file.zip": BODY})
    drops: list[int] = field(default_factory=list)
    """After how many bytes of an answer the connection is dropped."""
    etags: list[str | None] = field(default_factory=list)
    """The ETag of each answer; the last one stays."""
    statuses: list[int] = field(default_factory=list)
    ignores_range: bool = False
    careless: bool = False
    """Whether it gives a part without asking of which version."""
    skips: int = 0
    """How many bytes too far a partial answer begins."""
    length: int | None = None
    """What the server says about the length."""
    chunked: bool = False
    kind: str = "application/zip"
    slow: float = 0.0
    wait: str = "0"
    """After how many seconds it wants to be asked again."""
    asked: list[dict[str, str]] = field(default_factory=list)
    address: str = ""


@pytest.fixture
def site() -> Iterator[Site]:
    site = Site()

    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            site.asked.append({"path": self.path, **self.headers})
            self.close_connection = True
            status = site.statuses.pop(0) if site.statuses else 200
            body = site.bodies.get(self.path)
            if self.path == "/moved.zip":
                self.answer(302, b"", {"Location": "/file.zip"})
            elif self.path == "/away.zip":
                self.answer(302, b"", {"Location": "file:///etc/passwd"})
            elif body is None or status >= 400:
                self.answer(
                    status if body is not None else 404, b"<html>no</html>", {"Retry-After": site.wait}
                )
            else:
                self.give(body)

        def give(self, body: bytes) -> None:
            etag = site.etags[0] if site.etags else '"one"'
            if len(site.etags) > 1:
                site.etags.pop(0)
            told = {"Content-Type": site.kind} | ({"ETag": etag} if etag else {})
            asked, same = self.headers["Range"], site.careless or self.headers["If-Range"] == etag
            if asked and same and not site.ignores_range:
                first = int(asked.removeprefix("bytes=").removesuffix("-")) + site.skips
                if first >= len(body):
                    self.answer(416, b"", {"Content-Range": f"bytes */{len(body)}"})
                    return
                told["Content-Range"] = f"bytes {first}-{len(body) - 1}/{len(body)}"
                self.answer(206, body[first:], told)
            else:
                self.answer(200, body, told)

        def answer(self, status: int, body: bytes, told: dict[str, str]) -> None:
            self.send_response(status)
            for name, value in told.items():
                self.send_header(name, value)
            if site.chunked and status == 200:
                self.send_header("Transfer-Encoding", "chunked")
                body = b"%x\r\n%s\r\n0\r\n\r\n" % (len(body), body)
            else:
                lie = site.length is not None and status == 200
                self.send_header("Content-Length", str(site.length if lie else len(body)))
            self.end_headers()
            end = site.drops.pop(0) if site.drops and status < 300 else len(body)
            try:
                for begin in range(0, min(end, len(body)), 20_000):
                    self.wfile.write(body[begin : min(end, begin + 20_000)])
                    time.sleep(site.slow)
            except OSError:
                pass  # the client has gone

        def log_message(self, *args: object) -> None:
            pass

    class Server(http.server.ThreadingHTTPServer):
        daemon_threads = True

    with Server(("127.0.0.1", 0), Handler) as server:
        site.address = f"http://127.0.0.1:{server.server_port}"
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        thread.start()
        yield site
        server.shutdown()


@pytest.fixture(autouse=True)
def unhurried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("vsecore.data.download.LONGEST_PAUSE", 0.0)
    monkeypatch.setenv("VSECORE_BATCH", "1")
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)


def fetch(site: Site, folder: Path, name: str = "file.zip", **options: object) -> Received:
    return download(f"{site.address}/{name}", folder / "file.zip", **options)  # type: ignore[arg-type]


def ranges(site: Site) -> list[str | None]:
    return [ask.get("Range") for ask in site.asked]


def left(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_file_arrives_whole_and_leaves_nothing_else_behind(site: Site, tmp_path: Path) -> None:
    assert fetch(site, tmp_path) == Received(len(BODY), SHA, '"one"', True)
    assert (tmp_path / "file.zip").read_bytes() == BODY
    assert left(tmp_path) == ["file.zip"]
    assert site.asked[0]["Accept-Encoding"] == "identity"


def test_dropped_connections_are_resumed_where_they_ended(site: Site, tmp_path: Path) -> None:
    site.drops = [1000] * 20  # more than the attempts, but each brings something
    fetch(site, tmp_path, sha256=SHA)
    assert (tmp_path / "file.zip").read_bytes() == BODY
    assert ranges(site)[:3] == [None, "bytes=1000-", "bytes=2000-"]
    assert site.asked[1]["If-Range"] == '"one"'


def test_a_connection_that_brings_nothing_new_is_given_up_and_its_bytes_are_kept(
    site: Site, tmp_path: Path
) -> None:
    site.drops = [5000, *[0] * 9]
    with pytest.raises(
        OSError, match=r"file.zip: the connection was dropped.*3 times.*5,000 of 300,000 bytes"
    ):
        fetch(site, tmp_path, attempts=3, then="say please")
    assert not (tmp_path / "file.zip").exists() and len(site.asked) == 3
    site.drops = []
    fetch(site, tmp_path)
    assert site.asked[-1]["Range"] == "bytes=5000-" and (tmp_path / "file.zip").read_bytes() == BODY


def test_a_server_that_ignores_ranges_gives_the_whole_file_again(site: Site, tmp_path: Path) -> None:
    site.ignores_range, site.drops = True, [100_000, 50_000]
    fetch(site, tmp_path, sha256=SHA)
    assert (tmp_path / "file.zip").read_bytes() == BODY


def test_two_versions_of_a_file_are_never_glued_together(site: Site, tmp_path: Path) -> None:
    site.drops, site.etags = [100_000], ['"old"', '"new"']
    assert fetch(site, tmp_path).etag == '"new"'
    assert (tmp_path / "file.zip").read_bytes() == BODY
    assert site.asked[1]["If-Range"] == '"old"'


@pytest.mark.parametrize("etag", [None, 'W/"weak"'])
def test_without_a_version_that_can_be_compared_it_starts_again(
    site: Site, tmp_path: Path, etag: str | None
) -> None:
    site.drops, site.etags = [100_000], [etag]
    fetch(site, tmp_path, sha256=SHA)
    assert ranges(site) == [None, None]


def test_a_part_that_begins_elsewhere_is_not_taken(site: Site, tmp_path: Path) -> None:
    site.drops, site.skips = [100_000], 7
    fetch(site, tmp_path, sha256=SHA)
    assert (tmp_path / "file.zip").read_bytes() == BODY
    assert ranges(site) == [None, "bytes=100000-", None]


def test_a_part_of_another_version_is_not_taken_even_if_the_server_gives_it(
    site: Site, tmp_path: Path
) -> None:
    site.drops, site.etags, site.careless = [100_000], ['"old"', '"new"'], True
    fetch(site, tmp_path, sha256=SHA)
    assert ranges(site) == [None, "bytes=100000-", None]


def test_the_servers_passing_troubles_are_waited_for(site: Site, tmp_path: Path) -> None:
    site.statuses = [503, 429, 500]
    fetch(site, tmp_path, sha256=SHA)
    assert len(site.asked) == 4


def test_each_wait_is_twice_the_one_before_or_what_the_server_asks_for(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits: list[float] = []
    monkeypatch.setattr("vsecore.data.download.LONGEST_PAUSE", 6.0)
    monkeypatch.setattr("vsecore.data.download.time", SimpleNamespace(sleep=waits.append))
    site.drops = [0] * 5
    fetch(site, tmp_path)
    assert waits == [1, 2, 4, 6, 6]
    waits.clear()
    site.statuses, site.wait = [503, 503], "3"
    fetch(site, tmp_path)
    assert waits == [3, 3]


def test_a_missing_file_is_an_error_at_once_that_names_the_next_step(site: Site, tmp_path: Path) -> None:
    with pytest.raises(
        OSError, match=rf"{site.address}/nothing.zip: the server answers 404.*then say please"
    ):
        fetch(site, tmp_path, "nothing.zip", then="say please")
    assert len(site.asked) == 1 and left(tmp_path) == []


def test_nobody_there_is_an_error_that_says_so(tmp_path: Path) -> None:
    with pytest.raises(OSError, match=r"no connection .*2 times in a row; 0 of an unknown number"):
        download("http://127.0.0.1:9/file.zip", tmp_path / "file.zip", attempts=2)


def test_a_wrong_checksum_is_refused_and_thrown_away(site: Site, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=rf"sha256 {SHA} came, wanted sha256 {'0' * 64}"):
        fetch(site, tmp_path, sha256="0" * 64)
    assert left(tmp_path) == []


def test_bytes_that_were_damaged_on_the_disk_are_downloaded_again(site: Site, tmp_path: Path) -> None:
    site.drops = [100_000, 0, 0]
    with pytest.raises(OSError, match="dropped"):
        fetch(site, tmp_path, attempts=2)
    part = tmp_path / "file.zip.part"
    part.write_bytes(b"x" + part.read_bytes()[1:])
    site.drops = []
    fetch(site, tmp_path, sha256=SHA)
    assert (tmp_path / "file.zip").read_bytes() == BODY


@pytest.mark.parametrize("note", ["", "[]", "{}", '{"address": "http://x/file.zip", "etag": "\\"one\\""}'])
def test_a_part_of_unknown_origin_is_not_continued(site: Site, tmp_path: Path, note: str) -> None:
    (tmp_path / "file.zip.part").write_bytes(b"something else")
    (tmp_path / "file.zip.part.json").write_text(note)
    fetch(site, tmp_path)
    assert ranges(site) == [None]
    assert (tmp_path / "file.zip").read_bytes() == BODY and left(tmp_path) == ["file.zip"]


def test_a_part_that_was_whole_when_the_program_was_killed_is_taken(site: Site, tmp_path: Path) -> None:
    (tmp_path / "file.zip.part").write_bytes(BODY)
    note = {"address": f"{site.address}/file.zip", "etag": '"one"', "total": len(BODY)}
    (tmp_path / "file.zip.part.json").write_text(json.dumps(note))
    assert fetch(site, tmp_path, size=len(BODY)).sha256 == SHA
    assert len(site.asked) == 1  # answered by 416


def test_a_part_of_a_wrong_size_is_refused_even_if_the_server_has_no_more(site: Site, tmp_path: Path) -> None:
    (tmp_path / "file.zip.part").write_bytes(BODY)
    note = {"address": f"{site.address}/file.zip", "etag": '"one"', "total": len(BODY)}
    (tmp_path / "file.zip.part.json").write_text(json.dumps(note))
    with pytest.raises(ValueError, match="wanted 299,999"):
        fetch(site, tmp_path, size=299_999)
    assert left(tmp_path) == []


def test_a_part_that_is_too_long_is_thrown_away(site: Site, tmp_path: Path) -> None:
    (tmp_path / "file.zip.part").write_bytes(BODY + b"more")
    note = {"address": f"{site.address}/file.zip", "etag": '"one"', "total": len(BODY)}
    (tmp_path / "file.zip.part.json").write_text(json.dumps(note))
    fetch(site, tmp_path)
    assert (tmp_path / "file.zip").read_bytes() == BODY


def test_a_size_that_is_not_the_wanted_one_is_refused_before_anything_is_written(
    site: Site, tmp_path: Path
) -> None:
    with pytest.raises(ValueError, match=r"a file of 300,000 bytes, wanted 299,999"):
        fetch(site, tmp_path, size=299_999)
    assert left(tmp_path) == []


def test_a_server_that_promises_more_than_it_has_is_found_out(site: Site, tmp_path: Path) -> None:
    site.length = len(BODY) + 10
    with pytest.raises(OSError, match=r"wanted the file|times in a row"):
        fetch(site, tmp_path, attempts=3)
    assert not (tmp_path / "file.zip").exists()


def test_a_server_that_promises_less_than_it_has_is_found_out_by_size_or_digest(
    site: Site, tmp_path: Path
) -> None:
    site.length = len(BODY) - 10
    for known in ({"size": len(BODY)}, {"sha256": SHA}):
        with pytest.raises(ValueError, match="wanted"):
            fetch(site, tmp_path, **known)
    assert left(tmp_path) == []


def test_an_answer_of_unknown_length_may_not_be_longer_than_wanted(site: Site, tmp_path: Path) -> None:
    site.chunked = True
    assert not fetch(site, tmp_path).sized_by_server
    with pytest.raises(ValueError, match="more than the 1,000 bytes"):
        fetch(site, tmp_path, size=1000)


def test_a_page_in_place_of_a_zip_file_is_told_by_its_first_bytes(site: Site, tmp_path: Path) -> None:
    site.bodies["/file.zip"], site.kind = b"<html>Please log in</html>", "text/html"
    with pytest.raises(ValueError, match=r"wanted a zip file, and a file of type text/html.*Please log in"):
        fetch(site, tmp_path, start=ZIP)
    assert left(tmp_path) == []


def test_a_redirect_is_never_followed_to_where_less_is_safe(site: Site, tmp_path: Path) -> None:
    assert fetch(site, tmp_path, "moved.zip").sha256 == SHA
    with pytest.raises(OSError, match="302"):
        fetch(site, tmp_path, "away.zip", attempts=1)
    for address in ("file:///etc/passwd", "ftp://a/b", "/etc/passwd", "http:///x"):
        with pytest.raises(ValueError, match="wanted one that begins with http"):
            download(address, tmp_path / "x")
    asked = urllib.request.Request("https://secure/x")
    with pytest.raises(urllib.error.HTTPError, match="unsafe"):
        _Redirects().redirect_request(asked, io.BytesIO(), 302, "", HTTPMessage(), "http://open/x")


def test_a_full_disk_is_noticed_beforehand(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shutil.disk_usage", lambda path: Free)
    with pytest.raises(OSError, match=r"300,000 bytes are to come, and .* has 10 free"):
        fetch(site, tmp_path)
    archive = zipped(tmp_path / "a.zip", {"a/1": b"x" * 100})
    with pytest.raises(OSError, match=r"needs 100 bytes unpacked, and .* has 10 free"):
        unpack(archive, read_members(archive), tmp_path)


class Free:
    free = 10


# ---- unpacking


def zipped(
    path: Path, content: dict[str, bytes], change: Callable[[zipfile.ZipInfo], None] | None = None
) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in content.items():
            info = zipfile.ZipInfo("x")
            info.filename = name
            info.compress_type = zipfile.ZIP_DEFLATED
            if change:
                change(info)
            archive.writestr(info, data)
    return path


@pytest.mark.parametrize(
    "name",
    [
        "../out",
        "a/../../out",
        "/out",
        "a/..",
        "C:/out",
        "c:out",
        "a\\..\\out",
        "\\\\host\\out",
        "./a",
        "a//b",
        "a\nb",
        "a\0b",
        "a/" * 300 + "b",
    ],
)
def test_no_member_leaves_the_folder(tmp_path: Path, name: str) -> None:
    archive = zipped(tmp_path / "a.zip", {"good": b"1", name: b"2"})
    with pytest.raises(
        ValueError, match=r"a.zip cannot be unpacked: it has a member .*, wanted a path inside"
    ):
        read_members(archive, ("good",))  # also if that member is not wanted
    assert left(tmp_path) == ["a.zip"]


@pytest.mark.parametrize("kind", [stat.S_IFLNK, stat.S_IFCHR, stat.S_IFIFO, stat.S_IFSOCK])
def test_links_and_devices_are_refused(tmp_path: Path, kind: int) -> None:
    archive = zipped(
        tmp_path / "a.zip", {"a": b"/etc"}, lambda info: setattr(info, "external_attr", (kind | 0o777) << 16)
    )
    with pytest.raises(ValueError, match="is a link or a device"):
        read_members(archive)


def test_what_cannot_be_unpacked_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with zipfile.ZipFile(tmp_path / "a.zip", "w", zipfile.ZIP_BZIP2) as archive:
        archive.writestr("a", b"x" * 100)
    with pytest.raises(ValueError, match="packed by method 12, wanted deflate"):
        read_members(tmp_path / "a.zip")
    locked = bytearray(zipped(tmp_path / "b.zip", {"a": b"x"}).read_bytes())
    locked[locked.index(b"PK\x01\x02") + 8] |= 1  # a flag in the list of members
    (tmp_path / "b.zip").write_bytes(locked)
    with pytest.raises(ValueError, match="is encrypted"):
        read_members(tmp_path / "b.zip")
    many = zipped(tmp_path / "c.zip", {str(number): b"x" for number in range(4)})
    monkeypatch.setattr(unpacking, "MOST_MEMBERS", 3)
    with pytest.raises(ValueError, match="it has 4 members, wanted at most 3"):
        read_members(many)


def test_only_what_is_wanted_is_taken(tmp_path: Path) -> None:
    content = {name: b"x" for name in ("a.json", "a.json.old", "b/a.json", "val/1", "value/2")}
    members = read_members(zipped(tmp_path / "a.zip", content), ("a.json", "val/"))
    assert [member.name for member in members] == ["a.json", "val/1"]


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (["a", "A"], "are one file"),
        (["a", "a/b"], "both a file and a folder"),
        (["é", "e\u0301"], "one file"),
    ],
)
@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_two_members_never_become_one_file(tmp_path: Path, names: list[str], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        read_members(zipped(tmp_path / "a.zip", dict.fromkeys(names, b"x")))


def test_a_bomb_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    bomb = zipped(tmp_path / "a.zip", {f"{i}": bytes(2_000_000) for i in range(5)})
    with pytest.raises(ValueError, match=r"its content has 10,000,000 bytes, wanted at most"):
        read_members(bomb)
    assert read_members(bomb, most=10_000_000)


def test_a_bomb_that_lies_about_its_size_writes_no_more_than_it_says(tmp_path: Path) -> None:
    bomb = zipped(tmp_path / "a.zip", {"a": bytes(3_000_000)})
    raw = bytearray(bomb.read_bytes())
    at = raw.index(b"PK\x01\x02") + 24  # the size in the central directory
    raw[at : at + 4] = (1000).to_bytes(4, "little")
    bomb.write_bytes(raw)
    members = read_members(bomb)
    with pytest.raises(ValueError, match=r"a.zip cannot be unpacked"):
        unpack(bomb, members, tmp_path / "out")
    assert sum(path.stat().st_size for path in tmp_path.rglob("a")) <= 1000
    assert not (tmp_path / "out").exists()


def test_damaged_archives_are_refused_in_one_sentence(tmp_path: Path) -> None:
    whole = zipped(tmp_path / "a.zip", {"a": random.Random(1).randbytes(500), "b": b"x" * 500}).read_bytes()
    chance = random.Random(2)
    for turn in range(120):
        raw = bytearray(whole)
        if turn % 3:
            raw[chance.randrange(len(raw))] ^= 1 << chance.randrange(8)
        else:
            del raw[chance.randrange(len(raw)) :]
        (tmp_path / "b.zip").write_bytes(raw)
        out = tmp_path / f"out{turn}"
        try:
            unpack(tmp_path / "b.zip", read_members(tmp_path / "b.zip", most=10**6), out)
        except ValueError as error:
            assert "b.zip cannot be unpacked" in str(error)
            assert not out.exists()


def test_unpacking_continues_and_mends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    content = {f"pictures/{i}": random.Random(i).randbytes(1000) for i in range(9)}
    archive = zipped(tmp_path / "a.zip", {"pictures/": b"", **content})
    members = read_members(archive, ("pictures/",))
    assert len(members) == 9
    write, written = unpacking._write, []

    def stumble(opened: zipfile.ZipFile, member: Member, path: Path, bar: object) -> None:
        if len(written) == 5:
            path.write_bytes(b"half")
            raise KeyboardInterrupt
        written.append(member.name)
        write(opened, member, path, bar)

    monkeypatch.setattr(unpacking, "_write", stumble)
    with pytest.raises(KeyboardInterrupt):
        unpack(archive, members, tmp_path)
    assert not (tmp_path / "pictures").exists()  # half a folder never has its name
    monkeypatch.setattr(unpacking, "_write", lambda *a: (written.append(a[1].name), write(*a)))
    unpack(archive, members, tmp_path)
    assert sorted(written) == sorted(content)  # nothing twice
    assert {f"pictures/{p.name}": p.read_bytes() for p in (tmp_path / "pictures").iterdir()} == content
    (tmp_path / "pictures" / "3").write_bytes(b"damaged")
    (tmp_path / "pictures" / "own").write_bytes(b"kept")
    unpack(archive, [m for m in members if not m.is_whole(tmp_path / m.name)], tmp_path)
    assert (tmp_path / "pictures" / "3").read_bytes() == content["pictures/3"]
    assert (tmp_path / "pictures" / "own").exists() and left(tmp_path) == ["a.zip", "pictures"]


# ---- whole collections


def jpeg(number: int) -> bytes:
    out = io.BytesIO()
    Image.new("RGB", (40 + number, 30), (number * 9 % 256, 99, 5)).save(out, "JPEG")
    return out.getvalue()


PICTURES = {f"val2014/COCO_val2014_{i:012}.jpg": jpeg(i) for i in range(12)}


@pytest.fixture
def coco(site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A small COCO on the server: its real archives' names and shapes."""
    splits = ["train", "restval", "val", "test"]
    images = [
        {
            "filepath": "val2014",
            "filename": name.partition("/")[2],
            "cocoid": i,
            "split": splits[i % 4],
            "sentences": [{"raw": f"Caption {c} of {i} ."} for c in range(5)],
        }
        for i, name in enumerate(PICTURES)
    ]
    captions = json.dumps({"dataset": "coco", "images": images}).encode()
    packed = {"dataset_coco.json": captions, "dataset_flickr8k.json": b"{}"}
    place = tmp_path / "server"
    place.mkdir()
    site.bodies = {
        "/caption_datasets.zip": zipped(place / "c.zip", packed).read_bytes(),
        "/val2014.zip": zipped(place / "v.zip", PICTURES).read_bytes(),
    }
    small = Collection("dataset_coco.json", COLLECTIONS["coco"].archives[:2])
    monkeypatch.setitem(sources.COLLECTIONS, "coco", small)
    return tmp_path / "coco"


def run(*arguments: str | Path) -> tuple[int, str]:
    result = CliRunner().invoke(cli.app, [str(argument) for argument in arguments])
    said = result.output + (f"vse: {result.exception}" if result.exception else "")
    return result.exit_code, said


def test_one_command_gets_a_collection_that_is_ready(site: Site, coco: Path) -> None:
    site.drops = [300, 300, 300]
    code, said = run("data", "get", "coco", "--root", coco, "--from", site.address)
    assert code == 0, said
    assert "12 of 12 files unpacked" in said and "as the server said" in said
    assert "written down at this first download; nobody has confirmed it" in said
    assert left(coco) == [
        "caption_datasets.zip",
        "caption_datasets.zip.receipt.json",
        "dataset_coco.json",
        "val2014",
        "val2014.zip",
        "val2014.zip.receipt.json",
    ]
    assert run("data", "check", coco) == (0, run("data", "check", coco)[1])
    before = len(site.asked)
    code, said = run("data", "get", "coco", "--root", coco, "--from", site.address, "--delete-archives")
    assert code == 0 and "all files are there and whole (12)" in said and len(site.asked) == before
    assert not (coco / "val2014.zip").exists()
    receipt = read_receipt(coco / "val2014.zip")
    assert receipt and receipt.sha256_from == "first download" and receipt.size_from == "server"
    assert receipt.sha256 == hashlib.sha256(site.bodies["/val2014.zip"]).hexdigest()


def test_check_names_every_lost_file_and_the_command_that_brings_it_back(site: Site, coco: Path) -> None:
    collections.get("coco", coco, base=site.address, delete_archives=True, say=str)
    names = sorted(PICTURES)
    (coco / names[0]).unlink()
    (coco / names[1]).write_bytes(b"")
    flipped = bytearray(PICTURES[names[2]])
    flipped[-20] ^= 1  # still a picture, but not that one
    (coco / names[2]).write_bytes(flipped)
    code, said = run("data", "check", coco)
    assert code == 1
    assert f"lost: {names[0]}: missing" in said and f"lost: {names[1]}: cannot be read" in said
    assert f"lost: {names[2]}: damaged: not the bytes that were downloaded" in said
    assert said.count("lost: ") == 3 and f"next: vse data get coco --root {coco}\n" in said
    collections.get("coco", coco, base=site.address, say=str)
    assert all((coco / name).read_bytes() == data for name, data in PICTURES.items())
    assert check_photographs(coco).problems == check_photographs(coco).lost == []
    for name in names:
        (coco / name).unlink()
    assert check_photographs(coco).lost == ["val2014: all 12 missing"]


def test_a_damaged_receipt_is_told(site: Site, coco: Path) -> None:
    collections.get("coco", coco, base=site.address, say=str)
    receipt = coco / "val2014.zip.receipt.json"
    receipt.write_text(receipt.read_text().replace("val2014/COCO_val2014_000000000003", "../3"))
    (problem,) = check_photographs(coco).problems
    assert "val2014.zip.receipt.json" in problem and "wanted a path inside the folder" in problem
    assert f"Delete {receipt}" in problem


def test_a_file_that_has_changed_since_its_first_download_is_refused(site: Site, coco: Path) -> None:
    collections.get("coco", coco, base=site.address, delete_archives=True, say=str)
    other = bytearray(site.bodies["/val2014.zip"])
    other[-1:] = b""
    site.bodies["/val2014.zip"] = bytes(other)
    (coco / min(PICTURES)).unlink()
    with pytest.raises(ValueError, match=r"wanted .* delete .*val2014.zip.receipt.json first"):
        collections.get("coco", coco, base=site.address, say=str)


def test_an_archive_that_was_put_there_by_hand_is_used(site: Site, coco: Path) -> None:
    coco.mkdir()
    (coco / "val2014.zip").write_bytes(site.bodies.pop("/val2014.zip"))
    said: list[str] = []
    assert collections.get("coco", coco, base=site.address, say=said.append)
    assert any("val2014.zip: found in the folder" in line for line in said)
    assert (coco / min(PICTURES)).is_file()
    (coco / min(PICTURES)).unlink()
    (coco / "val2014.zip").write_bytes(b"PK other")
    with pytest.raises(ValueError, match=r"val2014.zip has 8 bytes .* delete it"):
        collections.get("coco", coco, base=site.address, say=str)


def test_a_wrong_zip_file_names_what_to_delete(site: Site, coco: Path) -> None:
    site.bodies["/val2014.zip"] = b"PK, or so it says"
    with pytest.raises(
        ValueError, match=r"cannot be unpacked: .*Delete .*val2014.zip, and give vse data get"
    ):
        collections.get("coco", coco, base=site.address, only=["val2014.zip"], say=str)
    site.bodies["/val2014.zip"] = site.bodies["/caption_datasets.zip"]
    (coco / "val2014.zip").unlink()
    with pytest.raises(ValueError, match=r"it holds no val2014/, but 'dataset_coco.json'"):
        collections.get("coco", coco, base=site.address, only=["val2014.zip"], say=str)
    with pytest.raises(ValueError, match=r"--only is 'x': coco has caption_datasets.zip, val2014.zip"):
        collections.get("coco", coco, only=["x"])


def test_the_publishers_size_and_digest_are_what_counts(
    site: Site, coco: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = site.bodies["/val2014.zip"]
    for sha256 in ("0" * 64, hashlib.sha256(data).hexdigest()):
        archive = Archive("http://x/val2014.zip", ("val2014/",), "", len(data), sha256)
        monkeypatch.setitem(sources.COLLECTIONS, "coco", Collection("dataset_coco.json", (archive,)))
        if sha256 == "0" * 64:
            with pytest.raises(ValueError, match="sha256"):
                collections.get("coco", coco, base=site.address, say=str)
    collections.get("coco", coco, base=site.address, say=str)
    receipt = read_receipt(coco / "val2014.zip")
    assert receipt and receipt.sha256_from == receipt.size_from == "publisher"


def test_pictures_behind_a_form_are_explained_step_by_step(site: Site, coco: Path, tmp_path: Path) -> None:
    folder = tmp_path / "flickr30k"
    entries = [
        {"filename": f"{i}.jpg", "split": split, "sentences": [{"raw": "A dog ."}] * 5}
        for i, split in enumerate(("train", "val", "test"))
    ]
    captions = json.dumps({"dataset": "flickr30k", "images": entries}).encode()
    archive = zipped(tmp_path / "f.zip", {"dataset_flickr30k.json": captions})
    site.bodies["/caption_datasets.zip"] = archive.read_bytes()
    code, said = run("data", "get", "flickr30k", "--root", folder, "--from", site.address)
    assert code == 1 and "form at https://forms.illinois.edu" in said
    assert f"tar -xzf flickr30k-images.tar.gz -C {folder}" in said and "{root}" not in said
    (folder / "flickr30k-images").mkdir()
    for i in range(3):
        (folder / "flickr30k-images" / f"{i}.jpg").write_bytes(jpeg(i))
    code, said = run("data", "get", "flickr30k", "--root", folder, "--from", site.address)
    assert code == 0 and said.endswith(f"next: vse data check {folder}\n")


def test_where_the_authors_server_has_gone_the_form_is_explained(site: Site, tmp_path: Path) -> None:
    site.bodies["/caption_datasets.zip"] = zipped(
        tmp_path / "f.zip", {"dataset_flickr8k.json": b"{}"}
    ).read_bytes()
    code, said = run("data", "get", "flickr8k", "--root", tmp_path / "f", "--from", site.address)
    assert code == 1 and "Flickr8k_Dataset.zip: the server answers 404" in said
    assert "Put it into" in said
    site.bodies["/Flickr8k_Dataset.zip"] = b"<html>We have moved</html>"
    code, said = run("data", "get", "flickr8k", "--root", tmp_path / "f", "--from", site.address)
    assert code == 1 and "begins with '<html>We have moved" in said and "Put it into" in said


@pytest.mark.skipif(files.fcntl is None, reason="this system has no such locks")
def test_two_processes_do_not_write_one_file(site: Site, coco: Path) -> None:
    coco.mkdir()
    with files.locked(coco, "is downloading into"), pytest.raises(BlockingIOError, match="another process"):
        collections.get("coco", coco, base=site.address, say=str)


def test_every_address_is_official_and_no_digest_is_invented() -> None:
    hosts = {archive.address.split("/")[2] for one in COLLECTIONS.values() for archive in one.archives}
    assert hosts == {"cs.stanford.edu", "images.cocodataset.org", "nlp.cs.illinois.edu"}
    for collection in COLLECTIONS.values():
        assert any(collection.captions in archive.takes for archive in collection.archives)
        for line in collection.by_hand:
            assert "{root}" not in line.format(root="here")


@pytest.mark.skipif(sys.platform == "win32", reason="signals")
def test_killed_at_random_moments_it_ends_as_if_undisturbed(site: Site, coco: Path) -> None:
    """The process has no heavy imports, so that many kills take little time."""
    pictures = {f"val2014/{i}.bin": random.Random(i).randbytes(9000) for i in range(80)}
    site.bodies["/val2014.zip"] = zipped(coco.parent / "big.zip", pictures).read_bytes()
    site.slow = 0.004
    program = (
        "import sys; from pathlib import Path; from vsecore.data import download, unpacking\n"
        "address, root = sys.argv[1], Path(sys.argv[2])\n"
        "path = root / 'val2014.zip'\n"
        "if not path.exists(): download.download(address, path, start=download.ZIP)\n"
        "print('began', flush=True)\n"
        "members = unpacking.read_members(path, ('val2014/',))\n"
        "unpacking.unpack(path, [m for m in members if not m.is_whole(root / m.name)], root)\n"
    )
    coco.mkdir()
    chance, kills = random.Random(3), 0
    command = [sys.executable, "-c", program, f"{site.address}/val2014.zip", str(coco)]
    while True:
        asked = len(site.asked)
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        while kills < 6 and process.poll() is None and len(site.asked) == asked:
            if (coco / "val2014.zip").exists():
                break
            time.sleep(0.005)
        try:
            process.wait(chance.uniform(0.0, 0.1) if kills < 6 else 30)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGKILL)
            process.wait()
            kills += 1
            continue
        assert process.returncode == 0
        break
    assert {f"val2014/{p.name}": p.read_bytes() for p in (coco / "val2014").iterdir()} == pictures
    assert left(coco) == ["val2014", "val2014.zip"]

import http.server
import random
import threading
import zipfile
from dataclasses import dataclass, field
from types import SimpleNamespace

import pytest
from typer.testing import CliRunner

from coco import make_coco
from small import contents
from vsecore import cli
from vsecore.data import collections, files
from vsecore.data.collections import download, unpack
from vsecore.data.karpathy import check_photographs

BODY = random.Random(0).randbytes(300_000)


@dataclass
class Site:
    """What a server does, and what it was asked. Each item of a list is for one answer."""

    bodies: dict[str, bytes] = field(default_factory=lambda: {"/file.zip": BODY})
    drops: list[int] = field(default_factory=list)
    """After how many bytes of an answer the connection is dropped."""
    statuses: list[int] = field(default_factory=list)
    ignores_range: bool = False
    skips: int = 0
    """How many bytes too far a partial answer begins."""
    asked: list[dict[str, str]] = field(default_factory=list)
    address: str = ""


@pytest.fixture
def site():
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
                self.answer(status if body is not None else 404, b"<html>no</html>", {})
            else:
                self.give(body)

        def give(self, body: bytes) -> None:
            asked = self.headers["Range"]
            if not asked or site.ignores_range:
                self.answer(200, body, {})
                return
            first = int(asked.removeprefix("bytes=").removesuffix("-")) + site.skips
            if first >= len(body):
                self.answer(416, b"", {"Content-Range": f"bytes */{len(body)}"})
            else:
                part = {"Content-Range": f"bytes {first}-{len(body) - 1}/{len(body)}"}
                self.answer(206, body[first:], part)

        def answer(self, status: int, body: bytes, told: dict[str, str]) -> None:
            self.send_response(status)
            for name, value in told.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            end = site.drops.pop(0) if site.drops and status < 300 else len(body)
            try:
                for begin in range(0, min(end, len(body)), 20_000):
                    self.wfile.write(body[begin : min(end, begin + 20_000)])
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
def unhurried(monkeypatch):
    monkeypatch.setattr("vsecore.data.collections.LONGEST_PAUSE", 0.0)
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)


def fetch(site, folder, name="file.zip", **options):
    download(f"{site.address}/{name}", folder / "file.zip", **options)  # type: ignore[arg-type]


def ranges(site):
    return [ask.get("Range") for ask in site.asked]


def left(folder):
    return sorted(path.name for path in folder.iterdir())


# What the server does, and which parts it is then asked for.
TROUBLES = {
    "none": ({}, [None]),
    "drops": ({"drops": [1000, 1000]}, [None, "bytes=1000-", "bytes=2000-"]),
    "ignores ranges": ({"ignores_range": True, "drops": [100_000]}, [None, "bytes=100000-"]),
    "another part": ({"drops": [100_000], "skips": 7}, [None, "bytes=100000-", None]),
    "busy": ({"statuses": [503, 429, 500]}, [None] * 4),
}


@pytest.mark.parametrize("trouble", TROUBLES)
def test_whatever_the_server_does_the_file_arrives_whole(site, tmp_path, trouble):
    does, asked = TROUBLES[trouble]
    vars(site).update(does)
    fetch(site, tmp_path)
    assert (tmp_path / "file.zip").read_bytes() == BODY
    assert left(tmp_path) == ["file.zip"]
    assert ranges(site) == asked
    assert site.asked[0]["Accept-Encoding"] == "identity"


def test_a_connection_that_brings_nothing_new_is_given_up_and_its_bytes_are_kept(site, tmp_path, monkeypatch):
    monkeypatch.setattr(collections, "ATTEMPTS", 3)
    site.drops = [*[1000] * 5, *[0] * 9]
    with pytest.raises(OSError, match=r"3 times in a row. The 5,000 bytes"):
        fetch(site, tmp_path)
    assert not (tmp_path / "file.zip").exists() and len(site.asked) == 5 + 2
    site.drops = []
    fetch(site, tmp_path)
    assert site.asked[-1]["Range"] == "bytes=5000-" and (tmp_path / "file.zip").read_bytes() == BODY


def test_what_will_not_come_is_told_and_leaves_nothing(site, tmp_path, monkeypatch):
    monkeypatch.setattr(collections, "ATTEMPTS", 2)
    with pytest.raises(OSError, match=rf"{site.address}/nothing.zip: the server answers 404"):
        fetch(site, tmp_path, "nothing.zip")
    assert len(site.asked) == 1
    with pytest.raises(OSError, match="no connection"):
        download("http://127.0.0.1:9/file.zip", tmp_path / "file.zip")
    assert left(tmp_path) == []
    site.bodies["/file.zip"] = b"<html>Please log in</html>"
    with pytest.raises(ValueError, match="Please log in"):
        fetch(site, tmp_path, begins=b"PK")
    assert not (tmp_path / "file.zip").exists()


@pytest.mark.parametrize(
    ("part", "asked"),
    [
        (BODY[:1000], ["bytes=1000-"]),
        (BODY, ["bytes=300000-"]),  # the run was killed at the end
        (BODY + b"more", ["bytes=300004-", None]),
    ],
    ids=["a part", "all", "more"],
)
def test_what_an_earlier_run_has_left(site, tmp_path, part, asked):
    (tmp_path / "file.zip.part").write_bytes(part)
    fetch(site, tmp_path)
    assert ranges(site) == asked
    assert (tmp_path / "file.zip").read_bytes() == BODY and left(tmp_path) == ["file.zip"]


def test_only_web_addresses_are_read_also_after_a_redirect(site, tmp_path, monkeypatch):
    monkeypatch.setattr(collections, "ATTEMPTS", 1)
    fetch(site, tmp_path, "moved.zip")
    assert (tmp_path / "file.zip").read_bytes() == BODY
    with pytest.raises(OSError, match="302"):
        fetch(site, tmp_path, "away.zip")
    for address in ("file:///etc/passwd", "ftp://a/b", "/etc/passwd", "http:///x"):
        with pytest.raises(ValueError, match="address"):
            download(address, tmp_path / "x")


def test_a_full_disk_is_noticed_beforehand(site, tmp_path, monkeypatch):
    monkeypatch.setattr("shutil.disk_usage", lambda _: SimpleNamespace(free=10))
    with pytest.raises(OSError, match="file"):
        fetch(site, tmp_path)
    with pytest.raises(OSError, match=r"a\.zip"):
        unpack(zipped(tmp_path / "a.zip", {"a/1": b"x" * 100}), "a/", tmp_path)


def zipped(path, content):
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in content.items():
            info = zipfile.ZipInfo("x")
            info.filename = name
            info.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(info, data)
    return path


@pytest.mark.parametrize("name", ["../out", "a/../../out", "/out", "C:/out", "a\\..\\out", "a\nb"])
def test_no_member_leaves_the_folder(tmp_path, name):
    archive = zipped(tmp_path / "a.zip", {name: b"2"})
    with pytest.raises(ValueError, match=r"a.zip cannot be unpacked"):
        unpack(archive, name, tmp_path)
    assert left(tmp_path) == ["a.zip"]


def test_only_what_is_wanted_is_taken_and_unpacking_mends(tmp_path):
    content = {f"val/{i}": random.Random(i).randbytes(1000) for i in range(9)}
    others = {name: b"x" for name in ("a.json", "a.json.old", "b/a.json", "value/2")}
    archive = zipped(tmp_path / "a.zip", {"val/": b"", **others, **content})
    assert unpack(archive, "a.json", tmp_path) == 1
    assert unpack(archive, "val/", tmp_path) == len(content)
    assert left(tmp_path) == ["a.json", "a.zip", "val"]
    (tmp_path / "val" / "3").write_bytes(bytes(1000))  # of the same size
    (tmp_path / "val" / "own").write_bytes(b"kept")
    (tmp_path / "val" / ".3.part").write_bytes(b"half")  # as a killed process leaves it
    unpack(archive, "val/", tmp_path)
    assert {path.name: path.read_bytes() for path in (tmp_path / "val").iterdir()} == {"own": b"kept"} | {
        name.removeprefix("val/"): data for name, data in content.items()
    }
    with pytest.raises(ValueError, match="it holds no train/"):
        unpack(archive, "train/", tmp_path)


@pytest.fixture
def coco(site, tmp_path):
    """A small COCO on the server: its real archives' names and shapes."""
    pictures = contents(make_coco(tmp_path / "server"))
    captions = {"dataset_coco.json": pictures.pop("dataset_coco.json"), "dataset_flickr8k.json": b"{}"}
    site.bodies = {"/caption_datasets.zip": zipped(tmp_path / "zip", captions).read_bytes()}
    for folder in ("train2014", "val2014"):
        packed = {name: data for name, data in pictures.items() if name.startswith(folder)}
        site.bodies[f"/{folder}.zip"] = zipped(tmp_path / "zip", packed).read_bytes()
    return tmp_path / "coco"


def run(*arguments):
    result = CliRunner().invoke(cli.app, [str(argument) for argument in arguments])
    said = result.output + (f"vse: {result.exception}" if result.exception else "")
    return result.exit_code, said


def test_one_command_gets_a_collection_and_brings_back_what_is_missing(site, coco):
    get = ("data", "get", "coco", "--root", coco, "--from", site.address)
    site.drops = [300, 300, 300]
    code, said = run(*get)
    assert code == 0, said
    whole = contents(coco.parent / "server")
    archives = {f"{name}.zip" for name in ("caption_datasets", "train2014", "val2014")}
    assert contents(coco).keys() == whole.keys() | archives
    assert run("data", "check", coco)[0] == 0
    before = len(site.asked)
    for archive in archives:
        (coco / archive).unlink()
    assert run(*get)[0] == 0 and len(site.asked) == before
    assert contents(coco) == whole
    elsewhere = coco / "images" / "val2014"  # where they are found too
    elsewhere.parent.mkdir()
    (coco / "val2014").rename(elsewhere)
    assert run(*get)[0] == 0 and len(site.asked) == before
    elsewhere.rename(coco / "val2014")
    lost, damaged = sorted(coco.glob("val2014/*"))[:2]
    lost.unlink()
    damaged.write_bytes(b"")
    code, said = run("data", "check", coco)
    assert code == 1 and lost.name in said and damaged.name in said
    assert f"vse data get coco --root {coco}" in said
    assert run(*get)[0] == 0
    assert contents(coco) == whole | {"val2014.zip": site.bodies["/val2014.zip"]}
    assert check_photographs(coco).problems == []


def test_a_damaged_archive_is_refused_and_two_processes_keep_apart(site, coco):
    coco.mkdir()
    with files.locked(coco, "is testing"), pytest.raises(BlockingIOError, match="another process"):
        collections.get("coco", coco, base=site.address, say=str)
    site.bodies["/val2014.zip"] = b"PK, or so it says"
    with pytest.raises(ValueError, match=r"val2014.zip cannot be unpacked.*vse data get"):
        collections.get("coco", coco, base=site.address, say=str)

"""The search page: what it finds, what it refuses, and how it looks in a browser with no network."""

import io
import threading
import time

import numpy as np
import pytest
from PIL import Image

from towers import make_photographs, make_towers

pytest.importorskip("qdrant_client", reason="needs the extra search")
pytest.importorskip("starlette", reason="needs the extra search")

from starlette.testclient import TestClient

from vsecore.search import Engine, Index
from vsecore.search.page import LARGEST, SMALL, Page

HOST = "http://127.0.0.1"


@pytest.fixture(scope="module")
def index(tmp_path_factory):
    root = tmp_path_factory.mktemp("page")
    make_towers(root / "towers", "clip")
    (root / "pictures").mkdir()
    make_photographs(root / "pictures", 12)
    (root / "pictures" / "0.png").rename(root / "pictures" / "<b>&'.png")
    wide = np.random.default_rng(0).integers(0, 256, (300, 900, 3), dtype=np.uint8)
    Image.fromarray(wide).save(root / "pictures" / "wide.png")
    built = Index.build(root / "pictures", Engine.of_recipe(str(root / "towers")), root / "index")
    yield built
    built.close()


@pytest.fixture(scope="module")
def client(index):
    return TestClient(Page(index), base_url=HOST, raise_server_exceptions=False)


def numbers_on(page):
    return [int(part.partition(".")[0]) for part in page.split('<img src="/small/')[1:]]


def test_a_sentence_a_picture_of_the_index_and_one_that_is_sent_find_what_the_index_finds(client, index):
    answer = client.get("/", params={"q": "a big dog"})
    assert answer.status_code == 200
    assert numbers_on(answer.text) == [one.number for one in index.search("a big dog", 24)]
    assert "What the score means" in answer.text and "cosine" in answer.text
    assert "reads only the first" in client.get("/", params={"q": "a big dog " * 99}).text
    asked, *found = numbers_on(client.get("/", params={"like": "3"}).text)
    assert asked == 3 and found == [one.number for one in index.like(3, 24)]
    content = index.store.entry(5).path.read_bytes()
    answer = client.post("/picture", files={"picture": ("mine.png", content, "image/png")})
    assert numbers_on(answer.text)[0] == 5 and "Pictures like mine.png" in answer.text


def test_pictures_are_sent_small_and_only_once(client, index, tmp_path):
    entry = next(entry for entry in index.store.entries() if entry.path.name == "wide.png")
    small, large = (client.get(f"/{size}/{entry.number}.jpg") for size in ("small", "large"))
    assert small.headers["content-type"] == "image/jpeg"
    assert Image.open(io.BytesIO(small.content)).size == (SMALL, SMALL // 3)
    assert Image.open(io.BytesIO(large.content)).size == (900, 300)
    seen = {"If-None-Match": small.headers["etag"]}
    assert client.get(f"/small/{entry.number}.jpg", headers=seen).status_code == 304
    aside = entry.path.rename(tmp_path / "aside.png")
    assert client.get(f"/large/{entry.number}.jpg").status_code == 404
    aside.rename(entry.path)


def test_no_other_file_can_be_asked_for(client):
    names = "../../../etc/passwd", "..%2f..%2fetc%2fpasswd", "99999999999999999999999999.jpg"
    asked = "/index.sqlite", "/?like=99999", f"/?like={'9' * 400}"
    for path in (*asked, *(f"/small/{name}" for name in names)):
        answer = client.get(path)
        assert answer.status_code == 404, path
        assert "root:" not in answer.text and "SQLite" not in answer.text


def test_what_people_write_never_becomes_html_and_bad_uploads_get_a_sentence(client):
    page = client.get("/", params={"q": '"><script>alert(1)</script>'}).text
    assert "<script" not in page
    assert "<b>&" not in page and "&lt;b&gt;&amp;" in page  # a file's name
    sent = client.post("/picture", files={"picture": ("<i>x.png", b"no picture", "image/png")})
    assert sent.status_code == 400 and "<i>" not in sent.text and 'role="alert"' in sent.text
    assert 'role="alert"' in client.post("/picture", files={"other": ("a", b"x")}).text
    assert client.post("/picture", content=b"nonsense").status_code == 400
    large = client.post("/picture", files={"picture": ("a.png", b"x" * (LARGEST + 1))})
    assert large.status_code == 413 and 'role="alert"' in large.text
    assert client.get("/picture").status_code == 405
    for side in (9000, 14000):  # small as a file, and large in memory
        Image.new("1", (side, side)).save(wide := io.BytesIO(), "PNG")
        assert client.post("/picture", files={"picture": ("a.png", wide.getvalue())}).status_code == 413
    elsewhere = {"headers": {"sec-fetch-site": "cross-site"}, "files": {"picture": ("a.png", b"x")}}
    assert client.post("/picture", **elsewhere).status_code == 403


def test_only_names_of_this_machine_are_answered_and_nothing_is_loaded_from_elsewhere(client):
    assert client.get("/", headers={"host": "evil.example"}).status_code == 400
    assert client.get("/", headers={"host": "localhost:8123"}).status_code == 200
    for path in ("/", "/?q=dog", "/style.css", "/small/1.jpg", "/nowhere"):
        answer = client.get(path)
        assert "default-src 'none'" in answer.headers["content-security-policy"]
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert b"http:" not in answer.content and b"https:" not in answer.content


@pytest.mark.browser
def test_the_page_in_a_browser(index):
    """By keyboard and by mouse, on a phone and on a desk, in light and dark; nothing asked of the network."""
    import uvicorn
    from axe_playwright_python.base import AXE_SCRIPT

    from coursebook.browser import browser
    from watched import need_chromium

    need_chromium()
    server = uvicorn.Server(uvicorn.Config(Page(index), port=0, log_level="warning"))
    serving = threading.Thread(target=server.run, daemon=True)
    serving.start()
    while not server.started:
        time.sleep(0.02)
    address = f"{HOST}:{server.servers[0].sockets[0].getsockname()[1]}"
    try:
        with browser() as chromium:
            for width, scheme in ((390, "dark"), (1280, "light")):
                page = chromium.new_context(
                    viewport={"width": width, "height": 800}, color_scheme=scheme, bypass_csp=True
                ).new_page()  # axe is a script, which the page itself would refuse
                asked, told = [], []
                page.on("request", lambda request, asked=asked: asked.append(request.url))
                page.on("console", lambda said, told=told: told.append((said.type, said.text)))
                page.goto(address)
                page.locator("#q:focus").press_sequentially("a big dog")  # it has the focus, once it is drawn
                page.keyboard.press("Enter")
                page.get_by_role("heading", name="Pictures for “a big dog”").wait_for()
                page.evaluate("document.querySelectorAll('img').forEach((one) => { one.loading = 'eager'; })")
                page.wait_for_function("[...document.images].every((one) => one.complete)")
                assert page.evaluate("[...document.images].every((one) => one.naturalWidth > 0 && one.alt)")
                assert page.locator("ol.found > li").count() == len(index)
                over = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
                assert page.evaluate(over) == 0
                page.evaluate(AXE_SCRIPT)
                violations = page.evaluate("axe.run().then((found) => found.violations.map((one) => one.id))")
                assert violations == []
                page.get_by_role("link", name="More like result 1,").click()
                page.get_by_role("heading", name="Pictures like").wait_for()
                page.get_by_text("Search with a picture of yours").click()
                page.set_input_files("#picture", index.store.entry(5).path)
                page.get_by_role("button", name="Find similar pictures").click()
                first = page.locator("ol.found img").first
                first.wait_for()
                assert first.get_attribute("src") == "/small/5.jpg"
                assert "error" not in dict(told)
                assert all(url.startswith((address, "data:")) for url in asked)
    finally:
        server.should_exit = True
        serving.join(10)

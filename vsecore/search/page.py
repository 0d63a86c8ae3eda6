"""A page to search pictures with, served to this machine alone.

It works without JavaScript and loads nothing from the network. A picture is asked for by its number in the
index, never by a path, so that no request can name another file; and what is sent is a new JPEG made from it.
"""

import io
import socket
import tempfile
import threading
from collections.abc import Sequence
from functools import partial
from importlib.resources import files
from pathlib import Path
from typing import Any

from jinja2 import Environment
from PIL import Image, ImageOps
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import UploadFile
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Route

from vsecore.data.picture_files import FORMATS, open_picture
from vsecore.search.index import Found, Index
from vsecore.search.store import Entry

TOP = 24
"""How many pictures a page shows."""
LARGEST = 32 * 2**20
"""The most bytes of a picture that is sent to search with."""
MOST_PIXELS = 80_000_000
"""The most pixels of one: transparent, and read several times over, they take some 1.5 GB of memory."""
LONGEST = 1000
"""The most characters of a sentence."""
SMALL, LARGE = 360, 1600
"""The longer side of a small and of a large copy of a picture is at most this, in pixels."""
HOST = "127.0.0.1"
"""Where the page is served: only this machine reaches it."""

_HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; img-src 'self' data:; style-src 'self'; form-action 'self'; base-uri 'none'; "
        "frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
}


class Page(Starlette):
    """The page as an application that any ASGI server can serve.

    It may be asked for by this machine's own names alone: a page on the web cannot read one's pictures by
    giving it another.
    """

    def __init__(self, index: Index) -> None:
        self.index, self._one_upload = index, threading.Lock()
        kept = files("vsecore.search")
        environment = Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True)
        self.template = environment.from_string((kept / "page.html.jinja").read_text("utf-8"))
        css = Response((kept / "page.css").read_text("utf-8"), media_type="text/css", headers=_HEADERS)
        super().__init__(
            routes=[
                Route("/", self._home),
                Route("/picture", self._by_picture, methods=["POST"]),
                Route("/small/{number:int}.jpg", partial(self._copy, side=SMALL)),
                Route("/large/{number:int}.jpg", partial(self._copy, side=LARGE)),
                Route("/style.css", lambda _: css),
            ],
            middleware=[Middleware(TrustedHostMiddleware, allowed_hosts=[HOST, "localhost"])],
            exception_handlers={HTTPException: self._refused},
        )

    def _home(self, request: Request) -> Response:
        sentence = request.query_params.get("q", "")[:LONGEST].strip()
        if like := request.query_params.get("like", ""):
            entry = self._entry(int(like) if like.isdecimal() and len(like) <= 18 else 0)
            found = self.index.like(entry.number, TOP)
            return self._show(found, title=f"Pictures like {_shown(entry.path)}", like=entry.number)
        if not sentence:
            return self._show()
        found, notes = self.index.search(sentence, TOP), self.index.engine.notes(sentence)
        return self._show(found, sentence=sentence, title=f"Pictures for “{sentence}”", notes=notes)

    async def _by_picture(self, request: Request) -> Response:
        """What looks like a picture that was sent. The picture is not kept."""
        if request.headers.get("sec-fetch-site", "none") not in ("same-origin", "none"):
            raise HTTPException(403, "Another page sent this picture: choose it on this page.")
        length = request.headers.get("content-length", "")
        if not length.isdecimal() or int(length) > LARGEST:
            raise HTTPException(413, f"The picture is too large: at most {LARGEST >> 20} MB.")
        async with request.form(max_files=1, max_fields=1) as form:  # read by python-multipart
            sent = form.get("picture")
            content = await sent.read() if isinstance(sent, UploadFile) else b""
            name = (sent.filename or "your picture") if isinstance(sent, UploadFile) else ""
        if not content:
            raise HTTPException(400, "No picture was sent: choose a file first.")
        return await run_in_threadpool(self._by_content, content, name)

    def _by_content(self, content: bytes, name: str) -> Response:
        with tempfile.TemporaryDirectory() as folder, self._one_upload:
            sent = Path(folder) / "picture"
            sent.write_bytes(content)
            try:
                with Image.open(sent, formats=FORMATS) as picture:
                    pixels = picture.width * picture.height
            except Image.DecompressionBombError:
                pixels = MOST_PIXELS + 1
            except Exception:  # Pillow's for what is no picture are of many kinds; the search refuses it
                pixels = 0
            if pixels > MOST_PIXELS:
                raise HTTPException(413, f"{name} has too many pixels: save it smaller.")
            try:
                found = self.index.search(sent, TOP)
            except ValueError:
                raise HTTPException(400, f"{name} cannot be read: save it as JPEG or PNG.") from None
        return self._show(found, title=f"Pictures like {name}")

    def _copy(self, request: Request, side: int) -> Response:
        """A picture of the index as JPEG; without EXIF, so without the place where it was taken."""
        entry = self._entry(request.path_params["number"])
        headers = _HEADERS | {"Cache-Control": "no-cache", "ETag": f'"{entry.digest}"'}
        if request.headers.get("if-none-match") == headers["ETag"]:  # the browser has it
            return Response(status_code=304, headers=headers)
        try:
            picture = open_picture(entry.path, at_least=side)
        except ValueError:  # the file is gone, or broken, since it was indexed
            raise HTTPException(
                404, "This picture is not where it was: run vse search index again."
            ) from None
        if max(picture.size) > side:
            picture = ImageOps.contain(picture, (side, side), Image.Resampling.LANCZOS)
        written = io.BytesIO()
        picture.save(written, "JPEG", quality=85)
        return Response(written.getvalue(), media_type="image/jpeg", headers=headers)

    async def _refused(self, request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)  # by its registration
        return self._show(problem=error.detail, title="That did not work", status=error.status_code)

    def _entry(self, number: int) -> Entry:
        try:
            return self.index.store.entry(number)
        except (KeyError, OverflowError):
            raise HTTPException(404, "There is no such picture.") from None

    def _show(self, found: Sequence[Found] = (), *, status: int = 200, **about: Any) -> Response:
        about = {"title": "", "sentence": "", "like": None, "notes": (), "problem": ""} | about
        content = self.template.render(
            about,
            found=[(one, _shown(one.path)) for one in found],
            count=len(self.index),
            model=Path(self.index.engine.name).name,  # whoever searches need not know where it lies
            has_sets=self.index.engine.has_sets,
            by_cosine=self.index.engine.by_cosine,
            longest=LONGEST,
            is_local=self.index.url is None,
        )
        return HTMLResponse(content, status, headers=_HEADERS)


def serve(index: Index, port: int = 8123) -> None:
    """Serve the page until the program is stopped."""
    import uvicorn

    try:  # uvicorn itself would end the program
        listening = socket.create_server((HOST, port))
    except OSError as error:
        raise OSError(f"--port {port} cannot be used ({error.strerror}): name another port") from None
    with listening:
        settings = uvicorn.Config(Page(index), log_level="warning", server_header=False)
        uvicorn.Server(settings).run([listening])


def _shown(path: Path) -> str:
    """Return a file's name as text that can be shown, whatever bytes are in it."""
    return path.name.encode(errors="backslashreplace").decode()

"""What a browser complains of while it shows a page, and what a page would ask the network for."""

from contextlib import contextmanager

import pytest
from playwright.sync_api import Page

from course.batch import CourseError
from coursebook.browser import browser, find_chromium, open_page


class Complaints(list[str]):
    """What a browser has to say against a page while it is watched."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self.watched = {
            "console": lambda said: self.append(f"console: {said.text}") if said.type == "error" else None,
            "pageerror": lambda error: self.append(f"script: {error}"),
            # Aborted is what the reader leaves by going on to the next page.
            "requestfailed": lambda request: (
                None if request.failure == "net::ERR_ABORTED" else self.append(f"failed: {request.url}")
            ),
            "request": lambda request: self._far(request.url),
        }

    def _far(self, address: str) -> None:
        if not address.startswith(("file:", "data:", "blob:")):
            self.append(f"asked the network: {address}")

    def __enter__(self) -> "Complaints":
        for event, listener in self.watched.items():
            self.page.on(event, listener)
        return self

    def __exit__(self, *_: object) -> None:
        for event, listener in self.watched.items():
            self.page.remove_listener(event, listener)


def need_chromium():
    try:
        find_chromium()
    except CourseError as error:
        pytest.skip(str(error))


@contextmanager
def opened_without_complaint(path, ready, **options):
    """Open a file in a browser with the network cut, wait for a part of it, and allow no complaint."""
    need_chromium()
    with browser() as running:
        page = open_page(running, **options)
        with Complaints(page) as complaints:
            page.goto(path.as_uri())
            page.locator(ready).first.wait_for(state="attached")
            yield page
        assert not complaints

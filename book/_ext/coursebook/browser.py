"""The browser that prints the book and proves it: Chromium, as the system has it, with the network cut."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from course.batch import CourseError

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

PROGRAMS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")


def find_chromium() -> str:
    """Return the path of an installed Chromium, or raise a CourseError that says how to get one."""
    if program := next(filter(None, map(shutil.which, PROGRAMS)), None):
        return program
    raise CourseError(
        f"no Chromium is installed (looked for {', '.join(PROGRAMS)}); on Debian and Ubuntu: "
        "apt-get install chromium; elsewhere: install Chromium or Chrome and put it on the PATH"
    )


@contextmanager
def browser() -> Iterator[Browser]:
    """Start the system's Chromium without a window, for as long as the block lasts."""
    program = find_chromium()
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        running = playwright.chromium.launch(executable_path=program)
        try:
            yield running
        finally:
            running.close()


def open_page(running: Browser, **options: Any) -> Page:
    """Open a page that cannot reach the network; options are a browser context's (viewport, color_scheme)."""
    return running.new_context(offline=True, **options).new_page()


def settle(page: Page) -> None:
    """Wait until formulas are set, pictures are in, and widgets and the explainer stand where they belong."""
    page.evaluate("window.MathJax?.startup?.promise")
    explained = ".explainer:not(:has(.ex-results img)), .explainer:not(:has(.ex-film))"
    page.wait_for_function(f"!document.querySelector('{explained}')", timeout=60_000)
    page.evaluate("Promise.all([...document.images].map((image) => image.decode().catch(() => null)))")
    page.wait_for_function(
        "!document.querySelector('script[type=\"application/vnd.jupyter.widget-view+json\"]')", timeout=10_000
    )

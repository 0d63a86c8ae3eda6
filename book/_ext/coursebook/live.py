"""The place of the search on the first notebook's page; `book/_static/live.js` fills it."""

from __future__ import annotations

PLACE = """<div class="live-search">
<p class="live-fallback">Type a sentence, and the pictures that fit it best appear. This search runs in your
browser and needs JavaScript, which is off here. The cells below show what it finds.</p>
</div>
"""
"""What the page holds where JavaScript is off; the script puts the search in its place."""


def put_search_first(source: str) -> str:
    """Put the place of the search below the title, if this cell's Markdown begins with the page's title."""
    if not source.startswith("# "):
        return source
    title, _, rest = source.partition("\n")
    return f"{title}\n\n{PLACE}\n{rest.lstrip()}"

"""Tables, and numbers with what they count, as results are written."""

import math
import re
from collections.abc import Collection, Sequence

from vsecore.experiments.statistics import interval
from vsecore.experiments.tables import markdown_table


def table(heads: Sequence[str], rows: Sequence[Sequence[str]], style: str = "") -> str:
    """A Markdown table, if need be of a class of the stylesheet's; "" without rows."""
    text = markdown_table(heads, rows) if rows else ""
    return f":::{{table}}\n:class: {style}\n\n{text}\n:::" if text and style else text


def signed(value: float, digits: int = 1) -> str:
    """A difference with its sign; none that is 0 is negative."""
    return f"{round(value, digits) + 0.0:+.{digits}f}"


def typeset(text: str) -> str:
    """The text with a minus sign before its negative numbers, in place of a hyphen."""
    return re.sub(r"(?<![\w-])-(?=\d)", "\N{MINUS SIGN}", text)


def reach(values: Sequence[float], digits: int = 1) -> str:
    """Half of a mean's 95 % interval as it follows the mean, on the same line; of one value there is none."""
    low, high = interval(values)
    return "" if math.isnan(low) else f"{_FIXED}±{_FIXED}{(high - low) / 2:.{digits}f}"


_FIXED = "\N{NO-BREAK SPACE}"


def mean(values: Collection[float], digits: int = 1) -> str:
    """A mean with its 95 % interval; one value has none."""
    if not values:
        return "–"
    low, high = interval(list(values))
    middle = f"{sum(values) / len(values):.{digits}f}"
    return middle if math.isnan(low) else f"{middle} ({low:.{digits}f} to {high:.{digits}f})"


def counted(count: int, noun: str) -> str:
    """A count and what is counted: "1 remark", "2 remarks"."""
    return f"{count} {noun}{'' if count == 1 else 's'}"

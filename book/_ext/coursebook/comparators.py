"""What other papers report on the usual collections: the systems that a reader will compare with."""

from __future__ import annotations

from coursebook.wording import table
from vsecore import records

COLLECTIONS = {
    "flickr30k": "Flickr30K, 1,000 test pictures",
    "coco, mean of five": "COCO 1K, the mean of five folds",
    "coco, 5,000": "COCO 5K",
    "coco, 1,000": "COCO, 1,000 test pictures as the thesis chose them",
}
"""How the names of their data in `assets/published.json` begin, and what a reader calls them."""


def comparators() -> str:
    """All published sums, a folded table for each collection, the highest first."""
    lines = [
        "## Where the field stands",
        "What papers report, the highest sum first. A system that was trained on millions of pairs before, "
        "an average of two models and a single small model cannot be ranked against each other, so each row "
        "says what it is. Where we found all six recalls, we added them up ourselves. The last column says "
        "where we read them, and what we could not check.",
    ]
    for begins, title in COLLECTIONS.items():
        rows = [(row.rsum, row) for row in records.published() if row.data.startswith(begins)]
        ranked = sorted(((rsum, row) for rsum, row in rows if rsum is not None), key=lambda one: -one[0])
        cells = [
            [row.system, row.backbone, str(row.models), row.pairs_before, f"{rsum:.1f}", row.read_in]
            for rsum, row in ranked
        ]
        heads = ["system", "pictures and captions", "models", "pairs before", "rsum", "read in"]
        lines.append(f"::::{{dropdown}} {title}\n\n{table(heads, cells)}\n\n::::")
    return "\n\n".join(lines)

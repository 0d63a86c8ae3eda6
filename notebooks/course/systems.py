"""The systems of the course in one picture: which part each takes at each stage, read from its recipe."""

import re
import textwrap
from collections.abc import Mapping

import matplotlib.pyplot as plt
from matplotlib.figure import Figure

from course.plots import COLOURS
from course.sketch import canvas
from vsecore.experiments import get_experiment
from vsecore.recipes import Part, Recipe, get

SYSTEMS: dict[str, tuple[int, str, str]] = {
    "VSE++": (2018, "cross_attention", "VSE++"),
    "SCAN": (2018, "cross_attention", "SCAN t2i"),
    "VSRN": (2019, "cross_attention", "VSRN"),
    "PVSE": (2019, "set_similarities", "PVSE"),
    "BFAN": (2019, "cross_attention", "BFAN prob"),
    "thesis": (2019, "relational_losses", "pooling"),
    "TERN": (2020, "cross_attention", "TERN"),
    "AOQ": (2020, "offline_losses", "VSRN + AdapOffQuin"),
    "PCME": (2021, "set_similarities", "PCME"),
    "VSE∞": (2021, "2ad_systems", "VSE∞"),
    "2AD": (2022, "2ad_systems", "VSE+2AD"),
    "DivE": (2023, "set_similarities", "DivE"),
    "LTD": (2023, "latent_targets", "BL + LTD, constraint"),
}
"""Each system's year, and the experiment and the arm that it is."""
STAGES = ("encode", "pool", "compare", "learn")
READABLE = {
    "0-layer transformer": "word vectors + bidirectional GRU",
    "4-layer transformer, 2-layer transformer": "Transformer, 4 + 2 layers",
    "transformer, 2-layer transformer": "Transformer + 2 layers",
    "forward gru": "GRU",
    "gru last": "GRU over elements",
    "region graph": "graph of regions",
    "region": "regions",
    "gru": "bidirectional GRU",
    "transformer": "Transformer",
    "projected": "mean, network",
    "last": "last state",
    "first": "first element",
    "none": "keeps all",
    "adpool": "AdPool",
    "adopt": "AdOpt",
    "gpo": "GPO",
    "pie net": "PIE-Net",
    "gaussian": "Gaussian",
    "mil": "MIL",
    "mmd": "MMD",
    "info nce": "InfoNCE",
}
"""What the picture calls parts whose names in recipes are short."""
_PARTS = re.compile("|".join(rf"\b{name}\b" for name in READABLE))


def recipe_of(system: str) -> Recipe:
    """Return the recipe of one of `SYSTEMS`, at full size and on regions."""
    _, experiment, arm = SYSTEMS[system]
    (candidates,) = get_experiment(experiment).systems(arm, "region")
    return get(candidates.recipes[0])


def choices(recipe: Recipe) -> dict[str, str]:
    """Say which parts a recipe takes at each stage, by the names that its own fields have.

    The first line of "encode" is about pictures, the second about captions; so it is of "pool" if the two
    differ.
    """
    towers = recipe.image, recipe.text
    encoders = ((tower.encoder, tower.reasoner, recipe.shared) for tower in towers)
    pools = ["none" if tower.pool is None else _told(tower.pool) for tower in towers]
    losses = " + ".join(("" if one.weight == 1 else f"{one.weight:g} ") + _told(one) for one in recipe.losses)
    return {
        "encode": "\n".join(", ".join(map(_told, filter(None, parts))) for parts in encoders),
        "pool": "\n".join(dict.fromkeys(pools)),
        "compare": _told(recipe.similarity),
        "learn": losses + (", in two rounds" if recipe.first_round else ""),
    }


def _told(part: Part) -> str:
    layers = f"{part.options['layers']}-layer " if "layers" in part.options else ""
    return layers + part.name.replace("_", " ")


def picture(recipes: Mapping[str, Recipe]) -> Figure:
    """Draw `SYSTEMS` as rows and stages as columns; what differs from the first row is coloured."""
    rows = {
        name: {
            stage: _PARTS.sub(lambda part: READABLE[part[0]], told) for stage, told in choices(recipe).items()
        }
        for name, recipe in recipes.items()
    }
    first = next(iter(rows.values()))
    figure, axes = canvas((9.2, 0.9 + 0.48 * len(rows)), (0, 9.3), (len(rows) - 0.5, -1.1))
    columns = {"encode": (0.95, 2.62), "pool": (3.57, 1.6), "compare": (5.17, 1.58), "learn": (6.75, 2.55)}
    for (stage, (start, width)), colour in zip(columns.items(), COLOURS, strict=False):
        axes.text(start, -0.75, stage, weight="bold")
        for place, row in enumerate(rows.values()):
            new = row[stage] != first[stage]
            shade = colour if new else "0.8"
            patch = plt.Rectangle((start, place - 0.44), width - 0.08, 0.88, fc=shade, alpha=0.22, lw=0)
            axes.add_patch(patch)
            lines = row[stage] if "\n" in row[stage] else textwrap.fill(row[stage], round(11.5 * width))
            ink, x = "black" if new else "0.35", start + 0.06
            axes.text(x, place, lines, va="center", fontsize=10, linespacing=1.05, color=ink)
    for place, name in enumerate(rows):
        axes.text(0, place, f"{name}\n{SYSTEMS[name][0]}", va="center", weight="bold", fontsize=10)
    return figure


def words_for(recipes: Mapping[str, Recipe]) -> str:
    """Say what `picture` shows, for a reader who cannot see it: where each system leaves the first."""
    rows = {name: choices(recipe) for name, recipe in recipes.items()}
    (base, first), *others = rows.items()
    differences = (
        f"{name}: {', '.join(stage for stage in STAGES if row[stage] != first[stage]) or 'nothing'}"
        for name, row in others
    )
    return (
        f"A row for each system, with its parts to encode, pool, compare and learn. Coloured is what differs "
        f"from {base}. {'; '.join(differences)}."
    )

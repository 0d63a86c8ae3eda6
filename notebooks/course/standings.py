"""The scoreboard that runs through the course: one protocol, and a few more rows in each notebook."""

from collections.abc import Mapping
from functools import cache

import torch
from IPython.display import Markdown

from course.wording import mean, table
from vsecore import records, scenes
from vsecore.experiments import RESULTS, Studied, studied
from vsecore.paths import results
from vsecore.recipes import Recipe

ROWS: dict[str, dict[str, tuple[str, str]]] = {
    "04": {"VSE++": ("cross_attention", "VSE++")},
    "05": {"Transformers (thesis)": ("relational_losses", "basic")},
    "06": {
        "thesis + node pooling": ("relational_losses", "pooling"),
        "thesis + node cross-attention": ("relational_losses", "CA"),
    },
    "07": {
        "SCAN, text to image": ("cross_attention", "SCAN t2i"),
        "SCAN, image to text": ("cross_attention", "SCAN i2t"),
        "BFAN": ("cross_attention", "BFAN prob"),
        "VSRN": ("cross_attention", "VSRN"),
    },
    "09": {"AOQ: VSRN and AdapOffQuin": ("one_protocol", "AOQ")},
    "11": {"VSE∞": ("one_protocol", "VSE∞"), "2AD: AdPool and AdOpt": ("2ad_systems", "VSE+2AD")},
    "12": {
        "2AD, regions and grid": ("2ad_ensembles", "RG"),
        "2AD, regions, grid and patches": ("2ad_ensembles", "RGP"),
    },
    "14": {
        "PVSE": ("one_protocol", "PVSE"),
        "PCME": ("one_protocol", "PCME"),
        "DivE": ("one_protocol", "DivE"),
    },
    "15": {"InfoNCE (baseline of LTD)": ("latent_targets", "BL")},
    "16": {
        "LTD, second loss": ("latent_targets", "BL + LTD, dual"),
        "LTD, constraint": ("latent_targets", "BL + LTD, constraint"),
    },
    "17": {
        "TERN": ("cross_attention", "TERN"),
        "2AD on whole input": ("combined", "2AD on whole input"),
        "2AD + latent target": ("combined", "2AD + latent target"),
        "2AD + offline negatives": ("combined", "2AD + offline negatives"),
        "2AD + relations": ("combined", "2AD + relations"),
        "2AD + all three": ("combined", "2AD + all three"),
    },
}
"""What each notebook adds, by the name of the row: an experiment and one of its arms. Only arms that were
trained on regions of the plain world, at the fair scale, belong here; the others have other pictures."""
BASELINE = "ridge regression"


def scoreboard(notebook: str) -> Markdown:
    """Return the scoreboard as it stands at the end of a notebook, as a table; the best rsum comes first.

    All rows have the same pictures and captions (the drawn world, 4,000 pictures to train on and 1,000 to
    test), the same regions, width and number of epochs. Each learning rate is tuned on the development split.
    A number is the mean over seeds, with its 95 % interval. Rows that this notebook adds are bold.
    `course.scoreboard("07")` needs a cell with the tags "hide-input", "results" and "nbval-ignore-output".
    """
    arms, new = found(notebook), ROWS.get(notebook, {})
    linear, lines = arms["VSE++"].baseline, []
    for name, arm in arms.items():
        called = f"**{name}**" if name in new else name
        means = [mean(arm.results.get(way, {}).values()) for way in WAYS]
        lines.append((arm.rsum, [called, *means, _parameters(arm), str(len(arm.seeds))]))
    lines.append((linear["rsum"], [BASELINE, *(f"{linear[way]:.1f}" for way in WAYS), "", ""]))
    lines.sort(key=lambda line: -line[0])
    return Markdown(table(HEADS, [row for _, row in lines]))


WAYS = ("rsum", "i2t_map_at_r", "t2i_map_at_r")
HEADS = ["system", "rsum", "mAP@R to text, %", "mAP@R to picture, %", "parameters", "seeds"]


def found(notebook: str) -> dict[str, Studied]:
    """Return what is recorded about the rows of a notebook's scoreboard, in the order of the course."""
    arms = {name: arm for number, rows in ROWS.items() if number <= notebook for name, arm in rows.items()}
    return studied(arms, "scenes", "region")


def costs(arms: Mapping[str, Studied]) -> Markdown:
    """Return what each row of a scoreboard costs, as a table; the best rsum comes first.

    Machines were shared while they trained, so the fastest of at least three seeds stands for a training.
    """
    queries, rows = query_ms(), []
    for name, arm in sorted(arms.items(), key=lambda one: -one[1].rsum):
        seconds = [one.seconds for one in _records(arm)]
        minutes = f"{min(seconds) / 60:.1f}" if len(seconds) > 2 else "–"
        query = f"{queries[name]:.1f}" if name in queries else "–"
        rows.append([name, f"{arm.rsum:.1f}", _parameters(arm), minutes, query])
    return Markdown(table(["system", "rsum", "parameters", "minutes to train", "ms a query"], rows))


def query_ms() -> dict[str, float]:
    """Return the milliseconds for a query of each row that is one system (`tests/benchmarks/queries.py`)."""
    found = records.find(results(), name="benchmark_queries")
    return {row: ms for one in found for row, ms in one.metrics.items()}


def _records(arm: Studied) -> list[records.Record]:
    name, digest = arm.title
    return records.find(RESULTS, name=name, config_hash=digest)


def recipe_of(arm: Studied) -> Recipe | None:
    """Return the recipe that an arm was trained by, with its learning rate; None if it is several systems."""
    return Recipe.from_dict(_records(arm)[0].config) if len(arm.trainings) == 1 else None


def _parameters(arm: Studied) -> str:
    """The parameters of an arm's model: those that are recorded or, before they were, those of its recipe."""
    if recorded := arm.results.get("parameters"):
        return f"{next(iter(recorded.values())):,.0f}"
    if (recipe := recipe_of(arm)) is None:
        return "–"
    with torch.device("meta"):
        model = recipe.build(_records(arm)[0].data["feature_dim"], recipe.tokenizer(_captions()))
    return f"{sum(weight.numel() for weight in model.parameters()):,}"


@cache
def _captions() -> list[str]:
    return [caption.text for one in scenes.pictures("train", 4000) for caption in one.captions]

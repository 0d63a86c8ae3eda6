"""Experiments: systems side by side on the same data, from several seeds, and what they say about a claim.

An experiment is a recipe and some variants of it, its arms. `run` trains what is not recorded yet; `table`
and `verdicts` read the records. The claims that the arms are held against stand in `assets/claims.yml`.
"""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Literal

import yaml
from torch import Tensor

from vsecore import records
from vsecore.data.loader import Dataset
from vsecore.losses import adopt_k
from vsecore.recipes import Recipe, get
from vsecore.training import Event, evaluate_split, fit, identity

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "assets" / "results" / "experiments"
CLAIMS = ROOT / "assets" / "claims.yml"

Verdict = Literal["reproduced", "not on this data", "contradicted", "not tried"]
SIGNIFICANCE = 0.05  # of a one-sided paired t-test


@dataclass(frozen=True)
class Arm:
    """One system of an experiment."""

    variants: str = ""  # of the experiment's recipe, as `recipes.get` reads them: "+gpo"
    published: str = ""  # what `assets/published.json` calls it; "": the paper has no number


@dataclass(frozen=True)
class Experiment:
    """Systems that differ in one thing."""

    question: str
    source: str  # where the paper asks it
    recipe: str  # what all arms are variants of, "{features}" standing for what an element is
    arms: dict[str, Arm]  # by the name that the paper gives them

    def system(self, arm: str, features: str, scale: Mapping[str, Any]) -> Recipe:
        """The recipe of an arm, at a scale."""
        if arm not in self.arms:
            raise ValueError(f"arm {arm!r} is unknown: there are {', '.join(self.arms)}")
        return get(self.recipe.format(features=features) + self.arms[arm].variants).override(scale)


EXPERIMENTS: dict[str, Experiment] = {
    "2ad_pooling": Experiment(
        "Which pooler is best under the same loss?",
        "Zhang et al. 2022 (2AD), tables 4 and A.1",
        "2ad_{features}_gru",
        {
            "AdPool": Arm("", "VSE+2AD (R, BiGRU)"),
            "GPO": Arm("+gpo", "VSE+2AD with GPO"),
            "SelfAttn": Arm("+self_attention", "VSE+2AD with SelfAttn"),
            "SoftPool": Arm("+soft", "VSE+2AD with SoftPool"),
            "Manual": Arm("+manual", "VSE+2AD with Manual"),
            "GCN": Arm("+gcn", "VSE+2AD with GCN"),
            "AdaPool": Arm("+ada", "VSE+2AD with AdaPool"),
            "Seq2Seq": Arm("+seq2seq", "VSE+2AD with Seq2Seq"),
            "LIP": Arm("+lip", "VSE+2AD with LIP"),
            "mean": Arm("+mean", "VSE+2AD without AdPool"),
            "max": Arm("+max"),
            "5-max": Arm("+kmax"),
        },
    ),
    "2ad_parts": Experiment(
        "What is each part of 2AD worth?",
        "Zhang et al. 2022 (2AD), table 3",
        "2ad_{features}_gru",
        {
            "all": Arm("", "VSE+2AD (R, BiGRU)"),
            "without token level": Arm("+without_token", "VSE+2AD without token level"),
            "without embedding level": Arm("+without_embedding", "VSE+2AD without embedding level"),
            "without AdPool": Arm("+mean", "VSE+2AD without AdPool"),
            "without AdOpt": Arm("+without_adopt", "VSE+2AD without AdOpt"),
        },
    ),
    "2ad_balance": Experiment(
        "Must the balance of AdPool's two levels be learned?",
        "Zhang et al. 2022 (2AD), table C-2",
        "2ad_{features}_gru",
        {
            "learned": Arm("", "VSE+2AD (R, BiGRU)"),
            "token 0.25": Arm("+share_25", "VSE+2AD with weights 0.25 and 0.75"),
            "token 0.5": Arm("+share_50", "VSE+2AD with weights 0.5 and 0.5"),
            "token 0.75": Arm("+share_75", "VSE+2AD with weights 0.75 and 0.25"),
            "random": Arm("+share_random", "VSE+2AD with random weights"),
            "learned, per dimension": Arm("+per_dimension"),
        },
    ),
    "2ad_negatives": Experiment(
        "How many negatives should a step learn from?",
        "Zhang et al. 2022 (2AD), table 3, figures A.2-1 and C-2",
        "2ad_{features}_gru",
        {
            "AdOpt, released": Arm("", "VSE+2AD (R, BiGRU)"),
            "AdOpt, printed rule": Arm("+printed_rule"),
            "AdOpt, all as printed": Arm("+as_printed"),
            "hardest triplet": Arm("+without_adopt", "VSE+2AD without AdOpt"),
            "max violation": Arm("+max_violation"),
            "InfoNCE, all": Arm("+info_nce"),
            "always 1": Arm("+negatives_1"),
            "always 4": Arm("+negatives_4"),
            "always 16": Arm("+negatives_16"),
            "always 64": Arm("+negatives_64"),
            "always 127": Arm("+negatives_127"),
        },
    ),
    "2ad_systems": Experiment(
        "Is the whole better than the systems that it stands on?",
        "Zhang et al. 2022 (2AD), table 1, coco",
        "2ad_{features}_gru",
        {
            "VSE+2AD": Arm("", "VSE+2AD (R, BiGRU)"),
            "VSE∞": Arm("+gpo+max_violation", "VSE∞ (R, BiGRU)"),
            "VSE++": Arm("+mean+max_violation", "VSE++ (R, BiGRU)"),
        },
    ),
}
"""Every experiment by its name."""

#: What brings the papers' recipes, made for days on a GPU, down to minutes on two cores. All arms share it.
LESSON_SCALE: dict[str, dict[str, Any]] = {
    "scenes": {
        "dim": 128,
        "text.word_dim": 64,
        "training.epochs": 3,
        "training.learning_rate": 2e-3,
        "training.decay_epochs": 2,
    },
    "flickr8k": {
        "dim": 256,
        "text.word_dim": 50,
        "training.epochs": 3,
        "training.learning_rate": 2e-3,
        "training.schedule": "cosine",
    },
}


@dataclass(frozen=True)
class Claim:
    """A statement of a paper that one arm of an experiment is better than another."""

    work: str  # its key, such as "2ad"
    place: str  # in the paper
    statement: str
    experiment: str
    better: str  # an arm
    worse: str  # another
    metric: str = "rsum"


@dataclass(frozen=True)
class Outcome:
    """What the records say about a claim on some data."""

    claim: Claim
    differences: list[float]  # better less worse, of each seed that both arms have
    verdict: Verdict


def claims(work: str = "") -> list[Claim]:
    """The claims of `assets/claims.yml`, of one work or of all.

    Raises:
        ValueError: an entry lacks a field, has an unknown one, or names no experiment or arm.
    """
    found = []
    known = {field.name for field in fields(Claim)}
    for entry in yaml.safe_load(CLAIMS.read_text(encoding="utf-8")):
        if odd := (known ^ entry.keys()) - {"metric"}:
            raise ValueError(
                f"{CLAIMS.name}: {entry} has missing or unknown fields: {', '.join(sorted(odd))}"
            )
        claim = Claim(**entry)
        for arm in (claim.better, claim.worse):
            if arm not in _get(claim.experiment).arms:
                raise ValueError(f"{CLAIMS.name}: experiment {claim.experiment!r} has no arm {arm!r}")
        if work in ("", claim.work):
            found.append(claim)
    return found


def run(
    name: str,
    data: Dataset,
    *,
    seeds: Iterable[int] = (0, 1, 2),
    arms: Sequence[str] = (),
    scale: Mapping[str, Any] | None = None,
    vectors: Callable[[Any], Tensor] | None = None,
    folder: Path = RESULTS,
    tell: Callable[[str], None] = print,
) -> None:
    """Train every arm from every seed and record the test split; what is recorded already is left as it is.

    Args:
        name: of the experiment.
        data: what to train on.
        seeds: one run each, seed by seed, so that an interrupted experiment has whole comparisons.
        arms: only these; empty: all.
        scale: changes to all arms' recipes; None: `LESSON_SCALE` of the data.
        vectors: makes the word vectors from the tokenizer; None: they begin as noise.
        folder: of the records.
        tell: is told each result in a line.

    Raises:
        ValueError: the experiment or an arm is unknown, or there is no scale for this data.
    """
    experiment = _get(name)
    scale = _scale(data.name) if scale is None else scale
    systems = {arm: experiment.system(arm, data.feature_kind, scale) for arm in arms or experiment.arms}
    for seed in seeds:
        for arm, recipe in systems.items():
            tokenizer = recipe.tokenizer(data.train.captions)
            begin = None if vectors is None else vectors(tokenizer)
            sources = identity(recipe, data, tokenizer, begin, seed)["data"]
            folder.mkdir(parents=True, exist_ok=True)
            done = records.find(folder, name=recipe.name, config_hash=recipe.hash(), seed=seed)
            if any(entry.data == sources for entry in done):
                continue
            watch = _Watch()
            trained = fit(recipe, data, tokenizer=tokenizer, vectors=begin, callback=watch, seed=seed)
            metrics = evaluate_split(trained.model, data.test, tokenizer) | watch.metrics()
            entry = records.record_run(
                trained,
                metrics,
                f"best epoch on dev, evaluated on {len(data.test)} test pictures; after each epoch the rsum "
                "on dev, and how many negatives either rule of AdOpt keeps, the mean over its batches",
            )
            records.write(entry, folder)
            tell(f"{arm}, seed {seed}: rsum {metrics['rsum']:.1f} in {entry.seconds:.0f} s")


class _Watch:
    """Follows a training: after each epoch the rsum on dev, and the negatives that either rule keeps."""

    def __init__(self) -> None:
        self.rsum: list[float] = []
        self.kept: dict[tuple[str, int], list[int]] = defaultdict(list)

    def __call__(self, event: Event) -> None:
        if event.metrics is not None:
            self.rsum.append(event.metrics["rsum"])
            return
        for rule in ("released", "printed"):
            self.kept[rule, event.epoch].append(adopt_k(event.scores, rule))

    def metrics(self) -> dict[str, float]:
        followed = {f"dev_rsum_{epoch + 1}": rsum for epoch, rsum in enumerate(self.rsum)}
        return followed | {
            f"negatives_{rule}_{epoch + 1}": statistics.mean(kept)
            for (rule, epoch), kept in self.kept.items()
        }


def measured(
    name: str, data: str, features: str = "grid", metric: str = "rsum", folder: Path = RESULTS
) -> dict[str, dict[int, float]]:
    """What is recorded of an experiment: the metric of each arm by seed. Arms without a record are left out.

    Args:
        name: of the experiment.
        data: the name of the data, such as "flickr8k".
        features: what an element is.
        metric: a metric of the records.
        folder: of the records.

    Raises:
        ValueError: the experiment is unknown.
    """
    experiment, scale = _get(name), _scale(data)
    entries = records.find(folder, data=data) if folder.is_dir() else []
    found = {}
    for arm in experiment.arms:
        recipe = experiment.system(arm, features, scale)
        digest = recipe.hash()
        by_seed = {
            entry.seed: entry.metrics[metric]
            for entry in entries
            if (entry.name, entry.config_hash) == (recipe.name, digest)
        }
        if by_seed:
            found[arm] = by_seed
    return found


def table(name: str, data: str, features: str = "grid", folder: Path = RESULTS) -> str:
    """An experiment as a Markdown table: rsum and place of each arm, the paper's and ours, the best first.

    The spread is the standard deviation over the seeds.
    """
    experiment, found = _get(name), measured(name, data, features, folder=folder)
    ours = {arm: statistics.mean(by_seed.values()) for arm, by_seed in found.items()}
    paper = {arm: _published(experiment.arms[arm].published) for arm in found}
    places = {
        whose: {arm: 1 + sum(other > value for other in numbers.values()) for arm, value in numbers.items()}
        for whose, numbers in (("paper", {a: v for a, v in paper.items() if v is not None}), ("ours", ours))
    }
    lines = [
        "| system | rsum in the paper | its place there | rsum here | spread | its place here | seeds |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    for arm in sorted(found, key=lambda arm: -ours[arm]):
        by_seed, printed = list(found[arm].values()), paper[arm]
        cells = [
            arm,
            "–" if printed is None else f"{printed:.1f}",
            str(places["paper"].get(arm, "–")),
            f"{ours[arm]:.1f}",
            f"{statistics.stdev(by_seed):.1f}" if len(by_seed) > 1 else "–",
            str(places["ours"][arm]),
            str(len(by_seed)),
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def outcomes(
    work: str, data: str, experiment: str = "", features: str = "grid", folder: Path = RESULTS
) -> list[Outcome]:
    """Hold a work's claims against the records of some data.

    Both arms of a claim saw the same batches from the same seed, so their difference is taken seed by seed,
    and tested against 0 by a paired t-test in each direction, at 5 %. "reproduced": above 0; "contradicted":
    below; "not on this data": these seeds do not tell. With less than two seeds a claim is "not tried".

    Args:
        work: the key of a work.
        data: the name of the data.
        experiment: only claims of this experiment; "": of all.
        features: what an element is.
        folder: of the records.
    """
    held = []
    for claim in claims(work):
        if experiment not in ("", claim.experiment):
            continue
        found = measured(claim.experiment, data, features, claim.metric, folder)
        better, worse = (found.get(arm, {}) for arm in (claim.better, claim.worse))
        differences = [better[seed] - worse[seed] for seed in sorted(better.keys() & worse.keys())]
        held.append(Outcome(claim, differences, verdict(differences)))
    return held


def verdict(differences: Sequence[float]) -> Verdict:
    """What differences, one a seed, say about the claim that they are above 0 (see `outcomes`)."""
    if len(differences) < 2:
        return "not tried"
    if len(set(differences)) == 1:  # no spread to test against
        return (
            "reproduced"
            if differences[0] > 0
            else "contradicted"
            if differences[0] < 0
            else "not on this data"
        )
    from scipy.stats import ttest_1samp  # a second of import, for this alone

    if ttest_1samp(differences, 0, alternative="greater").pvalue < SIGNIFICANCE:
        return "reproduced"
    if ttest_1samp(differences, 0, alternative="less").pvalue < SIGNIFICANCE:
        return "contradicted"
    return "not on this data"


def verdicts(
    work: str, data: str, experiment: str = "", features: str = "grid", folder: Path = RESULTS
) -> str:
    """The claims of a work with the paper's difference, ours and the verdict, as a Markdown table."""
    lines = [
        "| claim | in the paper | here, mean of the differences | spread | seeds | verdict |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for outcome in outcomes(work, data, experiment, features, folder):
        claim, differences = outcome.claim, outcome.differences
        arms = _get(claim.experiment).arms
        printed = [_published(arms[arm].published) for arm in (claim.better, claim.worse)]
        told = claim.metric == "rsum" and None not in printed
        cells = [
            f"{claim.statement} ({claim.place})",
            f"{printed[0] - printed[1]:+.1f}" if told else "–",  # type: ignore[operator]  # told: both are there
            f"{statistics.mean(differences):+.1f}" if differences else "–",
            f"{statistics.stdev(differences):.1f}" if len(differences) > 1 else "–",
            str(len(differences)),
            outcome.verdict,
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def _get(name: str) -> Experiment:
    if name not in EXPERIMENTS:
        raise ValueError(f"experiment {name!r} is unknown: there are {', '.join(EXPERIMENTS)}")
    return EXPERIMENTS[name]


def _scale(data: str) -> dict[str, Any]:
    if data not in LESSON_SCALE:
        raise ValueError(f"no scale is known for data {data!r}: there are {', '.join(LESSON_SCALE)}")
    return LESSON_SCALE[data]


def _published(system: str) -> float | None:
    """The rsum that a paper prints of a system: on all of COCO's test pictures if it does, else on folds."""
    rows = [row for row in records.published() if row["system"] == system and row["data"].startswith("coco")]
    rows.sort(key=lambda row: "5,000" not in row["data"])
    return float(rows[0]["rsum"]) if rows else None

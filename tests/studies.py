"""Records of fair trainings as if they had been run: what verdicts and their gates are tested on."""

from dataclasses import replace
from functools import cache

from small import SMALL as SCALE
from vsecore import records
from vsecore.experiments import EXPERIMENTS, tuning
from vsecore.experiments.claims import RETRIEVAL
from vsecore.experiments.references import BASELINE
from vsecore.experiments.scales import changes_of, collection_of

SMALL = SCALE | {"dim": 8, "text.encoder.word_dim": 4, "training.epochs": 2}  # a training takes a second
SIX = {"dim": 8, "text.encoder.word_dim": 4, "training.epochs": 6}  # not a recipe's full length
RATES = {1e-3: 90.0, 2e-3: 100.0, 4e-3: 95.0}  # the best rsum on dev at each
LEVEL = (60.0, 80.0, 90.0, 99.5, 100.0, 100.0)  # rsum on dev after each epoch, as shares of the best
RIDGE = 100.0
CLAIM = {
    "work": "2ad",
    "place": "table 3",
    "words": "taking it out produces the worst performance",
    "kind": "better",
    "experiment": "2ad_parts",
    "system": "all",
    "against": "without AdOpt",
    "statement": "AdOpt helps",
    "refuted_by": "equal sums",
    "photographs": True,
}


def study(
    folder, experiment, arm, values, data="small", rates=RATES, curve=LEVEL, seconds=60.0, features=None
):
    """Records of one arm: a training at each rate, and one from each seed at the best; a number is rsum."""
    asked = EXPERIMENTS[experiment]
    features = features or asked.features_on(data)
    for rate, best in rates.items():
        seeds = values if rate == tuning.best(rates) else {tuning.SEED: 1.0}
        recipe, digest = _trained(asked, arm, features, data, rate)
        for seed, metrics in seeds.items():
            found = dict(metrics) if isinstance(metrics, dict) else {"rsum": metrics}
            found |= {f"dev_rsum_{epoch + 1}": best * share / 100 for epoch, share in enumerate(curve)}
            more = {"vectors": "", "feature_kind": features}
            write(folder, recipe.name, digest, asked.data_named(data), seed, found, seconds, **more)


def _trained(experiment, arm, features, data, rate):
    """The recipe and digest of an arm at a learning rate; what mines for it has the best of `RATES`."""
    (system,) = experiment.systems(arm, features)

    def recipe_of(candidates):
        chosen = rate if candidates.recipes == system.recipes else tuning.best(RATES)
        return tuning.at_rate(candidates.recipes[0], changes_of("fair", experiment.data_named(data)), chosen)

    (training,) = experiment.trainings(arm, features, recipe_of)
    return training.recipe, training.digest


def ridge(folder, data="small", truth=10.0, features="grid"):
    """The record of the linear baseline on these features; truth: its mAP@R."""
    metrics = {measure: truth for measure in RETRIEVAL.measures_on(collection_of(data))} | {"rsum": RIDGE}
    write(folder, BASELINE, "", data, 0, metrics, 1.0, feature_kind=features)


def write(folder, name, config_hash, data, seed, metrics, seconds, **more):
    entry = replace(
        _blank(),
        name=name,
        config_hash=config_hash,
        data={"name": data, "fingerprint": "f", "feature_kind": "grid", **more},
        seed=seed,
        metrics=metrics,
        seconds=seconds,
    )
    records.write(entry, folder)


@cache
def _blank():
    """A record of nothing; to look up the code's commit takes a while, so there is one."""
    config = {"dim": SIX["dim"], "training": {"epochs": SIX["training.epochs"]}}
    return records.record("", config=config, config_hash="", data={}, seed=0, metrics={}, seconds=0.0)

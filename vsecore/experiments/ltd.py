"""Experiments on latent target decoding: what a target adds, as a term or as a constraint, and where.

Source: Bleeker, Yates and de Rijke 2023 (LTD).
"""

from __future__ import annotations

from vsecore.experiments.experiment import Arm, Experiment
from vsecore.recipes.ltd import BOUNDS

_CHOSEN = 0.2
"""The bound that the paper takes for most of its systems."""

EXPERIMENTS: dict[str, Experiment] = {
    "latent_targets": Experiment(
        "Does a caption's vector that must allow to decode the caption serve retrieval better?",
        "Bleeker et al. 2023 (LTD), table 1; the bound of 20 nats for words is this course's addition",
        "ltd_{features}_gru",
        {
            "BL": Arm("", "BL"),
            "BL + ITD, dual": Arm("+itd", "BL + ITD, dual"),
            "BL + ITD, constraint": Arm("+itd_constraint", "BL + ITD, constraint"),
            "BL + ITD, a bound that can be met": Arm("+itd_constraint+bound_of_words_20"),
            "BL + LTD, dual": Arm("+ltd", "BL + LTD, dual"),
            "BL + LTD, constraint": Arm("+ltd_constraint", "BL + LTD, constraint"),
        },
        features="region",
        probes=True,
        follows_losses=True,
    ),
    "latent_bounds": Experiment(
        "Which bound, and what do the details of the multiplier and of the averaging change?",
        "Bleeker et al. 2023 (LTD), section 5.3 and figure 3; the multiplier without projection and the "
        "training without averages are this course's addition",
        "ltd_{features}_gru",
        {
            f"η = {_CHOSEN:g}": Arm("+ltd_constraint"),
            **{
                f"η = {bound:g}": Arm(f"+ltd_constraint+bound_{bound:.2f}".replace("0.", "0"))
                for bound in BOUNDS
                if bound != _CHOSEN
            },
            "released multiplier": Arm("+ltd_constraint+free_multiplier"),
            "BL without averages": Arm("+without_averaging"),
            "LTD without averages": Arm("+ltd_constraint+without_averaging"),
        },
        features="region",
        follows_losses=True,
    ),
    "latent_losses": Experiment(
        "Does it also help the triplet loss?",
        "Bleeker et al. 2023 (LTD), table 2",
        "ltd_{features}_gru",
        {
            "triplet": Arm("+triplet+batch_norm", "BL, triplet"),
            "triplet + LTD, dual": Arm("+triplet_ltd+batch_norm", "BL + LTD, dual, triplet"),
            "triplet + LTD, constraint": Arm(
                "+triplet_ltd_constraint+batch_norm", "BL + LTD, constraint, triplet"
            ),
        },
        features="region",
    ),
    "latent_towers": Experiment(
        "Does it help other towers?",
        "Bleeker et al. 2023 (LTD), table 3",
        "ltd_vsrn_{features}",
        {
            "VSRN": Arm("", "VSRN without captioning"),
            "VSRN + LTD, dual": Arm("+triplet_ltd", "VSRN + LTD, dual"),
            "VSRN + LTD, constraint": Arm("+triplet_ltd_constraint", "VSRN + LTD, constraint"),
            "TERN": Arm("+triplet", "TERN", recipe="tern_{features}_words"),
            "TERN + LTD, dual": Arm("+triplet_ltd", "TERN + LTD, dual", recipe="tern_{features}_words"),
            "TERN + LTD, constraint": Arm(
                "+triplet_ltd_constraint", "TERN + LTD, constraint", recipe="tern_{features}_words"
            ),
        },
        features="region",
    ),
}
"""The experiments on this paper by name."""

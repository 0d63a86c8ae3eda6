"""Ideas of several papers in one system: what others encode and learn from, in the system of 2AD."""

from __future__ import annotations

from typing import Any

from vsecore.recipes.recipe import Part

_ADOPT = Part("adopt")
_LATENT = Part("latent_target", {"bound": 0.2})
# AdOpt is a mean, divided by its temperature; the hinges of a batch are a sum. With this weight both pull
# about equally hard: at most 20 / 128 and 0.1 on the similarity of a pair, in a batch of 128.
_OFFLINE = Part("offline_quintuplet", {"online": False, "warmup_epochs": 0}, weight=0.1)

VARIANTS: dict[str, dict[str, Any]] = {
    # Yan 2019 (thesis): a Transformer layer over the regions; here another one over the BiGRU's words.
    "relations": {"image.reasoner": Part("transformer"), "text.reasoner": Part("transformer")},
    # Bleeker et al. 2023 (LTD): a latent target, held at the bound that the paper takes most often.
    "latent": {"losses": (_ADOPT, _LATENT)},
    # Chen et al. 2020 (AOQ): the hinges with offline negatives, beside AdOpt in place of the online ones.
    "offline": {"losses": (_ADOPT, _OFFLINE)},
    "latent_and_offline": {"losses": (_ADOPT, _LATENT, _OFFLINE)},
}
"""What other papers add to 2AD, by name: changes to a recipe."""

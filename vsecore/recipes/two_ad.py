"""2AD: adaptive pooling and optimisation, whole and with parts removed or replaced."""

from typing import Any

from vsecore.recipes.recipe import ImageTower, Part, Recipe, TextTower, Training
from vsecore.recipes.vsepp import READERS, Feature, Reader


def two_ad(feature: Feature, text: Reader) -> Recipe:
    """Describe 2AD: AdPool in both towers, trained with AdOpt."""
    return Recipe(
        name=f"2ad_{feature}_{text}",
        source=(
            "Zhang et al. 2022 (2AD), section 4.2 and appendix B: width, batch, epochs, learning rate and "
            "its fall, temperature; its released code: AdamW, the decay that it sets (for regions and "
            "patches with BiGRU it sets none, and torch's is a hundred times as large), gradient clipping, a "
            "fifth of the elements and words left out in training, the margin on the negatives; features as "
            "they were extracted, where the paper trains the networks of grids and patches too"
        ),
        image=ImageTower(encoder=Part(feature), pool=Part("adpool"), element_drop=0.2),
        text=TextTower(encoder=READERS[text], pool=Part("adpool"), word_drop=0.2),
        losses=(Part("adopt"),),
        training=Training(epochs=25, optimizer="AdamW", learning_rate=5e-4, weight_decay=1e-4),
    )


def _pools(name: str, **options: Any) -> dict[str, Any]:
    """Put the same pool into both towers."""
    return dict.fromkeys(("image.pool", "text.pool"), Part(name, options))


VARIANTS: dict[str, dict[str, Any]] = {
    # Table 3: what each part is worth.
    "without_token": _pools("adpool", token_share=0.0),
    "without_embedding": _pools("adpool", token_share=1.0),
    "without_adopt": {"losses": Part("triplet", {"warmup_epochs": 0})},
    # Table 4: other poolers. Without AdPool, table 3 uses the mean.
    "mean": _pools("mean"),
    "max": _pools("max"),
    "kmax": _pools("kmax", k=5),
    "generalized_mean": _pools("generalized_mean"),
    "attention": _pools("attention"),
    "soft": _pools("soft"),
    "ada": _pools("ada"),
    "lip": _pools("lip"),
    "seq2seq": _pools("seq2seq"),
    "gcn": _pools("gcn"),
    "self_attention": _pools("self_attention"),
    "gpo": _pools("gpo"),
    "manual": _pools("mean") | {"image.pool": Part("kmax", {"k": 5})},
    # Table C-2: the balance is not learned.
    "share_25": _pools("adpool", token_share=0.25),
    "share_50": _pools("adpool", token_share=0.5),
    "share_75": _pools("adpool", token_share=0.75),
    "share_random": _pools("adpool", token_share="random"),
    # Where the released code differs from the paper.
    "per_dimension": _pools("adpool", per_dimension=True),
    # Figures A.2-1 and C-2: other numbers of negatives.
    "max_violation": {"losses": Part("triplet")},
    "info_nce": {"losses": Part("info_nce")},
    "printed_rule": {"losses": Part("adopt", {"rule": "printed"})},
    "as_printed": {
        "losses": Part("adopt", {"rule": "printed", "positive_in_denominator": False, "margin": 0.0})
    },
    "without_margin": {"losses.adopt.margin": 0.0},
    # For comparison with systems that see whole pictures and captions.
    "whole_input": {"image.element_drop": 0.0, "text.word_drop": 0.0},
    **{f"negatives_{k}": {"losses": Part("adopt", {"negatives": k})} for k in (1, 4, 16, 64, 127)},
}
"""What the paper removes or replaces, by name: changes to a recipe."""

_ADOPT = Part("adopt")
_LATENT = Part("latent_target", {"bound": 0.2})
# AdOpt is a mean, divided by its temperature; the hinges of a batch are a sum. With this weight both pull
# about equally hard: at most 20 / 128 and 0.1 on the similarity of a pair, in a batch of 128.
_OFFLINE = Part("offline_quintuplet", {"online": False, "warmup_epochs": 0}, weight=0.1)

COMBINED: dict[str, dict[str, Any]] = {
    # Yan 2019 (thesis): a Transformer layer over the regions; here another one over the BiGRU's words.
    "relations": {"image.reasoner": Part("transformer"), "text.reasoner": Part("transformer")},
    # Bleeker et al. 2023 (LTD): a latent target, held at the bound that the paper takes most often.
    "latent": {"losses": (_ADOPT, _LATENT)},
    # Chen et al. 2020 (AOQ): the hinges with offline negatives, beside AdOpt in place of the online ones.
    "offline": {"losses": (_ADOPT, _OFFLINE)},
    "latent_and_offline": {"losses": (_ADOPT, _LATENT, _OFFLINE)},
}
"""What other papers add to 2AD, by name: changes to a recipe."""

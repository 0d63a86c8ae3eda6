"""Experiments on sets of diverse embeddings: how sets are compared, what makes them, and how large they are.

All run in a world whose captions fit several pictures, where sets should help most.

Source: Kim, Kim and Kwak 2023 (DivE).
"""

from __future__ import annotations

from vsecore.experiments.experiment import Arm, Experiment, Member
from vsecore.experiments.worlds import AMBIGUOUS

_DIVE = "dive_{features}_gru"
_NARROW = "+narrow+small_batches"
_DROPS = f"{_NARROW}+whole_rate+later_hardest"
_SMALL = f"{_DROPS}+whole_input"
"""What suits fifteen epochs on scenes: one rate for all modules, and a first epoch of all negatives, as the
other systems have it, and like theirs whole pictures and captions. At the paper's rates DivE still has much
to learn by then, and with a fifth of words and elements left out it learns too little; both are arms."""

_VSE_INFINITY = "+gpo+max_violation+whole_input"


def _arm(variants: str = "", published: str = "") -> Arm:
    """An arm of DivE: slots as narrow as the space, and 160 captions a batch, near the 128 of VSE++."""
    return Arm(_SMALL + variants, published)


def _by(module: str, similarity: str = "", published: str = "") -> Arm:
    """An arm whose sets another module predicts, from the global feature that DivE has there."""
    on_cells = f"{_SMALL}+{module}_of_cells{similarity}"
    return Arm(f"{_SMALL}+{module}{similarity}", published, on_cells=on_cells)


def _seeds(count: int, variants: str = "", published: str = "") -> Arm:
    """An arm of several systems, alike but for their seeds, by the mean of their similarities."""
    return Arm(_SMALL + variants, published, tuple(Member("region", again) for again in range(count)))


EXPERIMENTS: dict[str, Experiment] = {
    "set_similarities": Experiment(
        "How should two sets be compared, and what should predict them?",
        "Kim et al. 2023 (DivE), table 3, and the K of table 4; MaxSim and the other mixtures of module and "
        "similarity are this course's addition",
        _DIVE,
        {
            "DivE": _arm("", "DivE"),
            "Chamfer": _arm("+chamfer", "DivE with Chamfer"),
            "MP": _arm("+match_probability", "DivE with MP"),
            "MIL": _arm("+mil", "DivE with MIL"),
            "MaxSim": _arm("+max_sim"),
            "PIE-Net": _by("pie_net", "", "DivE with PIE-Net"),
            "PIE-Net, Chamfer": _by("pie_net", "+chamfer"),
            "PIE-Net, MP": _by("pie_net", "+match_probability"),
            "PIE-Net, MIL": _by("pie_net", "+mil"),
            "Transformer": _by("transformer_set", "", "DivE with Transformer"),
            "one slot": _arm("+slots_1", "DivE, K = 1"),
            "VSE++": Arm("", "VSE++", recipe="vsepp_{features}_gru"),
            "PVSE": Arm("+later_hardest", "PVSE", recipe="pvse_{features}"),
            "PCME": Arm("", "PCME", recipe="pcme_{features}"),
        },
        features="region",
        world=AMBIGUOUS,
    ),
    "set_parts": Experiment(
        "What is each part of DivE worth?",
        "Kim et al. 2023 (DivE), appendix B.3; the softmax, the regularizers and the caption encoder are "
        "this course's addition",
        _DIVE,
        {
            "all": _arm("", "DivE"),
            "without global feature": _arm("+without_global", "DivE without the global feature"),
            "random slots": _arm("+random_slots", "DivE without learned slots"),
            "GRU": _arm("+gru_slots", "DivE without the residual sum"),
            "slot attention": _arm("+slot_attention", "DivE with plain slot attention"),
            "softmax over elements": _arm("+softmax_over_elements"),
            "without MMD": _arm("+without_mmd"),
            "without diversity": _arm("+without_diversity"),
            "without both": _arm("+without_regularizers"),
            "Gaussian kernel": _arm("+gaussian_kernel"),
            "a fifth left out": Arm(_DROPS, on_cells=f"{_DROPS}+fifth_left_out"),
            "hardest at once": Arm(f"{_NARROW}+whole_rate+whole_input"),
            "the paper's rate for sets": Arm(f"{_NARROW}+later_hardest+whole_input"),
            "all as in the paper": Arm(_NARROW),
            "words in context": _arm("+words_in_context"),
        },
        features="region",
        world=AMBIGUOUS,
    ),
    "set_sizes": Experiment(
        "How many slots, how many rounds, and how sharp a maximum?",
        "Kim et al. 2023 (DivE), table 4 and appendix B.1",
        _DIVE,
        {
            "K = 4, T = 4, α = 16": _arm("", "DivE"),
            **{f"K = {count}": _arm(f"+slots_{count}", f"DivE, K = {count}") for count in (1, 2, 3, 5, 6)},
            **{f"T = {count}": _arm(f"+rounds_{count}", f"DivE, T = {count}") for count in (1, 2, 3, 5, 6)},
            **{
                f"α = {alpha}": _arm(f"+alpha_{alpha}", f"DivE, α = {alpha}")
                for alpha in (1, 2, 4, 8, 32, 64)
            },
            # VSE∞, with as many multiplications a pair as sets of four vectors need: each with each.
            "one vector": Arm(_VSE_INFINITY, recipe="2ad_{features}_gru"),
            "one vector, 16 times as wide": Arm(_VSE_INFINITY, recipe="2ad_{features}_gru", times_as_wide=16),
        },
        features="region",
        world=AMBIGUOUS,
    ),
    "set_ensembles": Experiment(
        "What does a second system from another seed add?",
        "Kim et al. 2023 (DivE), table 2; the ensemble of single vectors is this course's control",
        _DIVE,
        {
            "DivE": _seeds(1, "", "DivE"),
            "two DivE": _seeds(2, "", "DivE, two models"),
            "one slot": _seeds(1, "+slots_1"),
            "two of one slot": _seeds(2, "+slots_1"),
        },
        features="region",
        world=AMBIGUOUS,
    ),
}
"""The experiments on this paper by name."""

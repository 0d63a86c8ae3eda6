"""Experiments on relations: the thesis's encoders and node losses, cross-attention, the parts of VSRN.

Sources: Yan 2019 (thesis); Lee et al. 2018 (SCAN); Liu et al. 2019 (BFAN); Li et al. 2019 (VSRN);
Messina et al. 2020 (TERN).
"""

from __future__ import annotations

from vsecore.experiments.experiment import Arm, Experiment

EXPERIMENTS: dict[str, Experiment] = {
    "relational_losses": Experiment(
        "Do relations and node losses help?",
        "Yan 2019 (thesis), table 3.1",
        "thesis_{features}",
        {
            "basic": Arm("", "Yan 2019 (basic)"),
            "pooling": Arm("+node_pooling", "Yan 2019 (pooling)"),
            "CA": Arm("+node_cross_attention", "Yan 2019 (CA)"),
            "VSE++ towers": Arm("", "VSE++ (ResNet)", recipe="vsepp_{features}_gru"),
            "without positions": Arm("+without_positions"),
            "mean of words": Arm("+mean_words"),
        },
        # The thesis takes the cells of a grid, so that it needs no detector. A drawn scene comes with the
        # boxes of its things, which cells stand for; they are few, so that a training takes minutes.
        features="region",
        pairs=True,
    ),
    "cross_attention": Experiment(
        "Is it worth comparing every word with every region?",
        "Lee et al. 2018 (SCAN); Liu et al. 2019 (BFAN); Zhang et al. 2022 (2AD), table 1; "
        "Chen et al. 2020 (AOQ), table 1",
        "scan_{features}_gru",
        {
            # The published row is, we believe, that of the mean. The authors' ensemble joins the mean of this
            # direction with the smooth maximum of the other.
            "SCAN t2i": Arm("+t2i_mean", "SCAN t2i (R, BiGRU)"),
            "SCAN i2t": Arm("+i2t"),
            "SCAN both": Arm(published="SCAN", mean_of=("+t2i_mean", "+i2t")),
            "BFAN prob": Arm(recipe="bfan_{features}_gru"),
            "BFAN equal": Arm("+equal", recipe="bfan_{features}_gru"),
            "BFAN both": Arm(published="BFAN", mean_of=("", "+equal"), recipe="bfan_{features}_gru"),
            "VSRN": Arm("+small_decoder", recipe="vsrn_{features}"),
            "TERN": Arm(recipe="tern_{features}_words"),
            "VSE++": Arm("", "VSE++ (R, BiGRU)", recipe="vsepp_{features}_gru"),
        },
        features="region",
        pairs=True,
    ),
    "vsrn_parts": Experiment(
        "What is each part of VSRN worth?",
        "Li et al. 2019 (VSRN)",
        "vsrn_{features}",
        {
            "whole": Arm("+small_decoder"),
            "without graph": Arm("+without_graph+small_decoder"),
            "without captioning": Arm("+without_captioning"),
        },
        features="region",
        pairs=True,
    ),
}
"""The experiments of these papers by name."""

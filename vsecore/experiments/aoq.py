"""Experiments on the adaptive offline quintuplet loss: its terms, and the ablations of its training.

Systems that are compared learn from the same first round: the model of the baseline, trained by the online
loss from the same seed, mines the negatives of all others. So they differ in the second round alone. Only
"fine-tuned" trains a first round of its own, and some learn from the lists of another system, a teacher.

Source: Chen, Deng and Luo 2020 (AOQ).
"""

from __future__ import annotations

from vsecore.experiments.experiment import Arm, Experiment
from vsecore.experiments.worlds import NEAR_DUPLICATES

_VSRN = "aoq_vsrn_{features}"
_BFAN = "aoq_bfan_{features}_gru"

EXPERIMENTS: dict[str, Experiment] = {
    "offline_losses": Experiment(
        "Do harder negatives from the whole training set help?",
        "Chen et al. 2020 (AOQ), table 1, where BFAN is two models; VSE++ is this course's addition",
        "aoq_vsepp_{features}_gru",
        {
            "VSE++": Arm("+online"),
            "VSE++ + OffTri": Arm("+offline_triplet", mined_by="VSE++"),
            "VSE++ + OffQuin": Arm("+offline_quintuplet", mined_by="VSE++"),
            "VSE++ + AdapOffQuin": Arm(mined_by="VSE++"),
            "VSE++ taught by VSRN": Arm(mined_by="VSRN"),
            "VSRN": Arm("+online+small_decoder", "VSRN", recipe=_VSRN),
            "VSRN + OffTri": Arm(
                "+offline_triplet+small_decoder", "VSRN + OffTri", recipe=_VSRN, mined_by="VSRN"
            ),
            "VSRN + OffQuin": Arm(
                "+offline_quintuplet+small_decoder", "VSRN + OffQuin", recipe=_VSRN, mined_by="VSRN"
            ),
            "VSRN + AdapOffQuin": Arm("+small_decoder", "VSRN + AOQ", recipe=_VSRN, mined_by="VSRN"),
            # To search the training set with BFAN would take too long: as in the paper, VSRN does it.
            "BFAN": Arm("+online", recipe=_BFAN),
            "BFAN + AdapOffQuin": Arm("+lists", recipe=_BFAN, mined_by="VSRN"),
        },
        features="region",
        world=NEAR_DUPLICATES,
    ),
    "offline_parts": Experiment(
        "What is each part of the training with offline negatives worth?",
        "Chen et al. 2020 (AOQ), table 3, where the systems are BFAN and VSRN; here each is VSE++",
        "aoq_vsepp_{features}_gru",
        {
            "online": Arm("+online"),
            "whole": Arm(mined_by="online"),
            "offline quintuplet": Arm("+offline_quintuplet", mined_by="online"),
            "without true ones": Arm(mined_by="online", only_false=True),
            "only offline": Arm("+only_offline", mined_by="online"),
            "online quintuplet": Arm("+online_quintuplet", mined_by="online"),
            "without adaptation": Arm("+without_offline_weights", mined_by="online"),
            "detached weights": Arm("+detached_weights", mined_by="online"),
            "clamped weights": Arm("+clamped_weights", mined_by="online"),
            # Beside "whole" as long as the paper's lists of 50 to 1,000 texts are beside those of 300.
            "top 50": Arm("+top_50", mined_by="online"),
            "top 200": Arm("+top_200", mined_by="online"),
            "top 500": Arm("+top_500", mined_by="online"),
            "top 1000": Arm("+top_1000", mined_by="online"),
            "fine-tuned": Arm("+fine_tuned"),  # goes on from its own first round
        },
        features="region",
        world=NEAR_DUPLICATES,
    ),
}
"""The experiments on this paper by name."""

"""2AD's experiments: poolers, the parts of AdPool, how many negatives, whole systems and ensembles.

Source: Zhang et al. 2022 (2AD).
"""

from __future__ import annotations

from vsecore.experiments.experiment import Arm, Experiment, Member

EXPERIMENTS: dict[str, Experiment] = {
    "2ad_pooling": Experiment(
        "Which pooler is best under the same loss?",
        "Zhang et al. 2022 (2AD), tables 4 and A.1-1",
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
            "simple, chosen on dev": Arm(best_of=("+mean", "+max", "+kmax", "+manual")),
            "AdPool, released": Arm("+per_dimension"),
            "GeM": Arm("+generalized_mean"),
            "attention": Arm("+attention"),
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
        "Is the whole better than the systems that it builds on?",
        "Zhang et al. 2022 (2AD), table 1, coco",
        "2ad_{features}_gru",
        {
            "VSE+2AD": Arm("", "VSE+2AD (R, BiGRU)"),
            "VSE∞": Arm("+gpo+max_violation", "VSE∞ (R, BiGRU)"),
            "VSE++": Arm("+mean+max_violation", "VSE++ (R, BiGRU)"),
        },
    ),
    "2ad_ensembles": Experiment(
        "Do different features make a better ensemble than the same features again?",
        "Zhang et al. 2022 (2AD), table 1, coco; repeated systems are this course's control",
        "2ad_{features}_gru",
        {
            "R": Arm("", "VSE+2AD (R, BiGRU)", (Member("region"),)),
            "G": Arm("", "", (Member("grid"),)),
            "P": Arm("", "", (Member("patch"),)),
            "RG": Arm("", "VSE+2AD (RG, BiGRU)", (Member("region"), Member("grid"))),
            "RGP": Arm("", "VSE+2AD (RGP, BiGRU)", (Member("region"), Member("grid"), Member("patch"))),
            "RR": Arm("", "", (Member("region"), Member("region", 1))),
            "RRR": Arm("", "", (Member("region"), Member("region", 1), Member("region", 2))),
            "GGG": Arm("", "", (Member("grid"), Member("grid", 1), Member("grid", 2))),
            "PPP": Arm("", "", (Member("patch"), Member("patch", 1), Member("patch", 2))),
        },
    ),
}
"""The experiments on this paper by name."""

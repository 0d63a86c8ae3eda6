"""How good a whole ranking is, not only where the first right item stands: R-precision and nDCG.

Source: Messina et al. 2020 (TERN) for nDCG; Bleeker, Yates and de Rijke 2023 (LTD), section 4.3, for both.
"""

from __future__ import annotations

import torch
from torch import Tensor

from vsecore.data.caption_overlap import rouge_l
from vsecore.data.splits import Split
from vsecore.evaluation import ndcg, r_precision

GRADED = ("i2t_r_precision", "t2i_ndcg_rouge_l")
"""What `graded` gives."""


def graded(scores: Tensor, split: Split) -> dict[str, float]:
    """Return the R-precision of caption retrieval and the nDCG of picture retrieval, in percent.

    A picture is relevant to a caption in the degree in which its captions share words with it (ROUGE-L).
    `scores` are the similarities of the split's n pictures and Nc captions, (n, Nc).
    """
    own = torch.arange(len(split))[:, None] == torch.from_numpy(split.owner)  # (n, Nc)
    overlap = rouge_l(split.captions, split.captions, split.owner)  # (Nc, n)
    values = (r_precision(scores, own), ndcg(scores.T, overlap))
    return {name: 100 * value for name, value in zip(GRADED, values, strict=True)}

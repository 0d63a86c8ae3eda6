"""Captions read once, from the first word to the last, as the first recurrent systems did."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from vsecore.encoders.words import ReadsVocabulary, check_tokens, embedding_of_words


class GRUEncoder(ReadsVocabulary, nn.Module):
    """Word vectors read by a recurrent network; a word is the state after it.

    A word knows what came before it, and nothing of what follows: use `BiGRUEncoder` where words are compared
    one by one. The state after the last word (pool "last") has read the whole caption.

    Args:
        vocabulary_size: number of words.
        word_dim: width of a word vector.
        dim: width D of the joint space and of the state.
        vectors: the word vectors at the start, (vocabulary_size, word_dim), such as GloVe's; training
            changes them. Without them the vectors start at random.

    Raises:
        ValueError: vectors of another shape, or a width that is not a whole number of at least 1.

    Source: Faghri et al. 2018 (VSE++), section 3.1; so do Li et al. 2019 (VSRN), section 3.4.
    """

    def __init__(
        self, vocabulary_size: int, word_dim: int = 300, dim: int = 1024, vectors: Tensor | None = None
    ) -> None:
        super().__init__()
        for name, number in (("vocabulary_size", vocabulary_size), ("word_dim", word_dim), ("dim", dim)):
            if not isinstance(number, int) or isinstance(number, bool) or number < 1:
                raise ValueError(f"{name} is {number!r}: it must be a whole number of at least 1")
        self.backbone: nn.Module | None = None  # only word vectors may be pretrained
        self.embedding = embedding_of_words(vocabulary_size, word_dim, vectors)
        self.gru = nn.GRU(word_dim, dim, batch_first=True)

    def forward(self, tokens: Tensor, mask: Tensor | None = None) -> tuple[Tensor, Tensor | None]:
        """Encode captions (C, L), the words of each first and its padding last.

        Raises:
            ValueError: another shape, or padding before a word (which is not checked on a GPU, since the
                answer would have to be waited for).
        """
        check_tokens(tokens, mask)
        if mask is not None and mask.device.type == "cpu" and (mask[:, 1:] & ~mask[:, :-1]).any():
            raise ValueError("mask has padding before a word: it must have the words first, then padding")
        words = self.embedding(tokens)  # (C, L, W)
        # Half precision, which autocast would choose on a GPU, loses small updates of the state. The padding
        # is read last, so that it changes no word.
        with torch.autocast(words.device.type, enabled=False):
            states, _ = self.gru(words)  # (C, L, D)
        return states, mask

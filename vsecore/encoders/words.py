"""From the words of a caption to elements of the joint width, by tables of word vectors and recurrence."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor, nn

from vsecore.arguments import Count, checked
from vsecore.data.vocabulary import Vocabulary
from vsecore.encoders import cpu
from vsecore.encoders.base import TextEncoder


class WordEncoder(TextEncoder):
    """What encoders share that look each word up in a table: their tokenizer is a `Vocabulary`.

    Args:
        vocabulary_size: number of words.
        word_dim: width W of a word vector.
        vectors: the word vectors at the start, (vocabulary_size, word_dim), such as GloVe's; training
            changes them. None: they start at random.
    """

    def __init__(self, vocabulary_size: int, word_dim: int, vectors: Tensor | None) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary_size, word_dim)
        if vectors is None:
            nn.init.uniform_(self.embedding.weight, -0.1, 0.1)  # as VSE++'s released code
        elif vectors.shape != self.embedding.weight.shape:
            wanted = tuple(self.embedding.weight.shape)
            raise ValueError(
                f"vectors must be {wanted}, (vocabulary, word_dim), got {tuple(vectors.shape)}: set "
                f"text.encoder.word_dim to the vectors' width, or give others"
            )
        else:
            self.embedding.weight.data.copy_(vectors)

    @classmethod
    @checked
    def tokenizer(cls, captions: Sequence[str], minimum_count: Count = 4) -> Vocabulary:
        """Build the vocabulary of these captions, which should be those of the training split.

        Args:
            captions: sentences.
            minimum_count: how often a word must occur to be kept; rarer ones become the unknown word.

        Raises:
            ValueError: no word occurs so often.
        """
        return Vocabulary.build(captions, minimum_count)

    @classmethod
    def load_tokenizer(cls, folder: Path) -> Vocabulary:
        """Load the vocabulary that a run's folder keeps; raises as `Vocabulary.load`."""
        return Vocabulary.load(folder)


class BiGRUEncoder(WordEncoder):
    """Word vectors read by a recurrent network in both directions; a word is the mean of its two states.

    Args:
        vocabulary_size: number of words.
        word_dim: width of a word vector.
        dim: width D of the joint space, and of the state in each direction.
        vectors: of `WordEncoder`.

    Source: Faghri et al. 2018 (VSE++) with one direction; the mean of both as in Lee et al. 2018 (SCAN).
    """

    @checked
    def __init__(
        self,
        vocabulary_size: Count,
        word_dim: Count = 300,
        dim: Count = 1024,
        vectors: Tensor | None = None,
    ) -> None:
        super().__init__(vocabulary_size, word_dim, vectors)
        self.forwards = nn.GRU(word_dim, dim, batch_first=True)
        self.backwards = nn.GRU(word_dim, dim, batch_first=True)

    def forward(self, tokens: Tensor, mask: Tensor | None = None) -> tuple[Tensor, Tensor | None]:
        """Encode captions (C, L), the words of each first and its padding last, which a CPU checks."""
        check_tokens(tokens, mask, words_first=True)
        words = self.embedding(tokens)  # (C, L, W)
        # Half precision, which autocast would choose on a GPU, loses small updates of the state.
        with torch.autocast(words.device.type, enabled=False):
            if cpu.can_read(words):
                return cpu.read_both_ways(words, mask, self.forwards, self.backwards), mask
            # Both readings reach the padding last, so it changes no word. Nothing is packed: packing needs
            # the lengths on the CPU, and its backward pass costs more time than the padding.
            ahead, _ = self.forwards(words)  # (C, L, D)
            back, _ = self.backwards(_turned(words, mask))  # (C, L, D)
            return (ahead + _turned(back, mask)) / 2, mask  # (C, L, D)


class GRUEncoder(WordEncoder):
    """Word vectors read by a recurrent network from the first to the last; a word is the state after it.

    A word knows what came before it, and nothing of what follows: use `BiGRUEncoder` where words are compared
    one by one. The state after the last word (pool "last") has read the whole caption.

    Args:
        vocabulary_size: number of words.
        word_dim: width of a word vector.
        dim: width D of the joint space and of the state.
        vectors: of `WordEncoder`.

    Source: Faghri et al. 2018 (VSE++), section 3.1; so do Li et al. 2019 (VSRN), section 3.4.
    """

    @checked
    def __init__(
        self,
        vocabulary_size: Count,
        word_dim: Count = 300,
        dim: Count = 1024,
        vectors: Tensor | None = None,
    ) -> None:
        super().__init__(vocabulary_size, word_dim, vectors)
        self.gru = nn.GRU(word_dim, dim, batch_first=True)

    def forward(self, tokens: Tensor, mask: Tensor | None = None) -> tuple[Tensor, Tensor | None]:
        """Encode captions (C, L), the words of each first and its padding last, which a CPU checks."""
        check_tokens(tokens, mask, words_first=True)
        words = self.embedding(tokens)  # (C, L, W)
        # The padding is read last, so that it changes no word; precision as above.
        with torch.autocast(words.device.type, enabled=False):
            states, _ = self.gru(words)  # (C, L, D)
        return states, mask


def check_tokens(tokens: Tensor, mask: Tensor | None, words_first: bool = False) -> None:
    """Refuse tokens that are not whole numbers (C, L) with L > 0, and a mask that is not bool (C, L).

    Args:
        tokens: numbers of words.
        mask: True where a word is real, or None.
        words_first: whether each caption must have a word, and no padding before one. That is not checked on
            a GPU, since the answer would have to be waited for.

    Raises:
        ValueError: something else came; the message says what, and what is wanted.
    """
    shape = tuple(tokens.shape)
    if tokens.ndim != 2 or tokens.shape[1] == 0 or tokens.is_floating_point():
        raise ValueError(f"tokens must be whole numbers (C, L) with L > 0, got {tokens.dtype} {shape}")
    if mask is None:
        return
    if mask.dtype != torch.bool or mask.shape != tokens.shape:
        raise ValueError(f"mask must be bool {shape}, got {mask.dtype} {tuple(mask.shape)}")
    if not words_first or mask.device.type != "cpu":
        return
    if not mask.any(1).all():
        row = int((~mask.any(1)).nonzero()[0])
        raise ValueError(f"mask leaves caption {row} of the batch without a word: each needs one")
    if (mask[:, 1:] & ~mask[:, :-1]).any():
        raise ValueError("mask has padding before a word: a recurrent network wants the words first")


def _turned(x: Tensor, mask: Tensor | None) -> Tensor:
    """Reverse the words of captions (C, L, W), with the padding still behind them."""
    if mask is None:
        return x.flip(1)
    places = torch.arange(x.shape[1], device=x.device)
    sources = (mask.sum(1, keepdim=True) - 1 - places).clamp(min=0)  # (C, L)   padding takes any word
    return x.gather(1, sources.unsqueeze(-1).expand_as(x))

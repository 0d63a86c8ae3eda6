"""From the words of a caption to elements of the joint width, by tables of word vectors and recurrence."""

from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

from torch import Tensor, nn

from vsecore.arguments import Count, checked
from vsecore.data.vocabulary import Vocabulary
from vsecore.encoders.base import TextEncoder, Tokens, WordMask
from vsecore.normalisation import projection
from vsecore.recurrence import read


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

        Words that occur less than `minimum_count` times become the unknown word. Raises ValueError if all do.
        """
        return Vocabulary.build(captions, minimum_count)

    @classmethod
    def load_tokenizer(cls, folder: Path) -> Vocabulary:
        return Vocabulary.load(folder)


class GRUEncoder(WordEncoder):
    """Word vectors read by a recurrent network from the first to the last; a word is the state after it.

    A word knows what came before it, and nothing of what follows: use `BiGRUEncoder` where words are compared
    one by one. The state after the last word (pool "last") has read the whole caption.

    Args:
        vocabulary_size, word_dim, vectors: as for `WordEncoder`.
        dim: width D of the joint space.
        states: width of the state, in each direction; a linear layer then brings words to the joint width.
            None: D, without that layer.

    Source: Faghri et al. 2018 (VSE++), section 3.1; so do Li et al. 2019 (VSRN), section 3.4.
    """

    networks: ClassVar[tuple[str, ...]] = ("gru",)
    """The names of its recurrent networks, one for each direction."""
    gru: nn.GRU

    @checked
    def __init__(
        self,
        vocabulary_size: Count,
        word_dim: Count = 300,
        dim: Count = 1024,
        vectors: Tensor | None = None,
        states: Count | None = None,
    ) -> None:
        super().__init__(vocabulary_size, word_dim, vectors)
        for name in self.networks:
            self.add_module(name, nn.GRU(word_dim, states or dim, batch_first=True))
        self.project = nn.Identity() if states is None else projection(states, dim)

    @checked
    def forward(self, tokens: Tokens, mask: WordMask = None) -> tuple[Tensor, Tensor | None]:
        """Encode captions (C, L), the words of each first and its padding last, which a CPU checks."""
        if mask is not None and mask.device.type == "cpu" and bool((mask[:, 1:] & ~mask[:, :-1]).any()):
            raise ValueError("mask has padding before a word: a recurrent network wants the words first")
        networks = (getattr(self, name) for name in self.networks)
        return self.project(read(self.embedding(tokens), mask, *networks)), mask  # (C, L, D)


class BiGRUEncoder(GRUEncoder):
    """As `GRUEncoder`, but read in both directions; a word is the mean of its two states.

    Source: Faghri et al. 2018 (VSE++) with one direction; the mean of both as in Lee et al. 2018 (SCAN).
    """

    networks = ("forwards", "backwards")
    forwards: nn.GRU
    backwards: nn.GRU

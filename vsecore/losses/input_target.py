"""Decode the caption itself, word by word: much of it follows from the words before, without the vector."""

from typing import Annotated, Any

from torch import Tensor, nn

from vsecore.arguments import Count, Positive, Shape, checked
from vsecore.losses.captioning import RealWords, Words, captioning_loss
from vsecore.losses.lagrange import Constraint
from vsecore.losses.step import Loss, Step


class InputTargetDecoder(nn.Module):
    """A GRU that begins with the caption's vector and predicts each word from the true words before it.

    The words before a word tell much about it, so that a strong decoder needs little of the vector. That is
    why this decoder does not keep a vector from leaving things out, as `LatentTargetDecoder` does.

    Args:
        dim: width D of the caption's vector, and of the GRU's states.
        vocabulary_size: number of words, V.
        word_dim: width of the word vectors, which are the decoder's own.

    Source: Bleeker, Yates and de Rijke 2023 (LTD), sections 3.3 and 4.2. The released code takes its softmax
    over the places of a caption; here it is over the words, as equation 4 asks for.
    """

    @checked
    def __init__(self, dim: Count, vocabulary_size: Count, word_dim: Count = 300) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary_size, word_dim)
        self.gru = nn.GRU(word_dim, dim, batch_first=True)
        self.out = nn.Linear(dim, vocabulary_size)

    @checked
    def forward(self, captions: Annotated[Tensor, Shape("C D")], tokens: Words, mask: RealWords) -> Tensor:
        """Predict the words of captions, given the true words before each (teacher forcing): (P, V).

        The captions' vectors are (C, D). The tokens (C, L) begin with the symbol of the start, and their
        padding is behind. The logits are those of the P real words after it, caption by caption.
        """
        # A state depends on the words before it alone, so padding at the end changes nothing.
        states, _ = self.gru(self.embedding(tokens[:, :-1]), captions[None].contiguous())  # (C, L - 1, D)
        return self.out(states[mask[:, 1:]])


class InputTarget(Loss):
    """The words of each caption decoded from its vector, as a term or a constraint.

    The loss is `captioning_loss`, added up over the words and averaged over the captions (equation 4). The
    decoder is used in training only.

    Args:
        bound, projected: as for `LatentTarget`.
        **options: as for `InputTargetDecoder`.

    Source: Bleeker, Yates and de Rijke 2023 (LTD), sections 3.3 and 4.2.
    """

    reads = ("vectors", "tokens")
    constraint: Constraint

    Options = InputTargetDecoder

    def __init__(self, bound: Positive | None = None, projected: bool = True, **options: Any) -> None:
        super().__init__()
        self.decoder = InputTargetDecoder(**options)
        self.constraint = Constraint(bound, projected)

    def forward(self, step: Step) -> Tensor:
        tokens, mask = step.words()
        logits = self.decoder(step.t.needed("vectors"), tokens, mask)  # (P, V)
        rec = captioning_loss(logits, tokens[:, 1:], mask[:, 1:])
        return self.constraint(rec)

"""Decode the caption itself, word by word: much of it follows from the words before, without the vector."""

from __future__ import annotations

from torch import Tensor, nn

from vsecore.losses.captioning import captioning_loss
from vsecore.losses.lagrange import Constraint
from vsecore.losses.step import Step


class InputTargetDecoder(nn.Module):
    """A GRU that begins with the caption's vector and predicts each word from the true words before it.

    The words before a word tell much about it, so that a strong decoder needs little of the vector. That is
    why this decoder does not keep a vector from leaving things out, as `LatentTargetDecoder` does.

    Args:
        dim: width D of the caption's vector, and of the GRU's states.
        vocabulary_size: number of words, V.
        word_dim: width of the word vectors, which are the decoder's own.

    Raises:
        ValueError: a number is not a whole number of at least 1.

    Source: Bleeker, Yates and de Rijke 2023 (LTD), sections 3.3 and 4.2. The released code takes its softmax
    over the places of a caption; here it is over the words, as equation 4 asks for.
    """

    def __init__(self, dim: int, vocabulary_size: int, word_dim: int = 300) -> None:
        super().__init__()
        for name, number in (("dim", dim), ("vocabulary_size", vocabulary_size), ("word_dim", word_dim)):
            if not isinstance(number, int) or isinstance(number, bool) or number < 1:
                raise ValueError(f"{name} is {number!r}: it must be a whole number of at least 1")
        self.dim = dim
        self.embedding = nn.Embedding(vocabulary_size, word_dim)
        self.gru = nn.GRU(word_dim, dim, batch_first=True)
        self.out = nn.Linear(dim, vocabulary_size)

    def forward(self, captions: Tensor, tokens: Tensor) -> Tensor:
        """Predict the words of captions, given the true words before each (teacher forcing).

        Args:
            captions: the captions' vectors, (C, D).
            tokens: their words as numbers, (C, L), each with its symbol of the start first.

        Returns:
            Logits (C, L - 1, V): place l is about the word l + 1.

        Raises:
            ValueError: the shapes do not fit, or the captions have no word after the first.
        """
        if captions.ndim != 2 or captions.shape[1] != self.dim:
            raise ValueError(f"captions has shape {tuple(captions.shape)}: it must be (C, {self.dim})")
        if (
            tokens.ndim != 2
            or len(tokens) != len(captions)
            or tokens.shape[1] < 2
            or tokens.is_floating_point()
        ):
            raise ValueError(
                f"tokens is {tokens.dtype} {tuple(tokens.shape)}: it must be whole numbers "
                f"({len(captions)}, L) with L > 1"
            )
        # A state depends on the words before it alone, so padding at the end changes nothing.
        states, _ = self.gru(self.embedding(tokens[:, :-1]), captions[None].contiguous())  # (C, L - 1, D)
        logits: Tensor = self.out(states)
        return logits


class InputTarget(nn.Module):
    """The words of each caption decoded from its vector, as a term or a constraint.

    The loss is `captioning_loss`, added up over the words and averaged over the captions (equation 4). The
    decoder is used in training only.

    Args:
        dim: width D of the caption's vector.
        vocabulary_size: number of words.
        word_dim: width of the decoder's word vectors.
        bound: eta; None: the loss is added as it is, times the weight of its part (beta).
        projected: see `LagrangeMultiplier`.

    Raises:
        ValueError: an argument is out of its range.

    Source: Bleeker, Yates and de Rijke 2023 (LTD), sections 3.3 and 4.2.
    """

    reads = ("vectors", "tokens")

    def __init__(
        self,
        dim: int,
        vocabulary_size: int,
        word_dim: int = 300,
        bound: float | None = None,
        projected: bool = True,
    ) -> None:
        super().__init__()
        self.decoder = InputTargetDecoder(dim, vocabulary_size, word_dim)
        self.constraint = Constraint(bound, projected)

    def forward(self, step: Step) -> Tensor:
        """The loss of a step, a scalar.

        Raises:
            ValueError: the step holds no words, or the captions are no single vectors.
        """
        if step.tokens is None or step.token_mask is None:
            raise ValueError("the step has no tokens: the loss must name them in its attribute `reads`")
        if step.t.vectors is None or step.t.vectors.ndim != 2:
            raise ValueError("the captions have no single vectors: their words are decoded from one (C, D)")
        logits = self.decoder(step.t.vectors, step.tokens)  # (C, L - 1, V)
        rec = captioning_loss(logits, step.tokens[:, 1:], step.token_mask[:, 1:])
        weighed: Tensor = self.constraint(rec)
        return weighed

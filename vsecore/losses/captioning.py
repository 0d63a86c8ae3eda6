"""Write the caption from the picture: what a picture's elements keep must be enough to tell what is in it."""

from typing import Annotated, Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, dropout
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from vsecore.arguments import Count, Shape, Share, checked
from vsecore.losses.step import Loss, Step
from vsecore.masking import check_elements, count_real, real_first, softmax_over_real, sorted_mask, widened
from vsecore.recurrence import read

Words = Annotated[Tensor, Shape("C L", "whole numbers")]
RealWords = Annotated[Tensor, Shape("C L", "bool")]
Owners = Annotated[Tensor, Shape("C", "whole numbers")]


@checked
def captioning_loss(logits: Annotated[Tensor, Shape("P V")], words: Words, mask: RealWords) -> Tensor:
    """Cross-entropy of every word of a caption, added up over its words and averaged over captions: a scalar.

    A decoder expects the logits (P, V) of the captions' words (C, L) where the mask is True: at P places,
    caption by caption. One that knows nothing pays log V for each word, with V words in the vocabulary.

    Source: Li et al. 2019 (VSRN), section 3.4: minus the log-probability of the caption.
    """
    return cross_entropy(widened(logits), words[mask], reduction="sum") / len(words)


class CaptionDecoder(nn.Module):
    """Predict each word of a caption from the words before it and the picture's elements.

    One recurrent network reads the elements in their order; its last state is the first of a second one,
    which writes. Before each word the writer attends to what the reader made of the elements: a small network
    compares its state with each of them.

    Args:
        dim: width D of the elements.
        vocabulary_size: number of words, V.
        hidden: width of both states.
        word_dim: width of the word vectors, which are the decoder's own.
        drop: the share of inputs left out in training.

    Source: Venugopalan et al. 2015 (S2VT) with the attention of Bahdanau et al. 2015, as in the released code
    of Li et al. 2019 (VSRN), which has these widths.
    """

    @checked
    def __init__(
        self,
        dim: Count,
        vocabulary_size: Count,
        hidden: Count = 512,
        word_dim: Count = 300,
        drop: Share = 0.2,
    ) -> None:
        super().__init__()
        self.dim, self.vocabulary_size, self.drop = dim, vocabulary_size, drop
        self.project = nn.Linear(dim, hidden)
        self.reader = nn.GRU(hidden, hidden, batch_first=True)
        self.embedding = nn.Embedding(vocabulary_size, word_dim)
        self.compare_element = nn.Linear(hidden, hidden)
        self.compare_state = nn.Linear(hidden, hidden, bias=False)
        self.compare = nn.Linear(hidden, 1, bias=False)
        self.writer = nn.GRUCell(word_dim + hidden, hidden)
        self.out = nn.Linear(hidden, vocabulary_size)

    @checked
    def forward(
        self, x: Tensor, mask: Tensor | None, tokens: Words, token_mask: RealWords, owner: Owners
    ) -> Tensor:
        """Predict the words of captions, given the true words before each (teacher forcing): (P, V).

        The pictures' elements are (B, N, D) with their mask (B, N); `owner` (C,) is the row of each caption's
        picture. The tokens (C, L) begin with the symbol of the start, and their padding is behind. The logits
        are those of the P real words after it, caption by caption.
        """
        check_elements(x, mask, self.dim)
        x = real_first(x, mask).to(self.project.weight.dtype)  # (B, N, D)   padding behind, and 0
        mask = sorted_mask(x, mask)
        x = dropout(self.project(x), self.drop, self.training)  # (B, N, H)
        states = read(x, mask, self.reader)  # (B, N, H)
        last = (count_real(x, mask) - 1).view(-1, 1, 1).expand(-1, 1, states.shape[2])  # (B, 1, H)
        state = states.gather(1, last).squeeze(1)  # (B, H)
        keys = self.compare_element(states)  # (B, N, H)   the same before every word
        # Padding, two fifths of a batch of the scenes' captions, is left out: captions are read step by step,
        # the longest first. A GPU has to be waited for, since their lengths are needed here.
        real_word = token_mask[:, 1:]  # (C, L - 1)
        lengths = real_word.sum(1).clamp(min=1)  # (C,)   torch packs no empty ones
        words = pack_padded_sequence(
            self.embedding(tokens[:, :-1]), lengths.cpu(), batch_first=True, enforce_sorted=False
        )
        owner = owner[words.sorted_indices]
        states, keys, state = states[owner], keys[owner], state[owner]  # (C, N, H), (C, N, H), (C, H)
        real = None if mask is None else mask[owner]  # (C, N)
        written = []
        for word in dropout(words.data, self.drop, self.training).split(words.batch_sizes.tolist()):  # (c, W)
            if len(word) < len(state):  # shorter captions have ended
                states, keys, state = (each[: len(word)] for each in (states, keys, state))
                real = None if real is None else real[: len(word)]
            logits = self.compare(torch.tanh(keys + self.compare_state(state).unsqueeze(1)))  # (c, N, 1)
            seen = (softmax_over_real(logits, real) * states).sum(1)  # (c, H)
            given = torch.cat([word, dropout(seen, self.drop, self.training)], 1)  # (c, W + H)
            state = self.writer(given, state)  # (c, H)
            written.append(state)
        by_step = words._replace(data=torch.cat(written))
        by_caption, _ = pad_packed_sequence(by_step, batch_first=True, total_length=real_word.shape[1])
        return self.out(by_caption[real_word])  # (P, V)


class Captioning(Loss):
    """`captioning_loss` of a step: each caption of the batch, written from the elements of its picture.

    The captions are those that the text tower reads, with their unknown words, or a BERT's word pieces. The
    `CaptionDecoder`, which takes the arguments, is used in training only.

    Source: Li et al. 2019 (VSRN), section 3.4: added to the ranking loss with weight 1.
    """

    reads = ("elements", "tokens")

    Options = CaptionDecoder

    def __init__(self, **options: Any) -> None:
        super().__init__()
        self.decoder = CaptionDecoder(**options)

    def forward(self, step: Step) -> Tensor:
        tokens, mask = step.words()
        # In a batch of pairs a picture with several captions occurs several times: any copy will do.
        owner = step.positives.to(torch.uint8).argmax(0)  # (C,)
        logits = self.decoder(step.v.needed("elements"), step.v.mask, tokens, mask, owner)  # (P, V)
        return captioning_loss(logits, tokens[:, 1:], mask[:, 1:])

"""From the words of a caption to elements of the joint width.

Every encoder is called as `encoder(tokens, mask)` with tokens (C, L) and a bool mask (C, L), True where a
word is real (None: all are), and returns the elements (C, L, D) with their mask.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from vsecore.data.files import in_batch
from vsecore.data.words import model_folder
from vsecore.encoders.pictures import projection

if TYPE_CHECKING:
    from transformers import PreTrainedModel


class BiGRUEncoder(nn.Module):
    """Word vectors read forwards and backwards by a recurrent network; a word is the mean of both readings.

    Args:
        vocabulary_size: how many words there are.
        word_dim: width of a word vector.
        dim: width D of the joint space, and of each reading.
        vectors: what the word vectors begin as, (vocabulary_size, word_dim), such as GloVe's; they are
            trained on.

    Raises:
        ValueError: vectors of another shape.

    Source: Faghri et al. 2018 (VSE++) with one direction; both, averaged, as in Lee et al. 2018 (SCAN).
    """

    def __init__(self, vocabulary_size: int, word_dim: int, dim: int, vectors: Tensor | None = None) -> None:
        super().__init__()
        self.backbone: nn.Module | None = None  # nothing here was trained before, but the vectors
        self.embedding = nn.Embedding(vocabulary_size, word_dim)
        if vectors is None:
            nn.init.uniform_(self.embedding.weight, -0.1, 0.1)  # as VSE++'s released code
        elif vectors.shape != self.embedding.weight.shape:
            wanted = tuple(self.embedding.weight.shape)
            raise ValueError(f"vectors must be {wanted}, (vocabulary, word_dim), got {tuple(vectors.shape)}")
        else:
            self.embedding.weight.data.copy_(vectors)
        self.gru = nn.GRU(word_dim, dim, batch_first=True, bidirectional=True)

    def forward(self, tokens: Tensor, mask: Tensor | None = None) -> tuple[Tensor, Tensor | None]:
        """Encode captions (C, L).

        Raises:
            ValueError: another shape, a caption without a word, or padding before a word.
        """
        check_tokens(tokens, mask)
        words = self.embedding(tokens)  # (C, L, W)
        if mask is None:
            states, _ = self.gru(words)  # (C, L, 2D)
        else:
            # Packed, the backward reading begins at each caption's last word, and never sees the padding.
            packed = pack_padded_sequence(words, _lengths(mask), batch_first=True, enforce_sorted=False)
            states, _ = pad_packed_sequence(
                self.gru(packed)[0], batch_first=True, total_length=tokens.shape[1]
            )  # (C, L, 2D)
        forwards, backwards = states.chunk(2, dim=-1)  # (C, L, D) each
        return (forwards + backwards) / 2, mask


class BERTEncoder(nn.Module):
    """A pretrained transformer over word pieces, its last layer projected.

    Its special tokens at the start and end are elements like the others.

    Args:
        name_or_path: a model of the hub, or a folder with `config.json` and `model.safetensors` (see
            `data.words.model_folder`).
        dim: width D of the joint space.
        pretrained: load the weights; False: the architecture alone, for weights that come from a checkpoint.

    Raises:
        FileNotFoundError: the model is no folder, and cannot be downloaded.

    Source: Devlin et al. 2019; as a caption encoder, Chen et al. 2021 (VSE-infinity).
    """

    def __init__(self, name_or_path: str | Path, dim: int, pretrained: bool = True) -> None:
        super().__init__()
        self.backbone: PreTrainedModel = _transformer(name_or_path, pretrained)
        self.project = projection(self.backbone.config.hidden_size, dim)

    def forward(self, tokens: Tensor, mask: Tensor | None = None) -> tuple[Tensor, Tensor | None]:
        """Encode captions (C, L).

        Raises:
            ValueError: another shape, or more pieces than the model has positions for.
        """
        check_tokens(tokens, mask)
        positions = getattr(self.backbone.config, "max_position_embeddings", tokens.shape[1])
        if tokens.shape[1] > positions:
            raise ValueError(
                f"tokens are {tokens.shape[1]} long: this model reads at most {positions} pieces"
            )
        attended = torch.ones_like(tokens) if mask is None else mask.to(tokens.dtype)
        states = self.backbone(input_ids=tokens, attention_mask=attended).last_hidden_state  # (C, L, H)
        return self.project(states), mask  # (C, L, D)


def check_tokens(tokens: Tensor, mask: Tensor | None) -> None:
    """Refuse tokens that are not whole numbers (C, L) with L > 0, and a mask that is not bool (C, L).

    Raises:
        ValueError: naming what came and what is wanted.
    """
    shape = tuple(tokens.shape)
    if tokens.ndim != 2 or tokens.shape[1] == 0 or tokens.is_floating_point():
        raise ValueError(f"tokens must be whole numbers (C, L) with L > 0, got {tokens.dtype} {shape}")
    if mask is not None and (mask.dtype != torch.bool or mask.shape != tokens.shape):
        raise ValueError(f"mask must be bool {shape}, got {mask.dtype} {tuple(mask.shape)}")


def _lengths(mask: Tensor) -> Tensor:
    mask = mask.cpu()
    lengths = mask.sum(1)  # (C,)
    if not lengths.all():
        raise ValueError(
            f"mask leaves caption {int(lengths.argmin())} of the batch without a word: each needs one"
        )
    if (mask[:, 1:] & ~mask[:, :-1]).any():
        raise ValueError(
            "mask has padding before a word: a recurrent network wants the words first, then padding"
        )
    return lengths


def _transformer(name_or_path: str | Path, pretrained: bool) -> PreTrainedModel:
    from transformers import AutoConfig, AutoModel  # seconds of import, for those who read with BERT alone
    from transformers.utils import logging

    if in_batch():
        logging.disable_progress_bar()  # a bar, too, that would end up in a stored notebook
    folder = model_folder(name_or_path)
    # safetensors alone: other weights would be pickles, which can run code.
    if pretrained:
        model = AutoModel.from_pretrained(folder, use_safetensors=True)
    else:
        model = AutoModel.from_config(AutoConfig.from_pretrained(folder))
    model.pooler = None  # its output is not used, and weights without a gradient would stop several processes
    return model

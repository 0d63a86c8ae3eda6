"""Captions read by a pretrained BERT."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import torch
from pydantic import Field
from torch import Tensor

from vsecore.arguments import Count, Share, Whole, checked
from vsecore.data.files import read_json, write_whole
from vsecore.data.language_models import model_folder
from vsecore.data.word_pieces import BERTTokenizer
from vsecore.encoders.base import TextEncoder, Tokens, WordMask
from vsecore.encoders.hub import CONFIG, build_model
from vsecore.normalisation import projection

if TYPE_CHECKING:
    from transformers import BertModel


class BERTEncoder(TextEncoder):
    """A pretrained transformer over word pieces, with its last layer projected.

    Its special tokens at the start and end are elements like the others.

    Args:
        weights: a model of the hub, or a folder with `config.json` and `model.safetensors` (see
            `data.language_models.model_folder`).
        dim: width D of the joint space.
        architecture: a folder written by `save_architecture`. It is read in place of `weights`, and the
            parameters start at random: for a model whose weights come from a checkpoint.

    Source: Devlin et al. 2019; as a caption encoder, Chen et al. 2021 (VSE-infinity).
    """

    backbone: BertModel

    @checked
    def __init__(self, weights: str, dim: Count, architecture: Path | None = None) -> None:
        super().__init__()
        from transformers import BertConfig, BertModel  # takes seconds, and only BERT needs it

        folder = model_folder(weights) if architecture is None else architecture
        read: Architecture = read_json(folder / CONFIG, Architecture)
        if read.hidden_size % read.num_attention_heads:
            raise ValueError(
                f"{folder / CONFIG}: hidden_size is {read.hidden_size}: wanted a multiple of "
                f"num_attention_heads ({read.num_attention_heads})"
            )
        config = BertConfig(**asdict(read))
        # Its pooling is not used, and several processes would wait for the gradients of those weights.
        self.backbone = build_model(BertModel, config, folder, architecture is None, add_pooling_layer=False)
        self.config = config
        self.project = projection(read.hidden_size, dim)

    @classmethod
    def tokenizer(cls, captions: Sequence[str], weights: str) -> BERTTokenizer:
        """Load the model's own tokenizer, whatever the captions; raises as the encoder does."""
        return BERTTokenizer(weights)

    @classmethod
    def load_tokenizer(cls, folder: Path) -> BERTTokenizer:
        return BERTTokenizer.load(folder)

    def save_architecture(self, folder: Path) -> None:
        write_whole(folder / CONFIG, self.config.to_json_string())

    @checked
    def forward(self, tokens: Tokens, mask: WordMask = None) -> tuple[Tensor, Tensor | None]:
        """Encode captions, given as numbers of word pieces (C, L)."""
        positions = self.config.max_position_embeddings
        if tokens.shape[1] > positions:
            raise ValueError(
                f"tokens are {tokens.shape[1]} long: this model reads at most {positions} pieces"
            )
        added = None
        if mask is not None:
            # What the attention adds to its logits. Given a mask (C, L), transformers would check whether
            # it is all True, and so wait for a GPU.
            dtype = self.backbone.dtype
            added = (~mask).to(dtype).mul(torch.finfo(dtype).min)[:, None, None]  # (C, 1, 1, L)
        states = self.backbone(input_ids=tokens, attention_mask=added).last_hidden_state  # (C, L, H)
        return self.project(states), mask  # (C, L, D)


Size = Annotated[int, Field(ge=1, le=2**20)]


@dataclass(frozen=True)
class Architecture:
    """The fields of a `config.json` that define a BERT.

    Nothing else in that file is read, since it may name code to fetch and run.
    """

    model_type: Literal["bert"]
    vocab_size: Size
    hidden_size: Size
    num_hidden_layers: Annotated[int, Field(ge=1, le=1000)]
    num_attention_heads: Size
    intermediate_size: Size
    max_position_embeddings: Size
    type_vocab_size: Size = 2
    hidden_act: Literal["gelu", "gelu_new", "relu", "silu"] = "gelu"
    hidden_dropout_prob: Share = 0.1
    attention_probs_dropout_prob: Share = 0.1
    layer_norm_eps: Annotated[float, Field(gt=0, lt=1)] = 1e-12
    initializer_range: Share = 0.02
    pad_token_id: Whole | None = 0
    position_embedding_type: Literal["absolute"] = "absolute"

"""From the words of a caption to elements of the joint width.

Every encoder is called as `encoder(tokens, mask)` with tokens (C, L) and a bool mask (C, L), True where a
word is real (None: all are), and returns the elements (C, L, D) with their mask.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, cast

import torch
from pydantic import Field
from safetensors import SafetensorError
from torch import Tensor, nn

from vsecore.data.files import in_batch, read_json, write_atomically
from vsecore.data.language_models import model_folder
from vsecore.data.vocabulary import Vocabulary
from vsecore.data.word_pieces import BERTTokenizer
from vsecore.encoders import cpu
from vsecore.encoders.pictures import projection
from vsecore.memory import check_room

if TYPE_CHECKING:
    from transformers import BertModel


class ReadsVocabulary:
    """What encoders share that look each word up in a table: their tokenizer is a `Vocabulary`."""

    @classmethod
    def tokenizer(cls, captions: Sequence[str], minimum_count: int = 4) -> Vocabulary:
        """Build the vocabulary of these captions, which should be those of the training split.

        Args:
            captions: sentences.
            minimum_count: how often a word must occur to be kept; rarer ones become the unknown word.

        Raises:
            ValueError: minimum_count < 1, or no word occurs so often.
        """
        _check_positive("minimum_count", minimum_count)
        return Vocabulary.build(captions, minimum_count)

    @classmethod
    def load_tokenizer(cls, folder: Path) -> Vocabulary:
        """Load the vocabulary that a run's folder keeps; raises as `Vocabulary.load`."""
        return Vocabulary.load(folder)


class BiGRUEncoder(ReadsVocabulary, nn.Module):
    """Word vectors read by a recurrent network in both directions; a word is the mean of its two states.

    Args:
        vocabulary_size: number of words.
        word_dim: width of a word vector.
        dim: width D of the joint space, and of the state in each direction.
        vectors: the word vectors at the start, (vocabulary_size, word_dim), such as GloVe's; training
            changes them. Without them the vectors start at random.

    Raises:
        ValueError: vectors of another shape, or a width that is not a whole number of at least 1.

    Source: Faghri et al. 2018 (VSE++) with one direction; the mean of both as in Lee et al. 2018 (SCAN).
    """

    def __init__(
        self, vocabulary_size: int, word_dim: int = 300, dim: int = 1024, vectors: Tensor | None = None
    ) -> None:
        super().__init__()
        for name, number in (("vocabulary_size", vocabulary_size), ("word_dim", word_dim), ("dim", dim)):
            _check_positive(name, number)
        self.backbone: nn.Module | None = None  # only word vectors may be pretrained
        self.embedding = embedding_of_words(vocabulary_size, word_dim, vectors)
        self.forwards = nn.GRU(word_dim, dim, batch_first=True)
        self.backwards = nn.GRU(word_dim, dim, batch_first=True)

    def forward(self, tokens: Tensor, mask: Tensor | None = None) -> tuple[Tensor, Tensor | None]:
        """Encode captions (C, L), the words of each first and its padding last.

        Raises:
            ValueError: another shape, a caption without a word, or padding before a word (the last
                two are not checked on a GPU, since the answer would have to be waited for).
        """
        check_tokens(tokens, mask)
        _check_words_first(mask)
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


class BERTEncoder(nn.Module):
    """A pretrained transformer over word pieces, with its last layer projected.

    Its special tokens at the start and end are elements like the others.

    Args:
        weights: a model of the hub, or a folder with `config.json` and `model.safetensors` (see
            `data.language_models.model_folder`).
        dim: width D of the joint space.
        architecture: a folder written by `save_architecture`. It is read in place of `weights`, and the
            parameters start at random: for a model whose weights come from a checkpoint.

    Raises:
        FileNotFoundError: the model is not a folder, and cannot be downloaded.
        ValueError: weights is empty; or the model is not a BERT, is damaged, or is too large for this
            machine.

    Source: Devlin et al. 2019; as a caption encoder, Chen et al. 2021 (VSE-infinity).
    """

    def __init__(self, weights: str, dim: int, architecture: Path | None = None) -> None:
        super().__init__()
        _check_weights(weights)
        _check_positive("dim", dim)
        self.backbone: BertModel = _transformer(weights, architecture)
        self.project = projection(self.backbone.config.hidden_size, dim)

    @classmethod
    def tokenizer(cls, captions: Sequence[str], weights: str) -> BERTTokenizer:
        """Load the tokenizer that a model was trained with.

        Args:
            captions: not used, since the word pieces are the model's own.
            weights: as for the encoder.

        Raises:
            FileNotFoundError: the model is not a folder, and cannot be downloaded.
            ValueError: weights is empty, or the model has no tokenizer of BERT's kind.
        """
        _check_weights(weights)
        return BERTTokenizer(weights)

    @classmethod
    def load_tokenizer(cls, folder: Path) -> BERTTokenizer:
        """Load the tokenizer that a run's folder keeps; raises as `BERTTokenizer.load`."""
        return BERTTokenizer.load(folder)

    def save_architecture(self, folder: str | Path) -> None:
        """Write `config.json`, from which the encoder can be built again without its first weights."""
        with write_atomically(Path(folder) / "config.json", "w") as file:
            file.write(self.backbone.config.to_json_string())

    def forward(self, tokens: Tensor, mask: Tensor | None = None) -> tuple[Tensor, Tensor | None]:
        """Encode captions (C, L).

        Args:
            tokens: numbers of word pieces, (C, L).
            mask: bool, (C, L).

        Raises:
            ValueError: another shape, or more pieces than the model has positions for.
        """
        check_tokens(tokens, mask)
        positions = getattr(self.backbone.config, "max_position_embeddings", tokens.shape[1])
        if tokens.shape[1] > positions:
            raise ValueError(
                f"tokens are {tokens.shape[1]} long: this model reads at most {positions} pieces"
            )
        added = None
        if mask is not None:
            # What the attention adds to its logits. Given a mask (C, L), transformers would check whether
            # it is all True, and so wait for a GPU.
            lowest = torch.finfo(self.backbone.dtype).min
            added = (~mask).to(self.backbone.dtype).mul(lowest)[:, None, None]  # (C, 1, 1, L)
        states = self.backbone(input_ids=tokens, attention_mask=added).last_hidden_state  # (C, L, H)
        return self.project(states), mask  # (C, L, D)


def embedding_of_words(vocabulary_size: int, word_dim: int, vectors: Tensor | None) -> nn.Embedding:
    """Make word vectors that are trained, starting from the given ones or from noise.

    Raises:
        ValueError: vectors of another shape.
    """
    embedding = nn.Embedding(vocabulary_size, word_dim)
    if vectors is None:
        nn.init.uniform_(embedding.weight, -0.1, 0.1)  # as VSE++'s released code
    elif vectors.shape != embedding.weight.shape:
        wanted = tuple(embedding.weight.shape)
        raise ValueError(
            f"vectors must be {wanted}, (vocabulary, word_dim), got {tuple(vectors.shape)}: set "
            f"text.encoder.word_dim to the vectors' width, or give others"
        )
    else:
        embedding.weight.data.copy_(vectors)
    return embedding


def check_tokens(tokens: Tensor, mask: Tensor | None) -> None:
    """Refuse tokens that are not whole numbers (C, L) with L > 0, and a mask that is not bool (C, L).

    Raises:
        ValueError: something else came; the message says what, and what is wanted.
    """
    shape = tuple(tokens.shape)
    if tokens.ndim != 2 or tokens.shape[1] == 0 or tokens.is_floating_point():
        raise ValueError(f"tokens must be whole numbers (C, L) with L > 0, got {tokens.dtype} {shape}")
    if mask is not None and (mask.dtype != torch.bool or mask.shape != tokens.shape):
        raise ValueError(f"mask must be bool {shape}, got {mask.dtype} {tuple(mask.shape)}")


def _check_positive(name: str, number: int) -> None:
    if not isinstance(number, int) or isinstance(number, bool) or number < 1:
        raise ValueError(f"{name} must be a whole number of at least 1, got {number!r}")


def _check_weights(weights: str) -> None:
    if not weights:
        raise ValueError('weights is empty: name a model, such as "bert-base-uncased", or its folder')


def _check_words_first(mask: Tensor | None) -> None:
    if mask is None or mask.device.type != "cpu":
        return
    if not mask.any(1).all():
        row = int((~mask.any(1)).nonzero()[0])
        raise ValueError(f"mask leaves caption {row} of the batch without a word: each needs one")
    if (mask[:, 1:] & ~mask[:, :-1]).any():
        raise ValueError(
            "mask has padding before a word: a recurrent network wants the words first, then padding"
        )


def _turned(x: Tensor, mask: Tensor | None) -> Tensor:
    """Reverse the words of captions (C, L, W), with the padding still behind them."""
    if mask is None:
        return x.flip(1)
    places = torch.arange(x.shape[1], device=x.device)
    sources = (mask.sum(1, keepdim=True) - 1 - places).clamp(min=0)  # (C, L)   padding takes any word
    return x.gather(1, sources.unsqueeze(-1).expand_as(x))


Size = Annotated[int, Field(ge=1, le=2**20)]
Share = Annotated[float, Field(ge=0, lt=1)]


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
    initializer_range: Annotated[float, Field(ge=0, lt=1)] = 0.02
    pad_token_id: Annotated[int, Field(ge=0)] | None = 0
    position_embedding_type: Literal["absolute"] = "absolute"


def _transformer(weights: str, architecture: Path | None) -> BertModel:
    from transformers import BertConfig, BertModel  # takes seconds, and only BERT needs it
    from transformers.utils import logging

    if in_batch():
        logging.disable_progress_bar()  # the bar would end up in a stored notebook
    folder = model_folder(weights) if architecture is None else architecture
    path = folder / "config.json"
    read: Architecture = read_json(path, Architecture)
    if read.hidden_size % read.num_attention_heads:
        raise ValueError(
            f"{path}: hidden_size is {read.hidden_size}: wanted a multiple of num_attention_heads "
            f"({read.num_attention_heads})"
        )
    # Only transformers' own classes, which never look for code in a folder.
    config = BertConfig(**asdict(read))
    with torch.device("meta"):
        wanted = BertModel(config, add_pooling_layer=False)
    check_room(f"{path}: the model", sum(weight.numel() for weight in wanted.parameters()))
    if architecture is not None:
        return BertModel(config, add_pooling_layer=False)
    verbosity = logging.get_verbosity()
    logging.set_verbosity_error()  # it would list the pooling's weights, which are not used
    try:
        # Only safetensors, because pickled weights can run code too. Pooling is not used, and several
        # processes would wait for the gradients of its weights.
        loaded: Any = BertModel.from_pretrained(
            folder,
            config=config,
            dtype=torch.float32,
            use_safetensors=True,
            add_pooling_layer=False,
            output_loading_info=True,
        )
    except (SafetensorError, RuntimeError) as error:
        raise ValueError(
            f"the weights in {folder} are damaged, or belong to another model: get them again"
        ) from error
    finally:
        logging.set_verbosity(verbosity)
    model, found = loaded
    if lacking := sorted(found["missing_keys"]):
        raise ValueError(f"the weights in {folder} lack {lacking[0]}: get them again")
    return cast(BertModel, model)

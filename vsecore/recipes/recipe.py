"""A system as plain data: two towers, how they are compared, what they learn from, and how.

A recipe is frozen. `override` makes another one; `build` makes the model; `hash` identifies it. Each
part has the name that its registry gives it, and its class says which options it takes.
"""

from __future__ import annotations

import functools
import hashlib
import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, is_dataclass, replace
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any, Literal, cast, get_args, get_type_hints

import torch
from pydantic import BeforeValidator, ConfigDict, Field, TypeAdapter, ValidationError
from pydantic.dataclasses import dataclass
from torch import Tensor, nn

from vsecore.arguments import NotNegative, Positive, Share
from vsecore.data.photographs import View
from vsecore.data.splits import FeatureKind
from vsecore.data.words import Tokenizer
from vsecore.encoders import IMAGE_ENCODERS, TEXT_ENCODERS, ImageEncoder
from vsecore.encoders.base import Encoder
from vsecore.encoders.reasoning import REASONERS
from vsecore.losses import LOSSES, Loss
from vsecore.memory import check_room
from vsecore.model import VSE
from vsecore.pooling import POOLS
from vsecore.registry import Registry, names_read
from vsecore.similarity import SIMILARITIES
from vsecore.typed import sentence, short

STRICT = ConfigDict(strict=True, extra="forbid")
LARGEST = 2**16
"""The largest whole number allowed as an option of a part: no real width or count comes near it."""
DEEPEST = 256
"""The most layers that a part may have."""
Count = Annotated[int, Field(ge=1, le=2**30)]
Whole = Annotated[int, Field(ge=0, le=2**30)]


@dataclass(frozen=True, config=STRICT)
class Part:
    """A part of a system by name, with the options that differ from the defaults of its class."""

    name: str
    options: dict[str, Any] = Field(default_factory=dict)
    weight: NotNegative = 1.0
    """Only for a loss: its factor in the sum."""


AnyPart = Annotated[Part, BeforeValidator(lambda part: {"name": part} if isinstance(part, str) else part)]
"""A part, which may be given by its name alone."""


@dataclass(frozen=True, config=STRICT)
class ImageTower:
    """How a picture becomes vectors."""

    encoder: AnyPart = Part("grid")
    """Of `encoders.IMAGE_ENCODERS`."""
    reasoner: AnyPart | None = None
    """Of `encoders.reasoning.REASONERS`; None: each element stays by itself."""
    pool: AnyPart | None = Part("mean")
    """Of `pooling.POOLS`; None: only elements are compared."""
    element_drop: Share = 0.0
    """The share of elements left out in training."""
    boxes: bool = False
    """Whether a folder's features get its boxes beside them: see `data.boxes`."""


@dataclass(frozen=True, config=STRICT)
class TextTower:
    """How a caption becomes vectors."""

    encoder: AnyPart = Part("gru")
    """Of `encoders.TEXT_ENCODERS`."""
    reasoner: AnyPart | None = None
    pool: AnyPart | None = Part("mean")
    word_drop: Share = 0.0
    """The share of words hidden or left out in training."""


@dataclass(frozen=True, config=STRICT)
class Training:
    """How the weights are trained."""

    epochs: Count = 30
    batch_size: Annotated[int, Field(ge=2, le=2**30)] = 128
    """The size of the joint batch, over all processes."""
    batches: Literal["pairs", "pictures"] = "pairs"
    """Captions with their picture, or pictures with all their captions."""
    optimizer: Literal["Adam", "AdamW"] = "Adam"
    learning_rate: Positive = 2e-4
    pretrained_factor: NotNegative = 0.1
    """Pretrained weights learn at the learning rate times this."""
    picture_factor: NotNegative | None = None
    """The same for the network behind pictures; None: the same factor."""
    frozen_epochs: Whole = 0
    """For so many epochs, pretrained weights are frozen."""
    set_factor: NotNegative = 1.0
    """Modules that predict sets learn at the learning rate times this."""
    weight_decay: NotNegative = 0.0
    warmup_steps: Whole = 0
    """The learning rate grows linearly over this many steps."""
    schedule: Literal["constant", "step", "cosine", "linear", "exponential"] = "step"
    decay_epochs: Count = 15
    """Step: every this many epochs; exponential: over this many."""
    decay_factor: Positive = 0.1
    """Step, exponential: times this."""
    clip_norm: Positive = 2.0
    """The largest norm that a gradient may have."""
    embed_at_a_time: Count | None = None
    """Micro-batch size of the encoders (gradient caching); None: the whole batch."""
    snapshots: Whole = 0
    """How many snapshots, taken in the last tenth of each epoch, are averaged for evaluation; 0: none."""


@dataclass(frozen=True, config=STRICT)
class FirstRound:
    """A training before the training: its model finds the hard negatives that the second one learns from.

    Source: Chen, Deng and Luo 2020 (AOQ), section 3.2; there 300 captions and 60 pictures.
    """

    losses: tuple[AnyPart, ...] = (Part("triplet"),)
    texts: Count = 300
    """How many of the hardest captions are kept for each picture."""
    pictures: Count = 60
    """How many of the hardest pictures for each caption."""
    keeps_weights: bool = False
    """Go on with the first round's weights; False: begin from new ones."""


@dataclass(frozen=True, config=STRICT)
class Recipe:
    """A whole system. Its `losses` are added up, each times its weight."""

    name: str
    source: str
    """Where the numbers come from."""
    dim: Annotated[int, Field(ge=2, le=2**16)] = 1024
    """Width of the joint space."""
    image: ImageTower = ImageTower()
    text: TextTower = TextTower()
    shared: AnyPart | None = None
    """A reasoner with one set of weights, which both towers use last."""
    similarity: AnyPart = Part("cosine")
    losses: tuple[AnyPart, ...] = (Part("triplet"),)
    training: Training = Training()
    first_round: FirstRound | None = None
    """None: there is one training; see `training.fit_in_rounds`."""

    def __post_init__(self) -> None:
        """Refuse parts that cannot be built, before hours of preparation are spent."""
        for place, registry, part in self._parts():
            where = ".".join(str(step) for step in place if not isinstance(step, int))
            try:
                for option, value in registry.read(part.name, part.options).items():
                    most = DEEPEST if option == "layers" else LARGEST
                    if isinstance(value, int) and value > most:
                        raise ValueError(f"option {option} is {short(value)}: wanted at most {most}")
                if registry is not IMAGE_ENCODERS and registry is not TEXT_ENCODERS:
                    self._try(registry, part)  # not encoders, which need data, or load their weights
            except ValueError as error:
                raise ValueError(f"{where}: {error}") from error
            if registry is not LOSSES and part.weight != 1:
                raise ValueError(f"{where}.weight is {part.weight}: only losses have weights")
        compared = names_read(SIMILARITIES[self.similarity.name])
        if not compared:
            raise ValueError(
                f"similarity {self.similarity.name!r} does not say what it compares: give its class the "
                'attribute reads = "vectors" or reads = "elements"'
            )
        for tower, pool in (("image", self.image.pool), ("text", self.text.pool)):
            if pool is None and "vectors" in compared:
                raise ValueError(
                    f"{tower}.pool is missing: similarity {self.similarity.name!r} compares pooled vectors"
                )
        self._check_rounds()

    def _check_rounds(self) -> None:
        """Refuse losses that cannot be added up, and rounds that cannot follow each other."""
        rounds = {"losses": self.losses}
        if self.first_round is not None:
            rounds["first_round.losses"] = self.first_round.losses
        for where, losses in rounds.items():
            names = [part.name for part in losses]
            if not names or len(set(names)) < len(names):
                raise ValueError(f"{where} are {names}: wanted at least one, and none twice")
        if self.learns_offline and self.training.batches != "pairs":
            raise ValueError(
                f"training.batches is {self.training.batches!r}: it must be 'pairs', since a loss learns "
                "from offline negatives, which are drawn for pairs"
            )
        if self.first_round is None:
            return
        if early := [part.name for part in self.first_round.losses if reads_offline(part)]:
            raise ValueError(
                f"first_round.losses names {early[0]!r}, which learns from offline negatives: they are mined "
                "after the first round, so it must be a loss of the batch alone"
            )
        if not self.learns_offline:
            late = ", ".join(part.name for part in self.losses)
            raise ValueError(
                f"first_round is set, but no loss of the second round ({late}) learns from offline "
                "negatives: set first_round to none, or losses to one that does"
            )

    def _try(self, registry: Registry, part: Part) -> None:
        """Build a part to see whether its constructor accepts the options; this draws no random numbers."""
        known = {"dim": self.dim, "target_dim": 8, "vocabulary_size": 8}
        try:
            with torch.device("meta"):  # uses no memory
                registry.build(part.name, part.options, **known)
        except RuntimeError:  # it reads values, and on this device there are none
            with torch.random.fork_rng(devices=[]):
                registry.build(part.name, part.options, **known)

    def _parts(self) -> list[tuple[tuple[str | int, ...], Registry, Part]]:
        """Yield every part with its place in what `to_dict` writes, and the registry that knows it."""
        places: list[tuple[tuple[str | int, ...], Registry, Part | None]] = [
            (("image", "encoder"), IMAGE_ENCODERS, self.image.encoder),
            (("image", "reasoner"), REASONERS, self.image.reasoner),
            (("image", "pool"), POOLS, self.image.pool),
            (("text", "encoder"), TEXT_ENCODERS, self.text.encoder),
            (("text", "reasoner"), REASONERS, self.text.reasoner),
            (("text", "pool"), POOLS, self.text.pool),
            (("shared",), REASONERS, self.shared),
            (("similarity",), SIMILARITIES, self.similarity),
            *((("losses", row), LOSSES, part) for row, part in enumerate(self.losses)),
            *(
                (("first_round", "losses", row), LOSSES, part)
                for row, part in enumerate(self.first_round.losses if self.first_round else ())
            ),
        ]
        return [(place, registry, part) for place, registry, part in places if part is not None]

    @property
    def features(self) -> FeatureKind:
        """What kind of features the picture encoder reads: its attribute `reads`, or else its name."""
        name = self.image.encoder.name
        return cast(FeatureKind, cast(type[ImageEncoder], IMAGE_ENCODERS[name]).reads or name)

    @property
    def is_trained(self) -> bool:
        """Whether both towers come from one model that was trained already, so that they can be compared."""
        image, text = self.image.encoder, self.text.encoder
        towers = (IMAGE_ENCODERS[image.name], TEXT_ENCODERS[text.name])
        same = image.options.get("weights") == text.options.get("weights")
        return same and all(cast(type[Encoder], tower).aligned for tower in towers)

    def view(self) -> View:
        """Return how photographs must be cut for the picture encoder, which reads pixels.

        Raises:
            ValueError: the encoder does not say, or reads features.
            FileNotFoundError: a pretrained tower's folder, which says so, cannot be found.
        """
        encoder = self.image.encoder
        view: View = IMAGE_ENCODERS.call(encoder.name, "sees", encoder.options)
        return view

    @property
    def learns_offline(self) -> bool:
        """Whether one of its losses learns from offline negatives."""
        return any(reads_offline(part) for part in self.losses)

    @property
    def predicts_targets(self) -> bool:
        """Whether one of its losses predicts targets, which the data must then have: see `Split.targets`."""
        return any(LOSSES.takes(part.name, "target_dim") for part in self.losses)

    def of_first_round(self) -> Recipe:
        """Return the recipe of the first round: the same system, trained by the first round's losses.

        Raises:
            ValueError: there is no first round.
        """
        if self.first_round is None:
            raise ValueError(f"recipe {self.name!r} has no first round")
        name = f"{self.name}, first round"
        return replace(self, name=name, losses=self.first_round.losses, first_round=None)

    def override(self, changes: Mapping[str, Any]) -> Recipe:
        """Return the same recipe with other values.

        Args:
            changes: the full names of fields with their values, which may be text. Change a part by giving
                another name (its options are then the defaults), or option by option; a loss among several
                is changed by its own name, in both rounds if both have it.

        Raises:
            ValueError: a field is unknown, or a value is of the wrong type or range.

        Example:
            >>> get("vsepp_grid_gru").override({"training.epochs": "3", "losses.triplet.margin": 0.1})
            >>> get("vsepp_grid_gru").override({"image.pool": "kmax", "image.pool.k": 5})
            >>> get("vsrn_grid").override({"losses.triplet": "adopt"})  # its captioning loss stays
        """
        content = self.to_dict()
        # A part's name comes before its options, whatever the order in which they are given.
        for name, value in sorted(changes.items(), key=lambda change: change[0].count(".")):
            _change(content, name, value)
        return Recipe.from_dict(content)

    def to_dict(self) -> dict[str, Any]:
        """Return the recipe as plain JSON data; `from_dict` reads it back."""
        content: dict[str, Any] = json.loads(json.dumps(asdict(self)))
        return content

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> Recipe:
        """Read what `to_dict` wrote; a missing field gets its default, but name and source have none.

        Raises:
            ValueError: a field is unknown, or of the wrong type or range.
        """
        try:
            text = json.dumps(content, allow_nan=False, ensure_ascii=False).encode()
            return _READER.validate_json(text)
        except ValidationError as error:
            raise ValueError(sentence("recipe", error)) from None
        except UnicodeEncodeError:
            raise ValueError("the settings hold text that is not Unicode: write it again") from None
        except (RecursionError, TypeError, ValueError) as error:
            raise ValueError(f"the settings hold something that JSON cannot express ({error})") from error

    def portable(self) -> dict[str, Any]:
        """Return the recipe as plain data in the form that runs and records keep.

        Options that have their default are left out. Only the name of a folder of weights is kept, since its
        path differs between machines.
        """
        content = self.to_dict()
        for place, registry, part in self._parts():
            options = json.loads(json.dumps(registry.changed(part.name, part.options)))
            folder = Path(str(options.get("weights", ""))).expanduser()
            if options.get("weights") and (folder.is_absolute() or folder.is_dir()):
                options["weights"] = folder.resolve().name
            functools.reduce(lambda inner, step: inner[step], place, cast(Any, content))["options"] = options
        return content

    def hash(self) -> str:
        """Return twelve hexadecimal digits that change with every setting but name, source and `image.boxes`.

        Only what differs from the defaults (also those of the parts' classes) counts, so adding a field later
        does not change the digits of older records.
        """
        content, plain = (_briefly(recipe.portable()) for recipe in (self, Recipe("", "")))
        for kept in (content, plain):
            kept |= {"name": "", "source": ""}
            del kept["image"]["boxes"]  # they are data, and change its fingerprint
        if self.first_round is not None:
            usual = _briefly(json.loads(json.dumps(asdict(FirstRound()))))
            first = content["first_round"]
            content["first_round"] = {key: value for key, value in first.items() if value != usual[key]}
        text = json.dumps(_changed(content, plain), sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:12]

    def tokenizer(self, captions: Sequence[str]) -> Tokenizer:
        """Make the text encoder's tokenizer; a vocabulary is counted in the training captions."""
        encoder = self.text.encoder
        tokenizer: Tokenizer = TEXT_ENCODERS.call(
            encoder.name, "tokenizer", encoder.options, captions=captions
        )
        return tokenizer

    def load_tokenizer(self, folder: Path) -> Tokenizer:
        """Load the tokenizer that a run's folder keeps.

        Raises:
            FileNotFoundError: the folder has none.
            ValueError: the file is damaged.
        """
        encoder = self.text.encoder
        tokenizer: Tokenizer = TEXT_ENCODERS.call(
            encoder.name, "load_tokenizer", encoder.options, folder=folder
        )
        return tokenizer

    def build(
        self,
        feature_dim: int,
        tokenizer: Tokenizer,
        vectors: Tensor | None = None,
        architecture: Path | None = None,
    ) -> VSE:
        """Build the model, with new weights from torch's global generator.

        Args:
            feature_dim: width of a picture's elements.
            tokenizer: defines the words that the text encoder reads.
            vectors: initial word vectors, (len(tokenizer), width), for an encoder that takes them.
            architecture: a run's folder, for weights that come from a checkpoint. Its subfolders
                `image_encoder` and `text_encoder` hold what `save_architecture` wrote, if an encoder has it.

        Raises:
            ValueError: vectors that do not fit, or that no encoder reads.
            FileNotFoundError: the pretrained weights cannot be found.
        """
        reader = self.text.encoder
        if vectors is not None and not TEXT_ENCODERS.takes(reader.name, "vectors"):
            raise ValueError(
                f"vectors are given, but recipe {self.name!r} reads with {reader.name!r}: leave them out"
            )
        self._check_room(feature_dim, len(tokenizer))
        # Encoders first: from one seed, systems with different pools start with the same encoders.
        image_encoder = IMAGE_ENCODERS.build(
            self.image.encoder.name,
            self.image.encoder.options,
            feature_dim=feature_dim,
            dim=self.dim,
            architecture=architecture and architecture / "image_encoder",
        )
        text_encoder = TEXT_ENCODERS.build(
            reader.name,
            reader.options,
            vocabulary_size=len(tokenizer),
            dim=self.dim,
            vectors=vectors,
            architecture=architecture and architecture / "text_encoder",
        )
        reasoners = [
            self._built(REASONERS, part) for part in (self.image.reasoner, self.text.reasoner, self.shared)
        ]
        return VSE(
            image_encoder,
            self._built(POOLS, self.image.pool),
            text_encoder,
            self._built(POOLS, self.text.pool),
            SIMILARITIES.build(self.similarity.name, self.similarity.options, dim=self.dim),
            *reasoners,
        )

    def _check_room(self, feature_dim: int, vocabulary_size: int) -> None:
        """Refuse a model that would not fit into memory; parts loaded from files check that themselves."""
        known = {"feature_dim": feature_dim, "vocabulary_size": vocabulary_size, "dim": self.dim}
        count = 0
        for _, registry, part in self._parts():
            if registry is LOSSES or registry.takes(part.name, "weights"):
                continue
            try:
                with torch.device("meta"):
                    built = registry.build(part.name, part.options, **known)
            except RuntimeError:
                continue  # its constructor reads values, and on this device tensors have none
            count += sum(weight.numel() for weight in built.parameters())
        check_room(f"recipe {self.name!r}", count)

    def _built(self, registry: Registry, part: Part | None) -> nn.Module | None:
        return None if part is None else registry.build(part.name, part.options, dim=self.dim)


_READER = TypeAdapter(Recipe)


@functools.cache
def settings() -> Mapping[str, Any]:
    """Return the fields of a recipe by full name, each with its type, including those of nested settings."""
    return _fields(Recipe)


def _fields(kind: type[Any]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, hint in get_type_hints(kind).items():
        if is_dataclass(hint) and hint is not Part:
            found |= {f"{name}.{inner}": of for inner, of in _fields(cast(type[Any], hint)).items()}
        else:
            found[name] = hint
    return found


def reads_offline(part: Part) -> bool:
    """Whether a loss learns from offline negatives: its class says so, see `vsecore.losses.Loss`."""
    return cast(type[Loss], LOSSES[part.name]).reads_offline


def _change(content: dict[str, Any], name: str, value: Any) -> None:
    """Set the field with this full name in what `Recipe.to_dict` returns."""
    field = next((field for field in settings() if name == field or name.startswith(f"{field}.")), None)
    if field is None:
        raise _unknown(name)
    *outer, last = field.split(".")
    holder = functools.reduce(lambda inner, key: inner[key], outer, content)
    inner = name.removeprefix(f"{field}.")
    is_part = Part in (settings()[field], *get_args(settings()[field]))
    value = value if field in ("name", "source") else _parsed(value)
    if field == "losses":
        _change_losses(holder, name, field, value)
        first, (loss, _, option) = content["first_round"], inner.partition(".")
        if name != field and option and first and loss in [part["name"] for part in first["losses"]]:
            _change_losses(first, name, field, value)  # it is one loss in both rounds
    elif name == field:
        if value in (None, "none"):  # as people write null
            holder[last] = None
        else:
            holder[last] = (
                _full(value, name) if is_part else asdict(value) if isinstance(value, FirstRound) else value
            )
    elif is_part and holder[last] is not None:
        _change_part(holder[last], inner, value)
    elif field == "first_round" and holder[last] is None:
        raise ValueError(
            f"setting {name!r} is unknown here: recipe {content['name']!r} has no first round (first_round "
            "is none)"
        )
    elif field == "first_round" and inner.split(".")[0] == "losses":
        _change_losses(holder[last], name, "first_round.losses", value)
    elif field == "first_round" and inner in holder[last]:
        holder[last][inner] = value
    else:
        raise _unknown(name, [f"{field}.{known}" for known in holder[last]] if field == "first_round" else ())


def _change_losses(holder: dict[str, Any], name: str, field: str, value: Any) -> None:
    """Set all losses of a round, one of them, or one of its options."""
    if name == field:
        listed = value if isinstance(value, list | tuple) else [value]
        holder["losses"] = [_full(part, name) for part in listed]
        return
    loss, _, option = name.removeprefix(f"{field}.").partition(".")
    row = next((row for row, part in enumerate(holder["losses"]) if part["name"] == loss), None)
    if row is None:
        known = ", ".join(part["name"] for part in holder["losses"])
        raise ValueError(f"setting {name!r} is unknown: this recipe's {field} are {known}")
    if option:
        _change_part(holder["losses"][row], option, value)
    else:
        holder["losses"][row] = {"weight": holder["losses"][row].get("weight", 1.0), **_full(value, name)}


def _change_part(part: dict[str, Any], option: str, value: Any) -> None:
    if option == "weight":
        part["weight"] = value
    else:
        part["options"][option] = value


def _full(value: Any, name: str) -> dict[str, Any]:
    """Return a part as `to_dict` writes it, from its name, from such a dictionary, or from a `Part`."""
    value = asdict(value) if isinstance(value, Part) else {"name": value} if isinstance(value, str) else value
    if not isinstance(value, Mapping):
        raise ValueError(f"{name} is {value!r}: wanted the name of a part")
    return {"options": {}, **value}


def _unknown(name: str, known: Collection[str] = ()) -> ValueError:
    """Make the error for a field that does not exist: it names fields of similar spelling, or else all."""
    known = known or settings()
    ends = {field.split(".")[-1]: field for field in known}
    near = get_close_matches(name, [*known, *ends], 2, cutoff=0.84)
    fields = dict.fromkeys(ends.get(match, match) for match in near)
    hint = f"did you mean {' or '.join(fields)}?" if fields else f"there are {', '.join(known)}"
    return ValueError(f"setting {short(name)} is unknown: {hint}")


def _parsed(value: Any) -> Any:
    """Parse text as JSON if it is JSON; all else stays text, even NaN, which only Python takes for JSON."""
    if not isinstance(value, str):
        return value
    try:
        read = json.loads(value)
        json.dumps(read, allow_nan=False)
    except (ValueError, RecursionError):
        return value
    return read


def _briefly(content: Any) -> Any:
    """Return plain data with each part written as its name and what differs from a part without options."""
    if isinstance(content, list):
        return [_briefly(one) for one in content]
    if not isinstance(content, dict):
        return content
    if content.keys() == {"name", "options", "weight"}:
        plain = {"options": {}, "weight": 1.0}
        return {key: value for key, value in content.items() if value != plain.get(key)}
    return {key: _briefly(value) for key, value in content.items()}


def _changed(content: dict[str, Any], plain: dict[str, Any]) -> dict[str, Any]:
    """Return the fields that differ from `plain`, including those of nested settings."""
    found = {}
    for key, value in content.items():
        if isinstance(value, dict) and isinstance(plain.get(key), dict):
            if inner := _changed(value, plain[key]):
                found[key] = inner
        elif key not in plain or value != plain[key]:
            found[key] = value
    return found

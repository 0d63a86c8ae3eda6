"""A system as plain data: two towers, how they are compared, what they learn from, and how.

A recipe is frozen. `override` makes another one; `build` makes the model; `hash` identifies it. Each
part has the name that its registry gives it, and its class says which options it takes.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Literal, cast, get_args

from pydantic import ConfigDict, Field
from pydantic.dataclasses import dataclass
from torch import Tensor

from vsecore.arguments import Count, NotNegative, Positive, Share, Whole
from vsecore.data.files import expanded
from vsecore.data.photographs import View
from vsecore.data.splits import FeatureKind
from vsecore.data.words import Tokenizer
from vsecore.encoders import IMAGE_ENCODERS, TEXT_ENCODERS
from vsecore.encoders.reasoning import REASONERS
from vsecore.losses import LOSSES
from vsecore.model import VSE
from vsecore.pooling import POOLS
from vsecore.recipes.plain import (
    as_json,
    differences,
    flatten,
    named_settings,
    set_setting,
    with_full_parts,
    with_short_parts,
)
from vsecore.registry import Registry, names_read
from vsecore.similarity import SIMILARITIES
from vsecore.typed import from_json

STRICT = ConfigDict(strict=True, extra="forbid")


@dataclass(frozen=True, config=STRICT)
class Part:
    """A part of a system by name, with the options that differ from the defaults of its class."""

    name: str
    options: dict[str, Any] = Field(default_factory=dict)
    weight: NotNegative = 1.0
    """Only for a loss: its factor in the sum."""


@dataclass(frozen=True, config=STRICT)
class ImageTower:
    """How a picture becomes vectors."""

    encoder: Part = Part("grid")
    """A part of `encoders.IMAGE_ENCODERS`."""
    reasoner: Part | None = None
    """A part of `encoders.reasoning.REASONERS`; None: each element stays by itself."""
    pool: Part | None = Part("mean")
    """A part of `pooling.POOLS`; None: only elements are compared."""
    element_drop: Share = 0.0
    """The share of elements left out in training."""
    boxes: bool = False
    """Whether a folder's features get its boxes beside them: see `data.boxes`."""


@dataclass(frozen=True, config=STRICT)
class TextTower:
    """How a caption becomes vectors."""

    encoder: Part = Part("gru")
    """A part of `encoders.TEXT_ENCODERS`."""
    reasoner: Part | None = None
    pool: Part | None = Part("mean")
    word_drop: Share = 0.0
    """The share of words hidden or left out in training."""


@dataclass(frozen=True, config=STRICT)
class Training:
    """How the weights are trained."""

    epochs: Count = 30
    batch_size: Annotated[int, Field(ge=2)] = 128
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
    patience: Count | None = None
    """Stop after this many epochs without a higher rsum on the development split; None: never."""

    def is_over(self, history: Sequence[Mapping[str, float]]) -> bool:
        """Whether a training with this history has ended: all epochs are done, or its patience is."""
        sums = [epoch["rsum"] for epoch in history]
        waited = len(sums) - 1 - sums.index(max(sums)) if sums else 0
        return len(sums) >= self.epochs or (self.patience is not None and waited >= self.patience)


@dataclass(frozen=True, config=STRICT)
class FirstRound:
    """A training before the training: its model finds the hard negatives that the second one learns from.

    Source: Chen, Deng and Luo 2020 (AOQ), sections 3.2 and 4.2: 300 captions and 60 pictures.
    """

    losses: tuple[Part, ...] = (Part("triplet"),)
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
    shared: Part | None = None
    """A reasoner with one set of weights, which both towers use last."""
    similarity: Part = Part("cosine")
    losses: tuple[Part, ...] = (Part("triplet"),)
    training: Training = Training()
    first_round: FirstRound | None = None
    """None: there is one training; see `training.fit_in_rounds`."""

    def __post_init__(self) -> None:
        """Refuse parts that do not exist, do not take their options, or do not fit together."""
        for place, registry, part in parts_of(self.to_dict()):
            try:
                registry.read(part["name"], part["options"])
            except ValueError as error:
                raise ValueError(f"{place}: {error}") from error
            if registry is not LOSSES and part["weight"] != 1:
                raise ValueError(f"{place}.weight is {part['weight']}: only losses have weights")
        if self.features not in get_args(FeatureKind):
            kinds = ", ".join(map(repr, get_args(FeatureKind)))
            raise ValueError(
                f"image.encoder {self.image.encoder.name!r} does not say which features it reads: give its "
                f"class the attribute reads, one of {kinds}"
            )
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
        for losses in (self.losses, *([self.first_round.losses] if self.first_round else [])):
            names = [part.name for part in losses]
            if not names or len(set(names)) < len(names):
                raise ValueError(f"losses are {names}: wanted at least one, and none twice")
        if self.learns_offline and self.training.batches != "pairs":
            raise ValueError(
                f"training.batches is {self.training.batches!r}: it must be 'pairs', since a loss learns "
                "from offline negatives, which are drawn for pairs"
            )
        if self.first_round is not None and not self.learns_offline:
            raise ValueError(
                "first_round is set, but none of the losses learns from offline negatives: set first_round "
                "to none, or losses to one that does"
            )

    @property
    def features(self) -> FeatureKind:
        """What kind of features the picture encoder reads: its attribute `reads`, or else its name."""
        name = self.image.encoder.name
        return cast(FeatureKind, IMAGE_ENCODERS[name].reads or name)

    @property
    def is_trained(self) -> bool:
        """Whether both towers come from one trained model, whose vectors are compared as they are.

        That is the mean of what each returns, by its cosine: whatever else stood between them would be new.
        """
        image, text = self.image.encoder, self.text.encoder
        towers = (IMAGE_ENCODERS[image.name], TEXT_ENCODERS[text.name])
        same = image.options.get("weights") == text.options.get("weights")
        pools = self.image.pool, self.text.pool
        bare = pools == (Part("mean"), Part("mean")) and self.similarity == Part("cosine")
        bare = bare and self.image.reasoner is self.text.reasoner is self.shared is None
        return same and bare and all(tower.aligned for tower in towers)

    @property
    def learns_offline(self) -> bool:
        """Whether one of its losses learns from offline negatives."""
        return any(LOSSES[part.name].reads_offline for part in self.losses)

    @property
    def predicts_targets(self) -> bool:
        """Whether one of its losses predicts targets, which the data must then have: see `Split.targets`."""
        return any(LOSSES.takes(part.name, "target_dim") for part in self.losses)

    def of_first_round(self) -> Recipe:
        """Return the recipe of the first round: the same system, trained by the first round's losses."""
        if self.first_round is None:
            raise ValueError(f"recipe {self.name!r} has no first round")
        name = f"{self.name}, first round"
        return replace(self, name=name, losses=self.first_round.losses, first_round=None)

    def override(self, changes: Mapping[str, Any]) -> Recipe:
        """Return the same recipe with other values.

        Args:
            changes: the full names of fields, or of groups such as "training", with their values, which may
                be text. Change a part by giving another name (its options are then the defaults), or option
                by option; a loss among several by its own name, in both rounds if both have it.

        Example:
            >>> get("vsepp_grid_gru").override({"training.epochs": "3", "losses.triplet.margin": 0.1})
            >>> get("vsepp_grid_gru").override({"image.pool": "kmax", "image.pool.k": 5})
            >>> get("vsrn_grid").override({"losses.triplet": "adopt"})  # its captioning loss stays
        """
        content = self.to_dict()
        # A part's name comes before its options, whatever the order in which they are given.
        for name, value in sorted(named_settings(as_json(changes)), key=lambda change: change[0].count(".")):
            set_setting(content, name, value)
            loss = ".".join(name.split(".")[:2])
            if name != loss and f"first_round.{loss}" in flatten(content):  # it is one loss in both rounds
                set_setting(content, f"first_round.{name}", value)
            content = with_full_parts(content)
        return Recipe.from_dict(content)

    def to_dict(self) -> dict[str, Any]:
        """Return the recipe as plain JSON data; `from_dict` reads it back."""
        return as_json(self)

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> Recipe:
        """Read what `to_dict` wrote; a missing field gets its default, but name and source have none."""
        return from_json("recipe", json.dumps(as_json(content)), Recipe)

    def portable(self) -> dict[str, Any]:
        """Return the recipe as plain data in the form that runs and records keep.

        Options that have their default are left out. Only the name of a folder of weights is kept, since its
        path differs between machines.
        """
        content = self.to_dict()
        for _, registry, part in parts_of(content):
            options = as_json(registry.changed(part["name"], part["options"]))
            folder = expanded(str(options.get("weights", "")))
            if options.get("weights") and (folder.is_absolute() or folder.is_dir()):
                options["weights"] = folder.resolve().name
            part["options"] = options
        return content

    def hash(self) -> str:
        """Return twelve hexadecimal digits that change with every setting but name, source and `image.boxes`.

        Only what differs from the defaults (also those of the parts' classes) counts, so adding a field later
        does not change the digits of older records.
        """
        content, plain = (with_short_parts(recipe.portable()) for recipe in (self, Recipe("", "")))
        for kept in (content, plain):
            kept |= {"name": "", "source": ""}
            del kept["image"]["boxes"]  # they are data, and change its fingerprint
        if self.first_round is not None:
            usual = with_short_parts(as_json(FirstRound()))
            content["first_round"] = differences(content["first_round"], usual)
        text = json.dumps(differences(content, plain), sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:12]

    def view(self) -> View:
        """Return how photographs must be cut for the picture encoder, which reads pixels."""
        return IMAGE_ENCODERS.call(self.image.encoder.name, "sees", self.image.encoder.options)

    def tokenizer(self, captions: Sequence[str]) -> Tokenizer:
        """Make the text encoder's tokenizer; a vocabulary is counted in the training captions."""
        name, options = self.text.encoder.name, self.text.encoder.options
        return TEXT_ENCODERS.call(name, "tokenizer", options, captions=captions)

    def load_tokenizer(self, folder: Path) -> Tokenizer:
        """Load the tokenizer that a run's folder keeps."""
        name, options = self.text.encoder.name, self.text.encoder.options
        return TEXT_ENCODERS.call(name, "load_tokenizer", options, folder=folder)

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
        """
        if vectors is not None and not TEXT_ENCODERS.takes(self.text.encoder.name, "vectors"):
            raise ValueError(
                f"vectors are given, but recipe {self.name!r} reads with {self.text.encoder.name!r}: leave "
                "them out"
            )

        def made(registry: Registry, part: Part | None, **context: Any) -> Any:
            return part and registry.build(part.name, part.options, dim=self.dim, **context)

        def kept(side: str) -> Path | None:
            return architecture and architecture / side

        # Encoders first: from one seed, systems with different pools start with the same encoders.
        image_encoder = made(
            IMAGE_ENCODERS, self.image.encoder, feature_dim=feature_dim, architecture=kept("image_encoder")
        )
        text_encoder = made(
            TEXT_ENCODERS,
            self.text.encoder,
            vocabulary_size=len(tokenizer),
            vectors=vectors,
            architecture=kept("text_encoder"),
        )
        reasoners = [made(REASONERS, part) for part in (self.image.reasoner, self.text.reasoner, self.shared)]
        return VSE(
            image_encoder,
            made(POOLS, self.image.pool),
            text_encoder,
            made(POOLS, self.text.pool),
            made(SIMILARITIES, self.similarity),
            *reasoners,
        )


PARTS = {
    "image.encoder": IMAGE_ENCODERS,
    "image.reasoner": REASONERS,
    "image.pool": POOLS,
    "text.encoder": TEXT_ENCODERS,
    "text.reasoner": REASONERS,
    "text.pool": POOLS,
    "shared": REASONERS,
    "similarity": SIMILARITIES,
    "losses": LOSSES,
    "first_round.losses": LOSSES,
}
"""The places of parts, and who knows them."""


def parts_of(content: Mapping[str, Any]) -> Iterator[tuple[str, Registry, dict[str, Any]]]:
    """Yield the parts in what `Recipe.to_dict` writes, each with its place and the registry that knows it."""
    for place, registry in PARTS.items():
        found: Any = content
        for step in place.split("."):
            found = found and found[step]
        for part in found if isinstance(found, list) else filter(None, [found]):
            yield place, registry, part

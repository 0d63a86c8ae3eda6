"""Train the small networks on the world's own facts: what is where, in which colour, and at which place.

Facts make perfect labels, so a few minutes on two cores are enough. Targets are dense (each cell says what it
shows), which teaches features that know where they are; a caption is never seen. The pictures come from a
stream of their own ("pretrain"), so no picture of training, development or test is among them.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from safetensors.torch import save
from sklearn.metrics import average_precision_score
from torch import Tensor, nn
from torch.nn import functional as F

from vsecore.data.files import progress, write_whole
from vsecore.scenes import build
from vsecore.scenes.catalogue import CATALOGUE
from vsecore.scenes.facts import COLOURS, PLACES, SIDE, Scene
from vsecore.scenes.laws import drawing_order, ties_of
from vsecore.scenes.networks import NETWORKS, SceneNetwork, weights_file

KINDS = tuple(CATALOGUE)
PAIRS = tuple((kind, colour) for kind in KINDS for colour in CATALOGUE[kind].colours)
UNLABELLED = -100
"""Cross-entropy passes over this target: background has no colour, a tree does not face anywhere."""

EPOCHS = {"scenes-cnn": 12, "scenes-vit": 24}
"""How often each network sees every picture: a transformer must find out for itself what is near what."""
BATCH_SIZE = 64
LEARNING_RATE = {"scenes-cnn": 3e-3, "scenes-vit": 2e-3}
CELLS = 7  #: From left to right and from top to bottom, for both networks
SMALLEST_SHARE = 0.15  #: A cell shows a thing when the thing's box covers at least this share of it


@dataclass(frozen=True)
class Facts:
    """What the networks must see in n pictures, for a grid of N cells."""

    place: Tensor  # (n,) int64
    pairs: Tensor  # (n, number of PAIRS) float: 1 where such a thing is in the picture
    kind: Tensor  # (n, N) int64: number of KINDS means background
    colour: Tensor  # (n, N) int64 or UNLABELLED
    size: Tensor  # (n, N) int64: small 0, large 1, or UNLABELLED
    facing: Tensor  # (n, N) int64: left 0, right 1, or UNLABELLED

    def rows(self, rows: Tensor) -> "Facts":
        """The facts of some pictures only."""
        return Facts(*(value[rows] for value in vars(self).values()))


def cell_owners(scene: Scene) -> np.ndarray:
    """Which thing each cell shows, (7, 7): of those in it, the one with most of its box to be seen.

    The number of things itself stands where a cell shows none.
    """
    none, cell = len(scene.things), SIDE // CELLS
    canvas = np.full((SIDE, SIDE), none, np.uint8)
    for row in drawing_order(scene.things, ties_of(scene.relations)):  # far ones first, near ones over them
        left, top, right, bottom = scene.things[row].box
        canvas[top:bottom, left:right] = row
    cells = canvas.reshape(CELLS, cell, CELLS, cell)  # (7, 16, 7, 16)
    share = np.stack([(cells == row).mean((1, 3)) for row in range(none)], -1)  # (7, 7, things)
    return np.where(share.max(-1) >= SMALLEST_SHARE, share.argmax(-1), none)


def facts_of(scenes: Sequence[Scene]) -> Facts:
    """The targets of n scenes."""
    kind_rows = {name: row for row, name in enumerate(KINDS)}
    colour_rows = {name: row for row, name in enumerate(COLOURS)}
    pair_rows = {pair: row for row, pair in enumerate(PAIRS)}
    two = {None: UNLABELLED, "small": 0, "large": 1, "left": 0, "right": 1}
    pairs = torch.zeros(len(scenes), len(PAIRS))
    dense = np.empty((4, len(scenes), CELLS**2), np.int64)
    for row, scene in enumerate(scenes):
        for thing in scene.things:
            pairs[row, pair_rows[thing.kind, thing.colour]] = 1
        labels = [
            (kind_rows[thing.kind], colour_rows[thing.colour], two[thing.size], two[thing.facing])
            for thing in scene.things
        ]
        labels.append((len(KINDS), UNLABELLED, UNLABELLED, UNLABELLED))  # background
        dense[:, row] = np.array(labels)[cell_owners(scene).ravel()].T  # (4, 49)
    place = torch.tensor([PLACES.index(scene.place) for scene in scenes])
    return Facts(place, pairs, *torch.from_numpy(dense))


class Heads(nn.Module):
    """Linear questions to features of a width: a fact that a line can read, an encoder can use."""

    def __init__(self, width: int) -> None:
        """Make one linear layer for each question."""
        super().__init__()
        self.place = nn.Linear(width, len(PLACES))
        self.pairs = nn.Linear(width, len(PAIRS))
        nn.init.constant_(self.pairs.bias, -8.0)  # most pairs are in no cell: begin there
        self.kind = nn.Linear(width, len(KINDS) + 1)
        self.colour = nn.Linear(width, len(COLOURS))
        self.size = nn.Linear(width, 2)
        self.facing = nn.Linear(width, 2)

    def picture(self, cells: Tensor) -> tuple[Tensor, Tensor]:
        """What the picture shows: places (B, 8) from the mean cell, pairs (B, P) from the surest cells."""
        return self.place(cells.mean(1)), self.pairs(cells).logsumexp(1)

    def loss(self, cells: Tensor, facts: Facts) -> Tensor:
        """The sum of all questions' losses: features (B, N, F), and the answers for these B pictures."""
        place, pairs = self.picture(cells)
        weights = torch.ones(len(KINDS) + 1)
        weights[-1] = 0.3  # most cells are background: without this they would set the direction
        total = F.cross_entropy(self.kind(cells).flatten(0, 1), facts.kind.flatten(), weights)
        for name in ("colour", "size", "facing"):
            answers, truth = getattr(self, name)(cells), getattr(facts, name)  # (B, N, answers), (B, N)
            total = total + F.cross_entropy(answers.flatten(0, 1), truth.flatten(), ignore_index=UNLABELLED)
        total = total + 0.5 * F.cross_entropy(place, facts.place)
        # Summed over pairs: the mean would drown the few that are there in the two hundred that are not.
        missed = F.binary_cross_entropy_with_logits(pairs, facts.pairs, reduction="sum") / len(pairs)
        return total + 0.1 * missed


def mirrored(facts: Facts) -> Facts:
    """The facts of the same pictures seen in a mirror: cells change places, things turn round."""
    kind, colour, size, facing = (
        value.unflatten(1, (CELLS, CELLS)).flip(2).flatten(1)
        for value in (facts.kind, facts.colour, facts.size, facts.facing)
    )
    turned = torch.where(facing == UNLABELLED, facing, 1 - facing)
    return Facts(facts.place, facts.pairs, kind, colour, size, turned)


@torch.inference_mode()
def measure(
    network: SceneNetwork, heads: Heads, pixels: np.ndarray, scenes: Sequence[Scene]
) -> dict[str, float]:
    """How well the facts of `scenes` can be read from the features of their pixels, (n, 112, 112, 3) uint8.

    Returns:
        Percent: `kind_map` (mean average precision of which kinds are in a picture), `pair_map` (the same of
        kinds with their colour), `place`, and the accuracies of `cell_kind` (on cells that show a thing),
        `cell_colour`, `cell_size` and `cell_facing`.
    """
    network.eval()
    batches = [network(_read(pixels, slice(start, start + 100))) for start in range(0, len(pixels), 100)]
    cells = torch.cat(batches)  # (n, N, F)
    facts = facts_of(scenes)
    place, pairs = heads.picture(cells)  # (n, 8), (n, P)

    of_kind = [[row for row, pair in enumerate(PAIRS) if pair[0] == kind] for kind in KINDS]
    kind_scores = torch.stack([pairs[:, rows].logsumexp(1) for rows in of_kind], 1)  # (n, K)
    kind_truth = torch.stack([facts.pairs[:, rows].amax(1) for rows in of_kind], 1)  # (n, K)

    def mean_precision(truth: Tensor, scores: Tensor) -> float:
        there = truth.any(0)  # precision is not defined for what no picture shows
        return 100 * float(average_precision_score(truth[:, there].numpy(), scores[:, there].numpy()))

    def accuracy(name: str, nothing: int) -> float:
        answers, truth = getattr(heads, name)(cells).argmax(-1), getattr(facts, name)  # (n, N) each
        return 100 * (answers == truth)[truth != nothing].float().mean().item()

    return {
        "kind_map": mean_precision(kind_truth, kind_scores),
        "pair_map": mean_precision(facts.pairs, pairs),
        "place": 100 * (place.argmax(1) == facts.place).float().mean().item(),
        "cell_kind": accuracy("kind", len(KINDS)),
        **{f"cell_{name}": accuracy(name, UNLABELLED) for name in ("colour", "size", "facing")},
    }


def pretrain(
    name: str, *, pictures: int = 6000, epochs: int | None = None, seed: int = 0, held_out: int = 1000
) -> dict[str, float]:
    """Train one network on the facts of pictures made for this alone, and write its weights into `assets/`.

    Args:
        name: "scenes-cnn" or "scenes-vit".
        pictures: how many pictures to learn from; half of them are seen in a mirror in each epoch.
        epochs: how often each is seen; None: what the network needs, see `EPOCHS`.
        seed: decides the pictures, the first weights and the order.
        held_out: how many further pictures measure what was learned.

    Returns:
        What `measure` finds on the held-out pictures, and `seconds` of training.

    Raises:
        ValueError: an unknown network.
    """
    path = weights_file(name)
    epochs = EPOCHS[name] if epochs is None else epochs
    scenes = [picture.scene for picture in build.pictures("pretrain", pictures + held_out, seed=seed)]
    pixels = build.pixels("pretrain", pictures + held_out, seed=seed)  # (n, 112, 112, 3) on disk

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        network = NETWORKS[name]()
        heads = Heads(network.feature_dim)
    started = time.perf_counter()
    _train(network, heads, pixels[:pictures], scenes[:pictures], epochs, LEARNING_RATE[name], seed)
    seconds = time.perf_counter() - started

    metrics = measure(network, heads, pixels[pictures:], scenes[pictures:])
    write_whole(path, save({key: value.contiguous() for key, value in network.state_dict().items()}))
    return {**metrics, "seconds": seconds}


def _read(pixels: np.ndarray, rows: np.ndarray | slice) -> Tensor:
    """Some pictures as networks want them: (B, 3, 112, 112) uint8."""
    return torch.from_numpy(np.array(pixels[rows])).permute(0, 3, 1, 2)


def _train(
    network: SceneNetwork,
    heads: Heads,
    pixels: np.ndarray,
    scenes: Sequence[Scene],
    epochs: int,
    rate: float,
    seed: int,
) -> None:
    """The loop of `pretrain`: AdamW, a warm-up and a straight way down."""
    facts = facts_of(scenes)
    network.train()
    parameters = [*network.parameters(), *heads.parameters()]
    batch_size = min(BATCH_SIZE, len(pixels))
    batches = len(pixels) // batch_size
    optimiser = torch.optim.AdamW(parameters, weight_decay=0.05)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, rate, epochs * batches, pct_start=0.1)
    chance = torch.Generator().manual_seed(seed)
    with progress(total=epochs * batches, desc=f"learning facts, {network.kind}", unit="step") as bar:
        for _ in range(epochs):
            order = torch.randperm(len(pixels), generator=chance)
            for rows in order.split(batch_size)[:batches]:
                rows = rows.sort().values  # the disk is read forwards
                batch, answers = _read(pixels, rows.numpy()), facts.rows(rows)  # (B, 3, 112, 112)
                if torch.rand((), generator=chance) < 0.5:
                    batch, answers = batch.flip(3), mirrored(answers)
                loss = heads.loss(network(batch), answers)
                optimiser.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(parameters, 1.0)
                optimiser.step()
                schedule.step()
                bar.set_postfix(loss=f"{loss.item():.2f}", refresh=False)
                bar.update()

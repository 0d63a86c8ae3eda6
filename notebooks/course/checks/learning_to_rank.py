"""The exercises of notebook 04, *Learning to rank*."""

import statistics
from types import SimpleNamespace

import torch
from torch import inf, nn

from course.checks.comparing import agrees, divided, equals, gradient, holds, like, passed, same, shape
from course.checks.kinds import NO_GRADIENT, break_it, code, compute, explore, predict
from course.checks.samples import random_batch
from vsecore.experiments.statistics import SIGNIFICANCE, doubts, holm
from vsecore.losses import triplet


def sum_of_hinges(S, margin=0.2):
    return triplet(S, margin, hardest=False)


def hardest_of_hinges(S, positives, margin=0.2):
    return triplet(S, margin, positives=positives)


def batch(pictures=5, each=1, seed=5, shift=0.0, perfect=False, margin=None):
    """Similarities (B, C), near a shift if there is one; which are positive; a margin, if one is given."""
    S, positives = random_batch(pictures, each, seed)
    S = 2.0 * positives - 1 if perfect else 0.4 * S + shift if shift else S
    return (S, positives) if margin is None else (S, positives, margin)


def square(**given):
    """Similarities of pictures with one caption each, (B, B), and perhaps a margin."""
    S, _, *margin = batch(**given)
    return S, *margin


def rows(S, *_):
    """The sum of the pictures' hinges, without those of the diagonal."""
    return (0.2 + S - S.diag()[:, None]).relu().fill_diagonal_(0).sum()


ALL = {
    "Return one number for the batch, as a tensor.": shape(pictures=3, seed=0),
    "A perfect batch costs something: a pair is not its own negative, and a hinge never falls below "
    "zero.": same(perfect=True),
    "On a random batch your loss is wrong: compare each row, and each column, with the pair on the "
    "diagonal.": same(margin=0.2),
    "The margin is an argument: use it.": same(pictures=4, seed=4, margin=0.5),
    NO_GRADIENT: gradient(pictures=4, seed=1, exact=False),
    "You counted one direction: pictures have hinges along rows, captions along columns.": like(
        rows, lambda S, *_: rows(S.T)
    ),
    "The diagonal counts too: there each hinge is m + s - s, the margin. Leave it out.": like(
        *(
            lambda S, *_, count=count: (rows(S) + rows(S.T)) + 0.2 * 10 / count
            for count in (1, 2, 5, 10, 25, 50)
        ),
        perfect=True,
        tolerance=1e-4,
    ),
    "Your loss is off by a constant factor: equation (5) is a sum over the batch, not a mean.": divided(
        sum_of_hinges, 2, 5, 10, 20, 25, 40, 50
    ),
}

READ = {
    "Each hinge: the margin, plus the negative's similarity, minus the pair's, and zero if that is below "
    "zero.": holds(lambda answer: any(agrees(answer, part, 1e-4) for part in (0.1, 0.3, 0.4))),
    "You counted one direction: pictures have hinges in rows, captions in columns; add both.": equals(0.4),
    "A sum of hinges is never below zero.": like(-0.1, when=lambda answer: float(answer) < 0),
    "Two of the four sums are below zero: these hinges cost zero, not less.": 0.0,
}


def hiding(S, positives, hidden, low=-inf):
    """The hardest negatives' hinges, where a number takes the place of what may be no negative."""
    negatives = torch.where(hidden, low, S)
    cost = (0.2 + negatives.amax(1, keepdim=True) - S).relu() + (0.2 + negatives.amax(0) - S).relu()
    return cost[positives].sum()


HIGH, LOW = ({"pictures": 4, "each": 2, "seed": 3, "shift": shift} for shift in (0.5, -0.5))

SIBLINGS = {
    "Return one number for the batch, as a tensor: the sum over positive pairs.": shape(pictures=3, seed=0),
    "With one caption a picture it must be equation (6): check rows and columns.": same(margin=0.2),
    "A picture's other caption costs something: mask every positive.": same(pictures=2, each=2, perfect=True),
    "Every positive pair has its two hinges, not only one pair for each picture.": same(
        {"pictures": 4, "each": 5, "seed": 4, "margin": 0.2}, LOW, tolerance=1e-4
    ),
    "The margin is an argument: use it.": same(pictures=4, each=5, margin=0.5),
    NO_GRADIENT: gradient(pictures=4, each=2, seed=1, exact=False),
    "A pair counts as its own hardest negative: then even a perfect model costs 2·B·margin. Hide the "
    "positives.": like(
        lambda S, positives, *_: hiding(S, positives, positives & False), perfect=True, tolerance=1e-4
    ),
    "Your loss is wrong where all negatives are below zero: there it finds a larger one. What hides a "
    "positive must be smaller than any similarity.": like(
        lambda S, positives, *_: hiding(S, positives, positives, 0), right_on=HIGH, wrong_on=LOW
    ),
    "Your loss is off by a constant factor: take the sum over the positive pairs, not a mean.": divided(
        hardest_of_hinges, 2, 5, 10, 20, 25, 40, 50
    ),
}


def one_step(picture_tower, caption_tower, loss, optimizer, batch):
    scores = picture_tower(batch.pictures) @ caption_tower(batch.tokens, batch.token_mask).T  # (B, B)
    cost = loss(scores)
    optimizer.zero_grad()
    cost.backward()
    optimizer.step()
    return cost.item()


def trained(step, steps):
    """What a step returns on a small batch, a few times in a row, and the weights afterwards."""

    class CaptionTower(nn.Embedding):
        """A caption tower of one table: small, but it needs the mask."""

        def forward(self, tokens, mask):  # type: ignore[override]
            return nn.functional.normalize((super().forward(tokens) * mask[..., None]).sum(1), dim=-1)

    class PictureTower(nn.Linear):
        """A picture tower of one layer. Its vectors have length one, so that products are cosines."""

        def forward(self, pictures):
            return nn.functional.normalize(super().forward(pictures.flatten(1)), dim=-1)

    def descend():
        with torch.no_grad():
            for weight in towers.parameters():
                if weight.grad is not None:
                    weight.sub_(0.1 * weight.grad)

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        towers = nn.ModuleList([PictureTower(6, 4), CaptionTower(7, 4)])
        batch = SimpleNamespace(
            pictures=torch.randn(3, 2, 3),
            tokens=torch.tensor([[1, 2, 3], [4, 5, 0], [6, 0, 0]]),
            token_mask=torch.arange(3) < torch.tensor([[3], [2], [1]]),
        )
    # The first optimizer of torch's own imports its compiler, which takes seconds.
    optimizer = SimpleNamespace(zero_grad=towers.zero_grad, step=descend)

    def loss(S):
        """Each picture chooses its caption: unlike most losses it has another value if S is transposed."""
        return -S.log_softmax(1).diag().sum()

    given = [step(*towers, loss, optimizer, batch) for _ in range(steps)]
    return given, [weight.detach() for weight in towers.parameters()]


STEP = {
    "Return the loss as a plain number, by .item().": same(by=lambda made: isinstance(made[0][0], float)),
    "That is not the loss of this batch: compare every picture with every caption, and give the matrix to "
    "the loss.": same(by=0, tolerance=1e-4),
    "The weights did not change: after `backward`, the optimizer must take its step, and nothing may clear "
    "the gradients between the two.": holds(
        lambda answer: not all(map(torch.equal, answer(0)[1], answer(1)[1])),
        wrong=[
            lambda v, t, loss, _, batch: one_step(v, t, loss, SimpleNamespace(zero_grad=int, step=int), batch)
        ],
    ),
    "The weights changed, but not as one step would change them.": same(by=1),
    "The first step is right and later ones are wrong: old gradients are still there.": same(steps=3),
    "You gave the loss the matrix with captions in rows: pictures belong in rows, captions in columns.": like(
        lambda pictures, captions, loss, *rest: one_step(pictures, captions, lambda S: loss(S.T), *rest),
        by=0,
        tolerance=1e-4,
    ),
}

TIES = torch.kron(torch.eye(2), torch.ones(2, 2))
"""Similarities of two pictures that nobody can tell apart, and of two more."""


def is_batch_of_four(answer):
    return tuple(answer.shape) == (4, 4) and bool((answer.abs() <= 1).all())


def lead(scores):
    """By how much a pair is more similar than its negatives are on average, where that is least."""
    own, size = scores.diag(), len(scores)
    return min(float((own - (scores.sum(side) - own) / (size - 1)).min()) for side in (0, 1))


BREAK = {
    "Give a tensor of shape (4, 4), with similarities from -1 to 1.": holds(
        is_batch_of_four, wrong=[0, torch.zeros(2, 2), 3 * TIES]
    ),
    "That is not the loss of a collapsed batch: each of the eight hinges must equal the margin, so each pair "
    "must tie with its hardest negative.": holds(
        lambda answer: abs(triplet(answer) - 2 * 4 * 0.2) < 1e-4, wrong=[0.1 * torch.eye(4)]
    ),
    "The loss is right, but some pair is not clearly more similar than its negatives are on average. Only "
    "the hardest negative of each row and column has to tie.": holds(
        lambda answer: float(answer.mean()) < 0.5 and lead(answer) >= 0.2, wrong=[0.15 * TIES]
    ),
    "All similarities are equal, or nearly: that is a collapsed batch. Both towers may have collapsed, each "
    "to its own point. Push most negatives away.": like(
        torch.ones(4, 4),
        torch.zeros(4, 4),
        when=lambda answer: is_batch_of_four(answer) and float(answer.max() - answer.min()) < 0.1,
    ),
    "That batch is perfect: its loss is zero. Let a negative come as near as the pair.": like(
        2 * torch.eye(4) - 1, when=lambda answer: is_batch_of_four(answer) and triplet(answer) < 1e-4
    ),
    "The mean similarity must lie below 0.5: push the other negatives further away.": like(
        TIES, when=lambda answer: is_batch_of_four(answer) and float(answer.mean()) >= 0.5
    ),
}

CASES = ([3.0, 5.0, 4.0, 6.5, 2.0], [-1.0, 0.4, 0.2, -0.3, 0.1], [-8.0, -6.0, -9.5], [1.0, -2.0, 4.0, 0.5])
"""Differences of two systems by seed: surely above 0, surely near it, surely below, and unclear."""
EACH = [{"case": case} for case in range(4)]


def p_values(differences, margin):
    """How surprising the differences are if the true mean is 0, and if it is outside the margin."""
    found = doubts(differences, margin)
    return found.equal, found.beyond


def seeds(case=0, margin=2.0):
    return list(CASES[case]), margin


def first_by(root=0.5, tails=2, spread=statistics.stdev):
    """Make two p-values of which the first may be wrong."""

    def found(differences, margin):
        from scipy.stats import t

        n = len(differences)
        away = abs(statistics.mean(differences)) / (spread(differences) / n**root)
        return float(tails * t.sf(away, n - 1)), p_values(differences, margin)[1]

    return found


P_VALUES = {
    "Return two p-values: first for a true mean of 0, then for one outside the margin.": same(by=len),
    "The first is not right yet: how many standard errors is the mean away from 0, whatever its sign? Both "
    "tails count, with n - 1 degrees of freedom.": same(*EACH, by=0),
    "The second is not right yet: test the mean against minus the margin from above and against the margin "
    "from below, one tail each, and take the larger p-value.": same(*EACH, by=1),
    "It must hold at any margin.": same(*(case | {"margin": margin} for case in EACH for margin in (0.5, 9))),
    "That is the spread of single seeds. The mean of n seeds has an error of the spread divided by the root "
    "of n.": like(first_by(root=0), by=0),
    "That divides by n, as `np.std` does by itself. From a sample, the standard deviation divides by n - 1: "
    "`statistics.stdev`, or `ddof=1`.": like(first_by(spread=statistics.pstdev), by=0),
    "That counts one tail: the other direction would have surprised as much.": like(first_by(tails=1), by=0),
    "Right. One test asks whether there is a difference, the other whether it is too small to "
    "matter.": passed,
}


def family(p=(0.02, 0.021, 0.6, 0.004, 0.55), more=0):
    return list(p), len(p) + more


FAMILIES = [{}, {"p": [0.04, 0.01, 0.3]}, {"p": [0.02, 0.021, 0.5, 0.004]}, {"p": [0.6, 0.5, 0.7]}]

HOLM = {
    "With one question nothing changes. Return a list, also of one number.": same(p=[0.03]),
    "The smaller of two is doubled and the other stays, each in its own place.": same(p=[0.3, 0.01]),
    "Each keeps its place; none is above 1, or below the one before it in order of size.": same(*FAMILIES),
    "`questions` may exceed the number of p-values: it multiplies the smallest.": same(*FAMILIES, more=3),
    "That multiplies all by the number of questions (Bonferroni). Holm's factors fall by one from each to "
    "the next.": lambda p, questions: [min(1.0, questions * one) for one in p],
    "The numbers are right, but sorted: give each back in its place.": lambda *given: sorted(holm(*given)),
    "Right. With it, the chance of any false alarm in an experiment stays at that of one test.": passed,
}

STUDIES, RATES, SEEDS = 100, 6, 5
WINS = 15  # of the studies; a choice made beforehand wins two or three


def study(number=0):
    """Results of two systems that are equally good, (rates, seeds) each."""
    dice = torch.Generator().manual_seed(number)
    return tuple(400 + 2 * torch.randn(RATES, SEEDS, generator=dice, dtype=torch.float64) for _ in range(2))


def chosen(answer, number):
    return [float(one) for one in answer(*study(number))]


def from_the_table(answer, number):
    """Whether each difference is one of the seed's, of some rate of ours and some rate of theirs."""
    ours, theirs = study(number)
    possible = ours[:, None] - theirs  # (rates, rates, seeds)
    made = torch.tensor(chosen(answer, number), dtype=torch.float64)
    return bool(((possible - made).abs() < 1e-6).any(0).any(0).all())


def best_and_worst(ours, theirs):
    return ours.max(0).values - theirs.min(0).values


def best_rate(results):
    return results[results.mean(1).argmax()]


def wins(answer):
    """How many studies of equal systems it turns into a win that looks sure."""
    left = [doubts(chosen(answer, number), 0.0) for number in range(STUDIES)]
    return sum(one.equal < SIGNIFICANCE and one.mean > 0 for one in left)


WIN = {
    "Return one difference for each seed.": holds(
        lambda answer: len(chosen(answer, 0)) == SEEDS, wrong=[lambda ours, theirs: (ours[0] - theirs[0])[:3]]
    ),
    "Each difference must be one of ours minus one of theirs, from the same seed: choose, but invent "
    "nothing.": holds(
        lambda answer: all(from_the_table(answer, number) for number in range(5)),
        wrong=[lambda ours, theirs: ours[0] - theirs[0] + 10],
    ),
    "That hardly wins more often than an honest choice. Use what the results tell you.": holds(
        lambda answer: wins(answer) > 5, wrong=[lambda ours, theirs: ours[0] - theirs[0]]
    ),
    f"It wins more often than it should, but in fewer than {WINS} of {STUDIES} studies. What else can you "
    "choose: of theirs, or seed by seed?": holds(
        lambda answer: wins(answer) >= WINS, wrong=[lambda ours, theirs: best_rate(ours) - theirs[0]]
    ),
    "That gives both systems the same choice, which is nearly fair. Be less fair.": lambda ours, theirs: (
        best_rate(ours) - best_rate(theirs)
    ),
    "Right, and a warning: nothing in the published numbers would show it.": passed,
}

EXERCISES = {
    "04.all": code("The sum of hinges", 10, ALL, sum_of_hinges, square, tolerance=1e-3),
    "04.read": compute("Read a batch", 5, READ, difficulty="easy", tolerance=1e-4),
    "04.siblings": code("The hardest negative", 15, SIBLINGS, hardest_of_hinges, batch),
    "04.step": code("One training step", 10, STEP, one_step, lambda steps=1: (steps,), caller=trained),
    "04.predict": predict("What will happen?", 2, "a", "b", "c", "d"),
    "04.break": break_it("Fool the loss", 8, BREAK, solution=2 * TIES - 1),
    "04.ablation": explore("Change one thing", 15),
    "04.p_values": code(
        "Two p-values", 12, P_VALUES, p_values, seeds, instead=("ttest_1samp", "ttest_rel"), tolerance=1e-6
    ),
    "04.holm": code("Holm's correction", 10, HOLM, holm, family, tolerance=1e-6),
    "04.win": break_it("A win out of nothing", 8, WIN, reference=best_and_worst, inputs=study),
}

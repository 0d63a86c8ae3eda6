"""The exercises of notebook 07, *Cross-attention, and what it costs*."""

import torch
from torch.nn.functional import cosine_similarity, leaky_relu, normalize

from course.checks.comparing import agrees, between, equals, gradient, holds, like, passed, same, shape
from course.checks.kinds import break_it, code, compute, explore, no_gradient_at, predict
from course.checks.samples import normal


def affinities(queries, context):
    return normalize(queries, dim=1) @ normalize(context, dim=1).T  # (n, m)


def attention_weights(queries, context, smooth=9.0):
    clipped = leaky_relu(affinities(queries, context), 0.1)  # (n, m)
    return (smooth * normalize(clipped, dim=0)).softmax(1)  # (n, m)


def elements(seed=1, queries=4, context=5, smooth=9.0, longer=False):
    """Queries (n, 6) and context (m, 6) of very different lengths, and `smooth`; cosines have either sign."""
    *sides, n, m = normal((queries, 6), (context, 6), (queries, 1), (context, 1), seed=seed)
    power = 2 if longer else 1
    return sides[0] * (1 + 2 * n.abs()) ** power, sides[1] * (1 + 2 * m.abs()) ** power, smooth


def weighed(slope=0.1, over=lambda clipped: clipped.norm(dim=0), products=affinities):
    """Make weights of products that keep this part below zero and are divided by this."""

    def weigh(queries, context, smooth):
        clipped = leaky_relu(products(queries, context), slope)
        return (smooth * clipped / over(clipped)).softmax(1)

    return weigh


WEIGHTS = {
    "Return one weight for each query and each element of the context, (n, m).": shape(),
    "Each query shares out a weight of one over the context: which dimension has the softmax?": same(
        seed=2, by=lambda weights: weights.abs().sum(1)
    ),
    "Vectors that are twice as long must change nothing: scale both sides to length one first.": holds(
        lambda answer: agrees(answer(*elements(3)), answer(*elements(3, longer=True))),
        wrong=[weighed(products=lambda queries, context: queries @ context.T / 9)],
    ),
    "Follow the three steps in their order: clip, divide each column by its length, multiply by `smooth` and "
    "take the softmax.": same(),
    "Right for 9 alone: let `smooth` decide.": same({"smooth": 1.0, "seed": 8}, {"smooth": 20.0, "seed": 9}),
    "You divided each row by its length. Divide each column: "
    "an element's affinities with all queries.": weighed(
        over=lambda clipped: clipped.norm(dim=1, keepdim=True)
    ),
    "Below zero a tenth must remain. You clip to zero, as the paper prints it.": weighed(slope=0),
    "The clip is missing: of affinities below zero only a tenth remains.": weighed(slope=1),
    "No division: divide each column by its length before the softmax.": weighed(over=torch.ones_like),
    "Right. These are SCAN's weights.": passed,
}


def score(weights, queries, context, lse=6.0):
    return (lse * relevance(weights, queries, context)).logsumexp(0) / lse


def relevance(weights, queries, context):
    return cosine_similarity(weights @ normalize(context, dim=1), queries, dim=1)  # (n,)


def weighted(seed=4, queries=4, context=5, lse=6.0):
    """Weights (n, m), which add up to one in each row, their queries and context, and `lse`."""
    a, b, smooth = elements(seed, queries, context, 3.0)
    return attention_weights(a, b, smooth), a, b, lse


SCORE = {
    "Return one number, of shape (): how well the caption fits the picture.": shape(),
    "With one query the score is its relevance: the cosine of the query and the weighted sum of the "
    "context's vectors, each of length one.": same(queries=1, by=float),
    "One query is right. Of several, take the logarithm of the sum of exp(lse · relevance), divided by "
    "`lse`.": same(by=float),
    "It is right for lse = 6: let `lse` decide.": same({"lse": 1.5}, {"lse": 50.0}, by=float),
    no_gradient_at("the weights, the queries or the context"): gradient(0, 1, 2, seed=5),
    "That is the mean of the relevances, the paper's other "
    "choice. Here we want the log-sum-exp.": lambda weights, queries, context, lse: relevance(
        weights, queries, context
    ).mean(),
    "The logarithm is still to be divided by `lse`.": lambda *given: given[-1] * score(*given),
    "Right. With the weights above, this is SCAN.": passed,
}

WORD = {
    "A weight lies between 0 and 1.": between(-0.001, 1.001),
    "Each column has one entry. What is a positive number divided by its own length?": equals(0.5),
    "That leaves out the division: each column is divided by its length, and a column has one entry.": 0.989,
    "The third box is below zero, so it does not become 1.": like(1 / 3, tolerance=5e-3),
    "The first box fits best, but what is left of that after the division?": 1.0,
}


def looked_at(answer):
    """The first word's affinities with the two boxes of 07.break, and its weights, (2,) each."""
    boxes, words = torch.stack([torch.tensor([0.8, 0.6]), answer]), torch.eye(2)  # (2, 2) each
    return affinities(words, boxes)[0], attention_weights(words, boxes)[0]


BREAK = {
    "Give one box: two numbers, not both 0.": holds(
        lambda answer: answer.shape == (2,) and answer.any(), wrong=[[0.3, -0.9, 0.1]]
    ),
    "Its affinity with the first word, the cosine with (1, 0), must be below 0.5.": holds(
        lambda answer: looked_at(answer)[0][1] < 0.5, wrong=[[0.9, -0.5]]
    ),
    "The named box still gets more weight. What is the length of your box's column after the clip?": holds(
        lambda answer: looked_at(answer)[1][1] > looked_at(answer)[1][0], wrong=[[-0.9, -0.3]]
    ),
    "Both affinities of your box are positive, so its column has length one, like the first box's. What does "
    "the clip do to a negative one?": like(
        [0.4, 0.9], when=lambda answer: answer.shape == (2,) and min(answer) > 0
    ),
}


def refocus(weights, focus="prob"):
    kept = weights * ((leads(weights, focus) > 0) | (weights == weights.amax(1, keepdim=True)))  # (n, m)
    return kept / kept.sum(1, keepdim=True)


def leads(weights, focus):
    trust = weights ** {"prob": 0.5, "rootless": 1.0, "equal": 0.0}[focus]  # (n, m)
    return weights * trust.sum(1, keepdim=True) - (weights * trust).sum(1, keepdim=True)  # (n, m)


def spread(focus="equal", rows=""):
    """Weights (3, 4) and the focus; or weights that are all equal, or alone in their rows."""
    if rows:
        return torch.tensor([[0.25] * 4, [0.5, 0.25, 0.25, 0]]) if rows == "even" else torch.ones(3, 1), focus
    return torch.tensor([[0.5, 0.27, 0.13, 0.1], [0.65, 0.3, 0.04, 0.01], [0.1, 0.12, 0.33, 0.45]]), focus


FOCUS = {
    "Return weights of the same shape, (n, m).": shape(),
    'With "equal", `trust` is 1: a weight stays if its leads sum to more than 0.': same(by=lambda w: w > 0),
    "The right ones stay. Now divide each row by its sum, so that the weights add up to one.": same(),
    'With "prob", the lead over a_k counts √a_k times.': same(focus="prob"),
    "All weights equal, or only one: nothing leads, and nothing would stay. The largest of a row always "
    "stays, and so does every other that equals it.": same(
        *({"focus": focus, "rows": case} for focus in ("equal", "prob") for case in ("even", "alone"))
    ),
    "The root is missing: the lead over a_k counts √a_k times, not a_k times.": like(
        lambda weights, focus: refocus(weights, "rootless"), focus="prob"
    ),
    "Right. These are BFAN's weights.": passed,
}


def relevance_from_products(weights, affinity, gram):
    along = (weights * affinity).sum(1)  # (n,)
    length = ((weights @ gram) * weights).sum(1).sqrt()  # (n,)
    return along / length


def products(seed=7, queries=4, context=5, alone=False):
    """Weights (n, m), or each word's whole weight on one box, affinities (n, m) and a Gram matrix (m, m)."""
    weights, words, boxes, _ = weighted(seed, queries, context)
    weights = torch.eye(queries, context) if alone else weights
    return weights, affinities(words, boxes), affinities(boxes, boxes)


FAST = {
    "Return one relevance for each query, (n,).": shape(),
    "A word with all weight on one box reads that box: its relevance is their affinity.": same(alone=True),
    "Divide the sum of weights times affinities by the root of aᵀGa, with the query's own weights a.": same(),
    "It must hold for one word and one box too.": same(seed=11, queries=1, context=1),
    "That is the product with the attended vector. For "
    "the cosine, divide by its length.": lambda weights, affinity, gram: (weights * affinity).sum(1),
    "Right. No attended vector, the same cosine.": passed,
}

EXERCISES = {
    "07.weights": code("Where each word looks", 12, WEIGHTS, attention_weights, elements),
    "07.divide": predict("Which points better?", 3, "affinity", "weight", "the same"),
    "07.score": code("What the words have found", 10, SCORE, score, weighted),
    "07.word": compute("A query of one word", 6, WORD, difficulty="easy", tolerance=2e-3),
    "07.break": break_it("A box that nobody mentions", 8, BREAK, solution=torch.tensor([0.3, -0.95])),
    "07.focus": code("Leave out what matters less", 14, FOCUS, refocus, spread),
    "07.fast": code("Relevance without reading", 12, FAST, relevance_from_products, products),
    "07.explore": explore("Change one thing", 15),
}

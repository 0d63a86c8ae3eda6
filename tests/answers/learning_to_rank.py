"""Answers to the exercises of notebook 04: right ones, and typical mistakes."""

import torch


def right_sum(S, margin=0.2):
    own = S.diag()
    cost = (margin + S - own[:, None]).relu() + (margin + S - own[None, :]).relu()
    return cost[~torch.eye(len(S), dtype=torch.bool)].sum()


def looped_sum(S, margin=0.2):
    total = torch.zeros(())
    for i in range(len(S)):
        for j in range(len(S)):
            if i != j:
                total = total + (margin + S[i, j] - S[i, i]).relu() + (margin + S[j, i] - S[i, i]).relu()
    return total


def sum_less_the_diagonal(S, margin=0.2):
    own = S.diag()
    rows = torch.clamp(margin + S - own.unsqueeze(1), min=0)
    columns = torch.clamp(margin + S.T - own.unsqueeze(1), min=0)
    return rows.sum() + columns.sum() - 2 * len(S) * margin


def rows_only(S, margin=0.2):
    return (margin + S - S.diag()[:, None]).relu().fill_diagonal_(0).sum()


def with_the_diagonal(S, margin=0.2):
    own = S.diag()
    return ((margin + S - own[:, None]).relu() + (margin + S - own[None, :]).relu()).sum()


def mean_of_hinges(S, margin=0.2):
    own = S.diag()
    cost = (margin + S - own[:, None]).relu() + (margin + S - own[None, :]).relu()
    return cost.fill_diagonal_(0).mean()


def right_step(picture_tower, caption_tower, loss, optimizer, batch):
    cost = loss(picture_tower(batch.pictures) @ caption_tower(batch.tokens, batch.token_mask).T)
    optimizer.zero_grad()
    cost.backward()
    optimizer.step()
    return cost.item()


def cleared_afterwards(picture_tower, caption_tower, loss, optimizer, batch):
    v, t = picture_tower(batch.pictures), caption_tower(batch.tokens, batch.token_mask)
    cost = loss(torch.einsum("bd,cd->bc", v, t))
    cost.backward()
    optimizer.step()
    optimizer.zero_grad()
    return float(cost.detach())


def by_hand_of_gradients(picture_tower, caption_tower, loss, optimizer, batch):
    weights = [*picture_tower.parameters(), *caption_tower.parameters()]
    cost = loss(picture_tower(batch.pictures) @ caption_tower(batch.tokens, batch.token_mask).T)
    for weight, slope in zip(weights, torch.autograd.grad(cost, weights), strict=True):
        weight.grad = slope
    optimizer.step()
    return cost.detach().item()


def never_cleared(picture_tower, caption_tower, loss, optimizer, batch):
    cost = loss(picture_tower(batch.pictures) @ caption_tower(batch.tokens, batch.token_mask).T)
    cost.backward()
    optimizer.step()
    return cost.item()


def never_stepped(picture_tower, caption_tower, loss, optimizer, batch):
    cost = loss(picture_tower(batch.pictures) @ caption_tower(batch.tokens, batch.token_mask).T)
    optimizer.zero_grad()
    cost.backward()
    return cost.item()


def stepped_twice(picture_tower, caption_tower, loss, optimizer, batch):
    cost = never_stepped(picture_tower, caption_tower, loss, optimizer, batch)
    optimizer.step()
    optimizer.step()
    return cost


def without_a_gradient_for_captions(picture_tower, caption_tower, loss, optimizer, batch):
    with torch.no_grad():
        t = caption_tower(batch.tokens, batch.token_mask)
    cost = loss(picture_tower(batch.pictures) @ t.T)
    optimizer.zero_grad()
    cost.backward()
    optimizer.step()
    return cost.item()


def without_a_gradient_for_pictures(picture_tower, caption_tower, loss, optimizer, batch):
    def frozen(pictures):
        return picture_tower(pictures).detach()

    return right_step(frozen, caption_tower, loss, optimizer, batch)


def transposed(picture_tower, caption_tower, loss, optimizer, batch):
    return right_step(picture_tower, caption_tower, lambda S: loss(S.T), optimizer, batch)


def without_the_mask_of_words(picture_tower, caption_tower, loss, optimizer, batch):
    return loss(picture_tower(batch.pictures) @ caption_tower(batch.tokens).T).item()


def a_tensor(picture_tower, caption_tower, loss, optimizer, batch):
    return torch.tensor(right_step(picture_tower, caption_tower, loss, optimizer, batch))


def halved(picture_tower, caption_tower, loss, optimizer, batch):
    return right_step(picture_tower, caption_tower, lambda S: loss(S) / 2, optimizer, batch)


def right_siblings(S, positives, margin=0.2):
    negatives = S.masked_fill(positives, -torch.inf)
    caption, picture = negatives.amax(1, keepdim=True), negatives.amax(0, keepdim=True)
    return ((margin + caption - S).clamp(min=0) + (margin + picture - S).clamp(min=0))[positives].sum()


def looped_siblings(S, positives, margin=0.2):
    total = torch.zeros(())
    for b, c in positives.nonzero().tolist():
        row = [S[b, j] for j in range(S.shape[1]) if not positives[b, j]]
        column = [S[i, c] for i in range(S.shape[0]) if not positives[i, c]]
        total = total + (margin + max(row) - S[b, c]).relu() + (margin + max(column) - S[b, c]).relu()
    return total


def by_rows_of_pairs(S, positives, margin=0.2):
    hidden = S.where(~positives, torch.tensor(-2.0))
    picture, caption = positives.nonzero(as_tuple=True)
    own = S[picture, caption]
    worst = torch.stack([hidden[picture].max(dim=1).values, hidden[:, caption].max(dim=0).values])
    return torch.relu(margin + worst - own).sum()


def one_caption_a_picture(S, positives, margin=0.2):
    first = positives.float().argmax(1)
    return right_siblings(S[:, first], positives[:, first], margin)


def diagonal_only(S, positives, margin=0.2):
    own = torch.zeros_like(positives)
    own[range(len(S)), positives.float().argmax(1)] = True
    negatives = S.masked_fill(own, -torch.inf)
    caption, picture = negatives.amax(1, keepdim=True), negatives.amax(0, keepdim=True)
    return ((margin + caption - S).relu() + (margin + picture - S).relu())[positives].sum()


def without_a_mask(S, positives, margin=0.2):
    cost = (margin + S.amax(1, keepdim=True) - S).relu() + (margin + S.amax(0, keepdim=True) - S).relu()
    return cost[positives].sum()


def hidden_by_zero(S, positives, margin=0.2):
    negatives = S * ~positives
    caption, picture = negatives.amax(1, keepdim=True), negatives.amax(0, keepdim=True)
    return ((margin + caption - S).relu() + (margin + picture - S).relu())[positives].sum()


def with_the_diagonal_of_a_square(S, positives, margin=0.2):
    negatives = S.masked_fill(positives, -torch.inf)
    cost = (margin + negatives.amax(1) - S.diag()).relu() + (margin + negatives.amax(0) - S.diag()).relu()
    return cost.sum()


TIES = torch.kron(torch.eye(2), torch.ones(2, 2))  # two pictures that nobody can tell apart, twice
COLUMN = torch.tensor([0.6, 0.6, 0.5, 0.5])  # pictures and captions that all point in one direction


RIGHT = {
    "04.all": [right_sum, looped_sum, sum_less_the_diagonal],
    "04.read": [0.4, torch.tensor(0.4), 0.1 + 0.3],
    "04.siblings": [right_siblings, looped_siblings, by_rows_of_pairs],
    "04.step": [right_step, cleared_afterwards, by_hand_of_gradients],
    "04.predict": ["a", "d", " B "],
    "04.break": [1.8 * TIES - 0.9, 2 * TIES - 1, 0.8 * TIES - 0.3],
    "04.ablation": [
        ("a wider margin will learn faster", "it did not, from one seed"),
        ["fewer negatives will rank worse", "they did, in this run at least"],
        ("I expect no difference at all", "the two curves lie close together"),
    ],
}
WRONG = {
    "04.all": [
        lambda S, margin=0.2: right_sum(S, margin) * torch.ones(2),
        with_the_diagonal,
        rows_only,
        lambda S, margin=0.2: rows_only(S.T, margin),
        lambda S, margin=0.2: right_sum(S, margin) / 2,
        mean_of_hinges,
        lambda S, margin=0.2: right_sum(S),
        lambda S, margin=0.2: torch.tensor(float(right_sum(S, margin))),
    ],
    "04.read": [-0.1, 0.1, 0.8, 0.2],
    "04.siblings": [
        lambda S, positives, margin=0.2: right_siblings(S, positives) * torch.ones(2),
        lambda S, positives, margin=0.2: right_siblings(S, positives) / 2,
        lambda S, positives, margin=0.2: right_siblings(S, torch.zeros_like(positives)),
        without_a_mask,
        hidden_by_zero,
        with_the_diagonal_of_a_square,
        diagonal_only,
        one_caption_a_picture,
        lambda S, positives, margin=0.2: right_siblings(S, positives, 0.2),
        lambda S, positives, margin=0.2: right_siblings(S, positives, margin).item(),
    ],
    "04.step": [
        a_tensor,
        halved,
        never_stepped,
        stepped_twice,
        never_cleared,
        transposed,
        without_a_gradient_for_captions,
        without_a_gradient_for_pictures,
        without_the_mask_of_words,
    ],
    "04.predict": [4, "it collapses", "x"],
    "04.break": [
        0,
        torch.zeros(2, 2),
        3 * TIES,
        2 * torch.eye(4) - 1,
        torch.ones(4, 4),
        torch.zeros(4, 4),
        torch.tensor([0.4, 0.4, -0.4, -0.4])[:, None].expand(4, 4),
        torch.outer(COLUMN, COLUMN),
        torch.rand(4, 4),
        0.4 * TIES + 0.4,
    ],
    "04.ablation": [
        ("only one text",),
        ("a", "b c"),
        ("a wider margin will learn faster", "it did"),
        (1, 2),
    ],
}

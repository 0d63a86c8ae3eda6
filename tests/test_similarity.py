"""Cosine: an angle, whatever the lengths, and safe where there is no angle."""

import math

import pytest
import torch

from vsecore.embedding import Embedding
from vsecore.similarity import Cosine, cosine, unit


def vectors(rows, dim=6, seed=0, dtype=torch.float64):
    return torch.randn(rows, dim, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def test_agrees_with_the_double_loop():
    v, t = vectors(3), vectors(4, seed=1)
    scores = cosine(v, t)
    assert scores.shape == (3, 4)
    for i in range(3):
        for j in range(4):
            dot = sum(float(a) * float(b) for a, b in zip(v[i], t[j], strict=True))
            expected = dot / (math.hypot(*v[i].tolist()) * math.hypot(*t[j].tolist()))
            assert float(scores[i, j]) == pytest.approx(expected)


def test_known_angles():
    v = torch.tensor([[1.0, 0.0]])
    t = torch.tensor([[2.0, 0.0], [0.0, 3.0], [-1.0, 0.0], [1.0, 1.0]])
    torch.testing.assert_close(cosine(v, t), torch.tensor([[1.0, 0.0, -1.0, math.sqrt(0.5)]]))


def test_lengths_change_nothing_and_order_of_the_two_is_the_transpose():
    v, t = vectors(3), vectors(4, seed=1)
    torch.testing.assert_close(cosine(5 * v, 0.01 * t), cosine(v, t))
    torch.testing.assert_close(cosine(t, v), cosine(v, t).T)


def test_never_leaves_minus_one_to_one():
    v = vectors(50, dtype=torch.float32)
    assert (cosine(v, v).abs() <= 1 + 1e-6).all()
    torch.testing.assert_close(cosine(v, v).diagonal(), torch.ones(50))


def test_zero_vectors_score_zero_and_keep_gradients_finite():
    v = torch.zeros(2, 6, dtype=torch.float64)
    v[1] = 1
    v.requires_grad_()
    scores = cosine(v, vectors(4))
    scores.sum().backward()
    assert not scores[0].any() and scores[1].all()
    assert v.grad.isfinite().all()
    assert v.grad.abs().max() < 10  # dividing by max(length, tiny) would give 1 / tiny here


def test_gradient_is_that_of_the_values():
    v, t = vectors(2, 3).requires_grad_(), vectors(3, 3, seed=1).requires_grad_()
    assert torch.autograd.gradcheck(cosine, (v, t))


def test_scores_stay_float32_under_autocast():
    v, t = vectors(3, dtype=torch.float32), vectors(4, seed=1, dtype=torch.float32)
    with torch.autocast("cpu", torch.bfloat16):
        scores = cosine(v, t)
    assert scores.dtype == torch.float32
    assert torch.equal(scores, cosine(v, t))


@pytest.mark.parametrize(
    ("first", "second", "result"),
    [
        (torch.bfloat16, torch.bfloat16, torch.float32),
        (torch.float16, torch.float32, torch.float32),
        (torch.float32, torch.float64, torch.float64),
    ],
)
def test_the_finer_precision_wins_and_half_is_lifted(first, second, result):
    v, t = vectors(3).to(first), vectors(4, seed=1).to(second)
    assert cosine(v, t).dtype == result
    torch.testing.assert_close(cosine(v, t).double(), cosine(v.double(), t.double()), rtol=1e-5, atol=1e-6)


def test_a_pair_scores_the_same_in_any_batch():
    v, t = vectors(3), vectors(4, seed=1)
    torch.testing.assert_close(cosine(v[1:2], t[2:3]), cosine(v, t)[1:2, 2:3])
    assert cosine(v[:0], t).shape == (0, 4)


def test_unit_vectors_have_length_one():
    torch.testing.assert_close(unit(vectors(5)).norm(dim=-1), torch.ones(5, dtype=torch.float64))
    sets = vectors(12).view(4, 3, 6)
    torch.testing.assert_close(unit(sets), unit(sets.flatten(0, 1)).view(4, 3, 6))


@pytest.mark.parametrize(
    ("v", "t", "message"),
    [
        (torch.zeros(3), torch.zeros(2, 3), r"v must be.*\(3,\)"),
        (torch.zeros(2, 3), torch.zeros(1, 2, 3), r"t must be.*\(1, 2, 3\)"),
        (torch.zeros(2, 3), torch.zeros(2, 4), r"same width.*\(2, 3\).*\(2, 4\)"),
        (torch.zeros(2, 3, dtype=torch.complex64), torch.zeros(2, 3), "v must be real"),
    ],
)
def test_refuses_what_has_no_angle(v, t, message):
    with pytest.raises(ValueError, match=message):
        cosine(v, t)


def test_the_module_compares_all_with_all_or_row_by_row():
    generator = torch.Generator().manual_seed(0)
    v, t = (Embedding(torch.randn(4, 3, generator=generator)) for _ in range(2))
    whole = Cosine()(v, t)
    assert torch.equal(whole, cosine(v.vectors, t.vectors))
    torch.testing.assert_close(Cosine().pairs(v, t), whole.diagonal())
    for halves in ((0,), (1,), (0, 1)):
        sides = [
            side.vectors.bfloat16() if place in halves else side.vectors for place, side in enumerate((v, t))
        ]
        pairs = Cosine().pairs(*map(Embedding, sides))
        assert pairs.dtype == torch.float32
        exact = cosine(*(side.double() for side in sides)).diagonal()
        torch.testing.assert_close(pairs.double(), exact, rtol=1e-5, atol=1e-6)
    with pytest.raises(ValueError, match="the same number of rows, got 4 and 2"):
        Cosine().pairs(v, t[:2])
    with pytest.raises(ValueError, match="same width"):
        Cosine().pairs(v, Embedding(torch.randn(4, 2)))

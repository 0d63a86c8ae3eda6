"""The vectors of sets: how widely they spread, what each adds to retrieval, and the evidence page's table."""

import math
from types import SimpleNamespace

import pytest
import torch

from vsecore.embedding import Embedding
from vsecore.experiments import measures
from vsecore.experiments.measures import (
    LOG_VARIANCES,
    LOST_ALONE,
    LOST_WITHOUT,
    SMALLEST,
    alone,
    lost,
    measure_sets,
    without,
)
from vsecore.model import VSE
from vsecore.similarity import SIMILARITIES, smooth_chamfer

OWNER = torch.arange(8) // 2  # the picture of each caption


@pytest.fixture
def measured(monkeypatch):
    """What is measured of a system whose two sides are embedded like this."""

    def measure(pictures, captions):
        similarity = SIMILARITIES.build("smooth_chamfer", {})
        similarity.block = (3, 5)
        model = VSE(torch.nn.Linear(1, 1), None, None, None, similarity)
        sides = [Embedding(vectors) for vectors in (pictures, captions)]
        monkeypatch.setattr(measures, "encode", lambda *given: sides)
        return measure_sets(model, SimpleNamespace(owner=OWNER.numpy()), None)

    return measure


def rsum_of(v, t):
    return measures.evaluate(smooth_chamfer(v, t), OWNER.numpy())["rsum"]


def test_each_vector_is_kept_alone_and_left_out_on_either_side(measured):
    torch.manual_seed(0)
    v, t = torch.randn(4, 3, 6), torch.randn(8, 3, 6)
    found = measured(v, t)
    assert len(found) == 2 * 2 * 3 + 2
    for k, others in enumerate(([1, 2], [0, 2], [0, 1])):
        assert found[alone("pictures", k + 1)] == rsum_of(v[:, [k]], t)
        assert found[without("pictures", k + 1)] == rsum_of(v[:, others], t)
        assert found[alone("texts", k + 1)] == rsum_of(v, t[:, [k]])
        assert found[without("texts", k + 1)] == rsum_of(v, t[:, others])


def test_the_logarithm_of_the_variance_is_taken_of_each_set_before_the_mean(measured):
    right, up = torch.tensor([1.0, 0.0]), torch.tensor([0.0, 1.0])
    apart, opposed = torch.stack([right, up]), torch.stack([right, -right])
    found = measured(torch.stack([apart, opposed] * 2), apart.expand(8, 2, 2))
    one = math.log(1 - math.sqrt(0.5))
    assert [found[name] for name in LOG_VARIANCES] == pytest.approx([one / 2, one])
    collapsed = measured(torch.randn(4, 1, 8).expand(4, 4, 8), torch.randn(8, 1, 8).expand(8, 4, 8))
    assert collapsed["log_variance_texts"] == pytest.approx(math.log(SMALLEST), abs=5)


def test_one_vector_is_not_a_set(measured):
    assert measured(torch.randn(4, 6), torch.randn(8, 6)) == {}
    assert measured(torch.randn(4, 1, 6), torch.randn(8, 1, 6)) == {}


def test_what_sets_lose_is_a_share_of_the_rsum():
    """The numbers of the paper's table 5."""
    metrics = {"rsum": 500.8, without("pictures", 2): 500.2}
    metrics |= {alone("pictures", k): sums for k, sums in enumerate((491.1, 309.6, 484.9, 486.0), start=1)}
    metrics |= {alone("texts", k): sums for k, sums in enumerate((481.9, 483.0, 481.7, 497.2), start=1)}
    found = lost(metrics)
    assert [found[name] for name in LOST_ALONE] == pytest.approx([11.56, 2.96], abs=0.01)
    assert found[LOST_WITHOUT] == pytest.approx(100 * 0.6 / 500.8)  # the second is the weakest alone
    assert lost({"rsum": 500.8}) == {}

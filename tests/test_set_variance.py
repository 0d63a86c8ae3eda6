"""The variance of embedding sets on a split, and the table of the evidence page."""

import math

import pytest
import torch

from vsecore.embedding import Embedding
from vsecore.experiments import set_variance
from vsecore.experiments.set_variance import LOG_VARIANCES, SMALLEST, log_variances
from vsecore.sets import SlotSetPrediction


@pytest.fixture
def variances(monkeypatch):
    """What is measured of a split whose two sides are embedded like this."""

    def measure(pictures, captions):
        sides = [Embedding(vectors, torch.zeros(1, 1, 1), None, {}) for vectors in (pictures, captions)]
        monkeypatch.setattr(set_variance, "encode", lambda *given: sides)
        return log_variances(None, None, None)

    return measure


def test_the_logarithm_is_taken_of_each_set_before_the_mean(variances):
    right, up = torch.tensor([1.0, 0.0]), torch.tensor([0.0, 1.0])
    apart, opposed = torch.stack([right, up]), torch.stack([right, -right])
    found = variances(torch.stack([apart, opposed]), torch.stack([apart, apart]))
    one = math.log(1 - math.sqrt(0.5))
    assert found == pytest.approx(dict(zip(LOG_VARIANCES, (one / 2, one), strict=True)))


def test_collapsed_sets_have_a_logarithm_too(variances):
    collapsed = torch.randn(3, 1, 8).expand(3, 4, 8)
    assert variances(collapsed, collapsed)["log_variance_texts"] == pytest.approx(math.log(SMALLEST), abs=5)


def test_one_vector_has_no_variance(variances):
    assert variances(torch.randn(3, 8), torch.randn(4, 8)) == {}
    assert variances(torch.randn(3, 1, 8), torch.randn(4, 1, 8)) == {}


def test_slots_can_be_as_narrow_as_the_space():
    narrow = SlotSetPrediction(6, hidden=None, expansion=1)
    assert (narrow.key.out_features, narrow.mlp[0].out_features) == (6, 6)
    with pytest.raises(ValueError, match="expansion"):
        SlotSetPrediction(6, expansion=0)

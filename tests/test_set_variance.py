"""The variance of embedding sets on a split, and the table of the evidence page."""

import math
from types import SimpleNamespace

import pytest
import torch

from coursebook.sets import sets
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
    with pytest.raises(ValueError, match="expansion is 0"):
        SlotSetPrediction(6, expansion=0)


def found(*arms):
    return SimpleNamespace(experiments=["set_parts"], fair={"scenes": {"set_parts": dict(arms)}})


def arm(name, title, **results):
    by_seed = {measure: dict.fromkeys(range(5), value) for measure, value in results.items()}
    return name, SimpleNamespace(arm=name, title=title, results=by_seed, seeds=set(range(5)))


def test_the_page_has_each_system_of_sets_once():
    whole = dict.fromkeys(LOG_VARIANCES, -2.134) | {"rsum": 120.0, "i2t_map_at_r": 10.0, "t2i_map_at_r": 20.0}
    vector = {name: value for name, value in whole.items() if not name.startswith("log")}
    page = sets(found(arm("all", "a", **whole), arm("again", "a", **whole), arm("vector", "b", **vector)))
    rows = [line for line in page.splitlines() if line.startswith("| ") and "seeds" in line]
    assert len(rows) == 1 and rows[0].startswith("| all | -2.13") and "| 120.0 (" in rows[0]


def test_a_page_without_fair_trainings_says_so_and_one_on_other_matters_has_no_table():
    assert "No system with fair trainings" in sets(found())
    assert sets(SimpleNamespace(experiments=["2ad_parts"])) == ""

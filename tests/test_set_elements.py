"""What each vector of the sets is worth at search, and the table of the evidence page."""

from types import SimpleNamespace

import pytest
import torch

from coursebook.evidence import _elements
from vsecore.embedding import Embedding
from vsecore.experiments import EXPERIMENTS, set_elements
from vsecore.experiments.set_elements import SIDES, alone, element_sums, without
from vsecore.experiments.set_variance import LOG_VARIANCES
from vsecore.similarity import SIMILARITIES, smooth_chamfer

OWNER = torch.arange(8) // 2  # the picture of each caption


@pytest.fixture
def sums(monkeypatch):
    """The sums of a system whose two sides are embedded like this."""

    def measure(pictures, captions):
        similarity = SIMILARITIES.build("smooth_chamfer", {})
        model = SimpleNamespace(scores=similarity, block=(3, 5), parameters=lambda: iter([torch.zeros(1)]))
        sides = [Embedding(vectors) for vectors in (pictures, captions)]
        monkeypatch.setattr(set_elements, "encode", lambda *given: sides)
        return element_sums(model, SimpleNamespace(owner=OWNER.numpy()), None)

    return measure


def rsum_of(v, t):
    return set_elements.evaluate(smooth_chamfer(v, t), OWNER.numpy())["rsum"]


def test_each_vector_is_kept_alone_and_left_out_on_either_side(sums):
    torch.manual_seed(0)
    v, t = torch.randn(4, 3, 6), torch.randn(8, 3, 6)
    found = sums(v, t)
    assert len(found) == 2 * 2 * 3
    for k, others in enumerate(([1, 2], [0, 2], [0, 1])):
        assert found[alone("pictures", k + 1)] == rsum_of(v[:, [k]], t)
        assert found[without("pictures", k + 1)] == rsum_of(v[:, others], t)
        assert found[alone("texts", k + 1)] == rsum_of(v, t[:, [k]])
        assert found[without("texts", k + 1)] == rsum_of(v, t[:, others])


def test_where_one_vector_knows_all_the_others_know_nothing(sums):
    which = torch.eye(4)
    empty = torch.full((4, 4), 0.5)  # the same for everything
    v, t = torch.stack([empty, which], 1), torch.stack([which, which], 1)[OWNER]
    found = sums(v, t)
    assert found[alone("pictures", 2)] == found[without("pictures", 1)] == 600
    assert found[alone("pictures", 1)] == found[without("pictures", 2)] <= 300
    assert found[alone("texts", 1)] == found[alone("texts", 2)] == 600


def test_one_vector_is_not_taken_apart(sums):
    assert sums(torch.randn(4, 6), torch.randn(8, 6)) == {}
    assert sums(torch.randn(4, 1, 6), torch.randn(8, 1, 6)) == {}


def test_the_page_has_the_best_and_the_worst_vector_of_each_seed():
    """Another seed numbers its slots in another order."""
    whole = dict.fromkeys((*LOG_VARIANCES, "i2t_map_at_r", "t2i_map_at_r"), dict.fromkeys(range(3), 1.0))
    whole["rsum"] = {0: 500.0, 1: 300.0, 2: 1000.0}
    for side in SIDES:
        for metric, low, high in ((alone, 100.0, 200.0), (without, 400.0, 490.0)):
            whole[metric(side, 1)] = {0: low, 1: high}  # of seed 2, an older record, this is not known
            whole[metric(side, 2)] = {0: high, 1: low}
    arm = SimpleNamespace(arm="all", title="a", results=whole, seeds={0, 1, 2})
    plain = SimpleNamespace(
        arm="plain",
        title="b",
        results={key: value for key, value in whole.items() if "_w" not in key and "only" not in key},
        seeds={0, 1, 2},
    )
    rows = _elements(EXPERIMENTS["set_parts"], {"all": arm, "plain": plain})
    one = [
        "200.0 (200.0 to 200.0)",
        "100.0 (100.0 to 100.0)",
        "490.0 (490.0 to 490.0)",
        "400.0 (400.0 to 400.0)",
    ]
    assert [row[:2] for row in rows] == [["all", "pictures"], ["all", "captions"]]
    assert all(row[2].startswith("400.0") and row[3:] == [*one, "2 seeds"] for row in rows)

"""From paired differences to a verdict."""

import statistics

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import sem, t

from vsecore.experiments.statistics import Doubts, corrected, doubts, holm, judge, together

differing = st.lists(st.integers(-50, 50), min_size=2, max_size=6).filter(lambda values: len(set(values)) > 1)
p_values = st.lists(st.floats(0, 1), min_size=1, max_size=8)


@given(differing, st.integers(1, 9))
@settings(max_examples=50, deadline=None)
def test_the_doubts_are_those_of_students_t(values, margin):
    """By hand, from the survival function of t."""

    def above(values, bound):
        return t.sf((statistics.mean(values) - bound) / sem(values), len(values) - 1)

    found, other = doubts(values, margin), [-value for value in values]
    assert (found.mean, found.margin) == (pytest.approx(statistics.mean(values)), margin)
    assert found.equal == pytest.approx(2 * min(above(values, 0), above(other, 0)))
    assert (found.worse, found.not_worse) == pytest.approx((above(values, -margin), above(other, margin)))
    assert found.beyond == pytest.approx(max(above(values, -margin), above(other, -margin)))


def test_without_a_spread_there_is_no_doubt():
    assert doubts([0.0, 0.0, 0.0], 1.0) == Doubts(0.0, 1.0, equal=1, beyond=0, worse=0, not_worse=1)
    assert doubts([-1.0, -1.0], 0.5) == Doubts(-1.0, 0.5, equal=0, beyond=1, worse=1, not_worse=0)
    assert doubts([0.5, 0.5], 0.5).beyond == 1
    assert 0 < doubts([100.0, 101.0, 103.0], 1.0).equal < 0.001  # a small spread is a spread
    for too_few in ([], [1.0]):
        with pytest.raises(ValueError, match="differences"):
            doubts(too_few, 1.0)


def test_holm_by_hand():
    assert holm([]) == []
    assert holm([0.03]) == [0.03]
    assert holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])  # 3·0.01; 2·0.03; then 0.04 follows
    assert holm([0.6, 0.7]) == [1.0, 1.0]
    assert holm([0.01, 0.04], questions=4) == pytest.approx([0.04, 0.12])


@given(p_values)
@settings(max_examples=50, deadline=None)
def test_holm_keeps_the_order_and_never_lowers(values):
    adjusted = holm(values)
    pairs = list(zip(values, adjusted, strict=True))
    assert all(p <= raised <= min(1, len(values) * p) + 1e-12 for p, raised in pairs)
    assert all(one[1] <= other[1] for one in pairs for other in pairs if one[0] <= other[0])


@pytest.mark.parametrize(
    ("differences", "kind", "verdict"),
    [
        ([9.0, 10.0, 11.0], "better", "reproduced"),
        ([-9.0, -10.0, -11.0], "better", "contradicted"),
        ([-9.0, -10.0, -11.0], "no worse", "contradicted"),
        ([-3.5, -2.5, -2.0], "no worse", "undecided"),  # surely worse, but perhaps within the margin
        ([9.0, -8.0, 1.0], "better", "undecided"),
        ([2.0, 2.5, 3.0], "better", "undecided"),  # surely not 0, but perhaps within the margin
        ([2.0, 2.5, 3.0], "the same", "undecided"),
        ([0.1, -0.1, 0.2], "better", "no difference"),
        ([0.4, 0.5, 0.6], "better", "no difference"),  # surely not 0, and surely less than 3
        ([0.1, -0.1, 0.2], "no worse", "reproduced"),
        ([9.0, 10.0, 11.0], "our question", "reproduced"),
        ([9.0, 10.0, 11.0], "the same", "contradicted"),
        ([0.4, 0.5, 0.6], "the same", "reproduced"),
    ],
)
def test_a_verdict_by_one_measure(differences, kind, verdict):
    assert judge(doubts(differences, 3.0), kind) == verdict


@pytest.mark.parametrize("kind", ["better", "no worse", "our question"])
def test_a_doubt_of_one_in_twenty_decides(kind):
    def said(**changed):
        return judge(
            Doubts(5.0, 3.0, **{"equal": 1.0, "beyond": 1.0, "worse": 1.0, "not_worse": 1.0} | changed), kind
        )

    assert said() == "undecided"
    for doubt, verdict in (
        [("worse", "reproduced"), ("not_worse", "contradicted")]
        if kind == "no worse"
        else [("equal", "reproduced"), ("beyond", "no difference")]
    ):
        assert said(**{doubt: 0.049}) == verdict and said(**{doubt: 0.051}) == "undecided"


def test_each_kind_of_doubt_is_corrected_by_itself():
    several = [Doubts(1.0, 3.0, 0.01, 0.2, 0.3, 0.04), Doubts(2.0, 3.0, 0.03, 0.1, 0.3, 0.01)]
    both = [Doubts(1.0, 3.0, 0.02, 0.2, 0.6, 0.04), Doubts(2.0, 3.0, 0.03, 0.2, 0.6, 0.02)]
    assert corrected(several, 2) == both
    # Claims that cannot be judged yet count too.
    assert [one.equal for one in corrected(several, 4)] == [0.04, 0.09]


def test_measures_that_contradict_each_other_are_mixed():
    assert together(["reproduced", "reproduced"]) == "reproduced"
    assert together(["reproduced", "contradicted"]) == "mixed"
    assert together(["reproduced", "undecided", "no difference"]) == "mixed"
    assert together(["reproduced", "undecided"]) == "undecided"  # not to know is not to disagree
    assert together(["undecided", "undecided"]) == "undecided"

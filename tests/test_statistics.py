"""From paired differences to a verdict."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import false_discovery_control, ttest_1samp

from vsecore.experiments.statistics import holm, judge, p_above, p_different, together

differing = st.lists(st.integers(-50, 50), min_size=2, max_size=6).filter(lambda values: len(set(values)) > 1)
p_values = st.lists(st.floats(0, 1), min_size=1, max_size=8)


@given(differing, st.integers(-9, 9))
@settings(max_examples=50, deadline=None)
def test_p_values_are_those_of_scipy(values, bound):
    assert p_above(values, bound) == pytest.approx(ttest_1samp(values, bound, alternative="greater").pvalue)
    assert p_different(values) == pytest.approx(ttest_1samp(values, 0).pvalue)


def test_without_a_spread_there_is_no_doubt():
    assert p_above([2.0, 2.0]) == 0 and p_above([2.0, 2.0], 2.0) == 1 and p_above([2.0, 2.0], 3.0) == 1
    assert p_different([0.0, 0.0, 0.0]) == 1 and p_different([-1.0, -1.0]) == 0
    for too_few in ([], [1.0]):
        with pytest.raises(ValueError, match="at least two"):
            p_above(too_few)


def test_holm_by_hand():
    assert holm([]) == []
    assert holm([0.03]) == [0.03]
    assert holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])  # 3·0.01; 2·0.03; then 0.04 follows
    assert holm([0.6, 0.7]) == [1.0, 1.0]


@given(p_values)
@settings(max_examples=50, deadline=None)
def test_holm_keeps_the_order_and_never_lowers(values):
    adjusted = holm(values)
    pairs = list(zip(values, adjusted, strict=True))
    assert all(p <= raised <= min(1, len(values) * p) + 1e-12 for p, raised in pairs)
    assert all(one[1] <= other[1] for one in pairs for other in pairs if one[0] <= other[0])
    # The weaker correction, of false discoveries, never raises a p-value further.
    assert all(
        raised >= weaker - 1e-12
        for raised, weaker in zip(adjusted, false_discovery_control(values), strict=True)
    )


@pytest.mark.parametrize(
    ("differences", "kind", "verdict"),
    [
        ([9.0, 10.0, 11.0], "better", "reproduced"),
        ([-9.0, -10.0, -11.0], "better", "contradicted"),
        ([-9.0, -10.0, -11.0], "no worse", "contradicted"),
        ([9.0, -8.0, 1.0], "better", "undecided"),
        ([9.0, -8.0, 1.0], "no worse", "undecided"),
        ([0.1, -0.1, 0.2], "better", "no difference"),
        ([0.4, 0.5, 0.6], "better", "no difference"),  # surely not 0, and surely less than 3
        ([0.1, -0.1, 0.2], "no worse", "reproduced"),
        ([-0.4, -0.5, -0.6], "no worse", "reproduced"),  # a little worse, within the margin
        ([9.0, 10.0, 11.0], "no worse", "reproduced"),
        ([9.0, 10.0, 11.0], "our question", "reproduced"),
    ],
)
def test_a_verdict_by_one_measure(differences, kind, verdict):
    assert judge(differences, p_different(differences), 3.0, kind) == verdict


def test_the_correction_decides():
    differences = [9.0, 10.0, 11.0]
    assert judge(differences, 0.049, 3.0, "better") == "reproduced"
    assert judge(differences, 0.051, 3.0, "better") == "undecided"


def test_measures_that_disagree_are_mixed():
    assert together(["reproduced", "reproduced"]) == "reproduced"
    assert together(["reproduced", "contradicted"]) == "mixed"
    assert together(["reproduced", "undecided"]) == "mixed"

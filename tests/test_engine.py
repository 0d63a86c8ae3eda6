"""The network that comes with the course: whole, as good as its record says, and at hand without training."""

import pytest

import course
from course.engine import FIRST_RECIPE, RECORDS, first_engine
from vsecore import records
from vsecore.evaluation import evaluate
from vsecore.similarity import cosine
from vsecore.training import encode


def test_the_first_engine_is_as_good_as_its_record_says():
    (entry,) = records.find(RECORDS)
    assert entry.config_hash == FIRST_RECIPE.hash()
    model, vocabulary = first_engine()
    assert not model.training
    test = course.begin().test_split()
    pictures, captions = (side.vectors for side in encode(model, test, vocabulary))
    found = evaluate(cosine(pictures, captions), test.owner)
    assert "rsum" in entry.metrics
    assert {name: found[name] for name in entry.metrics} == pytest.approx(entry.metrics, abs=0.5)


def test_the_test_split_alone_is_that_of_the_whole():
    lesson = course.begin("smoke")
    alone, whole = lesson.test_split(), lesson.dataset().test
    assert alone.captions == whole.captions and alone.picture_ids == whole.picture_ids

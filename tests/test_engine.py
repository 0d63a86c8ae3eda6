"""The network that comes with the course: whole, as good as its record says, and at hand without training."""

import pytest
import torch

from vsecore import course, records
from vsecore.course.engine import FIRST_RECIPE, RECORDS, first_engine
from vsecore.course.meanings import MEANINGS, suggestion
from vsecore.evaluation import evaluate
from vsecore.scenes.parsing import known_words
from vsecore.similarity import cosine
from vsecore.training import encode


def test_the_first_engine_is_as_good_as_its_record_says():
    (entry,) = records.find(RECORDS)
    assert entry.config_hash == FIRST_RECIPE.hash()
    model, vocabulary = first_engine()
    test = course.begin().test_split()
    pictures, captions = (side.vectors for side in encode(model, test, vocabulary))
    found = evaluate(cosine(pictures, captions), test.owner)
    assert "rsum" in entry.metrics
    assert {name: found[name] for name in entry.metrics} == pytest.approx(entry.metrics, abs=0.5)


def test_it_is_ready_to_evaluate():
    model, vocabulary = first_engine()
    assert not model.training
    tokens, mask = vocabulary.encode(["a girl holding a balloon"])
    with torch.no_grad():
        assert torch.equal(*(model.encode_captions(tokens, mask).vectors for _ in range(2)))


def test_the_test_split_alone_is_that_of_the_whole():
    lesson = course.begin("smoke")
    alone, whole = lesson.test_split(), lesson.dataset().test
    assert alone.captions == whole.captions and alone.picture_ids == whole.picture_ids


def test_only_unknown_words_have_a_suggestion_and_it_is_known():
    known = {word for phrase in known_words() for word in phrase.split()}
    unknown = [word for words in MEANINGS.values() for word in words.split()]
    assert MEANINGS.keys() <= known and known.isdisjoint(unknown) and len(unknown) == len(set(unknown))


def test_a_suggestion_names_all_unknown_words():
    assert suggestion("Two puppies? Puppys on the ocean") == "Try 'dog' for 'puppys' and 'beach' for 'ocean'."
    assert suggestion("a dog on the beach") == ""


def test_a_sentence_is_judged_against_every_picture():
    lesson = course.begin("smoke")
    truth, remark = lesson.true_of("two boats on the lake", "test")
    assert len(truth) == 200 and remark == ""
    assert lesson.true_of("two boats on the lake", "test", [7])[0] == [truth[7]]
    assert "Try 'dog' for 'puppy'" in lesson.true_of("a puppy on the beach", "test")[1]

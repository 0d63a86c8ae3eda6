"""The network that comes with the course: whole, as good as its record says, and at hand without training."""

import pytest

import course
from course.engine import FIRST_RECIPE, RECORDS, first_engine
from course.meanings import MEANINGS, suggestion, why_unread
from vsecore import records
from vsecore.evaluation import evaluate
from vsecore.scenes.parsing import known_words
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


def test_unknown_words_alone_have_a_suggestion_and_it_is_known():
    known = {word for phrase in known_words() for word in phrase.split()}
    unknown = [word for words in MEANINGS.values() for word in words.split()]
    assert MEANINGS.keys() <= known and known.isdisjoint(unknown) and len(unknown) == len(set(unknown))
    assert not any(suggestion(phrase) for phrase in known_words()), "none is the plural of an unknown one"
    assert suggestion("Two puppies? Foals on the ocean") == (
        "Try 'dog' for 'puppies' and 'horse' for 'foals' and 'beach' for 'ocean'."
    )
    for plural, meant in (("ponies", "horse"), ("wolves", "animal"), ("foxes", "animal"), ("geese", "duck")):
        assert suggestion(f"two {plural}") == f"Try {meant!r} for {plural!r}."


def test_words_of_similar_meaning_replace_words_spelled_alike():
    lesson = course.begin("smoke")
    assert lesson.true_of("a puppy on the beach", "test") == (
        None,
        "\n(not judged: The word 'puppy' is not known in the world of scenes. Try 'dog' for 'puppy'.)",
    )
    _, remark = lesson.true_of("a beech and a puppy", "test")
    assert "'beech' is not known" in remark and "nearest words known are" in remark
    assert remark.endswith(" Try 'dog' for 'puppy'.)")
    assert why_unread("The caption ends too early.", "a dog") == "The caption ends too early."

"""Maps from words to places: the right word, the right box, the right pixels, for any model with elements."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import nn

import small
from course import lesson, plots
from course.attention import Seen
from vsecore.data.splits import Split
from vsecore.data.vocabulary import Vocabulary
from vsecore.data.word_pieces import BERTTokenizer
from vsecore.model import VSE
from vsecore.recipes import get
from vsecore.similarity import Cosine, Similarity

WORDS = Vocabulary(["red", "kite", "above", "beach"])
PIXELS = np.full((40, 80, 3), 200, np.uint8)
BOXES = np.array([[0, 0, 1, 1], [0, 0, 0.25, 0.5], [0.5, 0.5, 1, 1]])
SEEN = Seen(PIXELS, np.eye(3, dtype=np.float32), BOXES)


class Elements(nn.Module):
    """Gives features as they are, or a row of a table for each word, perhaps behind a class element."""

    def __init__(self, table=None, front=False):
        super().__init__()
        self.table = nn.Parameter(torch.zeros(1) if table is None else table)
        self.given, self.front = table is None, front

    def forward(self, x, mask=None):
        elements = x if self.given else self.table[x]
        if self.front:
            elements = torch.cat([torch.full_like(elements[:, :1], 9.0), elements], 1)
        return elements, None


class Weights(Similarity):
    """A similarity that says of each word which element it attends to."""

    reads = "elements"

    def __init__(self, weights, direction="t2i"):
        super().__init__()
        self.given, self.direction = weights, direction

    def weights(self, v, t):
        assert v.elements.shape[1] == self.given.shape[1] and t.elements.shape[1] == len(self.given)
        return self.given[None]


def model(similarity=None, front=False, table=None):
    table = torch.randn(len(WORDS), 3) if table is None else table
    similarity = similarity or Cosine()
    return VSE(Elements(front=front), None, Elements(table, front=front), None, similarity)


def maps_of(vse, seen, caption, tokenizer=WORDS, **options):
    return plots.word_maps(SimpleNamespace(model=vse, tokenizer=tokenizer), seen, caption, **options)


CAPTION = "red Kite, above beach!"


def test_a_word_takes_the_weights_of_its_own_row():
    given = torch.softmax(torch.randn(6, 3), 1)
    maps = maps_of(model(Weights(given)), SEEN, CAPTION)
    assert maps.words == ("red", "kite", "above", "beach") and maps.measure == "weight" and maps.hidden == 0
    np.testing.assert_allclose(maps.values, given[1:5].double().numpy())  # neither start nor end
    np.testing.assert_allclose(maps.values.sum(1), 1, rtol=1e-6)


def test_without_weights_it_is_the_cosine_of_elements():
    table = torch.zeros(len(WORDS), 3)
    table[WORDS.numbers["kite"]] = torch.tensor([0.0, 5.0, 0.0])
    table[WORDS.numbers["red"]] = torch.tensor([-1.0, 0.0, 1.0])
    maps = maps_of(model(table=table), SEEN, CAPTION)
    half = 0.5**0.5
    np.testing.assert_allclose(maps.values[:2], [[-half, 0, half], [0, 1, 0]], atol=1e-6)
    assert maps.measure == "cosine"


def test_a_class_element_has_no_place():
    given = torch.softmax(torch.randn(7, 4), 1)
    maps = maps_of(model(Weights(given), front=True), SEEN, CAPTION)
    np.testing.assert_allclose(maps.values, given[2:6, 1:].double().numpy())


def test_an_unknown_word_is_marked_and_words_can_be_chosen():
    maps = maps_of(model(), SEEN, "a red kite")
    assert maps.words == ("a (unknown)", "red", "kite")
    chosen = maps_of(model(), SEEN, "a red kite", words=["Kite", "a"])
    assert chosen.words == ("a (unknown)", "kite") and chosen.hidden == 1
    for wrong in (["blue"], [], "kite"):
        with pytest.raises(ValueError, match="words "):
            maps_of(model(), SEEN, "a red kite", words=wrong)
    with pytest.raises(ValueError, match="caption"):
        maps_of(model(), SEEN, "...")


def test_the_pieces_of_a_word_are_one_map(tmp_path):
    small.make_bert(tmp_path, ["red kite ##s above ' n"])
    pieces = BERTTokenizer(tmp_path)
    assert pieces.words_of("Red, kites above") == [("red", [1]), ("kites", [3, 4]), ("above", [5])]
    given = torch.zeros(7, 3)
    given[3:5] = torch.eye(3)[:2]
    vse = VSE(Elements(), None, Elements(torch.zeros(len(pieces), 3)), None, Weights(given))
    maps = maps_of(vse, SEEN, "Red, kites above", pieces)
    np.testing.assert_allclose(maps.values[1], [0.5, 0.5, 0])


def test_the_training_mode_is_left_as_it_was():
    vse = model()
    for training in (True, False):
        vse.train(training)
        maps_of(vse, SEEN, CAPTION)
        assert vse.training == training


def test_cells_lie_row_by_row_from_the_top_left():
    seen = Seen(PIXELS, np.eye(4, 3, dtype=np.float32))
    maps = maps_of(model(), seen, "kite")
    assert maps.boxes.tolist() == [[0, 0, 0.5, 0.5], [0.5, 0, 1, 0.5], [0, 0.5, 0.5, 1], [0.5, 0.5, 1, 1]]


@pytest.mark.parametrize("boxes", [BOXES[:2], BOXES * 100, BOXES[:, [2, 1, 0, 3]]])
def test_boxes_that_cannot_be_drawn_are_refused(boxes):
    with pytest.raises(ValueError, match="boxes"):
        Seen(PIXELS, SEEN.features, boxes)


def test_padding_of_a_split_is_left_out():
    split = Split("test", np.ones((1, 3, 2), np.float16), ["a"], np.array([0]), ["x"], np.array([2]))
    seen = Seen.of_row(split, 0, PIXELS, BOXES)
    assert seen.features.shape == (2, 2) and len(seen.boxes) == 2


def test_a_lesson_gives_its_pictures_with_features_and_boxes(monkeypatch):
    monkeypatch.setattr(lesson, "SMOKE_SIZES", {"train": 1, "dev": 1, "test": 4})
    here = lesson.begin("smoke")
    data = here.dataset("region")
    seen = here.seen(data, "test", 3)
    features = np.asarray(data.test.pictures[3:4])[0, : len(seen.boxes)]
    np.testing.assert_allclose(seen.boxes, features[:, -6:-2], atol=1e-3)
    assert seen.pixels.shape == (224, 224, 3)


@pytest.mark.parametrize(
    ("name", "measure"),
    [
        ("thesis_grid", "cosine"),
        ("scan_region_gru", "weight"),
        ("scan_region_gru+i2t", "weight of the words"),
        ("bfan_region_gru", "weight"),
    ],
)
def test_any_recipe_can_be_asked(name, measure):
    split = small.small_data().test
    recipe = get(name).override({"dim": 16, "text.encoder.minimum_count": 1})
    tokenizer = recipe.tokenizer(split.captions)
    run = SimpleNamespace(model=recipe.build(split.pictures.shape[2], tokenizer), tokenizer=tokenizer)
    seen = Seen.of_row(split, 0, PIXELS, np.tile(BOXES[0], (5, 1)))
    maps = plots.word_maps(run, seen, split.captions[0])
    assert maps.measure == measure and np.isfinite(maps.values).all()
    assert maps.values.shape == (len(split.captions[0].split()), len(seen.features))
    if measure == "weight":
        np.testing.assert_allclose(maps.values.sum(1), 1, rtol=1e-5)
    elif measure == "weight of the words":
        assert (maps.values.sum(0) < 1).all()  # the marks of start and end have the rest

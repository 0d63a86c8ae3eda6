"""An index of sets: MaxSim proposes, the model's own similarity ranks, and next to nothing is lost."""

import math
from pathlib import Path

import numpy as np
import pytest
import torch

pytest.importorskip("qdrant_client", reason="needs the extra search")

from vsecore.embedding import Embedding
from vsecore.search import Index, Seen
from vsecore.search.index import PROPOSED
from vsecore.search.reference import flat, quantised, recall, top
from vsecore.search.store import Facts, Store
from vsecore.similarity import SIMILARITIES, unit

SHAPE = (4, 32)


class SetEngine:
    """Stands in for a trained set model: it compares, and the test hands it sets that are made already."""

    name, fingerprint, shape, has_sets, source = "sets", "0" * 64, SHAPE, True, None

    def __init__(self, similarity: str) -> None:
        self.similarity = SIMILARITIES.build(similarity, {}, dim=32)

    def compare(self, vectors: np.ndarray, query: np.ndarray) -> np.ndarray:
        pictures, wanted = Embedding(torch.from_numpy(vectors)), Embedding(torch.from_numpy(query[None]))
        with torch.inference_mode():
            return self.similarity(pictures, wanted)[:, 0].numpy()


def sets(count: int, seed: int, spread: float) -> np.ndarray:
    """Sets as trained slots make them: pictures of a topic are near each other, each slot a little apart."""
    dice = torch.Generator().manual_seed(seed)
    topics = torch.randn(60, 1, SHAPE[1], generator=torch.Generator().manual_seed(9))
    own = torch.randn(count, 1, SHAPE[1], generator=dice)
    slots = torch.randn(count, *SHAPE, generator=dice)
    return unit(topics[torch.arange(count) % 60] + 0.5 * own + spread * slots).numpy()


def index_of(vectors: np.ndarray, similarity: str) -> Index:
    facts = Facts("sets", "0" * 64, list(SHAPE), None, "sets")
    store = Store(None, facts)
    store.put(Seen(Path(f"/{row}.png"), 1, 1, "", one) for row, one in enumerate(vectors))
    return Index(SetEngine(similarity), store)  # type: ignore[arg-type]


@pytest.mark.parametrize("similarity", ["smooth_chamfer", "chamfer"])
@pytest.mark.parametrize("spread", [0.3, 0.7])
def test_maxsim_proposes_what_the_exact_similarity_would_rank_first(similarity: str, spread: float) -> None:
    pictures = sets(1500, 0, spread)
    index = index_of(pictures, similarity)
    queries = sets(60, 1, spread)[::3]  # captions of some topics
    kept = 0
    for query in queries:
        found, exact = index.nearest(query, 10), index.exact(query, 10)
        kept += len({one.number for one in found} & {one.number for one in exact})
        assert found[0].score == pytest.approx(exact[0].score, abs=1e-6)
    assert kept / 200 >= 0.99


def test_a_picture_that_only_the_means_propose_is_found_too() -> None:
    """MaxSim is content with one slot that fits, and more pictures have one than it may propose."""
    x, y = np.eye(SHAPE[1], dtype=np.float32)[:2]
    lures = np.stack([[x, -x, -x, -x]] * (PROPOSED + 50))
    near = np.stack([0.9 * x + math.sqrt(1 - 0.9**2) * y] * 4)  # all of its slots fit nearly as well
    index = index_of(np.concatenate([lures, near[None]]), "smooth_chamfer")
    caption = np.stack([x] * 4)
    caption[0] = -y  # which is like none of them
    assert index.nearest(caption, 1)[0].number == len(lures) + 1 == index.exact(caption, 1)[0].number


def test_the_models_own_similarity_decides_the_order() -> None:
    index = index_of(sets(300, 2, 1.0), "smooth_chamfer")
    query = sets(1, 3, 1.0)[0]
    found = index.nearest(query, 20)
    assert [one.score for one in found] == sorted((one.score for one in found), reverse=True)
    proposed = index.vectors.nearest(query, PROPOSED)  # by MaxSim
    assert [number for number, _ in proposed[:20]] != [one.number for one in found]


def test_sets_are_kept_as_they_were() -> None:
    pictures = sets(30, 4, 1.0)
    numbers, kept = index_of(pictures, "smooth_chamfer").all_vectors()
    assert numbers.tolist() == list(range(1, 31))
    assert np.array_equal(kept, pictures)


def clustered(count: int, seed: int) -> np.ndarray:
    dice = np.random.default_rng(seed)
    x = dice.standard_normal((count, 32)).astype(np.float32)
    return x / np.linalg.norm(x, axis=1, keepdims=True)


def test_a_quantised_index_finds_most_of_what_the_exact_one_does() -> None:
    pictures, queries = clustered(2000, 0), clustered(50, 1)
    exact = top(flat(pictures), queries)
    assert np.array_equal(exact, np.argsort(-(queries @ pictures.T), kind="stable")[:, :10])
    assert recall(top(quantised("SQ8", pictures, pictures), queries), exact) > 0.95
    coarse = recall(top(quantised("PQ8x4", pictures, pictures), queries), exact)
    assert 0.01 < coarse < 0.9
    assert recall(exact, exact) == 1


def test_the_codebooks_of_a_quantised_index_are_learned_from_the_examples() -> None:
    """So queries of another kind than the vectors can be among them."""
    pictures, others = clustered(500, 0), np.roll(clustered(500, 1), 1) ** 3
    queries = clustered(50, 2)
    own, foreign = (top(quantised("PQ8x4", pictures, some), queries) for some in (pictures, others))
    exact = top(flat(pictures), queries)
    assert not np.array_equal(own, foreign) and recall(own, exact) > recall(foreign, exact)


def test_vectors_that_faiss_cannot_take_are_refused() -> None:
    with pytest.raises(ValueError, match=r"float64.*wanted float32"):
        flat(np.zeros((3, 4)))
    with pytest.raises(ValueError, match="examples have width 8"):
        quantised("SQ8", clustered(9, 0), np.zeros((3, 8), np.float32))
    with pytest.raises(ValueError, match="kind is 'nonsense'"):
        quantised("nonsense", clustered(9, 0), clustered(9, 0))
    with pytest.raises(ValueError, match="wanted \\(queries, k\\)"):
        recall(np.zeros((2, 3)), np.zeros((2, 4)))

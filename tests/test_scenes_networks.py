"""The small networks: their interface, the targets that they learn from, and what they learned."""

import numpy as np
import pytest
import torch
from sklearn.linear_model import RidgeClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from vsecore.scenes import build, networks, pretraining
from vsecore.scenes.facts import Scene, Thing

SHAPES = {"scenes-cnn": (49, 144), "scenes-vit": (49, 128)}


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    """Each test has a cache of its own."""
    monkeypatch.setenv("VSECORE_CACHE", str(tmp_path))
    return tmp_path


def noise(count):
    return torch.randint(
        0, 256, (count, 3, 112, 112), dtype=torch.uint8, generator=torch.Generator().manual_seed(0)
    )


def scene():
    """A large house far away on the left, a boy before its right edge, looking left."""
    house = Thing("house", "red", "large", None, (0, 32, 48, 80), 2)
    boy = Thing("boy", "blue", None, "left", (38, 64, 56, 104), 0)
    return Scene("farm", (house, boy), (("in front of", 1, 0),))


@pytest.mark.parametrize("name", networks.NETWORKS)
def test_a_network_has_a_backbone_s_interface(name):
    network = networks.load_network(name)
    assert not network.training
    assert networks.weights_file(name).stat().st_size <= 4_000_000, "it ships in assets"
    assert network.kind == ("grid" if name == "scenes-cnn" else "patch")
    with torch.inference_mode():
        features = network(noise(3))
        assert features.shape == (3, *SHAPES[name]) and features.shape[2] == network.feature_dim
        torch.testing.assert_close(network(noise(3)[1:2]), features[1:2], atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("wrong", [torch.zeros(2, 3, 112, 112), torch.zeros(2, 3, 96, 96, dtype=torch.uint8)])
def test_other_pictures_are_refused(wrong):
    for network in (networks.SceneCNN(), networks.SceneViT()):
        with pytest.raises(ValueError, match="want uint8"):
            network(wrong)


def test_a_region_is_the_mean_of_the_cells_it_covers():
    network = networks.SceneCNN().eval()
    with torch.inference_mode():
        fine, coarse = network.maps(noise(2))
        box = torch.tensor([[0, 0, 112, 112], [32, 48, 64, 112]])
        first, second = network.regions(noise(2), [box, box[1:]])
    assert first.shape == (2, network.region_dim) and second.shape == (1, network.region_dim)
    torch.testing.assert_close(first[1, :96], fine[0, :, 6:14, 4:8].mean((1, 2)))
    torch.testing.assert_close(first[1, 96:240], coarse[0, :, 3:7, 2:4].mean((1, 2)))
    torch.testing.assert_close(first[0, 96:240], coarse[0].mean((1, 2)))
    torch.testing.assert_close(second[0, 240:], torch.tensor([32, 48, 64, 112, 32, 64]) / 112)


def test_a_cell_shows_the_thing_that_fills_most_of_it():
    owners = pretraining.cell_owners(scene())
    expected = np.full((7, 7), 2)
    expected[2:5, 0:3] = 0  # the house, rows 32 to 80
    expected[4:7, 2:4] = 1  # the boy before it; in the last row he fills a quarter of a cell
    np.testing.assert_array_equal(owners, expected)


def test_facts_are_the_scene_s_and_a_mirror_turns_them_round():
    facts = pretraining.facts_of([scene()])
    told = {pretraining.PAIRS[row] for row in facts.pairs[0].nonzero().flatten()}
    assert told == {("house", "red"), ("boy", "blue")}
    assert pretraining.PLACES[facts.place[0]] == "farm"
    cell = {name: value[0].view(7, 7) for name, value in vars(facts).items() if value.shape == (1, 49)}
    assert (
        pretraining.KINDS[cell["kind"][3, 0]] == "house"
        and pretraining.COLOURS[cell["colour"][3, 0]] == "red"
    )
    assert cell["size"][3, 0] == 1 and cell["facing"][3, 0] == pretraining.UNLABELLED
    assert pretraining.KINDS[cell["kind"][5, 3]] == "boy" and cell["facing"][5, 3] == 0
    assert cell["kind"][0, 0] == len(pretraining.KINDS) and cell["colour"][0, 0] == pretraining.UNLABELLED

    mirrored = pretraining.mirrored(facts)
    assert mirrored.facing[0].view(7, 7)[5, 3] == 1
    torch.testing.assert_close(mirrored.kind.view(7, 7), facts.kind.view(7, 7).flip(1))
    for name, value in vars(pretraining.mirrored(mirrored)).items():
        torch.testing.assert_close(value, getattr(facts, name))


@pytest.mark.parametrize("name", networks.NETWORKS)
def test_pretraining_is_the_same_twice_and_is_loaded_as_it_was(name, tmp_path, monkeypatch):
    monkeypatch.setattr(networks, "ASSETS", tmp_path)
    small = dict(pictures=8, epochs=1, held_out=10)
    before = torch.get_rng_state()
    first = pretraining.pretrain(name, **small)
    assert torch.equal(torch.get_rng_state(), before)  # the caller's chance is left alone
    weights = networks.weights_file(name).read_bytes()
    second = pretraining.pretrain(name, **small)
    assert networks.weights_file(name).read_bytes() == weights
    assert {**first, "seconds": 0} == {**second, "seconds": 0}
    assert all(0 <= first[fact] <= 100 for fact in first if fact != "seconds")
    networks.load_network(name)


@pytest.mark.parametrize("name", networks.NETWORKS)
def test_features_of_fresh_pictures_know_more_than_their_pixels(name):
    """150 pictures teach a line to read kinds from cells, 50 test it; the cell's pixels are the floor."""
    made = build.pictures("fresh", 200, seed=99)
    drawn = torch.from_numpy(np.array(build.pixels("fresh", 200, seed=99)))
    drawn = drawn.permute(0, 3, 1, 2)  # (200, 3, 112, 112)
    with torch.inference_mode():
        cells = networks.load_network(name)(drawn)  # (200, N, F)
    patches = torch.nn.functional.unfold(drawn.float(), 16, stride=16).mT  # (200, N, pixels)
    facts = pretraining.facts_of([picture.scene for picture in made])
    shown = facts.kind < len(pretraining.KINDS)  # (200, N): cells that show a thing
    train, kinds = int(shown[:150].sum()), facts.kind[shown].numpy()
    line = make_pipeline(StandardScaler(), RidgeClassifier(alpha=0.01 * train))
    learned, floor = (
        100 * line.fit(x[shown][:train], kinds[:train]).score(x[shown][train:], kinds[train:])
        for x in (cells.numpy(), patches.numpy())
    )
    assert learned > 75
    assert learned > floor + 40

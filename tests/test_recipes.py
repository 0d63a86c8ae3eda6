"""Recipes: plain data that can be changed by name, written down and read back, and built."""

import dataclasses
import json
from pathlib import Path

import pytest
import torch

from vsecore.data.vocabulary import Vocabulary
from vsecore.encoders import IMAGE_ENCODERS, TEXT_ENCODERS
from vsecore.encoders.reasoning import REASONERS
from vsecore.losses import LOSSES
from vsecore.pooling import GPO, POOLS
from vsecore.recipes import RECIPES, VARIANTS, FirstRound, Part, Recipe, get
from vsecore.similarity import SIMILARITIES

VOCABULARY = Vocabulary([f"w{i}" for i in range(10)])
SMALL = {"dim": 8, "text.encoder.word_dim": 4}


def test_override_reads_text_as_the_field_wants_it():
    changed = get("vsepp_grid_bert").override(
        {
            "name": "7",
            "dim": "64",
            "training.epochs": "3",
            "losses.triplet.margin": "1",
            "losses.triplet.siblings_are_negatives": "true",
            "losses.triplet.weight": "0.5",
            "text.encoder.weights": "/some/where",
            "training.schedule": "cosine",
            "image.pool": "kmax",
            "image.pool.k": "5",
        }
    )
    assert (changed.name, changed.dim, changed.training.epochs) == ("7", 64, 3)
    assert changed.losses == (Part("triplet", {"margin": 1, "siblings_are_negatives": True}, 0.5),)
    assert changed.text.encoder.options == {"weights": "/some/where"}
    assert changed.training.schedule == "cosine"
    assert changed.image.pool == Part("kmax", {"k": 5})
    changed = changed.override({"image.pool": "projected", "image.pool.pool": "max"})
    assert changed.image.pool == Part("projected", {"pool": "max"}), "an option may be called as a part is"


@pytest.mark.parametrize(
    ("changes", "names"),
    [
        ({"training.epoch": 3}, r"'training\.epoch' is unknown: did you mean training\.epochs"),
        ({"image..pool": "max"}, r"did you mean image\.pool"),
        ({"losses.adopt.margin": 3}, r"unknown.*losses\.triplet"),
        ({"first_round.texts": 3}, r"first_round\.texts' is unknown"),
        ({"training.epochs": "2.5"}, r"training\.epochs is 2\.5"),
        ({"image.element_drop": 1}, r"image\.element_drop is 1"),
        ({"image.pool": None}, r"image\.pool is missing"),
        ({"image.pool.weight": 2}, r"image\.pool\.weight is 2"),
        ({"losses": "hinge"}, "'hinge' is unknown: there are .*triplet"),
        ({"losses": ["triplet", "triplet"]}, "losses are .*twice"),
        ({"losses": [{"name": "triplet", "colour": "red"}]}, r"losses\[0\].*colour"),
        ({"losses.triplet.margin": "wide"}, "margin of loss 'triplet' is 'wide'"),
        ({"losses.triplet.margin": "NaN"}, "margin of loss 'triplet' is 'NaN'"),
        ({"losses.triplet.margin": -0.1}, "margin of loss 'triplet' is -0.1"),
        ({"losses.triplet.margin": float("nan")}, "JSON cannot express"),
        ({"losses": "offline_triplet", "training.batches": "pictures"}, r"training\.batches is 'pictures'"),
        ({"first_round": FirstRound()}, "first_round is set"),
    ],
)
def test_a_change_that_cannot_be_is_refused_by_name(changes, names):
    with pytest.raises(ValueError, match=names):
        get("vsepp_grid_gru").override(changes)


@pytest.mark.parametrize(
    ("name", "names"),
    [("vsepp", "'vsepp'.*vsepp_grid_gru"), ("2ad_grid_gru+goo", "'goo'.* gpo"), ("2ad_grid_gru+", "''")],
)
def test_an_unknown_recipe_or_variant_is_answered_with_similar_ones(name, names):
    with pytest.raises(ValueError, match=names):
        get(name)


def test_parts_are_given_by_name_written_out_or_as_they_are():
    plain = get("vsepp_grid_gru")
    for value in ("info_nce", ["info_nce"], '["info_nce"]', [{"name": "info_nce"}], Part("info_nce")):
        assert plain.override({"losses": value}).losses == (Part("info_nce"),)
    two = plain.override({"losses": ["triplet", {"name": "adopt", "weight": 0.1}]})
    assert [(part.name, part.weight) for part in two.losses] == [("triplet", 1.0), ("adopt", 0.1)]
    assert two.override({"losses.adopt.margin": 0.3}).losses[1].options == {"margin": 0.3}
    assert two.override({"losses.adopt": "info_nce"}).losses[1] == Part("info_nce", weight=0.1)
    assert plain.override({"losses.triplet.margin": 1}).hash() == (
        plain.override({"losses.triplet.margin": 1.0}).hash()
    )


def test_the_order_of_changes_does_not_matter():
    changes = {
        "text.encoder.weights": "minilm",
        "text.encoder": "bert",
        "image.pool.k": 3,
        "image.pool": "kmax",
    }
    one = get("vsepp_grid_gru").override(changes)
    assert one == get("vsepp_grid_gru").override(dict(reversed(changes.items())))
    assert one.text.encoder == Part("bert", {"weights": "minilm"})
    assert one.image.pool == Part("kmax", {"k": 3})
    assert one.override({"image.pool": "mean"}).image.pool.options == {}


def test_variants_follow_each_other_and_later_ones_win():
    both = get("2ad_region_bert+gpo+max_violation")
    assert both.name == "2ad_region_bert+gpo+max_violation"
    assert (both.image.pool, both.losses) == (Part("gpo"), (Part("triplet"),))
    assert (both.image.encoder.name, both.text.encoder.name) == ("region", "bert")
    assert both.hash() == get("2ad_region_bert+max_violation+gpo").hash()
    assert get("2ad_grid_gru+kmax+mean").image.pool.options == {}  # what the first pool took is gone
    assert get("2ad_grid_gru+share_50+share_25").hash() == get("2ad_grid_gru+share_25").hash()
    assert get("2ad_grid_gru+without_adopt+max_violation").losses == (Part("triplet"),)
    assert get("vsepp_grid_gru+gpo").text.pool == Part("gpo")
    even = get("2ad_grid_gru+without_margin", {"dim": 64, "losses.adopt.margin": 0.1})  # a scale comes first
    assert (even.losses[0].options["margin"], even.dim) == (0.0, 64)


def test_a_recipe_survives_json_and_what_is_missing_has_its_default():
    for recipe in (*RECIPES.values(), get("aoq_vsrn_grid+fine_tuned")):
        content = json.loads(json.dumps(recipe.to_dict()))
        assert Recipe.from_dict(content) == recipe
    del content["dim"]
    assert Recipe.from_dict(content).dim == 1024


def test_a_setting_or_an_option_that_is_added_leaves_older_digests_alone(monkeypatch):
    recipes = [get(name) for name in ("vsepp_grid_gru", "2ad_region_bert", "2ad_grid_gru+gpo")]
    before = [recipe.hash() for recipe in recipes]
    portable, patience = Recipe.portable, {}

    def with_more_settings(self):
        content = portable(self)
        content["training"] |= {"patience": patience.get(self.name, 3)}
        return content | {"rounds": 1}

    class GPOWithDropout(GPO):
        def __init__(self, hidden: int = 32, dropout: float = 0.0) -> None:
            super().__init__(hidden=hidden)

    monkeypatch.setattr(Recipe, "portable", with_more_settings)
    monkeypatch.setitem(POOLS._entries, "gpo", GPOWithDropout)
    assert [recipe.hash() for recipe in recipes] == before
    patience["vsepp_grid_gru"] = 4  # anything but the default counts
    assert recipes[0].hash() != before[0]
    assert recipes[2].override({"image.pool.dropout": 0.1}).hash() != before[2]


HASHES = dict(
    line.split() for line in (Path(__file__).parent / "recipe_hashes.txt").read_text("utf-8").splitlines()
)


def test_every_recipe_and_variant_is_the_one_that_records_name():
    """A number that is changed in a recipe would part new runs from their records."""
    assert {name.split("+")[0] for name in HASHES} == set(RECIPES)
    assert {name.split("+")[-1] for name in HASHES if "+" in name} == set(VARIANTS)
    assert {name: get(name).hash() for name in HASHES} == HASHES


def test_the_defaults_stand_still_for_digests_are_taken_against_them():
    """Digests leave defaults out: what is new belongs into a recipe."""
    content = Recipe(name="", source="").to_dict() | {"first_round": dataclasses.asdict(FirstRound())}
    options = {
        f"{registry.kind} {name}": {option: repr(of.default) for option, of in registry.options(name).items()}
        for registry in (IMAGE_ENCODERS, TEXT_ENCODERS, REASONERS, POOLS, SIMILARITIES, LOSSES)
        for name in registry
    }
    lines = [f"{name} {json.dumps(of, sort_keys=True)}\n" for name, of in (content | options).items()]
    path = Path(__file__).parent / "recipe_defaults.txt"
    assert "".join(lines) == path.read_text("utf-8"), (
        f"if a part is new, and only then: add its line to {path.name}"
    )


def test_only_what_differs_from_the_defaults_counts_in_the_hash():
    recipe = get("2ad_grid_gru")
    same = {"losses.adopt.temperature": "0.05", "training.epochs": 25, "image.pool": "adpool"}
    assert recipe.override(same).hash() == recipe.hash()
    assert dataclasses.replace(recipe, name="mine", source="my head").hash() == recipe.hash()
    changes = (
        {"dim": 512},
        {"losses.adopt.weight": 2},
        {"image.pool.per_dimension": True},
        {"losses": "adopt"},
    )
    assert len({recipe.override(change).hash() for change in changes}) == 4
    assert recipe.override({"losses": "adopt"}).hash() == recipe.hash()


def test_where_weights_lie_is_not_what_was_run(tmp_path):
    hashes, contents = set(), []
    for place in ("here", "there"):
        folder = tmp_path / place / "minilm"
        folder.mkdir(parents=True)
        recipe = get("vsepp_grid_bert").override({"text.encoder.weights": str(folder)})
        hashes.add(recipe.hash())
        contents.append(recipe.portable())
    assert len(hashes) == 1
    assert contents[0] == contents[1]
    assert contents[0]["text"]["encoder"]["options"] == {"weights": "minilm"}
    assert get("vsepp_grid_gru").portable() == get("vsepp_grid_gru").to_dict()


def test_from_one_seed_the_pool_makes_no_difference_to_the_encoders():
    weights = []
    for pool in ("+mean", "+gpo", ""):  # without weights, with some, with others
        torch.manual_seed(3)
        model = get(f"2ad_grid_gru{pool}").override({"dim": 8}).build(5, VOCABULARY)
        encoders = (model.image_encoder, model.text_encoder)
        weights.append(torch.cat([x.flatten() for part in encoders for x in part.parameters()]))
    assert torch.equal(weights[0], weights[1]) and torch.equal(weights[0], weights[2])


def test_without_offline_negatives_there_is_the_first_round_alone():
    for name in ("aoq_vsepp_grid_gru", "aoq_vsrn_region"):
        assert get(f"{name}+online").hash() == get(name).of_first_round().hash()
    assert get("aoq_vsrn_grid").of_first_round().name == "aoq_vsrn_grid, first round"
    with pytest.raises(ValueError, match="'vsepp_grid_gru' has no first round"):
        get("vsepp_grid_gru").of_first_round()


def test_the_first_round_of_vsrn_on_coco_is_vsrn_itself():
    longer = {"training.epochs": 30, "training.decay_epochs": 15}
    assert get("aoq_vsrn_region").of_first_round().override(longer).hash() == get("vsrn_region").hash()


def test_the_first_round_is_changed_by_name():
    recipe = get("aoq_vsrn_grid")
    changed = recipe.override(
        {
            "first_round.texts": "200",
            "first_round.keeps_weights": "true",
            "first_round.losses.triplet.margin": "0.1",
            "losses.captioning.hidden": 64,
        }
    )
    assert changed.first_round == FirstRound(
        (Part("triplet", {"margin": 0.1}), Part("captioning", {"hidden": 64})), 200, 60, True
    )
    assert changed.losses == (recipe.losses[0], Part("captioning", {"hidden": 64})), "in both rounds"
    alone = recipe.override({"first_round.losses.captioning.hidden": 64})
    assert alone.losses == recipe.losses and alone.first_round != recipe.first_round
    assert recipe.override({"first_round.losses": "adopt"}).first_round.losses == (Part("adopt"),)
    assert recipe.override({"first_round": FirstRound(pictures=3)}).first_round == FirstRound(pictures=3)
    assert recipe.override({"first_round": "none", "losses": "triplet"}).first_round is None
    swapped = recipe.override(
        {"losses.captioning.weight": 0.5, "losses.adaptive_offline_quintuplet": "adopt", "first_round": None}
    )
    assert swapped.losses == (Part("adopt"), Part("captioning", weight=0.5))

"""Recipes: plain data that can be changed by name, written down and read back, and built."""

import dataclasses
import inspect
import json
import subprocess
import sys
from types import SimpleNamespace

import pytest
import torch
from torch import nn

from vsecore.data.vocabulary import Vocabulary
from vsecore.embedding import Embedding
from vsecore.encoders import IMAGE_ENCODERS, TEXT_ENCODERS, BiGRUEncoder
from vsecore.losses import LOSSES, Step, adopt, info_nce, triplet
from vsecore.pooling import (
    GPO,
    POOLS,
    AdaPool,
    AdPool,
    GCNPool,
    KMaxPool,
    LIPPool,
    MaxPool,
    MeanPool,
    SelfAttentionPool,
    Seq2SeqPool,
    SoftPool,
)
from vsecore.recipes import RECIPES, VARIANTS, FirstRound, Part, Recipe, aoq, get, settings, two_ad
from vsecore.similarity import SIMILARITIES, Cosine, Similarity

VOCABULARY = Vocabulary([f"w{i}" for i in range(10)])
SMALL = {"dim": 8, "text.encoder.word_dim": 4}


def loss_of(part, scores, positives, epoch=0):
    """What a recipe's loss says of a batch of scores."""
    rows = Embedding(torch.zeros(len(scores), 2))
    step = Step(scores, positives, rows, rows, (), None, None, Cosine(), epoch)
    return LOSSES.build(part.name, part.options)(step)


def test_the_six_recipes_of_vsepp_carry_its_numbers():
    names = {f"vsepp_{feature}_{text}" for feature in ("grid", "region", "patch") for text in ("gru", "bert")}
    assert names <= RECIPES.keys()
    for name in names:
        recipe = get(name)
        assert recipe.name == name
        assert "Faghri" in recipe.source
        training = recipe.training
        assert (recipe.dim, training.batch_size, training.clip_norm) == (1024, 128, 2.0)
        assert (training.epochs, training.learning_rate, training.decay_epochs) == (30, 2e-4, 15)
        (loss,) = recipe.losses
        triplet_loss = LOSSES.build(loss.name, loss.options)
        assert (triplet_loss.margin, triplet_loss.warmup_epochs) == (0.2, 1)


def test_recipes_from_pixels_name_the_weights_that_they_begin_with():
    """Of a bare architecture timm chooses the weights, which may be newer than the paper."""
    networks = {name: get(name).image.encoder.options["network"] for name in RECIPES if "_pixels_" in name}
    assert len(networks) == 6 and all("." in network for network in networks.values())
    assert networks["vsepp_pixels_gru"] == networks["dive_pixels_gru"] == "resnet152.tv_in1k"


def test_the_six_recipes_of_2ad_carry_its_numbers():
    for feature in ("grid", "region", "patch"):
        for text in ("gru", "bert"):
            recipe = get(f"2ad_{feature}_{text}")
            assert (recipe.image.encoder.name, recipe.text.encoder.name) == (feature, text)
            assert "Zhang" in recipe.source
            # Section 4.2.
            training = recipe.training
            assert (recipe.dim, training.batch_size, training.epochs) == (1024, 128, 25)
            assert (training.learning_rate, training.schedule) == (5e-4, "step")
            assert (training.decay_epochs, training.decay_factor) == (15, 0.1)
            # Appendix B.
            (part,) = recipe.losses
            loss = LOSSES.build(part.name, part.options)
            assert (part.name, part.weight, loss.temperature, loss.margin) == ("adopt", 1, 0.05, 0.2)
            assert training.pretrained_factor == 0.1
            wanted = {} if text == "gru" else {"weights": "bert-base-uncased"}
            assert recipe.text.encoder.options == wanted
            # Sections 3.2 and 3.3: the balance is learned, and the rule says how many negatives.
            assert recipe.image.pool == recipe.text.pool == Part("adpool")
            assert (loss.rule, loss.negatives) == ("released", None)
            assert loss.positive_in_denominator


def test_an_unknown_recipe_is_answered_with_the_known_ones():
    with pytest.raises(ValueError, match=r"'vsepp'.*vsepp_grid_gru"):
        get("vsepp")


def test_override_reads_text_as_the_field_wants_it():
    changed = get("vsepp_grid_bert").override(
        {
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
    assert (changed.dim, changed.training.epochs) == (64, 3)
    assert changed.losses == (Part("triplet", {"margin": 1, "siblings_are_negatives": True}, 0.5),)
    assert changed.text.encoder.options == {"weights": "/some/where"}
    assert changed.training.schedule == "cosine"
    assert changed.image.pool == Part("kmax", {"k": 5})


def test_parts_are_given_by_name_written_out_or_as_they_are():
    plain = get("vsepp_grid_gru")
    for value in ("info_nce", ["info_nce"], '["info_nce"]', [{"name": "info_nce"}], Part("info_nce")):
        assert plain.override({"losses": value}).losses == (Part("info_nce"),)
    two = plain.override({"losses": ["triplet", {"name": "adopt", "weight": 0.1}]})
    assert [(part.name, part.weight) for part in two.losses] == [("triplet", 1.0), ("adopt", 0.1)]
    assert two.override({"losses.adopt.margin": 0.3}).losses[1].options == {"margin": 0.3}
    with pytest.raises(
        ValueError, match=r"image\.pool is missing: similarity 'cosine' compares pooled vectors"
    ):
        plain.override({"image.pool": None})
    with pytest.raises(ValueError, match=r"image\.pool\.weight is 2\.0: only losses have weights"):
        plain.override({"image.pool.weight": 2})
    assert plain.override({"losses.triplet.margin": 1}).hash() == (
        plain.override({"losses.triplet.margin": 1.0}).hash()
    )


def test_override_leaves_the_original_alone():
    recipe = get("vsepp_grid_gru")
    recipe.override({"image.pool": "kmax", "image.pool.k": 5, "losses.triplet.margin": 0.1})
    assert (recipe.image.pool, recipe.losses) == (Part("mean"), (Part("triplet"),))
    with pytest.raises(dataclasses.FrozenInstanceError):
        recipe.dim = 5


@pytest.mark.parametrize("field", ["training.epoch", "epochs", "training", "training.epochs.x", "image", ""])
def test_an_unknown_field_is_answered_with_the_known_ones(field):
    with pytest.raises(ValueError, match=r"unknown.*training\.epochs.*"):
        get("vsepp_grid_gru").override({field: 3})


@pytest.mark.parametrize(
    ("field", "near"),
    [
        ("image..pool", "image.pool"),
        ("training.batch", "training.batches or training.batch_size"),
        ("learning_rte", "training.learning_rate"),
        ("training.epoch", "training.epochs"),
    ],
)
def test_a_misspelt_field_is_answered_with_those_that_are_spelled_nearly_so(field, near):
    with pytest.raises(ValueError, match=rf"setting '{field}' is unknown: did you mean {near}\?$"):
        get("vsepp_grid_gru").override({field: 3})


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("training.epochs", "three", "training.epochs is 'three': wanted a whole number"),
        ("training.epochs", "2.5", "training.epochs is 2.5: wanted a whole number"),
        ("training.epochs", True, "wanted a whole number"),
        ("training.epochs", "0", "training.epochs is 0: wanted at least 1"),
        ("losses.triplet.margin", "wide", "option margin of loss 'triplet' is 'wide': wanted a number"),
        ("losses.triplet.margin", "NaN", "margin of loss 'triplet' is 'NaN': wanted a number"),
        ("losses.triplet.margin", -0.1, "option margin of loss 'triplet' is -0.1: wanted at least 0"),
        (
            "losses",
            "hinge",
            "loss 'hinge' is unknown: there are adaptive_offline_quintuplet, adopt, .*, triplet",
        ),
        ("losses.triplet.siblings_are_negatives", "yes", "is 'yes': wanted true or false"),
        ("image.element_drop", 1, "image.element_drop is 1: wanted less than 1"),
        ("training.learning_rate", 0, "training.learning_rate is 0: wanted more than 0"),
        ("image.pool", 5, "image.pool is 5: wanted the name of a part"),
        ("text.encoder.weights", 5, "option weights of caption encoder 'bert' is 5: wanted text"),
    ],
)
def test_a_value_that_does_not_fit_is_refused_by_name(field, value, message):
    with pytest.raises(ValueError, match=message):
        get("vsepp_grid_bert").override({field: value})


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


@pytest.mark.parametrize("variant", two_ad.VARIANTS)  # a change of scale touches more than one part
def test_a_variant_changes_what_it_names_and_nothing_else(variant):
    scale = {"training.learning_rate": 2e-3}
    plain, changed = get("2ad_grid_gru", scale), get(f"2ad_grid_gru+{variant}", scale)
    assert changed.name == f"2ad_grid_gru+{variant}"
    assert changed.hash() != plain.hash()
    assert changed == dataclasses.replace(plain.override(VARIANTS[variant]), name=changed.name)
    places = {field.partition(".")[0] for field in VARIANTS[variant]}
    assert (changed.losses == plain.losses) is ("losses" not in places)  # pools, losses or training,
    assert (changed.training == plain.training) is ("training" not in places)  # never two of them
    assert len(places - {"text"}) == 1
    model = changed.override(SMALL).build(6, VOCABULARY)
    assert model.encode_pictures(torch.randn(2, 4, 6)).vectors.shape == (2, 8)


@pytest.mark.parametrize(
    ("variant", "picture", "caption"),
    [
        ("mean", MeanPool, MeanPool),
        ("max", MaxPool, MaxPool),
        ("kmax", KMaxPool, KMaxPool),
        ("manual", KMaxPool, MeanPool),  # as the paper's appendix A.1 chooses them
        ("soft", SoftPool, SoftPool),
        ("ada", AdaPool, AdaPool),
        ("lip", LIPPool, LIPPool),
        ("seq2seq", Seq2SeqPool, Seq2SeqPool),
        ("gcn", GCNPool, GCNPool),
        ("self_attention", SelfAttentionPool, SelfAttentionPool),
        ("gpo", GPO, GPO),
        ("share_50", AdPool, AdPool),
    ],
)
def test_a_variant_puts_its_pool_into_both_towers(variant, picture, caption):
    model = get(f"2ad_grid_gru+{variant}").override(SMALL).build(6, VOCABULARY)
    assert (type(model.image_pool), type(model.text_pool)) == (picture, caption)
    for pool in (model.image_pool, model.text_pool):
        assert getattr(pool, "k", 5) == 5  # wherever the largest are averaged, they are five
        if variant.startswith("share"):
            assert pool.token_share == 0.5


def test_variants_that_take_a_part_away_leave_the_other():
    shares = {"without_token": 0.0, "without_embedding": 1.0, "share_25": 0.25, "share_75": 0.75}
    for variant, share in (shares | {"share_random": "random"}).items():
        recipe = get(f"2ad_grid_gru+{variant}")
        assert recipe.image.pool == recipe.text.pool == Part("adpool", {"token_share": share})


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


def test_a_scale_comes_before_the_variants():
    scale = {"training.learning_rate": 2e-3, "dim": 64}
    assert get("2ad_grid_gru+mean", scale).training.learning_rate == 2e-3
    even = get("2ad_grid_gru+without_margin", scale | {"losses.adopt.margin": 0.1})
    assert (even.losses[0].options["margin"], even.dim) == (0.0, 64)


@pytest.mark.parametrize(
    "name", ["2ad_grid_gru+goo", "2ad_grid_gru+gpo+goo", "2ad_grid_gru+", "2ad_grid_gru+ gpo"]
)
def test_an_unknown_variant_is_answered_with_the_known_ones(name):
    with pytest.raises(ValueError, match=r"variant '(goo|| gpo)' is unknown: there are ada, .*without_adopt"):
        get(name)
    with pytest.raises(ValueError, match=r"recipe '2ad' is unknown.*2ad_grid_gru"):
        get("2ad+gpo")


@pytest.mark.parametrize("name", RECIPES)
def test_a_recipe_survives_json(name):
    recipe = get(name).override({"image.pool": "kmax", "image.pool.k": 3})
    assert Recipe.from_dict(json.loads(json.dumps(recipe.to_dict()))) == recipe


def test_a_written_recipe_with_odd_fields_is_refused():
    content = get("vsepp_grid_gru").to_dict()
    content["training"]["colour"] = "red"
    with pytest.raises(ValueError, match='recipe: training has the unknown field "colour"'):
        Recipe.from_dict(content)
    del content["training"]["colour"], content["dim"]
    assert Recipe.from_dict(content).dim == 1024  # what is missing has its default
    content["dim"] = "wide"
    with pytest.raises(ValueError, match="dim is 'wide': wanted a whole number"):
        Recipe.from_dict(content)
    content["dim"], content["losses"] = 8, 5
    with pytest.raises(ValueError, match="losses is 5"):
        Recipe.from_dict(content)
    content["losses"] = [{"name": "triplet", "colour": "red"}]
    with pytest.raises(ValueError, match=r'losses\[0\] has the unknown field "colour"'):
        Recipe.from_dict(content)


def test_the_hash_changes_with_every_setting_and_with_nothing_else():
    recipe = get("vsepp_grid_gru")
    others = [
        recipe.override({"losses.triplet.margin": 0.1}),
        recipe.override({"losses.triplet.weight": 0.1}),
        recipe.override({"training.epochs": 3}),
        recipe.override({"image.pool": "kmax", "image.pool.k": 3}),
        recipe.override({"image.pool": "kmax", "image.pool.k": 4}),
        get("vsepp_grid_bert"),
    ]
    assert len({other.hash() for other in [recipe, *others]}) == 7
    assert dataclasses.replace(recipe, name="mine", source="my head").hash() == recipe.hash()
    assert recipe.override({"losses.triplet.margin": "0.2"}).hash() == recipe.hash()


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


def test_the_defaults_stand_still_for_digests_are_taken_against_them():
    """Another default would give new runs the digests of older ones: what is new belongs into a recipe."""
    found = Recipe(name="", source="").to_dict()
    mean = {"name": "mean", "options": {}, "weight": 1.0}
    assert found["dim"] == 1024
    towers = {"reasoner": None, "pool": mean}
    picture = {"element_drop": 0.0, "boxes": False}
    assert found["image"] == {"encoder": mean | {"name": "grid"}, **towers, **picture}
    assert found["text"] == {"encoder": mean | {"name": "gru"}, **towers, "word_drop": 0.0}
    assert found["shared"] is None
    assert found["first_round"] is None
    assert FirstRound() == FirstRound((Part("triplet"),), texts=300, pictures=60, keeps_weights=False)
    assert found["similarity"] == mean | {"name": "cosine"}
    assert found["losses"] == [mean | {"name": "triplet"}]
    assert found["training"] == {
        "epochs": 30,
        "batch_size": 128,
        "batches": "pairs",
        "optimizer": "Adam",
        "learning_rate": 2e-4,
        "pretrained_factor": 0.1,
        "picture_factor": None,
        "frozen_epochs": 0,
        "set_factor": 1.0,
        "weight_decay": 0.0,
        "warmup_steps": 0,
        "schedule": "step",
        "decay_epochs": 15,
        "decay_factor": 0.1,
        "clip_norm": 2.0,
        "embed_at_a_time": None,
        "snapshots": 0,
    }
    options = {
        (registry.kind, name): {option: of.default for option, of in registry._options(name).items()}
        for registry in (IMAGE_ENCODERS, TEXT_ENCODERS, POOLS, SIMILARITIES, LOSSES)
        for name in registry
        if registry._options(name)
    }
    hinges = {"margin": 0.2, "offline_margin": 0.0, "warmup_epochs": 1, "online": True}
    assert options == {
        ("picture encoder", "grid"): {"drop": 0.0},
        ("picture encoder", "patch"): {"drop": 0.0},
        ("picture encoder", "pixels"): {
            "network": "resnet50",
            "weights": "",
            "picture_size": 224,
            "smallest_crop": 0.08,
            "flip": True,
            "drop": 0.0,
        },
        **{
            ("picture encoder", kind): {
                "weights": inspect.Parameter.empty,
                "smallest_crop": 0.9,
                "flip": False,
            }
            for kind in ("clip", "siglip")
        },
        **{("caption encoder", kind): {"weights": inspect.Parameter.empty} for kind in ("clip", "siglip")},
        ("caption encoder", "gru"): {"word_dim": 300, "minimum_count": 4},
        ("caption encoder", "forward_gru"): {"word_dim": 300, "minimum_count": 4},
        ("caption encoder", "window"): {
            "word_dim": 300,
            "window": 3,
            "hidden": 1024,
            "drop": 0.2,
            "minimum_count": 4,
        },
        ("caption encoder", "transformer"): {
            "word_dim": 300,
            "layers": 2,
            "heads": 8,
            "hidden": None,
            "longest": 48,
            "positions": True,
            "left_padding": True,
            "drop": 0.1,
            "printed_residual": False,
            "minimum_count": 4,
        },
        ("caption encoder", "bert"): {"weights": inspect.Parameter.empty},
        ("pool", "kmax"): {"k": inspect.Parameter.empty},
        ("pool", "generalized_mean"): {"power": 3.0},
        ("pool", "attention"): {"heads": 8},
        ("pool", "gcn"): {"layers": 4},
        ("pool", "gpo"): {"position_dim": 32, "hidden": 32, "temperature": 0.1},
        ("pool", "adpool"): {"per_dimension": False, "token_share": None},
        ("pool", "slots"): {
            "slots": 4,
            "iterations": 4,
            "hidden": 1024,
            "heads": 1,
            "positions": "none",
            "softmax_over": "slots",
            "learned_slots": True,
            "residual": True,
            "add_global": True,
            "drop": 0.0,
            "global_pool": "mean",
            "expansion": 4,
        },
        ("pool", "pie_net"): {"slots": 4, "hidden": None, "global_pool": "mean"},
        ("pool", "transformer_set"): {
            "slots": 4,
            "layers": 4,
            "heads": 8,
            "hidden": None,
            "global_pool": "mean",
        },
        ("pool", "gaussian"): {"hidden": None, "global_pool": "mean"},
        ("pool", "projected"): {"pool": "mean", "batch_norm": False},
        ("similarity", "cross_attention"): {
            "direction": "t2i",
            "smooth": 9.0,
            "aggregate": "lse",
            "lse": 6.0,
            "negative_slope": 0.1,
        },
        ("similarity", "focal_attention"): {"focus": "equal", "smooth": 20.0},
        ("similarity", "match_probability"): {"scale": 1.0, "shift": 0.0, "learned": True, "reduce": "mean"},
        ("similarity", "smooth_chamfer"): {"alpha": 16.0},
        ("similarity", "max_sim"): {"direction": "t2i", "reduce": "sum"},
        ("loss", "triplet"): {
            "margin": 0.2,
            "warmup_epochs": 1,
            "siblings_are_negatives": False,
            "reduction": "sum",
        },
        ("loss", "info_nce"): {"temperature": 0.05, "siblings_are_negatives": False},
        ("loss", "adopt"): {
            "temperature": 0.05,
            "rule": "released",
            "margin": 0.2,
            "negatives": None,
            "positive_in_denominator": True,
            "siblings_are_negatives": False,
        },
        ("loss", "scaled_info_nce"): {"scale": None, "most": 100.0, "siblings_are_negatives": False},
        ("loss", "sigmoid"): {"scale": None, "bias": None, "siblings_are_negatives": False},
        ("loss", "captioning"): {"hidden": 512, "word_dim": 300, "drop": 0.2},
        ("loss", "node_pooling"): {"pools": 8, "margin": 0.2, "shared": True},
        ("loss", "node_cross_attention"): {"margin": 0.2},
        ("loss", "mmd"): {"gamma": 0.5, "squared": False},
        ("loss", "soft_contrastive"): {"samples": 7, "scale": 30.0, "shift": 30.0, "kl_weight": 1e-5},
        ("loss", "latent_target"): {"hidden": None, "bound": None, "projected": True},
        ("loss", "input_target"): {"word_dim": 300, "bound": None, "projected": True},
        ("loss", "offline_triplet"): hinges,
        ("loss", "offline_quintuplet"): hinges | {"online_quintuplet": False},
        ("loss", "adaptive_offline_quintuplet"): hinges
        | {"beta": 1.5, "alpha": 0.3, "weights": "gradient", "against": "offline"},
    }


def test_every_setting_counts_in_the_hash():
    recipe = get("2ad_grid_gru")
    changes = {
        "dim": 512,
        "image.encoder": "region",
        "image.pool": "gpo",
        "image.pool.per_dimension": True,
        "image.element_drop": 0.1,
        "text.encoder.word_dim": 50,
        "text.encoder.minimum_count": 1,
        "text.word_drop": 0.1,
        "losses": "info_nce",
        "losses.adopt.margin": 0.0,
        "losses.adopt.temperature": 0.1,
        "losses.adopt.rule": "printed",
        "losses.adopt.negatives": 4,
        "losses.adopt.positive_in_denominator": False,
        "losses.adopt.siblings_are_negatives": True,
        "training.epochs": 24,
        "training.optimizer": "Adam",
        "training.weight_decay": 0.0,
        "training.schedule": "cosine",
        "training.decay_factor": 0.2,
    }
    digests = {recipe.override({field: value}).hash() for field, value in changes.items()}
    assert len(digests | {recipe.hash()}) == len(changes) + 1
    same = {"losses.adopt.temperature": "0.05", "training.epochs": 25, "image.pool": "adpool"}
    assert recipe.override(same).hash() == recipe.hash()
    assert set(settings()) >= {"dim", "image.pool", "losses", "training.epochs"}


def test_the_hash_is_the_same_in_another_process():
    command = "from vsecore.recipes import get; print(get('vsepp_grid_gru').hash())"
    out = subprocess.run([sys.executable, "-c", command], capture_output=True, text=True, check=True).stdout
    assert out.strip() == get("vsepp_grid_gru").hash()


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


@pytest.mark.parametrize("feature", ["grid", "region", "patch"])
def test_build_makes_what_the_recipe_says(feature):
    changes = {"dim": 6, "text.encoder.word_dim": 5, "text.pool": "kmax", "text.pool.k": 2}
    model = get(f"vsepp_{feature}_gru").override(changes).build(7, VOCABULARY)
    assert type(model.image_encoder) is IMAGE_ENCODERS[feature]
    assert type(model.text_encoder) is BiGRUEncoder
    assert model.text_encoder.embedding.weight.shape == (len(VOCABULARY), 5)
    assert isinstance(model.text_pool, KMaxPool)
    assert model.encode_pictures(torch.randn(2, 4, 7)).vectors.shape == (2, 6)


def test_from_one_seed_the_pool_makes_no_difference_to_the_encoders():
    weights = []
    for pool in ("+mean", "+gpo", ""):  # without weights, with some, with others
        torch.manual_seed(3)
        model = get(f"2ad_grid_gru{pool}").override({"dim": 8}).build(5, VOCABULARY)
        encoders = (model.image_encoder, model.text_encoder)
        weights.append(torch.cat([x.flatten() for part in encoders for x in part.parameters()]))
    assert torch.equal(weights[0], weights[1]) and torch.equal(weights[0], weights[2])


def test_vectors_that_do_not_fit_say_which_setting_would():
    recipe = get("vsepp_grid_gru").override({"dim": 6})
    with pytest.raises(ValueError, match=r"got \(14, 50\): set text\.encoder\.word_dim"):
        recipe.build(7, VOCABULARY, torch.zeros(len(VOCABULARY), 50))
    with pytest.raises(ValueError, match="leave them out"):
        get("vsepp_grid_bert").build(7, VOCABULARY, torch.zeros(len(VOCABULARY), 300))


@pytest.mark.parametrize("tower", ["image", "text"])
@pytest.mark.parametrize(
    ("pool", "options", "message"),
    [
        ("kmaks", {}, "unknown: there are ada, adpool, .* kmax, .* soft"),
        ("kmax", {}, "needs the option 'k'"),
        ("kmax", {"k": 0}, "at least 1"),
        ("mean", {"k": 5}, "takes no options"),
        ("mean", {"dim": 5}, "has no option 'dim'"),
        ("adpool", {"token_share": 2}, "option token_share"),
        ("adpool", {"token_share": "much"}, "option token_share of pool 'adpool' is 'much'"),
        ("gpo", {"hidden": 1.5}, "option hidden of pool 'gpo' is 1.5: wanted a whole number"),
    ],
)
def test_a_pool_that_cannot_be_built_is_refused_at_once(tower, pool, options, message):
    with pytest.raises(ValueError, match=rf"{tower}\.pool: .*{message}"):
        get("vsepp_grid_gru").override({f"{tower}.pool": {"name": pool, "options": options}})


@pytest.mark.parametrize("name", POOLS)
def test_every_pool_can_be_chosen_for_either_tower(name):
    part = Part(name, {"k": 2} if name == "kmax" else {})
    changes = {"image.pool": part, "text.pool": part, "dim": 8, "text.encoder.word_dim": 5}
    recipe = get("vsepp_grid_gru").override(changes)
    model = Recipe.from_dict(json.loads(json.dumps(recipe.to_dict()))).build(7, VOCABULARY)
    assert type(model.image_pool) is type(model.text_pool) is POOLS[name]
    shape = (2, 4, 8) if name in ("slots", "pie_net", "transformer_set") else (2, 8)
    assert model.encode_pictures(torch.randn(2, 4, 7)).vectors.shape == shape
    tokens, mask = torch.tensor([[4, 5, 6], [7, 0, 0]]), torch.tensor([[True] * 3, [True, False, False]])
    assert model.encode_captions(tokens, mask).vectors.shape == shape


def test_to_make_a_recipe_draws_no_random_number(monkeypatch):
    class PoolWithWeights(torch.nn.Linear):
        def __init__(self, dim: int) -> None:
            super().__init__(dim, dim)

    monkeypatch.setitem(POOLS._entries, "weighted", PoolWithWeights)
    before = torch.get_rng_state()
    get("vsepp_grid_gru").override({"image.pool": "weighted"})
    get("2ad_grid_gru+share_random")
    assert torch.equal(torch.get_rng_state(), before)


def test_missing_weights_say_what_to_do(tmp_path, monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    recipe = get("vsepp_grid_bert").override({"text.encoder.weights": str(tmp_path / "nowhere")})
    for step in (lambda: recipe.tokenizer(["a dog"]), lambda: recipe.build(7, VOCABULARY)):
        with pytest.raises(FileNotFoundError, match=r"nowhere.*folder"):
            step()


def test_the_vocabulary_is_counted_as_the_recipe_says():
    captions = ["a dog", "a dog", "a cat"]
    recipe = get("vsepp_grid_gru").override({"text.encoder.minimum_count": 2})
    assert set(recipe.tokenizer(captions).words) == {"a", "dog"}


def test_the_first_epochs_learn_from_all_negatives_then_from_the_hardest():
    scores, pairs = torch.tensor([[0.5, 0.4, 0.45], [0.0, 0.5, 0.0], [0.0, 0.0, 0.5]]), torch.eye(3).bool()
    (loss,) = get("vsepp_grid_gru").losses
    # Row 0 breaks the margin of 0.2 twice, columns 1 and 2 once each.
    torch.testing.assert_close(loss_of(loss, scores, pairs, epoch=0), torch.tensor(0.1 + 0.15 + 0.1 + 0.15))
    torch.testing.assert_close(loss_of(loss, scores, pairs, epoch=1), torch.tensor(0.15 + 0.1 + 0.15))


@pytest.mark.parametrize("name", ["triplet", "info_nce", "adopt"])
def test_siblings_are_negatives_only_if_the_recipe_says_so(name):
    scores, siblings = torch.full((2, 2), 0.5), torch.ones(2, 2, dtype=torch.bool)
    strict = Part(name, {"siblings_are_negatives": True})
    assert loss_of(Part(name), scores, siblings, epoch=1) == 0
    assert loss_of(strict, scores, siblings, epoch=1) > 0
    with pytest.raises(ValueError, match=r"wanted one caption for each picture.*training\.batches"):
        loss_of(strict, torch.ones(2, 4), torch.ones(2, 4, dtype=torch.bool))


def test_adopt_hears_every_option():
    scores = torch.rand(8, 8, generator=torch.Generator().manual_seed(0)) * 0.3
    pairs = torch.eye(8, dtype=torch.bool)
    released = loss_of(Part("adopt"), scores, pairs)
    torch.testing.assert_close(released, adopt(scores, margin=0.2))
    changed = {
        "rule": ("printed", adopt(scores, rule="printed", margin=0.2)),
        "positive_in_denominator": (False, adopt(scores, positive_in_denominator=False, margin=0.2)),
        "margin": (0.0, adopt(scores)),
        "temperature": (0.5, adopt(scores, temperature=0.5, margin=0.2)),
        "negatives": (1, adopt(scores, margin=0.2, negatives=1)),
    }
    for option, (value, expected) in changed.items():
        loss = loss_of(Part("adopt", {option: value}), scores, pairs)
        torch.testing.assert_close(loss, expected)
        assert loss != released
    recipe = get("2ad_grid_gru")
    with pytest.raises(
        ValueError, match=r"option rule of loss 'adopt' is 'guessed': wanted one of 'released' or 'printed'"
    ):
        recipe.override({"losses.adopt.rule": "guessed"})
    with pytest.raises(ValueError, match=r"option negatives of loss 'adopt' is 0"):
        recipe.override({"losses.adopt.negatives": 0})


def test_the_variants_of_the_loss_are_what_they_say():
    generator = torch.Generator().manual_seed(0)
    scores, pairs = torch.rand(150, 150, generator=generator) * 0.3, torch.eye(150, dtype=torch.bool)

    def variant(name, epoch=0):
        (loss,) = get(f"2ad_grid_gru+{name}").losses
        return loss_of(loss, scores, pairs, epoch)

    for k in (1, 4, 16, 64, 127):
        torch.testing.assert_close(variant(f"negatives_{k}"), adopt(scores, margin=0.2, negatives=k))
    torch.testing.assert_close(variant("info_nce"), info_nce(scores))
    torch.testing.assert_close(variant("printed_rule"), adopt(scores, rule="printed", margin=0.2))
    torch.testing.assert_close(
        variant("as_printed"), adopt(scores, rule="printed", positive_in_denominator=False)
    )
    torch.testing.assert_close(variant("without_margin"), adopt(scores))
    hardest, every = triplet(scores, hardest=True), triplet(scores, hardest=False)
    torch.testing.assert_close(variant("without_adopt", epoch=0), hardest)
    torch.testing.assert_close(variant("max_violation", epoch=0), every)
    torch.testing.assert_close(variant("max_violation", epoch=1), hardest)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"dim": 2**40}, "dim is 1099511627776: wanted at most 65536"),
        ({"text.encoder.word_dim": 10**9}, "option word_dim is 1000000000: wanted at most 65536"),
        (
            {"image.pool": "gcn", "image.pool.layers": 10**9},
            "option layers is 1000000000: wanted at most 256",
        ),
        ({"training.epochs": 10**12}, "training.epochs is 1000000000000: wanted at most"),
        ({"training.batch_size": 1}, "training.batch_size is 1: wanted at least 2"),
        ({"losses.triplet.margin": float("nan")}, "something that JSON cannot express"),
        ({"losses.triplet.margin": "Infinity"}, "'Infinity': wanted a number"),
        ({"losses.triplet.margin": "1e999"}, "'1e999': wanted a number"),
        ({"image.pool": "[" * 100_000}, "is unknown: there are"),
        ({"image.pool": "\udcff"}, "not Unicode"),
        ({"image.pool": '{"options": {}}'}, 'image.pool lacks the field "name"'),
    ],
)
def test_nonsense_and_absurd_sizes_are_refused_in_a_short_sentence(changes, message):
    with pytest.raises(ValueError, match=message) as told:
        get("vsepp_grid_gru").override(changes)
    assert len(str(told.value)) < 300


def test_a_model_that_does_not_fit_into_the_machine_is_refused_before_it_is_made(monkeypatch):
    recipe = get("vsepp_grid_gru").override({"dim": 20})
    recipe.build(7, VOCABULARY)
    monkeypatch.setattr("vsecore.memory.psutil.virtual_memory", lambda: SimpleNamespace(total=2**12))
    with pytest.raises(ValueError, match=r"recipe 'vsepp_grid_gru' has \d+ weights.*make it smaller"):
        recipe.build(7, VOCABULARY)


def test_a_similarity_must_say_what_it_compares(monkeypatch):
    class Silent(Similarity):
        def forward(self, v, t):
            return v.vectors @ t.vectors.mT

    monkeypatch.setitem(SIMILARITIES._entries, "silent", Silent)
    with pytest.raises(ValueError, match=r"similarity 'silent' does not say what it compares.*reads"):
        get("vsepp_grid_gru").override({"similarity": "silent"})


def test_the_recipes_for_small_machines_are_what_they_say():
    recipe = get("window_grid")
    assert (recipe.image.encoder, recipe.text.pool) == (Part("grid", {"drop": 0.3}), Part("max"))
    assert recipe.text.encoder.name == "window" and recipe.training.batches == "pictures"
    small = get("vsepp_grid_gru+laptop")
    (loss,) = small.losses
    assert (small.text.encoder.name, loss.name, small.training.epochs) == ("gru", "triplet", 6)
    # Some epochs of each kind: all negatives, then the hardest.
    assert 0 < LOSSES.build(loss.name, loss.options).warmup_epochs < small.training.epochs


def test_the_recipes_of_aoq_carry_its_numbers():
    """Section 4.2: two rounds for VSRN; SCAN and BFAN learn from what VSRN has mined."""
    for system, rate, epochs, decay in (
        ("vsrn", 2e-4, 20, 10),
        ("scan", 5e-4, 15, 10),
        ("bfan", 5e-4, 15, 10),
    ):
        for feature in ("grid", "region"):
            suffix = "" if system == "vsrn" else "_gru"
            changed, own = get(f"aoq_{system}_{feature}{suffix}"), get(f"{system}_{feature}{suffix}")
            training = changed.training
            assert (training.learning_rate, training.epochs) == (rate, epochs)
            assert (training.schedule, training.decay_epochs, training.decay_factor) == ("step", decay, 0.1)
            for field in ("dim", "image", "text", "similarity"):
                assert getattr(changed, field) == getattr(own, field)
            loss = LOSSES.build(changed.losses[0].name, changed.losses[0].options)
            assert (loss.margin, loss.offline_margin, loss.beta, loss.alpha) == (0.2, 0, 1.5, 0.3)
            assert changed.losses[1:] == own.losses[1:]
            assert "Chen, Deng and Luo" in changed.source and own.source in changed.source
            assert (changed.first_round is not None) is (system == "vsrn")
    first = get("aoq_vsrn_grid").first_round
    assert (first.texts, first.pictures, first.keeps_weights) == (300, 60, False)
    assert [part.name for part in first.losses] == ["triplet", "captioning"]
    assert get("aoq_vsepp_region_gru").image == get("vsepp_region_gru").image


@pytest.mark.parametrize("name", ["aoq_vsepp_region_gru", "aoq_vsrn_region", "aoq_scan_grid_gru"])
def test_a_variant_of_aoq_changes_the_loss_or_the_rounds_and_nothing_else(name):
    plain = get(name)
    digests = {plain.hash()}
    for variant in aoq.VARIANTS:
        if plain.first_round is None and any(
            field.startswith("first_round.") for field in aoq.VARIANTS[variant]
        ):
            with pytest.raises(ValueError, match=r"first_round\..*has no first round"):
                get(f"{name}+{variant}")
            continue
        changed = get(f"{name}+{variant}")
        digests.add(changed.hash())
        same = {"name": name, "losses": plain.losses, "first_round": plain.first_round}
        assert dataclasses.replace(changed, **same) == plain
        assert changed.losses[1:] == plain.losses[1:]
        assert changed.learns_offline is (variant != "online")
        assert Recipe.from_dict(changed.to_dict()) == changed
    # "lists" brings the usual lists: what VSE++ has already, and what SCAN, mined for by another, has not.
    vsepp, vsrn = len(aoq.VARIANTS), 1 + len(aoq.VARIANTS)
    assert len(digests) == (10 if plain.first_round is None else vsrn if "vsrn" in name else vsepp)


def test_the_variants_of_aoq_are_what_its_table_3_says():
    adaptive, quintuplet = "adaptive_offline_quintuplet", "offline_quintuplet"
    as_published = {"weights": "gradient", "against": "offline", "warmup_epochs": 1}
    for variant, kind, options in (
        ("offline_triplet", "offline_triplet", {"online": True, "warmup_epochs": 1}),
        ("offline_quintuplet", quintuplet, {"online": True, "online_quintuplet": False, "warmup_epochs": 1}),
        ("only_offline", quintuplet, {"online": False, "online_quintuplet": False, "warmup_epochs": 0}),
        ("online_quintuplet", quintuplet, {"online": True, "online_quintuplet": True, "warmup_epochs": 1}),
        ("fine_tuned", adaptive, {**as_published, "warmup_epochs": 0}),
        ("without_offline_weights", adaptive, {**as_published, "against": "positive"}),
        ("detached_weights", adaptive, {**as_published, "weights": "detached"}),
        ("clamped_weights", adaptive, {**as_published, "weights": "clamped"}),
    ):
        recipe = get(f"aoq_vsrn_region+{variant}")
        loss = LOSSES.build(recipe.losses[0].name, recipe.losses[0].options)
        assert recipe.losses[0].name == kind
        assert {name: getattr(loss, name) for name in options} == options, variant
        assert recipe.first_round.keeps_weights is (variant == "fine_tuned")
    for h in (50, 200, 500, 1000):
        first = get(f"aoq_vsrn_region+top_{h}").first_round
        assert (first.texts, first.pictures) == (h, h // 5), "five captions for each picture"


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


@pytest.mark.parametrize(
    ("name", "changes", "message"),
    [
        (
            "vsepp_grid_gru",
            {"first_round.texts": 3},
            r"'first_round\.texts' is unknown here: .* no first round",
        ),
        ("aoq_vsepp_grid_gru", {"first_round.text": 3}, r"did you mean first_round\.texts"),
        ("aoq_vsepp_grid_gru", {"first_round.texts": 0}, r"first_round\.texts is 0: wanted at least 1"),
        (
            "aoq_vsepp_grid_gru",
            {"first_round.losses": []},
            r"first_round\.losses are \[\]: wanted at least one",
        ),
        (
            "aoq_vsepp_grid_gru",
            {"first_round.losses.adopt.margin": 1},
            r"this recipe's first_round\.losses are",
        ),
        (
            "aoq_vsepp_grid_gru",
            {"first_round.losses.triplet.k": 1},
            r"first_round\.losses: loss 'triplet' has no",
        ),
        ("aoq_vsepp_grid_gru", {"first_round.losses": "offline_triplet"}, "learns from offline negatives"),
        ("aoq_vsepp_grid_gru", {"losses": "triplet"}, "first_round is set, but no loss of the second round"),
        (
            "aoq_vsepp_grid_gru",
            {"training.batches": "pictures"},
            r"training\.batches is 'pictures': it must be 'pairs'",
        ),
        ("aoq_vsepp_grid_gru", {"first_round": 3}, r"first_round is 3"),
        ("aoq_vsepp_grid_gru", {"losses.triplet": "adopt"}, "this recipe's losses are adaptive"),
    ],
)
def test_a_first_round_that_cannot_be_is_refused_by_name(name, changes, message):
    with pytest.raises(ValueError, match=message):
        get(name).override(changes)


def test_the_first_round_counts_in_the_hash_and_only_where_it_differs():
    recipe = get("aoq_vsepp_grid_gru")
    changes = (
        {},
        {"first_round.texts": 200},
        {"first_round.keeps_weights": True},
        {"first_round.losses": "adopt"},
    )
    assert len({recipe.override(change).hash() for change in changes}) == 4
    same = {"first_round.texts": "300", "first_round.losses.triplet.margin": 0.2}
    assert recipe.override(same).hash() == recipe.hash()


def test_a_part_whose_constructor_reads_numbers_is_tried_too(monkeypatch):
    class Picky(nn.Module):
        def __init__(self, least: float = 1.0) -> None:
            super().__init__()
            if float(torch.rand(9).sum()) < least:
                raise ValueError("least is too much")

    monkeypatch.setitem(POOLS._entries, "picky", Picky)
    before = torch.get_rng_state()
    changed = get("vsepp_grid_gru").override({"image.pool": "picky", "image.pool.least": 0.5})
    with pytest.raises(ValueError, match=r"image\.pool: least is too much"):
        changed.override({"image.pool.least": 10.0})
    assert torch.equal(torch.get_rng_state(), before)

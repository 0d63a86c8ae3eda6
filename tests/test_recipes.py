"""Recipes: plain data that can be changed by name, written down and read back, and built."""

import dataclasses
import json
import subprocess
import sys

import pytest
import torch

from vsecore import pooling, recipes
from vsecore.data.words import Vocabulary
from vsecore.encoders import BiGRUEncoder, CellEncoder, RegionEncoder
from vsecore.losses import adopt, info_nce, triplet
from vsecore.pooling import (
    GPO,
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
from vsecore.recipes import RECIPES, VARIANTS, Recipe, get

VOCABULARY = Vocabulary([f"w{i}" for i in range(10)])


def test_the_six_recipes_of_vsepp_carry_its_numbers():
    names = {f"vsepp_{feature}_{text}" for feature in ("grid", "region", "patch") for text in ("gru", "bert")}
    assert names <= RECIPES.keys()
    for name in names:
        recipe = get(name)
        assert recipe.name == name
        assert "Faghri" in recipe.source
        training = recipe.training
        assert (recipe.dim, recipe.loss.margin, training.batch_size, training.clip_norm) == (
            1024,
            0.2,
            128,
            2.0,
        )
        assert (training.epochs, training.learning_rate, training.decay_epochs) == (30, 2e-4, 15)
        assert recipe.loss.warmup_epochs == 1


def test_the_six_recipes_of_2ad_carry_its_numbers():
    for feature in ("grid", "region", "patch"):
        for text in ("gru", "bert"):
            recipe = get(f"2ad_{feature}_{text}")
            assert (recipe.image.encoder, recipe.text.encoder) == (feature, text)
            assert "Zhang" in recipe.source
            # Section 4.2.
            training = recipe.training
            assert (recipe.dim, training.batch_size, training.epochs) == (1024, 128, 25)
            assert (training.learning_rate, training.schedule) == (5e-4, "step")
            assert (training.decay_epochs, training.decay_factor) == (15, 0.1)
            # Appendix B.
            assert (recipe.loss.name, recipe.loss.temperature, recipe.loss.margin) == ("adopt", 0.05, 0.2)
            assert (recipe.text.word_dim, training.pretrained_factor) == (300, 0.1)
            assert recipe.text.weights == ("bert-base-uncased" if text == "bert" else "")
            # Sections 3.2 and 3.3: the balance is learned, and the rule says how many negatives.
            assert (recipe.image.pool, recipe.text.pool) == ("adpool", "adpool")
            assert recipe.image.pool_options == recipe.text.pool_options == {}
            assert (recipe.loss.rule, recipe.loss.negatives) == ("released", 0)
            assert recipe.loss.positive_in_denominator


def test_an_unknown_recipe_is_answered_with_the_known_ones():
    with pytest.raises(ValueError, match=r"'vsepp'.*vsepp_grid_gru"):
        get("vsepp")


def test_override_reads_text_as_the_field_wants_it():
    changed = get("vsepp_grid_bert").override(
        {
            "dim": "64",
            "training.epochs": "3",
            "loss.margin": "1",
            "loss.siblings_are_negatives": "true",
            "text.weights": "/some/where",
            "training.schedule": "cosine",
            "image.pool": "kmax",
            "image.pool_options.k": "5",
        }
    )
    assert (changed.dim, changed.training.epochs) == (64, 3)
    assert changed.loss.margin == 1.0
    assert isinstance(changed.loss.margin, float)
    assert changed.loss.siblings_are_negatives is True
    assert changed.text.weights == "/some/where"
    assert changed.training.schedule == "cosine"
    assert changed.image.pool_options == {"k": 5}


def test_override_leaves_the_original_alone():
    recipe = get("vsepp_grid_gru")
    recipe.override({"image.pool": "kmax", "image.pool_options.k": 5, "loss.margin": 0.1})
    assert (recipe.image.pool, recipe.image.pool_options, recipe.loss.margin) == ("mean", {}, 0.2)
    with pytest.raises(dataclasses.FrozenInstanceError):
        recipe.dim = 5


@pytest.mark.parametrize(
    "field", ["training.epoch", "epochs", "training", "loss.margin.x", "image..pool", ""]
)
def test_an_unknown_field_is_answered_with_the_known_ones(field):
    with pytest.raises(ValueError, match=r"unknown.*training\.epochs.*"):
        get("vsepp_grid_gru").override({field: 3})


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("training.epochs", "three", "training.epochs is 'three': wanted a whole number"),
        ("training.epochs", "2.5", "wanted a whole number"),
        ("training.epochs", True, "wanted a whole number"),
        ("training.epochs", "0", "training.epochs is 0: wanted at least 1"),
        ("loss.margin", "wide", "loss.margin is 'wide': wanted a number"),
        ("loss.margin", "NaN", "loss.margin is nan"),
        ("loss.margin", -0.1, "loss.margin is -0.1"),
        ("loss.name", "hinge", "loss.name is 'hinge': wanted one of triplet, info_nce, adopt"),
        ("loss.siblings_are_negatives", "yes", "wanted true or false"),
        ("image.element_drop", 1, "image.element_drop is 1.0: wanted at least 0 and below 1"),
        ("training.learning_rate", 0, "training.learning_rate is 0.0"),
        ("image.pool_options", "5", "wanted named values"),
        ("text.weights", "", "text.weights is empty"),
    ],
)
def test_a_value_that_does_not_fit_is_refused_by_name(field, value, message):
    with pytest.raises(ValueError, match=message):
        get("vsepp_grid_bert").override({field: value})


def test_the_order_of_changes_does_not_matter():
    changes = {
        "text.encoder": "bert",
        "text.weights": "minilm",
        "image.pool_options.k": 3,
        "image.pool": "kmax",
    }
    one = get("vsepp_grid_gru").override(changes)
    assert one == get("vsepp_grid_gru").override(dict(reversed(changes.items())))
    assert (one.text.encoder, one.text.weights, one.image.pool_options) == ("bert", "minilm", {"k": 3})
    assert one.override({"image.pool": "mean", "image.pool_options": "{}"}).image.pool_options == {}
    with pytest.raises(ValueError, match=r"image\.pool_options is 5: wanted named values"):
        one.override({"image.pool_options": "5", "image.pool_options.k": 3})


def test_single_partners_need_batches_of_pairs():
    recipe = get("vsepp_grid_gru").override({"loss.siblings_are_negatives": True})
    with pytest.raises(ValueError, match="single partner"):
        recipe.override({"training.batches": "pictures"})


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_variant_changes_what_it_names_and_nothing_else(variant):
    plain, changed = get("2ad_grid_gru"), get(f"2ad_grid_gru+{variant}")
    assert changed.name == f"2ad_grid_gru+{variant}"
    assert changed.hash() != plain.hash()
    assert changed == dataclasses.replace(plain.override(VARIANTS[variant]), name=changed.name)
    assert changed.training == plain.training
    pools = {field for field in VARIANTS[variant] if "pool" in field}
    assert (changed.loss == plain.loss) is bool(pools)  # a pool or the loss, never both
    model = changed.override({"dim": 8, "text.word_dim": 4}).build(6, VOCABULARY)
    assert model.encode_pictures(torch.randn(2, 4, 6)).shape == (2, 8)


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
    model = get(f"2ad_grid_gru+{variant}").override({"dim": 8, "text.word_dim": 4}).build(6, VOCABULARY)
    assert (type(model.image_pool), type(model.text_pool)) == (picture, caption)
    for pool in (model.image_pool, model.text_pool):
        assert getattr(pool, "k", 5) == 5  # wherever the largest are averaged, they are five
        if variant.startswith("share"):
            assert pool.token_share == 0.5


def test_variants_that_take_a_part_away_leave_the_other():
    shares = {"without_token": 0.0, "without_embedding": 1.0, "share_25": 0.25, "share_75": 0.75}
    for variant, share in (shares | {"share_random": "random"}).items():
        recipe = get(f"2ad_grid_gru+{variant}")
        assert recipe.image.pool == recipe.text.pool == "adpool"
        assert recipe.image.pool_options == recipe.text.pool_options == {"token_share": share}


def test_variants_follow_each_other_and_later_ones_win():
    both = get("2ad_region_bert+gpo+max_violation")
    assert both.name == "2ad_region_bert+gpo+max_violation"
    assert (both.image.pool, both.loss.name, both.loss.warmup_epochs) == ("gpo", "triplet", 1)
    assert (both.image.encoder, both.text.encoder) == ("region", "bert")
    assert both.hash() == get("2ad_region_bert+max_violation+gpo").hash()
    assert get("2ad_grid_gru+kmax+mean").image.pool_options == {}  # what the first pool took is gone
    assert get("2ad_grid_gru+share_50+share_25").hash() == get("2ad_grid_gru+share_25").hash()
    assert get("2ad_grid_gru+without_adopt+max_violation").loss.warmup_epochs == 1
    assert get("vsepp_grid_gru+gpo").text.pool == "gpo"


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
    recipe = get(name).override({"image.pool": "kmax", "image.pool_options.k": 3})
    assert Recipe.from_dict(json.loads(json.dumps(recipe.to_dict()))) == recipe


def test_a_written_recipe_with_odd_fields_is_refused():
    content = get("vsepp_grid_gru").to_dict()
    content["loss"]["colour"] = "red"
    with pytest.raises(ValueError, match=r"'loss\.colour' is unknown"):
        Recipe.from_dict(content)
    del content["loss"]["colour"], content["dim"]
    with pytest.raises(ValueError, match="'dim' is missing"):
        Recipe.from_dict(content)
    content["dim"] = "wide"
    with pytest.raises(ValueError, match="dim is 'wide'"):
        Recipe.from_dict(content)
    content["loss"] = 5
    with pytest.raises(ValueError, match="'loss' is 5: wanted name, margin"):
        Recipe.from_dict(content)


def test_the_hash_changes_with_every_setting_and_with_nothing_else():
    recipe = get("vsepp_grid_gru")
    others = [
        recipe.override({"loss.margin": 0.1}),
        recipe.override({"training.epochs": 3}),
        recipe.override({"image.pool": "kmax", "image.pool_options.k": 3}),
        recipe.override({"image.pool": "kmax", "image.pool_options.k": 4}),
        get("vsepp_grid_bert"),
    ]
    assert len({other.hash() for other in [recipe, *others]}) == 6
    assert dataclasses.replace(recipe, name="mine", source="my head").hash() == recipe.hash()
    assert recipe.override({"loss.margin": "0.2"}).hash() == recipe.hash()


def test_a_field_that_the_house_adds_leaves_older_digests_alone(monkeypatch):
    recipes_then = [get(name) for name in ("vsepp_grid_gru", "2ad_region_bert", "2ad_grid_gru+share_50")]
    before = [recipe.hash() for recipe in recipes_then]
    to_dict = Recipe.to_dict

    def to_larger_dict(self, patience=3):
        content = to_dict(self)
        content["training"] |= {"patience": patience}
        return content | {"mining": {"texts": 300, "pictures": 60}}

    monkeypatch.setattr(Recipe, "to_dict", to_larger_dict)
    assert [recipe.hash() for recipe in recipes_then] == before
    # Set to anything but its default, it counts.
    recipe, plain = recipes_then[0], to_larger_dict(Recipe(name="", source=""))
    monkeypatch.setattr(Recipe, "to_dict", lambda self: to_larger_dict(self, 4) if self.name else plain)
    assert recipe.hash() != before[0]


def test_the_defaults_stand_still_for_digests_are_taken_against_them():
    # Another default would give new runs the digests of older ones: what is new belongs into a recipe.
    tower = {"pool": "mean", "pool_options": {}}
    expected = {
        "dim": 1024,
        "similarity": "cosine",
        "image": tower | {"encoder": "grid", "element_drop": 0.0},
        "text": tower
        | {"encoder": "gru", "word_dim": 300, "minimum_count": 4, "weights": "", "word_drop": 0.0},
        "loss": {
            "name": "triplet",
            "margin": 0.2,
            "warmup_epochs": 1,
            "temperature": 0.05,
            "rule": "released",
            "negatives": 0,
            "positive_in_denominator": True,
            "siblings_are_negatives": False,
        },
        "training": {
            "epochs": 30,
            "batch_size": 128,
            "batches": "pairs",
            "optimizer": "Adam",
            "learning_rate": 2e-4,
            "pretrained_factor": 0.1,
            "weight_decay": 0.0,
            "warmup_steps": 0,
            "schedule": "step",
            "decay_epochs": 15,
            "decay_factor": 0.1,
            "clip_norm": 2.0,
        },
    }
    found = Recipe(name="", source="").to_dict()
    for field, value in expected.items():
        if isinstance(value, dict):
            assert found[field] | value == found[field], field
        else:
            assert found[field] == value, field


def test_every_setting_counts_in_the_hash():
    recipe = get("2ad_grid_gru")
    changes = {
        "dim": 512,
        "image.encoder": "region",
        "image.pool": "gpo",
        "image.pool_options.per_dimension": True,
        "image.element_drop": 0.1,
        "text.word_dim": 50,
        "text.minimum_count": 1,
        "text.word_drop": 0.1,
        "loss.name": "info_nce",
        "loss.margin": 0.0,
        "loss.warmup_epochs": 0,
        "loss.temperature": 0.1,
        "loss.rule": "printed",
        "loss.negatives": 4,
        "loss.positive_in_denominator": False,
        "loss.siblings_are_negatives": True,
        "training.epochs": 24,
        "training.optimizer": "Adam",
        "training.weight_decay": 0.0,
        "training.schedule": "cosine",
        "training.decay_factor": 0.2,
    }
    digests = {recipe.override({field: value}).hash() for field, value in changes.items()}
    assert len(digests | {recipe.hash()}) == len(changes) + 1
    same = {"loss.temperature": "0.05", "training.epochs": 25, "image.pool_options": {}}
    assert recipe.override(same).hash() == recipe.hash()


def test_the_hash_is_the_same_in_another_process():
    command = "from vsecore.recipes import get; print(get('vsepp_grid_gru').hash())"
    out = subprocess.run([sys.executable, "-c", command], capture_output=True, text=True, check=True).stdout
    assert out.strip() == get("vsepp_grid_gru").hash()


def test_where_weights_lie_is_not_what_was_run(tmp_path):
    hashes, contents = set(), []
    for place in ("here", "there"):
        folder = tmp_path / place / "minilm"
        folder.mkdir(parents=True)
        recipe = get("vsepp_grid_bert").override({"text.weights": str(folder)})
        hashes.add(recipe.hash())
        contents.append(recipe.portable())
    assert len(hashes) == 1
    assert contents[0] == contents[1]
    assert contents[0]["text"]["weights"] == "minilm"
    assert get("vsepp_grid_gru").portable()["text"]["weights"] == ""


@pytest.mark.parametrize("kind", [CellEncoder, RegionEncoder])
def test_build_makes_what_the_recipe_says(kind):
    feature = {encoder: name for name, encoder in recipes.IMAGE_ENCODERS.items()}[kind]
    changes = {"dim": 6, "text.word_dim": 5, "text.pool": "kmax", "text.pool_options.k": 2}
    model = get(f"vsepp_{feature}_gru").override(changes).build(7, VOCABULARY)
    assert type(model.image_encoder) is kind
    assert type(model.text_encoder) is BiGRUEncoder
    assert model.text_encoder.embedding.weight.shape == (len(VOCABULARY), 5)
    assert isinstance(model.text_pool, KMaxPool)
    assert model.encode_pictures(torch.randn(2, 4, 7)).shape == (2, 6)


def test_vectors_that_do_not_fit_say_which_setting_would():
    recipe = get("vsepp_grid_gru").override({"dim": 6})
    with pytest.raises(ValueError, match=r"set text\.word_dim=50"):
        recipe.build(7, VOCABULARY, torch.zeros(len(VOCABULARY), 50))
    with pytest.raises(ValueError, match="leave them out"):
        get("vsepp_grid_bert").build(7, VOCABULARY, torch.zeros(len(VOCABULARY), 300))


@pytest.mark.parametrize("tower", ["image", "text"])
@pytest.mark.parametrize(
    ("pool", "options", "message"),
    [
        ("kmaks", {}, "one of ada, adpool, .* kmax, .* soft"),
        ("kmax", {}, "must include k"),
        ("kmax", {"k": 0}, "at least 1"),
        ("mean", {"k": 5}, "takes no options"),
        ("mean", {"dim": 5}, "dim"),
        ("adpool", {"token_share": 2}, "token_share must be"),
        ("adpool", {"token_share": "much"}, "is no pool"),
        ("gpo", {"hidden": 1.5}, "hidden must be"),
    ],
)
def test_a_pool_that_cannot_be_built_is_refused_at_once(tower, pool, options, message):
    with pytest.raises(ValueError, match=rf"{tower}\.pool '{pool}' with .*{message}"):
        get("vsepp_grid_gru").override({f"{tower}.pool": pool, f"{tower}.pool_options": options})


@pytest.mark.parametrize("name", pooling.POOLS)
def test_every_pool_can_be_chosen_for_either_tower(name):
    options = {"k": 2} if name == "kmax" else {}
    changes = {f"{tower}.pool": name for tower in ("image", "text")}
    changes |= {f"{tower}.pool_options": options for tower in ("image", "text")}
    recipe = get("vsepp_grid_gru").override(changes | {"dim": 6, "text.word_dim": 5})
    model = Recipe.from_dict(json.loads(json.dumps(recipe.to_dict()))).build(7, VOCABULARY)
    assert type(model.image_pool) is type(model.text_pool) is pooling.POOLS[name]
    assert model.encode_pictures(torch.randn(2, 4, 7)).shape == (2, 6)
    tokens, mask = torch.tensor([[4, 5, 6], [7, 0, 0]]), torch.tensor([[True] * 3, [True, False, False]])
    assert model.encode_captions(tokens, mask).shape == (2, 6)


def test_to_make_a_recipe_draws_no_random_number(monkeypatch):
    class PoolWithWeights(torch.nn.Linear):
        def __init__(self, dim):
            super().__init__(dim, dim)

    monkeypatch.setitem(pooling.POOLS, "weighted", PoolWithWeights)
    before = torch.get_rng_state()
    get("vsepp_grid_gru").override({"image.pool": "weighted"})
    get("2ad_grid_gru+share_random")
    assert torch.equal(torch.get_rng_state(), before)


def test_missing_weights_say_what_to_do(tmp_path, monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    recipe = get("vsepp_grid_bert").override({"text.weights": str(tmp_path / "nowhere")})
    for step in (lambda: recipe.tokenizer(["a dog"]), lambda: recipe.build(7, VOCABULARY)):
        with pytest.raises(FileNotFoundError, match=r"nowhere.*folder"):
            step()


def test_the_vocabulary_is_counted_as_the_recipe_says():
    captions = ["a dog", "a dog", "a cat"]
    assert set(get("vsepp_grid_gru").override({"text.minimum_count": 2}).tokenizer(captions).words) == {
        "a",
        "dog",
    }


def test_the_first_epochs_learn_from_all_negatives_then_from_the_hardest():
    scores, pairs = torch.tensor([[0.5, 0.4, 0.45], [0.0, 0.5, 0.0], [0.0, 0.0, 0.5]]), torch.eye(3).bool()
    loss = get("vsepp_grid_gru").loss
    # Row 0 breaks the margin of 0.2 twice, columns 1 and 2 once each.
    torch.testing.assert_close(loss.build(0)(scores, pairs), torch.tensor(0.1 + 0.15 + 0.1 + 0.15))
    torch.testing.assert_close(loss.build(1)(scores, pairs), torch.tensor(0.15 + 0.1 + 0.15))


def test_siblings_are_negatives_only_if_the_recipe_says_so():
    scores = torch.tensor([[0.5, 0.5], [0.5, 0.5]])
    siblings = torch.ones(2, 2, dtype=torch.bool)
    for name in ("triplet", "info_nce", "adopt"):
        loss = get("vsepp_grid_gru").override({"loss.name": name}).loss
        strict = get("vsepp_grid_gru").override({"loss.name": name, "loss.siblings_are_negatives": True}).loss
        assert loss.build(1)(scores, siblings) == 0
        assert strict.build(1)(scores, siblings) > 0


def test_adopt_hears_every_setting():
    scores = torch.rand(8, 8, generator=torch.Generator().manual_seed(0)) * 0.3
    pairs = torch.eye(8, dtype=torch.bool)
    recipe = get("vsepp_grid_gru").override({"loss.name": "adopt"})
    released = recipe.loss.build(0)(scores, pairs)
    torch.testing.assert_close(released, adopt(scores, margin=0.2))
    changed = {
        "loss.rule": ("printed", adopt(scores, rule="printed", margin=0.2)),
        "loss.positive_in_denominator": (False, adopt(scores, positive_in_denominator=False, margin=0.2)),
        "loss.margin": (0.0, adopt(scores)),
        "loss.temperature": (0.5, adopt(scores, temperature=0.5, margin=0.2)),
        "loss.negatives": (1, adopt(scores, margin=0.2, negatives=1)),
    }
    for field, (value, expected) in changed.items():
        loss = recipe.override({field: value}).loss.build(0)(scores, pairs)
        torch.testing.assert_close(loss, expected)
        assert loss != released
    with pytest.raises(ValueError, match=r"loss.rule is 'guessed': wanted one of released, printed"):
        recipe.override({"loss.rule": "guessed"})
    with pytest.raises(ValueError, match=r"loss.negatives is -1: wanted at least 0"):
        recipe.override({"loss.negatives": -1})


def test_the_variants_of_the_loss_are_what_they_say():
    generator = torch.Generator().manual_seed(0)
    scores, pairs = torch.rand(150, 150, generator=generator) * 0.3, torch.eye(150, dtype=torch.bool)

    def loss_of(variant, epoch=0):
        return get(f"2ad_grid_gru+{variant}").loss.build(epoch)(scores, pairs)

    for k in (1, 4, 16, 64, 127):
        torch.testing.assert_close(loss_of(f"negatives_{k}"), adopt(scores, margin=0.2, negatives=k))
    torch.testing.assert_close(loss_of("info_nce"), info_nce(scores))
    torch.testing.assert_close(loss_of("printed_rule"), adopt(scores, rule="printed", margin=0.2))
    torch.testing.assert_close(
        loss_of("as_printed"), adopt(scores, rule="printed", positive_in_denominator=False)
    )
    torch.testing.assert_close(loss_of("without_margin"), adopt(scores))
    hardest, every = triplet(scores, hardest=True), triplet(scores, hardest=False)
    torch.testing.assert_close(loss_of("without_adopt", epoch=0), hardest)
    torch.testing.assert_close(loss_of("max_violation", epoch=0), every)
    torch.testing.assert_close(loss_of("max_violation", epoch=1), hardest)

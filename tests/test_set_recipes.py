"""DivE, PVSE and PCME: the recipes carry their sources' numbers, and every one of them trains."""

from dataclasses import replace

import pytest
import torch
from torch import nn

from small import SMALL, make_bert, small_data, train
from test_seam import assert_resumes_with_the_same_bits
from vsecore.data.vocabulary import Vocabulary
from vsecore.experiments import EXPERIMENTS
from vsecore.losses import LOSSES, mmd
from vsecore.pooling import GaussianPool, MaxPool, MeanPool, PIENetPool, Seq2SeqPool, SlotPool
from vsecore.recipes import VARIANTS, Part, dive, get, pcme
from vsecore.sets import SlotSetPrediction, TransformerSet
from vsecore.similarity import SIMILARITIES
from vsecore.training import encode

NAMES = ("dive_grid_gru", "dive_region_gru", "pvse_grid", "pvse_region", "pcme_grid", "pcme_region")
WORDS = Vocabulary([f"w{i}" for i in range(10)])


def squares(kind, **options):
    """The small data with four elements a picture: a grid of two by two cells."""
    data = small_data(kind, counts=False, **options)
    split = replace(data.train, pictures=data.train.pictures[:, :4])
    return replace(data, train=split, dev=split, test=split)


def small_recipe(name, **changes):
    """The recipe at the small scale: narrow pools too."""
    base, *_ = name.split("+")
    scale = dict(SMALL) | {"training.epochs": 1, "training.set_factor": 1.0}
    if base.startswith("dive"):
        scale |= {"image.pool.hidden": 8, "text.pool.hidden": 8}
    return get(name, scale).override({key.replace("__", "."): value for key, value in changes.items()})


def options_of(part, registry, **context):
    return registry.build(part.name, part.options, dim=8, **context)


def test_dive_carries_the_numbers_of_section_4_2_and_appendix_a():
    wanted = {  # hidden, heads, margin, first epochs of all negatives, epochs, rate, its part for the sets
        "dive_grid_gru": (1024, 4, 0.1, 0, 120, 2e-3, 0.01),
        "dive_region_gru": (2048, 4, 0.2, 0, 80, 1e-3, 0.05),
        "dive_grid_bert": (1024, 4, 0.1, 1, 50, 1e-4, 1.0),
    }
    for name, (hidden, heads, margin, warmup, epochs, rate, part) in wanted.items():
        recipe = get(name)
        training = recipe.training
        assert (recipe.name, recipe.dim) == (name, 1024) and "Kim" in recipe.source
        assert (training.epochs, training.learning_rate, training.set_factor) == (epochs, rate, part)
        assert (training.optimizer, training.batches) == ("AdamW", "pictures")
        assert (training.weight_decay, training.clip_norm) == (1e-4, 1.0)  # of the released code
        assert training.batch_size == (128 if "bert" in name else 200)
        for tower in (recipe.image, recipe.text):
            pool = SlotPool(8, **tower.pool.options).predict
            assert (pool.slots, pool.iterations, pool.heads) == (4, 4, heads)
            assert pool.dropout.p == 0.1
            assert pool.key.out_features == hidden and pool.learned_slots and pool.gru is None
            assert pool.norm_global is not None and pool.softmax_over == "slots"
        assert options_of(recipe.similarity, SIMILARITIES).alpha == 16
        names = [(loss.name, loss.weight) for loss in recipe.losses]
        assert names == [("triplet", 1), ("mmd", 0.01), ("diversity", 0.01)]
        hinge = options_of(recipe.losses[0], LOSSES)
        assert (hinge.margin, hinge.warmup_epochs, hinge.reduction) == (margin, warmup, "mean")
        left_out = 0.2 if "region" in name else 0.0
        assert (recipe.image.element_drop, recipe.text.word_drop) == (left_out, left_out)
    region, grid, bert = (get(f"dive_{name}").training for name in ("region_gru", "grid_gru", "grid_bert"))
    assert region.schedule == "cosine" and grid.schedule == bert.schedule == "step"
    assert (grid.decay_epochs, grid.decay_factor) == (10, 0.1)
    assert (bert.decay_epochs, bert.decay_factor) == (20, 0.1)
    with pytest.raises(ValueError, match=r"feature and text are 'region', 'bert': they must be one of"):
        dive.dive("region", "bert")


def test_from_pixels_dive_differs_in_its_network_alone():
    """Appendix A: for how long the network rests, and how fast it learns then."""
    wanted = {
        "gru": ("resnet152.tv_in1k", 224, 50, 1.0),
        "bert": ("resnext101_32x8d.fb_wsl_ig1b_ft_in1k", 512, 1, 0.1),
    }
    for text, (network, side, rests, factor) in wanted.items():
        recipe, grid = get(f"dive_pixels_{text}"), get(f"dive_grid_{text}")
        assert recipe.image.encoder.name == "pixels"
        assert recipe.image.encoder.options["network"] == network
        assert recipe.view().side == side
        assert (recipe.training.frozen_epochs, recipe.training.picture_factor) == (rests, factor)
        training = replace(grid.training, frozen_epochs=rests, picture_factor=factor)
        image = replace(grid.image, encoder=recipe.image.encoder)
        assert recipe == replace(grid, name=recipe.name, source=recipe.source, image=image, training=training)


def test_the_global_feature_is_made_as_the_papers_say():
    scale = {"dim": 8, "text.encoder.word_dim": 4}
    for name, picture in (("dive_grid_gru", MeanPool), ("dive_region_gru", MaxPool), ("pvse_grid", MeanPool)):
        model = get(name).override(scale).build(6, WORDS)
        assert type(model.image_pool.global_pool) is picture
        assert type(model.text_pool.global_pool) is Seq2SeqPool
        # What the text encoder gives are word vectors: what follows a word does not change it.
        one, two = (model.encode_captions(torch.tensor([[4, 5, last]])).elements for last in (6, 7))
        assert torch.equal(one[:, :2], two[:, :2]) and not torch.equal(one[:, 2], two[:, 2])
    assert get("dive_grid_bert").text.pool.options["global_pool"] == "max"
    positions = {
        name: [tower.pool.options.get("positions") for tower in (get(name).image, get(name).text)]
        for name in ("dive_grid_gru", "dive_region_gru", "dive_grid_bert")
    }
    assert positions == {
        "dive_grid_gru": ["grid", "line"],
        "dive_region_gru": [None, "line"],
        "dive_grid_bert": ["grid", None],  # BERT knows where its words stand
    }


def test_pvse_and_pcme_carry_their_numbers():
    for feature in ("grid", "region"):
        recipe = get(f"pvse_{feature}")
        assert (recipe.dim, recipe.training.batch_size, recipe.training.learning_rate) == (1024, 256, 2e-4)
        for tower in (recipe.image, recipe.text):
            pool = PIENetPool(8, **tower.pool.options)
            assert len(pool.predict.attend[-1].weight) == 2
        assert recipe.similarity == Part("mil")
        names = [(loss.name, loss.weight) for loss in recipe.losses]
        assert names == [("triplet", 1), ("mmd", 0.01), ("gram_diversity", 0.1)]
        hinge = options_of(recipe.losses[0], LOSSES)
        assert (hinge.margin, hinge.warmup_epochs, hinge.reduction) == (0.1, 0, "mean")

        recipe = get(f"pcme_{feature}")
        training = recipe.training
        assert (recipe.dim, training.batch_size, training.learning_rate) == (1024, 128, 2e-4)
        assert (training.epochs, training.schedule, training.weight_decay) == (30, "cosine", 0)
        assert recipe.text.word_drop == 0.1
        (loss,) = recipe.losses
        soft = options_of(loss, LOSSES)
        assert (soft.samples, soft.kl_weight) == (7, 1e-5)
        assert (soft.scale.item(), soft.shift.item()) == (30, 30)  # 15 where σ(2x) is written for σ(x)


def test_a_variant_changes_what_it_names_and_nothing_else():
    plain = get("dive_region_gru")
    digests = {plain.hash()}
    for variant, changes in dive.VARIANTS.items():
        changed = get(f"dive_region_gru+{variant}")
        assert changed == replace(plain.override(VARIANTS[variant]), name=changed.name)
        digests.add(changed.hash())
        places = {field.partition(".")[0] for field in changes}
        for place in {"image", "text", "similarity", "losses", "training"} - places:
            assert getattr(changed, place) == getattr(plain, place), variant
        assert places in ({"similarity"}, {"image", "text"}, {"losses"}, {"training"}, {"text"}), variant
    assert len(digests) == len(dive.VARIANTS) + 1
    assert not set(pcme.VARIANTS) & set(dive.VARIANTS)


def test_the_variants_are_what_they_say():
    def built(variant):
        model = get(f"dive_region_gru+{variant}").override({"dim": 8, "text.encoder.word_dim": 4})
        return model.build(6, WORDS)

    for count in (1, 2, 3, 5, 6):
        for tower in ("image_pool", "text_pool"):
            assert getattr(built(f"slots_{count}"), tower).predict.slots == count
            assert getattr(built(f"rounds_{count}"), tower).predict.iterations == count
    for alpha in (1, 2, 4, 8, 32, 64):
        assert built(f"alpha_{alpha}").similarity.alpha == alpha
    for variant, pictures in (("pie_net", MaxPool), ("transformer_set_of_cells", MeanPool)):
        model = built(variant)
        assert (type(model.image_pool.global_pool), type(model.text_pool.global_pool)) == (
            pictures,
            Seq2SeqPool,
        )
    assert isinstance(built("transformer_set").text_pool.predict, TransformerSet)
    predictions = {name: built(name).image_pool.predict for name in ("slot_attention", "without_global")}
    slot_attention, without = predictions["slot_attention"], predictions["without_global"]
    assert isinstance(slot_attention, SlotSetPrediction) and not slot_attention.learned_slots
    assert isinstance(slot_attention.gru, nn.GRUCell) and slot_attention.norm_global is None
    assert without.learned_slots and without.gru is None and without.norm_global is None
    assert built("random_slots").text_pool.predict.norm_global is not None
    assert built("gru_slots").text_pool.predict.learned_slots
    assert built("softmax_over_elements").text_pool.predict.softmax_over == "elements"
    weights = {part.name: part.weight for part in get("dive_grid_gru+without_mmd").losses}
    assert weights == {"triplet": 1, "mmd": 0, "diversity": 0.01}
    coco = get("dive_region_gru+dive_coco").training
    assert (coco.learning_rate, coco.set_factor) == (1e-3, 0.1)
    later = get("dive_region_gru+later_hardest").losses[0]
    assert options_of(later, LOSSES).warmup_epochs == 1
    kernel = get("dive_region_gru+gaussian_kernel").losses[1]
    assert options_of(kernel, LOSSES).squared
    x, y = torch.randn(3, 4), torch.randn(5, 4)
    assert not torch.isclose(mmd(x, y), mmd(x, y, squared=True))


def test_other_modules_have_the_global_feature_that_dive_has_on_the_same_features():
    """The maximum of regions, the mean of cells: so nothing but the module differs."""
    arms = EXPERIMENTS["set_similarities"]
    for kind in ("grid", "region"):
        wanted = get(f"dive_{kind}_gru").image.pool.options["global_pool"]
        for arm in ("PIE-Net", "PIE-Net, Chamfer", "PIE-Net, MP", "PIE-Net, MIL", "Transformer"):
            ((name,),) = (system.recipes for system in arms.systems(arm, kind))
            pool = get(name).image.pool
            assert pool.name == ("transformer_set" if arm == "Transformer" else "pie_net")
            assert pool.options["global_pool"] == wanted
            assert get(name).similarity == get(f"dive_{kind}_gru{_SIMILARITY.get(arm, '')}").similarity


_SIMILARITY = {
    "PIE-Net, Chamfer": "+chamfer",
    "PIE-Net, MP": "+match_probability",
    "PIE-Net, MIL": "+mil",
}


def test_one_slot_gives_one_vector_and_smooth_chamfer_the_cosine():
    model = get("dive_region_gru+slots_1").override({"dim": 8, "text.encoder.word_dim": 4}).build(6, WORDS)
    model.eval()
    v = model.encode_pictures(torch.randn(3, 4, 6))
    t = model.encode_captions(torch.tensor([[4, 5], [6, 7]]))
    assert v.vectors.shape == (3, 1, 8)
    cosines = torch.cosine_similarity(v.vectors, t.vectors.squeeze(1).unsqueeze(0), dim=-1)
    torch.testing.assert_close(model.scores(v, t), cosines)


SYSTEMS = (
    *NAMES,
    # Small batches are larger than this test's data.
    *(
        f"dive_region_gru+{variant}"
        for variant in dive.VARIANTS
        if not variant[-1].isdigit() and variant != "small_batches"
    ),
    *(f"dive_region_gru+{variant}" for variant in ("slots_1", "rounds_1", "alpha_64")),
    *(f"pcme_grid+{variant}" for variant in pcme.VARIANTS),
)


@pytest.mark.parametrize("name", SYSTEMS)
def test_every_system_trains_and_no_weight_is_left_behind(name):
    def callback(event):
        if event.kind == "step":
            named = event.system.named_parameters()
            missing = [place for place, weight in named if weight.grad is None]
            assert not missing, f"no gradient reaches {missing}"

    data = squares("grid" if "_grid" in name else "region")
    run = train(small_recipe(name), data, callback=callback)
    assert run.history[-1]["loss"] == run.history[-1]["loss"] > 0


def test_dive_with_bert_trains(tmp_path):
    data = squares("grid")
    make_bert(tmp_path, data.train.captions)
    scale = {key: value for key, value in SMALL.items() if "encoder" not in key}
    scale |= {"text.encoder.weights": str(tmp_path), "image.pool.hidden": 8, "text.pool.hidden": 8}
    run = train(get("dive_grid_bert").override(scale), data)
    assert run.history[-1]["loss"] < run.history[0]["loss"]


@pytest.mark.parametrize(
    ("name", "epochs"), [("dive_region_gru", 80), ("pvse_region", 30), ("pcme_region", 30)]
)
def test_a_system_learns_a_few_pictures_by_heart(name, epochs):
    """DivE takes half as many steps in an epoch, since a batch has all captions of its pictures."""
    changes = {"dim": 32, "training__epochs": epochs, "training__schedule": "constant"}
    run = train(small_recipe(name, **changes), squares("region"))
    assert run.best["rsum"] > 400  # of 600; chance is 160


def test_a_run_with_random_slots_goes_on_where_it_stopped(tmp_path):
    a_recipe = small_recipe("dive_region_gru+slot_attention", training__epochs=3)
    assert_resumes_with_the_same_bits(tmp_path, a_recipe, squares("region"), stop=3)


def test_a_set_is_the_same_in_every_batch_of_evaluation():
    data = squares("region")
    for name in ("dive_region_gru+random_slots", "pcme_region"):
        run = train(small_recipe(name), data)
        (v, t), (v2, t2) = (encode(run.model, data.dev, run.tokenizer, batch_size=size) for size in (3, 20))
        torch.testing.assert_close(v.vectors, v2.vectors)
        torch.testing.assert_close(t.vectors, t2.vectors)
    assert isinstance(run.model.text_pool, GaussianPool)

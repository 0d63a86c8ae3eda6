"""CLIP and SigLIP as encoders, against transformers' own outputs; their losses; zero-shot and trained."""

import json
import math

import numpy as np
import pytest
import torch
from PIL import Image
from torch.nn.functional import cross_entropy, normalize
from typer.testing import CliRunner

from small import assert_resumes_with_the_same_bits
from towers import make_photographs, make_towers
from vsecore.cli import app
from vsecore.data.photographs import load_photographs
from vsecore.data.words import TokenizedCaptions
from vsecore.encoders.pretrained_towers import read_vision_config
from vsecore.losses import ScaledInfoNCE, SigmoidLoss, info_nce
from vsecore.losses.step import Step
from vsecore.recipes import get
from vsecore.training import System, evaluate_split, load_run, score_split

KINDS = ("clip", "siglip")
CAPTIONS = ["a red dog", "A big blue square picture of a small cat", "dark"]


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    made = {kind: tmp_path_factory.mktemp(kind) for kind in KINDS}
    return {kind: (folder, make_towers(folder, kind)) for kind, folder in made.items()}


@pytest.fixture(scope="module")
def photographs(tmp_path_factory):
    root = tmp_path_factory.mktemp("pictures")
    make_photographs(root)
    return root


def built(folder):
    recipe = get(str(folder))
    tokenizer = recipe.tokenizer(CAPTIONS)
    return recipe, tokenizer, recipe.build(3, tokenizer).eval()


def processors(folder, kind):
    from transformers import (
        CLIPImageProcessorPil,
        CLIPTokenizer,
        PreTrainedTokenizerFast,
        SiglipImageProcessorPil,
    )

    of_pictures = {"clip": CLIPImageProcessorPil, "siglip": SiglipImageProcessorPil}[kind]
    of_words = {"clip": CLIPTokenizer, "siglip": PreTrainedTokenizerFast}[kind]
    return of_pictures.from_pretrained(folder), of_words.from_pretrained(folder)


@pytest.mark.parametrize("kind", KINDS)
def test_pictures_are_embedded_as_transformers_does(folders, kind):
    folder, model = folders[kind]
    recipe, _, mine = built(folder)
    dice = np.random.default_rng(1)
    pictures = [
        Image.fromarray(dice.integers(0, 256, (h, w, 3), dtype=np.uint8)) for h, w in ((50, 41), (33, 70))
    ]
    wanted = processors(folder, kind)[0](images=pictures, return_tensors="pt")["pixel_values"]
    pixels = torch.from_numpy(np.stack([recipe.view().plain(picture) for picture in pictures]))
    encoder = mine.image_encoder
    torch.testing.assert_close((pixels / 255 - encoder.mean) / encoder.std, wanted, atol=1e-5, rtol=1e-4)
    with torch.no_grad():
        oracle = normalize(model.get_image_features(pixel_values=wanted).pooler_output)
        torch.testing.assert_close(mine.encode_pictures(pixels).vectors, oracle, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("kind", KINDS)
def test_captions_are_embedded_as_transformers_does_whatever_their_padding(folders, kind):
    folder, model = folders[kind]
    _, tokenizer, mine = built(folder)
    padding = {"clip": True, "siglip": "max_length"}[kind]
    wanted = processors(folder, kind)[1](CAPTIONS, padding=padding, truncation=True, return_tensors="pt")
    tokens, mask = tokenizer.encode(CAPTIONS)
    for row, (ids, real) in enumerate(zip(tokens, mask, strict=True)):
        assert ids[real].tolist() == wanted["input_ids"][row][: real.sum()].tolist()
    given = {"attention_mask": wanted["attention_mask"]} if kind == "clip" else {}
    with torch.no_grad():
        oracle = normalize(model.get_text_features(input_ids=wanted["input_ids"], **given).pooler_output)
        vectors = mine.encode_captions(tokens, mask).vectors
        torch.testing.assert_close(vectors, oracle, atol=1e-5, rtol=1e-4)
        for row, caption in enumerate(CAPTIONS):
            alone = mine.encode_captions(*tokenizer.encode([caption])).vectors[0]
            torch.testing.assert_close(alone, oracle[row], atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("kind", KINDS)
def test_the_loss_goes_on_where_the_towers_were_trained(folders, kind, photographs):
    folder, model = folders[kind]
    recipe = get(str(folder))
    data = load_photographs(photographs, recipe.view())
    system = System.build(recipe, data, recipe.tokenizer(data.train.captions))
    (loss,) = system.losses.values()
    assert float(loss.log_scale.detach()) == pytest.approx(float(model.logit_scale.detach()))
    scores = torch.rand(4, 4, generator=torch.manual_seed(0)) * 2 - 1
    step = a_step(scores)
    scale = model.logit_scale.exp().detach()
    if kind == "clip":
        diagonal, logits = torch.arange(4), scale * scores
        oracle = (cross_entropy(logits, diagonal) + cross_entropy(logits.T, diagonal)) / 2
    else:
        assert float(loss.bias.detach()) == pytest.approx(float(model.logit_bias.detach()))
        signs = 2 * torch.eye(4) - 1  # as transformers computes it
        logits = scores * scale + model.logit_bias.detach()
        oracle = -torch.nn.functional.logsigmoid(signs * logits).sum(-1).mean()
    torch.testing.assert_close(loss(step).detach(), oracle)
    loss(step).backward()
    assert all(weight.grad is not None and weight.grad.abs() > 0 for weight in loss.parameters())


def a_step(scores, positives=None):
    positives = torch.eye(len(scores), dtype=torch.bool) if positives is None else positives
    return Step(scores, positives, None, None, (), None, None, None, 0)


def test_the_sigmoid_loss_agrees_with_the_double_loop():
    generator = torch.manual_seed(0)
    scores = torch.rand(2, 4, generator=generator, dtype=torch.float64) * 2 - 1
    positives = torch.tensor([[True, True, False, False], [False, False, True, True]])
    total = 0.0
    for row in range(2):
        for column in range(4):
            sign = 1 if positives[row, column] else -1
            total += math.log1p(math.exp(-sign * (7.0 * float(scores[row, column]) - 2.0)))
    loss = SigmoidLoss(7.0, -2.0).double()
    assert float(loss(a_step(scores, positives)).detach()) == pytest.approx(total / 4)


def test_at_the_start_the_sigmoid_loss_is_almost_that_of_its_positives():
    # All cosines 0: each positive costs about 10, each of the many negatives about e^-10.
    assert float(SigmoidLoss()(a_step(torch.zeros(64, 64))).detach()) == pytest.approx(10, rel=1e-3)


def test_the_scale_is_never_used_above_its_most():
    scores = torch.rand(5, 5, generator=torch.manual_seed(0))
    loss = ScaledInfoNCE(scale=50.0, most=60.0)
    loss.log_scale.data.fill_(9.0)
    torch.testing.assert_close(loss(a_step(scores)), info_nce(scores, 1 / 60))
    for wrong in (
        lambda: ScaledInfoNCE(scale=0.0),
        lambda: ScaledInfoNCE(scale=200.0),
        lambda: SigmoidLoss(-1.0),
    ):
        with pytest.raises(ValueError, match="scale is"):
            wrong()


@pytest.mark.parametrize("kind", KINDS)
def test_training_further_resumes_with_the_same_bits_and_needs_no_folder_afterwards(
    folders, kind, photographs, tmp_path
):
    folder, _ = folders[kind]
    moved = tmp_path / "model"
    moved.symlink_to(folder)
    recipe = get(str(moved)).override(
        {
            "training.epochs": 2,
            "training.batch_size": 8,
            "training.learning_rate": 1e-3,
            "training.warmup_steps": 0,
        }
    )
    data = load_photographs(photographs, recipe.view())
    state = assert_resumes_with_the_same_bits(tmp_path / "run", recipe, data, stop=3)
    begun = System.build(recipe, data, recipe.tokenizer(data.train.captions)).state_dict()
    still = [name for name, x in begun.items() if torch.equal(x, state[name])]
    assert not [name for name in still if "position_ids" not in name and not name.endswith("k_proj.bias")]
    moved.unlink()
    run = load_run(tmp_path / "run")
    assert run.model.image_encoder.view == data.test.pictures.view
    assert evaluate_split(run.model, data.dev, run.tokenizer)["rsum"] == run.best["rsum"]


@pytest.mark.parametrize("kind", KINDS)
def test_the_command_line_evaluates_towers_as_they_are(folders, kind, photographs, tmp_path):
    folder, model = folders[kind]
    asked = ["evaluate", str(folder), "--data", str(photographs), "--record", str(tmp_path / "records")]
    told = CliRunner().invoke(app, asked, catch_exceptions=False)
    assert told.exit_code == 0, told.output
    (path,) = (tmp_path / "records").rglob("*.json")
    recipe, tokenizer, mine = built(folder)
    data = load_photographs(photographs, recipe.view())
    of_pictures, of_words = processors(folder, kind)
    pictures = [Image.open(file).convert("RGB") for file in data.test.pictures.files]
    padding = {"clip": True, "siglip": "max_length"}[kind]
    words = of_words(data.test.captions, padding=padding, return_tensors="pt")["input_ids"]
    with torch.no_grad():
        wanted = model(input_ids=words, **of_pictures(images=pictures, return_tensors="pt"))
    wanted = normalize(wanted.image_embeds) @ normalize(wanted.text_embeds).T
    torch.testing.assert_close(score_split(mine, data.test, tokenizer), wanted, atol=1e-5, rtol=1e-4)
    from vsecore.evaluation import evaluate

    assert json.loads(path.read_text())["metrics"]["rsum"] == pytest.approx(
        evaluate(wanted, data.test.owner)["rsum"]
    )


def test_the_command_line_trains_towers_and_evaluates_the_run(folders, photographs, tmp_path):
    folder, _ = folders["clip"]
    run = tmp_path / "run"
    asked = ["train", str(folder), "--data", str(photographs), "--out", str(run), "--device", "cpu"]
    told = CliRunner().invoke(
        app, [*asked, "--set", "training.epochs=1", "--set", "training.batch_size=4"], catch_exceptions=False
    )
    assert told.exit_code == 0 and "test: picture to text" in told.output, told.output
    told = CliRunner().invoke(app, ["evaluate", str(run), "--data", str(photographs)], catch_exceptions=False)
    assert told.exit_code == 0 and "rsum" in told.output, told.output


def test_a_model_that_cannot_be_had_is_told_with_the_folder_to_get(monkeypatch):
    import huggingface_hub

    def no_network(*_, **__):
        raise OSError("no network")

    monkeypatch.setattr(huggingface_hub, "snapshot_download", no_network)
    for name in ("clip_base_patch32", "siglip_base_patch16"):
        recipe = get(name)
        weights = recipe.image.encoder.options["weights"]
        wanted = (
            f"get https://huggingface.co/{weights} .*config.json, model.safetensors, tokenizer.json.*name its"
        )
        for ask in (recipe.view, lambda recipe=recipe: recipe.tokenizer(["a"])):
            with pytest.raises(FileNotFoundError, match=wanted):
                ask()


def test_a_folder_that_lacks_a_file_or_belongs_to_another_model_is_told(folders, tmp_path):
    folder, _ = folders["clip"]
    for lacking in ("model.safetensors", "tokenizer.json", "preprocessor_config.json"):
        copy = tmp_path / lacking
        copy.mkdir()
        for path in folder.iterdir():
            if path.name != lacking:
                (copy / path.name).write_bytes(path.read_bytes())
        with pytest.raises(FileNotFoundError, match=rf"{copy} has no {lacking}"):
            built(copy)
    (copy / "config.json").write_text('{"model_type": "bert"}')
    with pytest.raises(ValueError, match="of type 'bert': wanted clip or siglip"):
        get(str(copy))
    with pytest.raises(ValueError, match="of type 'clip': wanted siglip"):
        built_with = get("siglip_base_patch16").override({"text.encoder.weights": str(folder)})
        built_with.tokenizer(CAPTIONS)
    recipe = get(str(folder)).override({"dim": 8})
    with pytest.raises(
        ValueError, match="dim is 8, and the vectors of these towers have 12 numbers: set dim to 12"
    ):
        recipe.build(3, recipe.tokenizer(CAPTIONS))


def test_older_and_newer_processor_files_say_the_same(folders, tmp_path):
    told = {"size": 32, "crop_size": 32, "resample": 3, "image_mean": [0.5] * 3, "image_std": [0.25] * 3}
    (tmp_path / "preprocessor_config.json").write_text(json.dumps(told))
    old = read_vision_config(tmp_path, "clip", 0.9, False)
    (tmp_path / "preprocessor_config.json").unlink()
    new = told | {"size": {"shortest_edge": 32}, "crop_size": {"height": 32, "width": 32}}
    (tmp_path / "processor_config.json").write_text(json.dumps({"image_processor": new}))
    assert read_vision_config(tmp_path, "clip", 0.9, False) == old
    assert (old.view.side, old.view.resize, old.mean) == (32, 32, (0.5, 0.5, 0.5))


@pytest.mark.parametrize("kind", KINDS)
def test_a_saved_tokenizer_reads_the_same_and_finds_words(folders, kind, tmp_path):
    folder, _ = folders[kind]
    recipe = get(str(folder))
    tokenizer = recipe.tokenizer(CAPTIONS)
    tokenizer.save(tmp_path)
    again = recipe.load_tokenizer(tmp_path)
    assert all(
        torch.equal(a, b) for a, b in zip(tokenizer.encode(CAPTIONS), again.encode(CAPTIONS), strict=True)
    )
    assert len(again) == len(tokenizer)
    assert [word for word, _ in again.words_of("A red dog")] == ["a", "red", "dog"] or kind == "clip"
    long = TokenizedCaptions.encode(tokenizer, ["a red dog " * 40])
    assert long.lengths[0] == {"clip": 24, "siglip": 16}[kind]
    assert long.numbers[-1] == tokenizer.encode(["a"])[0][0, -1]  # a caption that is cut keeps its end
    (tmp_path / tokenizer.file_name).write_text("{}")
    with pytest.raises(ValueError, match=r"tower_tokenizer\.json"):
        recipe.load_tokenizer(tmp_path)

"""CLIP and SigLIP as encoders, against transformers' own outputs; their losses; zero-shot and trained."""

import json
import shutil

import numpy as np
import pytest
import torch
from PIL import Image
from torch.nn.functional import cross_entropy, normalize

from small import assert_resumes_with_the_same_bits
from steps import step_of_scores
from towers import make_towers
from vsecore.data.karpathy import from_files, load_karpathy
from vsecore.data.words import TokenizedCaptions
from vsecore.encoders.pretrained_towers import read_vision_config
from vsecore.recipes import get
from vsecore.training import System, evaluate_split, load_run

KINDS = ("clip", "siglip")
CAPTIONS = ["a red dog", "A big blue square picture of a small cat", "dark"]


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    made = {kind: tmp_path_factory.mktemp(kind) for kind in (*KINDS, "metaclip_2")}
    return {kind: (folder, make_towers(folder, kind)) for kind, folder in made.items()}


def built(folder):
    recipe = get(str(folder))
    tokenizer = recipe.tokenizer(CAPTIONS)
    return recipe, tokenizer, recipe.build(3, tokenizer).eval()


def processed(folder, kind, pictures, captions):
    """Pictures and captions as transformers' own processors make them for these towers."""
    from transformers import (
        CLIPImageProcessorPil,
        CLIPTokenizer,
        PreTrainedTokenizerFast,
        SiglipImageProcessorPil,
    )

    of_pictures, of_words, padding = {
        "siglip": (SiglipImageProcessorPil, PreTrainedTokenizerFast, "max_length")
    }.get(kind, (CLIPImageProcessorPil, CLIPTokenizer, True))
    words = of_words.from_pretrained(folder)
    words = words(captions, padding=padding, truncation=True, return_tensors="pt")
    if kind == "siglip":
        del words["attention_mask"]  # it was trained to see the padding
    return of_pictures.from_pretrained(folder)(images=pictures, return_tensors="pt"), words


@pytest.mark.parametrize("kind", [*KINDS, "metaclip_2"])
def test_both_are_embedded_as_transformers_does_whatever_the_padding(folders, kind):
    folder, model = folders[kind]
    recipe, tokenizer, mine = built(folder)
    dice = np.random.default_rng(1)
    sizes = (50, 41, 3), (33, 70, 3)
    pictures = [Image.fromarray(dice.integers(0, 256, size, dtype=np.uint8)) for size in sizes]
    seen, words = processed(folder, kind, pictures, CAPTIONS)
    pixels = torch.from_numpy(np.stack([recipe.view().plain(picture) for picture in pictures]))
    tokens, mask = tokenizer.encode(CAPTIONS)
    for ids, real, wanted in zip(tokens, mask, words["input_ids"], strict=True):
        assert ids[real].tolist() == wanted[: real.sum()].tolist()
    with torch.no_grad():
        of_pictures = normalize(model.get_image_features(**seen).pooler_output)
        of_captions = normalize(model.get_text_features(**words).pooler_output)
        near = {"atol": 1e-5, "rtol": 1e-4}
        torch.testing.assert_close(mine.encode_pictures(pixels).vectors, of_pictures, **near)
        torch.testing.assert_close(mine.encode_captions(tokens, mask).vectors, of_captions, **near)
        for caption, wanted in zip(CAPTIONS, of_captions, strict=True):
            alone = mine.encode_captions(*tokenizer.encode([caption])).vectors[0]
            torch.testing.assert_close(alone, wanted, **near)


@pytest.mark.parametrize("kind", KINDS)
def test_the_loss_goes_on_where_the_towers_were_trained(folders, kind, drawn_photographs):
    folder, model = folders[kind]
    recipe = get(str(folder))
    data = from_files(load_karpathy(drawn_photographs), recipe.view())
    system = System(recipe, data, recipe.tokenizer(data.train.captions))
    (loss,) = system.losses.values()
    assert float(loss.log_scale.detach()) == pytest.approx(float(model.logit_scale.detach()))
    scores = torch.rand(4, 4, generator=torch.manual_seed(0)) * 2 - 1
    step = step_of_scores(scores)
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


@pytest.mark.parametrize("kind", KINDS)
def test_training_further_resumes_with_the_same_bits_and_needs_no_folder_afterwards(
    folders, kind, drawn_photographs, tmp_path
):
    folder, _ = folders[kind]
    moved = tmp_path / "model"
    moved.symlink_to(folder)
    small = {"epochs": 2, "batch_size": 8, "learning_rate": 1e-3, "warmup_steps": 0}
    recipe = get(str(moved)).override({f"training.{name}": value for name, value in small.items()})
    data = from_files(load_karpathy(drawn_photographs), recipe.view())
    state = assert_resumes_with_the_same_bits(tmp_path / "run", recipe, data, stop=3)
    begun = System(recipe, data, recipe.tokenizer(data.train.captions)).state_dict()
    still = [name for name, x in begun.items() if torch.equal(x, state[name])]
    assert not [name for name in still if "position_ids" not in name and not name.endswith("k_proj.bias")]
    moved.unlink()
    run = load_run(tmp_path / "run")
    assert run.model.image_encoder.view == data.test.pictures.view
    assert evaluate_split(run.model, data.dev, run.tokenizer)["rsum"] == run.best["rsum"]


@pytest.mark.parametrize("name", ["clip_base_patch32", "siglip_base_patch16"])
def test_a_model_that_cannot_be_had_is_told_with_the_folder_to_get(name, monkeypatch):
    import huggingface_hub

    def no_network(*_, **__):
        raise OSError("no network")

    monkeypatch.setattr(huggingface_hub, "snapshot_download", no_network)
    recipe = get(name)
    weights = recipe.image.encoder.options["weights"]
    for ask in (recipe.view, lambda: recipe.tokenizer(["a"])):
        with pytest.raises(FileNotFoundError, match=f"get https://huggingface.co/{weights} .*tokenizer.json"):
            ask()


def test_a_folder_that_lacks_a_file_or_belongs_to_another_model_is_told(folders, tmp_path):
    folder, _ = folders["clip"]
    for lacking in ("model.safetensors", "tokenizer.json", "preprocessor_config.json"):
        copy = tmp_path / lacking
        shutil.copytree(folder, copy)
        (copy / lacking).unlink()
        with pytest.raises(FileNotFoundError, match=rf"{copy} has no {lacking}"):
            built(copy)
    (copy / "config.json").write_text('{"model_type": "bert"}')
    with pytest.raises(ValueError, match="of type 'bert': wanted clip or metaclip_2 or siglip"):
        get(str(copy))
    with pytest.raises(ValueError, match="of type 'clip': wanted siglip"):
        get("siglip_base_patch16").override({"text.encoder.weights": str(folder)}).tokenizer(CAPTIONS)
    recipe = get(str(folder)).override({"dim": 8})
    with pytest.raises(ValueError, match=r"dim is 8.*set dim to 12"):
        recipe.build(3, recipe.tokenizer(CAPTIONS))


@pytest.mark.parametrize("field", ["size", "crop_size", "resample", "image_mean"])
def test_settings_of_pictures_that_are_none_are_refused_by_their_file(folders, tmp_path, field):
    content = json.loads((folders["clip"][0] / "preprocessor_config.json").read_text())
    for junk in ([224, 224], "large", {"height": [3]}, {"height": 224, "width": 200}):
        (tmp_path / "preprocessor_config.json").write_text(json.dumps(content | {field: junk}))
        with pytest.raises(ValueError, match=r"preprocessor_config\.json"):
            read_vision_config(tmp_path, "clip", 0.9, False)


@pytest.mark.parametrize("kind", KINDS)
def test_a_saved_tokenizer_reads_the_same_and_finds_words(folders, kind, tmp_path):
    folder, _ = folders[kind]
    recipe = get(str(folder))
    tokenizer = recipe.tokenizer(CAPTIONS)
    tokenizer.save(tmp_path)
    again = recipe.load_tokenizer(tmp_path)
    torch.testing.assert_close(again.encode(CAPTIONS), tokenizer.encode(CAPTIONS), rtol=0, atol=0)
    assert len(again) == len(tokenizer)
    assert [word for word, _ in again.words_of("A red dog")] == ["a", "red", "dog"] or kind == "clip"
    long = TokenizedCaptions.encode(tokenizer, ["a red dog " * 40])
    assert long.lengths[0] == {"clip": 24, "siglip": 16}[kind]
    assert long.numbers[-1] == tokenizer.encode(["a"])[0][0, -1]  # a caption that is cut keeps its end
    (tmp_path / tokenizer.file_name).write_text("{}")
    with pytest.raises(ValueError, match=r"tower_tokenizer\.json"):
        recipe.load_tokenizer(tmp_path)

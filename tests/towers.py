"""What tests of training from pixels share: a folder of small photographs, and tiny pretrained towers."""

import json

import numpy as np
import torch
from PIL import Image

from vsecore.data.extraction import extract
from vsecore.data.karpathy import load_karpathy
from vsecore.scenes.backbones import find_backbone

COLOURS = ["red", "green", "blue", "dark", "light"]
WORDS = [*COLOURS, "square", "picture", "of", "a", "big", "small", "dog", "cat"]


def make_photographs(root, count=12, side=40):
    """Pictures of one colour each with a little noise, and two captions for each, as Karpathy's JSON."""
    dice = np.random.default_rng(0)
    images = []
    for row in range(count):
        split = "train" if row < count - 4 else "val" if row < count - 2 else "test"
        colour, height = dice.integers(0, 256, 3), side + 3 * row
        pixels = np.clip(colour + dice.integers(-20, 20, (height, side + 7, 3)), 0, 255).astype(np.uint8)
        Image.fromarray(pixels).save(root / f"{row}.png")
        sentences = [{"raw": " ".join(dice.choice(WORDS, dice.integers(2, 6)))} for _ in range(2)]
        images.append({"filename": f"{row}.png", "split": split, "imgid": row, "sentences": sentences})
    (root / "dataset_flickr8k.json").write_text(json.dumps({"dataset": "flickr8k", "images": images}))


def make_extracted(root, words=""):
    """Photographs of which each has five captions, one with these words, and the features of their cells."""
    make_photographs(root, 14)
    annotations = json.loads((root / "dataset_flickr8k.json").read_text())
    for picture in annotations["images"]:
        told = [{"raw": f"a picture of {words}"}] if words else []
        picture["sentences"] = (told + 3 * picture["sentences"])[:5]
    (root / "dataset_flickr8k.json").write_text(json.dumps(annotations))
    extract(load_karpathy(root), find_backbone("scenes-cnn"), root / "features")
    return root


def make_towers(folder, kind):
    """A CLIP, MetaCLIP 2 or SigLIP with random weights, its tokenizer and its picture processor."""
    from transformers import (
        CLIPConfig,
        CLIPImageProcessorPil,
        CLIPModel,
        CLIPTokenizer,
        MetaClip2Config,
        MetaClip2Model,
        PreTrainedTokenizerFast,
        SiglipConfig,
        SiglipImageProcessorPil,
        SiglipModel,
    )

    torch.manual_seed(0)
    sizes = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2}
    vision = sizes | {"image_size": 32, "patch_size": 8}
    if kind != "siglip":
        described, built = {"clip": (CLIPConfig, CLIPModel)}.get(kind, (MetaClip2Config, MetaClip2Model))
        letters = sorted({letter for word in WORDS for letter in word})
        pieces = [*letters, *(letter + "</w>" for letter in letters)]
        vocabulary = {piece: number for number, piece in enumerate(pieces)}
        start = len(vocabulary)
        vocabulary |= {"<|startoftext|>": start, "<|endoftext|>": start + 1}
        CLIPTokenizer(vocab=vocabulary, merges=[], model_max_length=24).save_pretrained(folder)
        text = sizes | {"vocab_size": len(vocabulary), "max_position_embeddings": 24}
        text |= {"bos_token_id": start, "eos_token_id": start + 1}
        config = described(text_config=text, vision_config=vision, projection_dim=12)
        CLIPImageProcessorPil(
            size={"shortest_edge": 32}, crop_size={"height": 32, "width": 32}
        ).save_pretrained(folder)
        model = built(config)
        model.logit_scale.data.fill_(3.0)
    else:
        pieces = _siglip_pieces()
        tokenizer = PreTrainedTokenizerFast(
            tokenizer_object=pieces,
            pad_token="</s>",
            unk_token="<unk>",
            eos_token="</s>",
            model_max_length=16,
        )
        tokenizer.save_pretrained(folder)
        text = sizes | {"vocab_size": len(WORDS) + 2, "max_position_embeddings": 16, "pad_token_id": 1}
        config = SiglipConfig(text_config=text, vision_config=vision)
        SiglipImageProcessorPil(size={"height": 32, "width": 32}).save_pretrained(folder)
        model = SiglipModel(config)
        model.logit_scale.data.fill_(2.5)
        model.logit_bias.data.fill_(-3.0)
    for weight in model.parameters():  # far from the start, so that a mistake shows
        if weight.ndim > 1:
            weight.data += 0.2 * torch.randn_like(weight)
    model.save_pretrained(folder)
    return model.eval()


def _siglip_pieces():
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors

    numbers = {"<unk>": 0, "</s>": 1, **{word: place + 2 for place, word in enumerate(WORDS)}}
    pieces = Tokenizer(models.WordLevel(numbers, unk_token="<unk>"))
    pieces.normalizer = normalizers.Lowercase()
    pieces.pre_tokenizer = pre_tokenizers.Whitespace()
    pieces.post_processor = processors.TemplateProcessing(single="$A </s>", special_tokens=[("</s>", 1)])
    return pieces

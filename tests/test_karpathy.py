import json
import os
import re
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import psutil
import pytest
from PIL import Image
from typer.testing import CliRunner

from vsecore import cli
from vsecore.data import karpathy
from vsecore.data.karpathy import CaptionSplit, check_photographs, load_karpathy
from vsecore.data.picture_files import open_picture

Album = Callable[..., Path]


def edit(folder: Path, change: Callable[[dict], object]) -> None:
    path = folder / "dataset_album.json"
    content = json.loads(path.read_text())
    change(content)
    path.write_text(json.dumps(content))


def by_picture(split: CaptionSplit) -> dict[str, list[str]]:
    captions: dict[str, list[str]] = {file.name: [] for file in split.files}
    for caption, row in zip(split.captions, split.owner, strict=True):
        captions[split.files[row].name].append(caption)
    return captions


def test_training_is_train_and_restval_and_dev_is_val(album: Album) -> None:
    splits = load_karpathy(album())
    assert list(splits) == ["train", "dev", "test"]
    assert [file.name for file in splits["train"].files] == [
        *(f"train{i}.jpg" for i in range(5)),
        "restval0.jpg",
    ]
    assert by_picture(splits["dev"])["val1.jpg"] == [f"Caption {c} of the val picture 1 ." for c in range(5)]
    assert all(split.dataset == "album" and split.name == name for name, split in splits.items())
    assert repr(splits["train"]) == "CaptionSplit('train' of album: 6 pictures, 30 captions)"


def test_the_first_five_captions_are_used_each_on_one_line(album: Album) -> None:
    folder = album(captions=7)
    edit(folder, lambda content: content["images"][0]["sentences"][1].update(raw=" A dog\n runs. \n"))
    edit(folder, lambda content: content["images"][0]["sentences"][2].update(raw="  "))
    train = load_karpathy(folder)["train"]
    assert by_picture(train)["train0.jpg"][1:3] == ["A dog runs.", "Caption 3 of the train picture 0 ."]
    assert np.array_equal(np.bincount(train.owner), np.full(6, 5))


@pytest.mark.parametrize("place", ["", "val2014", "images/val2014", "images"])
def test_pictures_are_found_where_coco_keeps_them(album: Album, place: str) -> None:
    folder = album()

    def as_coco(content: dict) -> None:
        for number, image in enumerate(content["images"]):
            image.update(filepath="val2014", cocoid=1000 + number)

    edit(folder, as_coco)
    pictures = list((folder / "images").iterdir())
    (folder / place).mkdir(exist_ok=True)
    for picture in pictures:
        picture.rename(folder / place / picture.name)
    train = load_karpathy(folder)["train"]
    assert all(file.parent == folder / place and file.is_file() for file in train.files)
    assert train.picture_ids[0] == "1000"


def text_files(folder: Path) -> Path:
    """The same album in Flickr8k's own format, with two ids that have captions and no picture."""
    content = json.loads((folder / "dataset_album.json").read_text())
    lines, lists = [], {"train": [], "dev": [], "test": []}
    for image in content["images"]:
        lists[{"val": "dev", "restval": "train"}.get(image["split"], image["split"])].append(
            image["filename"]
        )
        lines += [f"{image['filename']}#{n}\t{s['raw']}" for n, s in enumerate(image["sentences"])]
    lines += ["lost.jpg#0\tA lost picture .", "lost.jpg.1#0\tA lost picture ."]
    token = folder / "Flickr8k.token.txt"
    token.write_text("\n".join(lines) + "\n")
    for name, names in lists.items():
        (folder / f"Flickr_8k.{name}Images.txt").write_text("\n".join(names) + "\n")
    return token


def test_text_files_give_the_same_as_the_json(album: Album) -> None:
    folder = album()
    token = text_files(folder)
    wanted = load_karpathy(folder)
    given = load_karpathy(folder, token)
    (folder / "dataset_album.json").unlink()
    found = load_karpathy(folder)
    for name in wanted:
        assert by_picture(given[name]) == by_picture(wanted[name]) == by_picture(found[name])


def test_ids_without_a_picture_are_told_and_do_no_harm(album: Album) -> None:
    folder = album()
    report = check_photographs(folder, text_files(folder))
    assert report.problems == []
    assert "2 ids (lost.jpg, lost.jpg.1) with captions but no picture: not used" in report.facts


def test_missing_pictures_are_counted_and_named(album: Album) -> None:
    folder = album()
    for number in range(4):
        (folder / "images" / f"train{number}.jpg").unlink()
    wanted = r"4 pictures \(train0.jpg, train1.jpg, train2.jpg, ...\) of split 'train'"
    with pytest.raises(FileNotFoundError, match=wanted) as caught:
        load_karpathy(folder)
    assert check_photographs(folder).problems == [str(caught.value)]


def test_a_missing_folder_or_annotation_is_named(album: Album, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"no folder .*nowhere"):
        load_karpathy(tmp_path / "nowhere")
    assert "nowhere" in check_photographs(tmp_path / "nowhere").problems[0]
    with pytest.raises(FileNotFoundError, match=r"no folder ~no-such-user"):
        load_karpathy("~no-such-user")
    with pytest.raises(FileNotFoundError, match=r"holds no dataset_\*.json"):
        load_karpathy(tmp_path)
    folder = album()
    with pytest.raises(FileNotFoundError, match=r"dataset_other.json"):
        load_karpathy(folder, folder / "dataset_other.json")
    (folder / "dataset_second.json").touch()
    with pytest.raises(ValueError, match=r"dataset_album.json, dataset_second.json"):
        load_karpathy(folder)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda c: c.pop("images"), 'lacks the field "images"'),
        (lambda c: c["images"][3].pop("sentences"), r'images\[3\] lacks the field "sentences"'),
        (lambda c: c["images"][3].pop("filename"), r'images\[3\] lacks the field "filename"'),
        (
            lambda c: c["images"][3]["sentences"][1].pop("raw"),
            r'images\[3\].sentences\[1\] lacks.*"raw"',
        ),
        (lambda c: c["images"][3].update(split="eval"), r"images\[3\].split is 'eval'"),
        (lambda c: c["images"][3].update(sentences=[]), r"1 picture \(train3.jpg\) .*without captions"),
        (
            lambda c: [i.update(sentences=[]) for i in c["images"] if i["split"] == "val"],
            "'dev' has no captions",
        ),
        (
            lambda c: [i.update(split="val") for i in c["images"] if i["split"] == "test"],
            "no pictures of split 'test'",
        ),
        (lambda c: c.update(dataset="../escape"), "dataset is '../escape'"),
    ],
)
def test_a_damaged_json_is_named_with_its_field(album: Album, change: Callable, message: str) -> None:
    folder = album()
    edit(folder, change)
    with pytest.raises(ValueError, match=f"dataset_album.json.*{message}"):
        load_karpathy(folder)
    assert check_photographs(folder).problems


IMAGE = {"filename": "train1.jpg", "split": "test", "sentences": [{"raw": "A dog ."}]}
NO_FILE_NAMES = (
    "",
    ".",
    "..",
    "../a.jpg",
    "/a.jpg",
    "a/b.jpg",
    "a\\b.jpg",
    "C:a",
    "a\0b",
    "a\nb",
    " a",
    "\ufeffa",
)
NO_FOLDERS = (
    " ..",
    " ../x",
    " /etc",
    "..",
    "../x",
    "a/../../x",
    "/etc",
    "C:/x",
    "a\\b",
    "..\\x",
    "a\0b",
    "a\nb",
)


def third(**fields: object) -> Callable[[dict], object]:
    """Change the fourth picture's fields."""
    return lambda content: content["images"][3].update(fields)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda c: c.update(images={}), "images is {}: wanted a list"),
        (lambda c: c.update(images=None), "images is None: wanted a list"),
        (lambda c: c.update(images=[]), "no pictures of split 'train'"),
        (lambda c: c.update(dataset=7), "dataset is 7: wanted text"),
        (lambda c: c.update(dataset="a" * 300), "dataset is 'a.*wanted a name of at most 100"),
        (lambda c: c["images"].insert(3, 7), r"images\[3\] is 7: wanted named values"),
        (lambda c: c["images"][3].pop("split"), r'images\[3\] lacks the field "split"'),
        (third(split=["test"]), r"images\[3\].split is \['test'\]: wanted one of"),
        (third(filename=["a"]), r"images\[3\].filename is \['a'\]: wanted text"),
        (third(filepath=None), r"images\[3\].filepath is None: wanted text"),
        (third(cocoid=1.5), r"images\[3\].cocoid is 1.5: wanted a whole number"),
        (third(cocoid="1\n2"), r"images\[3\].cocoid is .*wanted a whole number"),
        (third(sentences=None), r"images\[3\].sentences is None: wanted a list"),
        (third(sentences={}), r"images\[3\].sentences is {}: wanted a list"),
        (third(sentences=["A dog ."]), r"sentences\[0\] is 'A dog .': wanted named"),
        (third(sentences=[{"raw": 7}]), r"sentences\[0\].raw is 7: wanted text"),
        # A name that leads out of the root, or that no line of a text file can hold.
        *((third(filename=name), r"\[3\].filename is .*the name of a file") for name in NO_FILE_NAMES),
        *((third(filepath=name), r"\[3\].filepath is .*inside the root") for name in NO_FOLDERS),
        # The same picture twice: a leak, or its own wrong answer.
        (
            lambda c: c["images"].append(IMAGE),
            r"images\[1\] and images\[10\] are the same .*'train' .*'test'",
        ),
        (lambda c: c["images"].append(c["images"][1]), r"images\[1\] and images\[10\] are the same picture"),
        (lambda c: c["images"].append(IMAGE | {"split": "train"}), "are the same picture"),
        (
            lambda c: (c["images"][1].update(cocoid=12), c["images"][8].update(cocoid=12)),
            r"images\[1\] and images\[8\] are the same picture .*12.*'train' .*'test'",
        ),
        (
            lambda c: (c["images"][1].update(imgid=12), c["images"][8].update(imgid=12)),
            r"images\[1\] \(train1.jpg\) and images\[8\] \(test0.jpg\) both have the imgid 12",
        ),
        (lambda c: c["images"].append(IMAGE | {"filepath": "images/."}), "are both the picture .*train1.jpg"),
    ],
)
def test_a_json_that_lies_is_refused_by_loading_and_by_checking(
    album: Album, change: Callable, message: str
) -> None:
    folder = album()
    edit(folder, change)
    with pytest.raises(ValueError, match=f"dataset_album.json.*{message}") as caught:
        load_karpathy(folder)
    assert "\n" not in str(caught.value)
    assert str(caught.value) in check_photographs(folder).problems


def test_a_name_is_unique_in_its_folder(album: Album) -> None:
    folder = album()
    (folder / "more").mkdir()
    shutil.copy(folder / "images" / "val0.jpg", folder / "more" / "train1.jpg")
    other = IMAGE | {"filepath": "./more/", "sentences": 5 * [{"raw": "A dog ."}]}
    edit(folder, lambda content: content["images"].append(other))
    test = load_karpathy(folder)["test"]
    assert test.files[2] == folder / "more" / "train1.jpg" and test.picture_ids[2] == "more/train1.jpg"
    assert check_photographs(folder).problems == []


@pytest.mark.skipif(sys.platform == "win32", reason="links are for those who may make them")
def test_large_collections_may_lie_behind_links(album: Album, tmp_path: Path) -> None:
    folder, disk = album(), tmp_path / "disk"
    (folder / "images").rename(disk)
    (folder / "images").symlink_to(disk, target_is_directory=True)
    (disk / "train0.jpg").rename(tmp_path / "far.jpg")
    (disk / "train0.jpg").symlink_to(tmp_path / "far.jpg")
    (disk / "loop.jpg").symlink_to(disk / "loop.jpg")
    (tmp_path / "link").symlink_to(folder, target_is_directory=True)
    assert len(load_karpathy(tmp_path / "link")["train"].files) == 6
    assert check_photographs(tmp_path / "link").problems == []
    # Two names of one folder make no two pictures of one.
    (folder / "copy").symlink_to(disk, target_is_directory=True)
    edit(folder, lambda content: content["images"].append(IMAGE | {"filepath": "copy"}))
    with pytest.raises(ValueError, match="are both the picture"):
        load_karpathy(folder)


@pytest.mark.skipif(sys.platform == "win32", reason="there are no pipes in folders")
def test_pipes_and_folders_are_no_files(album: Album) -> None:
    folder = album()
    for name, make in (("train0.jpg", os.mkfifo), ("train1.jpg", os.mkdir)):
        (folder / "images" / name).unlink()
        make(folder / "images" / name)
    wanted = r"2 pictures \(train0.jpg, train1.jpg\) of split 'train' not found in"
    with pytest.raises(FileNotFoundError, match=wanted):
        load_karpathy(folder)
    assert len(check_photographs(folder).problems) == 1
    (folder / "dataset_album.json").unlink()
    os.mkfifo(folder / "dataset_album.json")
    with pytest.raises(FileNotFoundError, match=r"no file .*dataset_album.json"):
        load_karpathy(folder)
    assert "no file" in check_photographs(folder).problems[0]


def test_the_captions_may_be_named_to_a_check_as_to_an_extraction(album: Album) -> None:
    folder = album()
    other = folder / "album.json"
    (folder / "dataset_album.json").rename(other)
    for arguments, status in (([], 1), (["--captions", str(other)], 0)):
        result = CliRunner().invoke(cli.app, ["data", "check", str(folder), *arguments])
        assert result.exit_code == status, result.output


@pytest.mark.parametrize(
    ("file", "change", "message"),
    [
        (
            "Flickr_8k.testImages.txt",
            lambda t: t + "train1.jpg\n",
            "line 3: train1.jpg is in the list of split 'train'",
        ),
        (
            "Flickr_8k.testImages.txt",
            lambda t: t + "test1.jpg\n",
            "line 3: test1.jpg is in this list already",
        ),
        ("Flickr_8k.testImages.txt", lambda t: t + "../x.jpg\n", "line 3: the picture is '../x.jpg': wanted"),
        ("Flickr8k.token.txt", lambda t: t + "test1.jpg#0\tA dog .\n", "test1.jpg#0 is there already"),
        ("Flickr8k.token.txt", lambda t: t + "test1.jpg#a\tA dog .\n", "wanted picture#number, a tab and"),
        ("Flickr8k.token.txt", lambda t: t + "/test1.jpg#5\tA dog .\n", "the picture is '/test1.jpg'"),
        ("Flickr8k.token.txt", lambda t: t + "\n", "wanted picture#number, a tab and"),
        ("Flickr8k.token.txt", lambda t: t.replace("\n", "\r"), "without captions"),
    ],
)
def test_text_files_that_lie_are_refused_by_loading_and_by_checking(
    album: Album, file: str, change: Callable, message: str
) -> None:
    folder = album()
    token = text_files(folder)
    path = folder / file
    path.write_bytes(change(path.read_text()).encode())
    with pytest.raises(ValueError, match=f"{file}.*({message})") as caught:
        load_karpathy(folder, token)
    assert str(caught.value) in check_photographs(folder, token).problems


@pytest.mark.parametrize("file", ["Flickr8k.token.txt", "Flickr_8k.trainImages.txt"])
def test_text_files_of_other_editors_are_read_or_named(album: Album, file: str) -> None:
    folder = album()
    token = text_files(folder)
    wanted = by_picture(load_karpathy(folder, token)["train"])
    good = (folder / file).read_text()
    for same in (good.replace("\n", "\r\n").encode(), good.encode("utf-8-sig")):
        (folder / file).write_bytes(same)
        assert by_picture(load_karpathy(folder, token)["train"]) == wanted
    (folder / file).write_bytes(good.encode("utf-16"))
    with pytest.raises(ValueError, match=f"{file} is not UTF-8 text"):
        load_karpathy(folder, token)


@pytest.mark.parametrize("file", ["dataset_album.json", "Flickr8k.token.txt", "Flickr_8k.devImages.txt"])
def test_annotations_larger_than_the_memory_are_refused_before_they_are_read(album: Album, file: str) -> None:
    folder = album()
    token = text_files(folder)
    os.truncate(folder / file, psutil.virtual_memory().total)  # zeros, which take no room on the disk
    captions = None if file.endswith("json") else token
    with pytest.raises(ValueError, match=rf"{file} has .* GB, and to read it takes 4 times") as caught:
        load_karpathy(folder, captions)
    assert check_photographs(folder, captions).problems == [str(caught.value)]


def test_damaged_text_files_are_named(album: Album) -> None:
    folder = album()
    token = text_files(folder)
    text = token.read_text()
    token.write_text(text.replace("\t", " ", 1))
    with pytest.raises(ValueError, match=r"token.txt, line 1"):
        load_karpathy(folder, token)
    token.write_text(text)
    (folder / "Flickr_8k.devImages.txt").unlink()
    with pytest.raises(FileNotFoundError, match=r"Flickr_8k.devImages.txt.*'dev'"):
        load_karpathy(folder, token)
    (folder / "dataset_album.json").write_text("{")
    with pytest.raises(ValueError, match=r"dataset_album.json is not JSON"):
        load_karpathy(folder)


def test_a_check_opens_every_picture(album: Album) -> None:
    folder = album()
    assert check_photographs(folder).problems == []
    broken = folder / "images" / "test1.jpg"
    broken.write_bytes(broken.read_bytes()[:400])
    (folder / "images" / "val0.jpg").write_text("no picture")
    problems = "\n".join(check_photographs(folder).problems)
    assert "test1.jpg cannot be read" in problems and "val0.jpg cannot be read" in problems


def test_a_picture_under_two_names_in_two_splits_is_a_warning(album: Album) -> None:
    folder = album()
    assert check_photographs(folder).warnings == []
    pictures = folder / "images"
    shutil.copy(pictures / "train0.jpg", pictures / "test1.jpg")
    shutil.copy(pictures / "train1.jpg", pictures / "train2.jpg")  # in one split it is no leak
    (pictures / "val0.jpg").write_bytes(b"broken")  # told once, as a problem
    (pictures / "val1.jpg").write_bytes(b"broken")
    report = check_photographs(folder)
    [warning] = report.warnings
    assert "train and test have 1 picture (train0.jpg and test1.jpg) in common" in warning
    assert len(report.problems) == 2
    load_karpathy(folder)
    shutil.copy(pictures / "train0.jpg", pictures / "val0.jpg")
    shutil.copy(pictures / "train3.jpg", pictures / "val1.jpg")
    said = CliRunner().invoke(cli.app, ["data", "check", str(folder)])
    assert said.exit_code == 0 and said.output.count("warning: ") == 3 and "ready" in said.output
    assert "train and dev have 2 pictures (train0.jpg and val0.jpg, train3.jpg and val1.jpg)" in said.output


def test_only_pictures_of_one_size_are_compared(album: Album, monkeypatch: pytest.MonkeyPatch) -> None:
    folder, read = album(), []
    for number, picture in enumerate(sorted((folder / "images").iterdir())):
        picture.write_bytes(picture.read_bytes() + bytes(1000 * number))  # what follows a picture is ignored
    monkeypatch.setattr(karpathy, "digest_of", read.append)
    check_photographs(folder)
    assert read == []


def test_a_check_finds_pictures_with_too_few_captions(album: Album) -> None:
    folder = album(captions=6)
    assert check_photographs(folder).problems == []  # the first five are used
    edit(folder, lambda content: content["images"][3].update(sentences=[{"raw": "A dog ."}]))
    (problem,) = check_photographs(folder).problems
    assert problem.startswith("split 'train': 1 picture (train3.jpg) with fewer than 5 captions")
    assert len(load_karpathy(folder)["train"].captions) == 26  # reading them is allowed


def test_a_picture_that_would_fill_the_memory_is_a_problem(
    album: Album, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = album()
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 100)
    problems = check_photographs(folder).problems
    assert len(problems) == 10 and "train0.jpg cannot be read as a picture" in problems[0]


def test_a_picture_is_read_in_colour_and_as_small_as_is_enough(tmp_path: Path) -> None:
    Image.new("L", (800, 640), 7).save(tmp_path / "grey.jpg")
    whole, small = open_picture(tmp_path / "grey.jpg"), open_picture(tmp_path / "grey.jpg", at_least=100)
    assert whole.mode == small.mode == "RGB" and whole.getpixel((3, 3)) == (7, 7, 7)
    assert whole.size == (800, 640) and 100 <= min(small.size) < 640
    with pytest.raises(ValueError, match=r"nowhere.jpg cannot be read as a picture"):
        open_picture(tmp_path / "nowhere.jpg")


def test_flickr8k_is_the_same_in_both_formats(photographs: Path) -> None:
    folder = photographs / "flickr8k"
    from_json, from_text = load_karpathy(folder), load_karpathy(folder, folder / "Flickr8k.token.txt")
    for name, pictures in (("train", 6000), ("dev", 1000), ("test", 1000)):
        assert len(from_json[name].files) == pictures and len(from_json[name].captions) == 5 * pictures
        assert by_picture(from_json[name]) == by_picture(from_text[name])
        assert from_json[name].dataset == "flickr8k"


def test_a_caption_as_long_as_a_book_is_refused(album: Callable[..., Path]) -> None:
    folder = album()
    path = folder / "dataset_album.json"
    content = json.loads(path.read_text())
    content["images"][0]["sentences"][1]["raw"] = "word " * 9_000
    path.write_text(json.dumps(content))
    told = r"a caption of 'train0.jpg' has 44999 characters"
    with pytest.raises(ValueError, match=told):
        load_karpathy(folder)
    assert any(re.search(told, problem) for problem in check_photographs(folder).problems)

import json
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from vsecore.data import files
from vsecore.data.annotations import read_annotations
from vsecore.data.karpathy import check_photographs, load_karpathy


def edit(folder, change):
    path = folder / "dataset_album.json"
    content = json.loads(path.read_text())
    change(content)
    path.write_text(json.dumps(content))


def by_picture(split):
    captions = {file.name: [] for file in split.files}
    for caption, row in zip(split.captions, split.owner, strict=True):
        captions[split.files[row].name].append(caption)
    return captions


def test_training_is_train_and_restval_and_dev_is_val(album):
    splits = load_karpathy(album())
    assert list(splits) == ["train", "dev", "test"]
    assert [file.name for file in splits["train"].files] == [
        *(f"train{i}.jpg" for i in range(5)),
        "restval0.jpg",
    ]
    assert by_picture(splits["dev"])["val1.jpg"] == [f"Caption {c} of the val picture 1 ." for c in range(5)]
    assert all(split.dataset == "album" and split.name == name for name, split in splits.items())


def test_the_first_five_captions_are_used_each_on_one_line(album):
    folder = album(captions=7)
    assert len(load_karpathy(folder)["train"].captions) == 6 * 5
    edit(folder, lambda content: content["images"][0]["sentences"][1].update(raw=" A dog\n runs. \n"))
    edit(folder, lambda content: content["images"][0]["sentences"][2].update(raw="  "))
    train = load_karpathy(folder)["train"]
    assert by_picture(train)["train0.jpg"][1:3] == ["A dog runs.", "Caption 3 of the train picture 0 ."]
    assert np.array_equal(np.bincount(train.owner), np.full(6, 5))


@pytest.mark.parametrize("place", ["", "val2014", "images/val2014", "images"])
def test_pictures_are_found_where_coco_keeps_them(album, place):
    folder = album()

    def as_coco(content):
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


def text_files(folder):
    """The same album in Flickr8k's own format, with two ids that have captions and no picture."""
    content = json.loads((folder / "dataset_album.json").read_text())
    lines, lists = [], {"train": [], "dev": [], "test": []}
    for image in content["images"]:
        split = {"val": "dev", "restval": "train"}.get(image["split"], image["split"])
        lists[split].append(image["filename"])
        lines += [f"{image['filename']}#{n}\t{s['raw']}" for n, s in enumerate(image["sentences"])]
    lines += ["lost.jpg#0\tA lost picture .", "lost.jpg.1#0\tA lost picture ."]
    token = folder / "Flickr8k.token.txt"
    token.write_text("\n".join(lines) + "\n")
    for name, names in lists.items():
        (folder / f"Flickr_8k.{name}Images.txt").write_text("\n".join(names) + "\n")
    return token


def test_text_files_give_the_same_as_the_json(album):
    folder = album()
    token = text_files(folder)
    wanted = load_karpathy(folder)
    given = load_karpathy(folder, token)
    (folder / "dataset_album.json").unlink()
    found = load_karpathy(folder)
    for name in wanted:
        assert by_picture(given[name]) == by_picture(wanted[name]) == by_picture(found[name])
    report = check_photographs(folder)  # ids without a picture do no harm
    assert report.problems == [] and any("lost.jpg" in fact for fact in report.facts)


def test_missing_pictures_are_counted_and_named(album):
    folder = album()
    for number in range(4):
        (folder / "images" / f"train{number}.jpg").unlink()
    with pytest.raises(FileNotFoundError, match=r"4 pictures \(train0.jpg, .*of split 'train'") as caught:
        load_karpathy(folder)
    assert check_photographs(folder).problems == [str(caught.value)]


def test_a_missing_folder_or_annotation_is_named(album, tmp_path):
    for root in (tmp_path / "nowhere", "~no-such-user", tmp_path):
        with pytest.raises(FileNotFoundError, match=f"no f.*{root}"):
            load_karpathy(root)
        assert str(root) in check_photographs(root).problems[0]
    folder = album()
    with pytest.raises(FileNotFoundError, match=r"dataset_other.json"):
        load_karpathy(folder, folder / "dataset_other.json")
    (folder / "dataset_second.json").touch()
    with pytest.raises(ValueError, match=r"dataset_album.json, dataset_second.json"):
        load_karpathy(folder)


IMAGE = {"filename": "train1.jpg", "split": "test", "sentences": [{"raw": "A dog ."}]}
NO_FILE_NAMES = ["", ".", "..", "../a", "/a.jpg", "a/b.jpg", "a\\b", "C:a", "a\0b", "a\nb", " a", "\ufeffa"]
NO_FOLDERS = [" ..", " /etc", "..", "../x", "a/../../x", "/etc", "C:/x", "a\\b", "..\\x", "a\0b", "a\nb"]


def third(**fields):
    """Change the fourth picture's fields."""
    return lambda content: content["images"][3].update(fields)


def in_split(name, **fields):
    return lambda content: [one.update(fields) for one in content["images"] if one["split"] == name]


LIES = [
    (lambda c: c.pop("images"), "images"),
    (lambda c: c.update(images=[]), "split 'train'"),
    (lambda c: c.update(dataset="../escape"), "dataset"),
    (lambda c: c["images"][3]["sentences"][1].pop("raw"), r"sentences\[1\]"),
    (third(split="eval"), "split"),
    (third(sentences=[{"raw": "word " * 9_000}]), "raw"),
    (third(sentences=[]), "train3.jpg"),
    (in_split("val", sentences=[]), "'dev'"),
    (in_split("test", split="val"), "'test'"),
    # A name that leads out of the root, or that no line of a text file can hold.
    *((third(filename=name), r"\[3\].filename") for name in NO_FILE_NAMES),
    *((third(filepath=name), r"\[3\].filepath") for name in NO_FOLDERS),
    # The same picture twice: a leak, or its own wrong answer.
    (lambda c: c["images"].append(IMAGE | {"split": "train"}), r"images\[1\] and images\[10\]"),
    (lambda c: [c["images"][row].update(cocoid=12) for row in (1, 8)], r"images\[1\] and images\[8\]"),
    (lambda c: [c["images"][row].update(imgid=12) for row in (1, 8)], r"images\[1\].* and images\[8\]"),
    (lambda c: c["images"].append(IMAGE | {"filepath": "images/."}), r"images\[1\].* and images\[10\]"),
]


@pytest.mark.parametrize(("change", "named"), LIES, ids=range(len(LIES)))
def test_a_json_that_lies_is_refused_by_loading_and_by_checking(album, change, named):
    folder = album()
    edit(folder, change)
    with pytest.raises(ValueError, match=f"dataset_album.json.*{named}") as caught:
        load_karpathy(folder)
    assert "\n" not in str(caught.value)
    assert str(caught.value) in check_photographs(folder).problems


def test_a_name_is_unique_in_its_folder(album):
    folder = album()
    (folder / "more").mkdir()
    shutil.copy(folder / "images" / "val0.jpg", folder / "more" / "train1.jpg")
    other = IMAGE | {"filepath": "./more/", "sentences": 5 * [{"raw": "A dog ."}]}
    edit(folder, lambda content: content["images"].append(other))
    test = load_karpathy(folder)["test"]
    assert test.files[2] == folder / "more" / "train1.jpg" and test.picture_ids[2] == "more/train1.jpg"
    assert check_photographs(folder).problems == []


@pytest.mark.skipif(sys.platform == "win32", reason="links are for those who may make them")
def test_large_collections_may_lie_behind_links(album, tmp_path):
    folder, disk = album(), tmp_path / "disk"
    (folder / "images").rename(disk)
    (folder / "images").symlink_to(disk, target_is_directory=True)
    (disk / "train0.jpg").rename(tmp_path / "far.jpg")
    (disk / "train0.jpg").symlink_to(tmp_path / "far.jpg")
    (tmp_path / "link").symlink_to(folder, target_is_directory=True)
    assert len(load_karpathy(tmp_path / "link")["train"].files) == 6
    assert check_photographs(tmp_path / "link").problems == []


TEXT_LIES = [
    ("Flickr_8k.testImages.txt", lambda text: text + "train1.jpg\n"),
    ("Flickr_8k.testImages.txt", lambda text: text + "test1.jpg\n"),
    ("Flickr8k.token.txt", lambda text: text + "test1.jpg#0\tA dog .\n"),
    ("Flickr8k.token.txt", lambda text: text + "test1.jpg#a\tA dog .\n"),
    ("Flickr8k.token.txt", lambda text: text.replace("\t", " ", 1)),
    ("Flickr8k.token.txt", lambda text: text.replace("\n", "\r")),
]


@pytest.mark.parametrize(("file", "change"), TEXT_LIES, ids=range(len(TEXT_LIES)))
def test_text_files_that_lie_are_refused_by_loading_and_by_checking(album, file, change):
    folder = album()
    token = text_files(folder)
    path = folder / file
    path.write_bytes(change(path.read_text()).encode())
    with pytest.raises(ValueError, match=file) as caught:
        load_karpathy(folder, token)
    assert str(caught.value) in check_photographs(folder, token).problems


def test_a_check_opens_every_picture(album, monkeypatch):
    folder = album()
    assert check_photographs(folder).problems == []
    broken = folder / "images" / "test1.jpg"
    broken.write_bytes(broken.read_bytes()[:400])
    (folder / "images" / "val0.jpg").write_text("no picture")
    problems = "\n".join(check_photographs(folder).problems)
    assert "test1.jpg cannot be read" in problems and "val0.jpg cannot be read" in problems
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 100)  # as if each would fill the memory
    assert len(check_photographs(folder).problems) == 10


def test_a_picture_under_two_names_in_two_splits_is_a_warning(album, monkeypatch):
    folder, read, digest_of = album(), [], files.digest_of
    monkeypatch.setattr(files, "digest_of", lambda path: read.append(path.name) or digest_of(path))
    assert not [warning for warning in check_photographs(folder).warnings if "in common" in warning]
    pictures = folder / "images"
    shutil.copy(pictures / "train0.jpg", pictures / "test1.jpg")
    shutil.copy(pictures / "train1.jpg", pictures / "train2.jpg")  # in one split it is no leak
    (pictures / "val0.jpg").write_bytes(b"broken")  # told once, as a problem
    (pictures / "val1.jpg").write_bytes(b"broken")
    with (pictures / "train4.jpg").open("ab") as file:
        file.write(bytes(1000))  # what follows a picture is ignored
    read.clear()
    report = check_photographs(folder)
    assert "train0.jpg" in read and "train4.jpg" not in read  # only pictures of one size are compared
    [warning] = [warning for warning in report.warnings if "in common" in warning]
    assert "train and test have 1 picture (train0.jpg and test1.jpg) in common" in warning
    assert len(report.problems) == 2
    load_karpathy(folder)


def test_a_check_finds_pictures_with_too_few_captions(album):
    folder = album(captions=6)
    assert check_photographs(folder).problems == []  # the first five are used
    edit(folder, lambda content: content["images"][3].update(sentences=[{"raw": "A dog ."}]))
    assert check_photographs(folder).problems == []  # of one's own, all are used
    assert len(load_karpathy(folder)["train"].captions) == 31
    edit(folder, lambda content: content.update(dataset="flickr8k"))
    (problem,) = check_photographs(folder).problems
    assert problem.startswith("split 'train': 1 picture (train3.jpg) with fewer than 5 captions")
    assert len(load_karpathy(folder)["train"].captions) == 26  # reading them is allowed


def test_captions_of_ones_own_are_a_table_or_stand_beside_the_pictures(album, tmp_path, monkeypatch):
    source, rows, root = load_karpathy(album()), ["image;split;caption"], Path("coco")
    monkeypatch.chdir(tmp_path)
    (root / "d").mkdir(parents=True)
    for row, (file, split) in enumerate((f, n) for n, s in source.items() for f in s.files):
        shutil.copy(file, root / "d" / f"e\u0301{row}.jpg")  # as macOS writes é; the table has the other form
        folder = ("d", tmp_path / "coco" / "d")[row % 2]
        rows += [f'{folder}/é{row}.jpg;{split};"a; {split} {row}"'] * (1 + row % 2)
        (root / "d" / f"e\u0301{row}.txt").write_text(f"a; {split} {row}\n\n" * (1 + row % 2))
    (root / "captions.csv").write_text("\n".join(rows), encoding="utf-8-sig")
    found = load_karpathy(root)
    assert [len(split.files) for split in found.values()] == [len(split.files) for split in source.values()]
    for name, split in found.items():
        for caption, p in zip(split.captions, split.owner, strict=True):
            assert caption.endswith(f" {name} {split.files[p].stem[2:]}")
    report = check_photographs(root)
    assert report.problems == [] and "called own-coco" in report.warnings[0]
    (root / "captions.csv").write_text("\n".join(row for row in rows if ";test;" not in row))
    with pytest.raises(ValueError, match=r"'test' has no pictures.*column split"):
        load_karpathy(root)
    (root / "captions.csv").unlink()
    beside = load_karpathy(root)  # shared out by their bytes
    of_all = [sorted(c for s in splits.values() for c in s.captions) for splits in (beside, found)]
    assert of_all[0] == of_all[1] and beside["test"].files == load_karpathy(root)["test"].files
    for end in ("jpg", "txt"):
        shutil.copy(root / "d" / f"e\u03010.{end}", root / f" 0.{end}")
    with pytest.raises(ValueError, match="begins with a blank"):
        load_karpathy(root)


@pytest.mark.parametrize(
    ("lines", "named"),
    [
        (["1.jpg,a dog, running"], "line 2: 3 fields"),
        (["1.jpg"], "line 2: 1 fields"),
        (['1.jpg,"a dog', "2.jpg,a cat", '3.jpg,a bird"'], "line 2: a quote .*2.jpg"),
        (["1.jpg,a dog", '2.jpg,"a cat'], "line 3: .*quote"),
        (["1.jpg,a dog", "2.jpg,a \0 cat"], "line 3: "),
        (["1.jpg,a dog", ",a cat"], "line 3: file ''"),
    ],
)
def test_a_table_is_refused_by_its_line(tmp_path, lines, named):
    (tmp_path / "captions.csv").write_text("\n".join(["file,caption", *lines]))
    with pytest.raises(ValueError, match=named):
        load_karpathy(tmp_path)


def test_in_a_table_with_bars_a_quote_is_a_letter(tmp_path):
    (tmp_path / "captions.csv").write_text('image|comment\n1.jpg| "a" dog\n1.jpg|"a cat\n')
    assert read_annotations(tmp_path / "captions.csv")[1][0].captions == ['"a" dog', '"a cat']


def test_a_picture_is_looked_for_in_the_folder_that_is_told(album, monkeypatch):
    folder = album()
    pictures = (folder / "images").rename(folder / "2020")
    edit(folder, lambda content: content["images"][2].update(filepath="data/album/2020"))
    edit(folder, lambda content: content["images"][3].update(filepath="album/2019"))
    with pytest.raises(FileNotFoundError, match=r"1 picture \(album/2019/train3.jpg\)"):
        load_karpathy(folder)
    (folder / "2019").mkdir()
    shutil.copy(pictures / "train1.jpg", folder / "2019" / "train3.jpg")
    monkeypatch.chdir(folder.parent)
    assert Path("album/2019/train3.jpg") in load_karpathy("album")["train"].files


def test_the_same_picture_is_found_under_cocos_other_name_and_in_a_nested_folder(album):
    folder = album()
    edit(folder, lambda content: content["images"][3].update(filename="COCO_val2014_000000000007.jpg"))
    moved = folder / "unpacked" / "train2017"
    moved.parent.mkdir()
    (folder / "images").rename(moved)
    (moved / "train3.jpg").rename(moved / "000000000007.jpg")
    assert moved / "000000000007.jpg" in load_karpathy(folder)["train"].files
    (folder / "small").mkdir()
    shutil.copy(moved / "train1.jpg", folder / "small" / "000000000007.jpg")
    with pytest.raises(ValueError, match="with other bytes"):
        load_karpathy(folder)

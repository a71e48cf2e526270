"""A policy on disk: checkpoints that resume bit for bit, and exports that other programs load."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from safetensors.torch import load_file, save_file

from posttrain.errors import UsageError
from posttrain.models.gguf import quiet
from posttrain.train import checkpoint

if TYPE_CHECKING:
    from torch import Tensor

    from posttrain.train.policy import OpenPolicy

STATE = "state.json"


def save(policy: OpenPolicy, directory: Path, extra: Any = None) -> Path:
    """Master weights, optimiser, the reference where one is kept, version and ``extra``."""

    def fill(folder: Path) -> None:
        save_file(_plain(policy.optimiser.masters), folder / "weights.safetensors")
        save_file(_plain(policy.optimiser.state()), folder / "optimiser.safetensors")
        if policy.reference is not None:
            save_file(_plain(dict(policy.reference.named_parameters())), folder / "reference.safetensors")
        (folder / STATE).write_text(json.dumps({**policy.state(), "extra": extra}) + "\n")

    return checkpoint.write(directory, fill)


def restore(policy: OpenPolicy, directory: Path) -> Any:
    """The exact inverse of ``save``; returns ``extra``. Nothing is changed where the checkpoint cannot be used."""
    checkpoint.require_whole(directory)
    state = json.loads((directory / STATE).read_text())
    if state["precision"] != policy.options.precision:
        raise UsageError(
            f"{directory} was saved in precision {state['precision']!r}, the run is in {policy.options.precision!r}; "
            f"set precision = {state['precision']!r}"
        )
    reference = directory / "reference.safetensors"
    if policy.reference is not None and not reference.exists():
        raise UsageError(f"{directory} holds no reference; it was saved without train.reference = true")
    policy.optimiser.restore(load_file(directory / "weights.safetensors"), load_file(directory / "optimiser.safetensors"))
    if policy.reference is not None:
        own = dict(policy.reference.named_parameters())
        for name, tensor in load_file(reference).items():
            own[name].data.copy_(tensor)
    policy.version = state["version"]
    return state["extra"]


def export(policy: OpenPolicy, directory: Path) -> Path:
    """Config, safetensors, generation config, tokenizer and chat template, in Hugging Face format."""

    def fill(folder: Path) -> None:
        with quiet():
            policy.module.save_pretrained(folder)
        if policy.renderer is not None:
            policy.renderer.tokenizer.save_pretrained(folder)

    return checkpoint.write(directory, fill)


def _plain(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """On the CPU, contiguous and without gradients, as safetensors wants them."""
    return {name: tensor.detach().to("cpu").contiguous() for name, tensor in tensors.items()}

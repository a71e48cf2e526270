"""The trained model in Hugging Face format, and the lines that serve it."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

from posttrain.errors import HostError, UsageError
from posttrain.store.run_dir import RunDir


def main(path: str, *, out: str | None = None) -> dict[str, Any]:
    """The answer of ``posttrain export RUN``: where the model lies (copied to ``out`` if given) and how to serve it.

    Raises ``UsageError`` where the run has no exported model yet.
    """
    run = RunDir.open(path)
    if not any(run.model.glob("*.safetensors")):
        raise UsageError(f"{run.path} has no model yet (status {run.status}); finish it with 'posttrain resume {run.path}'")
    model = run.model
    if out is not None:
        model = Path(out)
        if model.exists() and (not model.is_dir() or any(model.iterdir())):
            raise UsageError(f"{model} exists and is not an empty directory; name a new one with --out")
        try:
            shutil.copytree(run.model, model, dirs_exist_ok=True)
        except (OSError, shutil.Error) as error:
            shutil.rmtree(model, ignore_errors=True)  # half a model is none
            raise HostError(
                f"the model of {run.path} cannot be copied to {model} ({error}); it is whole in {run.model}. "
                "Free space there, or name another directory with --out"
            ) from error
    where = model.resolve()
    lines = {
        "vllm": f"vllm serve {where}",
        "transformers": f"transformers chat {where}",
        "posttrain": f"posttrain chat {run.path}",
    }
    files = {f.name: f.stat().st_size for f in sorted(where.iterdir()) if f.is_file()}
    text = [f"model: {where} ({sum(files.values()) / 1e6:,.0f} MB, Hugging Face format)", "serve it with"]
    text += [f"  {line}" for line in lines.values()]
    return {"run": str(path), "model": str(where), "files": files, "serve": lines, "text": "\n".join(text)}

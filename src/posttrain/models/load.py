"""A model's name to its directory, its module, its renderer. The name: a built-in model, a directory, a .gguf file, a hub id."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from posttrain.errors import HostError, UsageError, nearest
from posttrain.models.gguf import BUILT_IN, UNREADABLE, built_in_dir, cache_dir, file_dir, quiet
from posttrain.render import Renderer

if TYPE_CHECKING:
    import torch

__all__ = ["BUILT_IN", "cache_dir", "load", "load_renderer", "resolve"]

HUB_FILES = ["*.safetensors", "*.json", "*.jinja", "*.txt", "*.model"]  # no pickles, no code
_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*(/[A-Za-z0-9][\w.-]*)?")


def resolve(name: str | Path) -> Path:
    """The directory that holds the model in Hugging Face format; converts or downloads it if it must.

    Raises UsageError for a name that is nothing or a file that is damaged, HostError for a built-in model whose file is
    not on this machine.
    """
    text = str(name)
    if not text.strip():
        raise UsageError(
            f"model is {text!r}; name a built-in model ({', '.join(BUILT_IN)}), a directory, a .gguf file or a hub id"
        )
    if text in BUILT_IN:
        return built_in_dir(BUILT_IN[text])
    path = Path(text).expanduser()
    if path.is_dir():
        return _checked_dir(path)
    if path.suffix == ".gguf" and path.is_file():
        return file_dir(path)
    if path.is_file():
        raise UsageError(f"{path} is neither a directory nor a .gguf file; model= takes either, a built-in name, or a hub id.")
    looks_local = (
        path.is_absolute() or path.suffix == ".gguf" or text.startswith((".", "~")) or ("/" in text and path.parent.is_dir())
    )
    if looks_local or not _HUB_ID.fullmatch(text):
        raise UsageError(
            f"There is no model at {path.absolute()}; give an existing directory or .gguf file.{nearest(text, BUILT_IN)}"
        )
    return _from_hub(text)


def _checked_dir(path: Path) -> Path:
    """A directory with a configuration and weights."""
    if (path / "config.json").is_file():
        return path
    ggufs = sorted(path.glob("*.gguf"))
    if len(ggufs) == 1:
        return file_dir(ggufs[0])
    if ggufs:
        raise UsageError(f"{path} holds {len(ggufs)} .gguf files; name one of them: {', '.join(g.name for g in ggufs[:5])}.")
    raise UsageError(f"{path} is not a model: it holds no config.json. Give a directory in Hugging Face format.")


def _from_hub(name: str) -> Path:
    """Downloads a hub model, or finds it in the hub's own cache."""
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError

    hint = nearest(name, BUILT_IN)
    try:
        return _checked_dir(Path(snapshot_download(name, allow_patterns=HUB_FILES)))
    except HFValidationError as e:
        raise UsageError(f"{name!r} is neither a local model nor a hub id: {e}.{hint}") from e
    except HfHubHTTPError as e:
        first = str(e).strip().splitlines()[0]
        raise UsageError(
            f"The hub does not give {name!r}: {first} Check the name, or log in with `hf auth login` if it is gated.{hint}"
        ) from e
    except OSError as e:  # offline, or no network
        raise UsageError(
            f"{name!r} is no built-in model and no local directory, and it cannot be fetched from the hub: it is not in "
            f"the hub's cache and the network is off or unreachable. Download it elsewhere and give its directory.{hint}"
        ) from e


def load(name: str | Path, *, dtype: torch.dtype | str, device: str = "cpu") -> Any:
    """The model as a transformers module in ``dtype`` on ``device``, in eval mode, every weight from the file.

    Raises UsageError for damaged or missing weights, an architecture without a language-model head, or one whose logits are not a
    linear map of its last hidden states (chunked scoring would be wrong); HostError where the device is missing.
    """
    import torch
    from safetensors import SafetensorError
    from transformers import AutoModelForCausalLM

    target = _device(device)
    path = resolve(name)
    _check_weights(path)
    if isinstance(dtype, str):
        dtype = getattr(torch, dtype)
    try:
        with quiet():
            model, info = AutoModelForCausalLM.from_pretrained(
                path,
                dtype=dtype,
                local_files_only=True,
                output_loading_info=True,
                ignore_mismatched_sizes=True,  # reported below, by name
            )
    except (*UNREADABLE, SafetensorError, ImportError) as e:
        raise UsageError(
            f"The model in {path} cannot be loaded: {type(e).__name__}: {str(e).strip()[:500]} "
            "Give a decoder language model that transformers knows, with weights as safetensors."
        ) from e
    lacking = sorted(info["missing_keys"]) + sorted(str(key[0]) for key in info["mismatched_keys"])
    if lacking:
        shown = ", ".join(lacking[:4]) + (" ..." if len(lacking) > 4 else "")
        raise UsageError(
            f"The weights in {path} lack {len(lacking)} tensors of {type(model).__name__} or hold them in another shape, so "
            f"that they would stay random: {shown}. Give the whole model (an adapter alone is none)."
        )
    model = model.to(target).eval()
    _check_head(model, path)
    return model


def load_renderer(name: str | Path) -> Renderer:
    """The model's tokenizer and chat template, with every end of turn that its generation configuration names."""
    from transformers import AutoTokenizer

    path = resolve(name)
    try:
        with quiet():
            tokenizer = AutoTokenizer.from_pretrained(path, local_files_only=True)
    except (*UNREADABLE, ImportError) as e:
        raise UsageError(
            f"The tokenizer in {path} cannot be loaded: {type(e).__name__}: {str(e).strip()[:300]} "
            "The directory needs a tokenizer.json (or the tokenizer files of its architecture)."
        ) from e
    rows = _json(path / "config.json").get("vocab_size")
    if isinstance(rows, int) and len(tokenizer) > rows:
        raise UsageError(
            f"The tokenizer in {path} has {len(tokenizer)} tokens, the model {rows}: a token beyond them has no embedding. "
            "Give the tokenizer that belongs to the model, or resize its embeddings first."
        )
    return Renderer(tokenizer, eos_ids=_eos_ids(path))


def _eos_ids(path: Path) -> list[int]:
    """Ends of turn by generation_config.json and config.json."""
    ends: list[int] = []
    for file in ("generation_config.json", "config.json"):
        value = _json(path / file).get("eos_token_id")
        ends += [value] if isinstance(value, int) else [v for v in value or [] if isinstance(v, int)]
    return ends


def _json(path: Path) -> dict[str, Any]:
    """A JSON object, empty where there is no file."""
    try:
        value = json.loads(path.read_text())
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as e:
        raise UsageError(f"{path} cannot be read: {e}. Download it again.") from e
    if not isinstance(value, dict):
        raise UsageError(f"{path} holds no JSON object. Download it again.")
    return value


def _device(device: str) -> torch.device:
    """The device, if this machine has it."""
    import torch

    try:
        target = torch.device(device)
    except RuntimeError as e:
        raise UsageError(f"There is no device {device!r}; use cpu, or cuda with a GPU.") from e
    if target.type == "cuda" and not torch.cuda.is_available():
        raise HostError(
            f"device={device} needs an NVIDIA GPU and a CUDA build of torch; this machine shows none. Use device=cpu."
        )
    if target.type == "cuda" and (target.index or 0) >= torch.cuda.device_count():
        raise HostError(f"device={device} is not there: this machine has {torch.cuda.device_count()} GPU(s).")
    return target


def _check_weights(path: Path) -> None:
    """Every safetensors file opens and every shard of the index is there: a download that broke off is found here."""
    from safetensors import SafetensorError, safe_open

    index = _json(path / "model.safetensors.index.json").get("weight_map", {})
    files = {path / name for name in index.values()} | set(path.glob("*.safetensors"))
    if not files:
        raise UsageError(
            f"{path} holds no weights: there is no .safetensors file in it. Download the model again, or convert it."
        )
    for file in sorted(files):
        try:
            with safe_open(file, framework="np"):
                pass
        except FileNotFoundError as e:
            raise UsageError(f"{file} is missing, though the index of {path} names it. Download the model again.") from e
        except (SafetensorError, OSError) as e:
            raise UsageError(
                f"{file} is damaged: {e}. Download it again; a model of ours is converted anew once it is deleted."
            ) from e


def _check_head(model: Any, path: Path) -> None:
    """Whether logits are what ``score_positions`` takes them for, on four tokens."""
    import torch

    from posttrain.models.logprobs import backbone, full_logits, head, head_options

    ids = torch.arange(4, device=model.device)[None]
    try:
        with torch.no_grad():
            hidden = backbone(model)(input_ids=ids).last_hidden_state[0]
            mine, theirs = full_logits(hidden, head(model), **head_options(model)), model(input_ids=ids).logits[0].float()
    except (AttributeError, TypeError) as e:
        raise UsageError(f"{type(model).__name__} in {path} is no plain decoder with an output embedding: {e}.") from e
    scale = float(theirs.abs().max()) or 1.0
    if not bool(torch.isfinite(theirs).all()):
        raise UsageError(
            f"The weights in {path} give logits that are not finite; the file is damaged, or {model.dtype} is too narrow."
        )
    if float((mine - theirs).abs().max()) > (1e-3 if model.dtype == torch.float32 else 0.05) * scale:
        raise UsageError(
            f"{type(model).__name__} does something between hidden states and logits that posttrain does not know, so "
            "logprobs would be wrong; use a model whose logits are a linear map, scaled or soft-capped."
        )

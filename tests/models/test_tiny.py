"""The tiny model is an ordinary model directory, and a pure function of its arguments."""

from __future__ import annotations

import hashlib
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from posttrain.errors import UsageError
from posttrain.models.load import load, load_renderer
from posttrain.models.tiny import make_tiny, make_tokenizer


def digest(path: Path) -> str:
    """Over the weights and the tokenizer."""
    files = ("model.safetensors", "tokenizer.json")
    return hashlib.sha256(b"".join((path / f).read_bytes() for f in files)).hexdigest()


@pytest.mark.parametrize("kind", ["llama", "qwen2", "gemma3", "mixtral"])
def test_every_kind_loads_and_has_something_to_say(kind: str, tmp_path: Path) -> None:
    path = make_tiny(tmp_path / kind, kind=kind)  # type: ignore[arg-type]
    model, renderer = load(path, dtype=torch.float32), load_renderer(path)
    assert 100_000 < sum(p.numel() for p in model.parameters()) < 1_000_000
    ids = renderer.encode("What is 12 + 34?")
    with torch.no_grad():
        logprobs = model(torch.tensor([ids])).logits[0, -1].log_softmax(-1)
    entropy = float(-(logprobs.exp() * logprobs).sum())
    assert 1.0 < entropy < 6.0  # neither uniform nor one token


def test_the_same_in_another_process_and_under_another_hash_seed(tmp_path: Path) -> None:
    here = digest(make_tiny(tmp_path / "a", seed=3))
    code = f"from posttrain.models.tiny import make_tiny; make_tiny({str(tmp_path / 'b')!r}, seed=3)"
    env = {"PYTHONHASHSEED": "123", "PATH": "", "OMP_NUM_THREADS": "1"}
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120, env=env)
    assert digest(tmp_path / "b") == here
    assert digest(make_tiny(tmp_path / "c", seed=4)) != here


def test_any_text_round_trips() -> None:
    tokenizer = make_tokenizer(300)
    for text in ("naïve café — 12 €", "日本語\n\t", "\x00\x7f", "🙂" * 3):
        assert tokenizer.decode(tokenizer.encode(text)) == text
    assert len(tokenizer) == 300


@pytest.mark.parametrize("wrong", [{"kind": "lama"}, {"hidden": 20}, {"layers": 0}, {"vocab": 100}])
def test_what_cannot_be_is_refused(wrong: dict[str, int], tmp_path: Path) -> None:
    with pytest.raises(UsageError):
        make_tiny(tmp_path / "x", **wrong)  # type: ignore[arg-type]


def test_only_a_tiny_model_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("years")
    with pytest.raises(UsageError, match="mine holds something that is not a tiny model; name a new or empty directory"):
        make_tiny(tmp_path / "mine")
    assert (tmp_path / "mine" / "thesis.txt").read_text() == "years"
    (tmp_path / "empty").mkdir()
    first = digest(make_tiny(tmp_path / "empty"))
    with pytest.raises(UsageError, match="smaller vocabulary"):
        make_tiny(tmp_path / "empty", vocab=100_000)
    assert digest(tmp_path / "empty") == first, "one that cannot be made replaces nothing"
    assert digest(make_tiny(tmp_path / "empty", seed=1)) != first

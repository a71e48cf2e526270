"""What every test shares: one thread, no network, a cache of its own, a tiny model, and the real one where it is there."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["TRANSFORMERS_OFFLINE"] = "1"
os.environ["TOKENIZERS_PARALLELISM"] = "false"
os.environ.setdefault("OMP_NUM_THREADS", "1")

CHECKOUT = Path(__file__).parent.parent


@pytest.fixture(scope="session", autouse=True)
def one_thread() -> None:
    """Two tests side by side share two cores; and one thread count makes bits repeat."""
    import torch

    torch.set_num_threads(1)


@pytest.fixture(scope="session", autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Nothing that a test caches is seen by another session, or by the user."""
    cache = tmp_path_factory.mktemp("cache")
    os.environ["POSTTRAIN_CACHE"] = str(cache)
    return cache


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Directory of a llama-like model of some hundred thousand weights with a ChatML tokenizer."""
    from posttrain.models.tiny import make_tiny

    return make_tiny(tmp_path_factory.mktemp("tiny") / "model")


@pytest.fixture(scope="session")
def real_model() -> Iterator[Path]:
    """Directory of the built-in SmolLM2-135M-Instruct, converted once; skips where its file was not brought."""
    from posttrain.errors import HostError
    from posttrain.models.load import resolve

    # Its cache is kept from one session to the next: converting takes 20 s and half a gigabyte.
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("POSTTRAIN_MODELS", os.environ.get("POSTTRAIN_MODELS", str(CHECKOUT / ".models")))
        patch.setenv("POSTTRAIN_CACHE", str(CHECKOUT / ".models" / "cache"))
        try:
            path = resolve("smollm2-135m-instruct")
        except HostError as e:
            pytest.skip(str(e))
    yield path

"""The one attention function: refuses a forward that names neither segments nor slots, and models it cannot serve."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from posttrain.attention.registered import NAME, install, posttrain_attention
from posttrain.errors import UsageError


@pytest.fixture
def model(tiny_model: Path) -> Any:
    from transformers import AutoModelForCausalLM

    return AutoModelForCausalLM.from_pretrained(tiny_model, dtype=torch.float32)


def test_install_repeats_and_a_plain_forward_is_refused(model: Any) -> None:
    install(model)
    install(model)
    assert model.config._attn_implementation == NAME
    with pytest.raises(UsageError, match=r"segments= .training. or slots="):
        model(input_ids=torch.arange(4)[None])


def test_a_plain_forward_works_again_with_another_attention(model: Any) -> None:
    with torch.no_grad():
        before = model(input_ids=torch.arange(4)[None]).logits
        install(model)
        model.set_attn_implementation("sdpa")
        assert torch.equal(before, model(input_ids=torch.arange(4)[None]).logits)


def test_a_model_without_an_attention_backend_is_refused() -> None:
    class Config:
        _attn_implementation = "eager"

    class Stub:
        config = Config()

    with pytest.raises(UsageError, match="Stub does not let its attention be replaced"):
        install(Stub())


def test_attention_sinks_are_refused() -> None:
    x = torch.zeros(1, 1, 1, 4)
    with pytest.raises(UsageError, match="sinks"):
        posttrain_attention(torch.nn.Identity(), x, x, x, None, s_aux=torch.zeros(1))

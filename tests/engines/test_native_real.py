"""The native engine on the real model: exact does not depend on the batch, fast stays within its budget."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from posttrain.engines._base import Request
from posttrain.engines.native import Native
from posttrain.types import Key, Sampling, Turn

pytestmark = pytest.mark.slow

QUESTIONS = (
    "What is 17 + 25?",
    "Name three colours, separated by commas.",
    "Sort these numbers from small to large: 9, 4, 7, 1.",
    "Write the word 'tree' backwards.",
)


def load(path: Path, dtype: torch.dtype) -> Any:
    from transformers import AutoModelForCausalLM

    return AutoModelForCausalLM.from_pretrained(path, dtype=dtype).eval()


def requests(path: Path, num: int, **sampling: Any) -> list[Request]:
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(path)
    made = []
    for i in range(num):
        text = f"<|im_start|>user\n{QUESTIONS[i % len(QUESTIONS)]}<|im_end|>\n<|im_start|>assistant\n"
        key = Key(seed=0, task_id=str(i % len(QUESTIONS)), attempt=i // len(QUESTIONS))
        made.append(Request(key=key, token_ids=tuple(tokenizer(text)["input_ids"]), sampling=Sampling(**sampling)))
    return made


def sample_all(model: Any, wanted: Sequence[Request], **options: Any) -> list[Turn]:
    async def main() -> list[Turn]:
        async with Native(**options).open(model, None) as engine:
            return list(await asyncio.gather(*(engine.sample(r) for r in wanted)))

    return asyncio.run(main())


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_exact_does_not_depend_on_the_batch(real_model: Path, temperature: float) -> None:
    """B11 on the real model: the same bits from slots of 1, 8 and 64."""
    model = load(real_model, torch.float32)
    wanted = requests(real_model, 64, temperature=temperature, max_tokens=6)
    whole = sample_all(model, wanted, precision="exact", max_slots=64)
    assert sample_all(model, wanted[:12], precision="exact", max_slots=8) == whole[:12]
    assert sample_all(model, wanted[:4], precision="exact", max_slots=1) == whole[:4]


def test_fast_stays_within_its_budget(real_model: Path) -> None:
    """A1 in bf16: against a plain forward of the same weights, mean gap at most 0.05."""
    model = load(real_model, torch.bfloat16)
    wanted = requests(real_model, 16, max_tokens=24)
    turns = sample_all(model, wanted, precision="fast")
    assert turns == sample_all(model, wanted, precision="fast")
    model.set_attn_implementation("sdpa")
    gaps = []
    for r, t in zip(wanted, turns, strict=True):
        with torch.no_grad():
            logits = model(input_ids=torch.tensor([r.token_ids + t.token_ids])).logits[0, len(r.token_ids) - 1 : -1]
        again = torch.log_softmax(logits.float(), -1)[torch.arange(len(t.token_ids)), list(t.token_ids)]
        gaps += (again - torch.tensor(t.rollout_logprobs)).abs().tolist()
    print(f"mean gap {sum(gaps) / len(gaps):.4f}, largest {max(gaps):.3f}")
    assert sum(gaps) / len(gaps) < 0.05

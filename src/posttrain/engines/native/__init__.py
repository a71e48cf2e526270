"""The native engine: samples in process from the very module that the trainer trains."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from posttrain.errors import UsageError

if TYPE_CHECKING:
    from posttrain.engines.native.engine import NativeEngine
    from posttrain.render import Renderer


@dataclass(frozen=True, kw_only=True)
class Native:
    """In-process sampling with continuous batching over contiguous KV slots; weights are the trainer's, so a sync is free.

    ``exact`` needs an fp32 module; its results do not depend on what else is sampled at the same time (dense models: an
    expert of a mixture may get too few rows for that). ``fast`` takes the module as it is (bf16 where that is faster:
    `choose_precision`) and also shares prefixes between different prompts.
    """

    max_slots: int = 64  # turns in flight; KV memory grows with it
    max_context: int = 2048  # tokens of prompt and answer together; a turn that reaches it ends with "length"
    precision: Literal["fast", "exact"] = "fast"
    prefill_tokens: int = 4096  # prompt tokens in one forward
    cached_tokens: int = 16384  # KV of shared prefixes that is kept while there is work; 0: none
    deadline: float = 3600.0  # seconds after which a turn counts as lost

    def __post_init__(self) -> None:
        if self.max_slots < 1 or self.max_context < 2 or self.prefill_tokens < 1 or self.cached_tokens < 0 or self.deadline <= 0:
            raise UsageError(
                f"engine options out of range: {self}; need max_slots >= 1, max_context >= 2, prefill_tokens >= 1, "
                "cached_tokens >= 0, deadline > 0"
            )

    @asynccontextmanager
    async def open(self, model: Any, renderer: Renderer | None) -> AsyncIterator[NativeEngine]:
        """Runs on ``model`` (any transformers CausalLM) until the block ends; then pending requests get InfraError."""
        from posttrain.engines.native.engine import NativeEngine

        engine = NativeEngine(self, model, renderer)
        try:
            yield engine
        finally:
            await engine.close()

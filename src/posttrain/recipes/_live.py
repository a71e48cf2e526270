"""What a recipe runs on: a model, its renderer, the policy that trains it and the engine that samples from it.

At staleness 0 policy and engine share one module, so a sync moves a version number and nothing else.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from posttrain.engines._base import Engine
from posttrain.engines.native import Native
from posttrain.errors import UsageError
from posttrain.train.policy import OpenPolicy, Policy

if TYPE_CHECKING:
    from posttrain.render import Renderer

Precision = Literal["auto", "exact", "fast"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Live:
    """Everything that is open during a run."""

    renderer: Renderer
    module: Any  # the transformers module that both sides run
    policy: OpenPolicy
    engine: Engine
    slots: int  # turns that the engine samples at a time
    precision: str


@asynccontextmanager
async def open_live(
    model: str,
    engine: Native,
    train: Policy,
    *,
    precision: Precision = "auto",
    device: str = "cpu",
    threads: int = 0,
    refused: Path | None = None,
) -> AsyncIterator[Live]:
    """Loads ``model`` and opens policy and engine over the same weights; "auto" measures whether bf16 pays here.

    Both run in one precision. "exact" in ``engine`` or ``train`` asks for it as ``precision`` does. Batches that the policy
    refuses are kept under ``refused``. Raises UsageError where ``precision`` says otherwise.
    """
    from posttrain.train.publish import publish

    module, renderer, chosen = _load(model, _agreed(precision, engine.precision, train.precision), device, threads)
    policy = replace(train, precision=chosen).open(module, renderer, refused=refused)
    async with replace(engine, precision=chosen).open(module, renderer) as opened:
        await publish(policy, opened)
        yield Live(renderer=renderer, module=module, policy=policy, engine=opened, slots=engine.max_slots, precision=chosen)


@asynccontextmanager
async def open_engine(
    model: str, engine: Native, *, precision: Precision = "auto", device: str = "cpu", threads: int = 0
) -> AsyncIterator[Engine]:
    """An engine alone, for talking to a model or evaluating it."""
    module, renderer, chosen = _load(model, _agreed(precision, engine.precision), device, threads)
    async with replace(engine, precision=chosen).open(module, renderer) as opened:
        yield opened


def _agreed(precision: Precision, *parts: Precision) -> Precision:
    """The one precision of a run; "fast" in a part is its default and says nothing."""
    if "exact" not in parts or precision == "exact":
        return precision
    if precision == "fast":
        raise UsageError(
            "precision is 'fast', but engine.precision or train.precision is 'exact'; a run has one precision: set precision only"
        )
    return "exact"


def _load(model: str, precision: Precision, device: str, threads: int) -> tuple[Any, Renderer, Literal["exact", "fast"]]:
    import torch

    from posttrain.engines.native.precision import choose_precision
    from posttrain.models.load import load, load_renderer

    if threads:
        torch.set_num_threads(threads)
    chosen = choose_precision(device) if precision == "auto" else precision
    module = load(model, dtype=torch.float32 if chosen == "exact" else torch.bfloat16, device=device)
    return module, load_renderer(model), chosen

"""Weights to the engine: the one way a new policy version becomes the one that is sampled from."""

from __future__ import annotations

from typing import TYPE_CHECKING

from posttrain.errors import InvalidRun

if TYPE_CHECKING:
    from posttrain.engines._base import Engine
    from posttrain.train.policy import OpenPolicy


async def publish(policy: OpenPolicy, engine: Engine) -> None:
    """Sends version and content hash, and the weights where the engine does not share the policy's module.

    Raises InvalidRun when the engine does not echo what it was sent.
    """
    shares = getattr(engine, "shares", None)  # engines in this process say whether they run on the very same module
    weights = None if shares is not None and shares(policy.module) else policy.weights()
    content_hash = policy.weights_hash()
    await engine.update(weights, policy.version, content_hash)
    if (engine.policy_version, engine.weights_hash) != (policy.version, content_hash):
        raise InvalidRun(
            f"engine {type(engine).__name__} was sent version {policy.version} ({content_hash[:12]}) and answers with version "
            f"{engine.policy_version} ({engine.weights_hash[:12]}); its samples would be stale, so the run stops"
        )

"""The engine's seam: token ids in, token ids out, with the version and hash of the weights that produced them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Protocol, runtime_checkable

from posttrain.types import Key, Sampling, Turn

if TYPE_CHECKING:
    import torch

    from posttrain.render import Renderer


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One turn to sample. ``keep`` asks to hold this attempt's KV for its next turn; ``release`` frees it.

    ``stop_ids`` end the turn and belong to it. Requests with equal ``token_ids`` share one prefill.
    """

    key: Key
    token_ids: tuple[int, ...]
    sampling: Sampling
    stop_ids: tuple[int, ...] = ()
    images: tuple[Any, ...] = ()
    keep: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    """Logprobs of given tokens: ``logprobs[i]`` is that of ``token_ids[i]`` given those before it (the first is 0.0).

    ``top_k[i]`` holds (token id, logprob) pairs, best first; empty unless asked for.
    """

    logprobs: tuple[float, ...]
    top_k: tuple[tuple[tuple[int, float], ...], ...] = ()


@runtime_checkable
class Engine(Protocol):
    """Samples from the policy. Contract: logprobs match a re-forward of the same weights within the precision's budget.

    ``trains`` is False for engines that take only text: their samples never train. ``sample`` raises ``InfraError`` when
    the engine failed (retried by rollout) and returns ``stop_reason="abort"`` for an aborted key. A turn ends at
    ``max_context`` tokens, those before it included; a prompt must be shorter.
    """

    trains: bool
    max_context: int
    renderer: Renderer

    @property
    def policy_version(self) -> int: ...

    @property
    def weights_hash(self) -> str: ...

    async def sample(self, request: Request) -> Turn: ...

    async def score(self, token_ids: tuple[int, ...], images: tuple[Any, ...] = (), top_k: int = 0) -> Score: ...

    async def update(
        self,
        weights: Mapping[str, torch.Tensor] | Iterable[tuple[str, torch.Tensor]] | None,
        policy_version: int,
        content_hash: str,
    ) -> None:
        """Takes whole weights; None where they are shared with the trainer's module and only the version moves."""

    async def pause(self, mode: Literal["keep", "abort"] = "keep") -> None: ...

    async def resume(self) -> None: ...

    async def abort(self, attempt_id: str) -> None: ...

    async def release(self, attempt_id: str) -> None: ...

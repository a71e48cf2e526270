"""One turn in flight."""

from __future__ import annotations

import asyncio

from posttrain.engines._base import Request
from posttrain.types import StopReason, Turn


class Row:
    """A request with what has been sampled for it; the KV of all its tokens but the newest lies in its slot."""

    __slots__ = ("blocks", "future", "logprobs", "num_prompt", "request", "stops", "tokens", "versions")

    def __init__(self, request: Request, future: asyncio.Future[Turn], blocks: list[bytes]) -> None:
        self.request, self.future, self.blocks = request, future, blocks
        self.tokens = list(request.token_ids)
        self.num_prompt = len(self.tokens)
        self.stops = frozenset(request.stop_ids)
        self.logprobs: list[float] = []
        self.versions: list[int] = []

    @property
    def attempt_id(self) -> str:
        """The attempt this turn belongs to."""
        return self.request.key.attempt_id

    @property
    def sampled(self) -> tuple[int, ...]:
        """The turn's tokens so far."""
        return tuple(self.tokens[self.num_prompt :])

    def take(self, token: int, logprob: float, version: int, max_context: int) -> StopReason:
        """Appends a token; says why the turn ends with it, "" if it goes on."""
        self.tokens.append(token)
        self.logprobs.append(logprob)
        self.versions.append(version)
        if token in self.stops:
            return "stop"
        full = len(self.logprobs) >= self.request.sampling.max_tokens or len(self.tokens) >= max_context
        return "length" if full else ""

    def turn(self, reason: StopReason, weights_hash: str, text: str) -> Turn:
        """The record of it."""
        return Turn(
            role="assistant",
            token_ids=self.sampled,
            rollout_logprobs=tuple(self.logprobs),
            policy_versions=tuple(self.versions),
            weights_hash=weights_hash,
            text=text,
            stop_reason=reason,
        )

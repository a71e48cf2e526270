"""The engine: a FIFO queue in front of the slots, one model step at a time, the loop in between.

No threads: a step runs inline in an asyncio task, which then yields a fixed number of times so that attempts whose turn has
ended can bring the next one. So what a run samples depends on its seeds and on the order of its requests only.
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Literal

import torch

from posttrain.engines._base import Request, Score
from posttrain.engines.native.filling import Filling
from posttrain.engines.native.precision import MIN_ROWS
from posttrain.engines.native.rows import Row
from posttrain.engines.native.runner import Runner
from posttrain.engines.native.sampler import draw, noise
from posttrain.engines.native.weights import Weights
from posttrain.errors import DeadlineExceeded, InfraError, UsageError
from posttrain.types import StopReason, Turn

if TYPE_CHECKING:
    from posttrain.engines.native import Native
    from posttrain.render import Renderer

YIELDS = 16  # passes of the loop after a turn has ended, enough for an attempt to come back with its next one


class NativeEngine:
    """Implements `posttrain.engines._base.Engine` on a transformers module. Belongs to one event loop; use `Native.open`."""

    trains = True

    def __init__(self, options: Native, model: Any, renderer: Renderer | None) -> None:
        self.options = options
        self.renderer: Renderer = renderer  # type: ignore[assignment]
        self._runner = Runner(model, options.precision, options.prefill_tokens)
        self._weights = Weights(model)
        limit = getattr(model.config.get_text_config(), "max_position_embeddings", None) or options.max_context
        self.max_context = min(options.max_context, limit)
        self._queue: deque[Row] = deque()
        self._rows: list[Row] = []  # row i lies in slot i
        self._filling = Filling(self._runner, 0 if options.precision == "exact" else options.cached_tokens)
        self._task: asyncio.Task[None] | None = None
        self._paused = self._closed = False
        self.counts: Counter[str] = Counter()  # sampled, prefilled, reused, steps

    @property
    def policy_version(self) -> int:
        return self._weights.version

    @property
    def weights_hash(self) -> str:
        return self._weights.hash

    def shares(self, module: Any) -> bool:
        """Whether it samples from this very module, so that an update need not carry weights."""
        return module is self._runner.model

    async def sample(self, request: Request) -> Turn:
        """One turn. Raises UsageError for what cannot fit, InfraError when the engine closes, DeadlineExceeded, InvalidRun."""
        self._check(request.token_ids, request.images)
        row = Row(request, asyncio.get_running_loop().create_future(), self._filling.sight(request.token_ids))
        self._queue.append(row)
        if self._task is None and not self._paused:
            self._task = asyncio.create_task(self._run(), name="native engine")
        try:
            async with asyncio.timeout(self.options.deadline):
                return await row.future
        except TimeoutError:
            raise DeadlineExceeded(f"native engine: a turn of {request.key.attempt_id}", self.options.deadline) from None

    async def score(self, token_ids: tuple[int, ...], images: tuple[Any, ...] = (), top_k: int = 0) -> Score:
        """Logprobs at temperature 1 of given tokens under the present weights; runs at once, between steps."""
        self._check(token_ids, images)
        self._weights.check()
        logprobs, best = self._runner.score(token_ids, top_k)
        return Score(logprobs=tuple(logprobs), top_k=tuple(tuple(pairs) for pairs in best))

    def _check(self, token_ids: tuple[int, ...], images: tuple[Any, ...]) -> None:
        if self._closed:
            raise InfraError("the native engine is closed; sample inside its `async with` block")
        if images:
            raise UsageError("the native engine samples from text models only, got images; use an engine that takes them")
        if not token_ids:
            raise UsageError("got a prompt of no tokens; a turn needs at least one token to follow")
        if len(token_ids) >= self.max_context:
            raise UsageError(
                f"a prompt of {len(token_ids)} tokens leaves no room in a context of {self.max_context}; "
                "shorten it or raise engine.max_context (the model's own limit holds too)"
            )

    async def update(
        self,
        weights: Mapping[str, torch.Tensor] | Iterable[tuple[str, torch.Tensor]] | None,
        policy_version: int,
        content_hash: str,
    ) -> None:
        """Moves to new weights; None where the trainer has already written them into the shared module.

        Raises InvalidRun when they are not the weights that ``content_hash`` names. Cached KV is dropped; turns in flight
        go on under the new weights, and each token says which version produced it.
        """
        self._runner.forget()
        self._weights.update(weights, policy_version, content_hash)
        self._filling.forget()

    async def pause(self, mode: Literal["keep", "abort"] = "keep") -> None:
        """Stops between two steps. ``keep``: turns in flight go on at ``resume``; ``abort``: they and the queue end now."""
        self._paused = True
        if mode == "abort":
            self._end_all("abort")

    async def resume(self) -> None:
        """Goes on after a pause."""
        self._paused = False
        if self._task is None and (self._rows or self._queue):
            self._task = asyncio.create_task(self._run(), name="native engine")

    async def abort(self, attempt_id: str) -> None:
        """Ends this attempt's turn with what it has, ``stop_reason="abort"``, and drops its KV."""
        for row in [r for r in self._queue if r.attempt_id == attempt_id]:
            self._queue.remove(row)
            self._filling.leave(row)
            self._answer(row, "abort")
        for slot in reversed([i for i, r in enumerate(self._rows) if r.attempt_id == attempt_id]):
            self._retire(slot, "abort")
        self._filling.release(attempt_id)

    async def release(self, attempt_id: str) -> None:
        """Frees the KV kept for an attempt's next turn."""
        self._filling.release(attempt_id)

    async def close(self) -> None:
        """Ends the engine; turns that still wait get InfraError."""
        self._closed = True
        self._fail(InfraError("the native engine was closed while turns were waiting"))
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        self._filling.forget()

    async def _run(self) -> None:
        """Steps until there is no work; a failure reaches everyone who waits."""
        try:
            await _yield(YIELDS)
            while (self._rows or self._queue) and not self._paused:
                ended = self._step()
                if not (self._rows or self._queue):  # the trainer needs the memory, and no batch may colour the next
                    self._filling.idle()
                    self._runner.memory.clear()
                await _yield(YIELDS if ended else 1)
        except asyncio.CancelledError:
            self._fail(InfraError("the native engine's loop was cancelled"))
            raise
        except (MemoryError, torch.OutOfMemoryError) as error:
            lost = InfraError(
                f"the native engine ran out of memory with {len(self._rows)} turns in flight; lower engine.max_slots"
            )
            lost.__cause__ = error
            self._fail(lost)
        except Exception as error:  # not swallowed: every waiting turn raises it
            self._fail(error)
        finally:
            self._task = None

    def _step(self) -> bool:
        """Refills free slots, then one token for every row. True when a turn ended."""
        for slot in reversed([i for i, r in enumerate(self._rows) if r.future.done()]):  # whoever asked has gone
            self._retire(slot, "abort")
        self._admit()
        if not self._rows:
            return True
        longest = max(len(r.tokens) for r in self._rows)
        self._runner.memory.reserve(max(len(self._rows), MIN_ROWS), longest, len(self._rows))
        logits_nV = self._runner.decode([r.tokens[-1] for r in self._rows], [len(r.tokens) - 1 for r in self._rows])
        uniform = [noise(r.request.key, len(r.tokens)) for r in self._rows]
        ids, logprobs = draw(logits_nV, uniform, [r.request.sampling for r in self._rows])
        self.counts.update(steps=1, sampled=len(ids))
        ended: list[tuple[int, StopReason]] = []
        for slot, (row, token, logprob) in enumerate(zip(self._rows, ids, logprobs, strict=True)):
            reason = row.take(token, logprob, self.policy_version, self.max_context)
            if reason:
                ended.append((slot, reason))
        for slot, reason in reversed(ended):
            self._retire(slot, reason)
        return bool(ended)

    def _admit(self) -> None:
        """Gives free slots to the queue, first come first served, and fills them."""
        old = len(self._rows)
        while self._queue and len(self._rows) < self.options.max_slots:
            row = self._queue.popleft()
            if row.future.done():
                self._filling.leave(row)
            else:
                self._rows.append(row)
        if len(self._rows) > old:
            if old:
                self._weights.check_quickly()
            else:
                self._weights.check()
            longest = max(len(r.tokens) for r in self._rows)
            self._runner.memory.reserve(max(len(self._rows), MIN_ROWS), longest + 1, old)
            self.counts.update(self._filling.fill(self._rows, old))

    def _retire(self, slot: int, reason: StopReason) -> None:
        """Ends the turn in a slot; the last row moves into the hole, so that rows in use stay the first ones."""
        row = self._rows[slot]
        self._filling.keep(row, slot, self._rows, keep=row.request.keep and reason != "abort")
        last = self._rows.pop()
        if slot < len(self._rows):
            self._runner.memory.copy(len(self._rows), slot, len(last.tokens))
            self._rows[slot] = last
        self._answer(row, reason)

    def _answer(self, row: Row, reason: StopReason) -> None:
        if not row.future.done():
            text = self.renderer.decode(row.sampled) if self.renderer is not None else ""
            row.future.set_result(row.turn(reason, self.weights_hash, text))

    def _end_all(self, reason: StopReason) -> None:
        while self._queue:
            row = self._queue.popleft()
            self._filling.leave(row)
            self._answer(row, reason)
        while self._rows:
            self._retire(len(self._rows) - 1, reason)

    def _fail(self, error: BaseException) -> None:
        """Everyone who waits raises ``error``."""
        waiting, self._rows = [*self._rows, *self._queue], []
        self._queue.clear()
        self._filling.empty()
        for row in waiting:
            if not row.future.done():
                row.future.set_exception(error)


async def _yield(times: int) -> None:
    for _ in range(times):
        await asyncio.sleep(0)

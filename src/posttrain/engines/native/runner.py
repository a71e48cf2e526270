"""The model's side of the engine: packed prefill, one decode step over the slots in use, scoring.

Shapes: T packed tokens, n rows in use, V vocabulary, W width of the hidden state.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from typing import Any, Literal

import torch
from torch import Tensor

from posttrain.attention.registered import install
from posttrain.attention.slots import Chunk, Decode, Filled, Prefill, Slots, memory_for
from posttrain.engines.native.packing import Packed, worthwhile
from posttrain.engines.native.precision import MIN_ROWS, rows_stand_alone
from posttrain.errors import UsageError
from posttrain.models.logprobs import backbone, full_logits, head, head_options, score_positions

SCORED = 256  # positions whose logits exist at one time when alternatives are asked for


class Runner:
    """Holds a model, its KV slots and nothing else. Raises UsageError for a model that it cannot run faithfully."""

    def __init__(self, model: Any, precision: Literal["fast", "exact"], prefill_tokens: int) -> None:
        self.model, self.exact, self.prefill_tokens = model, precision == "exact", prefill_tokens
        weight = next(model.parameters())
        if self.exact and weight.dtype != torch.float32:
            raise UsageError(
                f"precision 'exact' needs an fp32 model, got {weight.dtype}; load it in fp32 or use precision = 'fast'"
            )
        install(model)
        self.device = weight.device
        self.decoder = backbone(model)
        self.options = head_options(model)
        # such position embeddings rewrite their buffers in the forward, and the trainer could not use an inference tensor
        rope = getattr(model.config.get_text_config(), "rope_parameters", None) or {}
        self.rope_moves = any(kind in str(rope) for kind in ("dynamic", "longrope"))
        self.plain = self.options["scale"] == 1.0 and self.options["softcap"] is None
        self._packed = Packed(model) if worthwhile(model) else None
        with self._quiet():
            self.memory = memory_for(model, self.decoder)
            self._check_head()
            if self.exact and not rows_stand_alone(m.weight for m in model.modules() if type(m) is torch.nn.Linear):
                warnings.warn(
                    "this CPU's matrix products give a row other bits among few rows than among many: what is sampled in "
                    "'exact' depends on what else is sampled at the same time. Import posttrain before the first use of "
                    "torch, or set MKL_CBWR in the environment (AVX2,STRICT or AVX512,STRICT on Intel)",
                    stacklevel=2,
                )

    def forget(self) -> None:
        """The weights have changed: what was derived from them goes."""
        if self._packed is not None:
            self._packed.drop()

    @contextmanager
    def _quiet(self) -> Iterator[None]:
        """No gradients, no dropout; the module's mode comes back after."""
        training = self.model.training
        if training:
            self.model.eval()
        try:
            with torch.no_grad() if self.rope_moves else torch.inference_mode():
                yield
        finally:
            if training:
                self.model.train()

    @contextmanager
    def _running(self) -> Iterator[None]:
        """The same, on packed matrices where that is faster."""
        with self._quiet(), nullcontext() if self._packed is None else self._packed.used():
            yield

    def _check_head(self) -> None:
        """Logits are the hidden state times the output embedding; a model that does more to them is refused."""
        ids = torch.arange(4, device=self.device)[None]
        plan = Prefill(self.memory, (Chunk(-1, 0, 4),))
        ours = self.logits(self.decoder(input_ids=ids, position_ids=ids, use_cache=False, slots=plan).last_hidden_state[0])
        theirs = self.model(input_ids=ids, position_ids=ids, use_cache=False, slots=plan).logits[0]
        if not torch.allclose(ours.float(), theirs.float(), atol=0.05, rtol=0.05):
            raise UsageError(
                f"{type(self.model).__name__} changes its logits after the output embedding in a way the native engine "
                "does not know; sampling from it would not match training: use another model"
            )

    def _hidden(self, ids: Sequence[int], positions: Sequence[int], slots: Slots) -> Tensor:
        install(self.model)  # someone may have changed it since; a plain attention would ignore the slots
        ids_1T = torch.tensor([ids], device=self.device)
        positions_1T = torch.tensor([positions], device=self.device)
        out = self.decoder(input_ids=ids_1T, position_ids=positions_1T, use_cache=False, slots=slots)
        return out.last_hidden_state[0]  # type: ignore[no-any-return]

    def logits(self, hidden_nW: Tensor) -> Tensor:
        """``[n, V]`` in the model's dtype (fp32 where the model scales or caps its logits)."""
        if self.plain:
            return self.model.get_output_embeddings()(hidden_nW)  # type: ignore[no-any-return]
        return full_logits(hidden_nW, head(self.model), **self.options)

    def prefill(self, pieces: Sequence[tuple[int, int, Sequence[int]]]) -> None:
        """Fills slots: each piece is (slot, first position, tokens). Packs pieces, cuts those longer than one forward."""
        pack: list[tuple[int, int, Sequence[int]]] = []
        size = 0
        for slot, start, tokens in pieces:
            for at in range(0, len(tokens), self.prefill_tokens):
                part = tokens[at : at + self.prefill_tokens]
                if size + len(part) > self.prefill_tokens:
                    self._fill(pack)
                    pack, size = [], 0
                pack.append((slot, start + at, part))
                size += len(part)
        if pack:
            self._fill(pack)

    def _fill(self, pack: list[tuple[int, int, Sequence[int]]]) -> None:
        with suppress(Filled):
            self._forward(pack)

    def _forward(self, pack: list[tuple[int, int, Sequence[int]]]) -> Tensor:
        """One forward over pieces of sequences; hidden states in their order."""
        if self.exact and sum(len(tokens) for _, _, tokens in pack) < MIN_ROWS:
            pack = [*pack, (-1, 0, [0] * MIN_ROWS)]
        chunks = tuple(Chunk(slot, start, len(tokens)) for slot, start, tokens in pack)
        ids = [t for _, _, tokens in pack for t in tokens]
        positions = [p for c in chunks for p in range(c.start, c.start + c.num)]
        with self._running():
            return self._hidden(ids, positions, Prefill(self.memory, chunks))

    def decode(self, last: list[int], positions: list[int]) -> Tensor:
        """One step: row i's newest token, at its position, lies in slot i. Returns logits ``[n, V]``."""
        num = len(last)
        if self.exact and num < MIN_ROWS:
            padding = [0] * (MIN_ROWS - num)
            last, positions = last + padding, positions + padding
        with self._running():
            return self.logits(self._hidden(last, positions, Decode(self.memory, positions)))[:num]

    def score(self, ids: Sequence[int], top_k: int) -> tuple[list[float], list[list[tuple[int, float]]]]:
        """Logprob of each token given those before it (the first is 0), and the best alternatives at its place."""
        if len(ids) < 2:
            return [0.0] * len(ids), [[]] * len(ids) if top_k else []
        hidden_TW = self._forward([(-1, 0, ids)])[: len(ids) - 1]
        targets = torch.tensor(ids[1:], device=self.device)
        with torch.no_grad():
            logprobs, _ = score_positions(hidden_TW, head(self.model), targets, **self.options)
            best: list[list[tuple[int, float]]] = [[]] if top_k else []
            for at in range(0, len(ids) - 1 if top_k else 0, SCORED):
                found = torch.log_softmax(self.logits(hidden_TW[at : at + SCORED]).float(), -1).topk(top_k)
                for values, names in zip(found.values.tolist(), found.indices.tolist(), strict=True):
                    best.append(list(zip(names, values, strict=True)))
        return [0.0, *logprobs.tolist()], best

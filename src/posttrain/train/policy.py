"""The policy in training: weights, optimiser and the step.

A step packs trajectories, runs the model once over each packed batch, divides the summed loss by a denominator that is
known before the first backward, and updates once. Splitting the same rows into more batches changes nothing.

Shapes: N scored positions, R rows.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from posttrain.errors import InvalidRun, UsageError, nearest
from posttrain.types import Group, Trajectory

if TYPE_CHECKING:
    from torch import Tensor

    from posttrain.losses._base import Batch, Loss
    from posttrain.render import Renderer
    from posttrain.train.measures import Measures
    from posttrain.train.pack import Packed

ANNOTATIONS = ("ref_logprobs", "proximal_logprobs")
REMEDY = "call publish(policy, engine) after every step"
GAP_BUDGET = {"fast": 0.05, "exact": 1e-4}


@dataclass(frozen=True, kw_only=True)
class Policy:
    """AdamW on packed batches. ``precision`` fast: bf16 compute over fp32 master weights; exact: everything in fp32.

    ``tokens_per_batch`` bounds memory, not the step: more rows are split into batches. ``warmup_steps`` raises the rate
    linearly. ``max_grad_norm`` 0 turns clipping off. ``max_logprob_gap`` is the budget for the mean absolute difference
    between the engine's and the policy's logprobs of the same weights (0: 0.05 in fast, 1e-4 in exact); past it the run
    stops. ``max_staleness`` is how many versions old a sampled trajectory may be under a loss that reads its logprobs.
    ``reference`` keeps a frozen copy of the starting weights for ``ref_logprobs``.
    """

    lr: float = 1e-5
    betas: tuple[float, float] = (0.9, 0.95)
    eps: float = 1e-8
    weight_decay: float = 0.0
    max_grad_norm: float = 1.0
    warmup_steps: int = 0
    tokens_per_batch: int = 4096
    share_prefix: bool = True
    precision: Literal["fast", "exact"] = "fast"
    activation_checkpointing: bool = False
    reference: bool = False
    max_logprob_gap: float = 0.0
    max_staleness: int = 0

    def __post_init__(self) -> None:
        if self.precision not in GAP_BUDGET:
            raise UsageError(f"train.precision is {self.precision!r}.{nearest(self.precision, GAP_BUDGET)}")
        least = {"lr": 0, "eps": 0, "weight_decay": 0, "max_grad_norm": 0, "warmup_steps": 0, "max_staleness": 0}
        for name, bound in {**least, "max_logprob_gap": 0, "tokens_per_batch": 1}.items():
            value = getattr(self, name)
            if not (math.isfinite(value) and value >= bound):
                raise UsageError(f"train.{name} is {value}; it must be at least {bound}")
        if not all(0 <= beta < 1 for beta in self.betas):
            raise UsageError(f"train.betas is {self.betas}; both must be in [0, 1)")

    def require(self, annotations: Sequence[str]) -> None:
        """Raises UsageError for what a policy with these options cannot annotate; a loss's ``annotations`` are known early."""
        for name in annotations:
            if name not in ANNOTATIONS:
                raise UsageError(f"policy.annotate cannot fill {name!r}.{nearest(name, ANNOTATIONS)}")
            if name == "ref_logprobs" and not self.reference:
                raise UsageError("ref_logprobs need the starting weights, which were not kept; set train.reference = true")

    def open(self, module: Any, renderer: Renderer | None = None, *, refused: Path | None = None) -> OpenPolicy:
        """Takes the module over for training (its attention is replaced, dropout turned off); the engine may share it.

        The trajectories of a refused step are kept under ``refused``.
        """
        return OpenPolicy(self, module, renderer, refused)


@dataclass(frozen=True, slots=True, kw_only=True)
class StepResult:
    """What a step did. ``trajectories`` are the given ones, in order, with ``policy_logprobs`` from before the update."""

    metrics: dict[str, float]
    trajectories: list[Trajectory]
    dropped: list[tuple[str, str]]  # (trajectory id, reason), reasons as in pack.REASONS


class OpenPolicy:
    """The live policy. ``version`` counts steps; a step that was refused does not count."""

    def __init__(self, options: Policy, module: Any, renderer: Renderer | None, refused: Path | None = None) -> None:
        import copy

        from posttrain.train.adamw import MasterAdamW

        _prepare(module, options)
        self.options, self.module, self.renderer = options, module, renderer
        self.version = 0
        self._refused = refused
        self._hashes: dict[int, str] = {}
        self.reference = copy.deepcopy(module).requires_grad_(False) if options.reference else None
        self.optimiser = MasterAdamW(module, betas=options.betas, eps=options.eps, weight_decay=options.weight_decay)

    @property
    def device(self) -> Any:
        """Where the batch goes."""
        return next(self.module.parameters()).device

    def step(self, trajectories: Sequence[Trajectory], loss: Loss, *, lr: float | None = None) -> StepResult:
        """One update. ``lr`` stands in for the option's; the warm-up applies to either.

        A step whose rows all have weight 0, or of which all were dropped, leaves the weights alone, counts as a version and
        says ``zero_weight_steps`` 1. Raises InvalidRun, leaving weights and optimiser as they were, for stale trajectories, a
        loss or gradient that is not finite, and a logprob gap over its budget.
        """
        import torch

        from posttrain.train.forward import forward, to_device
        from posttrain.train.measures import Measures, culprits

        began = time.monotonic()
        self._refuse_stale(trajectories, loss)
        packed = self._pack(trajectories)
        batches = [loss.prepare(to_device(batch, self.device)) for batch in packed.batches]
        weight = sum(loss.weight(batch) for batch in batches)
        measures = Measures(weight)
        values: dict[int, list[float]] = {}
        self.optimiser.discard()
        for batch, rows in zip(batches if weight > 0 else [], packed.rows, strict=False):
            with _training(self.module, self.options.activation_checkpointing):
                outputs = forward(self.module, batch, entropy=True)
            total, counts = loss(batch, outputs)
            fresh = [_all_versions(trajectories[i]) == {self.version} for i in rows]
            measures.add(batch, outputs, float(total.detach()), counts, fresh)
            if not math.isfinite(measures.loss):
                raise self._refuse(trajectories, f"the loss is {measures.loss}", culprits(batch, outputs))
            torch.autograd.backward(total / weight)
            _collect(values, rows, batch, outputs.policy_logprobs_N)
        norm = self.optimiser.norm()
        if not math.isfinite(norm):
            raise self._refuse(trajectories, f"the gradient's norm is {norm}", [i for b in batches for i in b.trajectory_ids])
        self._check_gap(trajectories, measures)
        rate = self._rate(lr)
        if weight > 0:
            limit = self.options.max_grad_norm
            self.optimiser.update(rate, limit / norm if limit and norm > limit else 1.0)
        self.version += 1
        figures = measures.figures(packed, seconds=time.monotonic() - began) | {"lr": rate, "grad_norm": norm}
        figures["policy_version"] = float(self.version)
        after = [_with_logprobs(t, "policy_logprobs", values.get(i)) for i, t in enumerate(trajectories)]
        return StepResult(metrics=figures, trajectories=after, dropped=packed.dropped)

    def annotate(self, groups: Sequence[Group], fields: Sequence[str]) -> list[Group]:
        """The groups with ``ref_logprobs`` or ``proximal_logprobs`` on every token that trains, each under its own sampling.

        Raises UsageError for another field, and for ``ref_logprobs`` without the option ``reference``.
        """
        self.options.require(fields)
        for name in fields:
            module = self.reference if name == "ref_logprobs" else self.module
            groups = self._annotated(groups, name, module)
        return list(groups)

    def _annotated(self, groups: Sequence[Group], name: str, module: Any) -> list[Group]:
        import torch

        from posttrain.train.forward import forward, to_device

        members = [t for g in groups for t in g.trajectories]
        packed = self._pack(members, judged=False)
        values: dict[int, list[float]] = {}
        with torch.no_grad():
            for batch, rows in zip(packed.batches, packed.rows, strict=True):
                _collect(values, rows, batch, forward(module, to_device(batch, self.device)).policy_logprobs_N)
        filled = iter([_with_logprobs(t, name, values.get(i)) for i, t in enumerate(members)])
        return [replace(g, trajectories=tuple(next(filled) for _ in g.trajectories)) for g in groups]

    def _pack(self, trajectories: Sequence[Trajectory], *, judged: bool = True) -> Packed:
        from posttrain.train.pack import pack

        options = self.options
        return pack(trajectories, max_tokens=options.tokens_per_batch, share_prefix=options.share_prefix, judged=judged)

    def _rate(self, lr: float | None) -> float:
        """The learning rate of this step."""
        rate = self.options.lr if lr is None else lr
        return rate * min(1.0, (self.version + 1) / self.options.warmup_steps) if self.options.warmup_steps else rate

    def weights_hash(self) -> str:
        """Content hash of the present weights: that of every byte, so no stale copy shares it. Computed once a version."""
        from posttrain.models.fingerprint import weights_hash

        if self.version not in self._hashes:
            self._hashes[self.version] = weights_hash(self.module)
        return self._hashes[self.version]

    def weights(self) -> dict[str, Tensor]:
        """The module's parameters, by name, as the engine samples from them."""
        return {name: p.detach() for name, p in self.module.named_parameters()}

    @property
    def checkpoint_bytes(self) -> int:
        """What ``save`` writes, about: the wide weights and two moments of each that trains."""
        return 3 * sum(master.nbytes for master in self.optimiser.masters.values())

    def _refuse_stale(self, trajectories: Sequence[Trajectory], loss: Loss) -> None:
        """Samples must come from weights that this policy had, and from recent ones where their logprobs are read."""
        for t in trajectories:
            for turn in t.turns:
                for version in set(turn.policy_versions):
                    age = self.version - version
                    known = self._hashes.get(version)
                    if age < 0 or (loss.reads_rollout and age > self.options.max_staleness):
                        raise InvalidRun(
                            f"trajectory {t.id} was sampled from version {version}, the policy is at {self.version} and "
                            f"train.max_staleness is {self.options.max_staleness}: {REMEDY}, or allow more"
                        )
                    if known and turn.weights_hash and turn.weights_hash != known and len(set(turn.policy_versions)) == 1:
                        raise InvalidRun(
                            f"trajectory {t.id} says version {version} with hash {turn.weights_hash[:12]}, which was "
                            f"{known[:12]} here: the engine sampled from other weights; {REMEDY}"
                        )

    def _check_gap(self, trajectories: Sequence[Trajectory], measures: Measures) -> None:
        budget = self.options.max_logprob_gap or GAP_BUDGET[self.options.precision]
        if measures.gap > budget:
            raise self._refuse(
                trajectories,
                f"engine and policy differ on logprobs of the same weights by {measures.gap:.3g} on average, budget {budget:g}",
                measures.worst,
            )

    def _refuse(self, trajectories: Sequence[Trajectory], what: str, ids: Sequence[str]) -> InvalidRun:
        """Leaves weights and optimiser alone; keeps the batch where a folder was given."""
        import json

        self.optimiser.discard()
        kept = ""
        if self._refused is not None:
            from posttrain.store.records import encode

            self._refused.mkdir(parents=True, exist_ok=True)
            path = self._refused / f"step-{self.version:06d}.jsonl"
            path.write_text("".join(json.dumps(encode(t)) + "\n" for t in trajectories))
            kept = f"; the batch is kept in {path}"
        named = ", ".join(list(dict.fromkeys(ids))[:5])
        return InvalidRun(f"step {self.version} was refused, the weights are as before: {what} (trajectories {named}){kept}")

    def state(self) -> dict[str, Any]:
        """What ``save`` writes beside the tensors."""
        return {"version": self.version, "precision": self.options.precision}

    def save(self, directory: str | Path, extra: Any = None) -> Path:
        """A whole checkpoint, atomically; ``extra`` (JSON) comes back from ``restore``. Raises HostError on a full disk."""
        from posttrain.train.saving import save

        return save(self, Path(directory), extra)

    def restore(self, directory: str | Path) -> Any:
        """Exactly the state that was saved; returns its ``extra``. Raises UsageError for a damaged or foreign checkpoint."""
        from posttrain.train.saving import restore

        extra = restore(self, Path(directory))
        self._hashes.clear()
        return extra

    def export(self, directory: str | Path) -> Path:
        """The model in Hugging Face format with tokenizer and generation config, atomically."""
        from posttrain.train.saving import export

        return export(self, Path(directory))


def _prepare(module: Any, options: Policy) -> None:
    """Attention replaced, dropout off, precision as promised."""
    import torch

    from posttrain.attention.registered import install

    wanted = (torch.bfloat16,) if options.precision == "fast" else (torch.float32, torch.float64)
    found = next(iter(module.parameters())).dtype
    if found not in wanted:
        raise UsageError(
            f"train.precision = {options.precision!r} trains a module in {wanted[0]}, this one is in {found}; load it so"
        )
    install(module)
    module.eval()
    for part in module.modules():
        if isinstance(part, torch.nn.Dropout):
            part.p = 0.0
    if options.activation_checkpointing:
        module.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})


@contextmanager
def _training(module: Any, active: bool) -> Iterator[None]:
    """transformers checkpoints activations in training mode only."""
    module.train(active)
    yield
    module.eval()


def _all_versions(trajectory: Trajectory) -> set[int]:
    return {version for turn in trajectory.turns for version in turn.policy_versions}


def _collect(values: dict[int, list[float]], rows: Sequence[int], batch: Batch, logprobs_N: Tensor) -> None:
    """Sorts logprobs by trajectory; a row's positions are in the order of ``pack.scored``."""
    for r, logprob in zip(batch.row_N.tolist(), logprobs_N.detach().tolist(), strict=True):
        values.setdefault(rows[r], []).append(logprob)


def _with_logprobs(trajectory: Trajectory, name: str, values: Sequence[float] | None) -> Trajectory:
    """The trajectory with a per-token field on turns that train; 0.0 on tokens that do not."""
    from posttrain.train.pack import scored

    if values is None:
        return trajectory
    columns: dict[int, list[float]] = {}
    for (_, turn, i), value in zip(scored(trajectory), values, strict=True):
        columns.setdefault(turn, [0.0] * len(trajectory.turns[turn].token_ids))[i] = value
    turns = list(trajectory.turns)
    for n, column in columns.items():
        field: dict[str, Any] = {name: tuple(column)}
        turns[n] = replace(turns[n], **field)
    return replace(trajectory, turns=tuple(turns))

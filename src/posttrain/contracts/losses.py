"""The gate every loss passes: its gradient is its value's, and no way of batching the same rows changes either.

Shapes: N scored positions, R rows.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any, TypeVar, get_args

from posttrain.errors import UsageError
from posttrain.losses._base import Aggregation, Batch, Loss, Outputs
from posttrain.train.policy import ANNOTATIONS

if TYPE_CHECKING:
    from torch import Tensor

AGGREGATIONS: tuple[Aggregation, ...] = get_args(Aggregation)
LENGTHS = (2, 6, 1, 9, 3, 4, 5, 2)
WEIGHTS = (1.0, 1, 0.5, 1, 2, 1, 0, 1)
GONE = (1, 4, 6)  # rows that are masked, or removed
REFUSALS = (ValueError, UsageError)  # of options that cannot be, when a loss is built
STEP = 1e-6  # of a finite difference, in nats
L = TypeVar("L", bound=Loss)


def check(plugin: object) -> list[str]:
    """What is wrong with a loss, one sentence each; empty when it passes.

    Every check runs under each aggregation that the loss accepts. Batches hold what the policy gives: the engine's
    logprobs, entropies, and what ``annotations`` asks for.
    """
    if not isinstance(plugin, Loss):
        return [f"it is a {type(plugin).__name__}; a loss inherits from posttrain.losses._base.Loss"]
    unknown = [name for name in plugin.annotations if name not in ANNOTATIONS]
    if unknown:
        return [f"it asks for {', '.join(unknown)}, which the policy cannot annotate; it can fill {', '.join(ANNOTATIONS)}"]
    bad = _told(aggregations, plugin)
    for loss in _accepted(plugin):
        for part in (finite_differences, splitting, masking, fully_masked, cutting):
            bad += [f"{loss.aggregation}: {said}" for said in _told(part, loss)]
    return bad


def aggregating(loss: L, aggregation: Aggregation, normaliser: float = 32.0) -> L:
    """The loss, and its members if it has any, aggregating so. Raises what the loss raises where it refuses."""
    changed: dict[str, Any] = {"aggregation": aggregation, "normaliser": normaliser}
    for f in fields(loss):
        value = getattr(loss, f.name)
        if isinstance(value, Loss):
            changed[f.name] = aggregating(value, aggregation, normaliser)
        elif isinstance(value, tuple) and value and all(isinstance(member, Loss) for member in value):
            changed[f.name] = tuple(aggregating(member, aggregation, normaliser) for member in value)
    return replace(loss, **changed)


def finite_differences(loss: Loss) -> Iterator[str]:
    """Autograd against central differences; what is computed without a gradient counts as a constant."""
    import torch

    from posttrain.contracts._batches import HeldStill

    batch = loss.prepare(_batch(loss, LENGTHS))
    start = _logprobs(batch)
    still = start.detach()
    with HeldStill() as held:

        def value(at: Tensor) -> Tensor:
            held.begin()
            return loss(batch, _outputs(at))[0]

        (gradient,) = torch.autograd.grad(value(start), start, materialize_grads=True)
        for n in range(len(start)):
            nudge = torch.zeros_like(still)
            nudge[n] = STEP
            numeric = (value(still + nudge) - value(still - nudge)).item() / (2 * STEP)
            if not abs(numeric - float(gradient[n])) <= max(1e-8, 1e-6 * abs(float(gradient[n]))):  # nan is a fault too
                yield f"the gradient at position {n} is {float(gradient[n]):.9g}, finite differences give {numeric:.9g}"
                return
    if not bool(gradient.abs().sum() > 0):
        yield "it has no gradient: nothing would be learnt"


def splitting(loss: Loss, parts: Sequence[int] = (1, 2, 4, 8)) -> Iterator[str]:
    """The same rows in 1, 2, 4 and 8 batches: one value, one gradient, one sum of each metric."""
    import torch

    from posttrain.contracts._batches import rows_of

    whole = _batch(loss, LENGTHS, weights_R=torch.tensor(WEIGHTS))
    values = _logprobs(whole)
    total, (gradient,), metrics = _step(loss, [(whole, values)])
    for num in parts:
        cut, masks = [], []
        for i in range(num):
            part, mine = rows_of(whole, range(i, len(LENGTHS), num))
            cut.append((part, values.detach()[mine].requires_grad_()))
            masks.append(mine)
        split, gradients, summed = _step(loss, cut)
        if not _near(split, total, 1e-10):
            yield f"split into {num} batches the loss is {split:.12g}, whole {total:.12g}"
        if not all(_close(part, gradient[mine]) for mine, part in zip(masks, gradients, strict=True)):
            yield f"split into {num} batches it has another gradient"
        for name in sorted(metrics.keys() | summed.keys()):
            if not _near(summed.get(name, 0.0), metrics.get(name, 0.0), 1e-9):
                yield f"split into {num} batches its metric {name!r} sums up to another figure; metrics are sums over positions"


def masking(loss: Loss, hows: Sequence[str] = ("mask", "weight")) -> Iterator[str]:
    """Rows that are masked, or weigh 0, count as little as rows that are not there, whatever they hold."""
    import torch

    from posttrain.contracts._batches import per_position, rows_of

    whole = _batch(loss, LENGTHS)
    values = _logprobs(whole).detach()
    kept = [r for r in range(len(LENGTHS)) if r not in GONE]
    small, mine = rows_of(whole, kept)
    total, (gradient,), _ = _step(loss, [(small, values[mine].requires_grad_())])
    for how in hows:
        if how == "mask":
            given = {name: value for name, value in per_position(whole).items() if name.endswith("_logprobs_N")}
            lost: dict[str, Any] = {name: torch.where(mine, value, float("nan")) for name, value in given.items()}
            less = replace(whole, loss_mask_N=mine, **lost)
        else:
            less = replace(whole, weights_R=torch.tensor([float(r in kept) for r in range(len(LENGTHS))]))
        got, (found,), _ = _step(loss, [(less, values.clone().requires_grad_())])
        what = "masked" if how == "mask" else "of weight 0"
        if not _near(got, total, 1e-12) or not _close(found[mine], gradient):
            yield f"with rows {what} the loss is {got:.12g}, without them {total:.12g}, or its gradient differs"
        elif bool(found[~mine].any()):
            yield f"rows {what} have a gradient"


def fully_masked(loss: Loss) -> Iterator[str]:
    """A batch of which nothing trains: exactly 0, in weight, value and gradient."""
    import torch

    batch = loss.prepare(_batch(loss, LENGTHS, loss_mask_N=torch.zeros(sum(LENGTHS), dtype=torch.bool)))
    values = _logprobs(batch)
    summed, _ = loss(batch, _outputs(values))
    (gradient,) = torch.autograd.grad(summed, values, materialize_grads=True)
    if loss.weight(batch) != 0:
        yield f"a batch of which nothing trains has the weight {loss.weight(batch):g}, not 0"
    if summed.item() != 0 or not bool((gradient == 0).all()):
        yield f"a batch of which nothing trains has the loss {summed.item():g}, or a gradient; both must be exactly 0"


def cutting(loss: Loss) -> Iterator[str]:
    """A trajectory cut into two rows (6 + 3 tokens) weighs together what it weighed whole."""
    import torch

    from posttrain.contracts._batches import per_position

    whole = _batch(loss, (4, 9, 2))
    same = {n: v for n, v in per_position(whole).items() if n == "advantages_N" or n.endswith("_logprobs_N")}
    cut = _batch(loss, (4, 6, 3, 2), share_R=torch.tensor([1.0, 6 / 9, 3 / 9, 1.0]), **same)
    values = _logprobs(whole)
    total, (gradient,), _ = _step(loss, [(whole, values)])
    got, (found,), _ = _step(loss, [(cut, values)])
    if not _near(got, total, 1e-6) or not _close(found, gradient, 1e-6):  # shares are float32
        yield f"a trajectory cut into two rows has the loss {got:.9g}, whole {total:.9g}, or another gradient"


def aggregations(loss: Loss) -> Iterator[str]:
    """``aggregation`` and ``normaliser`` do what they say: over rows of other lengths each gives another figure."""
    batch = _batch(loss, LENGTHS)
    values = _logprobs(batch)
    found: dict[float, str] = {}
    tried: list[tuple[Aggregation, float]] = [*((name, 32.0) for name in AGGREGATIONS), ("constant", 64.0)]
    for name, normaliser in tried:
        try:
            one = aggregating(loss, name, normaliser)
        except REFUSALS:  # it refuses this one, and says so when it is built
            continue
        total, shown = _step(one, [(batch, values)])[0], f"{name} with normaliser {normaliser:g}"
        if total in found:
            yield f"{found[total]} and {shown} give the same loss; aggregate with self.aggregation and self.normaliser"
        found[total] = shown


def _accepted(plugin: Loss) -> list[Loss]:
    """The loss under each aggregation, but for those that it refuses when it is built."""
    found = []
    for aggregation in AGGREGATIONS:
        with contextlib.suppress(*REFUSALS):
            found.append(aggregating(plugin, aggregation))
    return found or [plugin]


def _told(part: Callable[[Any], Iterator[str]], loss: Loss) -> list[str]:
    """What a check says; an exception of the loss's own is a finding too."""
    try:
        return list(part(loss))
    except Exception as fault:  # any exception is the finding here
        return [f"{part.__name__.replace('_', ' ')}: it raised {type(fault).__name__}: {fault!s:.300}"]


def _batch(loss: Loss, lengths: Sequence[int], **given: Any) -> Batch:
    """Rows with the fields that the policy would give this loss, and no others."""
    from posttrain.contracts._batches import build

    batch = build(lengths, **given)
    assert batch.rollout_logprobs_N is not None
    asked: dict[str, Any] = {}
    for name in ANNOTATIONS:
        field = f"{name}_N"
        if name not in loss.annotations:
            asked[field] = None
        elif getattr(batch, field) is None:
            asked[field] = batch.rollout_logprobs_N * 0.9
    return replace(batch, **asked)


def _logprobs(batch: Batch) -> Tensor:
    """The policy's, near the engine's, on no kink of a clip (float64, N, with gradient)."""
    import torch

    assert batch.rollout_logprobs_N is not None
    generator = torch.Generator().manual_seed(3)
    noise = torch.randn(len(batch.row_N), generator=generator, dtype=torch.float64) * 0.3
    return (batch.rollout_logprobs_N + noise).requires_grad_()


def _outputs(logprobs_N: Tensor) -> Outputs:
    return Outputs(policy_logprobs_N=logprobs_N, entropy_N=-logprobs_N.detach())


def _step(loss: Loss, parts: Sequence[tuple[Batch, Tensor]]) -> tuple[float, list[Tensor], dict[str, float]]:
    """What the trainer does: one denominator over all parts, then backward part by part; metrics are summed."""
    import torch

    batches = [(loss.prepare(batch), values) for batch, values in parts]
    weight = sum(loss.weight(batch) for batch, _ in batches)
    total, gradients, metrics = 0.0, [], dict[str, float]()
    for batch, values in batches:
        summed, figures = loss(batch, _outputs(values))
        if summed.ndim:
            raise ValueError(f"it gave a tensor of shape {tuple(summed.shape)}; a loss gives one sum and its metrics")
        gradients.append(torch.autograd.grad(summed / weight, values, materialize_grads=True)[0])
        total += summed.item() / weight
        for name, figure in figures.items():
            metrics[name] = metrics.get(name, 0.0) + figure
    return total, gradients, metrics


def _near(got: float, wanted: float, relative: float) -> bool:
    return abs(got - wanted) <= max(relative * abs(wanted), 1e-12)


def _close(got: Tensor, wanted: Tensor, relative: float = 1e-10) -> bool:
    import torch

    return torch.allclose(got, wanted, rtol=relative, atol=1e-12 if relative > 1e-9 else 1e-14)

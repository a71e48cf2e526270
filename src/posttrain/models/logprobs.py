"""Logprobs under the exact sampling distribution, without the whole matrix of logits ever existing.

Shapes: N scored positions, B rows of an engine's step, C rows of one chunk, V vocabulary, D hidden width.

Memory is bounded by the chunk: logits of C positions are made, read and dropped, and made again in the backward pass. The
matrix products run on whole chunks, in the weights' own precision; everything after them is float32 and runs over a few
rows at a time, because 16 rows of 50,000 logits stay in a core's cache and 500 do not (measured: 5x on the softmax).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

CHUNK = 512  # rows; of 128-1024 the fastest within noise at width 576, and 50 MB of bf16 logits at 49,152 tokens
ROWS_IN_CACHE = 16
CANDIDATES = 512  # tokens looked at for top-p before the whole vocabulary is sorted


def backbone(model: Any) -> Any:
    """The decoder under the output embedding: it returns the last hidden states, after the final norm."""
    decoder = model.get_decoder() if hasattr(model, "get_decoder") else model.base_model
    return model.base_model if decoder is None or decoder is model else decoder


def head(model: Any) -> Tensor:
    """The output embedding's weight, [V, D]; the input embedding's own tensor where the two are tied."""
    weight: Tensor = model.get_output_embeddings().weight
    return weight


def head_options(model: Any) -> dict[str, Any]:
    """What else stands between hidden state and logits, as keywords of ``score_positions``: bias, scale, softcap."""
    config = model.config.get_text_config()
    scale = float(getattr(config, "logit_scale", None) or 1.0) / float(getattr(config, "logits_scaling", None) or 1.0)
    return {
        "bias": getattr(model.get_output_embeddings(), "bias", None),
        "softcap": getattr(config, "final_logit_softcapping", None),
        "scale": scale,
    }


def full_logits(
    hidden_BD: Tensor, weight_VD: Tensor, *, bias: Tensor | None = None, scale: float = 1.0, softcap: float | None = None
) -> Tensor:
    """Float32 logits [B, V] of a few rows: what ``score_positions`` computes chunk by chunk, for an engine's step."""
    return _finish(_product(hidden_BD, weight_VD, bias), scale, softcap)


def restrict(
    logits_BV: Tensor,
    temperature_B: Tensor | None = None,
    top_p_B: Tensor | None = None,
    top_k_B: Tensor | None = None,
    min_p_B: Tensor | None = None,
) -> Tensor:
    """The distribution that is sampled from, as float32 logits [B, V]: divided by the temperature, -inf outside the allowed set.

    In this order, as vLLM does it: temperature (0 counts as 1), min-p (tokens less likely than ``min_p`` times the likeliest go),
    top-k (0: off), top-p over what is left. Ties with the last allowed token stay, so that the set does not depend on
    the order of a sort. Rows do not affect each other. The result is a new tensor.
    """
    wide = torch.float64 if logits_BV.dtype == torch.float64 else torch.float32
    logits_BV = logits_BV.to(wide, copy=True)
    inverse_B = _inverse(temperature_B)
    if inverse_B is not None:
        logits_BV *= inverse_B.to(wide)[:, None]
    if min_p_B is not None and bool((min_p_B > 0).any()):
        floor_B = logits_BV.amax(-1) + min_p_B.to(logits_BV).log()  # log 0 is -inf: off
        logits_BV.masked_fill_(logits_BV < floor_B[:, None], -torch.inf)
    if top_k_B is not None:
        _keep_top_k(logits_BV, top_k_B)
    if top_p_B is not None:
        _keep_top_p(logits_BV, top_p_B)
    return logits_BV


def _inverse(temperature_B: Tensor | None) -> Tensor | None:
    """1 / temperature in float32, 1 where it is 0; None when no row is scaled."""
    if temperature_B is None or bool(((temperature_B == 1) | (temperature_B == 0)).all()):
        return None
    t_B = temperature_B.float()
    return torch.where(t_B == 0, 1.0, 1.0 / t_B)


def _keep_top_k(logits_BV: Tensor, top_k_B: Tensor) -> None:
    """Masks, in place, what is less likely than the k-th of its row."""
    rows = torch.nonzero((top_k_B > 0) & (top_k_B < logits_BV.shape[-1])).flatten()
    if not len(rows):
        return
    k_R = top_k_B[rows].long()
    best = logits_BV[rows].topk(int(k_R.max()), dim=-1).values
    least = best.gather(1, k_R[:, None] - 1)
    logits_BV[rows] = logits_BV[rows].masked_fill(logits_BV[rows] < least, -torch.inf)


def _keep_top_p(logits_BV: Tensor, top_p_B: Tensor) -> None:
    """Masks, in place, what lies beyond the smallest set of likeliest tokens whose probability reaches top-p."""
    rows = torch.nonzero(top_p_B < 1).flatten()
    if not len(rows):
        return
    total_R = logits_BV[rows].logsumexp(-1)
    p_R = top_p_B[rows].to(logits_BV)
    candidates = min(CANDIDATES, logits_BV.shape[-1])
    least_R, enough_R = _nucleus_edge(logits_BV[rows].topk(candidates, dim=-1).values, total_R, p_R)
    for i in torch.nonzero(~enough_R).flatten().tolist():  # rare and flat distributions: one whole sort each
        ordered = logits_BV[rows[i]].sort(descending=True).values
        least_R[i] = _nucleus_edge(ordered[None], total_R[i : i + 1], p_R[i : i + 1])[0][0]
    logits_BV[rows] = logits_BV[rows].masked_fill(logits_BV[rows] < least_R[:, None], -torch.inf)


def _nucleus_edge(ordered_RK: Tensor, total_R: Tensor, p_R: Tensor) -> tuple[Tensor, Tensor]:
    """The least logit inside the nucleus, and whether the K likeliest tokens were enough to find it."""
    mass_RK = (ordered_RK - total_R[:, None]).exp().cumsum(-1)
    inside_RK = mass_RK < p_R[:, None]
    edge_R = inside_RK.sum(-1)  # the first token that reaches p is the last one inside
    enough_R = edge_R < ordered_RK.shape[-1]
    last_R = edge_R.clamp(max=ordered_RK.shape[-1] - 1)
    return ordered_RK.gather(1, last_R[:, None])[:, 0].clone(), enough_R


def score_positions(
    hidden_ND: Tensor,
    head_weight_VD: Tensor,
    target_ids_N: Tensor,
    *,
    temperature_N: Tensor | None = None,
    top_p_N: Tensor | None = None,
    top_k_N: Tensor | None = None,
    min_p_N: Tensor | None = None,
    entropy: bool = False,
    chunk: int = CHUNK,
    softcap: float | None = None,
    bias: Tensor | None = None,
    scale: float = 1.0,
) -> tuple[Tensor, Tensor | None]:
    """(logprobs [N], entropy [N] or None) in float32 of each target under its row's own sampling distribution.

    Nats. The target always counts as allowed, so that its logprob is finite even where rounding put it outside the set. The
    logprobs carry a gradient to hidden states, weight and bias; the entropy carries none. Rows whose incoming gradient is
    exactly 0 cost nothing in the backward pass. Softcap: Gemma 2 (2408.00118), c * tanh(logit / c).
    """
    limits = _Limits(temperature_N, top_p_N, top_k_N, min_p_N)
    shape = _Shape(scale, softcap, chunk, entropy)
    logprobs_N, entropy_N = _Score.apply(hidden_ND, head_weight_VD, bias, target_ids_N, limits, shape)  # type: ignore[no-untyped-call]
    return logprobs_N, entropy_N if entropy else None


@dataclass(frozen=True, slots=True)
class _Limits:
    """How each row was sampled; None: as the model is."""

    temperature_N: Tensor | None
    top_p_N: Tensor | None
    top_k_N: Tensor | None
    min_p_N: Tensor | None

    def at(self, index: slice | Tensor) -> _Limits:
        """The same for some rows."""
        parts = (self.temperature_N, self.top_p_N, self.top_k_N, self.min_p_N)
        return _Limits(*(None if part is None else part[index] for part in parts))

    @property
    def cut(self) -> bool:
        """Whether any row's set of tokens is restricted."""
        return (
            (self.top_p_N is not None and bool((self.top_p_N < 1).any()))
            or (self.top_k_N is not None and bool((self.top_k_N > 0).any()))
            or (self.min_p_N is not None and bool((self.min_p_N > 0).any()))
        )

    def apply(self, logits_CV: Tensor, target_C: Tensor) -> Tensor:
        """Scaled and restricted logits; the target stays."""
        inverse = _inverse(self.temperature_N)
        factor = None if inverse is None else inverse.to(logits_CV)[:, None]
        if not self.cut:
            return logits_CV if factor is None else logits_CV * factor
        out = restrict(logits_CV, self.temperature_N, self.top_p_N, self.top_k_N, self.min_p_N)
        kept = logits_CV.gather(1, target_C[:, None])
        return out.scatter_(1, target_C[:, None], kept if factor is None else kept * factor)


@dataclass(frozen=True, slots=True)
class _Shape:
    """What is the same for all rows."""

    scale: float
    softcap: float | None
    chunk: int
    entropy: bool


def _product(hidden_CD: Tensor, weight_VD: Tensor, bias: Tensor | None) -> Tensor:
    """Raw logits [C, V] in the weight's precision."""
    return torch.nn.functional.linear(hidden_CD.to(weight_VD.dtype), weight_VD, bias)


def _finish(raw_CV: Tensor, scale: float, softcap: float | None) -> Tensor:
    """Raw logits to float32 ones, scaled and capped."""
    logits_CV = raw_CV.to(torch.float64 if raw_CV.dtype == torch.float64 else torch.float32)
    if scale != 1.0:
        logits_CV = logits_CV * scale
    return logits_CV if softcap is None else softcap * torch.tanh(logits_CV / softcap)


def _blocks(rows: int, device: torch.device) -> Iterator[slice]:
    """Slices of a chunk that fit a core's cache; the whole chunk on an accelerator."""
    size = ROWS_IN_CACHE if device.type == "cpu" else max(rows, 1)
    for start in range(0, rows, size):
        yield slice(start, min(start + size, rows))


class _Score(torch.autograd.Function):
    """Forward keeps the inputs only; backward makes each chunk's logits anew."""

    @staticmethod
    def forward(
        ctx: Any, hidden_ND: Tensor, weight_VD: Tensor, bias: Tensor | None, target_N: Tensor, limits: _Limits, shape: _Shape
    ) -> tuple[Tensor, Tensor]:
        n = hidden_ND.shape[0]
        wide = torch.float64 if weight_VD.dtype == torch.float64 else torch.float32
        logprobs_N = torch.empty(n, dtype=wide, device=hidden_ND.device)
        entropy_N = torch.empty(n if shape.entropy else 0, dtype=wide, device=hidden_ND.device)
        for start in range(0, n, shape.chunk):
            raw_CV = _product(hidden_ND[start : start + shape.chunk], weight_VD, bias)
            for part in _blocks(raw_CV.shape[0], raw_CV.device):
                rows = slice(start + part.start, start + part.stop)
                target = target_N[rows]
                logits = limits.at(rows).apply(_finish(raw_CV[part], shape.scale, shape.softcap), target)
                all_logprobs = torch.log_softmax(logits, dim=-1)
                logprobs_N[rows] = all_logprobs.gather(1, target[:, None])[:, 0]
                if shape.entropy:
                    terms = all_logprobs.exp().mul_(all_logprobs)
                    entropy_N[rows] = -(terms.nansum(-1) if limits.cut else terms.sum(-1))  # 0 * -inf outside the set
        ctx.save_for_backward(hidden_ND, weight_VD, bias, target_N)
        ctx.limits, ctx.shape = limits, shape
        ctx.mark_non_differentiable(entropy_N)
        return logprobs_N, entropy_N

    @staticmethod
    def backward(ctx: Any, grad_N: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
        hidden_ND, weight_VD, bias, target_N = ctx.saved_tensors
        shape: _Shape = ctx.shape
        needs_hidden, needs_weight, needs_bias = ctx.needs_input_grad[:3]
        grad_hidden_ND = torch.zeros_like(hidden_ND) if needs_hidden else None
        wide = grad_N.dtype  # sums over chunks are kept wide: a bf16 sum of many loses its small terms
        grad_weight_VD: Tensor | None = None
        grad_bias_V = torch.zeros_like(bias, dtype=wide) if needs_bias else None
        for index_C in torch.split(torch.nonzero(grad_N).flatten(), shape.chunk):
            hidden_CD = hidden_ND[index_C].to(weight_VD.dtype)
            grad_CV = _grad_raw(hidden_CD, weight_VD, bias, target_N[index_C], ctx.limits.at(index_C), shape, grad_N[index_C])
            if grad_hidden_ND is not None:
                grad_hidden_ND[index_C] = (grad_CV @ weight_VD).to(hidden_ND.dtype)
            if needs_weight:
                product_VD = grad_CV.T @ hidden_CD  # of one chunk, mostly: then nothing is summed, filled or converted
                grad_weight_VD = product_VD if grad_weight_VD is None else grad_weight_VD.to(wide).add_(product_VD)
            if grad_bias_V is not None:
                grad_bias_V += grad_CV.sum(0, dtype=wide)
        return (
            grad_hidden_ND,
            None if grad_weight_VD is None else grad_weight_VD.to(weight_VD.dtype),
            None if grad_bias_V is None else grad_bias_V.to(bias.dtype),
            None,
            None,
            None,
        )


def _grad_raw(
    hidden_CD: Tensor, weight_VD: Tensor, bias: Tensor | None, target_C: Tensor, limits: _Limits, shape: _Shape, grad_C: Tensor
) -> Tensor:
    """Gradient of the raw logits [C, V], in the weight's precision, over the chunk's logits made anew."""
    raw_CV = _product(hidden_CD, weight_VD, bias)
    for part in _blocks(raw_CV.shape[0], raw_CV.device):
        plain = _finish(raw_CV[part], shape.scale, shape.softcap)
        here, target, grad = limits.at(part), target_C[part, None], grad_C[part, None]
        out = torch.softmax(here.apply(plain, target[:, 0]), dim=-1).mul_(-grad)  # d logprob = one-hot(target) - p
        out.scatter_add_(1, target, grad)
        inverse = _inverse(here.temperature_N)
        if inverse is not None:
            out.mul_(inverse[:, None])
        if shape.softcap is not None:
            out.mul_(1 - (plain / shape.softcap).square_())
        if shape.scale != 1.0:
            out.mul_(shape.scale)
        raw_CV[part] = out  # the logits of these rows are not needed any more
    return raw_CV

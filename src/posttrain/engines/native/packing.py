"""The matrices of a bf16 model in the layout that the CPU's matmul wants, made once for each version of the weights.

oneDNN reorders a weight on every call, which for the few dozen rows of a decode step costs as much as the product itself.
The packed copy is a cache of the shared weights, not a second set of them: the engine makes it anew after each update, and
`Weights` refuses to sample when they were written to without one.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

ROWS = 32  # what the layout is chosen for


def worthwhile(model: Any) -> bool:
    """Whether the model is one whose matmuls oneDNN packs: bf16, on a CPU with instructions for it."""
    weight = next(model.parameters())
    return (
        weight.device.type == "cpu"
        and weight.dtype == torch.bfloat16
        and bool(torch.backends.mkldnn.is_available())  # type: ignore[no-untyped-call]
        and hasattr(torch.ops.mkldnn, "_linear_pointwise")
        and bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())
    )


class Packed:
    """Packed copies of every plain linear layer of a model; within ``used()`` its forward runs on them."""

    def __init__(self, model: nn.Module) -> None:
        self._layers = [m for m in model.modules() if type(m) is nn.Linear and "forward" not in m.__dict__]
        self._matrices: list[Tensor] = []

    def drop(self) -> None:
        """The weights have changed."""
        self._matrices = []

    def _pack(self) -> None:
        with torch.no_grad():
            self._matrices = [torch.ops.mkldnn._reorder_linear_weight(m.weight.detach(), ROWS) for m in self._layers]

    @contextmanager
    def used(self) -> Iterator[None]:
        """The model's linear layers run on the packed copies, packing them first where that is due; no gradients."""
        if not self._matrices:
            self._pack()
        for layer, matrix in zip(self._layers, self._matrices, strict=True):
            layer.__dict__["forward"] = _Product(matrix, layer.bias)
        try:
            yield
        finally:
            for layer in self._layers:
                layer.__dict__.pop("forward", None)


class _Product:
    """A linear layer's forward on a packed matrix."""

    __slots__ = ("bias", "matrix")

    def __init__(self, matrix: Tensor, bias: Tensor | None) -> None:
        self.matrix, self.bias = matrix, bias

    def __call__(self, x: Tensor) -> Tensor:
        out: Tensor = torch.ops.mkldnn._linear_pointwise(x, self.matrix, self.bias, "none", [], "")
        return out

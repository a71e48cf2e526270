"""AdamW (1711.05101) over wide master weights: gradients are summed wide, the module's own parameters may be bf16.

A module in float32 or float64 is its own master. Nothing here depends on how many micro-batches a step had.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import torch
from torch.nn.utils import get_total_norm

from posttrain.errors import UsageError

if TYPE_CHECKING:
    from torch import Tensor, nn

MOMENTS = ("exp_avg", "exp_avg_sq")


class MasterAdamW:
    """Collects gradients while backward runs, then updates masters and parameters at once.

    ``weight_decay`` acts on matrices only: not on norms and biases.
    """

    def __init__(self, module: nn.Module, *, betas: tuple[float, float], eps: float, weight_decay: float) -> None:
        self.params: dict[str, Tensor] = {name: p for name, p in module.named_parameters() if p.requires_grad}
        if not self.params:
            raise UsageError(f"{type(module).__name__} has no parameter that requires a gradient; nothing can be trained")
        self.masters = {name: _master(p) for name, p in self.params.items()}
        self._grads: dict[str, Tensor] = {}
        self._fresh: set[str] = set()
        for name, param in self.params.items():
            param.register_post_accumulate_grad_hook(self._collector(name))  # type: ignore[no-untyped-call]
        matrices = [m for m in self.masters.values() if m.ndim > 1]
        vectors = [m for m in self.masters.values() if m.ndim <= 1]
        groups = [
            {"params": members, "weight_decay": decay} for members, decay in ((matrices, weight_decay), (vectors, 0.0)) if members
        ]
        # fused: one pass over memory; a step is bound by it
        self._adamw = torch.optim.AdamW(groups, lr=0.0, betas=betas, eps=eps, fused=True)

    def _collector(self, name: str) -> Callable[[Tensor], None]:
        """Moves a parameter's finished gradient of one micro-batch into the wide sum."""

        def collect(param: Tensor) -> None:
            grad, param.grad = param.grad, None
            assert grad is not None
            wide = self.masters[name].dtype
            if name in self._fresh:
                self._grads[name].add_(grad)
            elif grad.dtype == wide:
                self._grads[name] = grad
            elif name in self._grads:
                self._grads[name].copy_(grad)
            else:
                self._grads[name] = grad.to(wide)
            self._fresh.add(name)

        return collect

    def discard(self) -> None:
        """Forgets the gradients collected since the last update."""
        self._fresh.clear()

    def grads(self) -> dict[str, Tensor]:
        """The gradients collected, by parameter; valid until the next backward."""
        return {name: self._grads[name] for name in self.params if name in self._fresh}

    def norm(self) -> float:
        """The global L2 norm of the gradients collected; 0 where there are none."""
        grads = list(self.grads().values())
        return float(get_total_norm(grads, error_if_nonfinite=False, foreach=True)) if grads else 0.0

    @torch.no_grad()
    def update(self, lr: float, scale: float = 1.0) -> None:
        """One step with the gradients collected times ``scale``; parameters without one do not move."""
        grads = self.grads()
        if scale != 1.0:
            torch._foreach_mul_(list(grads.values()), scale)
        for name, master in self.masters.items():
            master.grad = grads.get(name)
        for group in self._adamw.param_groups:
            group["lr"] = lr
        self._adamw.step()
        for master in self.masters.values():
            master.grad = None
        self.write_back()
        self.discard()

    @torch.no_grad()
    def write_back(self) -> None:
        """Rounds the masters into the module's parameters, where they are not the same tensors."""
        pairs = [(self.params[n], m) for n, m in self.masters.items() if self.params[n].data_ptr() != m.data_ptr()]
        if pairs:
            torch._foreach_copy_([p for p, _ in pairs], [m for _, m in pairs])
        # the fused kernels do not count their writes, and an engine on the same tensors looks at the counts
        torch.autograd.graph.increment_version(list(self.params.values()))

    def state(self) -> dict[str, Tensor]:
        """``{"exp_avg.NAME": ..., "exp_avg_sq.NAME": ..., "step.NAME": ...}``; empty before the first update."""
        found: dict[str, Tensor] = {}
        for name, master in self.masters.items():
            state = self._adamw.state.get(master, {})
            found |= {f"{key}.{name}": value for key, value in state.items()}
        return found

    @torch.no_grad()
    def restore(self, masters: Mapping[str, Tensor], state: Mapping[str, Tensor]) -> None:
        """The exact inverse of ``masters`` and ``state()``. Raises UsageError where names or shapes differ."""
        for name, master in self.masters.items():
            if name not in masters or masters[name].shape != master.shape:
                raise UsageError(f"the checkpoint holds no {name!r} of shape {tuple(master.shape)}; it belongs to another model")
            master.copy_(masters[name])
        self._adamw.state.clear()
        for name, master in self.masters.items():
            if f"step.{name}" in state:
                self._adamw.state[master] = {
                    "step": state[f"step.{name}"].clone(),
                    **{key: state[f"{key}.{name}"].to(master, copy=True) for key in MOMENTS},
                }
        self.write_back()
        self.discard()


def _master(param: Tensor) -> Tensor:
    """The parameter itself where it is wide already, else a float32 copy."""
    if param.dtype in (torch.float32, torch.float64):
        return param
    return param.detach().float()

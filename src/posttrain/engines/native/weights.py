"""Which weights the engine samples from, so that stale or foreign ones cannot go unnoticed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import torch

from posttrain.errors import InvalidRun, UsageError, nearest
from posttrain.models.fingerprint import weights_hash

PROBED = 64  # elements of each tensor that are compared at the start of a burst of work


class Weights:
    """The module's weights with their version and content hash, both echoed with every turn."""

    def __init__(self, model: Any) -> None:
        self._model = model
        self.version = 0
        self.hash = weights_hash(model)
        self._mark()

    def _mark(self) -> None:
        self._counters, self._probe = self._count(), self._look()

    def _count(self) -> list[tuple[int, int]]:
        """torch counts the in-place writes to each tensor."""
        return [(p.data_ptr(), p._version) for p in self._model.parameters()]

    def _look(self) -> torch.Tensor:
        """A few elements of each tensor, for writes that the counters do not see (``.data``, other processes)."""
        return torch.cat(
            [p.detach().flatten()[:: max(1, p.numel() // PROBED)][:PROBED].float() for p in self._model.parameters()]
        )

    def check_quickly(self) -> None:
        """Raises InvalidRun when the weights were written to without an update."""
        if self._counters != self._count():
            raise self._stale()

    def check(self) -> None:
        """The same, also comparing a few elements of each tensor."""
        if self._moved():
            raise self._stale()

    def _moved(self) -> bool:
        """Whether the weights were written to since the last update."""
        return self._counters != self._count() or not torch.equal(self._probe, self._look())

    def _stale(self) -> InvalidRun:
        return InvalidRun(
            f"engine 'native': its weights changed after version {self.version} (hash {self.hash[:12]}) was published, so a sync "
            "was dropped; call engine.update(None, policy_version, content_hash) after every optimiser step"
        )

    def update(
        self, weights: Mapping[str, torch.Tensor] | Iterable[tuple[str, torch.Tensor]] | None, version: int, content_hash: str
    ) -> None:
        """Takes them over; raises InvalidRun when the result is not what ``content_hash`` names.

        Where the trainer has written into the module that both share, its hash is of these very tensors. It is believed
        when hash and tensors have both changed or both stayed, and computed again only when they disagree.
        """
        if weights is None and (content_hash != self.hash) == self._moved():
            self.version, self.hash = version, content_hash
            self._mark()
            return
        if weights is not None:
            if version < self.version:
                raise InvalidRun(f"engine 'native': got version {version} after version {self.version}; a sync came out of order")
            self._copy(dict(weights))
        found = weights_hash(self._model)
        if found != content_hash:
            raise InvalidRun(
                f"engine 'native': was told that version {version} has hash {content_hash[:12]}, but it holds {found[:12]}; "
                "publish the weights and their hash together, after the step and before anything is sampled"
            )
        self.version, self.hash = version, found
        self._mark()

    def _copy(self, weights: dict[str, torch.Tensor]) -> None:
        own = {**dict(self._model.named_buffers()), **dict(self._model.named_parameters(remove_duplicate=False))}
        with torch.no_grad():
            for name, tensor in weights.items():
                if name not in own:
                    raise UsageError(f"the model has no weight {name!r}.{nearest(name, own)}")
                own[name].copy_(tensor)

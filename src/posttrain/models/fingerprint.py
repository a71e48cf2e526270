"""The content hash of a model's weights: what the trainer publishes is what the engine must hold."""

from __future__ import annotations

import hashlib
from typing import Any

import torch


def weights_hash(model: Any) -> str:
    """SHA-256 over name, dtype, shape and bytes of every parameter, in order of names; a tied one counts once.

    The same for the same weights in another process or on another device; one changed bit changes it. About 0.2 s for
    135M bf16 weights on one core.
    """
    digest = hashlib.sha256()
    for name, tensor in sorted(model.named_parameters(), key=lambda item: item[0]):
        digest.update(f"{name}|{tensor.dtype}|{tuple(tensor.shape)}|".encode())
        raw = tensor.detach().to("cpu").contiguous().flatten().view(torch.uint8)
        digest.update(memoryview(raw.numpy()))
    return digest.hexdigest()

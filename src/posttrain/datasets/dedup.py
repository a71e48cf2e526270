"""Rows that say the same are kept once: equal after Unicode normalisation, case folding and collapsing of white space."""

from __future__ import annotations

import hashlib
import unicodedata
from collections.abc import Iterable

from posttrain.types import Trajectory


def fingerprint(texts: Iterable[str]) -> str:
    """SHA-256 over normalised texts: equal for texts that differ in case, white space or Unicode form only."""
    digest = hashlib.sha256()
    for text in texts:
        plain = " ".join(unicodedata.normalize("NFKC", text).casefold().split()).encode("utf-8", "surrogatepass")
        digest.update(len(plain).to_bytes(8, "big") + plain)
    return digest.hexdigest()


def drop_duplicates(trajectories: Iterable[Trajectory]) -> tuple[list[Trajectory], list[Trajectory]]:
    """(kept, dropped): the first of those whose prompt and answers say the same is kept, in order."""
    seen: set[str] = set()
    kept: list[Trajectory] = []
    dropped: list[Trajectory] = []
    for t in trajectories:
        said = [m.content for m in t.task.prompt] + [turn.text for turn in t.turns if turn.role == "assistant"]
        key = fingerprint(said)
        (dropped if key in seen else kept).append(t)
        seen.add(key)
    return kept, dropped

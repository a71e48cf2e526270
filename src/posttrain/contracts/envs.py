"""The gate every environment passes: what may count as a family, checked by running it.

A family counts when generation is pure, its reference answer earns 1.0 and its near misses do not, nothing is earned by
saying nothing or one constant, tasks rarely repeat, sizes grow with the level, and no text can make its verifier raise.
"""

from __future__ import annotations

import asyncio
import hashlib
import itertools
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, fields
from pathlib import Path
from statistics import fmean
from typing import Any

from posttrain.contracts import _judging, _sessions
from posttrain.envs._base import Environment, Family
from posttrain.types import Task

DIGEST_SEEDS = range(5)
MIN_TEMPLATES = 4
MAX_REPEATS = 20  # among 500 seeds of a level
MIN_GROWTH = 5.0  # of the size metric, level 9 over level 0
HASH_SEEDS = ("0", "4242")


def check(plugin: Environment, *, levels: Sequence[int] | None = None, seeds: int = 0) -> list[str]:
    """What is wrong with an environment, one sentence each; empty when it passes.

    ``levels`` are those looked at closely (default: all), ``seeds`` how many tasks of each are judged (0, and at most: the
    family's ``gate_seeds``). Runs the verifier in this process, and two child processes for purity. Must not be called from
    inside an event loop.
    """
    if not isinstance(plugin, Family):
        return [*_finite(plugin), *asyncio.run(_judging.probes(plugin))]
    seeds = min(seeds, plugin.gate_seeds) if seeds else plugin.gate_seeds
    chosen = list(plugin.levels) if levels is None else list(levels)
    bad = [*_growth(plugin), *_pure(plugin, chosen)]
    for level in chosen:
        tasks = [plugin.generate(seed, level) for seed in range(500)]
        found = [*_tasks(plugin, tasks), *asyncio.run(_judging.check(plugin, tasks[:seeds]))]
        found += asyncio.run(_sessions.check(plugin, tasks[:3]))
        bad += [f"level {level}: {what}" for what in found]
    return bad


def digest(family: Family, levels: Sequence[int] = (0, 4, 9)) -> str:
    """SHA-256 over everything in the first tasks of ``levels``; a change of it asks for a new ``version``."""
    made = [family.generate(seed, level) for level in levels if level in family.levels for seed in DIGEST_SEEDS]
    return hashlib.sha256(json.dumps([asdict(task) for task in made], default=repr).encode()).hexdigest()


def _finite(environment: Environment) -> Iterator[str]:
    """Tasks of an environment that is no family: at least one, unique ids, the same each time."""
    first = list(itertools.islice(environment.tasks(), 500))
    if not first:
        yield "it has no tasks"
    if len({t.id for t in first}) < len(first):
        yield "two of its tasks share an id"
    if list(itertools.islice(environment.tasks(), 500)) != first:
        yield "tasks() differs from one call to the next"


def _growth(family: Family) -> Iterator[str]:
    """The size metric against the level."""
    sizes = [fmean(family.size(family.generate(seed, level)) for seed in range(12)) for level in family.levels]
    for level, (low, high) in enumerate(itertools.pairwise(sizes), start=family.levels.start):
        if high < low:
            yield f"its size shrinks from {low:g} at level {level} to {high:g} at level {level + 1}"
    if sizes[-1] < MIN_GROWTH * sizes[0]:
        yield f"its size grows from {sizes[0]:g} to {sizes[-1]:g} only; the last level needs {MIN_GROWTH:g} times the first"


def _pure(family: Family, levels: Sequence[int]) -> Iterator[str]:
    """Byte-identical tasks within this process and in others, whatever their hash seed."""
    here = digest(family, levels)
    if digest(family, levels) != here:
        yield "generate gives different tasks for one seed; draw everything from self.rng(seed, level)"
        return
    code = (
        "import json, sys\nfrom posttrain import plugins\nfrom posttrain.contracts.envs import digest\n"
        "print(digest(plugins.build('envs', sys.argv[1], **json.loads(sys.argv[2])), json.loads(sys.argv[3])))"
    )
    cls = type(family)
    source = sys.modules[cls.__module__].__file__ or ""
    name = family.name if cls.__module__.startswith("posttrain.envs.") else f"{Path(source).resolve()}:{cls.__name__}"
    options = json.dumps({f.name: getattr(family, f.name) for f in fields(family) if f.init})
    children = []
    for seed in HASH_SEEDS:
        environ = {**os.environ, "PYTHONHASHSEED": seed}
        argv = [sys.executable, "-c", code, name, options, json.dumps(list(levels))]
        children.append(subprocess.Popen(argv, env=environ, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True))
    for seed, child in zip(HASH_SEEDS, children, strict=True):
        try:
            out, err = child.communicate(timeout=120)
        except subprocess.TimeoutExpired:
            child.kill()
            child.communicate()
            yield f"generating {len(levels) * len(DIGEST_SEEDS)} tasks in another process took over 120 s"
            continue
        if child.returncode:
            yield f"it cannot be made in another process: {err.strip().splitlines()[-1]}"
        elif out.strip() != here:
            yield f"its tasks differ under PYTHONHASHSEED={seed}; sort what comes out of sets"


def _tasks(family: Family, tasks: Sequence[Task]) -> Iterator[str]:
    """What the records of 500 seeds of one level say."""
    level = tasks[0].level
    for seed, task in enumerate(tasks):
        if (task.id, task.environment, task.version, task.seed, task.level) != (
            family.task_id(seed, level),
            family.name,
            family.version,
            seed,
            level,
        ):
            yield f"the task of seed {seed} misnames itself: {task.id}, {task.environment}@{task.version}, level {task.level}"
            break
    for task in tasks[:5]:
        if fault := _not_json(task):
            yield fault
            break
    repeats = len(tasks) - len({t.prompt_hash for t in tasks})
    if repeats > MAX_REPEATS:
        yield f"{repeats} prompts repeat among {len(tasks)} seeds; at most {MAX_REPEATS} may"
    wordings = {t.template for t in tasks}
    if len(wordings) < max(MIN_TEMPLATES, family.templates):
        yield f"it uses {len(wordings)} wordings, {max(MIN_TEMPLATES, family.templates)} are needed"
    near = family.neighbours(tasks[0], 4)
    if len(near) != 4 or {t.id for t in near} & {t.id for t in tasks} or family.neighbours(tasks[0], 4) != near:
        yield "neighbours must give as many new tasks as asked for, the same each time"


def _not_json(task: Task) -> str:
    """Why the task's private half cannot be stored, "" when it can."""
    for part in ("answer", "private", "metadata"):
        value: Any = getattr(task, part)
        value = dict(value) if part != "answer" else value
        try:
            if json.loads(json.dumps(value)) != _listed(value):
                return f"{part} does not survive JSON: {value!r:.100}"
        except TypeError as fault:
            return f"{part} is not JSON: {fault}"
    return ""


def _listed(value: Any) -> Any:
    """Tuples as lists, as JSON gives them back."""
    if isinstance(value, list | tuple):
        return [_listed(item) for item in value]
    return {key: _listed(item) for key, item in value.items()} if isinstance(value, dict) else value

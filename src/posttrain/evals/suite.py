"""What is evaluated and how: held-out tasks, the few-shot baseline, and attempts whose every trajectory is kept."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING, Any, TypeVar

from posttrain.envs._base import Environment
from posttrain.errors import DeadlineExceeded, UsageError
from posttrain.rollout.group import Events
from posttrain.rollout.scripted import worked
from posttrain.rollout.workers import rollout
from posttrain.types import Message, Sampling, Task, Trajectory

if TYPE_CHECKING:
    from posttrain.engines._base import Engine
    from posttrain.progress import Progress

T = TypeVar("T")
_SCAN = 64  # tasks looked at per task wanted, before an endless stream's rarest buckets are given up
_SHOW_SECONDS = 60.0


def held_out_tasks(environment: Environment, n: int, *, min_templates: int | None = None) -> list[Task]:
    """The first n held-out tasks of the environment's stream, spread evenly over templates and levels, prompts distinct.

    Disjoint from training because pools never draw ``task.held_out``. ``min_templates`` defaults to 4 for a graded family and
    1 for finite rows. Raises UsageError when the data hold too few tasks or wordings.
    """
    if n < 1:
        raise UsageError(f"{n} held-out tasks of {environment.name} were asked for; an evaluation needs at least 1")
    endless = hasattr(environment, "generate")
    wanted = min_templates if min_templates is not None else 4 if endless else 1
    found: dict[str, Task] = {}  # by prompt hash, in stream order
    buckets: dict[tuple[str, int], int] = {}
    scanned, limit = 0, _SCAN * n + 1024
    for task in environment.tasks():
        scanned += 1
        buckets.setdefault((task.template, task.level), 0)
        if task.held_out and task.prompt_hash not in found:
            found[task.prompt_hash] = task
            buckets[task.template, task.level] += 1
        if endless and scanned >= limit:
            break
        if endless and scanned >= 16 * len(buckets) and min(buckets.values()) >= -(-n // len(buckets)):
            break
    if len(found) < n:
        raise UsageError(
            f"{environment.name} holds {len(found)} held-out tasks among the first {scanned} (one prompt in eight is held out), "
            f"but {n} were asked for; "
            + (f"ask for at most {len(found)}, or bring more rows" if found else "bring more rows: at least a few dozen")
        )
    chosen = _spread(list(found.values()), n)
    templates = {t.template for t in chosen}
    if len(templates) < wanted:
        raise UsageError(
            f"{environment.name} has {len(templates)} prompt templates among its held-out tasks, but intervals that are "
            f"clustered by template need {wanted}; vary the wording, or pass min_templates={len(templates)}"
        )
    return chosen


def _spread(tasks: Sequence[Task], n: int) -> list[Task]:
    """n of ``tasks``, one from each (template, level) in turn; in stream order."""
    queues: dict[tuple[str, int], list[int]] = {}
    for index, task in enumerate(tasks):
        queues.setdefault((task.template, task.level), []).append(index)
    depth = max(map(len, queues.values()))
    order = [q[rank] for rank in range(depth) for _, q in sorted(queues.items()) if rank < len(q)]
    return [tasks[i] for i in sorted(order[:n])]


def few_shot(environment: Environment, task: Task, k: int) -> Task:
    """The same task with k worked examples before it, as user and assistant messages: the honest baseline.

    Examples are the first k training tasks of the same template (never held out, never the task itself), so all held-out tasks
    of a template share one prefix. Multi-turn oracles are shown whole, tool results included, as a session really answered
    them. The id stays, so the arm pairs with the plain one. Raises UsageError for an environment without an oracle.
    """
    if k < 1:
        return task
    stream = (t for t in environment.tasks() if not t.held_out and t.template == task.template)
    examples = list(islice((t for t in _bounded(stream, environment) if t.prompt_hash != task.prompt_hash), k))
    if len(examples) < k:
        raise UsageError(f"{environment.name} holds {len(examples)} training tasks of template {task.template!r}, {k} are needed")
    shown: list[Message] = [m for m in task.prompt if m.role == "system"]
    for example in examples:
        response = environment.reference(example)
        if response is None:
            raise UsageError(f"{environment.name} has no worked reference answers to show; set few_shot = 0 for it")
        shown += [m for m in example.prompt if m.role != "system"]
        shown += _apart(worked(environment, example, response), f"showing the worked example {example.id}")[0]
    shown += [m for m in task.prompt if m.role != "system"]
    return replace(
        task,
        prompt=tuple(shown),
        metadata={**task.metadata, "few_shot": k, "plain_prompt_hash": task.prompt_hash},
    )


def _bounded(stream: Iterable[Task], environment: Environment) -> Iterable[Task]:
    """An endless stream cut where a template that it no longer has would be looked for forever."""
    return islice(stream, 4096) if hasattr(environment, "generate") else stream


def _apart(work: Coroutine[Any, Any, T], what: str) -> T:
    """Runs a coroutine to its end on a loop of its own, whether or not the caller runs in one."""
    result: list[T] = []
    failed: list[BaseException] = []

    def body() -> None:
        try:
            result.append(asyncio.run(work))
        except BaseException as error:  # carried to the caller, raised there
            failed.append(error)

    thread = threading.Thread(target=body, daemon=True)
    thread.start()
    thread.join(_SHOW_SECONDS)
    if failed:
        raise failed[0]
    if not result:
        raise DeadlineExceeded(what, _SHOW_SECONDS)
    return result[0]


async def evaluate(
    environments: Sequence[Environment],
    engine: Engine,
    *,
    tasks: Mapping[str, Sequence[Task]],
    temperature: float = 0.0,
    samples: int = 1,
    seed: int = 0,
    concurrency: int = 128,
    events: Events | None = None,
    progress: Progress | None = None,
) -> list[Trajectory]:
    """``samples`` attempts at every task, judged; every trajectory is kept, infrastructure failures among them.

    ``tasks`` maps an environment's name to its tasks. ``progress`` is told how many tasks are done. Results come
    in the order of ``tasks``, then by attempt. Raises UsageError for tasks whose environment is not given.
    """
    by_name = {e.name: e for e in environments}
    missing = [name for name in tasks if name not in by_name]
    if missing:
        raise UsageError(f"there are tasks of {missing[0]!r} but no such environment was given; have {', '.join(by_name)}")
    requests = [(task, by_name[name], 0) for name, mine in tasks.items() for task in mine]
    budget = max((task.limits.max_tokens for task, _, _ in requests), default=1)
    sampling = Sampling(temperature=temperature, max_tokens=budget)  # each task's own limits cut it down
    groups = await rollout(
        requests,
        engine,
        group_size=samples,
        seed=seed,
        sampling=sampling,
        concurrency=concurrency,
        events=events,
        progress=progress,
    )
    return [t for group in groups for t in group.trajectories]

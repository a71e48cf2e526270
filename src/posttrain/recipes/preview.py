"""Before any step: prompts as the policy sees them, sampled answers with their rewards, and how long a run would take."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from posttrain import options
from posttrain.errors import UsageError
from posttrain.progress import Progress
from posttrain.recipes._live import open_live
from posttrain.recipes._sft_rows import oracle_rows
from posttrain.recipes._stages import group_figures, require_judged
from posttrain.recipes._usage import peak_memory
from posttrain.recipes.rlvr import Rlvr
from posttrain.rollout.scripted import check_environments
from posttrain.rollout.workers import rollout
from posttrain.types import Group, Sampling

if TYPE_CHECKING:
    from posttrain.recipes._live import Live

SHOWN = 1200  # characters of a prompt or an answer that are printed


def main(source: str, *, overrides: Sequence[str] = (), progress: Progress | None = None, **kw: Any) -> dict[str, Any]:
    """The answer of ``posttrain preview RECIPE``: tasks, mixed groups, predicted time, memory used so far, text.

    A step was taken then, so its memory is in ``peak_memory_so_far_bytes``; longer answers than those sampled need more.
    """
    table = options.load(source, overrides, **kw)
    recipe = options.recipe(table, source)
    if not isinstance(recipe, Rlvr):
        raise UsageError(
            f"preview shows the rollouts of an rlvr recipe; {source} is {type(recipe).__name__.lower()!r}: run it instead"
        )
    return asyncio.run(_preview(recipe, progress or Progress(quiet=True)))


async def _preview(recipe: Rlvr, progress: Progress) -> dict[str, Any]:
    environments = recipe.training_environments()
    async with open_live(
        recipe.model, recipe.engine, recipe.train, precision=recipe.precision, device=recipe.device, threads=recipe.threads
    ) as live:
        await check_environments((*environments, *recipe.transfer), live.renderer)
        pool = recipe.pool.open(environments, recipe.seed)
        by_name = {e.name: e for e in environments}
        requests = [(task, by_name[task.environment], visit) for task, visit in pool.next(recipe.tasks_per_step)]
        progress.stage("preview", len(requests))
        began = time.monotonic()
        sampling = Sampling(temperature=recipe.temperature, max_tokens=max(task.limits.max_tokens for task, _, _ in requests))
        groups = await rollout(
            requests,
            live.engine,
            group_size=recipe.group_size,
            seed=recipe.seed,
            sampling=sampling,
            concurrency=recipe.engine.max_slots,
            progress=progress,
        )
        rolled = time.monotonic() - began
        require_judged([t for g in groups for t in g.trajectories], "the preview")
        step = await _time_a_step(live, recipe, groups)
    figures = group_figures(groups)
    predicted = _predict(recipe, len(environments) + len(recipe.transfer), rolled, step)
    shown, memory = [_shown(live, g) for g in groups], peak_memory()
    return {
        "recipe": type(recipe).__name__.lower(),
        "precision": live.precision,
        "tasks": shown,
        "pass_rate": figures["pass_rate"],
        "mixed_groups": figures["mixed_groups"],
        "malformed": figures["malformed"],
        "predicted": predicted,
        "peak_memory_so_far_bytes": memory,
        "text": _text(shown, figures, predicted, memory),
    }


async def _time_a_step(live: Live, recipe: Rlvr, groups: Sequence[Group]) -> float:
    """Seconds of one training step on what was sampled, at learning rate 0 so that nothing is learnt."""
    began, loss = time.monotonic(), recipe.loss
    groups = recipe.advantage(live.policy.annotate(groups, loss.annotations))
    rows = [t for g in groups for t in g.trajectories]
    if not any(t.advantage for t in rows):
        rows, loss = await oracle_rows(live, recipe.training_environments(), recipe.tasks_per_step), recipe.warm_up.loss
        began = time.monotonic()
    if rows:
        live.policy.step(rows, loss, lr=0.0)
    return time.monotonic() - began


def _predict(recipe: Rlvr, num_environments: int, rollout_seconds: float, train_seconds: float) -> dict[str, float]:
    attempts = recipe.tasks_per_step * recipe.group_size
    evaluation = rollout_seconds / attempts * recipe.eval_tasks * num_environments
    looks = 3 + (2.5 if recipe.few_shot else 0)  # a few-shot prompt is several times as long
    warm_up = recipe.warm_up.within(recipe.minutes)
    step = rollout_seconds + train_seconds * (1 + warm_up.rehearsed_rows / warm_up.rows_per_step)
    sampled = warm_up.rejection_tasks * warm_up.rejection_samples / attempts if warm_up.rejection_steps else 0
    seconds = looks * evaluation + warm_up.num_steps * train_seconds + sampled * rollout_seconds + recipe.steps * step
    if recipe.minutes:
        seconds = min(seconds, recipe.minutes * 60)
    return {
        "rollout_seconds": rollout_seconds,
        "train_seconds": train_seconds,
        "step_seconds": step,
        "minutes": seconds / 60,
    }


def _shown(live: Live, group: Group) -> dict[str, Any]:
    first = group.trajectories[0]
    return {
        "task": group.task.id,
        "prompt": live.renderer.decode(first.turns[0].token_ids, skip_special=False) if first.turns else "",
        "answers": [
            {
                "text": t.final_text,
                "reward": t.reward,
                "status": t.verdict.status if t.verdict else t.outcome,
                "parts": dict(t.verdict.parts) if t.verdict else {},
            }
            for t in group.trajectories
        ],
    }


def _text(shown: Sequence[dict[str, Any]], figures: dict[str, float], predicted: dict[str, float], memory: int) -> str:
    lines = []
    for task in shown[:6]:
        lines += [f"--- {task['task']}", task["prompt"][:SHOWN].rstrip()]
        for answer in task["answers"][:3]:
            lines += [f"  [{answer['status']} {answer['reward']}] {answer['text'][:SHOWN].strip()!r}"]
    lines += [
        "",
        f"pass rate {figures['pass_rate']:.2f}, malformed {figures['malformed']:.2f}, mixed groups {figures['mixed_groups']:.2f} "
        "(below 0.2 most groups teach nothing)",
        f"a step takes about {predicted['step_seconds']:.0f} s, the run about {predicted['minutes']:.1f} min, "
        f"peak memory so far {memory / 1e9:.1f} GB (one rollout and one step)",
    ]
    return "\n".join(lines)

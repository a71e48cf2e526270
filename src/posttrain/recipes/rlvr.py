"""Reinforcement learning with verifiable rewards, the whole job: evaluate, warm up, learn, evaluate, report.

Differs from textbook GRPO (2402.03300) in four ways: tasks come from a pool that prefers those that are failed or mixed;
groups whose rewards are equal are left out of batch and denominator; the clip is asymmetric (DAPO, 2503.14476); there is
no KL term and no reference model. Prompts of a group run through the model once.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from posttrain.advantages._base import Advantage
from posttrain.advantages.group_mean import GroupMean
from posttrain.engines.native import Native
from posttrain.envs._base import Environment
from posttrain.envs.rows import Rows
from posttrain.errors import UsageError
from posttrain.evals.suite import held_out_tasks
from posttrain.losses._base import Loss
from posttrain.losses.clipped import Clipped
from posttrain.pools._base import Pool
from posttrain.pools.hard_mining import HardMining
from posttrain.recipes._clock import CALIBRATION, Clock
from posttrain.recipes._environments import own_rows, require_distinct, say_repeats, with_examples
from posttrain.recipes._live import Live, Precision, open_live
from posttrain.recipes._points import go_back, require_space, save_point
from posttrain.recipes._ranges import require_at_least
from posttrain.recipes._stages import evaluation, finish, group_figures, note_dropped, sample
from posttrain.recipes._usage import used
from posttrain.recipes._warm_up import WarmUp
from posttrain.rollout.scripted import check_environments
from posttrain.train.policy import Policy
from posttrain.train.publish import publish

if TYPE_CHECKING:
    from posttrain.pools._base import OpenPool
    from posttrain.progress import Progress
    from posttrain.store.run_dir import RunDir


@dataclass(frozen=True, kw_only=True)
class Rlvr:
    """From a model and its environments to a better model and a report.

    ``environments`` train; ``transfer`` are held out whole and only evaluated. ``data`` adds a file of your own rows, judged
    by ``reward`` (a Python file with ``def reward(trajectory) -> float``) or as ``rows`` says. ``minutes`` > 0 turns a time
    budget into a number of RLVR steps, after the first few, at checkpoints and at their end; ``steps`` is the most there can
    be. Small budgets also evaluate on fewer tasks and warm up for fewer epochs.
    """

    model: str = "smollm2-135m-instruct"
    device: str = "cpu"
    precision: Precision = "auto"
    threads: int = 0
    seed: int = 0
    minutes: float = 0.0
    environments: tuple[Environment, ...] = field(default=(), metadata={"kind": "envs"})
    transfer: tuple[Environment, ...] = field(default=(), metadata={"kind": "envs"})
    data: Path | None = None
    reward: Path | None = None
    rows: Rows | None = field(default=None, metadata={"kind": "envs"})
    engine: Native = field(default_factory=Native)
    train: Policy = field(default_factory=Policy)
    warm_up: WarmUp = field(default_factory=WarmUp)
    eval_tasks: int = 32
    few_shot: int = 3
    steps: int = 15
    tasks_per_step: int = 12
    group_size: int = 8
    temperature: float = 1.0
    loss: Loss = field(default_factory=Clipped, metadata={"kind": "losses"})
    advantage: Advantage = field(default_factory=GroupMean, metadata={"kind": "advantages"})
    pool: Pool = field(default_factory=HardMining, metadata={"kind": "pools"})
    checkpoint_every: int = 5

    def __post_init__(self) -> None:
        require_at_least(self, threads=0, seed=0, minutes=0, eval_tasks=1, few_shot=0, steps=0, temperature=0)
        require_at_least(self, tasks_per_step=1, group_size=1, checkpoint_every=1)
        self.train.require(self.loss.annotations)

    def run(self, run: RunDir, progress: Progress) -> dict[str, Any]:
        """Runs or resumes the job in ``run``; returns its results, with the table as text."""
        return asyncio.run(self.work(run, progress))

    async def work(self, run: RunDir, progress: Progress) -> dict[str, Any]:
        """The job, top to bottom."""
        clock = Clock(run)
        environments = self.training_environments()
        everywhere = (*environments, *self.transfer)
        tasks = {e.name: held_out_tasks(e, self.num_eval_tasks()) for e in everywhere}
        precision = run.info.get("precision", self.precision)  # what was measured once holds for the whole run
        progress.log(f"loading {self.model}")
        async with open_live(
            self.model,
            self.engine,
            self.train,
            precision=precision,
            device=self.device,
            threads=self.threads,
            refused=run.path / "refused",
        ) as live:
            run.note(precision=live.precision)
            saves = -(-self.steps // self.checkpoint_every)
            require_space(run, live, warm_up=self.warm_up.num_steps > 0, saves=saves)
            await check_environments(everywhere, live.renderer)
            say_repeats(everywhere, progress)
            pool = self.pool.open(environments, self.seed)
            stage, step = await go_back(run, live, pool, progress)
            look = partial(
                evaluation,
                engine=live.engine,
                environments=everywhere,
                run=run,
                progress=progress,
                seed=self.seed,
                concurrency=live.slots,
            )

            stages = {"before": await look("before", tasks=tasks)}
            if self.few_shot:
                stages["few_shot"] = await look("few_shot", tasks=with_examples(everywhere, tasks, self.few_shot))
            if self.warm_up.num_steps:
                if not stage:
                    taken = await self.warm_up.within(self.minutes).train(live, environments, run, progress, seed=self.seed)
                    save_point(run, "warm_up", max(taken - 1, 0), live, pool, {"steps": taken}, clock)
                stages["after_sft"] = await look("after_sft", tasks=tasks)
            await self.learn(live, environments, pool, run, progress, clock, step + 1 if stage == "rlvr" else 0)
            stages["after_rl"] = await look("after_rl", tasks=tasks)
            live.policy.export(run.model)
        return finish(run, stages, [e.name for e in self.transfer], clock, self.seed)

    async def learn(
        self,
        live: Live,
        environments: Sequence[Environment],
        pool: OpenPool,
        run: RunDir,
        progress: Progress,
        clock: Clock,
        first: int,
    ) -> None:
        """RLVR from step ``first``: draw, roll out, verify, compare within groups, step, publish."""
        by_name = {e.name: e for e in environments}
        rehearse = self.warm_up.rehearsal(run, self.seed)
        step, steps = first, run.info.get("rlvr_steps", self.steps)
        progress.stage("rlvr", steps)
        while step < steps:
            began, cpu = time.monotonic(), time.process_time()
            requests = [(task, by_name[task.environment], visit) for task, visit in pool.next(self.tasks_per_step)]
            groups = await sample(
                live, requests, run, "rlvr", step, group_size=self.group_size, temperature=self.temperature, seed=self.seed
            )
            rolled = time.monotonic()
            for group in groups:
                pool.observe(group)
            figures = group_figures(groups)
            groups = self.advantage(live.policy.annotate(groups, self.loss.annotations))
            result = live.policy.step([t for g in groups for t in g.trajectories], self.loss)
            rehearsed, left_out = rehearse(live.policy, step)
            await publish(live.policy, live.engine)
            seconds = time.monotonic() - began
            run.write_trajectories("rlvr", step, result.trajectories)
            note_dropped(run, "rlvr", step, [*result.dropped, *left_out])
            figures |= rehearsed
            figures |= result.metrics | {
                "rollout_seconds": rolled - began,
                "train_seconds": began + seconds - rolled,
                "step_seconds": seconds,
                "tokens_per_second": figures["sampled_tokens"] / (rolled - began),
                **used(cpu),
            }
            run.write_metrics("rlvr", step, figures)
            step += 1
            saving = step % self.checkpoint_every == 0
            if self.minutes and step >= CALIBRATION and (saving or step in (CALIBRATION, steps)):
                steps = clock.steps_that_fit(self.minutes, self.steps)
                run.note(rlvr_steps=steps)
                progress.stage("rlvr", steps)
                progress.log(clock.told(self.minutes, steps))
            progress.update(step, **{n: figures[n] for n in ("reward", "mixed_groups", "tokens_per_second") if n in figures})
            if step == steps or saving:
                save_point(run, "rlvr", step - 1, live, pool, {"steps": steps} if step == steps else None, clock)

    def num_eval_tasks(self) -> int:
        """``eval_tasks``, or fewer (down to 8) where ``minutes`` leaves less than 16 s for each."""
        return min(self.eval_tasks, max(8, round(self.minutes * 60 / 16))) if self.minutes else self.eval_tasks

    def training_environments(self) -> tuple[Environment, ...]:
        """The environments that train, your own rows among them. Raises ``UsageError`` for none, and for two of one name."""
        own = own_rows(self.rows, self.data, self.reward)
        if not self.environments and not own:
            raise UsageError("the recipe trains on nothing: name environments, or give data=ROWS.jsonl and reward=REWARD.py")
        require_distinct(environments=self.environments, transfer=self.transfer, rows=own)
        return (*self.environments, *own)

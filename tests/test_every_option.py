"""Guarantee A17: every option of every plug-in on the main path changes something that can be observed.

``TABLE`` says for each plug-in what is watched and to what each option is changed. A plug-in that is listed, or an option
that is added, without a line here fails.
"""

from __future__ import annotations

import asyncio
import copy
import hashlib
import json
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, fields, replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from posttrain import plugins
from posttrain.advantages.group_mean import GroupMean
from posttrain.advantages.group_norm import GroupNorm
from posttrain.advantages.leave_one_out import LeaveOneOut
from posttrain.engines._base import Request
from posttrain.engines.native import Native
from posttrain.envs._base import Family
from posttrain.envs.rows import Rows
from posttrain.errors import PosttrainError, UsageError
from posttrain.losses._base import Loss, Outputs
from posttrain.losses.clipped import Clipped
from posttrain.losses.cross_entropy import CrossEntropy
from posttrain.losses.ref_kl import RefKl
from posttrain.losses.sum_of import SumOf
from posttrain.pools.hard_mining import HardMining
from posttrain.pools.uniform import Uniform
from posttrain.progress import Progress
from posttrain.recipes._warm_up import WarmUp
from posttrain.recipes.evaluate import Evaluate
from posttrain.recipes.rlvr import Rlvr
from posttrain.store.run_dir import RunDir
from posttrain.train.pack import pack
from posttrain.train.policy import Policy
from posttrain.types import Group, Key, Message, Sampling, Task, Trajectory, Turn, Verdict
from posttrain.verifiers.exact import Exact
from posttrain.verifiers.number import Number

CLOCKS = ("time", "timings", "second", "cpu", "memory")  # figures that depend on the machine


@dataclass
class Place:
    """Where the watched plug-ins find their files."""

    tmp: Path
    tiny: Path
    other: Path
    number: int = 0

    @property
    def data(self) -> Path:
        return self.tmp / "rows.jsonl"

    @property
    def reward(self) -> Path:
        return self.tmp / "reward.py"


@dataclass(frozen=True)
class With:
    """An option's other value under ``options`` that differ from the table's, for one that acts only then.

    ``along`` must change with it.
    """

    value: Any
    options: dict[str, Any] = field(default_factory=dict)
    along: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Refused:
    """An option's other value that must be refused, for one whose refusal is what it does; ``why`` matches the error.

    Anywhere else an error is no observation: an option that only breaks a run would seem to act.
    """

    value: Any
    why: str


@dataclass(frozen=True)
class Line:
    """``watch`` says what can be observed of a plug-in with the options ``base``, any of which may be made from the place."""

    watch: Callable[[Any, Place], Any]
    changes: dict[str, Any]
    base: dict[str, Any] = field(default_factory=dict)


@pytest.fixture(scope="module")
def place(tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Place:
    from posttrain.models.tiny import make_tiny

    tmp = tmp_path_factory.mktemp("options")
    row = {"answer": "two <<2>> and two #### 4", "b": "x #### 6", "kind": "k", "q": "3+3?"}
    for name, asked in (("one", "2+2?"), ("two", "1+3?")):
        (tmp / f"{name}.jsonl").write_text(json.dumps({"prompt": asked, **row}) + "\n")
    for name, first in (("rows", 0), ("others", 500)):
        numbers = range(first, first + 80)
        (tmp / f"{name}.jsonl").write_text(
            "".join(json.dumps({"prompt": f"Say {n}.", "answer": f"it is {n}"}) + "\n" for n in numbers)
        )
    (tmp / "reward.py").write_text("def reward(trajectory):\n    return sum(map(ord, trajectory.text)) % 3 / 2\n")
    (tmp / "another.py").write_text("def reward(trajectory):\n    return len(trajectory.text) % 5 / 4\n")
    return Place(tmp, tiny_model, make_tiny(tmp / "other", seed=1))


# -- what is watched --------------------------------------------------------------------------------------------------


def trajectories(seed: int = 0, version: int = 0) -> list[Trajectory]:
    """Three groups of four sampled attempts with logprobs of every kind, far enough apart for every bound to act."""
    draw = random.Random(seed)
    made = []
    for g in range(3):
        task = Task(id=f"t{g}", environment="tests/rows", prompt=(Message(role="user", content=str(g)),))
        prompt = Turn(role="prompt", token_ids=tuple(draw.randrange(500) for _ in range(12)))
        for i in range(4):
            n = draw.randint(2, 9)
            logprobs = {
                name: tuple(-draw.random() * 4 for _ in range(n))
                for name in ("rollout_logprobs", "proximal_logprobs", "ref_logprobs")
            }
            ids = tuple(draw.randrange(500) for _ in range(n))
            answer = Turn(role="assistant", token_ids=ids, policy_versions=(version,) * n, **logprobs)
            reward = float(i % 2)
            made.append(Trajectory(task=task, attempt=i, turns=(prompt, answer), reward=reward, advantage=reward - 0.4))
    return made


def watch_loss(loss: Loss, _: Place) -> Any:
    """Value, gradient and metrics, and what it asks to have annotated."""
    import torch

    (batch,) = pack(trajectories(), max_tokens=10_000).batches
    noise = torch.rand(len(batch.row_N), generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    logprobs = (-4 * noise).requires_grad_()
    value, metrics = loss(batch, Outputs(policy_logprobs_N=logprobs))
    mean = value / loss.weight(batch)
    return [loss.annotations, float(mean.detach()), torch.autograd.grad(mean, logprobs)[0].tolist(), dict(metrics)]


def watch_advantage(advantage: Any, _: Place) -> Any:
    rows = trajectories()
    groups = [Group(task=rows[i].task, trajectories=tuple(rows[i : i + 4])) for i in (0, 4, 8)]
    return [[t.advantage for t in g.trajectories] for g in advantage(groups)]


class Numbers:
    """An endless stream of tasks."""

    name = "toy/numbers"

    def task(self, n: int) -> Task:
        return Task(id=str(n), environment=self.name, seed=n, prompt=(Message(role="user", content=str(n)),))

    def tasks(self) -> Iterator[Task]:
        n = 0
        while True:
            yield self.task(n)
            n += 1

    def neighbours(self, task: Task, n: int) -> list[Task]:
        return [self.task(1_000_000 + task.seed * 10 + i) for i in range(n)]


def watch_pool(pool: Any, _: Place) -> Any:
    """What is drawn over thirty steps, where a task passes now more and now less often."""
    live, drawn = pool.open([Numbers()], 0), []
    for step in range(30):
        for task, visit in live.next(8):
            drawn.append((task.id, visit))
            passes = (sum(task.id.encode()) + step) % 9
            turns = (Turn(role="prompt", token_ids=(1,)),)
            members = [
                Trajectory(
                    task=task,
                    attempt=i,
                    turns=turns,
                    verdict=Verdict(status="ok" if i < passes else "wrong"),
                    reward=float(i < passes),
                )
                for i in range(8)
            ]
            live.observe(Group(task=task, trajectories=tuple(members)))
    return drawn


@cache
def module(path: Path) -> Any:
    import torch
    from transformers import AutoModelForCausalLM

    return AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32).eval()


def watch_engine(native: Native, place: Place) -> Any:
    """Turns or errors, what was computed anew, and how often the model ran."""
    model = copy.deepcopy(module(place.tiny))
    forwards: list[int] = []
    model.model.register_forward_pre_hook(lambda *_: forwards.append(1))
    shared = tuple(range(10, 80))
    requests = [
        Request(key=Key(seed=0, task_id=str(i)), token_ids=(*shared, 100 + i, 200 + i), sampling=Sampling(max_tokens=12))
        for i in range(6)
    ]

    async def work() -> Any:
        async with native.open(model, None) as engine:
            turns = await asyncio.gather(*(engine.sample(r) for r in requests), return_exceptions=True)
            said = [repr(t) if isinstance(t, BaseException) else (t.token_ids, t.stop_reason) for t in turns]
            return said, dict(engine.counts), len(forwards)

    return asyncio.run(work())


def watch_policy(policy: Policy, place: Place) -> Any:
    """Two steps, what they kept for the backward pass, annotations, and a step on samples of two versions ago."""
    import torch

    held = [0]

    def count(tensor: Any) -> Any:
        held[0] += tensor.numel()
        return tensor

    def outcome(work: Callable[[], Any]) -> Any:
        try:
            return work()
        except PosttrainError as error:
            return str(error)

    def steps() -> Any:
        live = policy.open(copy.deepcopy(module(place.tiny)))
        with torch.autograd.graph.saved_tensors_hooks(count, lambda t: t):
            metrics = [live.step(trajectories(n, version=n), Clipped()).metrics for n in range(2)]
        groups = [Group(task=t.task, trajectories=(t,)) for t in trajectories()[:2]]
        return {
            "weights": live.weights_hash(),
            "metrics": [{k: v for k, v in m.items() if not any(c in k for c in CLOCKS)} for m in metrics],
            "reference": outcome(lambda: repr(live.annotate(groups, ["ref_logprobs"]))),
            "stale": outcome(lambda: live.step(trajectories(2), Clipped()).metrics["policy_version"]),
        }

    return steps(), held


def watch_rows(rows: Rows, _: Place) -> Any:
    tasks = list(rows.tasks())
    asked = [(t.prompt, t.answer, t.template, t.limits) for t in tasks]
    return rows.name, asked, [rows.reference(t) for t in tasks], type(rows.verifier).__name__


def watch_family(family: Family, _: Place) -> Any:
    stream = iter(family.tasks())
    return [next(stream).id for _ in range(4)]


def watch_job(job: Any, place: Place) -> Any:
    """Everything that a run leaves behind, but for the clock."""
    import torch

    place.number += 1
    path = place.tmp / f"run-{place.number}"
    threads = torch.get_num_threads()
    try:
        with RunDir.create(path, {}) as run:
            results = job.run(run, Progress(quiet=True))
            weights = [hashlib.sha256(f.read_bytes()).hexdigest() for f in sorted(run.model.glob("*.safetensors"))]
            turns = [(s, n, t.id, t.turns, t.reward, t.advantage) for s, n, t in run.trajectory_rows()]
            metrics = [{k: v for k, v in row.items() if not any(c in k for c in CLOCKS)} for row in run.metrics()]
            events = sorted(repr({k: v for k, v in e.items() if not any(c in k for c in CLOCKS)}) for e in run.events())
            saved = sorted(p.name for p in run.checkpoints.iterdir())
            return sorted(results), turns, metrics, events, saved, weights, torch.get_num_threads()
    finally:
        torch.set_num_threads(threads)


def watch_warm_up(warm_up: WarmUp, place: Place) -> Any:
    return watch_job(Rlvr(**made({**RLVR, "warm_up": warm_up}, place)), place)


# -- the table --------------------------------------------------------------------------------------------------------


def rows_of(name: str = "rows.jsonl", reward: str = "reward.py") -> Callable[[Place], Rows]:
    return lambda place: Rows(data=place.tmp / name, reward=place.tmp / reward, worked="{answer}", max_tokens=6)


def at(name: str) -> Callable[[Place], Path]:
    return lambda place: place.tmp / name


def tiny(place: Place) -> str:
    return str(place.tiny)


def other_model(place: Place) -> str:
    return str(place.other)


EASY = plugins.build("envs", "logic/pick_extreme")
RLVR: dict[str, Any] = {
    "model": tiny,
    "precision": "exact",
    "rows": rows_of(),
    "eval_tasks": 2,
    "few_shot": 0,
    "steps": 1,
    "tasks_per_step": 3,
    "group_size": 4,
    "warm_up": WarmUp(steps=1, rows_per_step=2, rejection_steps=1, rejection_tasks=3, rejection_samples=2),
}
EVALUATE: dict[str, Any] = {
    "model": tiny,
    "precision": "exact",
    "environments": lambda place: (rows_of()(place),),
    "eval_tasks": 2,
}


def members(aggregation: Any, normaliser: float = 1024.0) -> tuple[Loss, ...]:
    return tuple(replace(loss, aggregation=aggregation, normaliser=normaliser) for loss in (Clipped(), RefKl()))


TABLE: dict[type[Any], Line] = {
    CrossEntropy: Line(watch_loss, {"aggregation": "sequence_mean", "normaliser": With(64.0, {"aggregation": "constant"})}),
    Clipped: Line(
        watch_loss,
        {
            "aggregation": "constant",
            "normaliser": With(64.0, {"aggregation": "constant"}),
            "eps_low": 0.4,
            "eps_high": 0.5,
            "dual_clip": 0.0,
            "decoupled": True,
            "importance_cap": With(0.0, {"decoupled": True}),
        },
    ),
    RefKl: Line(
        watch_loss,
        {
            "aggregation": "sequence_mean",
            "normaliser": With(64.0, {"aggregation": "constant"}),
            "coefficient": 0.02,
            "estimator": "k3",
            "importance_cap": 0.0,
        },
    ),
    SumOf: Line(
        watch_loss,
        {
            "losses": (CrossEntropy(),),
            "aggregation": With("sequence_mean", along={"losses": members("sequence_mean")}),
            "normaliser": With(
                64.0, {"aggregation": "constant", "losses": members("constant")}, {"losses": members("constant", normaliser=64.0)}
            ),
        },
    ),
    GroupNorm: Line(watch_advantage, {"epsilon": 0.5}),
    GroupMean: Line(watch_advantage, {}),
    LeaveOneOut: Line(watch_advantage, {}),
    Uniform: Line(watch_pool, {}),
    HardMining: Line(
        watch_pool,
        {"fresh": 0.2, "mixed": 3.0, "failed": 0.9, "solved": 0.3, "rate": 0.1, "neighbours": 0, "max_tasks": 10},
    ),
    Native: Line(
        watch_engine,
        {
            "max_slots": 2,
            "max_context": 75,
            "precision": "exact",
            "prefill_tokens": 16,
            "cached_tokens": 0,
            "deadline": 1e-9,
        },
    ),
    Policy: Line(
        watch_policy,
        {
            "lr": 2e-3,
            "betas": (0.5, 0.95),
            "eps": 1e-3,
            "weight_decay": 0.5,
            "max_grad_norm": 0.01,
            "warmup_steps": 3,
            "tokens_per_batch": 60,
            "share_prefix": False,
            "precision": Refused("fast", "trains a module in torch.bfloat16"),
            "activation_checkpointing": True,
            "reference": True,
            "max_logprob_gap": Refused(0.01, "differ on logprobs .* budget 0.01"),
            "max_staleness": 2,
        },
        {"lr": 1e-3, "precision": "exact", "max_logprob_gap": 1e9},
    ),
    Rows: Line(
        watch_rows,
        {
            "data": at("two.jsonl"),
            "reward": With(at("reward.py"), along={"verifier": None}),
            "verifier": Number(),
            "prompt": "q",
            "answer": "b",
            "answer_after": "and",
            "system": "Be brief.",
            "wordings": ("{prompt} Now!",),
            "template": "kind",
            "max_tokens": 7,
            "worked": "{answer}",
            "erase": "<<.*?>>",
        },
        {"data": at("one.jsonl"), "verifier": Exact(), "worked": "{steps} so {answer}", "answer_after": "####"},
    ),
    Rlvr: Line(
        watch_job,
        {
            "model": other_model,
            "device": Refused("nowhere", "There is no device 'nowhere'"),
            "precision": "fast",
            "threads": 2,
            "seed": 1,
            "minutes": With(0.001, {"steps": 5}),
            "environments": With((EASY,), {"eval_tasks": 4}),
            "transfer": With((EASY,), {"eval_tasks": 4}),
            "data": at("others.jsonl"),
            "reward": at("another.py"),
            "rows": rows_of("others.jsonl"),
            "engine": Native(max_context=22),
            "train": Policy(lr=1e-2),
            "warm_up": WarmUp(steps=0, rejection_steps=0),
            "eval_tasks": 3,
            "few_shot": 1,
            "steps": 2,
            "tasks_per_step": 2,
            "group_size": 2,
            "temperature": 0.5,
            "loss": CrossEntropy(),
            "advantage": GroupNorm(),
            "pool": With(Uniform(), {"steps": 3}),
            "checkpoint_every": With(1, {"steps": 2}),
        },
        RLVR,
    ),
    WarmUp: Line(
        watch_warm_up,
        {
            "steps": 2,
            "epochs": 2,
            "rows_per_step": 3,
            "lr": 1e-3,
            "rejection_steps": 0,
            "rejection_tasks": 1,
            "rejection_samples": 4,
            "rehearsed_rows": 1,
            "temperature": 0.5,
            "loss": CrossEntropy(aggregation="sequence_mean"),
        },
        {f.name: getattr(RLVR["warm_up"], f.name) for f in fields(WarmUp)},
    ),
    Evaluate: Line(
        watch_job,
        {
            "model": other_model,
            "device": Refused("nowhere", "There is no device 'nowhere'"),
            "precision": "fast",
            "threads": 2,
            "seed": With(1, {"temperature": 1.0}),
            "environments": With((EASY,), {"eval_tasks": 4}),
            "engine": Native(max_context=22),
            "eval_tasks": 3,
            "few_shot": 1,
            "samples": 2,
            "temperature": 1.0,
        },
        EVALUATE,
    ),
}
FAMILIES = [n for n in plugins.names("envs") if issubclass(plugins.find("envs", n), Family)]
WHOLE_JOBS = {Rlvr, WarmUp, Evaluate}


def made(options: dict[str, Any], place: Place) -> dict[str, Any]:
    """Options with what depends on the place filled in."""
    return {
        name: value(place) if callable(value) and not isinstance(value, type) and hasattr(value, "__code__") else value
        for name, value in options.items()
    }


def cases(jobs: bool) -> list[Any]:
    return [
        pytest.param(cls, option, id=f"{cls.__name__}.{option}")
        for cls, line in TABLE.items()
        for option in line.changes
        if (cls in WHOLE_JOBS) == jobs
    ]


def check(cls: type[Any], option: str, place: Place) -> None:
    line = TABLE[cls]
    change = line.changes[option]
    if isinstance(change, Refused):
        line.watch(cls(**made(line.base, place)), place)
        with pytest.raises(PosttrainError, match=change.why):
            line.watch(cls(**made({**line.base, option: change.value}, place)), place)
        return
    change = change if isinstance(change, With) else With(change)
    base = made({**line.base, **change.options}, place)
    changed = {**base, **made({option: change.value, **change.along}, place)}
    before = line.watch(cls(**base), place)
    assert before == line.watch(cls(**base), place), "what is watched must repeat"
    assert before != line.watch(cls(**changed), place), f"{cls.__name__}.{option} = {change.value!r} changes nothing"


@pytest.mark.parametrize(("cls", "option"), cases(jobs=False))
def test_every_option_changes_something(cls: type[Any], option: str, place: Place) -> None:
    check(cls, option, place)


@pytest.mark.slow
@pytest.mark.parametrize(("cls", "option"), cases(jobs=True))
def test_every_option_of_a_job_changes_something(cls: type[Any], option: str, place: Place) -> None:
    check(cls, option, place)


@pytest.mark.parametrize("cls", TABLE, ids=lambda c: c.__name__)
def test_no_option_is_left_out(cls: type[Any]) -> None:
    assert set(TABLE[cls].changes) == {f.name for f in fields(cls) if f.init}


@pytest.mark.parametrize("kind", ["losses", "advantages", "pools", "engines", "recipes"])
def test_no_plugin_is_left_out(kind: str) -> None:
    assert {plugins.find(kind, name) for name in plugins.names(kind)} <= set(TABLE)


@pytest.mark.parametrize("name", FAMILIES)
def test_every_option_of_a_family_changes_its_tasks(name: str, place: Place) -> None:
    cls = plugins.find("envs", name)
    others = {"level": (3,), "first_seed": 1000}
    assert {f.name for f in fields(cls) if f.init} == set(others), "a new option needs its line here"
    for option, value in others.items():
        assert watch_family(cls(), place) != watch_family(cls(**{option: value}), place)


def test_one_precision_for_a_run(place: Place) -> None:
    """``exact`` asked for on either side holds for both; it is not overruled in silence."""
    job = Rlvr(**made({**RLVR, "steps": 0, "precision": "auto", "engine": Native(precision="exact")}, place))
    other = Rlvr(**made({**RLVR, "steps": 0, "precision": "exact"}, place))
    assert watch_job(job, place) == watch_job(other, place)
    with pytest.raises(UsageError, match=r"engine\.precision or train\.precision is 'exact'"):
        watch_job(replace(job, precision="fast"), place)


def test_a_reward_without_rows_is_refused(place: Place) -> None:
    with pytest.raises(UsageError, match=r"data=ROWS\.jsonl"):
        Rlvr(environments=(EASY,), reward=place.reward).training_environments()

"""A made-up run directory: four evaluations, a warm-up and twenty steps of reinforcement learning, hostile answers among them."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from posttrain.evals.compare import table
from posttrain.store.run_dir import RunDir
from posttrain.types import Message, Sampling, Task, ToolCall, Trajectory, Turn, Verdict

FAMILIES = (
    "math_computation/linear_equation",
    "math_computation/arithmetic",
    "structured_output/json_record",
    "data_tables/sql_query",
    "tools/calendar",
    "logic/sorting",
    "units_and_dates/durations",
    "writing/constraints",
    "long_documents/cited_extraction",
)
TRANSFER = FAMILIES[-2:]
RATES = {"before": 0.18, "few_shot": 0.27, "after_sft": 0.47, "after_rl": 0.72}
PAYLOADS = (
    "</script><script>document.title='pwned'</script>",
    "<img src=x onerror=\"document.title='pwned'\">",
    "</pre></details><svg onload=\"document.title='pwned'\"><style>body{display:none}</style>",
    '\x1b[31mred\x1b[0m \u202egnirts desrever\u202c &amp; <a href="http://example.com/">link</a> \ud800',
    "x" * 1_000_000,
)


def trajectory(family: str, index: int, stage: str, rng: random.Random) -> Trajectory:
    """One judged attempt of a stage; tasks 0 and 1 of a family flip and carry a payload."""
    question = f"A crate holds {3 + index} boxes of {7 + 2 * index} jars. How many jars is that? Answer with a number."
    task = Task(
        id=f"{family}@1/L0/s{index}",
        environment=family,
        template=str(index % 4),
        prompt=(Message(role="user", content=question),),
        answer=str((3 + index) * (7 + 2 * index)),
    )
    luck = random.Random(f"{family}{index}").random()
    status = (
        "ok" if luck < RATES[stage] + rng.uniform(-0.12, 0.12) else "malformed" if stage == "before" and index % 2 else "wrong"
    )
    body = f"{3 + index} times {7 + 2 * index} is {task.answer}."
    if index in (0, 1):  # hostile answers on tasks that flip: won at index 0, lost at index 1
        body = PAYLOADS[FAMILIES.index(family) % len(PAYLOADS)]
        status = "ok" if (stage == "before") == (index == 1) else "wrong"
    answer = f"{body}\nAnswer: {task.answer if status == 'ok' else index}"
    turns = [Turn(role="prompt", token_ids=(1, 2, 3))]
    if family.startswith("tools/"):
        call = ToolCall(name="look", arguments={"day": index}, id="0")
        said = '<tool_call>{"name": "look", "arguments": {"day": 1}}</tool_call>'
        turns.append(Turn(role="assistant", token_ids=(5,) * 20, text=said, tool_calls=(call,)))
        turns.append(Turn(role="observation", token_ids=(6,) * 5, text="<tool_response>two meetings</tool_response>"))
    turns.append(Turn(role="assistant", token_ids=(4,) * 30, text=answer, stop_reason="stop"))
    verdict = Verdict(
        status=status,  # type: ignore[arg-type]
        reward=float(status == "ok"),
        parts={"format": float(status != "malformed"), "value": float(status == "ok")},
        feedback="" if status == "ok" else "The number is not right <b>yet</b>.",
        verifier="Number",
    )
    return Trajectory(
        task=task, turns=tuple(turns), verdict=verdict, reward=verdict.reward, sampling=Sampling(temperature=0.0, max_tokens=128)
    )


def rl_metrics(step: int, rng: random.Random) -> dict[str, Any]:
    """Figures of one step as a recipe writes them."""
    level = 0.45 + 0.3 * (1 - math.exp(-step / 7))

    def near(value: float) -> float:
        return min(max(value + rng.gauss(0, 0.06), 0.0), 1.0)

    row: dict[str, Any] = {
        "reward": near(level + 0.03),
        "pass_rate": near(level),
        "mixed_groups": near(0.6 - 0.02 * step),
        "zero_variance_groups": near(0.4 + 0.02 * step),
        "malformed": near(0.2 * math.exp(-step / 4)) / 2,
        "truncated": near(0.02) / 4,
        "infra_errors": 0.0,
        "entropy": 0.9 * math.exp(-step / 25),
        "logprob_gap": 0.011 + rng.random() / 500,
        "logprob_gap_max": 0.3 + rng.random(),
        "grad_norm": 1.5 + rng.random(),
        "ref_kl": math.nan if step == 3 else 0.001 + rng.random() / 1000,
        "clip_fraction": 0.01 + rng.random() / 100,
        "loss": rng.gauss(0, 0.02),
        "lr": 4e-5,
        "num_tokens_trained": 5200.0,
        "sampled_tokens": 6100.0,
        "rollout_seconds": 14.0,
        "train_seconds": 9.0,
        "step_seconds": 23.0,
        "cpu_seconds": 45.0,
        "tokens_per_second": 430.0 + rng.random() * 30,
        "peak_memory_bytes": 2.9e9,
    }
    for i, family in enumerate(f for f in FAMILIES if f not in TRANSFER):
        row[f"pass_rate/{family}"] = near(level + 0.04 * (i - 3))
        row[f"reward/{family}"] = near(level + 0.04 * (i - 3) + 0.03)
    return row


@pytest.fixture(scope="session")
def make_run() -> Callable[..., RunDir]:
    """Fabricates a run at a path; ``finished=False`` stops before there are results."""

    def make(path: Path, *, finished: bool = True, steps: int = 20) -> RunDir:
        rng = random.Random(0)
        options = {"recipe": "rlvr", "model": "smollm2-135m-instruct", "seed": 3, "few_shot": 3, "train": {"lr": 4e-5}}
        with RunDir.create(path, options) as run:
            stages: dict[str, list[Trajectory]] = {}
            for stage in RATES if finished else ("before",):
                stages[stage] = [trajectory(f, i, stage, rng) for f in FAMILIES for i in range(32)]
                run.write_trajectories(stage, 0, stages[stage])
                run.write_metrics(stage, 0, {"pass_rate": RATES[stage], "seconds": 21.5, "cpu_seconds": 41.0})
                run.commit(stage, 0, result={"pass_rate": RATES[stage]})
            for step in range(7):
                run.write_metrics(
                    "warm_up", step, {"loss": 2.1 * math.exp(-step / 4), "train_seconds": 6.0, "num_tokens_trained": 900}
                )
                run.commit("warm_up", step)
            for step in range(steps):
                run.write_metrics("rlvr", step, rl_metrics(step, rng))
                run.commit("rlvr", step)
            if finished:
                run.write_results(table(stages, transfer=TRANSFER) | {"minutes": 11.4})
                run.set_status("finished")
        return RunDir.open(path)

    return make


@pytest.fixture(scope="session")
def finished_run(make_run: Callable[..., RunDir], tmp_path_factory: pytest.TempPathFactory) -> RunDir:
    """A finished run, shared; do not write into it."""
    return make_run(tmp_path_factory.mktemp("runs") / "demo-run")

"""The main job on the real model, on a small budget: as a user types it, judged by what it leaves behind."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from posttrain.store.run_dir import RunDir

pytestmark = [pytest.mark.slow, pytest.mark.alone]


@pytest.mark.timeout(900)
def test_three_minutes_on_the_real_model_gain(real_model: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    command = [sys.executable, "-m", "posttrain", "quickstart", "--minutes", "3", "--json", "--out", str(out)]
    env = {**{k: v for k, v in os.environ.items() if k != "OMP_NUM_THREADS"}, "NO_COLOR": "1"}  # all cores, as for a user
    done = subprocess.run([*command, f"model={real_model}"], capture_output=True, text=True, timeout=800, env=env)
    assert done.returncode == 0, done.stderr[-3000:]
    result = json.loads(done.stdout)
    assert {"before", "few_shot", "after_sft", "after_rl", "difference", "interval", "minutes"} <= result.keys()
    print({k: result[k] for k in ("before", "few_shot", "after_sft", "after_rl", "difference", "interval", "minutes")})
    assert result["difference"] >= 0.10 and result["interval"][0] > 0
    assert result["peak_memory_bytes"] < 8e9
    run = RunDir.open(out)
    assert run.status == "finished"
    assert all(row.get("logprob_gap", 0.0) <= 0.05 for row in run.metrics("rlvr"))
    _plain_transformers_score_the_same(out)


def _plain_transformers_score_the_same(out: Path) -> None:
    """The exported model, loaded and decoded by transformers alone, judged by the same verifiers."""
    import asyncio

    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    from posttrain import plugins
    from posttrain.engines.native.precision import choose_precision
    from posttrain.render import Renderer
    from posttrain.rollout.run import judge
    from posttrain.types import Trajectory, Turn

    run = RunDir.open(out)
    tokenizer = AutoTokenizer.from_pretrained(run.model)
    dtype = torch.bfloat16 if choose_precision() == "fast" else torch.float32  # as the run itself chose
    model = AutoModelForCausalLM.from_pretrained(run.model, dtype=dtype)
    renderer = Renderer(tokenizer)
    ours = [t for t in run.trajectories("after_rl") if not t.task.tools][:48]
    same = 0
    for attempt in ours:
        prompt = attempt.turns[0].token_ids
        with torch.inference_mode():
            ids = model.generate(
                torch.tensor([prompt]), do_sample=False, max_new_tokens=attempt.task.limits.max_tokens, pad_token_id=2
            )
        said = renderer.read(Turn(role="assistant", token_ids=tuple(ids[0, len(prompt) :].tolist()), stop_reason="stop"))
        environment = plugins.build("envs", attempt.task.environment)
        judged = asyncio.run(judge(Trajectory(task=attempt.task, turns=(attempt.turns[0], said)), environment))
        assert judged.verdict is not None and attempt.verdict is not None
        same += (judged.verdict.status == "ok") == (attempt.verdict.status == "ok")
    assert same >= 0.9 * len(ours), f"{same} of {len(ours)} judged alike"

"""What the engine finds out about this machine's matmuls."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from posttrain.engines.native.precision import rows_stand_alone
from posttrain.engines.native.runner import Runner

PROBE = """
import posttrain, torch
from posttrain.engines.native.precision import rows_stand_alone
torch.set_num_threads(2)
shapes = [(576, 576), (192, 576), (1536, 576), (576, 1536), (2048, 2048)]
print(rows_stand_alone(torch.randn(shape) for shape in shapes))
"""


CPU = set(Path("/proc/cpuinfo").read_text().split()) if Path("/proc/cpuinfo").exists() else set()


@pytest.mark.skipif(
    "avx2" not in CPU or ("GenuineIntel" not in CPU and "avx512f" in CPU), reason="MKL's strict mode is not used on this CPU"
)
@pytest.mark.parametrize(("mode", "expected"), [(None, "True"), ("COMPATIBLE", "False")])
def test_two_threads_add_in_one_order(mode: str | None, expected: str) -> None:
    """Importing posttrain is enough; a mode that the user has set stays, and is found out."""
    env = {k: v for k, v in os.environ.items() if k != "MKL_CBWR"} | ({"MKL_CBWR": mode} if mode else {})
    out = subprocess.run([sys.executable, "-c", PROBE], env=env, capture_output=True, text=True, timeout=120, check=True)
    assert out.stdout.strip() == expected


def test_a_matmul_that_depends_on_the_number_of_rows_is_found_and_said(tiny_model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from transformers import AutoModelForCausalLM

    plain = torch.nn.functional.linear

    def other_bits_for_few(rows: torch.Tensor, weight: torch.Tensor, *rest: Any) -> torch.Tensor:
        return plain(rows, weight, *rest) + (1e-7 if rows.shape[0] < 16 else 0)

    weight = torch.randn(32, 64)
    assert rows_stand_alone([weight])
    monkeypatch.setattr(torch.nn.functional, "linear", other_bits_for_few)
    assert not rows_stand_alone([weight])
    monkeypatch.undo()
    monkeypatch.setattr("posttrain.engines.native.runner.rows_stand_alone", lambda weights: False)
    model = AutoModelForCausalLM.from_pretrained(tiny_model, dtype=torch.float32).eval()
    with pytest.warns(UserWarning, match="depends on what else is sampled"):
        Runner(model, "exact", 256)

"""Numbers that make no sense are refused before anything is loaded or written."""

from __future__ import annotations

from pathlib import Path

import pytest

import posttrain
from posttrain.errors import UsageError
from posttrain.losses.sum_of import SumOf
from posttrain.recipes.rlvr import Rlvr
from posttrain.train.policy import Policy

BAD = [
    ("rlvr", "steps=-1"),
    ("rlvr", "group_size=0"),
    ("rlvr", "tasks_per_step=0"),
    ("rlvr", "tasks_per_step=-3"),
    ("rlvr", "temperature=-1"),
    ("rlvr", "temperature=nan"),
    ("rlvr", "checkpoint_every=0"),
    ("rlvr", "eval_tasks=0"),
    ("rlvr", "few_shot=-1"),
    ("rlvr", "minutes=nan"),
    ("rlvr", "minutes=inf"),
    ("rlvr", "threads=-4"),
    ("rlvr", "seed=-1"),
    ("rlvr", "warm_up.steps=-1"),
    ("rlvr", "warm_up.epochs=0"),
    ("rlvr", "warm_up.rows_per_step=0"),
    ("rlvr", "warm_up.rejection_samples=0"),
    ("evaluate", "samples=0"),
    ("evaluate", "temperature=inf"),
    ("evaluate", "seed=-1"),
]


@pytest.mark.parametrize(("recipe", "override"), BAD)
def test_out_of_range_is_refused_before_a_directory_is_made(tmp_path: Path, recipe: str, override: str) -> None:
    name = override.partition("=")[0].rpartition(".")[2]
    with pytest.raises(UsageError, match=rf"{name} is .*; it must be a finite number of at least"):
        posttrain.run(recipe, override, out=tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_loss_that_the_policy_cannot_serve_is_refused_before_a_directory_is_made(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"set train\.reference = true"):
        posttrain.run("rlvr", "loss.name=sum_of", out=tmp_path / "run")
    assert not (tmp_path / "run").exists()
    Rlvr(loss=SumOf(), train=Policy(reference=True))

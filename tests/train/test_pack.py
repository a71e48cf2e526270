"""The packer: exact, within its budget, shared tokens once, everything left out is listed (guarantees A14, A16)."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from posttrain.errors import UsageError
from posttrain.losses._base import Batch
from posttrain.train.pack import REASONS, Packed, pack
from posttrain.types import Trajectory, Turn

Make = Callable[..., list[Trajectory]]


def paths(batch: Batch) -> list[tuple[int, ...]]:
    """For each segment, the packed indices from its root to its end."""
    return [
        tuple(t for s in [*batch.segments.ancestors(i), segment] for t in range(s.start, s.end))
        for i, segment in enumerate(batch.segments.items)
    ]


def check(trajectories: list[Trajectory], packed: Packed) -> None:
    """Every scored position predicts its target from exactly the trajectory's own tokens before it."""
    for batch, rows in zip(packed.batches, packed.rows, strict=True):
        tokens = batch.token_ids_T.tolist()
        owner = {index: path[: path.index(index) + 1] for path in paths(batch) for index in path}
        for n, (index, target, row, turn) in enumerate(
            zip(batch.row_index_N.tolist(), batch.target_ids_N.tolist(), batch.row_N.tolist(), batch.turn_N.tolist(), strict=True)
        ):
            trajectory = trajectories[rows[row]]
            path = owner[index]
            ids = trajectory.token_ids
            assert tuple(tokens[i] for i in path) == ids[: len(path)] and ids[len(path)] == target
            assert batch.position_ids_T[index] == len(path) - 1
            before = sum(len(t.token_ids) for t in trajectory.turns[:turn])
            at = len(path) - before
            assert trajectory.turns[turn].mask[at]
            if trajectory.turns[turn].rollout_logprobs:
                assert batch.rollout_logprobs_N is not None
                assert batch.rollout_logprobs_N[n] == pytest.approx(trajectory.turns[turn].rollout_logprobs[at])
        assert list(batch.trajectory_ids) == [trajectories[r].id for r in rows]
    for i, trajectory in enumerate(trajectories):
        trained = sum(sum(t.mask) for t in trajectory.turns)
        got = sum(int((b.row_N == rows.index(i)).sum()) for b, rows in zip(packed.batches, packed.rows, strict=True) if i in rows)
        assert got == (0 if trajectory.id in dict(packed.dropped) else trained)


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 1000), budget=st.integers(60, 400), share=st.booleans(), turns=st.integers(1, 3))
def test_every_token_is_scored_from_its_own_past(seed: int, budget: int, share: bool, turns: int) -> None:
    from importlib import util
    from pathlib import Path

    spec = util.spec_from_file_location("rows", Path(__file__).with_name("conftest.py"))
    assert spec is not None and spec.loader is not None
    module = util.module_from_spec(spec)
    spec.loader.exec_module(module)
    trajectories = module.build_rows(seed, turns=turns)
    packed = pack(trajectories, max_tokens=budget, share_prefix=share)
    check(trajectories, packed)
    assert all(b.num_tokens <= budget for b in packed.batches)
    assert all(reason == "too_long" for _, reason in packed.dropped)


def test_a_shared_prompt_is_stored_once(make_rows: Make) -> None:
    rows = make_rows(turns=2)
    (shared,) = pack(rows, max_tokens=10_000).batches
    apart = pack(rows, max_tokens=10_000, share_prefix=False)
    prompts = sum(len(t.turns[0].token_ids) for t in rows if t.attempt == 0)
    answers = sum(len(t.token_ids) - len(t.turns[0].token_ids) for t in rows)
    assert shared.num_tokens == prompts + answers
    assert sum(b.num_tokens for b in apart.batches) == sum(len(t.token_ids) for t in rows)
    check(rows, apart)


def test_branches_share_all_turns_up_to_the_fork(make_rows: Make) -> None:
    (row,) = make_rows(groups=1, size=2, turns=3)[1:]
    other = replace(
        row, attempt=7, turns=(*row.turns[:-1], replace(row.turns[-1], token_ids=(1,), rollout_logprobs=(), policy_versions=()))
    )
    twin = replace(row, attempt=8)
    (batch,) = pack([row, other, twin], max_tokens=10_000).batches
    assert batch.num_tokens == len(row.token_ids) + 1
    check([row, other, twin], pack([row, other, twin], max_tokens=10_000))


def test_longest_first_and_always_the_same(make_rows: Make) -> None:
    rows = make_rows(3, groups=12)
    packed = pack(rows, max_tokens=150)
    sizes = [b.num_tokens for b in packed.batches]
    assert len(sizes) > 3 and sizes == sorted(sizes, reverse=True)
    assert pack(rows, max_tokens=150).rows == packed.rows
    assert sum(sizes) <= 1.25 * len(sizes) * 150 and sum(sizes) >= 0.7 * len(sizes) * 150


def test_a_group_larger_than_the_budget_is_spread(make_rows: Make) -> None:
    rows = make_rows(groups=1, size=30)
    packed = pack(rows, max_tokens=90)
    assert len(packed.batches) > 1 and not packed.dropped
    check(rows, packed)


def test_what_is_left_out_is_listed_with_its_reason(make_rows: Make) -> None:
    rows = make_rows(groups=6, size=2)
    masked = tuple(replace(t, loss_mask=(False,) * len(t.token_ids)) for t in rows[3].turns)
    rows[0] = replace(rows[0], outcome="infra_error")
    rows[1] = replace(rows[1], advantage=None)
    rows[2] = replace(rows[2], weight=0.0)
    rows[3] = replace(rows[3], turns=masked)
    rows[4:6] = [replace(t, advantage=0.0) for t in rows[4:6]]
    rows[6] = replace(rows[6], turns=(rows[6].turns[0], Turn(role="assistant", token_ids=(3,) * 300)))
    rows[8] = replace(rows[8], advantage=0.0)  # its group is mixed: it counts
    packed = pack(rows, max_tokens=200)
    wanted = ["infra_error", "no_advantage", "zero_weight", "fully_masked", "zero_advantage", "zero_advantage", "too_long"]
    assert packed.dropped == [(rows[i].id, reason) for i, reason in enumerate(wanted)]
    assert set(wanted) == set(REASONS)
    assert rows[8].id in packed.batches[0].trajectory_ids
    kept = pack(rows, max_tokens=200, judged=False)
    assert [reason for _, reason in kept.dropped] == ["infra_error", "fully_masked", "too_long"]


def test_parts_of_one_trajectory_share_its_weight(make_rows: Make) -> None:
    rows = make_rows(groups=2, size=2)
    part = replace(rows[1], turns=(rows[1].turns[0], Turn(role="assistant", token_ids=(1, 2, 3))))
    packed = pack([*rows, part], max_tokens=10_000)
    shares = {packed.rows[0][r]: float(share) for r, share in enumerate(packed.batches[0].share_R.tolist())}  # type: ignore[union-attr]
    whole = len(rows[1].turns[1].token_ids)
    assert shares[1] == pytest.approx(whole / (whole + 3)) and shares[4] == pytest.approx(3 / (whole + 3))
    assert shares[0] == shares[2] == shares[3] == 1.0


def test_fields_that_only_some_rows_have(make_rows: Make) -> None:
    rows = [*make_rows(groups=1), *make_rows(1, groups=1, sampled=False)]
    rows[4:] = [replace(t, visit=1) for t in rows[4:]]
    (batch,) = pack(rows, max_tokens=1000).batches
    assert batch.rollout_logprobs_N is not None and batch.ref_logprobs_N is None
    for n, row in enumerate(batch.row_N.tolist()):
        assert math.isnan(batch.rollout_logprobs_N[n]) == (batch.trajectory_ids[row] in {t.id for t in rows[4:]})


def test_per_token_advantages_and_groups(make_rows: Make) -> None:
    rows = make_rows(groups=2, size=2)
    turn = rows[0].turns[1]
    rows[0] = replace(
        rows[0],
        advantage=None,
        turns=(rows[0].turns[0], replace(turn, advantages=tuple(float(i) for i in range(1, len(turn.token_ids) + 1)))),
    )
    packed = pack(rows, max_tokens=1000)
    batch, order = packed.batches[0], packed.rows[0]
    mine = batch.row_N == order.index(0)
    assert batch.advantages_N[mine].tolist() == [float(i) for i in range(1, len(turn.token_ids) + 1)]
    pairs = {order[r]: int(p) for r, p in enumerate(batch.pair_R)}
    assert pairs[0] == pairs[1] != pairs[2] == pairs[3]


def test_a_first_token_has_nothing_to_predict_it(make_rows: Make) -> None:
    (row,) = make_rows(groups=1, size=1)
    bare = replace(row, turns=(Turn(role="assistant", token_ids=(5, 6, 7)),))
    (batch,) = pack([bare], max_tokens=10).batches
    assert batch.target_ids_N.tolist() == [6, 7]


def test_refuses_no_budget(make_rows: Make) -> None:
    with pytest.raises(UsageError, match="budget is 0"):
        pack(make_rows(), max_tokens=0)
    assert pack([], max_tokens=8).batches == []

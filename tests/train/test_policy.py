"""The step: exact under any splitting, packing and resume; refuses what must not be believed."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from posttrain import plugins
from posttrain.errors import InvalidRun, UsageError
from posttrain.losses._base import Aggregation, Loss
from posttrain.losses.clipped import Clipped
from posttrain.losses.cross_entropy import CrossEntropy
from posttrain.losses.ref_kl import RefKl
from posttrain.models.tiny import Kind, make_tiny
from posttrain.train.pack import pack
from posttrain.train.policy import OpenPolicy, Policy
from posttrain.types import Group, Sampling, Trajectory

Open = Callable[..., OpenPolicy]
Make = Callable[..., list[Trajectory]]
Gradients = Callable[..., dict[str, torch.Tensor]]
LOSSES = plugins.names("losses")
FP32 = {"rtol": 1e-5, "atol": 1e-9}


def ready(policy: OpenPolicy, rows: list[Trajectory], loss: Loss) -> list[Trajectory]:
    """The rows with what the loss needs, as a recipe would do it."""
    groups = [Group(task=t.task, trajectories=(t,)) for t in rows]
    return [t for g in policy.annotate(groups, loss.annotations) for t in g.trajectories]


def same(mine: dict[str, torch.Tensor], theirs: dict[str, torch.Tensor], tolerance: float) -> None:
    """Equal relative to each tensor's norm."""
    assert mine.keys() == theirs.keys() and mine
    for name, gradient in theirs.items():
        assert float((mine[name] - gradient).norm()) <= tolerance * float(gradient.norm()) + 1e-12, name


@pytest.mark.parametrize("kind", get_args(Kind))
def test_other_architectures(
    kind: Kind, make_rows: Make, gradients: Gradients, tmp_path: Path, widened: Callable[[Any], None]
) -> None:
    """Biases, sliding windows, capped logits, experts: packed, shared-prefix training equals the plain forward."""
    path = make_tiny(tmp_path / "model", kind=kind)
    module = AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32)
    policy = Policy(precision="exact", max_logprob_gap=1e9).open(module)
    rows = make_rows(turns=3)
    logprobs, wanted = by_hand(path, rows, torch.float32, widened)
    same(gradients(policy, rows, CrossEntropy()), wanted, 2e-5)
    for row, expected in zip(policy.step(rows, CrossEntropy()).trajectories, logprobs, strict=True):
        assert trained(row) == pytest.approx(expected, rel=1e-5, abs=1e-5)


@pytest.mark.parametrize("aggregation", get_args(Aggregation))
def test_cutting_a_trajectory_into_rows_does_not_multiply_its_weight(
    open_policy: Open, make_rows: Make, gradients: Gradients, aggregation: Aggregation
) -> None:
    """Guarantee A15: the multi-turn member as one row, and as one row for each of its turns."""
    rows = make_rows(groups=2, turns=3)
    cut = []
    for row in rows:
        answers = [n for n, turn in enumerate(row.turns) if turn.role == "assistant"]
        for last in answers:
            others = [replace(t, loss_mask=(False,) * len(t.token_ids)) for t in row.turns[:last]]
            cut.append(replace(row, turns=(*others, row.turns[last])))
    assert len(cut) > len(rows)
    loss = Clipped(aggregation=aggregation)
    policy = open_policy()
    same(gradients(policy, cut, loss), gradients(policy, rows, loss), 1e-5)


def test_a_shared_prompt_runs_once(open_policy: Open, make_rows: Make) -> None:
    rows = make_rows()
    tokens = [open_policy(share_prefix=share).step(rows, Clipped()).metrics["num_tokens"] for share in (True, False)]
    assert tokens == [
        sum(len(t.token_ids) - (t.attempt > 0) * len(t.turns[0].token_ids) for t in rows),
        sum(len(t.token_ids) for t in rows),
    ]


def by_hand(
    path: Path, rows: list[Trajectory], dtype: torch.dtype, widen: Callable[[Any], None]
) -> tuple[list[list[float]], dict[str, torch.Tensor]]:
    """Plain transformers, one row at a time, full logits: logprobs of trained tokens, gradient of their mean."""
    module = AutoModelForCausalLM.from_pretrained(path, dtype=dtype, attn_implementation="sdpa")
    if dtype == torch.float64:
        widen(module)
    found, total, count = [], torch.zeros((), dtype=dtype), 0
    for row in rows:
        ids = torch.tensor([row.token_ids])
        mask = torch.tensor([m for t in row.turns for m in t.mask])
        logits = module(input_ids=ids).logits[0]
        logprobs = logits[:-1].log_softmax(-1).gather(1, ids[0, 1:, None])[:, 0][mask[1:]]
        found.append(logprobs.tolist())
        total, count = total - logprobs.sum(), count + len(logprobs)
    torch.autograd.backward(total / count)
    return found, {n: p.grad for n, p in module.named_parameters() if p.grad is not None}


def trained(row: Trajectory) -> list[float]:
    return [v for t in row.turns for v, m in zip(t.policy_logprobs, t.mask, strict=False) if m]


@pytest.mark.parametrize("share_prefix", [True, False])
@pytest.mark.parametrize("dtype,tolerance", [(torch.float32, 1e-5), (torch.float64, 1e-10)])
def test_packed_equals_separate_rows(
    tiny_model: Path,
    open_policy: Open,
    make_rows: Make,
    gradients: Gradients,
    share_prefix: bool,
    dtype: torch.dtype,
    tolerance: float,
    widened: Callable[[Any], None],
) -> None:
    """Guarantee A14, against transformers' own forward."""
    rows = make_rows(turns=3)
    policy = open_policy(dtype=dtype, share_prefix=share_prefix)
    logprobs, wanted = by_hand(tiny_model, rows, dtype, widened)
    same(gradients(policy, rows, CrossEntropy()), wanted, tolerance)
    result = policy.step(rows, CrossEntropy())
    for row, expected in zip(result.trajectories, logprobs, strict=True):
        assert trained(row) == pytest.approx(expected, rel=tolerance, abs=tolerance)
    assert result.metrics["loss"] == pytest.approx(-sum(map(sum, logprobs)) / sum(map(len, logprobs)), rel=1e-5)


@pytest.mark.parametrize("dtype,tolerance", [(torch.float32, 1e-5), (torch.float64, 1e-10)])
@pytest.mark.parametrize("name", LOSSES)
def test_splitting_the_step_changes_nothing(
    open_policy: Open, make_rows: Make, gradients: Gradients, name: str, dtype: torch.dtype, tolerance: float
) -> None:
    """Guarantee A7 through the whole trainer: the same rows as 1, 2, 4 and 8 micro-batches and more."""
    rows = make_rows(groups=8, turns=2)
    loss = plugins.build("losses", name)
    budgets = {len(pack(rows, max_tokens=budget).batches): budget for budget in range(60, 700, 5)}
    wanted = None
    for num in (1, 2, 4, 8):
        budget = budgets[num]
        policy = open_policy(dtype=dtype, tokens_per_batch=budget, reference=True)
        with torch.no_grad():  # away from the reference, so that a KL has a gradient
            for p in policy.module.parameters():
                p.mul_(1.05)
        annotated = ready(policy, rows, loss)
        got = gradients(policy, annotated, loss)
        wanted = wanted or got
        same(got, wanted, tolerance)


def test_zero_advantage_groups_stay_out_of_the_denominator(open_policy: Open, make_rows: Make, gradients: Gradients) -> None:
    rows = make_rows(groups=4)
    flat = [replace(t, advantage=0.0) if t.task.id == "task2" else t for t in rows]
    policy = open_policy()
    same(gradients(policy, flat, Clipped()), gradients(policy, [t for t in rows if t.task.id != "task2"], Clipped()), 1e-6)
    assert policy.step(flat, Clipped()).metrics["dropped_zero_advantage"] == 4


def test_a_step_with_nothing_to_train_is_counted(open_policy: Open, make_rows: Make) -> None:
    """Guarantee A9."""
    policy = open_policy(lr=1.0)
    before = policy.weights_hash()
    rows = [replace(t, turns=tuple(replace(u, loss_mask=(False,) * len(u.token_ids)) for u in t.turns)) for t in make_rows()]
    result = policy.step(rows, Clipped())
    assert result.metrics["zero_weight_steps"] == 1 and result.metrics["dropped_fully_masked"] == len(rows)
    assert result.metrics["grad_norm"] == 0 and policy.version == 1
    assert policy.weights_hash() == before
    assert result.trajectories == rows


def test_every_dropped_row_is_counted_and_listed(open_policy: Open, make_rows: Make) -> None:
    """Guarantee A16: a budget smaller than one row."""
    rows = make_rows()
    longest = max(rows, key=lambda t: len(t.token_ids))
    budget = len(longest.token_ids) - 1
    result = open_policy(tokens_per_batch=budget).step(rows, Clipped())
    expected = [(t.id, "too_long") for t in rows if len(t.token_ids) > budget]
    assert result.dropped == expected and (longest.id, "too_long") in expected
    assert result.metrics["rows_dropped"] == result.metrics["dropped_too_long"] == len(expected)
    assert [t.id for t in result.trajectories] == [t.id for t in rows]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_overfits_a_batch(open_policy: Open, make_rows: Make, dtype: torch.dtype) -> None:
    policy = open_policy(dtype=dtype, lr=3e-3)
    rows = make_rows(groups=3, size=2, sampled=False)
    losses = [policy.step(rows, CrossEntropy()).metrics["loss"] for _ in range(40)]
    assert losses[-1] < 0.2 * losses[0]


def test_lr_zero_moves_nothing(open_policy: Open, make_rows: Make) -> None:
    for dtype in (torch.float32, torch.bfloat16):
        policy = open_policy(dtype=dtype, lr=0.0, weight_decay=0.1)
        before = policy.weights_hash()
        for _ in range(3):
            policy.step(make_rows(sampled=False), CrossEntropy())
        assert policy.weights_hash() == before and policy.version == 3


def test_small_steps_add_up_in_fast(open_policy: Open, make_rows: Make) -> None:
    """bf16 has 8 bits: without wide masters, steps of 1e-6 would all be rounded away."""
    policy = open_policy(dtype=torch.bfloat16, lr=1e-6)
    before = {n: m.clone() for n, m in policy.optimiser.masters.items()}
    for _ in range(4):
        policy.step(make_rows(sampled=False), CrossEntropy())
    for name, master in policy.optimiser.masters.items():
        assert master.dtype == torch.float32
        assert 1e-6 < float((master - before[name]).abs().max()) < 1e-5
        assert torch.equal(policy.optimiser.params[name], master.bfloat16())


def test_gradients_are_summed_wide(open_policy: Open, make_rows: Make, gradients: Gradients) -> None:
    """In fast the sum over many micro-batches is as near to the exact gradient as one batch is."""
    rows = make_rows(groups=12)
    exact = gradients(open_policy(dtype=torch.float64), rows, CrossEntropy())
    errors = []
    for budget in (10_000, 60):
        got = gradients(open_policy(dtype=torch.bfloat16, tokens_per_batch=budget), rows, CrossEntropy())
        errors.append(sum(float((got[n].double() - g).square().sum()) for n, g in exact.items()) ** 0.5)
    assert errors[1] < 1.5 * errors[0]
    assert errors[0] < 0.05 * sum(float(g.square().sum()) for g in exact.values()) ** 0.5


def test_resume_is_exact_to_the_bit(open_policy: Open, make_rows: Make, tmp_path: Path) -> None:
    for dtype in (torch.float32, torch.bfloat16):
        options = {"dtype": dtype, "lr": 1e-3, "warmup_steps": 4, "weight_decay": 0.01, "reference": True}
        straight = open_policy(**options)
        for seed in range(2):
            straight.step(make_rows(seed, sampled=False), CrossEntropy())
        where = tmp_path / str(dtype)
        straight.save(where, extra={"pool": [1, 2]})
        resumed = open_policy(**options)
        assert resumed.restore(where) == {"pool": [1, 2]}
        assert resumed.version == 2 and resumed.weights_hash() == straight.weights_hash()
        for seed in range(2, 4):
            for policy in (straight, resumed):
                policy.step(make_rows(seed, sampled=False), CrossEntropy())
        assert resumed.weights_hash() == straight.weights_hash()
        for mine, theirs in (
            (resumed.optimiser.state(), straight.optimiser.state()),
            (resumed.optimiser.masters, straight.optimiser.masters),
        ):
            assert all(torch.equal(mine[n], t) for n, t in theirs.items())
        groups = [Group(task=t.task, trajectories=(t,)) for t in make_rows()]
        assert resumed.annotate(groups, ["ref_logprobs"]) == straight.annotate(groups, ["ref_logprobs"])


def test_the_size_of_a_checkpoint_is_known_before(open_policy: Open, make_rows: Make, tmp_path: Path) -> None:
    for dtype in (torch.float32, torch.bfloat16):
        policy = open_policy(dtype=dtype)
        policy.step(make_rows(0, sampled=False), CrossEntropy())
        written = policy.save(tmp_path / str(dtype))
        assert 0.8 < policy.checkpoint_bytes / sum(f.stat().st_size for f in written.iterdir()) < 1.0


def test_a_checkpoint_of_another_kind_is_refused(open_policy: Open, tmp_path: Path) -> None:
    policy = open_policy(dtype=torch.bfloat16)
    policy.save(tmp_path / "a")
    with pytest.raises(UsageError, match="fast"):
        open_policy().restore(tmp_path / "a")
    with pytest.raises(UsageError, match="reference"):
        open_policy(dtype=torch.bfloat16, reference=True).restore(tmp_path / "a")
    file = tmp_path / "a" / "weights.safetensors"
    file.write_bytes(file.read_bytes()[:-1])
    with pytest.raises(UsageError, match=r"weights\.safetensors"):
        policy.restore(tmp_path / "a")


def test_export_is_what_transformers_loads(open_policy: Open, make_rows: Make, tiny_model: Path, tmp_path: Path) -> None:
    from posttrain.models.load import load_renderer

    policy = open_policy(lr=1e-2)
    policy.renderer = load_renderer(str(tiny_model))
    policy.step(make_rows(sampled=False), CrossEntropy())
    policy.export(tmp_path / "model")
    assert "posttrain" not in (tmp_path / "model" / "config.json").read_text()  # loads where we are not installed
    assert (tmp_path / "model" / "generation_config.json").exists()
    assert AutoTokenizer.from_pretrained(tmp_path / "model").chat_template == policy.renderer.tokenizer.chat_template
    loaded = AutoModelForCausalLM.from_pretrained(tmp_path / "model", dtype=torch.float32)
    for name, p in loaded.named_parameters():
        assert torch.equal(p, policy.weights()[name]), name
    assert (tmp_path / "model" / "config.json").exists() and loaded(input_ids=torch.tensor([[1, 2]])).logits.isfinite().all()


def test_a_loss_that_is_not_finite_is_refused(open_policy: Open, make_rows: Make, tmp_path: Path) -> None:
    rows = make_rows()
    policy = open_policy(lr=1.0)
    policy._refused = tmp_path / "refused"
    before = policy.weights_hash()
    bad = [replace(t, advantage=math.inf) if t.id == rows[3].id else t for t in rows]
    with pytest.raises(InvalidRun, match=r"\(trajectories task0#0.3\).*step-000000.jsonl"):
        policy.step(bad, Clipped())
    assert policy.version == 0 and policy.weights_hash() == before and not policy.optimiser.grads()
    kept = [json.loads(x) for x in (tmp_path / "refused" / "step-000000.jsonl").read_text().splitlines()]
    assert len(kept) == len(rows)
    assert policy.step(rows, Clipped()).metrics["grad_norm"] > 0  # goes on as if nothing had been


def test_a_gradient_that_is_not_finite_is_refused(open_policy: Open, make_rows: Make) -> None:
    policy = open_policy(lr=1.0)
    before = policy.weights_hash()
    parameter = next(policy.module.parameters())
    handle = parameter.register_hook(lambda g: g * math.nan)
    with pytest.raises(InvalidRun, match="gradient's norm is nan"):
        policy.step(make_rows(), Clipped())
    handle.remove()
    assert policy.version == 0 and policy.weights_hash() == before


def test_the_logprob_gap_has_a_budget(open_policy: Open, make_rows: Make) -> None:
    """Guarantee A1: random rollout logprobs stand for an engine that computes something else."""
    policy = open_policy(max_logprob_gap=0.01, lr=1.0)
    before = policy.weights_hash()
    with pytest.raises(InvalidRun, match=r"differ on logprobs.*budget 0.01"):
        policy.step(make_rows(), Clipped())
    assert policy.weights_hash() == before
    rows = make_rows(sampled=False)
    scored = policy.step(rows, CrossEntropy(), lr=0.0).trajectories
    agreed = [
        replace(
            t,
            turns=tuple(
                replace(u, rollout_logprobs=u.policy_logprobs, policy_versions=(1,) * len(u.policy_logprobs)) for u in t.turns
            ),
        )
        for t in scored
    ]
    figures = policy.step(agreed, Clipped()).metrics
    assert figures["logprob_gap"] < 1e-6 and figures["logprob_gap_max"] < 1e-5 and abs(figures["logprob_kl"]) < 1e-9
    assert figures["ratio_min"] == pytest.approx(1, abs=1e-5) and figures["ratio_max"] == pytest.approx(1, abs=1e-5)


def test_stale_trajectories_are_refused(open_policy: Open, make_rows: Make) -> None:
    rows = make_rows()
    policy = open_policy(lr=0.0)
    policy.step(rows, Clipped())
    with pytest.raises(InvalidRun, match=r"version 0.*at 1.*publish"):
        policy.step(rows, Clipped())
    policy.step(rows, CrossEntropy())  # reads no rollout logprobs
    lenient = open_policy(max_staleness=1, lr=0.0)
    for _ in range(2):
        lenient.step(rows, Clipped())
    with pytest.raises(InvalidRun, match=r"version 0.*max_staleness is 1"):
        lenient.step(rows, Clipped())
    with pytest.raises(InvalidRun, match="version 9"):
        policy.step(
            [replace(t, turns=tuple(replace(u, policy_versions=(9,) * len(u.policy_versions)) for u in t.turns)) for t in rows],
            CrossEntropy(),
        )


def test_samples_of_other_weights_are_refused(open_policy: Open, make_rows: Make) -> None:
    """Guarantee A6: the hash that the engine echoed is not that of the version it names."""
    policy = open_policy(lr=0.0)
    policy.weights_hash()
    rows = [replace(t, turns=tuple(replace(u, weights_hash="0" * 64) for u in t.turns)) for t in make_rows()]
    with pytest.raises(InvalidRun, match="other weights"):
        policy.step(rows, Clipped())


def test_annotations(open_policy: Open, make_rows: Make) -> None:
    rows = [replace(t, advantage=None) for t in make_rows(turns=2)]
    groups = [Group(task=rows[i].task, trajectories=tuple(rows[i : i + 4])) for i in range(0, len(rows), 4)]
    policy = open_policy(lr=1e-2, reference=True)
    first = policy.annotate(groups, ["ref_logprobs", "proximal_logprobs"])
    for group in first:
        for t in group.trajectories:
            for turn in t.turns:
                assert turn.ref_logprobs == turn.proximal_logprobs
                assert len(turn.ref_logprobs) == (len(turn.token_ids) if turn.role == "assistant" else 0)
    policy.step(make_rows(), CrossEntropy())
    second = policy.annotate(groups, ["ref_logprobs", "proximal_logprobs"])
    turn, before = second[0].trajectories[0].turns[1], first[0].trajectories[0].turns[1]
    assert turn.ref_logprobs == before.ref_logprobs and turn.proximal_logprobs != before.proximal_logprobs
    assert policy.annotate(groups, ()) == groups
    with pytest.raises(UsageError, match=r"train\.reference = true"):
        open_policy().annotate(groups, ["ref_logprobs"])
    with pytest.raises(UsageError, match=r"ref_logprob.*Did you mean 'ref_logprobs'"):
        policy.annotate(groups, ["ref_logprob"])


def test_kl_to_itself_is_zero_and_grows(open_policy: Open, make_rows: Make) -> None:
    policy = open_policy(lr=1e-2, reference=True)
    loss = RefKl(coefficient=1.0, estimator="k1")
    rows = make_rows(sampled=False)
    assert policy.step(ready(policy, rows, loss), loss, lr=0.0).metrics["ref_kl"] == pytest.approx(0, abs=1e-6)
    policy.step(rows, CrossEntropy())
    assert abs(policy.step(ready(policy, rows, loss), loss).metrics["ref_kl"]) > 1e-3


@pytest.mark.parametrize("sampling", [Sampling(temperature=0.6), Sampling(top_p=0.8), Sampling(top_k=5), Sampling(min_p=0.05)])
def test_logprobs_are_those_of_the_sampling_distribution(open_policy: Open, make_rows: Make, sampling: Sampling) -> None:
    plain = open_policy().step(make_rows(), CrossEntropy()).trajectories
    shaped = open_policy().step(make_rows(sampling=sampling), CrossEntropy()).trajectories
    greedy = open_policy().step(make_rows(sampling=replace(sampling, temperature=0.0)), CrossEntropy()).trajectories
    assert [trained(t) for t in plain] != [trained(t) for t in shaped]
    assert [trained(t) for t in plain] == [trained(t) for t in greedy]


def weights_after(policy: OpenPolicy, make_rows: Make, steps: int = 2) -> str:
    for seed in range(steps):
        policy.step(make_rows(seed, sampled=False), CrossEntropy())
    return policy.weights_hash()


@pytest.mark.parametrize(
    "option,value",
    [
        ("lr", 2e-3),
        ("betas", (0.5, 0.95)),
        ("eps", 1e-3),
        ("weight_decay", 0.5),
        ("max_grad_norm", 0.0),
        ("max_grad_norm", 0.01),
        ("warmup_steps", 3),
    ],
)
def test_every_option_of_the_optimiser_moves_the_weights(open_policy: Open, make_rows: Make, option: str, value: Any) -> None:
    base = {"lr": 1e-3, "max_grad_norm": 0.5}
    assert weights_after(open_policy(**base), make_rows) == weights_after(open_policy(**base), make_rows)
    assert weights_after(open_policy(**base), make_rows) != weights_after(open_policy(**{**base, option: value}), make_rows)


def test_warm_up_and_the_rate_of_a_step(open_policy: Open, make_rows: Make) -> None:
    policy = open_policy(lr=1e-3, warmup_steps=2)
    rows = make_rows(sampled=False)
    rates = [policy.step(rows, CrossEntropy()).metrics["lr"] for _ in range(3)]
    assert [*rates, policy.step(rows, CrossEntropy(), lr=5.0).metrics["lr"]] == [5e-4, 1e-3, 1e-3, 5.0]


def test_activation_checkpointing_saves_activations_and_changes_nothing(
    open_policy: Open, make_rows: Make, gradients: Gradients
) -> None:
    rows = make_rows()
    kept = []

    def measured(policy: OpenPolicy) -> dict[str, torch.Tensor]:
        held = [0]

        def pack(tensor: torch.Tensor) -> torch.Tensor:
            held[0] += tensor.numel()
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t):
            found = gradients(policy, rows, CrossEntropy())
        kept.append(held[0])
        return found

    same(measured(open_policy(activation_checkpointing=True)), measured(open_policy()), 1e-6)
    assert kept[0] < 0.7 * kept[1]


@pytest.mark.parametrize(
    "options",
    [
        {"lr": -1.0},
        {"tokens_per_batch": 0},
        {"betas": (0.9, 1.0)},
        {"precision": "half"},
        {"max_staleness": -1},
        {"lr": math.nan},
    ],
)
def test_options_out_of_range_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match=f"train.{next(iter(options))}"):
        Policy(**options)


def test_a_module_in_the_wrong_precision_is_refused(open_policy: Open) -> None:
    with pytest.raises(UsageError, match="bfloat16"):
        open_policy(precision="fast")


def test_metrics(open_policy: Open, make_rows: Make) -> None:
    rows = make_rows(groups=6)
    policy = open_policy(tokens_per_batch=100)
    figures = policy.step(rows, Clipped()).metrics
    sampled = sum(t.num_sampled for t in rows)
    assert figures["num_tokens_trained"] == sampled and figures["num_rows"] == len(rows) and figures["num_batches"] > 1
    assert 0 < figures["entropy"] < math.log(600)
    assert figures["tokens_per_second"] > 0 and figures["ratio_max"] > 1 > figures["ratio_min"] > 0
    assert 0 < figures["clipped_high"] < 1 and 0 < figures["clipped_low"] < 1
    assert all(isinstance(v, float) and math.isfinite(v) for v in figures.values())

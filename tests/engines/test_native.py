"""The native engine against plain forwards of the same module: what it samples, echoes, shares, keeps and refuses."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from posttrain.engines._base import Engine, Request
from posttrain.engines.native import Native
from posttrain.engines.native.engine import NativeEngine
from posttrain.errors import DeadlineExceeded, InfraError, InvalidRun, UsageError
from posttrain.models.fingerprint import weights_hash
from posttrain.models.logprobs import restrict
from posttrain.types import Key, Sampling, Turn


def load(path: Path, dtype: torch.dtype = torch.float32) -> Any:
    from transformers import AutoModelForCausalLM

    return AutoModelForCausalLM.from_pretrained(path, dtype=dtype).eval()


@pytest.fixture
def model(tiny_model: Path) -> Any:
    return load(tiny_model)


def prompt(num: int, seed: int) -> tuple[int, ...]:
    made = torch.Generator().manual_seed(seed)
    return tuple(torch.randint(3, 500, (num,), generator=made).tolist())


def request(token_ids: Sequence[int], attempt: int = 0, *, turn: int = 0, task: str = "t", **options: Any) -> Request:
    sampling = {k: options.pop(k) for k in list(options) if k in Sampling.__dataclass_fields__}
    key = Key(seed=1, task_id=task, attempt=attempt, turn=turn)
    return Request(key=key, token_ids=tuple(token_ids), sampling=Sampling(**{"max_tokens": 10, **sampling}), **options)


def with_engine(model: Any, body: Callable[[NativeEngine], Coroutine[Any, Any, Any]], **options: Any) -> Any:
    async def main() -> Any:
        async with Native(**{"precision": "exact", **options}).open(model, None) as engine:
            return await asyncio.wait_for(body(engine), 120)

    return asyncio.run(main())


def sample_all(model: Any, requests: Sequence[Request], **options: Any) -> list[Turn]:
    async def body(engine: NativeEngine) -> list[Turn]:
        return list(await asyncio.gather(*(engine.sample(r) for r in requests)))

    return with_engine(model, body, **options)  # type: ignore[no-any-return]


def plain_logprobs(model: Any, request: Request, turn: Turn) -> list[float]:
    """By a whole forward with transformers' own attention, under the request's sampling distribution."""
    model.set_attn_implementation("sdpa")
    ids = torch.tensor([request.token_ids + turn.token_ids])
    with torch.no_grad():
        logits = model(input_ids=ids).logits[0, len(request.token_ids) - 1 : -1]
    s, n = request.sampling, len(turn.token_ids)
    if s.temperature:
        full = [torch.full((n,), v) for v in (s.temperature, s.top_p, s.top_k, s.min_p)]
        logits = restrict(logits, *full)
    return torch.log_softmax(logits.float(), -1)[torch.arange(n), list(turn.token_ids)].tolist()


def mixed_requests() -> list[Request]:
    made = [request(prompt(5 + 9 * i, i), attempt, task=str(i)) for i in range(5) for attempt in range(3)]
    made.append(request(prompt(1, 90), task="one token"))
    made.append(request(prompt(30, 91), task="greedy", temperature=0.0))
    made.append(request(prompt(30, 92), task="cut", temperature=0.6, top_p=0.9))
    made.append(request(prompt(30, 93), task="top k", top_k=5, max_tokens=20))
    made.append(request(prompt(30, 94), task="min p", temperature=1.5, min_p=0.02))
    return made


@pytest.mark.parametrize("kind", ["llama", "qwen2", "gemma3", "mixtral"])
def test_logprobs_are_those_of_the_module_itself(kind: Any, tmp_path: Path) -> None:
    from posttrain.models.tiny import make_tiny

    model = load(make_tiny(tmp_path / "model", kind=kind))
    requests = mixed_requests()
    turns = sample_all(model, requests)
    for r, turn in zip(requests, turns, strict=True):
        assert len(turn.token_ids) == r.sampling.max_tokens
        assert turn.stop_reason == "length"
        assert turn.rollout_logprobs == pytest.approx(plain_logprobs(model, r, turn), abs=1e-4)


def test_exact_results_do_not_depend_on_the_batch(model: Any) -> None:
    """B11: batch 1, 8 and 64."""
    requests = mixed_requests()
    requests += [replace(r, key=replace(r.key, attempt=r.key.attempt + 10)) for r in requests * 3]
    assert len(requests) > 64
    results = [sample_all(model, requests[:20], max_slots=n) for n in (1, 8)]
    results.append(sample_all(model, requests, max_slots=64)[:20])
    results.append(sample_all(model, requests[:20][::-1], max_slots=3)[::-1])
    results.append(sample_all(model, requests[:20], max_slots=8, prefill_tokens=16))
    for turns in results[1:]:
        assert [t.token_ids for t in turns] == [t.token_ids for t in results[0]]
        assert [t.rollout_logprobs for t in turns[:-1]] == [t.rollout_logprobs for t in results[0][:-1]]


def test_noise_is_the_key_and_nothing_else(model: Any) -> None:
    first, second = (sample_all(model, [request(prompt(20, 0), attempt=i) for i in order]) for order in ((0, 1), (1, 0)))
    assert first[0] == second[1]
    assert first[1] == second[0]
    assert first[0].token_ids != first[1].token_ids


def test_bf16_stays_within_its_budget_and_repeats(tiny_model: Path) -> None:
    model = load(tiny_model, torch.bfloat16)
    requests = mixed_requests()
    turns = sample_all(model, requests, precision="fast")
    assert turns == sample_all(model, requests, precision="fast")
    gaps = [
        abs(a - b)
        for r, t in zip(requests, turns, strict=True)
        for a, b in zip(t.rollout_logprobs, plain_logprobs(model, r, t), strict=True)
        if math.isfinite(b)
    ]
    assert sum(gaps) / len(gaps) < 0.05


def test_one_prefill_for_a_group_even_when_it_does_not_fit_the_slots(model: Any) -> None:
    requests = [request(prompt(50, 3), attempt=i, max_tokens=3 + i) for i in range(7)]

    async def body(engine: NativeEngine) -> tuple[list[Turn], dict[str, int]]:
        return list(await asyncio.gather(*(engine.sample(r) for r in requests))), dict(engine.counts)

    alone = [sample_all(model, [r])[0] for r in requests]
    for slots in (64, 2):
        turns, counts = with_engine(model, body, max_slots=slots)
        assert turns == alone
        assert counts["prefilled"] == 49
        assert counts["reused"] == 6 * 49
        assert counts["sampled"] == sum(r.sampling.max_tokens for r in requests)


@pytest.mark.parametrize(("attempts", "slots"), [(8, 4), (8, 2), (32, 4)])
def test_one_prefill_for_a_group_of_several_waves(model: Any, attempts: int, slots: int) -> None:
    """Turns that end together leave the prompt to those that still wait, also when one of these is aborted."""

    async def body(engine: NativeEngine) -> int:
        tasks = [asyncio.create_task(engine.sample(request(prompt(50, 3), attempt=i))) for i in range(attempts)]
        await asyncio.sleep(0)
        await engine.abort(request(prompt(50, 3), attempt=attempts - 1).key.attempt_id)
        await asyncio.gather(*tasks)
        assert not engine._filling._waiting and not engine._filling._prompts
        return engine.counts["prefilled"]

    assert with_engine(model, body, max_slots=slots) == 49


def test_different_prompts_share_their_prefix_in_fast(model: Any) -> None:
    shared = prompt(100, 5)
    requests = [request(shared + prompt(20 + i, 50 + i), task=str(i)) for i in range(6)]

    async def body(engine: NativeEngine) -> tuple[list[Turn], dict[str, int]]:
        turns = list(await asyncio.gather(*(engine.sample(r) for r in requests)))
        assert not engine._filling._prefixes.spans  # out of work: nothing stays that could colour the next batch
        return turns, dict(engine.counts)

    turns, counts = with_engine(model, body, precision="fast")
    assert counts["reused"] == 5 * 96
    plain, without = with_engine(model, body, precision="fast", cached_tokens=0)
    assert without["reused"] == 0
    few, evicted = with_engine(model, body, precision="fast", cached_tokens=64)
    assert evicted["reused"] < counts["reused"]
    for other in (plain, few):
        for a, b in zip(turns, other, strict=True):
            assert a.rollout_logprobs == pytest.approx(b.rollout_logprobs, abs=1e-4)
    for r, t in zip(requests, turns, strict=True):
        assert t.rollout_logprobs == pytest.approx(plain_logprobs(model, r, t), abs=1e-4)


def test_the_next_turn_prefills_only_what_is_new(model: Any) -> None:
    async def body(engine: NativeEngine) -> tuple[Request, Turn, dict[str, int]]:
        first = await engine.sample(request(prompt(40, 6), keep=True))
        before = dict(engine.counts)
        second = request(prompt(40, 6) + first.token_ids + prompt(15, 7), turn=1)
        turn = await engine.sample(second)
        assert not engine._filling._kept
        return second, turn, {k: v - before.get(k, 0) for k, v in engine.counts.items()}

    second, turn, counts = with_engine(model, body)
    assert counts["prefilled"] == 15  # the last sampled token and all new ones but the last
    assert counts["reused"] == 49
    assert turn.rollout_logprobs == pytest.approx(plain_logprobs(model, second, turn), abs=1e-4)


def test_release_and_a_changed_history(model: Any) -> None:
    async def body(engine: NativeEngine) -> None:
        first = request(prompt(40, 6), keep=True)
        turn = await engine.sample(first)
        await engine.release(first.key.attempt_id)
        assert not engine._filling._kept
        await engine.sample(first)
        other = request((*first.token_ids[:30], 9, 9, 9, *turn.token_ids), turn=1)
        before = engine.counts["reused"]
        got = await engine.sample(other)
        assert engine.counts["reused"] - before == 30
        assert got.rollout_logprobs == pytest.approx(plain_logprobs(model, other, got), abs=1e-4)

    with_engine(model, body)


def test_the_stop_token_is_part_of_the_turn(model: Any) -> None:
    free = sample_all(model, [request(prompt(20, 8))])[0]
    stop = free.token_ids[4]
    turn = sample_all(model, [request(prompt(20, 8), stop_ids=(stop,))])[0]
    assert turn.token_ids == free.token_ids[: free.token_ids.index(stop) + 1]
    assert turn.stop_reason == "stop"


def test_the_end_of_the_context_is_a_length_stop_and_a_full_prompt_is_refused(model: Any) -> None:
    turn = sample_all(model, [request(prompt(20, 8), max_tokens=100)], max_context=26)[0]
    assert (len(turn.token_ids), turn.stop_reason) == (6, "length")
    with pytest.raises(UsageError, match="26 tokens leaves no room in a context of 26"):
        sample_all(model, [request(prompt(26, 8))], max_context=26)
    with pytest.raises(UsageError, match="no tokens"):
        sample_all(model, [request(())])
    with pytest.raises(UsageError, match="images"):
        sample_all(model, [request((1, 2), images=("x",))])


def test_abort_ends_with_what_there_is(model: Any) -> None:
    async def body(engine: NativeEngine) -> None:
        slow, queued, other = request(prompt(20, 1), 0, max_tokens=500), request(prompt(20, 1), 1), request(prompt(9, 2), 2)
        tasks = [asyncio.create_task(engine.sample(r)) for r in (slow, queued, other)]
        while engine.counts["steps"] < 5:
            await asyncio.sleep(0)
        await engine.abort(slow.key.attempt_id)
        await engine.abort(queued.key.attempt_id)
        first, second, third = await asyncio.gather(*tasks)
        assert first.stop_reason == second.stop_reason == "abort"
        assert 5 <= len(first.token_ids) < 500
        assert second.token_ids == ()
        assert len(third.token_ids) == 10
        assert first.rollout_logprobs == pytest.approx(plain_logprobs(model, slow, first), abs=1e-4)

    with_engine(model, body, max_slots=1)


def test_pause_keeps_or_aborts(model: Any) -> None:
    async def body(engine: NativeEngine) -> None:
        task = asyncio.create_task(engine.sample(request(prompt(20, 1), max_tokens=60)))
        while engine.counts["steps"] < 5:
            await asyncio.sleep(0)
        await engine.pause()
        for _ in range(50):
            await asyncio.sleep(0)
        steps = engine.counts["steps"]
        late = asyncio.create_task(engine.sample(request(prompt(9, 2), 7)))
        for _ in range(50):
            await asyncio.sleep(0)
        assert engine.counts["steps"] == steps
        assert not task.done()
        await engine.resume()
        assert len((await task).token_ids) == 60
        assert len((await late).token_ids) == 10
        task = asyncio.create_task(engine.sample(request(prompt(20, 1), max_tokens=60)))
        while engine.counts["steps"] < steps + 60:
            await asyncio.sleep(0)
        await engine.pause("abort")
        assert (await task).stop_reason == "abort"
        await engine.resume()

    with_engine(model, body)


def test_close_and_a_lost_caller(model: Any) -> None:
    async def main() -> None:
        async with Native(precision="exact", max_slots=2).open(model, None) as engine:
            gone = asyncio.create_task(engine.sample(request(prompt(20, 1), max_tokens=500)))
            while engine.counts["steps"] < 3:
                await asyncio.sleep(0)
            gone.cancel()
            turn = await engine.sample(request(prompt(9, 2), 3))
            assert len(turn.token_ids) == 10
            assert not engine._rows
            waiting = [asyncio.create_task(engine.sample(request(prompt(20, 1), i, max_tokens=500))) for i in range(3)]
            await asyncio.sleep(0)
        for task in waiting:
            with pytest.raises(InfraError, match="closed while turns were waiting"):
                await task
        with pytest.raises(InfraError, match="is closed"):
            await engine.sample(request(prompt(20, 1)))

    asyncio.run(main())


def test_a_wait_has_a_deadline_and_a_name(model: Any) -> None:
    async def body(engine: NativeEngine) -> None:
        await engine.pause()
        with pytest.raises(DeadlineExceeded, match=r"native engine: a turn of 1\|t\|0\|0 did not finish within 0.05 s"):
            await engine.sample(request(prompt(9, 2)))

    with_engine(model, body, deadline=0.05)


def test_a_bug_in_a_step_reaches_everyone_who_waits(model: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    async def body(engine: NativeEngine) -> None:
        def broken(*_: Any) -> None:
            raise RuntimeError("a bug")

        monkeypatch.setattr(engine._runner, "decode", broken)
        got = await asyncio.gather(*(engine.sample(request(prompt(9, 2), i)) for i in range(3)), return_exceptions=True)
        assert [str(e) for e in got] == ["a bug"] * 3

    with_engine(model, body)


def step_weights(model: Any) -> None:
    with torch.no_grad():
        for weight in model.parameters():
            weight.mul_(1.01)


def test_version_and_hash_are_echoed_and_move_with_an_update(model: Any) -> None:
    async def body(engine: NativeEngine) -> None:
        r = request(prompt(20, 1), temperature=0.0)
        turn = await engine.sample(r)
        assert set(turn.policy_versions) == {0}
        assert turn.weights_hash == engine.weights_hash == weights_hash(model)
        step_weights(model)
        await engine.update(None, 1, weights_hash(model))
        moved = await engine.sample(r)
        assert set(moved.policy_versions) == {1}
        assert moved.weights_hash == weights_hash(model) != turn.weights_hash
        assert moved.rollout_logprobs == pytest.approx(plain_logprobs(model, r, moved), abs=1e-4)

    with_engine(model, body)


@pytest.mark.parametrize("hidden", [False, True], ids=["counted", "through .data"])
def test_a_dropped_sync_stops_the_next_sample(model: Any, hidden: bool) -> None:
    """A6."""

    async def body(engine: NativeEngine) -> None:
        await engine.sample(request(prompt(20, 1)))
        if hidden:
            for weight in model.parameters():
                weight.data += 0.01
        else:
            step_weights(model)
        with pytest.raises(InvalidRun, match="engine 'native': its weights changed after version 0"):
            await engine.sample(request(prompt(20, 1)))
        with pytest.raises(InvalidRun, match="engine 'native'"):
            await engine.score(prompt(20, 1))

    with_engine(model, body)


def test_an_update_with_another_hash_is_refused(model: Any) -> None:
    async def body(engine: NativeEngine) -> None:
        told = weights_hash(model)
        step_weights(model)
        with pytest.raises(InvalidRun, match="was told that version 1 has hash"):
            await engine.update(None, 1, told)

    with_engine(model, body)


def test_a_new_hash_for_weights_that_did_not_change_is_refused(model: Any) -> None:
    async def body(engine: NativeEngine) -> None:
        with pytest.raises(InvalidRun, match="was told that version 1 has hash 0000"):
            await engine.update(None, 1, "0" * 64)
        assert (engine.policy_version, engine.weights_hash) == (0, weights_hash(model))

    with_engine(model, body)


def test_shared_weights_are_not_hashed_a_second_time(model: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    computed: list[int] = []
    real = weights_hash

    def counted(module: Any) -> str:
        computed.append(1)
        return real(module)

    async def body(engine: NativeEngine) -> None:
        monkeypatch.setattr("posttrain.engines.native.weights.weights_hash", counted)
        step_weights(model)
        await engine.update(None, 1, real(model))
        await engine.update(None, 2, real(model))  # a step that left the weights alone
        assert (engine.policy_version, engine.weights_hash, computed) == (2, real(model), [])
        step_weights(model)
        with pytest.raises(InvalidRun, match="its weights changed after version 2"):
            await engine.sample(request(prompt(20, 1)))
        await engine.update(dict(model.named_parameters()), 3, real(model))
        assert len(computed) == 1, "weights that were carried are hashed where they arrived"

    with_engine(model, body)


def test_an_update_may_carry_the_weights(model: Any, tiny_model: Path) -> None:
    trainer = load(tiny_model)
    step_weights(trainer)

    async def body(engine: NativeEngine) -> None:
        await engine.update(dict(trainer.named_parameters()), 3, weights_hash(trainer))
        assert (engine.policy_version, engine.weights_hash) == (3, weights_hash(trainer))
        r = request(prompt(20, 1))
        turn = await engine.sample(r)
        assert turn.rollout_logprobs == pytest.approx(plain_logprobs(trainer, r, turn), abs=1e-4)
        with pytest.raises(InvalidRun, match="out of order"):
            await engine.update(dict(trainer.named_parameters()), 2, weights_hash(trainer))
        with pytest.raises(UsageError, match="no weight 'nothing'"):
            await engine.update({"nothing": torch.zeros(1)}, 4, "")

    with_engine(model, body)


def test_an_update_in_flight_shows_in_each_token(model: Any) -> None:
    async def body(engine: NativeEngine) -> None:
        task = asyncio.create_task(engine.sample(request(prompt(20, 1), max_tokens=30)))
        while engine.counts["steps"] < 10:
            await asyncio.sleep(0)
        await engine.pause()
        step_weights(model)
        await engine.update(None, 1, weights_hash(model))
        await engine.resume()
        turn = await task
        assert set(turn.policy_versions) == {0, 1}
        assert list(turn.policy_versions) == sorted(turn.policy_versions)

    with_engine(model, body)


def test_scores_equal_a_plain_forward(model: Any) -> None:
    ids = prompt(30, 4)

    async def body(engine: NativeEngine) -> None:
        short = await engine.score(ids[:1])
        assert short.logprobs == (0.0,)
        score = await engine.score(ids, top_k=3)
        model.set_attn_implementation("sdpa")
        with torch.no_grad():
            want = torch.log_softmax(model(input_ids=torch.tensor([ids])).logits[0].float(), -1)
        assert score.logprobs[0] == 0.0
        assert score.logprobs[1:] == pytest.approx(want[torch.arange(29), list(ids[1:])].tolist(), abs=1e-4)
        assert score.top_k[0] == ()
        best = want.topk(3)
        for i in range(1, 30):
            assert [t for t, _ in score.top_k[i]] == best.indices[i - 1].tolist()
            assert [p for _, p in score.top_k[i]] == pytest.approx(best.values[i - 1].tolist(), abs=1e-4)
        assert (await engine.score(ids)).top_k == ()

    with_engine(model, body)


def test_exact_needs_fp32_and_options_have_ranges(tiny_model: Path, model: Any) -> None:
    with pytest.raises(UsageError, match=r"needs an fp32 model, got torch\.bfloat16"):
        sample_all(load(tiny_model, torch.bfloat16), [request(prompt(9, 1))])
    for bad in ({"max_slots": 0}, {"max_context": 1}, {"prefill_tokens": 0}, {"cached_tokens": -1}, {"deadline": 0.0}):
        with pytest.raises(UsageError, match="out of range"):
            Native(**bad)  # type: ignore[arg-type]


def test_it_is_an_engine_and_leaves_the_module_as_it_was(model: Any) -> None:
    model.train()

    async def body(engine: NativeEngine) -> None:
        assert isinstance(engine, Engine)
        await engine.sample(request(prompt(9, 1)))
        assert engine._runner.memory.num_slots == 0  # out of work: the trainer has the memory
        assert model.training
        assert all(w.requires_grad and not w.is_inference() for w in model.parameters())

    with_engine(model, body)


def test_bf16_follows_an_update_and_leaves_the_linear_layers_alone(tiny_model: Path) -> None:
    """Packed matrices are a cache of the shared weights: dropped with them, and never seen by the trainer."""
    model = load(tiny_model, torch.bfloat16)
    r = request(prompt(20, 1), temperature=0.0)

    async def body(engine: NativeEngine) -> list[Turn]:
        turns = [await engine.sample(r)]
        with torch.no_grad():
            for weight in model.parameters():
                weight.add_(torch.randn(weight.shape, generator=torch.Generator().manual_seed(1)) * 0.05)
        await engine.update(None, 1, weights_hash(model))
        return [*turns, await engine.sample(r)]

    before, after = with_engine(model, body, precision="fast")
    assert before.rollout_logprobs != after.rollout_logprobs
    assert after.rollout_logprobs == pytest.approx(plain_logprobs(model, r, after), abs=0.15)
    assert not [m for m in model.modules() if "forward" in m.__dict__]
    model(input_ids=torch.tensor([r.token_ids])).logits.float().sum().backward()
    assert all(w.grad is not None for w in model.parameters())


def test_precision_is_chosen_by_measurement(monkeypatch: pytest.MonkeyPatch) -> None:
    from posttrain.engines.native.precision import choose_precision

    slow = {torch.bfloat16: 0.0, torch.float32: 0.0}
    clock = [0.0]

    def linear(left: torch.Tensor, _: torch.Tensor) -> None:
        clock[0] += slow[left.dtype]

    monkeypatch.setattr("torch.nn.functional.linear", linear)
    monkeypatch.setattr("time.perf_counter", lambda: clock[0])
    for bf16, fp32, want in ((1.0, 2.0, "fast"), (1.0, 1.1, "exact"), (3.0, 1.0, "exact")):
        slow.update({torch.bfloat16: bf16, torch.float32: fp32})
        choose_precision.cache_clear()
        assert choose_precision() == want
    choose_precision.cache_clear()
    assert choose_precision("cuda") == "fast"
    choose_precision.cache_clear()

"""Noise and the block inverse CDF: the distribution is the one its logprobs say, at any vocabulary size."""

from __future__ import annotations

import math

import pytest
import torch

from posttrain.engines.native.sampler import draw, noise
from posttrain.types import Key, Sampling

PLAIN = Sampling()


def test_noise_depends_on_every_field_and_on_the_position() -> None:
    key = Key(seed=1, task_id="a")
    others = [
        Key(seed=2, task_id="a"),
        Key(seed=1, task_id="b"),
        Key(seed=1, task_id="a", visit=1),
        Key(seed=1, task_id="a", attempt=1),
        Key(seed=1, task_id="a", turn=1),
    ]
    values = {noise(k, 5) for k in [key, *others]} | {noise(key, 6)}
    assert len(values) == 7
    assert noise(key, 5) == 0.9167792301638106  # pinned: runs of other days and machines repeat
    many = [noise(key, i) for i in range(4000)]
    assert 0 <= min(many) < 0.002
    assert 0.998 < max(many) < 1
    assert sum(many) / 4000 == pytest.approx(0.5, abs=0.02)


@pytest.mark.parametrize("vocabulary", [7, 256, 300, 5000])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_draws_equal_the_inverse_of_the_whole_cdf(vocabulary: int, dtype: torch.dtype) -> None:
    made = torch.Generator().manual_seed(vocabulary)
    logits = (torch.randn(40, vocabulary, generator=made) * 3).to(dtype)
    uniform = torch.rand(40, generator=made).tolist()
    ids, logprobs = draw(logits, uniform, [PLAIN] * 40)
    p = torch.softmax(logits.double(), -1)
    cdf = p.cumsum(-1)
    for i, (token, logprob, u) in enumerate(zip(ids, logprobs, uniform, strict=True)):
        low = float(cdf[i, token - 1]) if token else 0.0
        assert low - 1e-6 <= u <= float(cdf[i, token]) + 1e-6
        assert logprob == pytest.approx(math.log(float(p[i, token])), abs=2e-6)


def test_frequencies_are_the_probabilities() -> None:
    logits = torch.tensor([[0.0, 1.0, -1.0, 2.0, -30.0]])
    key, n = Key(seed=3, task_id="x"), 20_000
    ids, _ = draw(logits.expand(n, -1), [noise(key, i) for i in range(n)], [PLAIN] * n)
    counts = torch.bincount(torch.tensor(ids), minlength=5).double() / n
    assert torch.allclose(counts, torch.softmax(logits[0].double(), -1), atol=0.012)
    assert counts[4] == 0


@pytest.mark.parametrize("uniform", [0.0, 1.0 - 2**-53])
def test_the_ends_of_the_interval_stay_on_tokens_with_mass(uniform: float) -> None:
    logits = torch.full((1, 1000), -math.inf)
    logits[0, [300, 400, 700]] = torch.tensor([1.0, 2.0, 3.0])
    ids, logprobs = draw(logits, [uniform], [PLAIN])
    assert ids == [300 if uniform == 0 else 700]
    assert math.isfinite(logprobs[0])


def test_greedy_is_argmax_with_logprob_at_temperature_one_beside_other_rows() -> None:
    made = torch.Generator().manual_seed(0)
    logits = torch.randn(3, 500, generator=made)
    rows = [Sampling(temperature=0.0, top_k=3), Sampling(temperature=0.5), Sampling(temperature=0.7, top_p=0.5)]
    ids, logprobs = draw(logits, [0.999, 0.5, 0.5], rows)
    assert ids[0] == int(logits[0].argmax())
    assert logprobs[0] == pytest.approx(float(torch.log_softmax(logits[0], -1).max()), abs=1e-6)
    assert logprobs[1] == pytest.approx(float(torch.log_softmax(logits[1] / 0.5, -1)[ids[1]]), abs=1e-5)
    ordered = torch.softmax(logits[2] / 0.7, -1).sort(descending=True)
    kept = int((ordered.values.cumsum(0) < 0.5).sum()) + 1
    place = ordered.indices.tolist().index(ids[2])
    assert place < kept
    assert logprobs[2] == pytest.approx(float((ordered.values[place] / ordered.values[:kept].sum()).log()), abs=1e-5)

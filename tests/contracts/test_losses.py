"""The gate of losses catches every kind of broken loss."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
import torch
from torch import Tensor

from posttrain.cli import main
from posttrain.contracts.losses import check
from posttrain.losses._aggregate import aggregate
from posttrain.losses._base import Batch, Loss, Outputs

Result = tuple[Tensor, Mapping[str, float]]


@dataclass(frozen=True, kw_only=True)
class Sound(Loss):
    """REINFORCE; the broken ones differ from it in one thing."""

    def values(self, batch: Batch, outputs: Outputs) -> Tensor:
        return -batch.advantages_N * outputs.policy_logprobs_N

    def __call__(self, batch: Batch, outputs: Outputs) -> Result:
        values = self.values(batch, outputs)
        return aggregate(values, batch, self.aggregation, self.normaliser), {"size": float(batch.loss_mask_N.sum())}


class WrongGradient(Sound):
    """The gradient of another value."""

    def values(self, batch: Batch, outputs: Outputs) -> Tensor:
        values = super().values(batch, outputs)
        return 2 * values - values.detach() + outputs.policy_logprobs_N.mean()


class Doubled(torch.autograd.Function):
    """The identity, with a gradient of 2."""

    @staticmethod
    def forward(ctx: object, x: Tensor) -> Tensor:
        return x.clone()

    @staticmethod
    def backward(ctx: object, grad: Tensor) -> Tensor:  # type: ignore[override]
        return 2 * grad


class OwnBackward(Sound):
    """A backward pass that does not belong to its forward pass."""

    def values(self, batch: Batch, outputs: Outputs) -> Tensor:
        return super().values(batch, replace(outputs, policy_logprobs_N=Doubled.apply(outputs.policy_logprobs_N)))


class NoGradient(Sound):
    """Nothing is learnt."""

    def values(self, batch: Batch, outputs: Outputs) -> Tensor:
        return super().values(batch, outputs).detach()


class Whitened(Sound):
    """Advantages over the spread of whatever rows share the batch."""

    def values(self, batch: Batch, outputs: Outputs) -> Tensor:
        return super().values(batch, outputs) / batch.advantages_N.std(correction=0)


class ReadsMasked(Sound):
    """Sums over what is masked too."""

    def __call__(self, batch: Batch, outputs: Outputs) -> Result:
        return aggregate(
            self.values(batch, outputs), batch, self.aggregation, self.normaliser
        ) + outputs.policy_logprobs_N.sum(), {}


class Poisoned(Sound):
    """Multiplies by the engine's logprobs, which may be nan where nothing trains."""

    def values(self, batch: Batch, outputs: Outputs) -> Tensor:
        assert batch.rollout_logprobs_N is not None
        return super().values(batch, outputs) * (outputs.policy_logprobs_N - batch.rollout_logprobs_N)


class OwnWeight(Sound):
    """A denominator that counts batches."""

    def weight(self, batch: Batch) -> float:
        return 1.0


class IgnoresShares(Sound):
    """Rows weigh alike, parts of one trajectory too."""

    def weight(self, batch: Batch) -> float:
        return super().weight(replace(batch, share_R=None))

    def __call__(self, batch: Batch, outputs: Outputs) -> Result:
        return super().__call__(replace(batch, share_R=None), outputs)


class IgnoresAggregation(Sound):
    """Always the mean over tokens."""

    def weight(self, batch: Batch) -> float:
        return super(Sound, replace(self, aggregation="token_mean")).weight(batch)

    def __call__(self, batch: Batch, outputs: Outputs) -> Result:
        return aggregate(self.values(batch, outputs), batch, "token_mean", self.normaliser), {}


class MeanMetric(Sound):
    """A metric that is a mean already."""

    def __call__(self, batch: Batch, outputs: Outputs) -> Result:
        return super().__call__(batch, outputs)[0], {"mean": float(outputs.policy_logprobs_N.detach().mean())}


class PerToken(Sound):
    """Sums nothing up."""

    def __call__(self, batch: Batch, outputs: Outputs) -> Result:
        return self.values(batch, outputs), {}


class AsksForMore(Sound):
    """Wants what no policy here computes."""

    @property
    def annotations(self) -> tuple[str, ...]:
        return ("teacher_logprobs",)


class ReadsUnasked(Sound):
    """Reads the reference without asking for it."""

    def values(self, batch: Batch, outputs: Outputs) -> Tensor:
        return outputs.policy_logprobs_N - batch.ref_logprobs_N  # type: ignore[operator]


class ReadsValues(Sound):
    """Reads a value head, which there is none of."""

    def values(self, batch: Batch, outputs: Outputs) -> Tensor:
        return outputs.policy_logprobs_N - outputs.values_N  # type: ignore[attr-defined, no-any-return]


class StopsByNoGrad(Sound):
    """A stopped gradient is a constant, by detach() or by no_grad()."""

    def values(self, batch: Batch, outputs: Outputs) -> Tensor:
        assert batch.rollout_logprobs_N is not None
        with torch.no_grad():
            weight = (outputs.policy_logprobs_N - batch.rollout_logprobs_N.nan_to_num()).exp()
        return super().values(batch, outputs) * weight * outputs.policy_logprobs_N.detach().exp()


@pytest.mark.parametrize("cls", [Sound, StopsByNoGrad])
def test_a_sound_loss_passes(cls: type[Loss]) -> None:
    assert check(cls()) == []


@pytest.mark.parametrize(
    ("cls", "fault"),
    [
        (WrongGradient, "split into 2 batches"),
        (OwnBackward, "finite differences"),
        (NoGradient, "does not require grad"),
        (Whitened, "split into"),
        (ReadsMasked, "a batch of which nothing trains has the loss"),
        (ReadsMasked, "with rows masked"),
        (Poisoned, "rows masked have a gradient"),
        (OwnWeight, "has the weight 1, not 0"),
        (IgnoresShares, "cut into two rows"),
        (IgnoresAggregation, "give the same loss"),
        (MeanMetric, "metric 'mean'"),
        (PerToken, "gave a tensor of shape"),
        (AsksForMore, "teacher_logprobs, which the policy cannot annotate"),
        (ReadsUnasked, "raised TypeError"),
        (ReadsValues, "has no attribute 'values_N'"),
    ],
)
def test_a_broken_loss_is_caught(cls: type[Loss], fault: str) -> None:
    said = check(cls())
    assert any(fault in x for x in said), said


def test_what_is_no_loss_is_said() -> None:
    assert "inherits from posttrain.losses._base.Loss" in check(object())[0]


OWN = """
from dataclasses import dataclass
from posttrain.losses._base import Loss

@dataclass(frozen=True, kw_only=True)
class MyLoss(Loss):
    def __call__(self, batch, outputs):
        return -outputs.policy_logprobs_N.mean(), {}
"""


def command(*argv: str) -> object:
    with pytest.raises(SystemExit) as left:
        main(argv)
    return left.value.code


def test_a_loss_is_checked_by_name_or_path(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert command("check", "losses", "clipped") == 0
    (tmp_path / "my_loss.py").write_text(OWN)
    assert command("check", "losses", f"{tmp_path / 'my_loss.py'}:MyLoss") == 1
    out = capsys.readouterr().out
    assert "losses clipped: passed" in out and "FAILED: token_mean: split into" in out

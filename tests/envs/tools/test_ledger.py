"""Payments whose order counts."""

from __future__ import annotations

import asyncio

import pytest

from posttrain.contracts._play import judged
from posttrain.envs._machinery.api_world import call, play
from posttrain.envs.tools.ledger import Ledger

FAMILY = Ledger()


@pytest.mark.parametrize("level", range(10))
def test_coins_are_neither_made_nor_lost(level: int) -> None:
    for seed in range(40):
        task = FAMILY.generate(seed, level)
        assert sum(task.private["state"].values()) == sum(task.answer["state"].values())
        assert min(task.answer["state"].values()) >= 0
        assert len(task.answer["calls"]) == (1 if level == 0 else level + (level == 9))


def test_looking_is_free_but_a_surplus_payment_is_not() -> None:
    task = FAMILY.generate(1, 1)
    pay = task.answer["calls"][0]
    payer = pay["arguments"]["payer"]
    other = next(name for name in task.private["state"] if name != payer)
    looks = [call("balance", name=payer), call("balance", name=other)]
    assert asyncio.run(judged(FAMILY, task, play([*looks, pay, *looks]))).status == "ok"
    back = call("pay", payer=other, to=payer, coins=1)
    assert asyncio.run(judged(FAMILY, task, play([*looks, pay, back]))).status == "wrong"


def test_the_order_counts() -> None:
    for seed in range(20):
        task = FAMILY.generate(seed, 3)
        calls = task.private["calls"]
        assert asyncio.run(judged(FAMILY, task, play(calls))).reward == 1.0
        turned = [*calls[2:], *calls[:2]]
        assert asyncio.run(judged(FAMILY, task, play(turned))).reward < 1.0

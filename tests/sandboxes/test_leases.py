"""Admission: nothing over the capacity, fair between families, a named deadline, nothing lost when a waiter gives up."""

from __future__ import annotations

import asyncio
import contextlib
import random

import pytest

from posttrain.errors import DeadlineExceeded, InfraError, UsageError
from posttrain.sandboxes._base import Limits
from posttrain.sandboxes.leases import Capacity, Leases

CAPACITY = Capacity(cpus=4.0, memory=1000, pids=100)
ONE = Limits(cpus=1.0, memory=250, pids=25)


def test_never_more_than_the_capacity() -> None:
    async def main() -> int:
        leases, alive, most = Leases(CAPACITY), 0, 0
        rng = random.Random(1)

        async def work(limits: Limits) -> None:
            nonlocal alive, most
            async with leases.take(limits):
                alive += limits.memory
                most = max(most, alive)
                await asyncio.sleep(rng.random() / 200)
                alive -= limits.memory

        await asyncio.gather(*(work(Limits(cpus=0.1, memory=rng.choice([100, 300, 900]), pids=1)) for _ in range(100)))
        assert dict(leases.status()) == pytest.approx({"cpus": 4.0, "memory": 1000, "pids": 100, "waiting": 0})
        return most

    assert 900 <= asyncio.run(main()) <= 1000


def test_a_family_with_many_does_not_starve_one_with_few() -> None:
    async def main() -> list[str]:
        leases, order = Leases(CAPACITY), list[str]()

        async def work(key: str) -> None:
            async with leases.take(ONE, key=key):
                order.append(key)
                await asyncio.sleep(0.002)

        await asyncio.gather(*(work("many") for _ in range(30)), *(work("few") for _ in range(3)))
        return order

    assert max(i for i, key in enumerate(asyncio.run(main())) if key == "few") < 12


def test_a_share_is_of_what_is_held_not_of_how_many_hold() -> None:
    """Two thirds of the memory in one sandbox weigh more than three small ones."""

    async def main() -> list[str]:
        leases, order = Leases(CAPACITY), list[str]()

        async def work(key: str, memory: int, seconds: float) -> None:
            async with leases.take(Limits(cpus=0.5, memory=memory, pids=1), key=key):
                order.append(f"{key} {memory}")
                await asyncio.sleep(seconds)

        held = [("large", 600, 0.05), ("small", 100, 0.05), ("small", 100, 0.05), ("small", 100, 0.05), ("other", 100, 0.01)]
        await asyncio.gather(*(work(*x) for x in held), work("large", 99, 0), work("small", 98, 0))
        return order[5:]

    assert asyncio.run(main()) == ["small 98", "large 99"]


def test_what_was_all_given_back_is_all_free() -> None:
    """0.1 taken and given back in another order is not lost to rounding, or who needs all would wait for ever."""

    async def main() -> None:
        leases = Leases(Capacity(cpus=0.7, memory=100, pids=100))
        tenth, sixth = Limits(cpus=0.1, memory=1, pids=1), Limits(cpus=0.6, memory=1, pids=1)
        for _ in range(10):
            async with contextlib.AsyncExitStack() as later, leases.take(sixth):
                await later.enter_async_context(leases.take(tenth))
        async with leases.take(Limits(cpus=0.7, memory=100, pids=100), deadline=0.5):
            pass

    asyncio.run(main())


def test_who_gives_up_lets_those_behind_it_in() -> None:
    async def main() -> None:
        leases = Leases(CAPACITY)
        async with leases.take(ONE, key="a"):
            large = asyncio.create_task(leases.take(Limits(cpus=4.0, memory=1000, pids=100), key="b").__aenter__())
            await asyncio.sleep(0)
            small = asyncio.create_task(leases.take(ONE, key="c").__aenter__())
            await asyncio.sleep(0.01)
            assert leases.status()["waiting"] == 2
            large.cancel()
            await asyncio.wait_for(small, 0.5)

    asyncio.run(main())


def test_a_queue_is_bounded_for_each_family() -> None:
    async def main() -> None:
        leases = Leases(CAPACITY, longest=2)
        async with leases.take(Limits(cpus=4.0, memory=10, pids=1), key="holds"):
            waiting = [asyncio.create_task(leases.take(ONE, key="floods").__aenter__()) for _ in range(2)]
            await asyncio.sleep(0)
            with pytest.raises(InfraError, match=r"2 sandboxes of floods wait already.* 100% by holds"):
                async with leases.take(ONE, key="floods"):
                    raise AssertionError
            other = asyncio.create_task(leases.take(ONE, key="other").__aenter__())
            await asyncio.sleep(0)
            assert leases.status()["waiting"] == 3
        await asyncio.wait_for(asyncio.gather(*waiting, other), 0.5)

    asyncio.run(main())


def test_a_large_one_is_not_overtaken_for_ever() -> None:
    async def main() -> list[str]:
        leases, order = Leases(CAPACITY), list[str]()

        async def work(name: str, limits: Limits) -> None:
            async with leases.take(limits):
                order.append(name)
                await asyncio.sleep(0.001)

        first = [asyncio.create_task(work("small", ONE)) for _ in range(4)]
        await asyncio.sleep(0)
        large = asyncio.create_task(work("large", Limits(cpus=4.0, memory=1000, pids=100)))
        await asyncio.sleep(0)
        rest = [asyncio.create_task(work("small", ONE)) for _ in range(20)]
        await asyncio.gather(*first, large, *rest)
        return order

    assert asyncio.run(main()).index("large") == 4


def test_a_deadline_is_named_and_leaves_nothing_behind() -> None:
    async def main() -> None:
        leases = Leases(CAPACITY)
        async with leases.take(Limits(cpus=4.0, memory=10, pids=1)):
            with pytest.raises(DeadlineExceeded, match="admission of a sandbox for sums/add"):
                async with leases.take(ONE, key="sums/add", deadline=0.02):
                    raise AssertionError
            waiting = asyncio.create_task(leases.take(ONE).__aenter__())
            await asyncio.sleep(0)
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
        assert leases.status()["cpus"] == 4.0
        assert leases.status()["waiting"] == 0

    asyncio.run(main())


def test_what_can_never_be_admitted_is_refused_at_once() -> None:
    async def main() -> None:
        with pytest.raises(UsageError, match="memory = 2000 can never be admitted"):
            async with Leases(CAPACITY).take(Limits(memory=2000)):
                raise AssertionError

    asyncio.run(main())


def test_this_machine_has_a_capacity() -> None:
    here = Capacity.of_this_machine()
    assert here.cpus >= 4 and here.memory > 256 and here.pids > 0

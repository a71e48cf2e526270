"""Every listed family passes the gate, and the gate catches every kind of broken family."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from posttrain import plugins
from posttrain.contracts.envs import check, digest
from posttrain.envs._base import Environment, Family, Session
from posttrain.types import Limits, Message, Observation, Response, Task, ToolCall, Trajectory, Turn, Verdict
from posttrain.verifiers._base import Verifier
from posttrain.verifiers.number import Number

GOLDEN = Path(__file__).with_name("golden.json")  # family@version -> digest of its first tasks


def families() -> list[str]:
    """All listed environments that can be made without options and are endless."""
    return [n for n in plugins.names("envs") if issubclass(plugins.find("envs", n), Family)]


def starts_sandboxes(name: str) -> bool:
    """Whether its verdicts do, which takes seconds a task."""
    return plugins.find("envs", name).gate_seeds < Family.gate_seeds


@pytest.mark.parametrize("name", [n for n in families() if not starts_sandboxes(n)])
def test_family_passes_the_gate_at_its_ends(name: str) -> None:
    assert check(plugins.build("envs", name), levels=(0, 9), seeds=40) == []


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", families())
def test_family_passes_the_gate(name: str) -> None:
    levels = (0, 3, 6, 9) if starts_sandboxes(name) else None  # ``posttrain check envs NAME`` takes all
    assert check(plugins.build("envs", name), levels=levels) == []


@pytest.mark.parametrize("name", families())
def test_tasks_are_those_of_the_golden_file(name: str) -> None:
    family = plugins.build("envs", name)
    golden = json.loads(GOLDEN.read_text())
    key = f"{name}@{family.version}"
    assert golden.get(key) == digest(family), (
        f"the tasks of {key} changed: raise its version and run this file as a script, which rewrites golden.json"
    )


@dataclass(frozen=True)
class Sound(Family):
    """A small family that passes; the broken ones differ from it in one thing."""

    @property
    def verifier(self) -> Verifier:
        return Number()

    def generate(self, seed: int, level: int) -> Task:
        rng = self.rng(seed, level)
        numbers = [rng.randint(100, 999) for _ in range(2 + level)]
        template = rng.randrange(4)
        prompt = (
            f"{['What is', 'Give', 'Work out', 'Compute'][template]} {' + '.join(map(str, numbers))}? End with: Answer: <number>"
        )
        return Task(
            id=self.task_id(seed, level),
            environment=self.name,
            seed=seed,
            level=level,
            template=str(template),
            prompt=(Message(role="user", content=prompt),),
            answer=sum(numbers),
            metadata={"size": (2 + level) ** 2},
        )

    def oracle(self, task: Task) -> Response:
        return Response.of(f"Answer: {task.answer}")

    def decoys(self, task: Task) -> list[Response]:
        return [Response.of(f"Answer: {task.answer + i}") for i in (1, 2)] + [Response.of("no number"), Response.of("")]

    def size(self, task: Task) -> float:
        return float(task.metadata["size"])


@dataclass(frozen=True)
class Changed(Sound):
    """Sound, with one part changed."""

    def change(self, task: Task) -> Task:
        return task

    def generate(self, seed: int, level: int) -> Task:
        return self.change(super().generate(seed, level))


@dataclass(frozen=True)
class DependsOnHashes(Changed):
    """Its prompt follows the order of a set of texts."""

    def change(self, task: Task) -> Task:
        words = " ".join({"apple", "bread", "chair", "door", "eagle", "fish"})
        return replace(task, prompt=(Message(role="user", content=f"{words} {task.prompt[0].content}"),))


@dataclass(frozen=True)
class DependsOnCalls(Changed):
    """Another task at each call."""

    def change(self, task: Task) -> Task:
        return replace(task, metadata={**task.metadata, "nonce": id(object()), "calls": CALLS.append(0) or len(CALLS)})


CALLS: list[int] = []


@dataclass(frozen=True)
class WrongOracle(Sound):
    """Its reference is off by one."""

    def oracle(self, task: Task) -> Response:
        return Response.of(f"Answer: {task.answer + 1}")


@dataclass(frozen=True)
class TooLong(Changed):
    """Its reference does not fit its limits."""

    def change(self, task: Task) -> Task:
        return replace(task, limits=Limits(max_tokens=2))


@dataclass(frozen=True)
class RightDecoy(Sound):
    """One decoy is right."""

    def decoys(self, task: Task) -> list[Response]:
        return [*super().decoys(task), self.oracle(task)]


@dataclass(frozen=True)
class FewDecoys(Sound):
    """Two decoys, no more."""

    def decoys(self, task: Task) -> list[Response]:
        return super().decoys(task)[:2]


@dataclass(frozen=True)
class Guessable(Changed):
    """The answer is always 7."""

    def change(self, task: Task) -> Task:
        return replace(task, answer=7)


@dataclass(frozen=True)
class Repeating(Changed):
    """Few prompts."""

    def change(self, task: Task) -> Task:
        return replace(task, prompt=(Message(role="user", content=f"{task.seed % 100}?"),))


@dataclass(frozen=True)
class OneWording(Changed):
    """One template."""

    def change(self, task: Task) -> Task:
        return replace(task, template="0")


@dataclass(frozen=True)
class Flat(Sound):
    """Levels that are all alike."""

    def size(self, task: Task) -> float:
        return 4.0


@dataclass(frozen=True)
class NotStorable(Changed):
    """A set among its private parts."""

    def change(self, task: Task) -> Task:
        return replace(task, private={"seen": {1}})


@dataclass(frozen=True)
class Judging:
    """A verifier made of a function."""

    says: Callable[[Trajectory], Verdict]

    async def judge(self, trajectory: Trajectory) -> Verdict:
        return self.says(trajectory)


def _contains(trajectory: Trajectory) -> Verdict:
    """A substring test both ways: the empty answer passes."""
    text = trajectory.final_text
    gold = f"Answer: {trajectory.task.answer}"
    right = text in gold or gold == text
    return Verdict(status="ok" if right else "wrong", reward=float(right))


def _raises(trajectory: Trajectory) -> Verdict:
    """Reads the number with ``int``: most texts raise."""
    right = int(trajectory.final_text.removeprefix("Answer: ")) == trajectory.task.answer
    return Verdict(status="ok" if right else "wrong", reward=float(right))


def _tells(trajectory: Trajectory) -> Verdict:
    """Gives the answer away."""
    right = trajectory.final_text == f"Answer: {trajectory.task.answer}"
    return Verdict(status="ok" if right else "wrong", reward=float(right), feedback=f"It was {trajectory.task.answer}.")


def _bonus(trajectory: Trajectory) -> Verdict:
    """A reward beyond 1."""
    right = trajectory.final_text == f"Answer: {trajectory.task.answer}"
    return Verdict(status="ok" if right else "wrong", reward=2.0 * right)


@dataclass(frozen=True)
class Substring(Sound):
    """Judged by substring."""

    @property
    def verifier(self) -> Verifier:
        return Judging(_contains)


@dataclass(frozen=True)
class Raising(Sound):
    """Its verifier raises."""

    @property
    def verifier(self) -> Verifier:
        return Judging(_raises)


@dataclass(frozen=True)
class Telling(Sound):
    """Its feedback is the answer."""

    @property
    def verifier(self) -> Verifier:
        return Judging(_tells)


@dataclass(frozen=True)
class Generous(Sound):
    """Its reward is 2."""

    @property
    def verifier(self) -> Verifier:
        return Judging(_bonus)


def test_a_sound_family_passes() -> None:
    assert check(Sound(), levels=(0, 5), seeds=60) == []


@pytest.mark.parametrize(
    ("cls", "fault"),
    [
        (DependsOnHashes, "PYTHONHASHSEED"),
        (DependsOnCalls, "different tasks for one seed"),
        (WrongOracle, "the oracle of"),
        (TooLong, "needs"),
        (RightDecoy, "a decoy of"),
        (FewDecoys, "decoys"),
        (Guessable, "always saying"),
        (Repeating, "prompts repeat"),
        (OneWording, "wordings"),
        (Flat, "its size grows"),
        (NotStorable, "not JSON"),
        (Substring, "an empty answer"),
        (Raising, "raised ValueError"),
        (Telling, "gives the answer away"),
        (Generous, "not in [0, 1]"),
    ],
)
def test_a_broken_family_is_caught(cls: type[Family], fault: str) -> None:
    assert any(fault in said for said in check(cls(), levels=(0,), seeds=60))


class Counter(Session):
    """A session that counts turns; ``exact`` says whether its snapshots hold the count."""

    def __init__(self, exact: bool, strict: bool) -> None:
        self.exact, self.strict, self.count = exact, strict, 0

    def tools(self) -> tuple[()]:
        return ()

    async def step(self, turn: Turn) -> Observation:
        if self.strict:
            turn.tool_calls[0].arguments["n"]
        self.count += 1
        return Observation(messages=(Message(role="tool", content=str(self.count)),), done=turn.text.startswith("Answer"))

    def snapshot(self) -> object:
        return {"count": self.count if self.exact else 0}

    def restore(self, state: dict[str, int]) -> None:  # type: ignore[override]
        self.count = state["count"]

    def artefacts(self) -> dict[str, int]:
        return {"count": self.count}


@dataclass(frozen=True)
class Counted(Changed):
    """Three turns; the session counts them."""

    exact: bool = True
    strict: bool = False

    def change(self, task: Task) -> Task:
        return replace(task, limits=Limits(max_turns=3))

    async def start(self, task: Task, sandbox: object) -> Session:
        return Counter(self.exact, self.strict)

    def oracle(self, task: Task) -> Response:
        calls = (ToolCall(name="n", arguments={"n": 1}),)
        turns = [Message(role="assistant", content="wait", tool_calls=calls)] * 2
        return Response(turns=(*turns, Message(role="assistant", content=f"Answer: {task.answer}", tool_calls=calls)))


def test_sessions_that_return_exactly_pass() -> None:
    assert check(Counted(), levels=(0,), seeds=20) == []


@pytest.mark.parametrize(("family", "fault"), [(Counted(exact=False), "restored"), (Counted(strict=True), "raised")])
def test_broken_sessions_are_caught(family: Family, fault: str) -> None:
    assert any(fault in said for said in check(family, levels=(0,), seeds=20))


@dataclass(frozen=True)
class Finite(Environment):
    """Two rows; ``first`` is the reference of the first."""

    first: str = "Answer: 1"
    twice: bool = False

    @property
    def name(self) -> str:
        return "rows/two"

    @property
    def verifier(self) -> Verifier:
        return Number()

    def tasks(self) -> list[Task]:
        prompt = (Message(role="user", content="?"),)
        return [Task(id="a" if self.twice else str(i), environment=self.name, prompt=prompt, answer=i + 1) for i in range(2)]

    def probes(self):  # type: ignore[no-untyped-def]
        yield self.tasks()[0], Response.of(self.first), True


def test_finite_environments_are_checked_by_their_probes() -> None:
    assert check(Finite()) == []
    assert "right answer is judged wrong" in check(Finite(first="Answer: 2"))[0]
    assert "share an id" in check(Finite(twice=True))[0]


if __name__ == "__main__":
    found = {f"{n}@{(f := plugins.build('envs', n)).version}": digest(f) for n in families()}
    GOLDEN.write_text(json.dumps(found, indent=1, sort_keys=True) + "\n")

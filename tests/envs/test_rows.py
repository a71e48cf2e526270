"""A user's own rows: stable tasks, one clear message for every fault, and the private part stays private."""

from __future__ import annotations

import json
import pickle
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from posttrain import options
from posttrain.contracts.envs import check
from posttrain.envs.rows import Rows
from posttrain.errors import UsageError
from posttrain.plugins import build
from posttrain.types import Message
from posttrain.verifiers.exact import Exact
from posttrain.verifiers.function import Function
from posttrain.verifiers.json_schema import JsonSchema
from posttrain.verifiers.number import Number

GSM8K = Path(__file__).parents[2].parent / "shared/data/gsm8k/train.jsonl"


def write(path: Path, *rows: dict[str, Any]) -> Path:
    path.write_text("".join(json.dumps(r) + "\n" for r in rows))
    return path


@pytest.fixture
def reward(tmp_path: Path) -> Path:
    path = tmp_path / "reward.py"
    path.write_text("def reward(trajectory): return float(trajectory.answer in trajectory.text)")
    return path


def test_rows_become_tasks(tmp_path: Path, reward: Path) -> None:
    path = write(tmp_path / "mine.jsonl", *({"prompt": f"{n}+1?", "answer": n + 1, "note": "n"} for n in range(80)))
    env = Rows(data=path, reward=reward, system="Be brief.", max_tokens=32)
    tasks = list(env.tasks())
    assert env.name == "rows/mine" and len(tasks) == 80 and len({t.id for t in tasks}) == 80
    assert 3 <= sum(t.held_out for t in tasks) <= 20
    task = next(t for t in tasks if t.answer == 8)
    assert task.prompt == (Message(role="system", content="Be brief."), Message(role="user", content="7+1?"))
    assert task.template == "0" and task.limits.max_tokens == 32 and task.environment == env.name
    assert task.private["row"]["note"] == "n" and task.metadata["place"] == f"{path}, line 8"
    assert "note" not in str(task.prompt) and isinstance(env.verifier, Function) and list(env.probes()) == []


def test_ids_depend_on_what_is_asked_only(tmp_path: Path) -> None:
    rows = [{"prompt": f"{n}?", "answer": "x"} for n in range(20)]
    a = Rows(data=write(tmp_path / "a.jsonl", *rows), verifier=Exact())
    b = Rows(data=write(tmp_path / "sub.jsonl", *reversed(rows)), verifier=Exact())
    strip = [[(t.id.rsplit("/", 1)[1], t.prompt) for t in e.tasks()] for e in (a, b)]
    assert strip[0] == strip[1], "the order is fixed by content, not by the file"
    assert [t.prompt[0].content for t in a.tasks()] != [f"{n}?" for n in range(20)]


def test_prompts_that_repeat_are_dropped_and_counted(tmp_path: Path) -> None:
    path = write(
        tmp_path / "a.jsonl", {"prompt": "a", "answer": "1"}, {"prompt": " a ", "answer": "2"}, {"prompt": "b", "answer": "1"}
    )
    env = Rows(data=path, verifier=Exact())
    assert len(list(env.tasks())) == 2 and env.num_dropped == 1
    assert env.dropped == [f"{path}, line 2 (asks the same as line 1)"]
    assert {t.answer for t in env.tasks()} == {"1"}


def test_messages_rows(tmp_path: Path) -> None:
    chat = [{"role": "system", "content": "s"}, {"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}]
    path = write(tmp_path / "a.jsonl", {"messages": chat}, {"prompt": [{"role": "user", "content": "z"}], "answer": ["1", "2"]})
    tasks = {t.prompt[-1].content: t for t in Rows(data=path, verifier=Exact()).tasks()}
    assert tasks["q"].answer == "a" and [m.role for m in tasks["q"].prompt] == ["system", "user"]
    assert tasks["z"].answer == ["1", "2"]


def test_wordings_and_template_columns(tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl", *({"q": f"{n}?", "answer": "x #### 5", "kind": n % 3} for n in range(40)))
    env = Rows(data=path, verifier=Exact(), prompt="q", answer_after="####", wordings=("{prompt} A", "Please: {prompt}"))
    assert {t.template for t in env.tasks()} == {"0", "1"} and {t.answer for t in env.tasks()} == {"5"}
    assert all(t.prompt[0].content.endswith("? A") == (t.template == "0") for t in env.tasks())
    assert {t.template for t in Rows(data=path, verifier=Exact(), prompt="q", template="kind").tasks()} == {"0", "1", "2"}


@pytest.mark.parametrize(
    ("row", "extra", "says"),
    [
        ({"promt": "x", "answer": "1"}, {}, "line 2 has no 'prompt'. Did you mean 'promt'?"),
        ({"prompt": "x", "anwser": "1"}, {}, "line 2 has no 'answer'. Did you mean 'anwser'?"),
        ({"prompt": "  ", "answer": "1"}, {}, "line 2: the prompt is empty"),
        ({"prompt": 3, "answer": "1"}, {}, "line 2: messages must be a list"),
        ({"prompt": "x", "answer": "1"}, {"answer_after": "####"}, "line 2: 'answer' holds no '####'"),
        ({"prompt": "x", "answer": "1"}, {"template": "kind"}, "line 2 has no 'kind'"),
    ],
)
def test_a_row_without_its_field_is_named(tmp_path: Path, row: dict[str, Any], extra: dict[str, Any], says: str) -> None:
    path = write(tmp_path / "a.jsonl", {"prompt": "ok", "answer": "#### 1", "kind": "k"}, row)
    with pytest.raises(UsageError) as caught:
        list(Rows(data=path, verifier=Exact(), **extra).tasks())
    assert str(caught.value).startswith(str(path)) and says in str(caught.value)


def test_a_reward_needs_no_answer(tmp_path: Path, reward: Path) -> None:
    (task,) = Rows(data=write(tmp_path / "a.jsonl", {"prompt": "x"}), reward=reward).tasks()
    assert task.answer is None


def test_one_judge_exactly(tmp_path: Path, reward: Path) -> None:
    path = write(tmp_path / "a.jsonl", {"prompt": "x", "answer": "1"})
    with pytest.raises(UsageError, match="has no judge"):
        list(Rows(data=path).tasks())
    with pytest.raises(UsageError, match="give data=ROWS"):
        list(Rows().tasks())
    with pytest.raises(UsageError, match="not by both"):
        Rows(data=path, reward=reward, verifier=Exact())
    with pytest.raises(UsageError, match="there is no file"):
        Rows(data=path, reward=tmp_path / "rewards.py")
    other = tmp_path / "other.py"
    other.write_text("def reward(t): return 0")
    changed = replace(Rows(reward=reward), data=path, reward=other)
    assert isinstance(changed.verifier, Function) and changed.verifier.path == other
    with pytest.raises(ValueError, match="wordings"):
        Rows(data=path, verifier=Exact(), wordings=("no place",))
    with pytest.raises(ValueError, match="max_tokens"):
        Rows(data=path, verifier=Exact(), max_tokens=0)


def test_it_is_built_by_name_and_travels(tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl", {"prompt": "x", "answer": "1"})
    env = build("envs", "rows", data=str(path), verifier="exact")
    assert isinstance(env, Rows) and env.verifier == Exact() and len(list(env.tasks())) == 1
    assert pickle.loads(pickle.dumps(env)) == env
    with pytest.raises(UsageError, match="verifier"):
        build("envs", "rows", data=str(path), verifyer="exact")
    table = options.parse(Rows, {"data": str(path), "verifier": {"name": "exact", "case_sensitive": True}}, "mine.toml")
    assert table.verifier == Exact(case_sensitive=True)


def test_every_option_changes_the_tasks(tmp_path: Path, reward: Path) -> None:
    path = write(tmp_path / "a.jsonl", {"prompt": "a #### b", "answer": "x #### 5", "q": "other", "b": "9", "k": "kind"})
    base = Rows(data=path, verifier=Exact())
    for change in (
        {"prompt": "q"},
        {"answer": "b"},
        {"answer_after": "####"},
        {"system": "s"},
        {"wordings": ("{prompt}!",)},
        {"template": "k"},
        {"max_tokens": 7},
        {"data": write(tmp_path / "b.jsonl", {"prompt": "z", "answer": "1"})},
    ):
        assert list(replace(base, **change).tasks()) != list(base.tasks()), change  # type: ignore[arg-type]
    assert type(Rows(data=path, reward=reward).verifier) is not type(base.verifier)


STEPS = "2 + 3 = <<2+3=5>>5 {answer}\n#### 5"
WORKED = "{steps}\nAnswer: {answer}"


@pytest.mark.parametrize(
    "row",
    [
        {"prompt": "2 + 3?", "answer": STEPS},
        {"messages": [{"role": "user", "content": "2 + 3?"}, {"role": "assistant", "content": STEPS}]},
        {"prompt": [{"role": "user", "content": "2 + 3?"}, {"role": "assistant", "content": [{"type": "text", "text": STEPS}]}]},
        {"messages": [{"role": "user", "content": "2 + 3?"}, {"role": "assistant", "content": "Five."}], "answer": STEPS},
    ],
)
def test_worked_answers_keep_their_steps_wherever_the_answer_stands(tmp_path: Path, row: dict[str, Any]) -> None:
    path = write(tmp_path / "a.jsonl", row)
    env = Rows(data=path, verifier=Number(), answer_after="####", worked=WORKED, erase="<<[^>]*>>")
    (task,) = env.tasks()
    said = env.reference(task)
    assert task.answer == "5" and said is not None
    assert said.turns[0].content == "2 + 3 = 5 {answer}\nAnswer: 5", "what the steps hold is no place of the template"


def test_worked_answers_of_other_kinds(tmp_path: Path, reward: Path) -> None:
    path = write(tmp_path / "a.jsonl", {"prompt": "x", "answer": {"a": [True, "\u00e9"]}})
    env = Rows(data=path, verifier=JsonSchema(), worked="{answer}")
    (task,) = env.tasks()
    said = env.reference(task)
    assert said is not None and said.turns[0].content == '{"a": [true, "\u00e9"]}' and check(env) == []
    (bare,) = (env := Rows(data=write(tmp_path / "b.jsonl", {"prompt": "x"}), reward=reward, worked="{answer}")).tasks()
    assert env.reference(bare) is None, "a row without an answer has none to show"


def test_a_verifier_that_finds_the_worked_answers_wrong_is_told(tmp_path: Path, reward: Path) -> None:
    path = write(tmp_path / "a.jsonl", *({"prompt": f"{n} + 3?", "answer": f"steps\n#### {n + 3}"} for n in range(30)))
    right = Rows(data=path, verifier=Number(), answer_after="####", worked=WORKED)
    assert [right for _, _, right in right.probes()] == [True] * 4 and check(right) == []
    for wrong in (replace(right, verifier=JsonSchema()), replace(right, worked="{steps}\nIt is {answer}")):
        faults = check(wrong)
        assert len(faults) == 4 and "a right answer is judged malformed" in faults[0]
    for unknown in (replace(right, worked=""), replace(right, verifier=None, reward=reward)):
        assert list(unknown.probes()) == [], "a function may give any number to a right answer"


@pytest.mark.parametrize(("erase", "says"), [("[", "character 1"), ("<<(", "character 3"), ("a{99999999999}", "too large")])
def test_a_broken_pattern_is_named(tmp_path: Path, erase: str, says: str) -> None:
    with pytest.raises(UsageError, match=f"erase = .* is no regular expression: .*{says}"):
        Rows(data=tmp_path / "a.jsonl", verifier=Exact(), erase=erase)


@pytest.mark.skipif(not GSM8K.is_file(), reason="the shared data are not beside this checkout")
def test_gsm8k() -> None:
    env = build("envs", "rows", data=str(GSM8K), verifier="number", prompt="question", answer_after="####")
    tasks = list(env.tasks())
    assert len(tasks) > 5000 and 0.1 < sum(t.held_out for t in tasks) / len(tasks) < 0.15
    assert all(t.answer.replace(",", "").lstrip("-").isdigit() for t in tasks)

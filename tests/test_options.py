"""Options: files, what they extend, overrides, paths, secrets, and the text they are saved as."""

from __future__ import annotations

import math
import tomllib
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from posttrain import options, plugins
from posttrain.errors import UsageError

RECIPE = '''
from __future__ import annotations
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from posttrain.verifiers._base import Verifier

@dataclass(frozen=True)
class Train:
    lr: float = 1e-5
    warm: Path | None = None

@dataclass(frozen=True, kw_only=True)
class Mine:
    """A recipe by path."""
    model: str = "smollm2-135m-instruct"
    data: str = ""
    reward: Path | None = None
    files: tuple[Path, ...] = ()
    steps: int = 3
    note: str = ""
    train: Train = Train()
    verifier: Verifier | None = field(default=None, metadata={"kind": "verifiers"})
    verifiers: tuple[Verifier, ...] = field(default=(), metadata={"kind": "verifiers"})

    def run(self, run: Any, progress: Any) -> dict[str, Any]:
        return {}
'''
BASE = """
recipe = "mine.py"
steps = 4
data = "rows.jsonl"
files = ["a", "b"]

[train]
lr = 1e-3

[[verifiers]]
name = "exact"
partial = 0.5

[[verifiers]]
name = "number"
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "jobs").mkdir()
    (tmp_path / "jobs" / "mine.py").write_text(RECIPE)
    (tmp_path / "jobs" / "base.toml").write_text(BASE)
    (tmp_path / "cwd").mkdir()
    monkeypatch.chdir(tmp_path / "cwd")
    return tmp_path


def write(folder: Path, text: str) -> str:
    (folder / "top.toml").write_text(text)
    return str(folder / "top.toml")


def test_a_file_and_its_paths(folder: Path) -> None:
    got = options.load(folder / "jobs" / "base.toml")
    assert next(iter(got)) == "recipe"
    assert got["recipe"] == str(folder / "jobs" / "mine.py")
    assert got["data"] == str(folder / "jobs" / "rows.jsonl")
    assert got["files"] == [str(folder / "jobs" / "a"), str(folder / "jobs" / "b")]
    assert type(got["data"]) is str


def test_extends_merges_tables_and_replaces_lists(folder: Path) -> None:
    top = write(folder, 'extends = "jobs/base.toml"\nfiles = ["c"]\n[train]\nwarm = "w"\n')
    got = options.load(top)
    assert got["train"] == {"lr": 1e-3, "warm": str(folder / "w")}, "tables merge; each path is relative to its own file"
    assert got["files"] == [str(folder / "c")]
    assert got["data"] == str(folder / "jobs" / "rows.jsonl")


def test_extends_goes_wrong_clearly(folder: Path) -> None:
    with pytest.raises(UsageError, match="extends itself"):
        options.load(write(folder, 'extends = "top.toml"'))
    with pytest.raises(UsageError, match=r"there is no file .*absent\.toml"):
        options.load(write(folder, 'extends = "absent.toml"'))
    with pytest.raises(UsageError, match="must name one file"):
        options.load(write(folder, "extends = 3"))


def test_overrides(folder: Path) -> None:
    base = folder / "jobs" / "base.toml"
    got = options.load(
        base,
        ["train.lr=1e-6", "data=mine.jsonl", "note=a = b", "verifiers.0.partial=0.1", "files=['x']", "verifier=exact"],
        steps=9,
        train__warm=Path("here"),
    )
    here = folder / "cwd"
    assert got["train"] == {"lr": 1e-6, "warm": str(here / "here")}
    assert (got["data"], got["files"], got["steps"], got["note"]) == (str(here / "mine.jsonl"), [str(here / "x")], 9, "a = b")
    assert got["verifiers"] == [{"name": "exact", "partial": 0.1}, {"name": "number"}]
    assert options.recipe(got, "base").verifiers[0].partial == 0.1


def test_a_table_that_names_another_plugin_replaces_the_old_one(folder: Path) -> None:
    base = folder / "jobs" / "base.toml"
    got = options.load(base, ["verifiers.0.name=number"])
    assert got["verifiers"][0] == {"name": "number"}, "options of the old one do not haunt the new one"
    got = options.load(write(folder, 'extends = "jobs/base.toml"\nverifier = "exact"'), ["verifier.partial=0.2"])
    assert got["verifier"] == {"name": "exact", "partial": 0.2}
    got = options.load(base, ["verifier=exact", "verifier.partial=0.3"])
    assert got["verifier"] == {"name": "exact", "partial": 0.3}


def test_a_text_option_takes_the_text_as_it_was_written(folder: Path) -> None:
    for text in ("nan", "007", "true", "1e5", "3"):
        assert options.load(folder / "jobs" / "base.toml", [f"note={text}"])["note"] == text
    assert options.load(folder / "jobs" / "base.toml", ["steps=3"])["steps"] == 3
    assert options.assignments(["a.b=3", "c=true", "d=x"]) == {"a": {"b": 3}, "c": True, "d": "x"}


@pytest.mark.parametrize("text", ["lr", "=3", "a..b=1", ""])
def test_a_malformed_override_is_refused(folder: Path, text: str) -> None:
    with pytest.raises(UsageError, match="not of the form key=value"):
        options.load(folder / "jobs" / "base.toml", [text])


def test_override_of_a_missing_item(folder: Path) -> None:
    with pytest.raises(UsageError, match="item 7 has no such item; the list has 2"):
        options.load(folder / "jobs" / "base.toml", ["verifiers.7.name=exact"])


def test_unknown_options_are_refused_with_the_nearest(folder: Path) -> None:
    got = options.load(folder / "jobs" / "base.toml", ["train.lrr=1"])
    with pytest.raises(UsageError, match=r"base: 'train\.lrr' is not an option of mine:Train\. Did you mean 'lr'"):
        options.recipe(got, "base")


def test_sources(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(options, "RECIPES", folder / "jobs")
    assert options.shipped() == ["base"]
    assert options.load("base")["steps"] == 4
    assert options.load({"recipe": "../jobs/mine.py", "data": "d"})["data"] == str(folder / "cwd" / "d")
    assert options.load(str(folder / "jobs" / "mine.py")) == {"recipe": str(folder / "jobs" / "mine.py")}
    with pytest.raises(UsageError, match=r"no recipe 'bace', and no such file\. Did you mean 'base'"):
        options.load("bace")
    with pytest.raises(UsageError, match=r"there is no file .*nothing\.toml"):
        options.load("nothing.toml")
    with pytest.raises(UsageError, match=r"top\.toml is not TOML: .*line 1"):
        options.load(write(folder, "a = = 3"))
    (folder / "top.toml").write_bytes(b"a = '\xff'")
    with pytest.raises(UsageError, match="is not TOML"):
        options.load(folder / "top.toml")
    with pytest.raises(UsageError, match="does not say which recipe it is for") as refused:
        options.load(write(folder, "a = 3"))
    assert str(refused.value).split("recipe = ")[1].strip('"') in plugins.names("recipes"), "the recipe of the advice exists"
    with pytest.raises(UsageError, match="cannot be saved with a run"):
        options.load("base", note=object())


def test_model_is_a_path_only_where_it_is_one(folder: Path) -> None:
    base = folder / "jobs" / "base.toml"
    (folder / "jobs" / "local-model").mkdir()
    assert options.load(base)["recipe"]
    assert options.load(base, ["model=org/name"])["model"] == "org/name"
    assert options.load(base, ["model=./m"])["model"] == str(folder / "cwd" / "m")
    assert options.load(base, ["model=m.gguf"])["model"] == str(folder / "cwd" / "m.gguf")
    top = write(folder / "jobs", 'extends = "base.toml"\nmodel = "local-model"')
    assert options.load(top)["model"] == str(folder / "jobs" / "local-model")


def test_saved_options_load_to_the_same(folder: Path) -> None:
    got = options.load(folder / "jobs" / "base.toml", ["verifier.name=exact", "reward=r.py"])
    (folder / "saved.toml").write_text(options.to_toml(got))
    assert options.load(folder / "saved.toml") == got
    assert options.recipe(options.load(folder / "saved.toml"), "saved") == options.recipe(got, "base")


def test_resolved_options_hold_every_default_and_make_an_equal_recipe(folder: Path) -> None:
    (folder / "jobs" / "judge.py").write_text(
        "from dataclasses import dataclass\n\n@dataclass(frozen=True)\nclass Own:\n    x: int = 3\n\n"
        "    async def judge(self, t): ...\n"
    )
    got = options.load(folder / "jobs" / "base.toml", ["verifiers.1.name=../jobs/judge.py", "verifiers.1.x=4", "reward=r.py"])
    recipe = options.recipe(got, "base")
    table = options.resolved(recipe, got["recipe"])
    assert table["note"] == "" and table["train"] == {"lr": 1e-3}
    assert table["verifiers"][0] == {"name": "exact", **vars_of(recipe.verifiers[0])}
    assert table["verifiers"][1] == {"name": f"{folder / 'jobs' / 'judge.py'}:Own", "x": 4}
    text = options.to_toml(table)
    assert options.recipe(options.load(tomllib.loads(text)), "saved") == recipe


def vars_of(instance: Any) -> dict[str, Any]:
    return {f.name: getattr(instance, f.name) for f in fields(instance)}


@pytest.mark.parametrize("name", options.shipped())
def test_every_shipped_recipe_parses_and_survives_saving(name: str) -> None:
    table = options.load(name)
    recipe = options.recipe(table, name)
    saved = tomllib.loads(options.to_toml(options.resolved(recipe, table["recipe"])))
    assert options.recipe(options.load(saved), "saved") == recipe


def test_secrets_are_redacted_and_token_counts_are_not() -> None:
    table = {
        "api_key": "a", "hf_token": "b", "password": "c", "client_secret": "d", "apiKeys": ["e"], "judge": {"key": "f"},
        "max_tokens": 128, "eos_token": "<|im_end|>", "tokenizer": "path", "url": "https://me:pw@host/x", "monkey_business": "g",
    }  # fmt: skip
    got = options.redact(table)
    hidden = options.REDACTED
    assert got == {
        "api_key": hidden, "hf_token": hidden, "password": hidden, "client_secret": hidden, "apiKeys": [hidden],
        "judge": {"key": hidden}, "max_tokens": 128, "eos_token": "<|im_end|>", "tokenizer": "path",
        "url": f"https://{hidden}@host/x", "monkey_business": "g",
    }  # fmt: skip
    assert table["api_key"] == "a"


SCALARS = st.one_of(
    st.booleans(),
    st.integers(-(2**63), 2**63 - 1),
    st.floats(allow_nan=False),
    st.text(st.characters(exclude_categories=["Cs"]), max_size=20),
)
KEYS = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=6)
LEAVES = st.dictionaries(KEYS, st.one_of(SCALARS, st.lists(SCALARS, max_size=3)), max_size=4)


def nested(inner: st.SearchStrategy[dict[str, Any]]) -> st.SearchStrategy[dict[str, Any]]:
    lists = st.lists(inner, max_size=2)
    return st.dictionaries(KEYS, st.one_of(SCALARS, inner, lists, st.lists(lists, max_size=2)), max_size=3)


TABLES = st.recursive(LEAVES, nested, max_leaves=8)


@given(TABLES)
def test_to_toml_reads_back_as_the_same(table: dict[str, Any]) -> None:
    assert tomllib.loads(options.to_toml(table)) == table


def test_to_toml_of_odd_values() -> None:
    text = options.to_toml({"a": math.inf, "b": -math.inf, "c": math.nan, "d": None, "p": Path("x")})
    back = tomllib.loads(text)
    assert back["a"] == math.inf and back["b"] == -math.inf and math.isnan(back["c"]) and "d" not in back and back["p"] == "x"
    with pytest.raises(UsageError, match=r"a\.b is .*cannot hold"):
        options.to_toml({"a": {"b": object()}})

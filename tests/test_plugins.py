"""Plug-ins are found by name, entry point or path, and wrong names and options answer with the nearest right one."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass, field
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any, ClassVar, Literal

import pytest

from posttrain import plugins
from posttrain.errors import UsageError
from posttrain.types import Trajectory, Verdict
from posttrain.verifiers._base import Verifier


@dataclass(frozen=True)
class Always:
    """A verifier that says ok."""

    reward: float = 1.0
    needs: ClassVar[int] = 3

    async def judge(self, trajectory: Trajectory) -> Verdict:
        return Verdict(status="ok", reward=self.reward)


@dataclass(frozen=True)
class Inner:
    lr: float = 1e-5
    betas: tuple[float, float] = (0.9, 0.99)


@dataclass(frozen=True, kw_only=True)
class Job:
    """A recipe that holds one of everything."""

    steps: int
    name: str = "x"
    flag: bool = False
    mode: Literal["fast", "exact"] = "fast"
    level: tuple[int, ...] = (0,)
    where: Path | None = None
    limit: float | None = None
    extra: dict[str, int] = field(default_factory=dict)
    inner: Inner = Inner(lr=1.0)
    verifier: Verifier = field(default=Always(), metadata={"kind": "verifiers"})
    perhaps: Verifier | None = field(default=None, metadata={"kind": "verifiers"})
    verifiers: tuple[Verifier, ...] = field(default=(), metadata={"kind": "verifiers"})

    def __post_init__(self) -> None:
        if self.steps < 1:
            raise ValueError(f"steps is {self.steps}; at least 1 is needed")

    def run(self, run: Any, progress: Any) -> dict[str, Any]:
        return {}


def job(**table: Any) -> Job:
    made = plugins.fill(Job, {"steps": 1, **table}, where="test.toml")
    assert isinstance(made, Job)
    return made


MINE = '''
from __future__ import annotations
from dataclasses import dataclass
from posttrain.types import Verdict
import beside

@dataclass(frozen=True)
class Helper:
    """No plug-in: it cannot judge."""
    x: int = 1

@dataclass(frozen=True)
class Mine:
    """Says how long the answer is."""
    limit: int = beside.LIMIT

    async def judge(self, trajectory):
        return Verdict(status="ok")
'''


@pytest.fixture
def mine(tmp_path: Path) -> Path:
    (tmp_path / "beside.py").write_text("LIMIT = 42\n")
    (tmp_path / "mine.py").write_text(MINE)
    return tmp_path / "mine.py"


def test_every_built_in_plugin_is_found_by_its_name() -> None:
    seen = 0
    for kind in plugins.kinds():
        for name in plugins.names(kind):
            cls = plugins.find(kind, name)
            stem = name.rsplit("/", 1)[-1].replace("_", "")
            assert cls.__name__.lower() == stem or name in cls.__module__
            assert cls.__doc__ and plugins.summaries(kind)[name]
            seen += 1
    assert {"exact", "number"} <= set(plugins.names("verifiers")) and seen > 10


def test_listing_imports_nothing_heavy() -> None:
    code = (
        "import sys; from posttrain import plugins as p; [p.summaries(k) for k in p.kinds()]; "
        "sys.exit(str({'torch', 'transformers', 'sympy', 'jsonschema', 'numpy'} & set(sys.modules) or ''))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.stderr.strip() == ""


def test_wrong_names_answer_with_the_nearest() -> None:
    with pytest.raises(UsageError, match=r"no kind of plug-in 'verifier'\. Did you mean 'verifiers'"):
        plugins.names("verifier")
    with pytest.raises(UsageError, match=r"no plug-in 'exakt' among the verifiers\. Did you mean 'exact'"):
        plugins.find("verifiers", "exakt")
    with pytest.raises(
        UsageError, match=r"verifiers exact: 'partail' is not an option of verifiers\.exact:Exact. Did you mean 'partial'"
    ):
        plugins.build("verifiers", "exact", partail=1)


def test_build_sets_options_and_checks_their_types() -> None:
    assert plugins.build("verifiers", "exact", partial=0.25).partial == 0.25
    with pytest.raises(UsageError, match="partial is 'much'"):
        plugins.build("verifiers", "exact", partial="much")
    assert plugins.from_table("verifiers", "exact") == plugins.from_table("verifiers", {"name": "exact"})


def test_by_path(mine: Path) -> None:
    cls = plugins.find("verifiers", str(mine))
    assert cls.__name__ == "Mine" and cls.__module__.split(".")[-1] == "mine"
    assert plugins.build("verifiers", f"{mine}:Mine", limit=3).limit == 3
    assert plugins.find("verifiers", str(mine)) is cls, "one class for one state of the file"
    mine.write_text(MINE.replace("beside.LIMIT", "7"))
    assert plugins.build("verifiers", str(mine)).limit == 7


def test_a_bad_file_is_told_what_is_wrong(mine: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"there is no file .*absent\.py"):
        plugins.find("verifiers", str(tmp_path / "absent.py"))
    with pytest.raises(UsageError, match=r"no class 'Mime'\. Did you mean 'Mine'"):
        plugins.find("verifiers", f"{mine}:Mime")
    with pytest.raises(UsageError, match=r"mine\.py:Helper is not one of the verifiers"):
        plugins.find("verifiers", f"{mine}:Helper")
    mine.write_text(MINE + "\n\n@dataclass(frozen=True)\nclass Second(Mine):\n    pass\n")
    with pytest.raises(UsageError, match=r"holds several; say which: .*mine\.py:Mine"):
        plugins.find("verifiers", str(mine))
    (tmp_path / "broken.py").write_text("x = 1\n\ny = nothing_here\n")
    with pytest.raises(UsageError, match=r"broken\.py, line 3: NameError"):
        plugins.find("verifiers", str(tmp_path / "broken.py"))
    (tmp_path / "syntax.py").write_text("x = 1\ndef (\n")
    with pytest.raises(UsageError, match=r"syntax\.py, line 2: SyntaxError"):
        plugins.find("verifiers", str(tmp_path / "syntax.py"))
    (tmp_path / "empty.py").write_text("")
    with pytest.raises(UsageError, match="write one frozen dataclass with 'judge' in it"):
        plugins.find("verifiers", str(tmp_path / "empty.py"))


def test_installed_ones_come_by_entry_point(monkeypatch: pytest.MonkeyPatch) -> None:
    entry = EntryPoint(name="theirs", value="posttrain.verifiers.exact:Exact", group="posttrain.verifiers")
    bad = EntryPoint(name="no_verifier", value="posttrain.types:Message", group="posttrain.verifiers")
    monkeypatch.setattr(plugins, "entry_points", lambda group: [entry, bad] if group == "posttrain.verifiers" else [])
    assert {"theirs", "exact"} <= set(plugins.names("verifiers"))
    assert plugins.find("verifiers", "theirs").__name__ == "Exact"
    assert plugins.summaries("verifiers")["theirs"] == "installed: posttrain.verifiers.exact:Exact"
    with pytest.raises(UsageError, match="no_verifier is not one of the verifiers"):
        plugins.find("verifiers", "no_verifier")


def test_fill_takes_every_type_of_option() -> None:
    made = job(
        name="y", flag=True, mode="exact", level=[1, 2], where="~/x", limit=3, extra={"a": 1}, inner={"lr": 2}, verifier="exact",
        perhaps={"name": "exact", "partial": 0.5}, verifiers=["exact", {"name": "number"}],
    )  # fmt: skip
    assert (made.name, made.flag, made.mode, made.level, made.limit, made.extra) == ("y", True, "exact", (1, 2), 3.0, {"a": 1})
    assert made.where == Path("~/x").expanduser() and isinstance(made.limit, float)
    assert made.inner == Inner(lr=2.0)
    assert [type(v).__name__ for v in (made.verifier, made.perhaps, *made.verifiers)] == ["Exact", "Exact", "Exact", "Number"]
    assert job(limit="none", perhaps="none").limit is None
    assert job(steps=2.0).steps == 2
    assert job(verifier=Always(0.5)).verifier == Always(0.5)


def test_a_table_without_a_name_changes_the_default() -> None:
    assert job(verifier={"reward": 0.25}).verifier == Always(0.25)
    assert job(inner={"betas": [0.1, 0.2]}).inner == Inner(lr=1.0, betas=(0.1, 0.2)), "the default's lr stays"


@pytest.mark.parametrize(
    ("table", "says"),
    [
        ({"stepz": 1}, r"'stepz' is not an option of .*test_plugins:Job\. Did you mean 'steps'"),
        ({"inner": {"lrr": 1}}, r"'inner\.lrr' is not an option of .*:Inner\. Did you mean 'lr'"),
        ({"steps": "3"}, r"steps is '3' \(str\), but must be a whole number"),
        ({"steps": 1.5}, "must be a whole number"),
        ({"steps": True}, "must be a whole number"),
        ({"steps": 0}, "steps is 0; at least 1 is needed"),
        ({"flag": "true"}, "must be true or false"),
        ({"flag": 1}, "must be true or false"),
        ({"limit": "much"}, "limit is 'much'.*must be a number"),
        ({"name": 3}, "must be text"),
        ({"mode": "exakt"}, "not one of the choices. Did you mean 'exact'"),
        ({"level": 3}, r"must be a list, in \[ \]"),
        ({"level": ["a"]}, r"level\[0\] is 'a'"),
        ({"inner": {"betas": [1]}}, r"inner\.betas has 1 values, but needs 2"),
        ({"inner": 3}, "table of the options of .*Inner"),
        ({"where": ""}, "must be a path"),
        ({"extra": {"a": "b"}}, r"extra\.a is 'b'"),
        ({"verifier": "exakt"}, "verifier: there is no plug-in 'exakt'"),
        ({"verifier": 3}, "must name one of the verifiers"),
        ({"perhaps": {"reward": 1}}, "must name one of the verifiers"),
        ({"verifier": {"name": "exact", "x": 1}}, r"'verifier\.x' is not an option of verifiers\.exact:Exact"),
        ({"verifiers": "exact"}, "must be a list of verifiers"),
        ({"verifiers": ["exact", "nunber"]}, r"verifiers\[1\]: there is no plug-in 'nunber'.*Did you mean 'number'"),
    ],
)  # fmt: skip
def test_fill_says_what_where_and_what_instead(table: dict[str, Any], says: str) -> None:
    with pytest.raises(UsageError, match=rf"^test\.toml: .*{says}"):
        job(**table)


def test_a_missing_option_is_named() -> None:
    with pytest.raises(UsageError, match="needs 'steps'; give it a value"):
        plugins.fill(Job, {}, where="test.toml")

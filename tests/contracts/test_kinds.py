"""``posttrain check KIND NAME`` runs what the tests run over all, for every kind that the documentation names."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from posttrain import contracts, plugins
from posttrain.cli import main

KINDS = sorted(p.stem for p in Path(contracts.__path__[0]).glob("*.py") if not p.stem.startswith("_"))
OWN = {
    "losses": "from posttrain.losses.clipped import Clipped\n@dataclass(frozen=True, kw_only=True)\nclass Mine(Clipped):\n",
    "advantages": "from posttrain.advantages.group_mean import GroupMean\n@dataclass(frozen=True)\nclass Mine(GroupMean):\n",
    "pools": "from posttrain.pools.uniform import Uniform\n@dataclass(frozen=True)\nclass Mine(Uniform):\n",
    "verifiers": "from posttrain.verifiers.exact import Exact\n@dataclass(frozen=True)\nclass Mine(Exact):\n",
}


def test_the_documentation_names_the_kinds_that_have_one() -> None:
    said = (Path(__file__).parents[2] / "docs" / "architecture.md").read_text()
    named = re.search(r"^(.+) have a contract in `contracts/`", said, re.MULTILINE)
    assert named is not None
    words = re.findall(r"\w+", named[1].lower().replace("environments", "envs").replace(" and ", ", "))
    assert sorted(words) == KINDS and set(KINDS) <= set(plugins.kinds())


@pytest.mark.parametrize("kind", OWN)
def test_a_plugin_of_ones_own_is_checked_by_its_path(kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "mine.py").write_text(f"from dataclasses import dataclass\n{OWN[kind]}    pass\n")
    with pytest.raises(SystemExit) as left:
        main(["check", kind, f"{tmp_path / 'mine.py'}:Mine"])
    assert left.value.code == 0 and "passed" in capsys.readouterr().out

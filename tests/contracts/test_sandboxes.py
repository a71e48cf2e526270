"""Every sandbox backend passes its gate here, at each level that this machine has; and the gate catches broken ones."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from posttrain import plugins
from posttrain.contracts.sandboxes import check
from posttrain.errors import SandboxUnavailable
from posttrain.sandboxes._base import ExecResult
from posttrain.sandboxes.landlock import Landlock
from posttrain.sandboxes.namespaces import Namespaces
from posttrain.sandboxes.namespaces.box import NamespaceSandbox


@pytest.mark.parametrize("name", plugins.names("sandboxes"))
def test_backend_passes_the_gate(name: str) -> None:
    try:
        assert check(plugins.build("sandboxes", name)) == []
    except SandboxUnavailable as why:
        pytest.skip(str(why))


@pytest.mark.slow
def test_namespaces_of_a_plain_user_pass_the_gate() -> None:
    if os.geteuid() != 0 or not Path("/usr/bin/python3").exists():
        pytest.skip("this is a plain user already, or there is no interpreter that one may read")
    assert check(Namespaces(user=4242, interpreter="/usr/bin/python3")) == []


@pytest.mark.slow
def test_landlock_alone_passes_the_gate() -> None:
    if not Path("/usr/bin/python3").exists():
        pytest.skip("there is no interpreter that a plain user may read")
    assert check(Landlock(user=4242 if os.geteuid() == 0 else None, interpreter="/usr/bin/python3")) == []


def test_the_gate_catches_a_wrong_status(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = NamespaceSandbox.exec

    async def always_ok(self: NamespaceSandbox, *args: Any, **options: Any) -> ExecResult:
        result = await whole(self, *args, **options)
        return ExecResult(
            status="ok", stdout=result.stdout, stderr=result.stderr, result=result.result, exit_code=result.exit_code
        )

    monkeypatch.setattr(NamespaceSandbox, "exec", always_ok)
    found = check(Namespaces())
    assert any("ends with ok" in fault for fault in found)
    assert any("aborted" in fault for fault in found)

"""The table of errors: whose fault, which exit code, and messages that say what to do."""

from __future__ import annotations

import pytest

from posttrain import errors


def test_exit_codes_are_those_of_the_table() -> None:
    table = {
        errors.PosttrainError: 70,
        errors.UsageError: 2,
        errors.InvalidRun: 4,
        errors.HostError: 5,
        errors.InfraError: 4,
        errors.DeadlineExceeded: 4,
        errors.WorkerLost: 4,
        errors.Interrupted: 130,
    }
    assert {cls: cls.exit_code for cls in table} == table
    assert (errors.EXIT_OK, errors.EXIT_REGRESSION, errors.EXIT_INCONCLUSIVE) == (0, 1, 3)


def test_a_deadline_names_its_wait() -> None:
    error = errors.DeadlineExceeded("reading rows", 2.5)
    assert str(error) == "reading rows did not finish within 2.5 s"
    assert (error.what, error.seconds) == ("reading rows", 2.5)


def test_tool_errors_have_one_renderer() -> None:
    for code, text in errors.TOOL_ERRORS.items():
        assert str(errors.ToolError(code)) == f"error {code}: {text}"
        assert str(errors.ToolError(code, "why")) == errors.render_tool_error(code, "why") == f"error {code}: {text}: why"
    with pytest.raises(KeyError, match="E_NONE"):
        errors.ToolError("E_NONE")


def test_what_the_policys_program_does_wrong_is_wrong() -> None:
    assert {k for k, v in errors.EXEC_STATUS.items() if v == "infra_error"} == {
        "runnable_at_wall_limit",
        "sandbox_lost",
        "reference_deadline",
    }
    assert [k for k, v in errors.EXEC_STATUS.items() if v == "ok"] == ["ok"]


def test_nearest() -> None:
    assert errors.nearest("lrr", ["lr", "betas"]) == " Did you mean 'lr'?"
    assert errors.nearest("zzz", ["lr", "betas"]) == " Known: betas, lr."
    assert errors.nearest("zzz", []) == ""
    assert errors.nearest("zzz", [f"{i:03}" for i in range(30)]).endswith("019 ....")

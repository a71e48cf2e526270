"""JSON judged by a schema, by an expected value, or by both."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from posttrain.types import Trajectory, Verdict
from posttrain.verifiers._base import too_long
from posttrain.verifiers._bounded import Stalled, judge_in_worker
from posttrain.verifiers._strict_json import NotJson, num_leaves, num_right, read, same


@dataclass(frozen=True)
class JsonSchema:
    """The answer is one JSON value: it must satisfy ``task.private["schema"]`` and equal ``task.answer``, where given.

    JSON Schema 2020-12 (or the schema's own ``$schema``) with formats asserted; remote ``$ref`` is refused. The answer is the
    whole text, in a ``` fence or bare; with ``task.private["last_line"]`` its last line. ``whole_floats`` lets 1.0
    be an integer, as the specification does. A value that is right in part earns ``partial`` times the share of right leaves.
    """

    partial: float = 0.3
    whole_floats: bool = False
    max_chars: int = 100_000
    max_depth: int = 32
    deadline: float = 5.0  # seconds, of the schema check

    async def judge(self, trajectory: Trajectory) -> Verdict:
        """Parts: format, schema, value. Malformed: not JSON; wrong: not this schema or value."""
        if verdict := too_long(trajectory, "json_schema"):
            return verdict
        task = trajectory.task
        schema = task.private.get("schema")
        if schema is None and task.answer is None:
            return Verdict(status="unverifiable", evidence={"missing": "schema and answer"}, verifier="json_schema")
        try:
            text = payload(trajectory.final_text, last_line=bool(task.private.get("last_line")))
            got = read(text, max_chars=self.max_chars, max_depth=self.max_depth)
        except NotJson as e:
            return self._verdict("malformed", 0.0, {"format": 0.0}, f"The answer is {e}.", {"reason": str(e)})
        parts = {"format": 1.0}
        if schema is not None:
            problem = await self._schema_problem(schema, text, task.answer)
            if isinstance(problem, Verdict):
                return problem
            parts["schema"] = float(not problem)
            if problem:
                return self._verdict("wrong", 0.0, parts, f"The JSON does not fit the schema: {problem}.", {"problem": problem})
        if task.answer is None:
            return self._verdict("ok", 1.0, parts, "", {})
        return self._compare(task.answer, got, parts)

    def _compare(self, expected: Any, got: Any, parts: dict[str, float]) -> Verdict:
        if same(expected, got, whole_floats=self.whole_floats):
            return self._verdict("ok", 1.0, parts | {"value": 1.0}, "", {})
        right = num_right(expected, got, whole_floats=self.whole_floats)
        wanted, found = num_leaves(expected), num_leaves(got)
        share = right / max(wanted, found)
        evidence = {"right": right, "of": wanted}
        feedback = f"{right} of {found} values are right."
        return self._verdict("wrong", min(self.partial * share, 0.99), parts | {"value": share}, feedback, evidence)

    async def _schema_problem(self, schema: Any, text: str, answer: Any) -> str | Verdict:
        """ "" when ``text`` fits, else where it does not; a verdict when the check itself did not end well."""
        limits = (self.whole_floats, self.max_chars, self.max_depth)
        reference = json.dumps(answer) if answer is not None else "null"
        target = "posttrain.verifiers.json_schema:problem_in"
        schema_text = json.dumps(schema)
        try:
            broken, problem = await judge_in_worker(
                target, (schema_text, text, *limits), (schema_text, reference, *limits), deadline=self.deadline
            )
        except Stalled as e:
            return self._verdict(
                "wrong", 0.0, {"format": 1.0, "schema": 0.0}, "Checking the answer took too long.", {"stalled": str(e)}
            )
        if broken:
            return Verdict(status="unverifiable", evidence={"schema": problem}, verifier="json_schema")
        return str(problem)

    def _verdict(self, status: Any, reward: float, parts: dict[str, float], feedback: str, evidence: dict[str, Any]) -> Verdict:
        return Verdict(status=status, reward=reward, parts=parts, feedback=feedback, evidence=evidence, verifier="json_schema")


def payload(text: str, *, last_line: bool = False) -> str:
    """The part of an answer that must be JSON: all of it without a surrounding ``` fence, or its last line."""
    text = text.strip()
    if last_line:
        return text.rsplit("\n", 1)[-1]
    if text.startswith("```") and text.endswith("```") and len(text) >= 6:
        head, _, body = text[3:-3].partition("\n")
        return body if head.strip().lower() in ("", "json") else text
    return text


def problem_in(schema_text: str, text: str, whole_floats: bool, max_chars: int, max_depth: int) -> tuple[bool, str]:
    """(the schema itself cannot be used, what is wrong or ""). Runs in a worker: patterns may backtrack for ever."""
    from jsonschema.exceptions import SchemaError, best_match
    from referencing.exceptions import Unresolvable

    instance = read(text, max_chars=max_chars, max_depth=max_depth)
    try:
        error = best_match(_validator(schema_text, whole_floats).iter_errors(instance))
    except SchemaError as e:
        return True, f"not a JSON Schema: {_plain(e.message)}"
    except Unresolvable as e:
        return True, f"a $ref leads outside the schema: {_plain(str(e))}"
    except RecursionError:
        return True, "the schema recurses without end"
    if error is None:
        return False, ""
    return False, f"at {_plain(error.json_path)}, {error.validator} fails"


@lru_cache(maxsize=256)
def _validator(schema_text: str, whole_floats: bool) -> Any:
    """A validator with formats asserted and without a way to the network; checking the schema itself takes the longest."""
    from jsonschema import Draft202012Validator, FormatChecker
    from jsonschema.validators import extend, validator_for
    from jsonschema_specifications import REGISTRY  # type: ignore[import-untyped]

    schema = json.loads(schema_text)
    base = validator_for(schema, default=Draft202012Validator)
    if not whole_floats:
        checker = base.TYPE_CHECKER.redefine("integer", lambda _, x: isinstance(x, int) and not isinstance(x, bool))
        base = extend(base, type_checker=checker)
    base.check_schema(schema)
    return base(schema, registry=REGISTRY, format_checker=FormatChecker())


def _plain(text: str) -> str:
    """Short and free of lone surrogates, so that it can be stored anywhere."""
    return text[:200].encode("utf-8", "backslashreplace").decode()

"""One SELECT, judged by what it returns on several databases (never by its text)."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any

from posttrain.types import Trajectory, Verdict
from posttrain.verifiers._base import too_long
from posttrain.verifiers._bounded import Stalled, judge_in_worker

MAX_QUERY_CHARS = 8_000
MAX_HEAP = 64_000_000  # bytes, of a worker's sqlite
_STARTS = re.compile(r"(?:select|with)\b", re.IGNORECASE)


@dataclass(frozen=True)
class Sql:
    """Runs the answer and ``task.answer`` (the reference query) on every database of ``task.private``; the rows must agree.

    ``private["schema"]``: CREATE TABLE statements; ``private["instances"]``: at least three ``{table: [row, ...]}``;
    ``private["ordered"]``: whether the question asks for an order. Duplicates count, and so does the order of columns; values
    compare by storage class (NULL, number, text, blob), numbers by value. sqlite in memory, read-only by an authoriser, bounded
    in virtual machine steps (``max_steps``) and rows, in a killable worker.
    """

    max_steps: int = 500_000  # of the virtual machine, a database
    max_rows: int = 2_000
    deadline: float = 5.0  # seconds, all databases together; only a stalled primitive meets it

    async def judge(self, trajectory: Trajectory) -> Verdict:
        """Parts: format, runs, rows (share of databases that agree). Malformed: not one SELECT."""
        if verdict := too_long(trajectory, "sql"):
            return verdict
        task = trajectory.task
        schema, instances = task.private.get("schema"), task.private.get("instances")
        if not (isinstance(task.answer, str) and isinstance(schema, str) and isinstance(instances, list) and instances):
            return Verdict(status="unverifiable", evidence={"missing": "schema, instances or reference"}, verifier="sql")
        query, problem = read_query(trajectory.final_text)
        if problem:
            return self._verdict("malformed", 0.0, {"format": 0.0}, f"The answer {problem}.", {"reason": problem})
        spec = json.dumps({"schema": schema, "instances": instances, "ordered": bool(task.private.get("ordered"))})
        limits = (self.max_steps, self.max_rows)
        try:
            found = await judge_in_worker(
                "posttrain.verifiers.sql:agreement",
                (spec, task.answer, query, *limits),
                (spec, task.answer, task.answer, *limits),
                deadline=self.deadline,
            )
        except Stalled as e:
            return self._verdict("wrong", 0.0, {"format": 1.0, "runs": 0.0}, "The query took too long.", {"stalled": str(e)})
        if found["reference_error"]:
            return Verdict(status="unverifiable", evidence={"reference": found["reference_error"]}, verifier="sql")
        if found["several"]:
            return self._verdict("malformed", 0.0, {"format": 0.0}, "The answer is more than one statement.", {})
        if found["error"]:
            return self._verdict(
                "wrong", 0.0, {"format": 1.0, "runs": 0.0}, f"sqlite: {found['error']}.", {"error": found["error"]}
            )
        agree: list[bool] = found["agree"]
        parts = {"format": 1.0, "runs": 1.0, "rows": sum(agree) / len(agree)}
        if all(agree):
            return self._verdict("ok", 1.0, parts, "", {"databases": len(agree)})
        return self._verdict("wrong", 0.0, parts, "The query runs, but does not return the rows asked for.", {"agree": agree})

    def _verdict(self, status: Any, reward: float, parts: dict[str, float], feedback: str, evidence: dict[str, Any]) -> Verdict:
        return Verdict(status=status, reward=reward, parts=parts, feedback=feedback, evidence=evidence, verifier="sql")


def read_query(text: str) -> tuple[str, str]:
    """(query, what is wrong or ""): the whole text, or the whole of one ``` fence, must be one SELECT."""
    text = text.strip()
    head, _, body = text.partition("\n")
    if head.startswith("```") and head[3:].strip().lower() in ("", "sql", "sqlite"):
        if not body.endswith("```"):
            return "", "opens a ``` fence and does not close it"
        text = body[:-3].strip()
    if not text:
        return "", "is empty"
    if len(text) > MAX_QUERY_CHARS:
        return "", f"is longer than {MAX_QUERY_CHARS:,} characters"
    if "\0" in text:
        return "", "holds a null character"
    if not _STARTS.match(text):
        return "", "is not a single SELECT statement"
    return text.encode("utf-8", "replace").decode(), ""


def agreement(spec_text: str, reference: str, query: str, max_steps: int, max_rows: int) -> dict[str, Any]:
    """Whether both queries return the same rows, database by database. Runs in a worker; never raises on a query.

    ``{"agree": [True, True, False], "error": "", "several": False, "reference_error": ""}``
    """
    from posttrain.verifiers._sqlite import QueryFailed, SeveralStatements, database, rows, same_rows

    spec = json.loads(spec_text)
    result: dict[str, Any] = {"agree": [], "error": "", "several": False, "reference_error": ""}
    for instance in spec["instances"]:
        with database(spec["schema"], instance, max_heap=MAX_HEAP) as connection:
            try:
                expected = rows(connection, reference, max_steps=max_steps, max_rows=max_rows)
            except (QueryFailed, SeveralStatements) as e:
                return result | {"reference_error": str(e)}
            try:
                got = rows(connection, query, max_steps=max_steps, max_rows=max_rows)
            except SeveralStatements:
                return result | {"several": True}
            except QueryFailed as e:
                return result | {"error": str(e)}
        result["agree"].append(same_rows(expected, got, ordered=spec["ordered"]))
    return result

"""Tool use judged by what was called, in which order where that matters, and by the state it left behind."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from posttrain.types import ToolCall, Trajectory, Verdict
from posttrain.verifiers._base import too_long
from posttrain.verifiers._strict_json import same

MAX_CALLS = 1_000  # of an attempt; each is compared with every call that was asked for


@dataclass(frozen=True)
class ToolCalls:
    """Two kinds of ``task.answer``.

    ``{"calls": [{"name", "arguments"}], "ordered": bool, "free": [names], "state": {...}}``: the calls that took effect
    (``artefacts["calls"]`` of the session, else all that were made), without those of free (reading) tools, must be exactly
    these - as a list when ordered, else as a multiset - and the session's final ``state`` (where given) must be equal.

    ``{"accepted": [{name: {argument: [values]}}]}``: every call must match one entry, each entry once; "" among the values
    makes an argument optional (the format of BFCL). A part of the right calls earns ``partial`` times their share.
    """

    partial: float = 0.3

    async def judge(self, trajectory: Trajectory) -> Verdict:
        """Parts: format, names, arguments, order, state. Malformed: a call that could not be read, or none at all."""
        if verdict := too_long(trajectory, "tool_calls"):
            return verdict
        gold = trajectory.task.answer
        if not isinstance(gold, Mapping) or not ("calls" in gold or "accepted" in gold):
            return Verdict(status="unverifiable", evidence={"missing": "calls or accepted"}, verifier="tool_calls")
        turns = [t for t in trajectory.turns if t.role == "assistant"]
        calls = [call for t in turns for call in t.tool_calls]
        if not calls or turns[-1].malformed:  # a broken call that was mended in a later turn is forgiven
            broken = next((t.malformed for t in reversed(turns) if t.malformed), "")
            feedback = f"A tool call could not be read: {broken[:200]}." if broken else "No tool was called."
            return self._verdict("malformed", 0.0, {"format": 0.0}, feedback, {"calls": len(calls)})
        if len(calls) > MAX_CALLS:
            feedback = f"More than {MAX_CALLS:,} tools were called."
            return self._verdict("malformed", 0.0, {"format": 0.0}, feedback, {"calls": len(calls)})
        if "accepted" in gold:
            return self._against_accepted(gold["accepted"], calls)
        effective = trajectory.artefacts.get("calls")  # a session's record; a call that was refused changed nothing
        if effective is not None:
            calls = [ToolCall(name=c["name"], arguments=c["arguments"]) for c in effective]
        return self._against_calls(gold, calls, trajectory.artefacts.get("state"))

    def _against_calls(self, gold: Mapping[str, Any], calls: list[ToolCall], state: Any) -> Verdict:
        free = set(gold.get("free", ()))
        wanted = [ToolCall(name=c["name"], arguments=c["arguments"]) for c in gold["calls"]]
        made = [c for c in calls if c.name not in free]
        matched = _matched(wanted, made)
        in_order = len(made) == len(wanted) and all(_equal(w, m) for w, m in zip(wanted, made, strict=True))
        all_made = len(made) == len(wanted) == matched
        names = sum((Counter(w.name for w in wanted) & Counter(m.name for m in made)).values())
        most = max(len(wanted), len(made), 1)
        parts = {"format": 1.0, "names": names / most, "arguments": matched / most}
        if gold.get("ordered"):
            parts["order"] = float(in_order)
        if "state" in gold:
            parts["state"] = float(same(gold["state"], state))
        if all_made and parts.get("order", 1.0) and parts.get("state", 1.0):
            return self._verdict("ok", 1.0, parts, "", {"calls": len(calls)})
        if not all_made:
            feedback = f"{matched} of the {len(made)} calls that change something are right."
        else:
            feedback = "The calls come in the wrong order." if not parts.get("order", 1.0) else "The final state is not right."
        share = matched / most if matched < len(wanted) else 0.0  # what was asked plus more earns nothing
        evidence = {"calls": len(calls), "matched": matched, "wanted": len(wanted)}
        return self._verdict("wrong", min(self.partial * share, 0.99), parts, feedback, evidence)

    def _against_accepted(self, accepted: Sequence[Mapping[str, Any]], calls: list[ToolCall]) -> Verdict:
        left, problems = list(accepted), []
        for call in calls:
            faults = [mismatch(call, entry) for entry in left]
            if "" in faults:
                del left[faults.index("")]
            else:
                problems.append(min(faults, key=len) if faults else "one call too many")
        right = len(calls) - len(problems)
        most = max(len(accepted), len(calls), 1)
        known = Counter(name for entry in accepted for name in entry)
        parts = {"format": 1.0, "names": sum((known & Counter(c.name for c in calls)).values()) / most, "arguments": right / most}
        if not problems and not left:
            return self._verdict("ok", 1.0, parts, "", {"calls": len(calls)})
        feedback = f"{right} of {len(calls)} calls are right."
        share = right / most if right < len(accepted) else 0.0
        return self._verdict("wrong", min(self.partial * share, 0.99), parts, feedback, {"problems": problems[:5]})

    def _verdict(self, status: Any, reward: float, parts: dict[str, float], feedback: str, evidence: dict[str, Any]) -> Verdict:
        return Verdict(status=status, reward=reward, parts=parts, feedback=feedback, evidence=evidence, verifier="tool_calls")


def mismatch(call: ToolCall, entry: Mapping[str, Any]) -> str:
    """What keeps a call from matching ``{name: {argument: [accepted values]}}``; "" when it matches.

    ``mismatch(ToolCall(name="f", arguments={"a": 1}), {"f": {"a": [1, 2], "b": ["", 3]}})`` -> "".
    """
    if call.name not in entry:
        return "another tool was needed"
    accepted = entry[call.name]
    for name in call.arguments:
        if name not in accepted:
            return f"{ascii(name[:80])[:80]} is not an argument of this call"
    for name, values in accepted.items():
        if name not in call.arguments:
            if "" not in values:
                return f"argument {name!r} is missing"
        elif not any(_accepts(value, call.arguments[name]) for value in values):
            return f"argument {name!r} has a wrong value"
    return ""


def _accepts(wanted: Any, got: Any) -> bool:
    """One accepted value against an argument; texts up to case and punctuation, objects by their own lists of values."""
    if isinstance(wanted, str) and isinstance(got, str):
        return len(got) <= 4 * len(wanted) + 100 and _plain(wanted) == _plain(got)  # an endless text is not read once a value
    if isinstance(wanted, Mapping):
        if not isinstance(got, Mapping) or any(k not in wanted for k in got):
            return False
        return all((k in got and any(_accepts(v, got[k]) for v in vs)) or (k not in got and "" in vs) for k, vs in wanted.items())
    if isinstance(wanted, list):
        return isinstance(got, list) and len(wanted) == len(got) and all(map(_accepts, wanted, got))
    return same(wanted, got)


def _plain(text: str) -> str:
    """Case, white space and the punctuation that separates (as in dates and units) do not count."""
    return "".join(c for c in text.casefold() if c not in " ,./-_*^'\"")


def _matched(wanted: list[ToolCall], made: list[ToolCall]) -> int:
    """How many of the wanted calls were made, each counted once."""
    left = list(made)
    count = 0
    for want in wanted:
        for i, call in enumerate(left):
            if _equal(want, call):
                del left[i]
                count += 1
                break
    return count


def _equal(wanted: ToolCall, made: ToolCall) -> bool:
    return wanted.name == made.name and same(dict(wanted.arguments), dict(made.arguments))

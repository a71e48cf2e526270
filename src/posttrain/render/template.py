"""A chat template as text: what it is told, what it writes, where an answer ends. Control tokens inside messages stay text."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from posttrain.errors import UsageError
from posttrain.render import tool_calls
from posttrain.render.vocabulary import Vocabulary
from posttrain.types import Message, ToolCall, ToolSpec

FIXED_DATE = "26 Jul 2024"  # for templates that ask for ``date_string``: a prompt must not change overnight
USER = Message(role="user", content="What is 2 + 3?")
ANSWER = Message(role="assistant", content="It is 5.")
CALL_ID = "abcdefghi"  # nine letters, which is what the strictest templates ask for
_SYSTEM = Message(role="system", content="Answer in one line, please.")
_TOOL = ToolSpec(name="probe_tool", description="Adds.", parameters={"type": "object", "properties": {"n": {"type": "integer"}}})
_CALL = Message(role="assistant", tool_calls=(ToolCall(name="probe_tool", arguments={"n": 7}, id=CALL_ID),))
_RESULT = Message(role="tool", content="The result is 77.", tool_call_id=CALL_ID, name="probe_tool")
_CLOCK = "{%- macro strftime_now(format) -%}<the date of today>{%- endmacro -%}"


class Template:
    """What a tokenizer's chat template supports, found out by rendering small conversations.

    ``supports_system``: False merges a system message into the first user message. ``supports_tools``: whether tools, calls and
    results all appear in the rendering, and a call in the form that is read back; False describes tools in the
    system message. ``stop``: the control token after an answer, "" if there is none; ``stops``: all that end a turn.
    """

    def __init__(self, tokenizer: Any, vocabulary: Vocabulary, eos_ids: Iterable[int]) -> None:
        self.vocabulary = vocabulary
        self._tokenizer = tokenizer
        # Strings that must stay text: wherever somebody else than the policy wrote them, and inside answers.
        self.control, self._unspoken = vocabulary.special, frozenset[str]()
        self.supports_system, self.supports_tools = True, False
        self._refuse_what_varies()
        self.supports_system = self._shows(_SYSTEM.content, (_SYSTEM, USER))
        self.stop = self._probe_stop()
        self.stop_ids = frozenset(eos_ids) | ({vocabulary.added[self.stop]} if self.stop else set())
        self.stops = frozenset(s for s, i in vocabulary.added.items() if i in self.stop_ids)
        self._stop_pattern = re.compile("|".join(re.escape(s) for s in sorted(self.stops, key=len, reverse=True)) or r"(?!)")
        structural = self.stops | self._probe_structure()
        named = {s for s in vocabulary.special if s in str(tokenizer.chat_template)}
        self.control, self._unspoken = structural | vocabulary.special, structural | (vocabulary.special - named)
        self.supports_tools = self._probe_tools()

    # -- rendering ---------------------------------------------------------------------------------------------------

    def text(self, messages: Sequence[Message], tools: Sequence[ToolSpec] = (), *, prompt: bool = False) -> str:
        """The rendering; ``prompt`` ends it where the assistant is to speak."""
        return self.render(messages, tools, prompt=prompt)[0]

    def render(
        self, messages: Sequence[Message], tools: Sequence[ToolSpec] = (), *, prompt: bool = False, prefix: str = ""
    ) -> tuple[str, list[tuple[int, int]]]:
        """(text, stretches that the template itself marks as generated). Raises UsageError where the template refuses."""
        import jinja2
        from transformers.utils.chat_template_utils import render_jinja_template

        specs = [self._spec(t) for t in tools] if tools and self.supports_tools else None
        template = prefix + self._tokenizer.get_chat_template(None, specs)
        marked = re.search(r"\{%-?\s*generation\s*-?%\}", template) is not None
        try:
            texts, marks = render_jinja_template(
                [[self._message(m) for m in self._told(messages, tools)]],
                tools=specs,
                chat_template=template,
                add_generation_prompt=prompt,
                return_assistant_tokens_mask=marked,
                date_string=FIXED_DATE,
                **self._tokenizer.special_tokens_map,
            )
        except (jinja2.TemplateError, TypeError, ValueError, LookupError, ArithmeticError) as e:
            roles = ", ".join(m.role for m in messages)
            raise UsageError(f"The chat template cannot render messages of the roles {roles}: {e}") from e
        return texts[0], [(start, end) for start, end in marks[0]] if marked else []

    def answer(self, messages: Sequence[Message]) -> tuple[str, str]:
        """(all before the last message, the assistant's, says anything; what it says, with its stop token)."""
        before, text = self.text(messages[:-1], prompt=True), self.text(messages)
        if not text.startswith(before):
            raise self.unstable("the prompt and the answered prompt", before, text)
        return before, text[len(before) : self.stop_end(text, len(before))]

    def stop_end(self, text: str, start: int) -> int:
        """Where the first stop token after ``start`` ends."""
        found = self._stop_pattern.search(text, start) if self.stop else None
        if found is None:
            raise UsageError(
                "This chat template writes no stop token after an assistant's answer, so a model trained on it would never stop; "
                f"end each answer with a control token (eos, <|im_end|> ...) in the template. It ends in {text[-40:]!r}."
            )
        return found.end()

    def last_stop_end(self, text: str, start: int, end: int) -> int:
        """Where the last stop token inside a stretch ends; the first one after it where it holds none."""
        inside = [m.end() for m in self._stop_pattern.finditer(text, start, end)]
        return inside[-1] if inside else self.stop_end(text, end)

    def unstable(self, what: str, a: str, b: str) -> UsageError:
        """The error that names the first difference of two renderings."""
        a, b = self.vocabulary.unshield(a), self.vocabulary.unshield(b)
        at = next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))
        return UsageError(
            f"The chat template renders {what} differently, so no loss mask can be derived: at character {at}, "
            f"{a[max(0, at - 20) : at + 40]!r} against {b[max(0, at - 20) : at + 40]!r}. "
            "Train one answer a row (last_only=True), or use a template that only ever appends."
        )

    # -- what the template is told -----------------------------------------------------------------------------------

    def _told(self, messages: Sequence[Message], tools: Sequence[ToolSpec]) -> list[Message]:
        """The messages in the roles that this template knows."""
        out = list(messages)
        if tools and not self.supports_tools:
            system = out.pop(0).content + "\n\n" if out[0].role == "system" else ""
            out.insert(0, Message(role="system", content=system + tool_calls.describe(tools)))
        if not self.supports_system and out and out[0].role == "system":
            if len(out) < 2 or out[1].role != "user":
                raise UsageError("This chat template has no system role, and no user message follows to hold the system message.")
            out[:2] = [replace(out[1], content=f"{out[0].content}\n\n{out[1].content}")]
        return out if self.supports_tools else _without_tool_roles(out)

    def _message(self, message: Message) -> dict[str, Any]:
        """A message as templates take it, its control tokens marked.

        In an answer those stay that the template knows by name and that do not make the structure: thinking and tool tags.
        """
        control = self._unspoken if message.role == "assistant" else self.control
        out: dict[str, Any] = {"content": message.content}
        if message.tool_calls:
            out["tool_calls"] = [
                {"type": "function", "id": c.id, "function": {"name": c.name, "arguments": dict(c.arguments)}}
                for c in message.tool_calls
            ]
        if message.role == "tool":
            out |= {"tool_call_id": message.tool_call_id, "name": message.name}
        return {"role": message.role} | {k: self.vocabulary.shield(v, control) for k, v in out.items()}

    def _spec(self, tool: ToolSpec) -> dict[str, Any]:
        """A tool as templates take it."""
        spec = {"name": tool.name, "description": tool.description, "parameters": tool.parameters}
        return {"type": "function", "function": self.vocabulary.shield(spec, self.control)}

    # -- what the template supports ----------------------------------------------------------------------------------

    def _refuse_what_varies(self) -> None:
        """A prompt that differs by the hour, or from one rendering to the next, cannot be resumed or repeated."""
        text, again = self.text((USER,), prompt=True), self.text((USER,), prompt=True)
        if text != again:
            raise self.unstable("the same prompt twice", text, again)
        if "strftime_now" in str(self._tokenizer.chat_template):
            dated = self.render((USER,), prompt=True, prefix=_CLOCK)[0]
            if dated != text:
                at = dated.find("<the date of today>")
                raise UsageError(
                    "The chat template writes today's date into the prompt, so a run resumed tomorrow would see other prompts: "
                    f"{text[max(0, at - 20) : at + 40]!r}. Put a fixed date into the template, or let it read date_string."
                )

    def _shows(self, what: str, messages: Sequence[Message], tools: Sequence[ToolSpec] = ()) -> bool:
        """Whether a rendering succeeds and holds a text."""
        try:
            return what in self.text(messages, tools, prompt=True)
        except UsageError:
            return False

    def _probe_stop(self) -> str:
        """The control token that follows an answer."""
        try:
            text = self.text((USER, ANSWER))
        except UsageError:
            return ""
        return self.vocabulary.first_control(text.rpartition(ANSWER.content)[2])

    def _probe_structure(self) -> frozenset[str]:
        """Control tokens around messages, those included that the tokenizer does not call special."""
        found: frozenset[str] = frozenset()
        for messages in ((_SYSTEM, USER), (USER, ANSWER, USER), (USER, ANSWER)):
            try:
                found |= self.vocabulary.controls_in(self.text(messages))
            except UsageError:
                continue  # a template for single turns, say
        return found

    def _probe_tools(self) -> bool:
        """Whether tools go through the template and come back."""
        self.supports_tools = True
        if not self._shows(_TOOL.name, (USER,), (_TOOL,)) or not self._shows(_RESULT.content, (USER, _CALL, _RESULT), (_TOOL,)):
            return False
        try:
            said = self.vocabulary.decode(self.vocabulary.encode(self.answer((USER, _CALL))[1]))
        except UsageError:
            return False
        calls, _ = tool_calls.read(said)
        return [(c.name, c.arguments) for c in calls] == [(c.name, c.arguments) for c in _CALL.tool_calls]


def _without_tool_roles(messages: Sequence[Message]) -> list[Message]:
    """Calls as text of the answer, results as user messages; results of one turn share one, as roles must alternate."""
    out: list[Message] = []
    results = False
    for m in messages:
        if m.role == "tool":
            content = tool_calls.respond(m.content)
            if results:
                out[-1] = replace(out[-1], content=f"{out[-1].content}\n{content}")
            else:
                out.append(Message(role="user", content=content))
        else:
            out.append(Message(role=m.role, content=tool_calls.said(m)))
        results = m.role == "tool"
    return out

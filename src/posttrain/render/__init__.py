"""Messages to tokens and back: the only user of chat templates.

The assistant mask of a template is derived, never guessed. Its own ``{% generation %}`` marks count where it has them;
otherwise conversations are rendered prefix by prefix, and the difference is the turn. What cannot be derived so is refused
with the place where two renderings differ: a mask of all ones is never an answer.

Nothing that was sampled is tokenised again: an attempt is ``prompt`` + sampled ids + ``observation`` + sampled ids + ...
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from posttrain.errors import UsageError
from posttrain.render import tool_calls
from posttrain.render.template import ANSWER, CALL_ID, USER, Template
from posttrain.render.vocabulary import SPOKEN, Vocabulary
from posttrain.types import Message, ToolCall, ToolSpec, Turn

__all__ = ["Renderer"]


class Renderer:
    """A tokenizer with its chat template.

    ``eos_ids`` are the ends that ``generation_config`` names besides the tokenizer's own. Raises UsageError for a template that
    is missing, that depends on the clock, or that renders one conversation in two ways.
    """

    def __init__(self, tokenizer: Any, *, eos_ids: Iterable[int] = ()) -> None:
        if not tokenizer.chat_template:
            raise UsageError(
                "The tokenizer has no chat template, so it is not known how messages become tokens; "
                "use an instruct model, or put a chat_template.jinja beside its tokenizer.json."
            )
        self.tokenizer = tokenizer
        self.vocabulary = Vocabulary(tokenizer)
        ends = {int(i) for i in (tokenizer.eos_token_id, *eos_ids) if i is not None}
        self.template = Template(tokenizer, self.vocabulary, ends)
        self.stop_ids: tuple[int, ...] = tuple(sorted(self.template.stop_ids))
        self.supports_tools = self.template.supports_tools
        self._unsaid = self.template.control - SPOKEN

    # -- what the policy reads ---------------------------------------------------------------------------------------

    def prompt(self, messages: Sequence[Message], tools: Sequence[ToolSpec] = ()) -> tuple[int, ...]:
        """Token ids of a conversation, ending where the assistant is to speak."""
        if not messages:
            raise UsageError("A prompt needs at least one message; got none.")
        return tuple(self.vocabulary.encode(self.template.text(messages, tools, prompt=True)))

    def observation(self, messages: Sequence[Message]) -> tuple[int, ...]:
        """Tokens between an assistant's stop token and where it is to speak next, whatever the conversation before.

        Raises UsageError for a template that renders the same messages differently later in a conversation.
        """
        if not messages or any(m.role in ("assistant", "system") for m in messages):
            roles = ", ".join(m.role for m in messages) or "none"
            raise UsageError(f"An observation is made of user and tool messages; got the roles {roles}.")
        calls = tuple(ToolCall(name=m.name or "tool", id=m.tool_call_id or CALL_ID) for m in messages if m.role == "tool")
        asked = Message(role="assistant", tool_calls=calls) if calls and self.supports_tools else ANSWER
        found = []
        for context in ((USER, asked), (USER, ANSWER, USER, asked)):
            before = "".join(self.template.answer(context))
            after = self.template.text((*context, *messages), prompt=True)
            if not after.startswith(before):
                raise self.template.unstable("an answer with and without an observation after it", before, after)
            found.append((before, after[len(before) :]))
        if found[0][1] != found[1][1]:
            raise self.template.unstable("an observation after one turn and after two", found[0][1], found[1][1])
        return tuple(self.vocabulary.encode_after(*found[0]))

    # -- what the policy says ----------------------------------------------------------------------------------------

    def read(self, turn: Turn) -> Turn:
        """The turn with its text, its tool calls, and why these could not be read if so. Token ids stay as they are."""
        text = self.decode(turn.token_ids)
        calls, malformed = tool_calls.read(text)
        return replace(turn, text=text, tool_calls=calls, malformed=malformed)

    def assistant_text(self, message: Message) -> str:
        """What the policy says to make this message: the content, then its tool calls as this template writes them."""
        if not message.tool_calls or not self.supports_tools:
            return tool_calls.said(message)
        return self.decode(self.vocabulary.encode(self.template.answer((USER, message))[1]))

    def decode(self, ids: Iterable[int], *, skip_special: bool = True) -> str:
        """Text, without control tokens unless they are asked for; tool-call and thinking tags are text."""
        return self.vocabulary.decode(ids, control=not skip_special)

    def encode(self, text: str) -> tuple[int, ...]:
        """What a policy says, as ids; a control token written in it stays text, tool-call and thinking tags excepted."""
        return tuple(self.vocabulary.encode(self.vocabulary.shield(text, self._unsaid)))

    @property
    def template_hash(self) -> str:
        """SHA-256 over the template and the control tokens that it may write."""
        seen = [self.tokenizer.chat_template, sorted(self.vocabulary.added.items()), dict(self.tokenizer.special_tokens_map)]
        return hashlib.sha256(json.dumps(seen, sort_keys=True, default=str).encode()).hexdigest()

    # -- the assistant mask ------------------------------------------------------------------------------------------

    def row(self, messages: Sequence[Message], tools: Sequence[ToolSpec] = (), *, last_only: bool = False) -> tuple[Turn, ...]:
        """A written conversation as turns: prompt, assistant (with its stop token), observation, assistant ...

        Together they are the template's own rendering up to the last stop token. ``last_only`` trains the last answer alone
        and takes all before it as the prompt, which works with templates that rewrite earlier turns. Raises UsageError
        where the mask cannot be derived.
        """
        turns = [i for i, m in enumerate(messages) if m.role == "assistant"]
        if not turns or turns[-1] != len(messages) - 1 or turns[0] == 0:
            roles = ", ".join(m.role for m in messages) or "none"
            raise UsageError(f"A row begins with a prompt and ends with the assistant's answer; got the roles {roles}.")
        text, marks = self.template.render(messages, tools)
        if marks and len(marks) != len(turns):
            raise UsageError(
                f"The chat template marks {len(marks)} stretches as generated in a row of {len(turns)} answers; "
                "put its generation marks around each answer once, or remove them."
            )
        out: list[Turn] = []
        at = 0
        for number, i in list(enumerate(turns))[-1 if last_only else 0 :]:
            mark = marks[number] if marks else None
            start, end = self._span(text, mark, messages[: i + 1], tools)
            self._check_content(text[start:end], messages[i])
            read = tuple(self.vocabulary.encode_after(text[:at], text[at:start]))
            said = tuple(self.vocabulary.encode_after(text[:start], text[start:end]))
            out.append(Turn(role="observation" if out else "prompt", token_ids=read, text=self.decode(read)))
            answer = self.read(Turn(role="assistant", token_ids=said, stop_reason="stop", loss_mask=(True,) * len(said)))
            _check_calls(answer, messages[i])
            out.append(answer)
            at = end
        return tuple(out)

    def _span(
        self, whole: str, mark: tuple[int, int] | None, messages: Sequence[Message], tools: Sequence[ToolSpec]
    ) -> tuple[int, int]:
        """Where the answer that ends ``messages`` stands in the rendering of the whole row, its stop token included."""
        before = self.template.text(messages[:-1], tools, prompt=True)
        if mark is not None:
            start, end = mark
            if whole.startswith(before) and start < len(before) <= end:
                start = len(before)  # the mark takes in the header, which the policy is given
            return start, self.template.last_stop_end(whole, start, end)
        after = self.template.text(messages, tools)
        if not after.startswith(before):
            raise self.template.unstable("the prompt and the answered prompt", before, after)
        end = self.template.stop_end(after, len(before))
        if not whole.startswith(after[:end]):
            raise self.template.unstable("an answer as the last turn and as an earlier one", after[:end], whole)
        content = messages[-1].content.strip()
        header = self.vocabulary.unshield(after[len(before) : end]).partition(content)[0].strip() if content else ""
        if header and before == self.template.text(messages[:-1], tools):
            raise UsageError(
                f"This chat template puts {header[:40]!r} before an answer but leaves it out of the prompt that asks for one "
                "(add_generation_prompt), so training and sampling would differ; mend the template."
            )
        return len(before), end

    def _check_content(self, said: str, message: Message) -> None:
        """A template that drops part of an answer (reasoning, say) would train another answer than the one given."""
        said, given = self.vocabulary.unshield(said), message.content.strip()
        if given not in said:
            raise UsageError(
                f"The chat template changes an assistant's answer: given {given[:60]!r}, rendered {said[:60]!r}. "
                "Leave out of the row what the template drops, or use another template."
            )


def _check_calls(answer: Turn, message: Message) -> None:
    """Calls that would be read back as others than those given would teach the wrong thing."""
    got, want = ([(c.name, dict(c.arguments)) for c in calls] for calls in (answer.tool_calls, message.tool_calls))
    if want and got != want:
        raise UsageError(
            f"The tool calls of an answer are not read back as they were given: given {str(want)[:120]}, "
            f"read {str(got)[:120]}{f' ({answer.malformed})' if answer.malformed else ''}. Arguments must be plain JSON values, "
            "and the content must hold no call of its own."
        )

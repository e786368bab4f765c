"""A chat template: messages into the text that its model was trained on."""

import re
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from functools import cached_property
from typing import TYPE_CHECKING, Any

from kakeya.errors import MissingExtra
from kakeya.text import tool_calls
from kakeya.text.content_form import ContentForm, text_part
from kakeya.text.rendering.given import check_whole
from kakeya.text.tokenizer_error import PromptRefused, TemplateStopped, TokenizerError

if TYPE_CHECKING:
    from jinja2 import Template

    from kakeya.text.control_tokens import ControlTokens

Message = Mapping[str, Any]
"""`role`, `content`, and what else the chat template reads."""
Tools = Sequence[Mapping[str, Any]]
"""What the model may call, each as OpenAI's API has it."""

# They stand in rendered conversations where texts will be. Letters only, in any case: templates trim and capitalize.
_FIRST, _SECOND, _ANSWER = "Kakeyafirst", "Kakeyasecond", "Kakeyaanswer"
_BESIDE = "Kakeyabeside"  # in a part, and none of its text: it comes out where the part is printed as it is
_NAMES_OF_REASONING = ("reasoning_content", "thinking", "reasoning")
_CALL_ID = "kakeya123"  # nine letters and digits: some templates ask for that
_LONG_ID = "call_kakeya123"  # as most servers make them


class ChatTemplate:
    """A tokenizer's chat template. Its methods may be called from several threads at once.

    Some templates take a message's content as a text, some as a list of parts, some as either, and what comes in
    another form they leave out without a word; one role may differ from another. So markers are rendered once, and
    from then on each content is given in a form in which its role's marker came out. Likewise with the arguments of
    tool calls, and with their ids: some templates refuse all but nine letters and digits.

    What is rendered has stand-ins for the letters of texts that could be part of a control token
    (`rendering.marked_text`).

    Args:
        source: in Jinja.
        name: of the tokenizer, for errors.
        variables: what the template is told beside the messages, as the names of the special tokens are.
        control: the tokens that no text may become; None where texts may.

    Attributes:
        source: as above.
        leaves_out_system: whether it neither writes system messages nor refuses them.

    Raises:
        MissingExtra: the extra [tokenizer] is not installed.
        TokenizerError: what a user says comes out in no form; TemplateStopped where it comes to no end.
    """

    def __init__(
        self, source: str, name: str, variables: Mapping[str, Any], control: "ControlTokens | None" = None
    ) -> None:
        self.source = source
        self._name = name
        self._variables = dict(variables)
        self._control = control
        self._user = self._user_form()
        self._forms = {"user": self._user}
        self.leaves_out_system = False
        self._forms["system"] = self._forms["developer"] = self._system_form()
        self._forms["assistant"] = self._form(self._answered) or self._user
        self._decodes_arguments = self._takes_objects()
        self._forms["tool"] = self._form(self._used) or self._user
        self._shortens_ids = self._refuses_long_ids()

    def render(
        self,
        messages: Sequence[Message],
        *,
        prompts_answer: bool = True,
        tools: Tools | None = None,
        variables: Mapping[str, Any] | None = None,
        at: datetime | None = None,
    ) -> str:
        """The conversation as the template writes it, with stand-ins.

        Args:
            prompts_answer: with the beginning of the model's next message.
            variables: what else the template is told this time.
            at: the time that it is told; None for the present.

        Raises:
            PromptRefused: the template refuses these messages, on purpose, or a text holds half a character.
            TemplateStopped: it does not come to an end.
            TokenizerError: it fails on them.
        """
        if not messages:
            raise PromptRefused("there are no messages")
        given = dict(variables or {}) | {"tools": tools, "add_generation_prompt": prompts_answer}
        return self._written([self._formed(message) for message in messages], given, self._control, at)

    def as_text(self, text: str) -> str:
        """A text beside what was rendered, with stand-ins where it could be part of a control token.

        Raises:
            PromptRefused: it holds half a character.
        """
        check_whole(text)
        if self._control is None or not self._control.falls_on(text):
            return text
        return self._control.stand_ins.mark(text)

    def unmarked(self, rendered: str) -> str:
        """What was rendered, without stand-ins."""
        return rendered if self._control is None else self._control.stand_ins.unmark(rendered)

    def around(self, messages: Sequence[Message], marker: str) -> tuple[str, str]:
        """What the template writes before and behind a marker, which is the content of one of the messages.

        Raises:
            PromptRefused: the template refuses these messages, on purpose.
            TokenizerError: it fails on them, or leaves the marker out.
        """
        rendered = self.render(messages)
        found = re.search(re.escape(marker), self.unmarked(rendered), re.IGNORECASE)
        if found is None:
            raise self._leaves_out()
        return rendered[: found.start()], rendered[found.end() :]

    def between(self, text: str) -> str:
        """What stands between the model's answer and its next one where the user says this.

        Raises:
            PromptRefused: the template refuses the conversation, on purpose.
            TokenizerError: it fails on it, or leaves out what was said before.
        """
        if not self._goes_on:
            raise self._leaves_out()
        return self.around(_going_on(text), _ANSWER)[1]

    def _leaves_out(self) -> TokenizerError:
        return TokenizerError(
            f"the chat template of {self._name} leaves out what was said before: a conversation cannot go on by "
            "what is new in it"
        )

    @cached_property
    def _goes_on(self) -> bool:
        return _holds_in_order(self.around(_going_on(_FIRST), _ANSWER)[1], _FIRST)

    def _formed(self, message: Message) -> dict[str, Any]:
        formed = tool_calls.with_objects(message) if self._decodes_arguments else dict(message)
        if self._shortens_ids:
            formed = tool_calls.with_short_ids(formed)
        if "content" in formed:
            formed["content"] = self._forms.get(str(message.get("role")), self._user).of(formed["content"])
        return formed

    @cached_property
    def _template(self) -> "Template":
        try:
            from kakeya.text.rendering import template
        except ImportError as error:
            raise MissingExtra("a chat template", "tokenizer") from error
        return template.compiled(self.source)

    def _written(
        self,
        messages: list[dict[str, Any]],
        given: Mapping[str, Any] | None = None,
        control: "ControlTokens | None" = None,
        at: datetime | None = None,
    ) -> str:
        clock = {} if at is None else {"strftime_now": at.strftime}
        told = {"tools": None, "documents": None, "add_generation_prompt": True, **(given or {})}
        try:
            compiled = self._template
            from kakeya.text.rendering import template

            messages = [_with_reasoning(message) for message in messages]
            return template.rendered(compiled, self._variables | clock, control, messages=messages, **told)
        except (PromptRefused, MissingExtra):
            raise
        except Exception as error:  # a template is another's program, run on any messages
            raise self._fault_of(error, messages) from error

    def _fault_of(self, error: Exception, messages: list[dict[str, Any]]) -> TokenizerError:
        from jinja2 import TemplateError

        from kakeya.text.rendering.budget import OverBudget

        reason = " ".join(self._said(error).split())
        if isinstance(error, OverBudget):
            return TemplateStopped(self._name, reason, by_time=error.by_time)
        roles = ", ".join(dict.fromkeys(str(message.get("role")) for message in messages))
        if type(error) is TemplateError:  # of `raise_exception`; what Jinja raises itself is of a class below
            return PromptRefused(f"the chat template refuses messages of {roles}: {reason}")
        return TokenizerError(
            f"the chat template of {self._name} fails on messages of {roles}: {type(error).__name__}: {reason}"
        )

    def _said(self, error: Exception) -> str:
        """By an error, without stand-ins: a KeyError shows a text's escapes, in which they would stay."""
        if isinstance(error, KeyError) and error.args and isinstance(error.args[0], str):
            return repr(self.unmarked(error.args[0]))
        return str(error)

    def _user_form(self) -> ContentForm:
        def alone(content: Any) -> list[dict[str, Any]]:
            return [_message("user", content)]

        form = self._form(alone) or self._form(lambda content: [_message("system", "-"), *alone(content)])
        if not form:
            reasons = dict.fromkeys(self._fault(alone(content)) for content in (_FIRST, [text_part(_FIRST)]))
            raise TokenizerError(
                f"the chat template of {self._name} writes a user's message neither given as a text nor as parts "
                f"({'; '.join(reasons)}): it belongs to another library, or is broken"
            )
        return form

    def _fault(self, messages: list[dict[str, Any]]) -> str:
        try:
            self._written(messages)
        except TokenizerError as error:
            return str(error)
        return "it is left out"

    def _system_form(self) -> ContentForm:
        def instructed(content: Any) -> list[dict[str, Any]]:
            return [_message("system", content), _message("user", self._user.of("-"))]

        form = self._form(instructed)
        if not form:
            try:
                self._written(instructed(self._user.of("-")))
            except TemplateStopped:
                raise
            except TokenizerError:  # as it will be for such a message
                return self._user
            self.leaves_out_system = True
        return form or self._user

    def _answered(self, content: Any) -> list[dict[str, Any]]:
        said = _message("user", self._user.of("-"))
        return [said, _message("assistant", content), said]

    def _called(self, arguments: Any, id_: str = _CALL_ID) -> list[dict[str, Any]]:
        call = {"id": id_, "type": "function", "function": {"name": "look", "arguments": arguments}}
        answer = _message("assistant", self._forms["assistant"].of("")) | {"tool_calls": [call]}
        return [_message("user", self._user.of("-")), answer]

    def _takes_objects(self) -> bool:
        """Whether arguments are given as objects: also where neither comes out, as templates without tools do it."""
        as_object, as_text = self._called({_FIRST: _SECOND}), self._called(f'{{"{_FIRST}": "{_SECOND}"}}')
        return self._shows(as_object, _FIRST, _SECOND) or not self._shows(as_text, _FIRST, _SECOND)

    def _used(self, content: Any, id_: str = _CALL_ID) -> list[dict[str, Any]]:
        result = _message("tool", content) | {"tool_call_id": id_, "name": "look"}
        return [*self._called({} if self._decodes_arguments else "{}", id_), result]

    def _refuses_long_ids(self) -> bool:
        content = self._forms["tool"].of(_FIRST)
        return self._shows(self._used(content), _FIRST) and not self._shows(self._used(content, _LONG_ID), _FIRST)

    def _form(self, conversation: Callable[[Any], list[dict[str, Any]]]) -> ContentForm:
        """In which of its forms a content comes out of a conversation that holds it."""
        part = text_part(_FIRST) | {"beside": _BESIDE}
        return ContentForm(
            text=self._shows(conversation(_FIRST), _FIRST),
            part=self._shows(conversation([part]), _FIRST),
            parts=self._shows(conversation([part, text_part(_SECOND)]), _FIRST, _SECOND),
        )

    def _shows(self, messages: list[dict[str, Any]], *markers: str) -> bool:
        try:
            rendered = self._written(messages)
        except TemplateStopped:
            raise
        except TokenizerError:
            return False
        return _holds_in_order(rendered, *markers) and not _holds_in_order(rendered, _BESIDE)


def _message(role: str, content: Any) -> dict[str, Any]:
    return {"role": role, "content": content}


def _with_reasoning(message: Mapping[str, Any]) -> dict[str, Any]:
    """The message without what it has not, and what was thought by all names that templates know it by."""
    said = {name: value for name, value in message.items() if value is not None}
    thought = next((said[name] for name in _NAMES_OF_REASONING if name in said), None)
    return said if thought is None else {"thinking": thought, **said, "reasoning_content": thought}


def _going_on(text: str) -> list[dict[str, Any]]:
    return [_message("user", "-"), _message("assistant", _ANSWER), _message("user", text)]


def _holds_in_order(rendered: str, *markers: str) -> bool:
    return re.search(".*".join(markers), rendered, re.DOTALL | re.IGNORECASE) is not None

"""What a request gives the model to go on from, or why it cannot be given."""

import asyncio
import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeVar

from kakeya import ServedModel
from kakeya.text.chat_tokenizer import PromptRefused, PromptTooLong, TemplateStopped, TokenizerError
from kakeya.text.rendering.budget import patience
from kakeya_http_shim.choices import ask
from kakeya_http_shim.conversations.chat import Conversation, Linking, TemplateMessages
from kakeya_http_shim.conversations.tags import Candidate
from kakeya_http_shim.models.prompt import Prompt
from kakeya_http_shim.models.served_models import TextModel
from kakeya_http_shim.problems import ApiError, context_length_exceeded
from kakeya_http_shim.requests.chat_request import ChatRequest
from kakeya_http_shim.requests.compacted_message import Compacted, CompactedMessage
from kakeya_http_shim.requests.messages import Message, for_template
from kakeya_http_shim.requests.template_fields import TemplateFields

_INLINE_SECONDS = 0.01
"""Of processor time for each text that a chat template writes on the event loop; most take a tenth of a millisecond."""
_MAX_HASHED_MESSAGES = 500
"""Their hashes take a millisecond, and a thread would take longer for that."""
_WINDOW_STEP = 64
"""A window that is named is rounded up to it."""

Made = TypeVar("Made")


def chat(messages: Sequence[Message], how: TemplateFields, model: TextModel, *, max_tokens: int) -> Prompt:
    """A conversation whose next message, or the rest of the last one, is the model's.

    Raises:
        ApiError: the template refuses it, it has more than `max_tokens`, or tokens that the model does not know.
        TokenizerError: the template fails on it, which is not the client's fault.
    """
    write = partial(model.tokenizer.chat_prompt, max_tokens=max_tokens)
    return checked(_rendered(write, messages, how, max_tokens), model, "messages")


def whole_chat(body: ChatRequest, model: TextModel, *, max_tokens: int) -> Prompt:
    """That of a request. Raises as `chat` does, and ApiError where its head does not fit a session."""
    index, compacted = _compacted(body.messages)
    if compacted is None:
        prompt = chat(body.messages, body, model, max_tokens=max_tokens)
    else:
        if compacted.tokenizer != model.tokenizer.digest:
            message = f"model: what was compacted are tokens of another model than {model.name!r}"
            raise ApiError(400, message, param="model", code="invalid_value")
        head = chat(body.messages[: index + 1], body, model, max_tokens=max_tokens)
        behind = _behind_compacted(body, model, index + 1, max_tokens)
        token_ids = [*head.token_ids[: head.num_pinned], *compacted.token_ids, *behind]
        prompt = Prompt(
            token_ids, head.num_pinned, is_chat=True, begins=model.tokenizer.begins(body.chat_template_kwargs)
        )
    check_head(prompt, model.served)
    return prompt


def _compacted(messages: Sequence[Message]) -> tuple[int, Compacted | None]:
    """Which message stands for what was compacted, and for what; None: none does."""
    for index, message in enumerate(messages):
        if isinstance(message, CompactedMessage) and message.compacted is not None:
            return index, message.compacted
    return 0, None


def _behind_compacted(body: ChatRequest, model: TextModel, answer: int, max_tokens: int) -> list[int]:
    """What the template writes behind the answer that was compacted last. Raises ApiError."""
    behind = _unless_refused(
        lambda: model.tokenizer.behind(
            TemplateMessages(body.messages),
            answer,
            closed=True,
            tools=body.told,
            variables=body.chat_template_kwargs,
            max_tokens=max_tokens,
        ),
        max_tokens,
    )
    if behind is None:
        message = (
            "messages: the chat template of this model writes the past anew; what was compacted cannot be gone on from"
        )
        raise ApiError(400, message, param="messages", code="not_compactable")
    return behind


def rendered(messages: Sequence[Message], how: TemplateFields, model: TextModel) -> str:
    """A conversation as the template writes it. Raises as `chat` does, whatever its length."""
    return _rendered(model.tokenizer.chat_text, messages, how)


def _rendered(
    write: Callable[..., Made], messages: Sequence[Message], how: TemplateFields, max_tokens: int = 0
) -> Made:
    given, variables = [for_template(message) for message in messages], how.chat_template_kwargs
    try:
        return _made(lambda: write(given, end=how.end, tools=how.told, variables=variables), "messages", max_tokens)
    except (ApiError, TemplateStopped):
        raise
    except TokenizerError as error:
        if not variables and not how.told:
            raise
        # A template that is told what it does not expect may fail: that is the client's doing.
        field = "chat_template_kwargs" if variables else "tools"
        raise ApiError(400, str(error), param=field, code="invalid_value") from error


async def conversation(
    body: ChatRequest, model: TextModel, on_overflow: str, *, is_short: bool, linking: Linking
) -> Conversation | None:
    """What a chat's session is found by; None where the chat template does not write its head. Raises ApiError.

    Args:
        is_short: the request is, whatever it goes on from.
        linking: of its tags.
    """

    def made() -> Conversation:
        variables, tools = body.chat_template_kwargs, body.told
        found = Conversation.of(body.messages, variables, model, on_overflow, tools=tools, linking=linking)
        _ = found.candidates  # of a long one that takes milliseconds
        return found

    try:
        return await without_waiting(made, is_short=is_short and len(body.messages) <= _MAX_HASHED_MESSAGES)
    except ApiError:
        raise
    except TokenizerError:  # rendered whole it is refused, or not
        return None


def behind(given: Conversation, candidate: Candidate, *, max_tokens: int) -> Prompt | None:
    """What the template writes behind a place of a conversation, up to its answer.

    Returns:
        None where that depends on what is before the place, or would have that written in another way.

    Raises:
        ApiError: it has more than `max_tokens`, or tokens that the model does not know.
        TemplateStopped: the template comes to no end.
    """
    token_ids = _unless_refused(
        lambda: given.tokenizer.behind(
            TemplateMessages(given.messages),
            candidate.index,
            closed=candidate.closed,
            repeats_answer=candidate.kind == "start",
            tools=given.tools,
            variables=given.variables,
            max_tokens=max_tokens,
        ),
        max_tokens,
    )
    return checked(Prompt(token_ids, is_chat=True), given.model, "messages") if token_ids else None


def behind_either(given: Conversation, index: int, *, max_tokens: int) -> tuple[Prompt, int] | None:
    """What the template writes behind an answer, whether its last token is there or not; raises as `behind` does.

    Returns:
        It where that is not there, and how many of its tokens, from the first, are there otherwise. None as of
        `behind`, and where it is not as simple.
    """
    found = _unless_refused(
        lambda: given.tokenizer.behind_either(
            TemplateMessages(given.messages),
            index,
            tools=given.tools,
            variables=given.variables,
            max_tokens=max_tokens,
        ),
        max_tokens,
    )
    if found is None:
        return None
    token_ids, num_known = found
    return checked(Prompt(token_ids, is_chat=True), given.model, "messages"), num_known


def _unless_refused(write: Callable[[], Made | None], max_tokens: int) -> Made | None:
    """None where the template refuses it: the whole conversation is rendered then, which tells what is wrong."""
    try:
        return write()
    except PromptTooLong as error:
        raise _too_long("messages", max_tokens) from error
    except TemplateStopped:
        raise
    except TokenizerError:
        return None


def check_head(prompt: Prompt, served: ServedModel) -> None:
    """Raises ApiError where the head, which is kept for ever, leaves no room in the largest lane for what follows."""
    if prompt.num_pinned < served.num_lane_tokens:
        return
    raise context_length_exceeded(
        f"the system messages and tools have {prompt.num_pinned:,} tokens, and a session keeps "
        f"{served.num_lane_tokens:,}{_cure(prompt.num_pinned, served)}"
    )


def _cure(num_head_tokens: int, served: ServedModel) -> str:
    """The window in which they fit with as much beside them as there is now, and what that costs."""
    if not served.window:  # a router of an older version does not say
        return "; start workers with a larger --window"
    window = math.ceil((num_head_tokens + served.window) / _WINDOW_STEP) * _WINDOW_STEP
    num_bytes = (served.sink + window) * served.kv_bytes_per_token
    return (
        f"; a worker with `--window {window}` holds them with {served.window:,} beside them, in {num_bytes:,} bytes a "
        f"session, and `--window max` takes the largest that fits"
    )


def text(given: str, model: TextModel, *, max_tokens: int) -> Prompt:
    """A text as it is. Raises ApiError where it holds half a character, is too long, or has no tokens."""
    prompt = _made(lambda: model.tokenizer.text_prompt(given, max_tokens=max_tokens), "prompt", max_tokens)
    return checked(prompt, model, "prompt")


def encoded(
    given: str, model: TextModel, *, field: str, special_tokens: bool, parses: bool | None, max_tokens: int
) -> list[int]:
    """The tokens of a text, as `ModelTokenizer.encode` makes them.

    Args:
        field: which has it.

    Raises:
        ApiError: it holds half a character, or is too long.
    """
    encode = partial(model.tokenizer.encode, special_tokens=special_tokens, parses=parses, max_tokens=max_tokens)
    return _made(lambda: encode(given), field, max_tokens)


def tokens(token_ids: list[int], model: TextModel, *, max_tokens: int) -> Prompt:
    """Raises ApiError where they are too many, or the model does not know one."""
    if len(token_ids) > max_tokens:
        raise _too_long("prompt", max_tokens)
    return checked(Prompt(token_ids), model, "prompt")


async def without_waiting(make: Callable[[], Made], *, is_short: bool) -> Made:
    """What is made of a short body is made here; a template that would keep the loop waiting goes on in a thread.

    Raises:
        ApiError: as `make` does; and where the template comes to no end.
    """
    if is_short:
        try:
            with patience(_INLINE_SECONDS):
                return make()
        except TemplateStopped as error:
            if not error.by_time:
                raise _stopped(error) from error
    try:
        return await asyncio.to_thread(make)
    except TemplateStopped as error:
        raise _stopped(error) from error


def checked(prompt: Prompt, model: TextModel, field: str) -> Prompt:
    """Raises ApiError where it has no tokens, or one that the model does not know."""
    if not prompt.token_ids:
        raise ApiError(400, f"{field}: no tokens to go on from", param=field, code="invalid_value")
    ask.check_tokens(prompt.token_ids, model, field)
    return prompt


def _made(make: Callable[[], Made], field: str, max_tokens: int = 0) -> Made:
    try:
        return make()
    except PromptTooLong as error:
        raise _too_long(field, max_tokens) from error
    except PromptRefused as error:  # all else that a template raises is not the client's fault
        raise ApiError(400, str(error), param=field, code="invalid_value") from error


def _too_long(field: str, max_tokens: int) -> ApiError:
    longest = f"the {max_tokens:,} tokens that this server allows (--max-prompt-tokens)"
    return context_length_exceeded(f"the prompt is longer than {longest}", {"token_ids": field})


def _stopped(error: TemplateStopped) -> ApiError:
    """With a status that no client tries again at: it would be stopped as well."""
    return ApiError(400, f"the chat template was stopped: {error.reason}", param="messages", code="template_stopped")

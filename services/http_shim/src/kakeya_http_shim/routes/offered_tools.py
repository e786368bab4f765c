"""Whether a model can be offered tools, and how its answers call them."""

from collections.abc import Mapping, Sequence
from typing import Any

from kakeya import Grammar, InvalidField
from kakeya_http_shim.choices.held import Held
from kakeya_http_shim.models.served_models import TextModel
from kakeya_http_shim.problems import ApiError
from kakeya_http_shim.requests.chat_request import ChatRequest
from kakeya_http_shim.text.calling import Calling
from kakeya_http_shim.tools.families import BEGINS_CALL_IN_THOUGHT, SYNTAXES
from kakeya_http_shim.tools.grammars import faults, forced_calls, strict_calls
from kakeya_http_shim.tools.grammars.held_schema import essential
from kakeya_http_shim.tools.grammars.lark import HeldTool

Offered = Sequence[Mapping[str, Any]]
"""Tools, as OpenAI's chat completions have them."""
_NO_TEXT = 0xFF


def check(tools: Offered | None, model: TextModel) -> None:
    """Raises ApiError where there are tools and the chat template does not tell the model of them."""
    if tools and not model.tokenizer.writes_tools:
        raise _not_served(f"the chat template of {model.name!r} writes no tools")


def calling(tools: Offered, model: TextModel, *, only_first: bool = False) -> Calling:
    """How calls are read out of answers.

    Args:
        only_first: an answer ends with its first call.

    Raises:
        ApiError: as `check` does; or it is not known in what syntax the model writes calls.
    """
    return Calling.of(_family(tools, model), tools, only_first=only_first)


def held(body: ChatRequest, model: TextModel) -> Held | None:
    """What an answer is held to that has to call, or may call tools that are strict; None of others.

    Raises:
        ApiError: as `calling` does.
    """
    if not (body.forces_call or body.is_strict):
        return None
    family, tools, is_single = _family(body.offered or (), model), _held_tools(body), body.parallel_tool_calls is False
    added_id = model.tokenizer.vocabulary.added_id
    if body.forces_call:
        return Held(Grammar.lark(forced_calls.grammar(family, tools, added_id, is_single=is_single)), "tool_choice")
    lark = strict_calls.grammar(family, tools, added_id, _textless(model), is_single=is_single)
    return Held(Grammar.lark(lark), "tools", has_text=True, ends_thoughts=family in BEGINS_CALL_IN_THOUGHT)


def refusal(error: InvalidField, body: ChatRequest, model: TextModel, schemas: str) -> ApiError | None:
    """Of what `held` says; None where the error is not of that.

    Args:
        schemas: where the schema of a tool is, by the tool's place.
    """
    holds = held(body, model) if error.metadata.get("field") == "grammar.lark" else None
    if holds is None or holds.grammar is None:
        return None
    fault = faults.of_schema(holds.grammar.wire.lark, error.message)
    if fault is None:
        # Frameworks make tools strict without being asked: their users have to be told what it is about.
        asks = "; a tool with `strict: true` asks for a grammar" if holds.has_text else ""
        message = f"{holds.form}: {error.message.removeprefix('grammar.lark: ')}{asks}"
        return ApiError(400, message, param=holds.form, code="invalid_value")
    place, why = schemas.format(fault[0]), fault[1]
    return ApiError(400, f"{place}: {why}", param=place, code="invalid_value")


def _held_tools(body: ChatRequest) -> list[HeldTool]:
    """Those that may be called; of several with one name the last counts, as where calls are read."""
    named = {tool.function.name: (index, tool.function) for index, tool in enumerate(body.tools or ())}
    if body.forced_tool is not None:
        named = {body.forced_tool: named[body.forced_tool]}
    return [
        HeldTool(index, name, essential(function.parameters or {}), is_strict=body.forces_call or bool(function.strict))
        for name, (index, function) in named.items()
    ]


def _textless(model: TextModel) -> frozenset[int]:
    """Tokens that are no text: those that were added, the model's own that have none, and the byte that no text has."""
    vocabulary = model.tokenizer.vocabulary
    unknown = range(model.tokenizer.num_token_ids, model.served.vocab_size)
    odd = vocabulary.byte_id(_NO_TEXT)
    return vocabulary.added_ids.union(unknown, () if odd is None else (odd,))


def _family(tools: Offered, model: TextModel) -> str:
    """In whose syntax calls are. Raises ApiError as `calling` does."""
    check(tools, model)
    if model.tool_family is None:
        families = ", ".join(SYNTAXES)
        raise _not_served(
            f"it is not known how {model.name!r} writes calls: its chat template shows none of {families}; start the "
            "server with --tool-parser where it is one of them"
        )
    return model.tool_family


def _not_served(why: str) -> ApiError:
    return ApiError(400, f"tools: not supported: {why}", param="tools", code="unsupported_parameter")

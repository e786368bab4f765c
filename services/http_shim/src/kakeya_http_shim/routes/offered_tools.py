"""Whether a model can be offered tools, and how its answers call them."""

from collections.abc import Mapping, Sequence
from typing import Any

from kakeya_http_shim.models.served_models import TextModel
from kakeya_http_shim.problems import ApiError
from kakeya_http_shim.requests.chat_request import ChatRequest
from kakeya_http_shim.requests.generation_fields import KakeyaOptions
from kakeya_http_shim.text.calling import Calling
from kakeya_http_shim.tools import forced_calls
from kakeya_http_shim.tools.families import SYNTAXES
from kakeya_http_shim.tools.syntax import OfferedTools

Offered = Sequence[Mapping[str, Any]]
"""Tools, as OpenAI's chat completions have them."""


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
    check(tools, model)
    if model.tool_family is None:
        families = ", ".join(SYNTAXES)
        raise _not_served(
            f"it is not known how {model.name!r} writes calls: its chat template shows none of {families}; start the "
            "server with --tool-parser where it is one of them"
        )
    return Calling.of(model.tool_family, tools, only_first=only_first)


def held_to_calls(body: ChatRequest, model: TextModel) -> ChatRequest:
    """A request that forces a call, with what its answer is held to. Raises ApiError as `calling` does."""
    offered = body.offered or ()
    calling(offered, model)
    lark = forced_calls.grammar(
        model.tool_family or "",
        OfferedTools.of(offered),
        model.tokenizer.vocabulary.added_id,
        name=body.forced_tool,
        is_single=body.parallel_tool_calls is False,
    )
    options = body.kakeya or KakeyaOptions()
    form = options.model_copy(update={"grammar": lark, "regex": None, "choice": None})
    return body.model_copy(update={"kakeya": form, "response_format": None})


def _not_served(why: str) -> ApiError:
    return ApiError(400, f"tools: not supported: {why}", param="tools", code="unsupported_parameter")

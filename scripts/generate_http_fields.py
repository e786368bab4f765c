"""Writes the tables of the fields that the HTTP shim takes, generated from the declarations that read them.

python scripts/generate_http_fields.py docs/http-fields.md
"""

import sys
from pathlib import Path

from pydantic.fields import FieldInfo

from kakeya_http_shim.messages_api.blocks import (
    AssistantTurn,
    RedactedThinkingBlock,
    SystemTurn,
    TextBlock,
    ThinkingBlock,
    ToolResultBlock,
    ToolUseBlock,
    UserTurn,
)
from kakeya_http_shim.messages_api.messages_request import (
    CountTokensRequest,
    JsonOutput,
    MessagesRequest,
    OutputConfig,
    Thinking,
)
from kakeya_http_shim.messages_api.messages_tools import CustomTool, ToolChoice
from kakeya_http_shim.ollama_api.ollama_messages import (
    OllamaAssistantMessage,
    OllamaCall,
    OllamaSystemMessage,
    OllamaToolMessage,
    OllamaUserMessage,
)
from kakeya_http_shim.ollama_api.ollama_options import OllamaOptions
from kakeya_http_shim.ollama_api.ollama_requests import OllamaChatRequest, OllamaGenerateRequest, OllamaShowRequest
from kakeya_http_shim.requests.answer_format import NamedSchema
from kakeya_http_shim.requests.chat_request import ChatRequest
from kakeya_http_shim.requests.completion_request import CompletionRequest
from kakeya_http_shim.requests.fields import HONOURED, WITHOUT_EFFECT, RequestModel
from kakeya_http_shim.requests.generation_fields import KakeyaOptions, StreamOptions
from kakeya_http_shim.requests.messages import AssistantMessage, SystemMessage, ToolMessage, UserMessage
from kakeya_http_shim.requests.text_requests import DetokenizeRequest, TemplateRequest, TokenizeRequest
from kakeya_http_shim.requests.tools import Function, Tool
from kakeya_http_shim.responses_api.compact_request import CompactRequest
from kakeya_http_shim.responses_api.input_items import (
    AnswerItem,
    CompactionItem,
    FunctionCallItem,
    FunctionResultItem,
    InstructionItem,
    Item,
    ReasoningItem,
    UserItem,
)
from kakeya_http_shim.responses_api.responses_request import (
    CompactionWish,
    NamedSchemaFormat,
    ReasoningOptions,
    ResponsesRequest,
    TextOptions,
)
from kakeya_http_shim.responses_api.responses_tools import FunctionTool, NamespaceTool

HEADER = """# Fields of the HTTP API

Every field of a request is honoured, or accepted because it changes nothing here, or refused with 400 and its name in
`param`. Nothing is accepted and ignored: a field that is in no table is refused, too (`unknown_parameter`), and so is a
value that is not named here. A field that is refused or unknown may be given as null or as an empty list, which says
nothing. The routes below /v1 are served without that, too. This page is generated from the declarations that read the
requests (`make docs`).
"""
BODIES: dict[str, type[RequestModel]] = {
    "POST /v1/chat/completions": ChatRequest,
    "POST /v1/completions": CompletionRequest,
    "POST /v1/messages": MessagesRequest,
    "POST /v1/messages/count_tokens": CountTokensRequest,
    "POST /v1/responses": ResponsesRequest,
    "POST /v1/responses/compact": CompactRequest,
    "POST /api/chat": OllamaChatRequest,
    "POST /api/generate": OllamaGenerateRequest,
    "POST /api/show": OllamaShowRequest,
    "POST /tokenize": TokenizeRequest,
    "POST /detokenize": DetokenizeRequest,
    "POST /apply-template": TemplateRequest,
}
OPTIONS: dict[str, type[RequestModel]] = {
    "stream_options": StreamOptions,
    "kakeya": KakeyaOptions,
    "response_format.json_schema": NamedSchema,
    "tools[]": Tool,
    "tools[].function": Function,
    "thinking": Thinking,
    "output_config": OutputConfig,
    "output_config.format": JsonOutput,
    "Messages' tools[]": CustomTool,
    "Messages' tool_choice": ToolChoice,
    "Responses' tools[]": FunctionTool,
    "Responses' tools[] of namespaces": NamespaceTool,
    "Responses' text": TextOptions,
    "Responses' text.format": NamedSchemaFormat,
    "Responses' reasoning": ReasoningOptions,
    "Responses' context_management[]": CompactionWish,
    "Ollama's options": OllamaOptions,
    "Ollama's messages[].tool_calls[]": OllamaCall,
}
MESSAGES = (SystemMessage, UserMessage, AssistantMessage, ToolMessage)
TURNS = (UserTurn, AssistantTurn, SystemTurn)
OLLAMA_MESSAGES = (OllamaSystemMessage, OllamaUserMessage, OllamaAssistantMessage, OllamaToolMessage)
SAID_ITEMS = (UserItem, InstructionItem, AnswerItem)
OTHER_ITEMS = (FunctionCallItem, FunctionResultItem, ReasoningItem, CompactionItem)
BLOCKS = (TextBlock, ThinkingBlock, RedactedThinkingBlock, ToolUseBlock, ToolResultBlock)


def fields_page() -> str:
    """The whole page."""
    bodies = [_body(path, model) for path, model in BODIES.items()]
    return "\n".join([HEADER, *bodies, _options(), _messages(), _blocks(), _items(), _ollama_messages()])


def _body(path: str, model: type[RequestModel]) -> str:
    tables: dict[str, list[tuple[str, ...]]] = {
        "Honoured": [("field", "what it does"), *_rows(model, HONOURED)],
        "Accepted without effect": [("field", "why that is right"), *_rows(model, WITHOUT_EFFECT)],
        "Refused": [("field", "why"), *((f"`{name}`", why) for name, why in sorted(model.refused.items()))],
    }
    parts = [part for title, rows in tables.items() if len(rows) > 1 for part in (f"### {title}\n", _table(rows))]
    return "\n".join([f"## {path}\n", *parts])


def _options() -> str:
    tables = [
        _table(
            [(f"`{name}.`", "what it does"), *_rows(model, HONOURED), *_rows(model, WITHOUT_EFFECT), *_refused(model)]
        )
        for name, model in OPTIONS.items()
    ]
    return "\n".join(["## Options\n", *tables])


def _messages() -> str:
    rows = [(_roles(model), ", ".join(_message_fields(model)), (model.__doc__ or "").strip()) for model in MESSAGES]
    content = (
        "`content` is a text, or a list of parts `{type: text, text}`; images, sounds and files are refused. What has\n"
        "no meaning of its own here (`name`, `tool_calls`, `tool_call_id`, `reasoning_content`) is handed to the chat\n"
        "template, a call's `arguments` that are a JSON object as one. `cache_control` of a message or a part is\n"
        f"accepted without effect: {SystemMessage.model_fields['cache_control'].description}.\n"
    )
    return "\n".join(["## Messages\n", content, _table([("role", "fields", "what it is"), *rows])])


def _blocks() -> str:
    """Of Anthropic's API."""
    roles = [(_roles(model), ", ".join(_message_fields(model)), (model.__doc__ or "").strip()) for model in TURNS]
    rows = [
        (f"`{_only(model, 'type')}`", ", ".join(_message_fields(model)), (model.__doc__ or "").strip())
        for model in BLOCKS
    ]
    text = (
        "The messages of `/v1/messages` are those of a chat in another form. A `content` is a text, or a list of\n"
        "blocks; that of a `tool_result` has texts alone. Images, documents and what a server's tools made are\n"
        "refused by name. `cache_control` may stand anywhere.\n"
    )
    tables = [_table([("role", "fields", "what it is"), *roles]), _table([("block", "fields", "what it is"), *rows])]
    return "\n".join(["## Messages of Anthropic's API\n", text, *tables])


def _items() -> str:
    """Of Responses."""
    said = [(_roles(model), ", ".join(_message_fields(model)), (model.__doc__ or "").strip()) for model in SAID_ITEMS]
    rows = [
        (f"`{_only(model, 'type')}`", ", ".join(_message_fields(model)), (model.__doc__ or "").strip())
        for model in OTHER_ITEMS
    ]
    text = (
        "The items of `/v1/responses` are a chat in another form. An item of the type `message`, or without one, has\n"
        "a role. A `content`, and the `output` of a function, is a text or a list of parts (`input_text`, of answers\n"
        "`output_text` and `refusal`). Images, files and items of other tools are refused by name. `id` and `status`\n"
        "say nothing.\n"
    )
    tables = [_table([("role", "fields", "what it is"), *said]), _table([("item", "fields", "what it is"), *rows])]
    return "\n".join(["## Items of Responses\n", text, *tables])


def _ollama_messages() -> str:
    rows = [
        (_roles(model), ", ".join(_message_fields(model)), (model.__doc__ or "").strip()) for model in OLLAMA_MESSAGES
    ]
    text = "A `content` is a text. The `arguments` of a call are an object. `images` are refused.\n"
    return "\n".join(["## Messages of Ollama's API\n", text, _table([("role", "fields", "what it is"), *rows])])


def _only(model: type[RequestModel], name: str) -> str:
    return str(model.model_fields[name].annotation.__args__[0])  # type: ignore[union-attr]  # a Literal has them


def _refused(model: type[RequestModel]) -> list[tuple[str, str]]:
    return [(f"`{name}`", f"refused: {why}") for name, why in sorted(model.refused.items())]


def _roles(model: type[RequestModel]) -> str:
    roles = model.model_fields["role"].annotation
    return ", ".join(f"`{role}`" for role in roles.__args__)  # type: ignore[union-attr]  # a Literal has them


def _message_fields(model: type[RequestModel]) -> list[str]:
    return [
        f"`{name}`" + ("" if field.is_required() else " (optional)")
        for name, field in model.model_fields.items()
        if name not in ("role", "type", "refusal", "cache_control", "unfinished_call")
        and not (issubclass(model, Item) and name in Item.model_fields)
    ]


def _rows(model: type[RequestModel], kind: str) -> list[tuple[str, str]]:
    return [
        (f"`{field.alias or name}`", field.description or "")
        for name, field in sorted(model.model_fields.items())
        if _kind(field) == kind
    ]


def _kind(field: FieldInfo) -> object:
    extra = field.json_schema_extra
    return extra["x-kakeya"] if isinstance(extra, dict) else None


def _table(rows: list[tuple[str, ...]]) -> str:
    head, *body = rows
    lines = [head, ("---",) * len(head), *body]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines) + "\n"


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(fields_page())

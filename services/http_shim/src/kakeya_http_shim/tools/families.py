"""Which family of syntax a model writes its calls in."""

from collections.abc import Callable, Mapping
from types import MappingProxyType

from kakeya_http_shim.tools.hermes import HermesSyntax
from kakeya_http_shim.tools.llama import LlamaSyntax
from kakeya_http_shim.tools.mistral import MistralSyntax
from kakeya_http_shim.tools.qwen_xml import QwenXmlSyntax
from kakeya_http_shim.tools.syntax import OfferedTools, Syntax

SYNTAXES: Mapping[str, Callable[[OfferedTools], Syntax]] = MappingProxyType(
    {"hermes": HermesSyntax, "qwen3-xml": QwenXmlSyntax, "llama": LlamaSyntax, "mistral": MistralSyntax}
)
"""By the family's name."""

_OTHERS = ("<arg_key>", "<seed:tool_call>", "<|tool_call|>", "<tool_sep>", "<invoke name=")
"""Of families that write calls in other forms and share a tag with ours: GLM, Seed-OSS, Granite 3, Hunyuan, MiniMax."""

_SIGNS = (
    ("mistral", ("[TOOL_CALLS]",)),
    ("qwen3-xml", ("<function=", "<parameter=")),
    ("hermes", ("<tool_call>",)),
    ("llama", ("<|python_tag|>",)),
    ("llama", ("<|python_start|>",)),
    ("llama", ("dictionary of argument name and its value",)),
)
"""All texts of one of these stand in the templates of a family. The first that holds counts."""


def family_of(template: str) -> str | None:
    """The name of the family that a chat template shows calls of; None where it shows none that is known."""
    if any(sign in template for sign in _OTHERS):
        return None
    return next((family for family, signs in _SIGNS if all(sign in template for sign in signs)), None)


BEGINS_CALL_IN_THOUGHT: Mapping[str, str] = MappingProxyType({"qwen3-xml": "<tool_call>\n<function="})
"""Behind this a thought has ended, though its tag is missing: these models forget it. By the family's name."""

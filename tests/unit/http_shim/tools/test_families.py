import pytest

from kakeya_http_shim.tools.families import SYNTAXES, family_of
from kakeya_http_shim.tools.syntax import OfferedTools
from tests.unit.sdk import families


@pytest.mark.parametrize(
    ("template", "family"),
    [
        ('<tool_call>\\n{"name": <function-name>, "arguments": <args-json-object>}\\n</tool_call>', "hermes"),
        ("<tool_call>\n<function=example_function_name>\n<parameter=example_parameter_1>", "qwen3-xml"),
        ("{{- '[TOOL_CALLS] [' }}", "mistral"),
        ('{{- "<|python_tag|>" + tool_call.name + ".call(" }}', "llama"),
        ("{{- '<|python_start|>' }}", "llama"),
        (
            """{{- '{"name": function name, "parameters": dictionary of argument name and its value}.' }}""",
            "llama",
        ),
        ("<tool_call>{{ name }}\n<arg_key>{{ k }}</arg_key>", None),
        ("<seed:tool_call>\n<function=f>\n<parameter=a>", None),
        ("<function={{ name }}>{{ arguments }}</function>", None),
        ("{{ message.content }}", None),
        (families.ONES["qwen2_5"], "hermes"),
        (families.ONES["qwen3"], "hermes"),
        (families.ONES["qwen3_coder"], "qwen3-xml"),
        (families.ONES["mistral"], "mistral"),
        (families.ONES["minimax"], None),
        (families.ONES["deepseek"], None),
        (families.ONES["gpt_oss"], None),
    ],
)
def test_the_family_is_found_from_the_template(template: str, family: str | None) -> None:
    assert family_of(template) == family


def test_openers_begin_with_a_letter_that_they_have_once() -> None:
    for make in SYNTAXES.values():
        syntax = make(OfferedTools())
        assert all(opener[0] not in opener[1:] for opener in syntax.openers)
        for opener in syntax.openers:
            assert [other for other in syntax.openers if other.startswith(opener)] == [opener]


def test_marks_are_all_that_a_tokenizer_may_have_as_special_tokens() -> None:
    marks = {family: make(OfferedTools()).marks for family, make in SYNTAXES.items()}
    assert marks == {
        "hermes": ("<tool_call>", "</tool_call>"),
        "qwen3-xml": ("<tool_call>", "</tool_call>"),
        "llama": ("<|python_tag|>", "<|python_start|>", "<|python_end|>"),
        "mistral": ("[TOOL_CALLS]", "[ARGS]", "[CALL_ID]"),
    }

"""Whatever a model says, token by token: thoughts, content and calls are those of its whole text."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kakeya_http_shim.models.model_tokenizer import ModelTokenizer
from kakeya_http_shim.text.answer_form import AnswerForm
from kakeya_http_shim.text.answer_text import AnswerText
from kakeya_http_shim.text.calling import Calling
from kakeya_http_shim.text.delta import Delta
from kakeya_http_shim.text.stop_texts import StopTexts
from kakeya_http_shim.tools.deltas import Answer, joined
from kakeya_http_shim.tools.families import SYNTAXES
from tests.unit.http_shim.tool_talk import TOOLS
from tests.unit.sdk import families

_PARTS = [
    *("<think>", "</think>", "\n", " ", "é", "漢", "stop", "a", '"', "{", "}", "[", "]"),
    *("<tool_call>", "</tool_call>", '{"name": "get_time", "arguments": {}}', '{"name": "get_time", "parameters": {}}'),
    *("[TOOL_CALLS]", "[ARGS]{}", "<|python_tag|>", "[get_time()]"),
    *("<function=get_time>", "<parameter=a>", "</parameter>", "</function>", "<tool_call>\n<function=get_time>\n"),
]


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> ModelTokenizer:
    folder = tmp_path_factory.mktemp("thinking")
    families.save(folder, families.ONES["qwen3"])
    return ModelTokenizer(str(folder))


def at_once(form: AnswerForm, text: str, stops: tuple[str, ...]) -> tuple[str, Answer]:
    """Thoughts and the rest of a text that is there as a whole."""
    thoughts, stop_texts, parser = form.reasoning(), StopTexts(stops), form.parser()
    pushed, flushed = thoughts.push(text), thoughts.flush()
    answer = stop_texts.push(pushed[1] + flushed[1]) + stop_texts.flush()
    assert parser is not None
    return pushed[0] + flushed[0], joined([*parser.push(answer), *parser.finish()])


def without_ids(answer: Answer) -> object:
    return answer.content, [(call.name, call.arguments) for call in answer.calls], answer.unfinished


@given(
    st.sampled_from(sorted(SYNTAXES)),
    st.sampled_from(["perhaps", "inside", "not"]),
    st.lists(st.sampled_from(_PARTS) | st.text(max_size=4), max_size=24).map("".join),
    st.booleans(),
    st.sampled_from([(), ("stop",), ("\n", "}")]),
)
def test_token_by_token_an_answer_is_that_of_its_text(
    tokenizer: ModelTokenizer, family: str, thinking: str, text: str, is_spelled: bool, stops: tuple[str, ...]
) -> None:
    """Whichever tokens a text is made of: its marks are single ones, or letters."""
    token_ids = tokenizer.encode(text, special_tokens=False, parses=not is_spelled)
    form = AnswerForm(tokenizer, thinking, Calling.of(family, TOOLS))  # type: ignore[arg-type]  # one of three
    said = AnswerText(form, stops)
    whole = Delta.joined([*(said.push(token_id) for token_id in token_ids), said.finish()])
    reasoning, answer = at_once(form, form.decode(token_ids), stops)
    assert whole.reasoning == reasoning
    assert without_ids(joined(whole.parts)) == without_ids(answer)

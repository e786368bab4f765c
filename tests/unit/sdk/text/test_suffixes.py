"""Templates that do more than write one message behind another: what stands behind an answer, or that there is none."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kakeya.text.chat_template import ChatTemplate
from kakeya.text.chat_tokenizer import ChatTokenizer, PromptRefused, PromptTooLong, TemplateStopped
from kakeya.text.suffixes import histories, suffixes
from tests.unit.sdk import tiny_tokenizer

Made = Callable[..., ChatTokenizer]
"""With this chat template, and with this one where there are tools."""
Messages = list[dict[str, Any]]
SYSTEM: dict[str, Any] = {"role": "system", "content": "Be brief"}
PLAIN = tiny_tokenizer.TEMPLATE
_EACH = "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}"
_NEXT = "<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
_TOOLS = "{% if tools %}<tools>{{ tools | tojson }}</tools>{% endif %}"
TOOLS: list[dict[str, Any]] = [{"type": "function", "function": {"name": "weather"}}]


@pytest.fixture
def made(template_dir: Path, tmp_path: Path) -> Made:
    def made(template: str, with_tools: str = "", **how: Any) -> ChatTokenizer:
        folder = tmp_path / "made"
        shutil.copytree(template_dir, folder, dirs_exist_ok=True)
        (folder / "chat_template.jinja").write_text(template)
        if with_tools:
            (folder / "additional_chat_templates").mkdir()
            (folder / "additional_chat_templates" / "tool_use.jinja").write_text(with_tools)
        return ChatTokenizer(str(folder), **how)

    return made


@pytest.fixture
def rendered(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many messages each rendering had."""
    numbers: list[int] = []
    render = ChatTemplate.render

    def counted(self: ChatTemplate, messages: Any, **how: Any) -> str:
        numbers.append(len(messages))
        return render(self, messages, **how)

    monkeypatch.setattr(ChatTemplate, "render", counted)
    return numbers


def talk(num_turns: int, *head: dict[str, Any]) -> Messages:
    """So many answers, and a message that is to be answered."""
    turns = [{"role": role, "content": f"{role} {turn}"} for turn in range(num_turns) for role in ("user", "assistant")]
    return [*head, *turns, {"role": "user", "content": f"last of {num_turns}"}]


def behind(tokenizer: ChatTokenizer, messages: Messages, **how: Any) -> str | None:
    """What stands behind the last answer."""
    index = max(index for index, message in enumerate(messages) if message["role"] == "assistant")
    ids = tokenizer.behind(messages, index, **{"closed": False, **how})
    return None if ids is None else tokenizer.decode(ids, special_tokens=True)


NEVER = {
    "each message twice": _EACH + "{{ m.content }}" + _NEXT,
    "all messages twice": "{% for _ in 'ab' %}" + PLAIN + "{% endfor %}",
    "users first": "{% for r in ['user', 'assistant'] %}{% for m in messages if m.role == r %}{{ m.content }}<|im_end|>"
    "{% endfor %}{% endfor %}<|im_start|>",
    "answers first": "{% for r in ['assistant', 'user'] %}{% for m in messages if m.role == r %}{{ m.content }}"
    "<|im_end|>{% endfor %}{% endfor %}<|im_start|>",
    "the last first": "{% for m in messages[::-1] %}{{ m.content }}<|im_end|>{% endfor %}",
    "the first again at the end": PLAIN + "{{ (messages | selectattr('role', 'equalto', 'user') | first).content }}",
    "the new ones again": _EACH + "{{ m.content if m.role == 'user' and loop.last }}" + _NEXT,
    "the last one only": "{{ messages[-1].content }}<|im_end|>",
    "the user's only": "{% for m in messages if m.role == 'user' %}{{ m.content }}<|im_end|>{% endfor %}",
    "the length of each": _EACH + "[{{ m.content | length }}]" + _NEXT,
}


@pytest.mark.parametrize("name", NEVER)
def test_what_repeats_or_reorders_messages_has_no_suffix(made: Made, name: str, rendered: list[int]) -> None:
    tokenizer = made(NEVER[name])
    for num_turns in (1, 2, 30):
        assert behind(tokenizer, talk(num_turns)) is None
        assert behind(tokenizer, talk(num_turns, SYSTEM), closed=True) is None
        assert behind(tokenizer, talk(num_turns), repeats_answer=True) is None
    assert max(rendered) < 10, "that is known of the template, whatever is said"


DEPENDING = {
    "turns are numbered": _EACH.replace("{{ m.role", "{{ loop.index }} {{ m.role") + _NEXT,
    "turns are numbered from the end": _EACH.replace("{{ m.role", "{{ loop.revindex0 }} {{ m.role") + _NEXT,
    "messages are counted": PLAIN + "{{ messages | length }}",
    "few or many": PLAIN + "{{ 'many' if messages | length > 50 else 'few' }}",
    "odd or even": PLAIN + "{{ messages | length % 4 }}",
    "how often the user spoke": PLAIN + "{{ messages | selectattr('role', 'equalto', 'user') | list | length }}",
    "whether there was a call": PLAIN + "{{ messages | selectattr('role', 'equalto', 'tool') | list | length }}",
    "whether there was a thought": PLAIN + "{{ messages | selectattr('thinking') | list | length > 0 }}",
    "how long the first message is": PLAIN + "{{ messages[0].content | length }}",
    "letters until now": PLAIN + "{{ messages | map(attribute='content') | join | length }}",
}


@pytest.mark.parametrize("name", DEPENDING)
def test_what_depends_on_the_history_is_as_the_whole_is(made: Made, name: str) -> None:
    tokenizer = made(DEPENDING[name])
    for num_turns in (1, 2, 3, 30, 4, 26, 5):
        for head in ([], [SYSTEM], [SYSTEM, SYSTEM]):
            messages = talk(num_turns, *head)
            found = behind(tokenizer, messages)
            if name == "letters until now":  # it depends on the answer, too
                assert found is None
                continue
            assert found is not None
            assert found.startswith("<|im_end|>\n<|im_start|>")
            assert tokenizer.render(messages).endswith(found)


INDEPENDENT = {
    "plain": (PLAIN, "<|im_end|>\n<|im_start|>user\n{}<|im_end|>\n<|im_start|>assistant\n"),
    "in capitals": (
        PLAIN.replace("m.content", "m.content | trim | upper"),
        "<|im_end|>\n<|im_start|>user\n{}<|im_end|>\n<|im_start|>assistant\n",
    ),
    "no end": (PLAIN.replace("<|im_end|>", ";"), ";\n<|im_start|>user\n{};\n<|im_start|>assistant\n"),
    "blanks before the end": (
        PLAIN.replace("<|im_end|>", " \n <|im_end|>"),
        " \n <|im_end|>\n<|im_start|>user\n{} \n <|im_end|>\n<|im_start|>assistant\n",
    ),
    "the day in the head": (
        "{{ strftime_now('%d.%m.%Y') }}" + PLAIN,
        "<|im_end|>\n<|im_start|>user\n{}<|im_end|>\n<|im_start|>assistant\n",
    ),
    "the first message differs": (
        _EACH.replace("{{ m.role", "{{ 'first ' if loop.first }}{{ m.role") + _NEXT,
        "<|im_end|>\n<|im_start|>user\n{}<|im_end|>\n<|im_start|>assistant\n",
    ),
    "in parts": (
        _EACH.replace("{{ m.content }}", "{% for p in m.content %}{{ p.text }}{% endfor %}") + _NEXT,
        "<|im_end|>\n<|im_start|>user\n{}<|im_end|>\n<|im_start|>assistant\n",
    ),
    "user and assistant take turns": (
        "{% for m in messages if m.role != 'system' %}{% if (loop.index0 % 2 == 0) != (m.role == 'user') %}"
        "{{ raise_exception('turns') }}{% endif %}{% endfor %}" + PLAIN,
        "<|im_end|>\n<|im_start|>user\n{}<|im_end|>\n<|im_start|>assistant\n",
    ),
    "the system's text in the last turn": (
        "{% set s = messages[0].content if messages[0].role == 'system' else '' %}"
        "{% for m in messages if m.role != 'system' %}<|im_start|>{{ s if loop.last and m.role == 'user' }}"
        "{{ m.content }}<|im_end|>{% endfor %}",
        "<|im_end|><|im_start|>Be brief{}<|im_end|>",
    ),
    "tools before the last turn": (
        "{% for m in messages if m.role != 'system' %}"
        "{% if loop.last %}" + _TOOLS + "{% endif %}{{ m.content }}<|im_end|>{% endfor %}",
        '<|im_end|><tools>[{{"type": "function", "function": {{"name": "weather"}}}}]</tools>{}<|im_end|>',
    ),
    "the system's text says how": (
        PLAIN + "{{ 'no thoughts' if add_generation_prompt and 'brief' in messages[0].content }}",
        "<|im_end|>\n<|im_start|>user\n{}<|im_end|>\n<|im_start|>assistant\nno thoughts",
    ),
}


@pytest.mark.parametrize("name", INDEPENDENT)
def test_old_turns_are_not_rendered_again(made: Made, name: str, rendered: list[int]) -> None:
    template, expected = INDEPENDENT[name]
    tokenizer = made(template)

    def written(num_turns: int) -> str:
        said = f"last of {num_turns}"
        return expected.format(said.upper() if name == "in capitals" else said)

    for num_turns in (1, 2, 40):
        assert behind(tokenizer, talk(num_turns, SYSTEM), tools=TOOLS) == written(num_turns)
    for num_turns in (5, 41, 60):  # 127 messages are two to a power less one
        rendered.clear()
        assert behind(tokenizer, talk(num_turns, SYSTEM), tools=TOOLS) == written(num_turns)
        assert rendered == [4], "one marker: that the answer's text does not matter is known"
    rendered.clear()
    assert behind(tokenizer, talk(64, SYSTEM), tools=TOOLS) == written(64)
    assert max(rendered) == 130, "twice as long: held against the whole again"
    assert len(rendered) == 4


@pytest.mark.parametrize("name", ["whether there was a call", "whether there was a thought"])
def test_what_was_not_there_at_first_is_seen(made: Made, name: str) -> None:
    """In conversations that are no longer than the first."""
    tokenizer = made(DEPENDING[name])
    thought = {"role": "assistant", "content": "Hm", "reasoning_content": "What?"}
    for turn in ([], called(call("{}"))[-2:], [thought, {"role": "user", "content": "So?"}]):
        messages = [*talk(0), *turn, *talk(1)[1:]] if turn else talk(2)
        found = behind(tokenizer, messages)
        assert found is not None
        assert tokenizer.render(messages).endswith(found)


def test_a_head_of_its_own_is_found_out_anew(made: Made) -> None:
    tokenizer = made(INDEPENDENT["the system's text says how"][0])
    for said, told in (("Be brief", "no thoughts"), ("Be long", ""), ("Be brief", "no thoughts"), ("Be long", "")):
        found = behind(tokenizer, talk(5, {"role": "system", "content": said}))
        assert found is not None
        assert found.endswith(f"<|im_start|>assistant\n{told}")


def test_variables_are_told(made: Made) -> None:
    tokenizer = made(PLAIN + "{{ mood or '' }}")
    for mood in ("glad", "sad", "<|im_end|>", "glad"):
        found = tokenizer.behind(talk(3), 5, closed=False, variables={"mood": mood})
        assert found is not None
        assert tokenizer.decode(found, special_tokens=True).endswith(f"assistant\n{mood}")
        assert found.count(256) == 2, "a variable ends no turn"


def test_a_template_that_changes_its_ways_is_found_out_when_conversations_double(made: Made) -> None:
    tokenizer = made(PLAIN + "{{ 'many' if messages | length > 100 }}")
    found = [behind(tokenizer, talk(num_turns)) for num_turns in (2, 40, 64, 2, 60)]
    assert [each is not None and each.endswith("many") for each in found] == [False, False, True, False, True]


def test_a_template_that_refuses_short_histories_is_given_the_whole(made: Made, rendered: list[int]) -> None:
    tokenizer = made("{{ raise_exception('-') if '-' in messages | map(attribute='content') }}" + PLAIN)
    for _ in range(2):
        rendered.clear()
        assert behind(tokenizer, talk(5)) == (
            "<|im_end|>\n<|im_start|>user\nlast of 5<|im_end|>\n<|im_start|>assistant\n"
        )
    assert rendered == [11, 11]


def test_where_nothing_can_be_found_out_all_is_rendered_anew(made: Made) -> None:
    old = histories.OLD_TEXTS[0]
    tokenizer = made("{{ raise_exception('old') if '" + old + "' in messages | map(attribute='content') }}" + PLAIN)
    assert behind(tokenizer, talk(5)) is None
    with pytest.raises(PromptRefused, match="old"):
        behind(tokenizer, [{"role": "user", "content": old}, *talk(1)])


def test_an_answer_that_this_conversation_hides_says_nothing_of_others(made: Made) -> None:
    shown = "if m.role != 'assistant' or 'hide' not in messages[0].content %}"
    tokenizer = made(PLAIN.replace("for m in messages %}", f"for m in messages {shown}"))
    hidden = [{"role": "user", "content": "hide it"}, *talk(2)[1:]]
    for messages, is_none in ((hidden, True), (talk(2), False), ([SYSTEM, *talk(2)], False)):
        assert (behind(tokenizer, messages) is None) == is_none


def test_what_is_refused_is_refused_also_where_it_would_not_be_rendered(made: Made) -> None:
    tokenizer = made("{{ raise_exception('bad') if messages[-1].content == 'bad' }}" + PLAIN)
    assert behind(tokenizer, talk(5)) is not None
    bad = [*talk(5)[:-1], {"role": "user", "content": "bad"}]
    with pytest.raises(PromptRefused, match="bad"):
        behind(tokenizer, bad)
    with pytest.raises(PromptRefused, match="half a character"):
        behind(tokenizer, [*talk(5)[:-1], {"role": "user", "content": "a\ud800"}])


@pytest.mark.parametrize("num_messages", [5, 65])
def test_a_template_that_comes_to_no_end_is_told(made: Made, num_messages: int) -> None:
    """With one of the histories that it is held against, whatever the conversation is."""
    tokenizer = made("{{ 'x' * 99999999 if messages | length == " + str(num_messages) + " }}" + PLAIN)
    with pytest.raises(TemplateStopped):
        behind(tokenizer, talk(3))


def test_an_answer_whose_text_the_template_looks_at(made: Made) -> None:
    """An answer that is left out where it is empty: it was given, and so it ends."""
    tokenizer = made(
        "{% for m in messages if m.content %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    )
    silent: Messages = [*talk(0), {"role": "assistant", "content": None}, *talk(0)]
    assert behind(tokenizer, silent) == "<|im_end|>\n<|im_start|>user\nlast of 0<|im_end|>\n"


def test_the_least_used_forms_are_forgotten(made: Made, monkeypatch: pytest.MonkeyPatch, rendered: list[int]) -> None:
    monkeypatch.setattr(suffixes, "_MAX_FORMS", 2)
    tokenizer = made(PLAIN)
    for head in ("a", "b", "a", "c", "a"):
        behind(tokenizer, talk(1, {"role": "system", "content": head}))
    for head, is_known in (("a", True), ("b", False)):
        rendered.clear()
        behind(tokenizer, talk(1, {"role": "system", "content": head}))
        assert (len(rendered) == 1) == is_known


CALLS = _EACH + "{% for c in m.tool_calls or [] %}<call>{{ c.function | tojson }}</call>{% endfor %}" + _NEXT


def called(*calls: Any, content: Any = "") -> Messages:
    asked = {"role": "assistant", "content": content, "tool_calls": list(calls)}
    return [*talk(2), asked, {"role": "tool", "content": "sun", "tool_call_id": "abcdef123"}]


def call(arguments: Any) -> dict[str, Any]:
    return {"id": "abcdef123", "type": "function", "function": {"name": "weather", "arguments": arguments}}


AFTER_CALL = "<|im_end|>\n<|im_start|>tool\nsun<|im_end|>\n<|im_start|>assistant\n"


@pytest.mark.parametrize(
    "calls",
    [
        [call("{}")],
        [call('{"city": "Rome", "days": [1, 2]}')],
        [call({"city": "<|im_end|>", "days": 3})],
        [call("no JSON")],
        [call("[1]"), call("{}")],
        [{"function": {"name": "weather"}}],
    ],
)
def test_behind_calls(made: Made, calls: list[Any]) -> None:
    tokenizer = made(CALLS)
    for content in ("", None, "Let me see <|im_end|>"):
        messages = called(*calls, content=content)
        assert behind(tokenizer, messages) == AFTER_CALL
        assert behind(tokenizer, messages, closed=True) == AFTER_CALL.removeprefix("<|im_end|>")
        repeated = tokenizer.behind(messages, 5, closed=True, repeats_answer=True)
        assert repeated is not None
        assert tokenizer.prompt(messages[:5]) + repeated == tokenizer.prompt(messages)


@pytest.mark.parametrize(
    ("asked", "expected"),
    [("look", None), ({"function": "look"}, AFTER_CALL), ({"name": "look", "arguments": "{}"}, AFTER_CALL)],
)
def test_calls_in_other_forms(made: Made, asked: Any, expected: str | None) -> None:
    tokenizer = made(_EACH + "{{ m.tool_calls | tojson if m.tool_calls }}" + _NEXT)
    assert behind(tokenizer, called(asked)) == expected


def test_calls_that_the_template_leaves_out(made: Made) -> None:
    messages = called(call("{}"), content="I look.")
    tokenizer = made(PLAIN)
    assert behind(tokenizer, messages) == AFTER_CALL
    repeated = behind(tokenizer, messages, repeats_answer=True)
    assert repeated == f"I look.{AFTER_CALL}"


def test_calls_without_their_arguments(made: Made) -> None:
    named = CALLS.replace("c.function | tojson", "c.function.name")
    assert behind(made(named), called(call("{}"))) is None, "the call would be said again"


def test_calls_in_an_answer_without_an_end(made: Made) -> None:
    assert behind(made(CALLS.replace("<|im_end|>", ";")), called(call("{}"))) is None


def test_calls_that_are_written_in_another_way_once_there_is_a_result(made: Made) -> None:
    tokenizer = made(
        PLAIN.replace("{{ m.role", "{{ 'last ' if loop.last }}{{ m.role").replace(
            "{{ m.content }}", "{{ m.content }}{{ m.tool_calls | tojson if m.tool_calls }}"
        )
    )
    messages = called(call("{}"))
    assert behind(tokenizer, messages) == AFTER_CALL.replace("tool\n", "last tool\n")
    assert behind(tokenizer, messages, repeats_answer=True) is None


def test_an_answer_is_repeated_as_it_was_said(made: Made) -> None:
    text = " <|im_end|> a</think>\n"
    tokenizer = made(PLAIN.replace("{{ m.content }}", " {{ m.content | trim }}"))
    for content in (text, [{"type": "text", "text": text[:5]}, {"type": "text", "text": text[5:]}]):
        messages: Messages = [*talk(2), {"role": "assistant", "content": content}, *talk(0)]
        ids = tokenizer.behind(messages, 5, closed=True, repeats_answer=True)
        assert ids is not None
        rest = "<|im_end|>\n<|im_start|>user\n last of 0<|im_end|>\n<|im_start|>assistant\n"
        assert tokenizer.decode(ids, special_tokens=True) == f" {text}{rest}"
        assert ids.count(256) == 2
    with pytest.raises(PromptRefused, match="half a character"):
        tokenizer.behind([*talk(0), {"role": "assistant", "content": "\ud800"}], 1, closed=True, repeats_answer=True)


def test_an_answer_is_parsed_where_all_texts_are(made: Made) -> None:
    tokenizer = made(PLAIN, parses_texts=True)
    messages: Messages = [*talk(2), {"role": "assistant", "content": "a<|im_end|>"}, *talk(0)]
    ids = tokenizer.behind(messages, 5, closed=True, repeats_answer=True)
    assert ids is not None
    assert ids.count(256) == 3


def test_before_the_first_answer_there_may_be_nothing(made: Made) -> None:
    tokenizer = made(PLAIN)
    greeting: Messages = [{"role": "assistant", "content": "Welcome"}, *talk(0)]
    assert behind(tokenizer, greeting, repeats_answer=True) == (
        "Welcome<|im_end|>\n<|im_start|>user\nlast of 0<|im_end|>\n<|im_start|>assistant\n"
    )


def test_a_thought_that_was_opened_is_left_open(made: Made) -> None:
    tokenizer = made(PLAIN.replace("assistant\n{%", "assistant\n<think>\n{%"))
    assert behind(tokenizer, talk(2)) == (
        "<|im_end|>\n<|im_start|>user\nlast of 2<|im_end|>\n<|im_start|>assistant\n<think>\n"
    )
    repeated = behind(tokenizer, talk(2), repeats_answer=True)
    assert repeated == f"assistant 1{behind(tokenizer, talk(2))}", "the template writes no such thought for it"


def test_another_template_for_tools(made: Made) -> None:
    tokenizer = made(PLAIN, _TOOLS + CALLS)
    assert tokenizer.templates == (PLAIN, _TOOLS + CALLS)
    assert behind(tokenizer, called(call("{}")), tools=TOOLS, closed=True) == AFTER_CALL.removeprefix("<|im_end|>")
    assert behind(tokenizer, talk(2), tools=TOOLS, repeats_answer=True) is not None


def test_another_template_for_tools_with_another_end(made: Made) -> None:
    tokenizer = made(PLAIN, PLAIN.replace("<|im_end|>", "<|im_start|>"))
    assert tokenizer.end_of_turn_id == 256
    assert behind(tokenizer, talk(2), tools=TOOLS) is not None
    assert behind(tokenizer, talk(2), tools=TOOLS, closed=True) is None, "no history ends as that template does"


@pytest.mark.parametrize(
    ("template", "end"),
    [
        (PLAIN, 256),
        (PLAIN.replace("<|im_end|>", ""), 257),
        (PLAIN.replace("<|im_end|>\n", ""), 257),
        (PLAIN.replace("<|im_end|>", ";"), None),
        ("{% for m in messages %}{{ m.content }} {% endfor %}", None),
        ("{{ messages[-1].content }}", None),
        ("{{ raise_exception('no system') if messages[0].role != 'system' }}" + PLAIN, 256),
        ("{{ raise_exception('one at a time') if messages | length > 2 }}" + PLAIN, None),
    ],
)
def test_the_end_of_a_turn(made: Made, template: str, end: int | None) -> None:
    assert made(template).end_of_turn_id == end


def test_without_a_template_nothing_ends_a_turn(plain_dir: Path) -> None:
    tokenizer = ChatTokenizer(str(plain_dir))
    assert (tokenizer.end_of_turn_id, tokenizer.templates) == (None, ())
    with pytest.raises(PromptRefused, match="no chat template"):
        tokenizer.behind(talk(1), 1, closed=True)


def test_a_history_that_is_closed_needs_an_end(made: Made) -> None:
    tokenizer = made(PLAIN.replace("<|im_end|>", ";"))
    assert behind(tokenizer, talk(2)) is not None
    assert behind(tokenizer, talk(2), closed=True) is None


def test_the_next_turn_may_end_an_answer(made: Made) -> None:
    """As with GLM, whose model ends its answer by the token that begins the user's turn."""
    tokenizer = made(PLAIN.replace("<|im_end|>\n", ""))
    assert behind(tokenizer, talk(2)) == "<|im_start|>user\nlast of 2<|im_start|>assistant\n"
    assert behind(tokenizer, talk(2), closed=True) == "user\nlast of 2<|im_start|>assistant\n"


def test_of_several_tokens_behind_an_answer_one_ends_it(made: Made) -> None:
    """As with Command A, whose model says two of them."""
    tokenizer = made(PLAIN.replace("<|im_end|>", "<|im_start|> <|im_end|>"))
    assert tokenizer.end_of_turn_id == 256
    rest = "\n<|im_start|>user\nlast of 2<|im_start|> <|im_end|>\n<|im_start|>assistant\n"
    assert behind(tokenizer, talk(2)) == f"<|im_start|> <|im_end|>{rest}"
    assert behind(tokenizer, talk(2), closed=True) == rest


@pytest.mark.parametrize(("least", "end"), [(3, None), (4, 256)])
def test_an_end_that_stands_behind_more_than_the_answer_ends_no_history(
    made: Made, least: int, end: int | None
) -> None:
    more = "{{ '!' if messages | length >= " + str(least) + " and loop.revindex == 2 }}"
    tokenizer = made(PLAIN.replace("{{ m.content }}", "{{ m.content }}" + more))
    assert tokenizer.end_of_turn_id == end
    assert behind(tokenizer, talk(2)) is not None
    assert behind(tokenizer, talk(2), closed=True) is None


def test_what_is_too_long(made: Made) -> None:
    tokenizer = made(PLAIN)
    for how in ({"closed": True}, {"closed": False}, {"closed": True, "repeats_answer": True}):
        ids = tokenizer.behind(talk(2), 3, **how)  # type: ignore[arg-type]
        assert ids is not None
        assert tokenizer.behind(talk(2), 3, max_tokens=len(ids), **how) == ids  # type: ignore[arg-type]
        with pytest.raises(PromptTooLong, match=f"more than {len(ids) - 1} tokens"):
            tokenizer.behind(talk(2), 3, max_tokens=len(ids) - 1, **how)  # type: ignore[arg-type]
    long: Messages = [*talk(2)[:-1], {"role": "user", "content": "a" * 300_000}]
    with pytest.raises(PromptTooLong):
        tokenizer.behind(long, 3, closed=True, max_tokens=1_000)

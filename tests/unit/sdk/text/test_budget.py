"""Templates that would never end, or fill the memory: each is stopped, with one clear error, and soon."""

import shutil
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from kakeya.text.chat_template import ChatTemplate
from kakeya.text.chat_tokenizer import ChatTokenizer
from kakeya.text.rendering import budget
from kakeya.text.tokenizer_error import TemplateStopped, TokenizerError
from tests.unit.sdk import tiny_tokenizer

USER = [{"role": "user", "content": "hello"}]
DOUBLED = "{% set ns = namespace(x=X) %}{% for i in range(60) %}{% set ns.x = Y %}{% endfor %}"


def _doubled(start: str, change: str) -> str:
    return DOUBLED.replace("X", start).replace("Y", change)


ENDLESS = {
    "loops within loops": "{% for a in range(100000) %}{% for b in range(100000) %}{% endfor %}{% endfor %}",
    "macros that call themselves twice": (
        "{% macro a(n) %}{% if n %}{{ a(n - 1) }}{{ a(n - 1) }}{% endif %}{% endmacro %}{{ a(60) }}"
    ),
    "a recursive loop": (
        "{% for x in [range(90000)] recursive %}{% if loop.depth < 5 %}{{ loop([x, x] * 90) }}{% endif %}{% endfor %}"
    ),
    "a filter over and over": "{% for a in range(100000) %}{% for b in 'x' * 4000000 %}{% endfor %}{% endfor %}",
}
LARGE = {
    "a long straight line": "{% set x = 'x' * 4000000 %}" + "{% set y = x | upper | lower %}" * 900,
    "a text times a number": "{{ 'a' * 10 ** 9 }}",
    "a list times a number": "{{ [1] * 10 ** 9 }}",
    "a number times a text": "{{ 1000000000 * 'a' }}",
    "a text doubled by +": _doubled("'aa'", "ns.x + ns.x"),
    "a text doubled by ~": _doubled("'aa'", "ns.x ~ ns.x"),
    "a text doubled by %": _doubled("'aa'", "'%s%s' % (ns.x, ns.x)"),
    "a text doubled by format": _doubled("'aa'", "'{0}{0}'.format(ns.x)"),
    "a text doubled by the filter": _doubled("'aa'", "'%s%s' | format(ns.x, ns.x)"),
    "a text doubled by join": _doubled("'aa'", "[ns.x, ns.x] | join(ns.x)"),
    "a text doubled by the method join": _doubled("'aa'", "ns.x.join([ns.x, ns.x])"),
    "a text doubled by replace": _doubled("'aa'", "ns.x | replace('a', ns.x)"),
    "a text doubled by the method replace": _doubled("'aa'", "ns.x.replace('a', ns.x)"),
    "a text doubled by a block": _doubled("'aa'", "0").replace(
        "{% set ns.x = 0 %}", "{% set y %}{{ ns.x }}{{ ns.x }}{% endset %}{% set ns.x = y %}"
    ),
    "a text doubled by a macro": "{% macro m(x) %}{{ x }}{{ x }}{% endmacro %}" + _doubled("'aa'", "m(ns.x)"),
    "a list doubled": _doubled("[1]", "ns.x + ns.x"),
    "lists of lists": _doubled("[1, 1]", "[ns.x, ns.x]") + "{{ ns.x | tojson }}",
    "tuples of tuples": _doubled("(1, 1)", "(ns.x, ns.x)") + "{{ ns.x | string }}",
    "dicts of dicts": _doubled("{'a': 1}", "{'a': ns.x, 'b': ns.x}") + "{{ ns.x }}",
    "dicts by dict": _doubled("{'a': 1}", "dict(a=ns.x, b=ns.x)") + "{{ ns.x }}",
    "lists by batch": _doubled("[1, 1]", "(ns.x + ns.x) | batch(1000) | list"),
    "a deep list": (
        "{% set ns = namespace(x=(1,)) %}{% for i in range(99999) %}{% set ns.x = (ns.x,) %}{% endfor %}{{ {ns.x: 1} }}"
    ),
    "a wide field by %": "{{ '%999999999d' % 1 }}",
    "a wide field by % *": "{{ '%*d' % (999999999, 1) }}",
    "a fine field by %": "{{ '%.999999999f' % 1 }}",
    "a wide field by the filter": "{{ '%999999999d' | format(1) }}",
    "a wide field by format": "{{ '{:>999999999}'.format(1) }}",
    "a wide field by a field": "{{ '{:{}}'.format(1, 999999999) }}",
    "center": "{{ 'a' | center(999999999) }}",
    "the method center": "{{ 'a'.center(999999999) }}",
    "ljust": "{{ 'a'.ljust(width=999999999) if false else 'a'.ljust(999999999) }}",
    "zfill": "{{ '1'.zfill(999999999) }}",
    "indent": "{{ 'a\n\n\nb' | indent(999999999) }}",
    "indent with a text": "{{ ('a\n' * 9999) | indent('x' * 9999) }}",
    "batch": "{{ [1] | batch(999999999, 0) | list }}",
    "slice": "{{ [1] | slice(999999999) | list }}",
    "a large number": "{{ 10 ** 100000000 }}",
    "a number doubled": _doubled("3", "ns.x * ns.x"),
    "bytes of a number": "{{ (5).to_bytes(999999999, 'big') }}",
    "a sum of lists": "{{ [[1], [2]] | sum(start=[]) }}",
    "a sum of lists by its place": "{{ [[1], [2]] | sum(none, []) }}",
    "JSON with wide indents": "{{ [1] | tojson(indent=999999999) }}",
    "JSON with long separators": "{{ [1] | tojson(separators=('x' * 99, ':')) }}",
    "words wrapped": "{{ ('a b ' * 99999) | wordwrap(1) }}",
    "a long list": "{% set ns = namespace(x=range(100000) | list) %}{{ (ns.x + ns.x + ns.x) | length }}",
    "a generator joined": "{{ range(100000) | map('string') | join('x' * 1000) }}",
    "a generator joined by its method": "{{ ('x' * 1000).join(range(100000) | map('string')) }}",
    "much written": "{% for a in range(99999) %}{{ 'x' * 1000 }}{% endfor %}",
    "much kept": (
        "{% set ns = namespace(a=0) %}{% for i in range(99999) %}{% set ns.a = 'x' * 4000000 ~ i %}{% endfor %}"
    ),
}
OUT = {
    "a class": "{{ ''.__class__.__mro__ }}",
    "a class by attr": "{{ '' | attr('__class__') }}{{ ('' | attr('__class__')).x }}",
    "globals of a function": "{{ raise_exception.__globals__['x'] }}",
    "globals of a macro": "{% macro m() %}{% endmacro %}{{ m.__call__.__globals__.x }}",
    "a class by format": "{{ '{0.__class__.__mro__.x}'.format('') }}",
    "code of a generator": "{{ (messages | map('upper')).gi_frame.f_globals }}",
    "an import": "{% import 'os' as os %}{{ os.system('true') }}",
    "a template from another": "{% extends 'other' %}",
    "a file": "{% include '/etc/passwd' %}",
    "the environment": "{{ self._TemplateReference__context.environment.filters }}",
    "a name of a namespace": "{% set ns = namespace() %}{% set ns.__class__ = 1 %}",
    "a name of a namespace at once": "{{ namespace(__class__=1) }}",
    "a list changed": "{% set x = [1] %}{{ x.append(2) }}{{ x[5].y }}",
    "nonsense": "{{ lipsum(n=5) }}",
    "a text translated": "{{ 'abc'.translate({97: 'x' * 1000}) }}",
    "tabs": "{{ '\t'.expandtabs(999999999) }}",
}


def _stopped(source: str) -> str:
    with pytest.raises(TemplateStopped) as stopped:
        ChatTemplate(source + tiny_tokenizer.TEMPLATE, "mine", {})
    (line,) = str(stopped.value).splitlines()
    assert line == f"the chat template of mine was stopped: {stopped.value.reason}"
    return stopped.value.reason


@pytest.mark.parametrize("name", ENDLESS)
def test_what_never_ends_is_stopped_at_load(name: str) -> None:
    with budget.patience(0.2):
        assert "it takes more than 0.2 s of processor time" in _stopped(ENDLESS[name])


@pytest.mark.parametrize("name", LARGE)
def test_what_fills_the_memory_is_stopped_at_load(name: str) -> None:
    began_at = time.thread_time()
    assert _stopped(LARGE[name])
    assert time.thread_time() - began_at < budget.MAX_SECONDS + 1


@pytest.mark.parametrize("name", OUT)
def test_what_looks_outside_fails_at_load(name: str) -> None:
    with pytest.raises(TokenizerError) as failed:
        ChatTemplate(OUT[name] + tiny_tokenizer.TEMPLATE, "mine", {})
    assert not isinstance(failed.value, TemplateStopped)
    assert len(str(failed.value).splitlines()) == 1


def test_a_long_source_is_not_compiled() -> None:
    assert _stopped("{{ x }}" * 200_000) == "it has more than 131,072 letters itself"


def test_what_waits_for_a_word_is_stopped_at_the_request() -> None:
    endless = ENDLESS["loops within loops"]
    source = "{% if 'now' in messages[-1].content %}" + endless + "{% endif %}" + tiny_tokenizer.TEMPLATE
    template = ChatTemplate(source, "mine", {})
    assert template.render(USER)
    with budget.patience(0.1), pytest.raises(TemplateStopped) as stopped:
        template.render([{"role": "user", "content": "and now"}])
    assert stopped.value.by_time
    assert template.render(USER), "and the next one is rendered"


def test_what_waits_for_a_system_message_that_it_leaves_out_is_stopped_at_load() -> None:
    endless = "{% if messages[0].content == '-' and messages[0].role == 'system' %}" + LARGE["center"] + "{% endif %}"
    with pytest.raises(TemplateStopped):
        ChatTemplate(endless + "{% for m in messages if m.role != 'system' %}{{ m.content }}{% endfor %}", "mine", {})


def test_what_waits_for_a_system_message_alone_is_stopped_where_it_is_pinned(
    template_dir: Path, tmp_path: Path
) -> None:
    shutil.copytree(template_dir, tmp_path, dirs_exist_ok=True)
    endless = "{% if messages[-1].role == 'system' %}" + LARGE["center"] + "{% endif %}" + tiny_tokenizer.TEMPLATE
    (tmp_path / "chat_template.jinja").write_text(endless)
    tokenizer = ChatTokenizer(str(tmp_path))
    messages = [{"role": "system", "content": "Be brief"}, *USER]
    assert tokenizer.prompt(messages)
    with pytest.raises(TemplateStopped):
        tokenizer.num_pinned_tokens(messages)


def test_others_are_rendered_meanwhile() -> None:
    endless = ENDLESS["loops within loops"]
    source = "{% if 'now' in messages[-1].content %}" + endless + "{% endif %}" + tiny_tokenizer.TEMPLATE
    template, sound = ChatTemplate(source, "mine", {}), ChatTemplate(tiny_tokenizer.TEMPLATE, "sound", {})
    ends: list[str] = []

    def hostile() -> None:
        with budget.patience(0.5), pytest.raises(TemplateStopped):
            template.render([{"role": "user", "content": "now"}])
        ends.append("hostile")

    thread = threading.Thread(target=hostile)
    thread.start()
    num_rendered = 0
    while not ends:
        assert sound.render(USER)
        num_rendered += 1
    thread.join()
    assert num_rendered > 20


def test_as_much_may_be_written_as_was_given() -> None:
    template = ChatTemplate(tiny_tokenizer.TEMPLATE, "mine", {})
    text = "x" * (budget.MAX_LETTERS + 1)
    assert text in template.render([{"role": "user", "content": text}])


def test_a_long_chat_may_be_put_together_item_by_item() -> None:
    source = (
        "{% set ns = namespace(all=[]) %}{% for m in messages %}{% set ns.all = ns.all + [m] %}{% endfor %}"
        "{% for m in ns.all %}{{ m.content }}{% endfor %}"
    )
    template = ChatTemplate(source, "mine", {})
    assert template.render(USER * 3000) == "hello" * 3000


def test_a_short_chat_costs_little() -> None:
    """Far below a millisecond; ten times that is allowed here, for machines with other work."""
    template = ChatTemplate(tiny_tokenizer.TEMPLATE, "mine", {})
    costs = []
    for _ in range(50):
        began_at = time.thread_time()
        template.render(USER * 3)
        costs.append(time.thread_time() - began_at)
    assert sorted(costs)[25] < 0.01


def test_a_template_without_jinja(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.startswith("kakeya.text.rendering")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.delattr("kakeya.text.rendering")
    monkeypatch.setitem(sys.modules, "jinja2", None)
    with pytest.raises(ImportError, match=r"a chat template needs an extra; .* 'kakeya\[tokenizer\]'"):
        ChatTemplate(tiny_tokenizer.TEMPLATE, "mine", {})


def test_what_is_given_stays_as_it_is() -> None:
    template = ChatTemplate("{{ messages[0].content }}{{ x.a[0] if x }}{{ x.n if x }}", "mine", {})
    given: dict[str, Any] = {"a": ["b", None], "n": 1}
    assert template.render([{"role": "user", "content": "-"}], variables={"x": given}) == "-b1"
    assert given == {"a": ["b", None], "n": 1}


def test_what_is_no_json_is_named_by_its_kind() -> None:
    class Open(str):
        def read(self) -> str:
            return "secret"

    template = ChatTemplate(
        "{{ messages[0].content }}{{ messages[0].name }}{{ messages[0].file.read if messages[0].file }}", "mine", {}
    )
    said = {"role": "user", "content": "-", "name": Open("n"), "file": threading.Lock()}
    assert template.render([said]) == "-n"
    template = ChatTemplate(
        "{{ messages[0].content }}{{ messages[0].file }}{{ messages[0].name.read if messages[0].name }}", "mine", {}
    )
    assert template.render([said]) == "-<lock>"

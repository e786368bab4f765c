"""What templates are given works as Jinja has it, measured as it is."""

import pytest

from kakeya.text.chat_template import ChatTemplate

LEGIT: dict[str, tuple[str, str]] = {
    "indent": ("{{ 'a\nb' | indent(2) }}", "a\n  b"),
    "indent with a text": ("{{ 'a\nb' | indent('> ') }}", "a\n> b"),
    "center": ("{{ 'a' | center(3) }}", " a "),
    "replace": ("{{ 'aXb'.replace('X', '--') }}{{ 'aXb' | replace('X', '') }}", "a--bab"),
    "join": ("{{ [1, 2] | join(', ') }}{{ ','.join(['a', 'b']) }}", "1, 2a,b"),
    "join by attribute": ("{{ [{'a': 1}, {'a': 2}] | join(',', attribute='a') }}", "1,2"),
    "join a generator": ("{{ ['a', 'b'] | map('upper') | join }}{{ nothing | join }}", "AB"),
    "join letters": ("{{ 'abc' | join('-') }}", "a-b-c"),
    "format": ("{{ '{} {a:>4}'.format(1, a=2) }}{{ '%s-%d' | format('x', 3) }}{{ '%s' % 'y' }}", "1    2x-3y"),
    "format_map": ("{{ '{a}'.format_map({'a': 1}) }}", "1"),
    "sum": ("{{ [1, 2.5] | sum }}{{ [{'a': 1}] | sum('a', 2) }}{{ [1] | sum(start=1) }}", "3.532"),
    "batch": ("{{ [1, 2, 3] | batch(2, 0) | list }}{{ [1, 2] | slice(2) | list }}", "[[1, 2], [3, 0]][[1], [2]]"),
    "numbers": ("{{ 2 ** 10 }}{{ 3 * 4 }}{{ 7 % 4 }}{{ 2 ** 0.5 > 1 }}{{ 2 ** -1 }}{{ [1] * 2 }}",
                "1024123True0.5[1, 1]"),
    "wordwrap": ("{{ 'a b' | wordwrap(1) }}", "a\nb"),
    "JSON": ("{{ {'é': [1, '<']} | tojson }}{{ 'é' | tojson(ensure_ascii=true) }}", '{"é": [1, "<"]}"\\u00e9"'),
    "JSON laid out": ("{{ {'b': 1, 'a': 2} | tojson(indent=1, sort_keys=true) }}", '{\n "a": 2,\n "b": 1\n}'),
    "JSON laid out with a text": ("{{ [1] | tojson(indent='--', separators=(';', '=')) }}", "[\n--1\n]"),
    "dicts": ("{{ dict(a=1) }}{{ dict.fromkeys('ab') }}{% for k, v in {'x': 1}.items() %}{{ k }}{{ v }}{% endfor %}",
              "{'a': 1}{'a': None, 'b': None}x1"),
    "a namespace": ("{% set ns = namespace(self=1, a=[]) %}{% set ns.b = ns.self + 1 %}{{ ns.b }}{{ ns }}",
                    "2<Namespace>"),
    "a cycle": ("{% set c = cycler('a', 'b') %}{{ c.next() }}{{ c.next() }}{% set j = joiner() %}{{ j() }}{{ j() }}",
                "ab, "),
    "loops": ("{% for a in [1, 2, 3] if a != 2 %}{{ loop.index }}/{{ loop.length }}{{ loop.last }};{% endfor %}",
              "1/2False;2/2True;"),
    "loop controls": ("{% for a in range(9) %}{% if a == 1 %}{% continue %}{% elif a == 3 %}{% break %}{% endif %}"
                      "{{ a }}{% endfor %}", "02"),
    "a recursive loop": ("{% for x in [[1, [2]]] recursive %}{{ loop(x) if x is not number else x }}{% endfor %}",
                         "12"),
    "pairs": ("{% set a, b = 1, 2 %}{% for x, (y, z) in [(a, (b, 3))] %}{{ x }}{{ y }}{{ z }}{% endfor %}", "123"),
    "a block": ("{% set x %}a{{ 1 }}{% endset %}{{ x }}{% filter upper %}b{% endfilter %}", "a1B"),
    "a call block": ("{% macro m() %}<{{ caller() }}>{% endmacro %}{% call m() %}x{% endcall %}", "<x>"),
    "a title": ("{{ 'a word' | title }}{{ 1 | round(1) }}", "A Word1"),
}  # fmt: skip


@pytest.mark.parametrize("name", LEGIT)
def test_what_is_small_is_done(name: str) -> None:
    source, written = LEGIT[name]
    template = ChatTemplate("{{ messages[0].content }};" + source, "mine", {})
    assert template.render([{"role": "user", "content": "-"}]) == f"-;{written}"

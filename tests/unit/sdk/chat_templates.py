"""Chat templates as models have them, cut down to what makes them differ: in which form they take what."""

from dataclasses import dataclass
from typing import Literal

Form = Literal["text", "part", "parts"]

_EACH = "{% for m in messages %}{{ m.role }}: "
_NEXT = ";\n{% endfor %}{% if add_generation_prompt %}assistant: {% endif %}"
_WALKS = "{% for p in m.content | selectattr('type', 'equalto', 'text') %}{{ p['text'] }} {% endfor %}"
_EITHER = "{% if m.content is string %}{{ m.content }}{% else %}" + _WALKS + "{% endif %}"
_CALLS = "{% for c in m.tool_calls or [] %}{% set f = c.function or c %}<call>{{ f.name }} "
_CALLED = "</call>{% endfor %}"


@dataclass(frozen=True)
class Template:
    """A template that can be served.

    Attributes:
        user, system, assistant, tool: in which form what comes of them in parts is rendered whole by transformers;
            what comes as a text is given as such to "text", and else as one part.
        takes_either: texts as they are, too.
    """

    source: str
    user: Form = "text"
    system: Form = "text"
    assistant: Form = "text"
    tool: Form = "text"
    takes_either: bool = False


def _in_parts(source: str, form: Form = "parts") -> Template:
    return Template(source, form, form, form, form)


SERVED = {
    "texts": Template(_EACH + "{{ m.content }}" + _NEXT),
    "texts, trimmed and in capitals": Template(_EACH + "{{ m.content | trim | upper }}" + _NEXT),
    "texts, added up": Template("{% for m in messages %}{{ m['role'] + ': ' + m['content'] }}" + _NEXT),
    "texts, quoted": Template(_EACH + "{{ m.content | tojson }}" + _NEXT),
    "whole messages, as JSON": Template("{% for m in messages %}{{ m | tojson }}" + _NEXT),
    "letter by letter": Template(_EACH + "{% for p in m.content %}{{ p }}{% endfor %}" + _NEXT),
    "parts (Llava)": _in_parts(_EACH + _WALKS + _NEXT),
    "parts, in capitals": _in_parts(_EACH + _WALKS.replace("['text']", "['text'] | upper") + _NEXT),
    "parts, and a text is an error": _in_parts(
        _EACH + "{% if m.content is string %}{{ m.content.parts() }}{% endif %}" + _WALKS + _NEXT
    ),
    "parts, and a text is refused": _in_parts(
        _EACH + "{% if m.content is string %}{{ raise_exception('parts!') }}{% endif %}" + _WALKS + _NEXT
    ),
    "the first part only": _in_parts(_EACH + "{{ m.content[0].text }}" + _NEXT, "part"),
    "either (Llama 3.2 Vision)": Template(
        _EACH + _EITHER + _NEXT, "parts", "parts", "parts", "parts", takes_either=True
    ),
    "either, and of a system message the first part only (Gemma 3)": Template(
        "{% if messages[0].role == 'system' %}{{ messages[0].content if messages[0].content is string else"
        " messages[0].content[0].text }}{% endif %}"
        "{% for m in messages if m.role != 'system' %}{{ m.role }}: " + _EITHER + _NEXT,
        "parts",
        "text",
        "parts",
        "parts",
        takes_either=True,
    ),
    "parts of the user, texts of all others (Pixtral)": Template(
        _EACH + "{% if m.role == 'user' %}" + _WALKS + "{% else %}{{ m.content }}{% endif %}" + _NEXT, "parts"
    ),
    "parts of the system, texts of all others": Template(
        _EACH + "{% if m.role == 'system' %}" + _WALKS + "{% else %}{{ m.content }}{% endif %}" + _NEXT, system="parts"
    ),
    "texts of the model, parts of all others": Template(
        _EACH + "{% if m.role == 'assistant' %}{{ m.content }}{% else %}" + _WALKS + "{% endif %}" + _NEXT,
        "parts",
        "parts",
        "text",
        "parts",
    ),
    "texts of tools, parts of all others": Template(
        _EACH + "{% if m.role == 'tool' %}{{ m.content }}{% else %}" + _WALKS + "{% endif %}" + _NEXT,
        "parts",
        "parts",
        "parts",
    ),
    "nothing for a system alone": _in_parts(
        "{% if messages | length < 2 and messages[0].role == 'system' %}{{ raise_exception('alone') }}{% endif %}"
        + (_EACH + _WALKS + _NEXT)
    ),
    "a system first": _in_parts(
        "{% if messages[0].role != 'system' %}{{ raise_exception('no system') }}{% endif %}" + _EACH + _WALKS + _NEXT
    ),
    "the last message only": _in_parts("{{ messages[-1].content[0].text }}", "part"),
    "the system in the user's first message (Mistral)": Template(
        "{% set system = messages[0].content if messages[0].role == 'system' else '' %}"
        "{% for m in messages if m.role != 'system' %}{% if m.role == 'user' %}[INST] {{ system if loop.first }}"
        + (_WALKS + "[/INST]{% else %}{{ m.content }}</s>{% endif %}{% endfor %}"),
        "parts",
    ),
    "no system": _in_parts("{% for m in messages if m.role != 'system' %}" + _WALKS + _NEXT),
}

TOOLS = {
    "tojson (Llama 3.1)": _EACH + "{{ m.content }}" + _CALLS + "{{ f.arguments | tojson }}" + _CALLED + _NEXT,
    "tojson of the whole call": _EACH + "{{ m.content }}{{ m.tool_calls | tojson if m.tool_calls }}" + _NEXT,
    "items (Qwen3-Coder)": _EACH
    + ("{{ m.content }}" + _CALLS + "{% for k, v in f.arguments | items %}<{{ k }}>{{ v | tojson }}{% endfor %}")
    + (_CALLED + _NEXT),
    "a method of objects (GLM)": _EACH
    + ("{{ m.content }}" + _CALLS + "{% for k, v in f.arguments.items() %}<{{ k }}>{{ v }}{% endfor %}")
    + (_CALLED + _NEXT),
    "a text as it is, an object by tojson (Qwen3)": _EACH
    + ("{{ m.content }}" + _CALLS + "{{ f.arguments if f.arguments is string else f.arguments | tojson }}")
    + (_CALLED + _NEXT),
    "printed": _EACH + "{{ m.content }}" + _CALLS + "{{ f.arguments }}" + _CALLED + _NEXT,
    "parts and tojson": _EACH + _WALKS + _CALLS + "{{ f.arguments | tojson }}" + _CALLED + _NEXT,
    "no tools": _EACH + "{{ m.content }}" + _NEXT,
}
"""These are given objects."""

ADDS_UP = _EACH + "{{ m.content }}" + _CALLS + "{{ '```json\n' + f.arguments + '\n```' }}" + _CALLED + _NEXT
"""As DeepSeek's: an object is an error here, so the text stays one."""

REFUSED = {
    "{# nothing #}": "it is left out",
    "{% for m in messages %}{{ m.role }}{% endfor %}": "it is left out",
    "{% for m in messages %}{{ m.content | length }}{% endfor %}": "it is left out",
    "{% for m in messages %}{{ m.text }}{% endfor %}": "it is left out",
    "{% for m in messages %}{% for p in m.parts %}{{ p.text }}{% endfor %}{% endfor %}": "it is left out",
    "{% for m in messages %}{{ m.content[0] }}{% endfor %}": "it is left out",
    "{% if %}": "TemplateSyntaxError: Expected an expression, got 'end of statement block'",
    "{{ nobody.knows }}": "UndefinedError: 'nobody' is undefined",
    "{{ messages + 1 }}": "TypeError: ",
    "{{ raise_exception('not for chats') }}": "refuses messages of user: not for chats",
    "{% macro again() %}{{ again() }}{% endmacro %}{{ again() }}": "RecursionError: ",
    "{% include 'another' %}": "TypeError: no loader for this environment specified",
}
"""Templates that are refused at load, and why."""

"""The sandbox that chat templates are written for, as transformers has it, with all that repeats or grows measured.

Templates get what transformers gives them (`raise_exception`, `strftime_now`, `tojson`, `{% generation %}`, loop
controls, blocks trimmed), but for `lipsum`, which writes nonsense, and methods of texts by which a short text becomes a
very long one.
"""

import json
from collections.abc import Callable
from datetime import datetime
from functools import wraps
from typing import Any, NoReturn

from jinja2 import Template, TemplateError, nodes
from jinja2.exceptions import SecurityError
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.runtime import Context
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.utils import Namespace
from jinja2.visitor import NodeTransformer

from kakeya.text.rendering import budget, growth
from kakeya.text.rendering.budget import OverBudget
from kakeya.text.rendering.marked_text import StandIns, meant

MAX_SOURCE_LETTERS = 1 << 17
"""Of a template; several times the longest that models come with. To compile one takes seconds a megabyte."""
_READ_LETTERS = frozenset({"e", "escape", "forceescape", "striptags", "title", "urlencode", "urlize", "wordcount"})
"""Filters that look at the letters of a text, and not by its methods."""
_REFUSED_METHODS = frozenset({"translate", "maketrans", "expandtabs", "encode"})


class TemplateEnvironment(ImmutableSandboxedEnvironment):
    """Compiles templates, and is what they run in: only within `budget.spending`."""

    intercepted_binops = frozenset({"+", "*", "**", "%"})

    def __init__(self) -> None:
        super().__init__(trim_blocks=True, lstrip_blocks=True, extensions=[_GenerationBlocks, loopcontrols])
        self.filters = {name: _measured(name, function) for name, function in self.filters.items()}
        self.filters["tojson"] = _measured("tojson", _tojson)
        del self.globals["lipsum"]
        self.globals |= {
            "raise_exception": _raise_exception,
            "strftime_now": lambda form: datetime.now().strftime(form),
            "dict": _Dict(),
            "namespace": _Namespace,
        }

    def template(self, source: str) -> Template:
        """Raises TemplateError, and OverBudget where that is asked of the compiler."""
        if len(source) > MAX_SOURCE_LETTERS:
            raise OverBudget(f"it has more than {MAX_SOURCE_LETTERS:,} letters itself")
        tree = _Measuring().visit(self.parse(source))
        return Template.from_code(self, self.compile(tree), self.make_globals(None))

    # Called by what `_Measuring` writes into templates.

    def counted(self, items: Any) -> Any:
        """What a loop goes through."""
        return budget.current().counted(items)

    def measured(self, value: Any) -> Any:
        """A literal."""
        return budget.current().made(value)

    def joined(self, *values: Any) -> Any:
        """What `~` makes of values."""
        budget.current().check_letters(sum(map(budget.current().weight, values)))
        return self.measured("".join(map(str, values)))

    def searched(self, text: str) -> str:
        """A text in which another is looked for, which may be a marked one."""
        stand_ins = budget.current().stand_ins
        return text if stand_ins is None else stand_ins.text_type(text)

    # Called by what Jinja writes into templates.

    def concat(self, pieces: Any) -> str:
        """What a macro, or a block that is set, wrote."""
        return str(budget.current().made("".join(within(pieces))))

    def call(self, context: Context, callee: Any, /, *args: Any, **kwargs: Any) -> Any:
        """What a function or method returns."""
        if getattr(callee, "__self__", None) is self:  # written by `_Measuring`; no template gets at the environment
            return callee(*args)
        args = growth.checked(getattr(callee, "__name__", ""), (getattr(callee, "__self__", None), *args), kwargs)[1:]
        return self.measured(super().call(context, callee, *args, **kwargs))

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        """What an operator makes of two values."""
        if operator == "+" and type(left) is type(right) is str:  # what messages are written with
            return budget.current().made(left + right)
        growth.check_operator(operator, left, right)
        made = super().call_binop(context, operator, left, right)
        return budget.current().added(left, right, made) if operator == "+" else self.measured(made)

    def is_safe_attribute(self, obj: Any, attr: str, value: Any) -> bool:
        """Whether a template may look at it."""
        if isinstance(obj, str | bytes) and attr in _REFUSED_METHODS:
            return False
        return super().is_safe_attribute(obj, attr, value)

    def wrap_str_format(self, value: Any) -> Callable[..., str] | None:
        """`format` of a text, without fields that widen without bound."""
        wrapped = super().wrap_str_format(value)
        if wrapped is None:
            return None

        @wraps(wrapped)
        def formatted(*args: Any, **kwargs: Any) -> str:
            growth.check_format(value.__self__, args, kwargs)
            return wrapped(*args, **kwargs)

        return formatted


def within(pieces: Any) -> list[str]:
    """The pieces of a text. Raises OverBudget as soon as they are too many."""
    kept, num_letters = [], 0
    for piece in pieces:
        num_letters += len(piece)
        budget.current().check_letters(num_letters)
        kept.append(piece)
    return kept


class _Measuring(NodeTransformer):
    """Has loops counted, and literals and `~` measured."""

    def visit_For(self, node: nodes.For) -> nodes.Node:  # noqa: N802 -- Jinja's name
        self.generic_visit(node)
        node.iter = _called("counted", node.iter)
        return node

    def visit_Concat(self, node: nodes.Concat) -> nodes.Node:  # noqa: N802 -- Jinja's name
        self.generic_visit(node)
        return _called("joined", *node.nodes)

    def visit_Operand(self, node: nodes.Operand) -> nodes.Node:  # noqa: N802 -- Jinja's name
        self.generic_visit(node)
        if node.op in ("in", "notin") and isinstance(node.expr, nodes.Const) and isinstance(node.expr.value, str):
            node.expr = _called("searched", node.expr)
        return node

    def visit_List(self, node: nodes.List) -> nodes.Node:  # noqa: N802 -- Jinja's name
        self.generic_visit(node)
        return _called("measured", node) if _may_grow(node.items) else node

    def visit_Dict(self, node: nodes.Dict) -> nodes.Node:  # noqa: N802 -- Jinja's name
        self.generic_visit(node)
        return _called("measured", node) if node.items else node

    def visit_Tuple(self, node: nodes.Tuple) -> nodes.Node:  # noqa: N802 -- Jinja's name
        self.generic_visit(node)
        return _called("measured", node) if node.ctx == "load" and _may_grow(node.items) else node


def _may_grow(items: list[nodes.Expr]) -> bool:
    return not all(isinstance(item, nodes.Const) for item in items)


def _called(method: str, *args: nodes.Node) -> nodes.Expr:
    call = nodes.Call(nodes.EnvironmentAttribute(method), list(args), [], None, None)
    call.set_lineno(args[0].lineno)
    return call


def _measured(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(function)  # with what it says of itself: whether it is given the context
    def filtered(*args: Any, **kwargs: Any) -> Any:
        spent = budget.current()
        args = growth.checked(name, args, kwargs)
        if name in _READ_LETTERS and spent.stand_ins is not None:
            return spent.made(_read(function, spent.stand_ins, args, kwargs))
        return spent.made(function(*args, **kwargs))

    return filtered


def _read(function: Callable[..., Any], stand_ins: StandIns, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """What a filter makes of what is meant, marked: which letters of it were so is not known."""
    made = function(*map(meant, args), **{name: meant(value) for name, value in kwargs.items()})
    return type(made)(stand_ins.mark(made)) if isinstance(made, str) else made


class _GenerationBlocks(Extension):
    """`{% generation %}`: marks what a model says, for its training; here a block like any other."""

    tags = {"generation"}  # noqa: RUF012 -- as Jinja has it

    def parse(self, parser: Parser) -> nodes.Node:
        line = next(parser.stream).lineno
        return nodes.Scope(parser.parse_statements(("name:endgeneration",), drop_needle=True)).set_lineno(line)


class _Dict:
    """`dict`, without what else the type has."""

    def __call__(self, *args: Any, **kwargs: Any) -> dict[Any, Any]:
        return dict(*args, **kwargs)

    def fromkeys(self, *args: Any) -> dict[Any, Any]:
        return dict.fromkeys(*args)


class _Namespace(Namespace):
    """Of names without an underscore in front, which are Python's own; and it shows nothing of what it holds."""

    def __init__(*args: Any, **kwargs: Any) -> None:
        self, given = args[0], dict(*args[1:], **kwargs)
        for name in given:
            _check_name(name)
        Namespace.__init__(self, given)

    def __setitem__(self, name: str, value: Any) -> None:
        _check_name(name)
        super().__setitem__(name, value)

    def __repr__(self) -> str:
        return "<Namespace>"


def _check_name(name: object) -> None:
    if isinstance(name, str) and name.startswith("_"):
        raise SecurityError(f"a namespace has no name with an underscore in front, such as {name!r}")


def _raise_exception(message: str) -> NoReturn:
    raise TemplateError(message)


def _tojson(
    value: Any, ensure_ascii: bool = False, indent: Any = None, separators: Any = None, sort_keys: bool = False
) -> str:
    growth.check_layout(indent, separators)
    stand_ins = budget.current().stand_ins
    escapes = ensure_ascii and stand_ins is None
    written = json.dumps(value, ensure_ascii=escapes, indent=indent, separators=separators, sort_keys=sort_keys)
    return stand_ins.escaped(written) if ensure_ascii and stand_ins is not None else written

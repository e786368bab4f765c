"""What holds inside the router: an operation changes itself, protobuf stays at the doors, no outcome is passed over."""

import ast
from collections import Counter
from collections.abc import Iterator, Set
from pathlib import Path

from tests.house.exceptions import ASSIGNED_NOT_YET, PROTOBUF_NOT_YET
from tests.house.packages import files, named, package, parsed, worse_than

ROUTER = package("kakeya_router")
OF_MESSAGES = ("api", "contract", "workers")
PROTOBUF = ("kakeya_stubs", "google")
SETTERS = ("setattr", "delattr", "__setattr__", "__delattr__", "__dict__", "vars")


class Fields:
    """The fields of a class, as its file declares them.

    Attributes:
        names: of all fields.
        others: those that are annotated as something else than the class itself.
    """

    def __init__(self, class_: ast.ClassDef) -> None:
        declared = [node for node in ast.walk(class_) if isinstance(node, ast.AnnAssign)]
        annotations = {_name(node.target): ast.unparse(node.annotation) for node in declared}
        assigned = {target.attr for target in _targets(class_) if ast.unparse(target.value) == "self"}
        self.names = assigned | annotations.keys()
        self.others = {name for name, annotation in annotations.items() if class_.name not in annotation}


def foreign_assignments(fields: Fields, module: ast.Module) -> list[int]:
    """Lines that assign to a field of the class from outside, as far as a reader of this file alone can know.

    That is each assignment to an attribute of that name, but to one of `self`, which is another class here, or of a
    field that is something else (`operation.journal.length`); and whatever sets attributes by their names.
    """
    lines = [
        target.lineno
        for target in _targets(module)
        if target.attr in fields.names
        and ast.unparse(target.value) != "self"
        and not (isinstance(target.value, ast.Attribute) and target.value.attr in fields.others)
    ]
    return lines + [node.lineno for node in ast.walk(module) if isinstance(node, ast.expr) and _sets_by_name(node)]


def _targets(tree: ast.AST) -> Iterator[ast.Attribute]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store | ast.Del):
            yield node


def _sets_by_name(node: ast.expr) -> bool:
    return (isinstance(node, ast.Name) and node.id in SETTERS) or (
        isinstance(node, ast.Attribute) and node.attr in SETTERS
    )


def _name(target: ast.expr) -> str:
    return target.attr if isinstance(target, ast.Attribute) else ast.unparse(target)


def protobuf_imports(module: ast.Module) -> list[int]:
    """Lines that import stubs or the library, type checking included."""
    lines = []
    for node in ast.walk(module):
        if isinstance(node, ast.Import):
            imported = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            imported = [node.module or ""]
        else:
            continue
        if any(name.split(".")[0] in PROTOBUF for name in imported):
            lines.append(node.lineno)
    return lines


def half_seen_outcomes(outcomes: Set[str], module: ast.Module) -> list[str]:
    """Classes of outcomes of which a module asks for some, where none of its types names them all.

    What names all: a `match` whose last case hands on what is left, to `assert_never` or to who takes only that; and a
    Literal. So with another outcome in a script's header the types of the module are wrong.
    """
    asked, seen = set[str](), set[str]()
    for node in ast.walk(module):
        match node:
            case ast.Compare():
                asked |= _classes(node)
            case ast.Match(cases=cases):
                asked |= _classes(*cases)
                seen |= _classes(*cases) if _hands_on(cases[-1]) else set()
            case ast.Subscript(value=ast.Name(id="Literal")):
                seen |= _classes(node)
    return sorted((asked - seen) & outcomes)


def _hands_on(last: ast.match_case) -> bool:
    """Whether it is for all that is left, and calls something with it."""
    name = last.pattern.name if isinstance(last.pattern, ast.MatchAs) and last.pattern.pattern is None else None
    calls = [node for node in ast.walk(last) if isinstance(node, ast.Call)]
    return name is not None and any(name in _names(call) for call in calls)


def _names(node: ast.AST) -> set[str]:
    return {each.id for each in ast.walk(node) if isinstance(each, ast.Name)}


def _classes(*nodes: ast.AST) -> set[str]:
    """That members are taken of; of a case as its pattern says."""
    patterns = [node.pattern if isinstance(node, ast.match_case) else node for node in nodes]
    attributes = [each.value for node in patterns for each in ast.walk(node) if isinstance(each, ast.Attribute)]
    return {each.id for each in attributes if isinstance(each, ast.Name)}


def _operation() -> tuple[Path, ast.ClassDef]:
    """The router's class of that name, and its file."""
    (found,) = (
        (file, node)
        for file in files(ROUTER, ".py")
        for node in parsed(file).body
        if isinstance(node, ast.ClassDef) and node.name == "Operation"
    )
    return found


def test_only_its_own_file_assigns_to_fields_of_an_operation() -> None:
    own, class_ = _operation()
    fields = Fields(class_)
    assert fields.names
    others = [file for file in files(ROUTER, ".py") if file != own]
    found = Counter({named(file): len(foreign_assignments(fields, parsed(file))) for file in others})
    assert worse_than(ASSIGNED_NOT_YET, +found) == []


def test_protobuf_is_imported_where_messages_come_in_and_go_out() -> None:
    inner = [file for file in files(ROUTER, ".py") if file.relative_to(ROUTER).parts[0] not in OF_MESSAGES]
    found = Counter({named(file): len(protobuf_imports(parsed(file))) for file in inner})
    assert worse_than(PROTOBUF_NOT_YET, +found) == []


def test_what_counts_as_an_assignment_from_outside() -> None:
    class_ = ast.parse(
        """
class Operation:
    def __init__(self, record):
        self.record = record
        self.journal: Journal
        self.before: "Operation | None" = None
        self.over = False
"""
    ).body[0]
    assert isinstance(class_, ast.ClassDef)
    source = """
class Other:
    def touch(self, operation, operations):
        self.record = operation.record
        operation.journal.record = operation.record
        operation.unrelated = 1
        operation.record = operation.journal.record = 2
        operation.over |= True
        self._operation.over, rest = True, 3
        operation.before.over = True
        operations[0].over = True
        del operation.record
        setattr(operation, "over", True)
        for operation.over in (): ...
"""
    lines = sorted(foreign_assignments(Fields(class_), ast.parse(source)))
    assert lines == [7, 8, 9, 10, 11, 12, 13, 14]


def test_what_counts_as_an_import_of_protobuf() -> None:
    source = """
import kakeya_router.keys
import kakeya_stubs.v1.runtime_pb2 as api
from google.protobuf import json_format
from kakeya_shared import labels
from kakeya_stubs.worker.v1.verifier_pb2 import LaneState
"""
    assert protobuf_imports(ast.parse(source)) == [3, 4, 6]


def _outcomes() -> set[str]:
    module = parsed(ROUTER / "store" / "outcomes.py")
    return {_name(node.targets[0]) for node in module.body if isinstance(node, ast.Assign)}


def test_another_outcome_of_a_script_is_an_error_of_types_for_who_asks_about_it() -> None:
    stores = {"queue_store.py"}  # hands them on
    callers = [file for file in files(ROUTER, ".py") if file.name not in stores]
    assert {"EndOperation", "FailSession"} <= _outcomes()
    assert {named(each): found for each in callers if (found := half_seen_outcomes(_outcomes(), parsed(each)))} == {}


def test_outcomes_of_which_only_some_are_seen_are_found() -> None:
    source = """
if outcome is A.ONE or outcome in (B.ONE, B.TWO): pass
match outcome:
    case C.ONE | C.TWO: pass
    case never: assert_never(never)
match outcome:
    case D.ONE: pass
    case other: pass
match outcome:
    case E.ONE: pass
rest: Literal[B.ONE, B.TWO] = outcome
if outcome == C.ONE or outcome != F.ONE: pass
"""
    assert half_seen_outcomes({*"ABCDE"}, ast.parse(source)) == ["A", "D", "E"]

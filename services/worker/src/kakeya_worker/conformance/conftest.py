"""Runs the suite over plugins: all that are installed, or those that --backend names."""

from fnmatch import fnmatch
from pathlib import Path

import pytest

from kakeya_shared import plugins
from kakeya_worker.conformance.declaration import NUMERIC_MUTATIONS, TOLERANCES, Declaration
from kakeya_worker.conformance.tools.checkpoints import VARIANTS
from kakeya_worker.conformance.tools.subject import VERIFIERS, Case, Subject, cases, declaration

_CASES = Path(__file__).parent / "cases"
_FIRST_OF_FAMILY = {variant.family: variant for variant in reversed(VARIANTS)}.values()
_TOLERANCES_OF_FIXTURE = {
    "float32": ("float32",),
    "bfloat16": ("bfloat16",),
    "exact": ("exact",),
    "subject": TOLERANCES,
}


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--backend",
        action="append",
        metavar="NAME",
        help="a kakeya.verifier plugin that must conform; may be repeated; all that are installed unless given",
    )


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "heavy: takes minutes")
    try:
        for plugin in _plugins(config):
            plugins.load(VERIFIERS, plugin)
            declaration(plugin)
    except (plugins.PluginError, ValueError) as error:
        raise pytest.UsageError(str(error)) from error


def pytest_report_header(config: pytest.Config) -> list[str]:
    return [line for plugin in _plugins(config) for line in _coverage(plugin, declaration(plugin))]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """A test takes a `Subject` by the name of the tolerance it is about, or as `subject` in every mode."""
    all_cases = [case for plugin in _plugins(metafunc.config) for case in cases(plugin)]
    for fixture, tolerances in _TOLERANCES_OF_FIXTURE.items():
        if fixture in metafunc.fixturenames:
            fitting = [case for case in all_cases if case.mode.tolerance in tolerances]
            metafunc.parametrize(fixture, fitting, ids=str, indirect=True)
    if "environment" in metafunc.fixturenames:
        plugins_and_names = [(p, name) for p in _plugins(metafunc.config) for name in declaration(p).environments]
        metafunc.parametrize("plugin, environment", plugins_and_names)
    elif "plugin" in metafunc.fixturenames:
        metafunc.parametrize("plugin", _plugins(metafunc.config))
    if "broken" in metafunc.fixturenames:
        pairs = [
            (case, name)
            for case in all_cases
            for name, mutation in declaration(case.plugin).mutations.items()
            if case.mode in mutation.modes
        ]
        metafunc.parametrize("broken", pairs, ids=[f"{case}-{name}" for case, name in pairs], indirect=True)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Marks expected failures; one that no test bears is an error, where all tests were asked for.

    What proves a family once more in a mode of floats is heavy: bits are another matter.
    """
    ours = [item for item in items if isinstance(item, pytest.Function) and item.path.parent == _CASES]
    unused = {(plugin, pattern) for plugin in _plugins(config) for pattern in declaration(plugin).expected_failures}
    for item in ours:
        case = _case(item)
        if case and case.mode.tolerance != "exact" and case.variant not in _FIRST_OF_FAMILY:
            item.add_marker(pytest.mark.heavy)
        plugin = _plugin(item)
        for pattern, reason in declaration(plugin).expected_failures.items() if plugin else ():
            if fnmatch(f"{item.path.name}::{item.name}", pattern):
                item.add_marker(pytest.mark.xfail(reason=reason, strict=True))
                unused.discard((plugin, pattern))
    if unused and {item.path for item in ours} == set(_CASES.glob("test_*.py")):
        raise pytest.UsageError(
            "expected failures that no test bears: " + ", ".join(sorted(f"{p}: {pattern}" for p, pattern in unused))
        )


@pytest.fixture(scope="session")
def subjects(tmp_path_factory: pytest.TempPathFactory) -> "Subjects":
    return Subjects(tmp_path_factory.mktemp("checkpoints"))


class Subjects:
    """All subjects of a run; checkpoints are written when a test first needs them."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._subjects: dict[Case, Subject] = {}

    def __getitem__(self, case: Case) -> Subject:
        if case not in self._subjects:
            directory = self._root / f"{case.variant.name}-{case.dtype}"
            if not directory.exists():
                case.variant.write(directory, case.dtype)
            self._subjects[case] = Subject(case, directory)
        return self._subjects[case]


@pytest.fixture
def float32(request: pytest.FixtureRequest, subjects: Subjects) -> Subject:
    return subjects[request.param]


@pytest.fixture
def bfloat16(request: pytest.FixtureRequest, subjects: Subjects) -> Subject:
    return subjects[request.param]


@pytest.fixture
def exact(request: pytest.FixtureRequest, subjects: Subjects) -> Subject:
    return subjects[request.param]


@pytest.fixture
def subject(request: pytest.FixtureRequest, subjects: Subjects) -> Subject:
    return subjects[request.param]


@pytest.fixture
def broken(request: pytest.FixtureRequest, subjects: Subjects) -> tuple[Subject, str]:
    """A subject, and the name of a mutation of its plugin that must show in its mode."""
    case, mutation = request.param
    return subjects[case], mutation


def _plugins(config: pytest.Config) -> list[str]:
    named: list[str] | None = config.getoption("--backend", None)  # unknown where pytest met this file late
    return named or plugins.names(VERIFIERS)


def _parameters(item: pytest.Item) -> dict[str, object]:
    return item.callspec.params if hasattr(item, "callspec") else {}


def _case(item: pytest.Item) -> Case | None:
    """What a test examines, if it is one plugin with one checkpoint."""
    values = (value[0] if isinstance(value, tuple) else value for value in _parameters(item).values())
    return next((value for value in values if isinstance(value, Case)), None)


def _plugin(item: pytest.Item) -> str | None:
    """The plugin that a test examines; None where it examines the suite itself."""
    if case := _case(item):
        return case.plugin
    plugin = _parameters(item).get("plugin")
    return plugin if isinstance(plugin, str) else None  # none where no plugin declares an environment


def _coverage(name: str, declared: Declaration) -> list[str]:
    """What is covered, and what is not: nothing is left out in silence."""
    known = {variant.family for variant in VARIANTS}
    modes = ", ".join(f"{mode.name} ({mode.tolerance})" for mode in declared.modes)
    lines = [f"kakeya: {name} covers {', '.join(sorted(known & set(declared.families)))}; in {modes}"]
    if missing := sorted(known - set(declared.families)):
        lines.append(f"kakeya: {name} does NOT cover {', '.join(missing)}")
    if unproven := sorted(set(declared.families) - known):
        lines.append(f"kakeya: this suite has NO checkpoint for {', '.join(unproven)}")
    if absent := [mutation for mutation in NUMERIC_MUTATIONS if mutation not in declared.mutations]:
        lines.append(f"kakeya: {name} brings NO mutation {', '.join(absent)}")
    lines += [f"kakeya: {name} is expected to fail {p}: {reason}" for p, reason in declared.expected_failures.items()]
    return lines

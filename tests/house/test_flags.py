"""The help of the commands: what is typed is said in the words of those who type it, and flags stand in groups."""

import io
from contextlib import redirect_stdout

import pytest

from kakeya_bench.compare.settings import CompareSettings
from kakeya_bench.load.settings import LoadSettings
from kakeya_bench.session.settings import SessionSettings
from kakeya_http_shim.settings import HttpSettings
from kakeya_local.settings import DemoSettings, UpSettings
from kakeya_router.settings import RouterSettings
from kakeya_shared.settings import flag_help
from kakeya_shared.settings.service import ServiceSettings
from kakeya_worker.inventory_settings import CheckSettings, ListSettings, PlanSettings, PullSettings
from kakeya_worker.settings import WorkerSettings

COMMANDS: tuple[type[ServiceSettings], ...] = (
    RouterSettings,
    WorkerSettings,
    HttpSettings,
    UpSettings,
    DemoSettings,
    SessionSettings,
    LoadSettings,
    CompareSettings,
    PlanSettings,
    PullSettings,
    ListSettings,
    CheckSettings,
)
PYTHON = ("int", "float", "str", "Path", "tuple[", "None", "Literal", "Annotated")


INSTALL_FLAGS = ("user", "system", "name", "run_as", "env", "replace", "dry_run")
INSTALLED = (WorkerSettings, UpSettings)


def help_of(settings: type[ServiceSettings]) -> str:
    out = io.StringIO()
    with redirect_stdout(out), pytest.raises(SystemExit) as ended:
        settings.parse(["--help"])
    assert ended.value.code == 0
    return out.getvalue()


@pytest.mark.parametrize("settings", COMMANDS)
def test_nothing_of_python_is_shown(settings: type[ServiceSettings]) -> None:
    alone = filter(flag_help.is_positional, settings.model_fields.values())
    shown_first = ("  --", *(f"  {flag_help.metavar(each)} " for each in alone))
    typed = [line.split() for line in help_of(settings).splitlines() if line.startswith(shown_first)]
    assert len(typed) >= len(settings.model_fields) - 1
    shown = [word for words in typed for word in words[1:2] if any(word.startswith(name) for name in PYTHON)]
    assert shown == []
    assert "(default" not in help_of(settings)


@pytest.mark.parametrize("settings", COMMANDS)
def test_each_flag_stands_in_a_group_and_names_its_variable(settings: type[ServiceSettings]) -> None:
    said = help_of(settings)
    assert "other options" not in said
    prefix = settings.model_config["env_prefix"]
    words = " ".join(said.split())
    assert [name for name in settings.model_fields if f"[{prefix}{name.upper()}]" not in words] == []


@pytest.mark.parametrize("settings", COMMANDS)
def test_groups_name_settings_that_there_are(settings: type[ServiceSettings]) -> None:
    tables = [vars(each).get("GROUPS", {}) for each in settings.__mro__]
    named = [name for table in tables for names in table.values() for name in names.split()]
    assert sorted(named) == sorted(settings.model_fields)


@pytest.mark.parametrize("settings", COMMANDS)
def test_the_help_ends_with_examples_that_are_taken(settings: type[ServiceSettings]) -> None:
    command = settings.model_config["cli_prog_name"]
    assert settings.EXAMPLES
    assert all(example.startswith(f"{command}") for example in settings.EXAMPLES)
    assert "examples:" in help_of(settings)


@pytest.mark.parametrize("settings", INSTALLED)
def test_what_installs_a_service_has_no_flag_of_the_command_that_it_installs(settings: type[ServiceSettings]) -> None:
    assert {*INSTALL_FLAGS} & {*settings.model_fields} == set()

"""Writes the reference of every setting, generated from the settings classes themselves.

python scripts/generate_configuration.py docs/configuration.md
"""

import sys
from pathlib import Path

from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from kakeya_http_shim.settings import HttpSettings
from kakeya_local.settings import DemoSettings, UpSettings
from kakeya_router.settings import RouterSettings
from kakeya_shared.settings import flag_help
from kakeya_shared.settings.service import ServiceSettings
from kakeya_worker.inventory_settings import CheckSettings, ListSettings, PlanSettings, PullSettings
from kakeya_worker.settings import WorkerSettings

HEADER = """# Configuration

Every flag of these commands has an environment variable; a flag wins over its variable, a variable over the default.
This page is generated from the settings classes (`make docs`); `kakeya COMMAND --help` shows the same.
"""
TABLE_HEAD = ("| flag | variable | unit | default | why that default | what it is |", "|" + " --- |" * 6)
SERVICES: dict[str, type[ServiceSettings]] = {
    "kakeya router": RouterSettings,
    "kakeya worker": WorkerSettings,
    "kakeya http": HttpSettings,
    "kakeya up": UpSettings,
    "kakeya demo": DemoSettings,
    "kakeya plan": PlanSettings,
    "kakeya models pull": PullSettings,
    "kakeya models list": ListSettings,
    "kakeya models check": CheckSettings,
}


def reference() -> str:
    """The whole page."""
    return "\n".join([HEADER, *(_table(command, settings) for command, settings in SERVICES.items())])


def _table(command: str, settings: type[ServiceSettings]) -> str:
    prefix = settings.model_config.get("env_prefix", "")
    rows = [_row(name, field, prefix) for name, field in settings.model_fields.items()]
    head = [
        "| flag | variable | unit | default | why that default | what it is |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    return "\n".join([f"## {command}\n", *head, *rows, ""])


def _row(name: str, field: FieldInfo, prefix: str) -> str:
    extra = field.json_schema_extra
    said = extra if isinstance(extra, dict) else {}
    default = "required" if field.default is PydanticUndefined else _shown(name, field.default)
    cells = [
        f"`{_typed(name, field)}`",
        f"`{prefix}{name.upper()}`",
        str(said.get("unit", "")),
        default,
        str(said.get("reason", "")),
        str(said.get("help", "")),
    ]
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def _typed(name: str, field: FieldInfo) -> str:
    return flag_help.metavar(field) if flag_help.is_positional(field) else f"--{name.replace('_', '-')}"


def _shown(name: str, default: object) -> str:
    if name == "threads":  # differs from machine to machine
        return "the usable processors"
    return "unset" if default in (None, "", ()) else f"`{default}`"


if __name__ == "__main__":
    target = Path(sys.argv[1])
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(reference())

"""Settings of a service: each field of a `ServiceSettings` is a flag and an environment variable at once.

The field's description names its unit and the reason of its default; the table of all of them in
docs/configuration.md is generated from the classes (`make docs`).
"""

import sys
from typing import Any, Self

from pydantic import Field, ValidationError
from pydantic_settings import BaseSettings, CliApp, SettingsConfigDict

EXIT_USAGE = 2


def setting(default: Any = ..., help: str = "", *, unit: str = "", reason: str = "", **limits: Any) -> Any:
    """A field of `ServiceSettings`.

    Args:
        default: the value when neither flag nor variable is given; none makes the setting required.
        help: what it is for.
        unit: of the value, e.g. "seconds", "bytes".
        reason: why the default is what it is.
        limits: pydantic's constraints (`gt`, `ge`, `le`, ...).
    """
    description = help + (f" [{unit}]" if unit else "") + (f". Default: {reason}" if reason else "")
    return Field(
        default,
        description=description,
        json_schema_extra={"help": help, "unit": unit, "reason": reason},
        **limits,
    )


class ServiceSettings(BaseSettings):
    """Base of a service's settings. A flag wins over its variable, a variable over the default."""

    @classmethod
    def configured(cls, *, command: str) -> SettingsConfigDict:
        """The model_config of `kakeya COMMAND`: flags in kebab case, variables KAKEYA_COMMAND_*."""
        return SettingsConfigDict(
            env_prefix=f"KAKEYA_{command.upper()}_",
            cli_prog_name=f"kakeya {command}",
            cli_kebab_case=True,
            cli_implicit_flags=True,
            cli_hide_none_type=True,
            cli_avoid_json=True,
            env_ignore_empty=True,  # how compose spells an unset variable
        )

    @classmethod
    def parse(cls, argv: list[str]) -> Self:
        """Reads flags and environment; on a bad value prints one line a field and exits with status 2."""
        try:
            return CliApp.run(cls, cli_args=argv)
        except ValidationError as error:
            for problem in error.errors():
                print(f"{cls._program()}: error: {cls._place(problem['loc'])}: {problem['msg']}", file=sys.stderr)
        raise SystemExit(EXIT_USAGE)

    @classmethod
    def _program(cls) -> str:
        return cls.model_config.get("cli_prog_name") or cls.__name__

    @classmethod
    def _place(cls, location: tuple[int | str, ...]) -> str:
        if not location:
            return "settings"
        field = str(location[0])
        return f"--{field.replace('_', '-')} ({cls.model_config.get('env_prefix', '')}{field.upper()})"

"""A command that is installed."""

from pathlib import Path
from typing import Annotated

from pydantic import SecretStr

from kakeya_shared.installed_service.service_command import Installable
from kakeya_shared.settings.service import Names, ServiceSettings, setting
from kakeya_shared.settings.typed_flags import MayBePath, is_here, is_no_url


class ToySettings(ServiceSettings):
    """Runs a toy."""

    model_config = ServiceSettings.configured(command="toy")

    model: Annotated[str, MayBePath(is_here)] = setting(help="a directory or a name")
    store: Annotated[str, MayBePath(is_no_url)] = setting("", "a directory or a URL")
    token: SecretStr | None = setting(None, "a secret")
    token_file: Path | None = setting(None, "the file of one")
    size: int = setting(1, "how large", ge=1)
    names: Names = setting((), "several")
    loud: bool = setting(False, "whether it is")


TOY = Installable[ToySettings](
    command="toy",
    settings=ToySettings,
    variables=("KAKEYA_TOY_",),
    stop_seconds=lambda settings: 20.0 + settings.size,
)

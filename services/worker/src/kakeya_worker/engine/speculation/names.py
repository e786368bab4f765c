"""Names of proposers that are no plugins by themselves: settings know them, which import nothing that takes time."""

from typing import Final

NONE: Final = "none"
DRAFT_MODEL: Final = "draft-model"

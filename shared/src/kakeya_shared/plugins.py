"""Plugins: found by entry point, loaded by name, and only then.

The built-ins come in by the same door as everybody else's.
"""

from importlib.metadata import EntryPoint, entry_points
from typing import Any


class PluginError(Exception):
    """A plugin that was asked for by name cannot be loaded; the message says the cure."""


def names(group: str) -> list[str]:
    """The plugins installed for a seam, sorted; none is imported."""
    return sorted({point.name for point in entry_points(group=group)})


def load(group: str, name: str, *, install: str = "") -> Any:
    """Imports one plugin.

    Args:
        group: the seam's entry point group, e.g. "kakeya.verifier".
        name: the plugin's name.
        install: the line that installs what a built-in of that name needs.

    Raises:
        PluginError: no plugin of that name is installed, or something it imports is missing or cannot be loaded.
    """
    found: tuple[EntryPoint, ...] = tuple(entry_points(group=group, name=name))
    cure = f"; install it with: {install}" if install else ""
    if not found:
        known = ", ".join(names(group)) or "none"
        raise PluginError(f"no {group} plugin is named {name!r} (installed: {known}){cure}")
    try:
        return found[0].load()
    except ModuleNotFoundError as error:
        raise PluginError(f"the {group} plugin {name!r} needs the module {error.name!r}{cure}") from error
    except ImportError as error:  # a shared library of it is missing, as MLX's where it was installed without `cpu`
        raise PluginError(f"the {group} plugin {name!r} cannot be imported: {error}{cure}") from error

"""Models that are installed as packages: found by the entry point group `kakeya.models`, taken by name.

An entry point names a callable without arguments that returns the directory of a checkpoint in the Hub's layout.
"""

import os
from importlib.metadata import entry_points
from pathlib import Path

from kakeya_shared import plugins

GROUP = "kakeya.models"


def names() -> list[str]:
    """The models that are installed, sorted; none is imported."""
    return plugins.names(GROUP)


def directory(name: str) -> Path:
    """Where an installed model's files are. Raises PluginError."""
    try:
        return Path(plugins.load(GROUP, name)())
    except plugins.PluginError:
        raise
    except Exception as error:  # whatever another package raises
        raise plugins.PluginError(f"the installed model {name!r} is broken: {type(error).__name__}: {error}") from error


def distribution(name: str) -> str:
    """What `pip install` calls the package that brings a model; the model's own name where that is not known."""
    for point in entry_points(group=GROUP, name=name):
        if point.dist is not None:
            return point.dist.name
    return name


def resolve(model: str) -> str:
    """What the name of a model stands for: a directory with a config.json, an installed model, else a hub id as it is.

    Raises:
        PluginError: such a model is installed and its package is broken.
    """
    if model in names() and not os.path.isfile(os.path.join(os.path.expanduser(model), "config.json")):
        return str(directory(model))
    return model

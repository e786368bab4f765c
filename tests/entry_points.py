"""Plugins that come with tests: entry points of a distribution that is made for processes that a test starts."""

from collections.abc import Mapping
from pathlib import Path


def install(directory: Path, group: str, objects: Mapping[str, str]) -> None:
    """Makes objects plugins for processes that have the directory on their path.

    Args:
        objects: by the plugin's name, each as `module:name`.
    """
    information = directory / "plugins_of_tests-0.dist-info"
    information.mkdir(parents=True)
    (information / "METADATA").write_text("Metadata-Version: 2.1\nName: plugins-of-tests\nVersion: 0\n")
    lines = [f"{name} = {found}\n" for name, found in objects.items()]
    (information / "entry_points.txt").write_text(f"[{group}]\n" + "".join(lines))

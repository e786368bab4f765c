"""The models on this host: those that are installed as packages, and those in the hub's cache."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kakeya_shared import installed_models, plugins
from kakeya_shared.checkpoint_files import flaw

INSTALLED = "installed"
_DOCUMENTS = ("config.json",)


@dataclass(frozen=True)
class LocalModel:
    """A model that `--model` takes.

    Attributes:
        revision: the hub's names of it, else the commit; "installed": it is a package; "file"; "ollama".
        directory: of its files, or its file.
        problem: why a worker cannot load it; "" where it can.
        family: as config.json or its file says it; "" where that is not known.
        quantization: how its weights are stored: a type of floats, bits, or GGUF's name; "" where that is not known.
        note: what does not hold of it, although it runs.
        config: what it says of itself, in the words of a config.json; empty where that is not known.
    """

    model: str
    revision: str
    num_bytes: int
    directory: Path
    problem: str
    family: str = ""
    quantization: str = ""
    note: str = ""
    config: Mapping[str, Any] = field(default_factory=dict, compare=False)


def local_models() -> Iterator[LocalModel]:
    """All of them; nothing is asked of the hub."""
    for name in installed_models.names():
        yield _installed(name)
    yield from _of_the_hub()


def _installed(name: str) -> LocalModel:
    try:
        directory = installed_models.directory(name)
    except plugins.PluginError as error:
        return LocalModel(name, INSTALLED, 0, Path(), str(error))
    num_bytes = sum(file.stat().st_size for file in directory.iterdir() if file.is_file())
    return LocalModel(name, INSTALLED, num_bytes, directory, flaw(directory, _DOCUMENTS))


def _of_the_hub() -> Iterator[LocalModel]:
    from huggingface_hub import constants, scan_cache_dir
    from huggingface_hub.errors import CacheNotFound

    try:
        cached = scan_cache_dir(constants.HF_HUB_CACHE)
    except CacheNotFound:
        return
    for repo in sorted(cached.repos, key=lambda repo: repo.repo_id):
        if repo.repo_type != "model":
            continue
        for revision in sorted(repo.revisions, key=lambda revision: revision.commit_hash):
            names = ", ".join(sorted(revision.refs)) or revision.commit_hash
            directory = Path(revision.snapshot_path)
            yield LocalModel(repo.repo_id, names, revision.size_on_disk, directory, flaw(directory, _DOCUMENTS))

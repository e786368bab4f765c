"""The files of a service: written together or not at all."""

import contextlib
import os
import pwd
import shutil
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from kakeya_shared.installed_service.service import ServiceError


@dataclass(frozen=True)
class ServiceFile:
    """One of them.

    Attributes:
        owner: the user who alone reads and writes it; "": all read it, and who installs it owns it.
    """

    path: Path
    text: str
    is_private: bool = False
    owner: str = ""


def write(files: Sequence[ServiceFile], kept: Collection[Path] = ()) -> None:
    """Writes all of them, each as a whole. Raises ServiceError: then those that were new are not there.

    Args:
        kept: as for `remove`.
    """
    new = [file.path for file in files if not file.path.exists()]
    try:
        for file in files:
            _write(file)
    except (OSError, KeyError) as error:
        remove(new, kept)
        raise ServiceError(f"{file.path} cannot be written: {getattr(error, 'strerror', None) or error}") from error


def _write(file: ServiceFile) -> None:
    file.path.parent.mkdir(parents=True, exist_ok=True)
    part = file.path.with_name(f"{file.path.name}.part")
    part.unlink(missing_ok=True)
    try:
        descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with open(descriptor, "w", encoding="utf-8", errors="surrogateescape") as written:
            written.write(file.text)
            os.fchmod(descriptor, 0o600 if file.is_private else 0o644)
            if file.owner:
                user = pwd.getpwnam(file.owner)
                os.fchown(descriptor, user.pw_uid, user.pw_gid)
            written.flush()
            os.fsync(descriptor)
        part.replace(file.path)
    finally:
        part.unlink(missing_ok=True)


def make_directory(path: Path, owner: str) -> None:
    """A directory, with those above it, in which `owner` writes ("": who makes it). Raises ServiceError."""
    try:
        path.mkdir(parents=True, exist_ok=True)
        if owner:
            shutil.chown(path, owner)
    except (OSError, LookupError) as error:
        raise ServiceError(f"{path} cannot be made: {getattr(error, 'strerror', None) or error}") from error


def remove(paths: Iterable[Path], kept: Collection[Path] = ()) -> None:
    """Removes files and directories, where they are there, and what is then empty above them. Raises ServiceError.

    Args:
        kept: directories that stay, even where they are empty.
    """
    for path in paths:
        try:
            if path.is_dir():
                shutil.rmtree(path)
            elif path.exists():
                path.unlink()
        except OSError as error:
            raise ServiceError(f"{path} cannot be removed: {error.strerror or error}") from error
        _remove_empty(path.parents, kept)


def _remove_empty(directories: Iterable[Path], kept: Collection[Path]) -> None:
    """From the first one on, up to one that stays, in which something is, or that this user cannot remove."""
    with contextlib.suppress(OSError):
        for directory in directories:
            if directory in kept:
                return
            if directory.is_dir():
                directory.rmdir()

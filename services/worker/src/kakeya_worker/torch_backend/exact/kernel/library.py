"""The kernel library: found, loaded once, and the variant of it that computes here."""

import ctypes
import functools
import os
from dataclasses import dataclass
from pathlib import Path

import structlog

from kakeya_worker.engine.seams.verifier import ModelRefused
from kakeya_worker.torch_backend.exact.kernel import build, interface

CHOICE_VARIABLE = "KAKEYA_WORKER_KERNEL"
"""That of the worker's setting --kernel. What runs a verifier without a worker is told by it, too."""
_log = structlog.get_logger()


@functools.cache
def load(path: Path = build.LIBRARY) -> ctypes.CDLL | None:
    """The library; None, after one warning, where it cannot be used."""
    try:
        stamp = build.read_stamp(path)
        if stamp is None:
            raise OSError(f"{path} is not there" if not path.exists() else f"{path} is no library of the kernel")
        if stamp.digest != build.digest():
            raise OSError(f"{path} was built from other sources")
        return interface.declare(ctypes.CDLL(str(path)))
    except (OSError, build.BuildError) as error:
        _log.warning(
            "no kernel library: exact mode runs in its eager form, slower, with the same bits",
            problem=str(error),
            cure=build.CURE,
        )
        return None


@dataclass(frozen=True)
class Kernel:
    """One variant of the library, ready to compute.

    Attributes:
        library: its functions, with their types.
        name: of the variant.
    """

    library: ctypes.CDLL
    name: str

    @property
    def variant(self) -> int:
        """As the library's functions take it."""
        pointer: int = self.library.kakeya_variant(self.name.encode())
        return pointer


def chosen_kernel() -> Kernel | None:
    """That of `chosen_variant`. Raises ModelRefused."""
    name, library = chosen_variant(), load()
    return Kernel(library, name) if library is not None and name is not None else None


def variants() -> tuple[str, ...]:
    """The variants that the library holds and this processor runs, best first; none without a library."""
    library = load()
    return tuple(library.kakeya_variants().decode().split()) if library else ()


def chosen_variant() -> str | None:
    """The variant to compute with, by KAKEYA_WORKER_KERNEL: auto (the best), off or a name; None for the eager form.

    Raises:
        ModelRefused: a variant that was asked for by name cannot run here.
    """
    choice = os.environ.get(CHOICE_VARIABLE) or "auto"
    if choice == "off":
        return None
    runnable = variants()
    if choice not in ("auto", *runnable):
        raise ModelRefused(f"kernel {choice!r} cannot run here; what can: {', '.join(('auto', *runnable, 'off'))}")
    return choice if choice != "auto" else next(iter(runnable), None)

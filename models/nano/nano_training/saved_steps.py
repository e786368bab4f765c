"""The state of a training run in a file, from which a later run goes on to the same weights."""

import hashlib
from pathlib import Path
from typing import Any, Protocol

import torch


class Resumable(Protocol):
    """What is saved."""

    def state_dict(self) -> dict[str, Any]: ...

    def load_state_dict(self, state: dict[str, Any]) -> None: ...


class SavedSteps:
    """One file, written whole or not at all.

    Args:
        path: of the file; its directory is made where it is missing.
        every_steps: after so many steps it is written anew.
    """

    def __init__(self, path: Path, every_steps: int = 50) -> None:
        self.path, self.every_steps = path, every_steps
        self._source = _digest_of_source()

    def save(self, step: int, trainer: Resumable, recipe: dict[str, Any]) -> None:
        """Replaces what was saved before. Raises OSError."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        unfinished = self.path.with_suffix(".unfinished")
        state = {"recipe": recipe, "source": self._source, "step": step, "trainer": trainer.state_dict()}
        torch.save(state, unfinished)
        unfinished.replace(self.path)

    def restore(self, trainer: Resumable, recipe: dict[str, Any]) -> int:
        """Puts the trainer where the file leaves off; how many steps it has taken, 0 where there is no file.

        Raises:
            ValueError: the file is of another recipe, or of other code: of texts that this run would not write.
        """
        if not self.path.exists():
            return 0
        state = torch.load(self.path)
        if (state["recipe"], state["source"]) != (recipe, self._source):
            raise ValueError(f"{self.path} is of a run with another recipe or other code: remove it to start anew")
        trainer.load_state_dict(state["trainer"])
        return int(state["step"])

    def remove(self) -> None:
        """Once the run is through."""
        self.path.unlink(missing_ok=True)


def _digest_of_source() -> str:
    directory, digest = Path(__file__).parent, hashlib.sha256()
    for path in sorted(directory.rglob("*.py")):
        digest.update(f"{path.relative_to(directory)}\n".encode() + path.read_bytes())
    return digest.hexdigest()

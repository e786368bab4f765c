"""The digest of a model: what it computes, apart from how."""

import hashlib
import json
from pathlib import Path

import structlog

from kakeya_shared.process.whole_file import replacing
from kakeya_worker.engine.seams.fingerprint import fingerprint
from kakeya_worker.engine.seams.verifier import ModelRefused
from kakeya_worker.models.model_config import ModelConfig

_log = structlog.get_logger()


def model_digest(config: ModelConfig, files: list[Path], cache_directory: Path | None) -> str:
    """SHA-256 over the config's numbers and the weight files, wherever they lie. Raises ModelRefused.

    Hashing reads every byte; the digest of a file that has not changed since (by device, inode, size, times and
    path) is remembered in the cache.
    """
    remembered = _Remembered(cache_directory / "digests.json" if cache_directory else None)
    try:
        digests = [remembered.digest(file) for file in files]
    except OSError as error:
        raise ModelRefused(f"the weights cannot be read: {error}") from error
    remembered.write()
    return fingerprint({"config": json.dumps(config.numbers, sort_keys=True), "weights": ",".join(digests)})


class _Remembered:
    """Digests of files, by what tells that they have not changed."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._digests = _read(path) if path is not None else {}
        self._is_changed = False

    def digest(self, file: Path) -> str:
        status = file.stat()
        # The time of the last change of status cannot be set back, as that of the content can.
        times = f"{status.st_mtime_ns}:{status.st_ctime_ns}"
        key = f"{status.st_dev}:{status.st_ino}:{status.st_size}:{times}:{file.resolve()}"
        if key not in self._digests:
            _log.info("reading the weights for their digest", file=file.name, bytes=status.st_size)
            with file.open("rb") as content:
                self._digests[key] = hashlib.file_digest(content, "sha256").hexdigest()
            self._is_changed = True
        return self._digests[key]

    def write(self) -> None:
        """Keeps what is known, beside what others have kept meanwhile. Not being able to is no error."""
        if self._path is None or not self._is_changed:
            return
        try:
            with replacing(self._path) as temporary:
                temporary.write_text(json.dumps(_read(self._path) | self._digests))
        except OSError as error:
            _log.warning("digests are not kept", path=str(self._path), error=str(error))


def _read(path: Path) -> dict[str, str]:
    """What is kept; nothing where it is missing or damaged."""
    try:
        kept = json.loads(path.read_text())
        return {key: value for key, value in kept.items() if isinstance(value, str)}
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, AttributeError, RecursionError) as error:
        _log.warning("damaged digests are computed again", path=str(path), error=str(error))
        return {}

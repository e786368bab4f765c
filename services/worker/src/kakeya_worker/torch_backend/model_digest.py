"""The digest of a model: what it computes, apart from how."""

import hashlib
import json
from pathlib import Path

import structlog

from kakeya_worker.engine.fingerprint import fingerprint
from kakeya_worker.engine.verifier import ModelRefused
from kakeya_worker.torch_backend.model_config import ModelConfig

_log = structlog.get_logger()


def model_digest(config: ModelConfig, files: list[Path], cache_directory: Path | None) -> str:
    """SHA-256 over the config's numbers and the weight files, wherever they lie. Raises ModelRefused.

    Hashing reads every byte; the digest of a file that has not changed since (by device, inode, size and time) is
    remembered in the cache.
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
        self._digests: dict[str, str] = {}
        self._is_changed = False
        if path is not None and path.is_file():
            try:
                self._digests = {str(key): str(value) for key, value in json.loads(path.read_text()).items()}
            except (OSError, ValueError, AttributeError) as error:
                _log.warning("damaged digests are computed again", path=str(path), error=str(error))

    def digest(self, file: Path) -> str:
        status = file.stat()
        key = f"{status.st_dev}:{status.st_ino}:{status.st_size}:{status.st_mtime_ns}"
        if key not in self._digests:
            with file.open("rb") as content:
                self._digests[key] = hashlib.file_digest(content, "sha256").hexdigest()
            self._is_changed = True
        return self._digests[key]

    def write(self) -> None:
        if self._path is None or not self._is_changed:
            return
        temporary = self._path.with_suffix(".part")
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            temporary.write_text(json.dumps(self._digests))
            temporary.replace(self._path)
        except OSError as error:
            _log.warning("digests are not kept", path=str(self._path), error=str(error))

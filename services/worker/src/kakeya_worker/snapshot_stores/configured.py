"""The snapshot store that a worker is started with."""

from pathlib import Path

from kakeya_shared import plugins
from kakeya_shared.process.service_process import StartError
from kakeya_worker.snapshot_stores.key_file import KeyFileError, read_keys
from kakeya_worker.snapshots.snapshot_store import INSTALL, SnapshotStore, SnapshotStoreError, open_store


def configured_store(url: str, key_file: Path | None) -> SnapshotStore | None:
    """None where there is no URL; what is in it is encrypted where there are keys.

    Raises:
        StartError: it cannot be used, or there is no key, or nothing to encrypt with.
    """
    if not url and key_file is not None:
        raise StartError("--snapshot-key-file without --snapshots: there is nothing to encrypt")
    if not url:
        return None
    try:
        store = open_store(url)
    except (plugins.PluginError, SnapshotStoreError) as error:
        raise StartError(f"--snapshots: {error}") from error
    return store if key_file is None else _encrypted(store, key_file)


def _encrypted(store: SnapshotStore, key_file: Path) -> SnapshotStore:
    try:
        from kakeya_worker.snapshot_stores.encrypted import EncryptedStore
    except ModuleNotFoundError as error:
        raise StartError(f"--snapshot-key-file needs {error.name}: {INSTALL}") from error
    try:
        return EncryptedStore(store, read_keys(key_file))
    except KeyFileError as error:
        raise StartError(f"--snapshot-key-file: {error}") from error

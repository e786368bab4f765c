"""A model is brought here whole, so that a worker loads it without asking the hub: what is missing is downloaded."""

import re
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from huggingface_hub import HfApi, constants, hf_hub_url
from huggingface_hub.errors import LocalEntryNotFoundError, OfflineModeIsEnabled
from huggingface_hub.file_download import repo_folder_name
from huggingface_hub.hf_api import RepoFile
from huggingface_hub.utils import build_hf_headers, filter_repo_objects

from kakeya_worker.hub.blob import Blob, Progress, digest, fetch
from kakeya_worker.hub.files import OF_A_CHECKPOINT, OF_A_TOKENIZER
from kakeya_worker.hub.hub_error import HubError, explained

WANTED = tuple(dict.fromkeys((*OF_A_CHECKPOINT, *OF_A_TOKENIZER)))
_DIGEST = re.compile("[0-9a-f]{40}|[0-9a-f]{64}")
_LARGEST_BYTES = constants.MAX_HTTP_DOWNLOAD_SIZE
_KEPT_FREE_BYTES = 1 << 30  # the host goes on, and a worker has its own cache to fill


@dataclass(frozen=True)
class Pulled:
    """A model that is here whole.

    Attributes:
        directory: what a worker can be given.
        num_bytes: of its files.
        num_downloaded: bytes that came now.
    """

    model: str
    directory: Path
    num_bytes: int
    num_downloaded: int


def pull(model: str, revision: str | None, report: Callable[[str], None]) -> Pulled:
    """Downloads what is missing of a hub's model, and checks all of it.

    Raises:
        HubError: it cannot be brought here whole; what has come of it is kept for the next time.
    """
    api = HfApi()
    with explained(model, revision):
        try:
            num_downloaded = _download(api, model, revision, report)
        except (OfflineModeIsEnabled, LocalEntryNotFoundError):
            report("the hub is not asked (HF_HUB_OFFLINE); looking at what is here")
            num_downloaded = 0
        # It links what has come into the model's directory, and downloads the little that we have not.
        directory = Path(
            api.snapshot_download(model, revision=revision, allow_patterns=list(WANTED), tqdm_class=Progress)
        )
    return Pulled(model, directory, _checked(directory, report), num_downloaded)


def _download(api: HfApi, model: str, revision: str | None, report: Callable[[str], None]) -> int:
    commit = api.model_info(model, revision=revision).sha
    listed = api.list_repo_tree(model, recursive=True, revision=commit)
    wanted = filter_repo_objects(
        [file for file in listed if isinstance(file, RepoFile)], allow_patterns=list(WANTED), key=lambda file: file.path
    )
    blobs = Path(constants.HF_HUB_CACHE).expanduser() / repo_folder_name(repo_id=model, repo_type="model") / "blobs"
    missing = [blob for blob in map(Blob.of, wanted) if not (blobs / blob.digest).exists()]
    _demand_room(model, missing, blobs)
    num_downloaded = 0
    for number, blob in enumerate(missing, start=1):
        if blob.num_bytes > _LARGEST_BYTES:
            continue  # by plain HTTP the hub does not hand out so much; its client has another way
        report(f"{blob.path}, {blob.num_bytes:,} bytes ({number} of {len(missing)} files that are missing)")
        url = hf_hub_url(model, blob.path, revision=commit)
        num_there = fetch(blob, blobs, url, build_hf_headers())
        if num_there:
            report(f"{blob.path}: went on after {num_there:,} bytes")
        num_downloaded += blob.num_bytes - num_there
    return num_downloaded


def _demand_room(model: str, missing: Sequence[Blob], blobs: Path) -> None:
    """Raises HubError where the disk is too small."""
    parts = (blobs / f"{blob.digest}.part" for blob in missing)
    num_there = sum(part.stat().st_size for part in parts if part.exists())
    needed = sum(blob.num_bytes for blob in missing) - num_there
    place = next(each for each in blobs.parents if each.exists())
    free = shutil.disk_usage(place).free
    if needed and needed + _KEPT_FREE_BYTES > free:
        raise HubError(
            f"{model} needs {needed:,} more bytes, and {free:,} are free at {place}: `hf cache` clears what is there, "
            "HF_HOME names another place"
        )


def _checked(directory: Path, report: Callable[[str], None]) -> int:
    """The bytes of a model's files, each with the digest that is its name in the cache. Raises HubError."""
    report("checking digests")
    num_bytes = 0
    for file in sorted(each for each in directory.rglob("*") if each.is_file()):
        blob = file.resolve()
        if not file.is_symlink() or not _DIGEST.fullmatch(blob.name):
            continue  # on a file system without links they are copies: nothing says what they should be
        if (found := digest(blob, blob.name)) != blob.name:
            blob.unlink()
            file.unlink()
            raise HubError(
                f"{file.relative_to(directory)} is damaged: its digest is {found}, and should be {blob.name}. It is "
                "removed; pull it again"
            )
        num_bytes += blob.stat().st_size
    return num_bytes

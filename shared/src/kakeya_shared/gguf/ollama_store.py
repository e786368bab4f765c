"""The store of Ollama on this host: its models are GGUF files under the names of their digests, found by manifests.

A manifest lies at `manifests/HOST/NAMESPACE/NAME/TAG`; a blob at `blobs/sha256-DIGEST`. Nothing is asked of Ollama.
"""

import json
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from kakeya_shared.gguf.gguf_error import GgufError

PREFIX: Final = "ollama:"
_HOST: Final = "registry.ollama.ai"
_NAMESPACE: Final = "library"
_TAG: Final = "latest"
_PART: Final = re.compile(r"\w[\w.-]*")
_DIGEST: Final = re.compile(r"sha256:([0-9a-f]{64})")
_KIND: Final = "application/vnd.ollama.image."
_MOST_MANIFEST_BYTES: Final = 1 << 20


@dataclass(frozen=True)
class OllamaModel:
    """A model of the store.

    Attributes:
        name: as `ollama:` takes it: NAME:TAG, with its namespace and host where these are not Ollama's own.
        path: of its GGUF file, which may be missing.
        num_bytes: of all that belongs to it, by the manifest.
        has_projector: pictures come in by a file of its own, which is left out.
    """

    name: str
    path: Path
    num_bytes: int
    has_projector: bool


def directory() -> Path:
    """Of the store, which may not be there: $OLLAMA_MODELS, else ~/.ollama/models."""
    return Path(os.path.expanduser(os.environ.get("OLLAMA_MODELS") or "~/.ollama/models"))


def find(name: str) -> OllamaModel:
    """A model by its name.

    Args:
        name: [[HOST/]NAMESPACE/]NAME[:TAG], as Ollama takes it.

    Raises:
        GgufError: there is none of that name, or it cannot run here.
    """
    *place, last = name.split("/")
    plain, _, tag = last.partition(":")
    parts = [*(_HOST, _NAMESPACE)[: 2 - len(place)], *place, plain, tag or _TAG]
    if len(place) > 2 or not all(_PART.fullmatch(part.replace(":", "_")) for part in parts):  # a host may have a port
        raise GgufError(f"{name!r} is no name of Ollama's: those are [NAMESPACE/]NAME[:TAG]")
    store = directory()
    manifest = store.joinpath("manifests", *parts)
    if not manifest.is_file():
        known = ", ".join(each.name for each in models()) or "none"
        raise GgufError(f"Ollama's store at {store} has no model {name!r} (it has: {known}); `ollama pull {name}`")
    return _read(store, manifest)


def models() -> Iterator[OllamaModel]:
    """All of the store, by name; manifests that cannot be read, or are of no model that can run, are left out."""
    store = directory()
    for manifest in sorted(store.glob("manifests/*/*/*/*")):
        if manifest.is_file():
            try:
                yield _read(store, manifest)
            except GgufError:
                continue


def _read(store: Path, manifest: Path) -> OllamaModel:
    """Raises GgufError."""
    host, namespace, name, tag = manifest.parts[-4:]
    shown = f"{name}:{tag}"
    if (host, namespace) != (_HOST, _NAMESPACE):
        shown = f"{namespace}/{shown}" if host == _HOST else f"{host}/{namespace}/{shown}"
    layers = _layers(manifest)
    of_kind = {
        kind: [layer for layer in layers if layer["mediaType"] == _KIND + kind]
        for kind in ("model", "adapter", "projector")
    }
    if of_kind["adapter"]:
        raise GgufError(f"{shown} has an adapter (LoRA), which cannot run here; `ollama create` can merge none")
    if len(of_kind["model"]) != 1:
        raise GgufError(f"{shown} has {len(of_kind['model'])} files of weights; what can run: one in GGUF")
    digest = _DIGEST.fullmatch(of_kind["model"][0]["digest"])
    if digest is None:
        raise GgufError(f"{manifest} cannot be read: it names no SHA-256")
    num_bytes = sum(layer["size"] for layer in layers)
    return OllamaModel(shown, store / "blobs" / f"sha256-{digest[1]}", num_bytes, bool(of_kind["projector"]))


def _layers(manifest: Path) -> list[dict[str, Any]]:
    """Each with its mediaType, digest and size. Raises GgufError."""
    try:
        with manifest.open("rb") as file:
            layers = json.loads(file.read(_MOST_MANIFEST_BYTES))["layers"]
        return [
            {"mediaType": str(each["mediaType"]), "digest": str(each["digest"]), "size": int(each["size"])}
            for each in layers
        ]
    except (OSError, ValueError, LookupError, TypeError, RecursionError) as error:
        raise GgufError(f"{manifest} cannot be read: {error!r}") from error

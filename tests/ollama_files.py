"""A store laid out as Ollama lays out its own."""

import hashlib
import json
from pathlib import Path
from typing import Any

KIND = "application/vnd.ollama.image."


def add(
    store: Path,
    name: str,
    model: bytes,
    tag: str = "latest",
    *,
    place: str = "library",
    host: str | None = None,
    **more: bytes,
) -> Path:
    """Adds a model; returns its manifest.

    Args:
        more: other layers, by the end of their media type.
    """
    layers = [_layer(store, "model", model), *(_layer(store, kind, content) for kind, content in more.items())]
    return write_manifest(store, name, {"schemaVersion": 2, "layers": layers}, tag, place=place, host=host)


def write_manifest(
    store: Path, name: str, manifest: Any, tag: str = "latest", *, place: str = "library", host: str | None = None
) -> Path:
    """Writes what is to be a manifest, whatever it says."""
    path = store / "manifests" / (host or "registry.ollama.ai") / place / name / tag
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(manifest))
    return path


def _layer(store: Path, kind: str, content: bytes) -> dict[str, Any]:
    digest = hashlib.sha256(content).hexdigest()
    (store / "blobs").mkdir(parents=True, exist_ok=True)
    (store / "blobs" / f"sha256-{digest}").write_bytes(content)
    return {"mediaType": KIND + kind, "digest": f"sha256:{digest}", "size": len(content)}

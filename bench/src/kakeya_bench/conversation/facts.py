"""What is known of the sessions of a run before their first turn."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from kakeya import AsyncSession, kv_bytes
from kakeya.cli.flags import installed_models
from kakeya.cli.flags.installed_models import BrokenModel
from kakeya.cli.output.document import document
from kakeya.kv_bytes import ConfigError
from kakeya_bench.conversation.runtime import Workers


@dataclass(frozen=True, slots=True)
class Facts:
    """The model, how it is served, and what its KV must weigh.

    Attributes:
        bytes_per_token: KV of one token by the model's config.json; None where that cannot be computed.
        why_not: why it cannot.
        worker: what the router says of the first session's worker; empty where it does not say.
    """

    model: str
    fingerprint: str
    exact: bool
    sink: int
    window: int
    reserved_bytes: int
    kv_dtype: str | None
    bytes_per_token: int | None
    why_not: str
    worker: Mapping[str, object] = field(default_factory=dict)

    def document(self) -> dict[str, object]:
        """As it stands in a report."""
        plateau = (self.sink + self.window) * self.bytes_per_token if self.bytes_per_token else None
        return {
            "name": self.model,
            "fingerprint": self.fingerprint,
            "exact": self.exact,
            "sink": self.sink,
            "window": self.window,
            "reserved_bytes": self.reserved_bytes,
            "kv_dtype": self.kv_dtype,
            "kv_bytes_per_token": self.bytes_per_token,
            "kv_live_bytes_at_plateau": plateau,
            "worker": dict(self.worker),
        }


async def learn(
    session: AsyncSession, workers: Workers, *, config: Path | None = None, beside: Path | None = None,
    kv_dtype: str | None = None,
) -> Facts:  # fmt: skip
    """What a session that was just opened, its worker and the model's files say. Raises KakeyaError.

    Args:
        config: the config.json that was named, or its directory.
        beside: where else it may be: the tokenizer's directory.
        kv_dtype: what was named; None takes the worker's word.
    """
    assert session.model is not None and session.sink is not None and session.window is not None  # noqa: S101, PT018  # it was opened here
    worker = await workers.find((await session.info()).worker)
    dtype = kv_dtype or (worker.dtype if worker else None) or None
    weight, why_not = bytes_per_token(session.model, dtype, config, beside)
    return Facts(
        model=session.model,
        fingerprint=session.fingerprint or "",
        exact=bool(session.exact),
        sink=session.sink,
        window=session.window,
        reserved_bytes=session.reserved_bytes or 0,
        kv_dtype=dtype,
        bytes_per_token=weight,
        why_not=why_not,
        worker=document(worker) if worker else {},
    )


def bytes_per_token(
    model: str, dtype: str | None, config: Path | None, beside: Path | None = None
) -> tuple[int | None, str]:
    """KV of one token, by the first of these files that there is, else by the installed model's; or why not."""
    if dtype is None:
        return None, "the type of K and V is not known: name it with --kv-dtype, or take an operator's key"
    try:
        place = config or beside or installed_models.directory(model)
        if place is None:
            return None, f"the config.json of {model!r} is not known: name it with --config"
        return kv_bytes.kv_bytes_per_token(kv_bytes.read_config(place), dtype), ""
    except (ConfigError, BrokenModel) as error:
        return None, str(error)

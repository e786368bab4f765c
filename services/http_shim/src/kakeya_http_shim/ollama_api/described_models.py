"""What Ollama's API says of models: those that are served are there and loaded."""

from collections.abc import Mapping
from hashlib import sha256
from typing import Any, Final

from pydantic import BaseModel, Field

from kakeya import ServedModel
from kakeya_http_shim.choices import thoughts
from kakeya_http_shim.models.served_models import TextModel

_TAG: Final = ":latest"
NEVER: Final = "9999-12-31T23:59:59Z"
"""When a model will be unloaded: clients show the time until then."""


class OllamaDetails(BaseModel):
    """What the runtime does not tell is empty."""

    parent_model: str = ""
    format: str = ""
    family: str = ""
    families: list[str] = []
    parameter_size: str = ""
    quantization_level: str = ""


class _Named(BaseModel):
    name: str = Field(description="with `:latest`, if it has no tag")
    model: str = Field(description="the same")
    size: int = Field(0, description="0: the runtime does not tell it")
    digest: str = Field(description="SHA-256 of the name and the tokenizer's digest")
    details: OllamaDetails


class OllamaListed(_Named):
    """A model that can be asked for."""

    modified_at: str = Field(description="when this server started")


class OllamaList(BaseModel):
    """The models that can be asked for."""

    models: list[OllamaListed]


class OllamaRunning(_Named):
    """A model that is loaded, as all are."""

    expires_at: str = Field(description="never")
    size_vram: int = Field(0, description="0: the runtime does not tell it")
    context_length: int = Field(description="tokens of a conversation that the model sees at once; it may be longer")


class OllamaRunningList(BaseModel):
    """The models that are loaded."""

    models: list[OllamaRunning]


class OllamaShown(BaseModel):
    """One model."""

    template: str = Field(description="its chat template, in Jinja")
    details: OllamaDetails
    model_info: dict[str, Any] = Field(description="`kakeya.context_length` among it, as of `/api/ps`")
    capabilities: list[str] = Field(description="`completion`, and where the model can, `tools` and `thinking`")
    modified_at: str = Field(description="when this server started")


class OllamaVersion(BaseModel):
    """Of Ollama, whose API this is, since clients ask for it to know what they may use."""

    version: str
    kakeya: str = Field(description="of this server")


def listed(models: Mapping[str, ServedModel], modified_at: str) -> OllamaList:
    """By their names."""
    return OllamaList(
        models=[OllamaListed(**_named(name, model), modified_at=modified_at) for name, model in models.items()]
    )


def running(models: Mapping[str, ServedModel]) -> OllamaRunningList:
    """By their names."""
    return OllamaRunningList(
        models=[
            OllamaRunning(**_named(name, model), expires_at=NEVER, context_length=model.num_lane_tokens)
            for name, model in models.items()
        ]
    )


def shown(model: TextModel, modified_at: str) -> OllamaShown:
    """What is known of a model."""
    served = model.served
    can = {
        "completion": True,
        "tools": model.tokenizer.writes_tools and model.tool_family is not None,
        "thinking": thoughts.can_be_asked_for(model),
    }
    info = {
        "general.architecture": "kakeya",
        "general.basename": served.name,
        "kakeya.context_length": served.num_lane_tokens,
        "kakeya.vocab_size": served.vocab_size,
        "kakeya.sink": served.sink,
        "kakeya.window": served.window,
    }
    return OllamaShown(
        template=model.tokenizer.templates[0] if model.tokenizer.templates else "",
        details=OllamaDetails(),
        model_info=info,
        capabilities=[name for name, is_there in can.items() if is_there],
        modified_at=modified_at,
    )


def _named(name: str, model: ServedModel) -> dict[str, Any]:
    tagged = name if ":" in name else name + _TAG
    digest = sha256(f"{model.name}\n{model.tokenizer_digest}".encode()).hexdigest()
    return {"name": tagged, "model": tagged, "digest": digest, "details": OllamaDetails()}

"""Files of a model that the demo reads itself, such as config.json."""

from pathlib import Path

from kakeya_local.errors import StackError


def model_file(model: str, name: str) -> Path:
    """The local path of a model's file, downloaded where the model is a hub id. Raises StackError."""
    path = Path(model) / name
    if Path(model).is_dir():
        if not path.is_file():
            raise StackError(f"the model directory {model} holds no {name}")
        return path
    import huggingface_hub
    from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError

    try:
        return Path(huggingface_hub.hf_hub_download(model, name))
    except (HfHubHTTPError, LocalEntryNotFoundError) as error:
        raise StackError(f"cannot get {name} of {model}: {error}") from error

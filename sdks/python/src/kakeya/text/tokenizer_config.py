"""What the files beside a tokenizer say of it: its special tokens, what else was added, its chat templates."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kakeya.text.tokenizer_files import read

if TYPE_CHECKING:
    from tokenizers import AddedToken

_NAMES = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token")
_FLAGS = ("single_word", "lstrip", "rstrip", "normalized")
_TEMPLATES = "additional_chat_templates"


@dataclass(frozen=True)
class TokenizerConfig:
    """As transformers reads these files beside a tokenizer.json.

    What they say of tokens before and behind a text (`add_bos_token`) does not count there: tokenizer.json says it.

    Attributes:
        special_tokens: by their names, as templates are told them.
        added_tokens: what the vocabulary has, too, if tokenizer.json does not name it.
        templates: chat templates by their names, of which `default` and `tool_use` have a meaning.
        cleans_up: whether blanks in front of punctuation are taken out of what is decoded.
        cleans_up_bpe: whether so even where that changes what was said.
    """

    special_tokens: Mapping[str, str] = field(default_factory=dict)
    added_tokens: "tuple[AddedToken, ...]" = ()
    templates: Mapping[str, str] = field(default_factory=dict)
    cleans_up: bool = False
    cleans_up_bpe: bool = False

    @classmethod
    def load(cls, directory: Path) -> "TokenizerConfig":
        """Raises TokenizerError and OSError where a file cannot be read, ValueError and TypeError for what it says."""
        config = read(directory / "tokenizer_config.json")
        numbered = config.get("added_tokens_decoder")
        if numbered is None:  # as older files have it
            config |= read(directory / "special_tokens_map.json")
            old = read(directory / "added_tokens.json")
            numbered = {id_: {"content": content} for content, id_ in old.items()}
        named, unnamed = _special_tokens(config)
        special = {token.content for token in (*named.values(), *unnamed)}
        in_order = (token for _, token in sorted(numbered.items(), key=lambda item: int(item[0])))
        added = [_token(token, special=token["content"] in special) for token in map(_checked, in_order)]
        return cls(
            special_tokens={name: token.content for name, token in named.items()},
            added_tokens=(*added, *named.values(), *unnamed),
            templates=_templates(directory, config.get("chat_template")),
            cleans_up=config.get("clean_up_tokenization_spaces") is True,
            cleans_up_bpe=config.get("clean_up_tokenization_spaces_for_bpe_even_though_it_will_corrupt_output") is True,
        )


def _special_tokens(config: Mapping[str, Any]) -> "tuple[dict[str, AddedToken], list[AddedToken]]":
    extra = config.get("extra_special_tokens") or config.get("additional_special_tokens") or []
    if not isinstance(extra, dict | list):
        raise TypeError(f"extra_special_tokens is {extra!r}, neither a list of tokens nor a dict of named ones")
    others = [name for name, value in config.items() if name.endswith("_token") and isinstance(value, str | dict)]
    given = {name: config.get(name) for name in dict.fromkeys([*_NAMES, *others])}
    if isinstance(extra, dict):
        given |= extra
    named = {name: _named(name, value) for name, value in given.items() if value is not None}
    return named, [_named("extra_special_tokens", value) for value in extra] if isinstance(extra, list) else []


def _named(name: str, value: object) -> "AddedToken":
    if isinstance(value, str):
        value = {"content": value}
    if not isinstance(value, dict):
        raise TypeError(f"{name} is {value!r}, which is no token")
    return _token(_checked(value), special=True)


def _checked(value: object) -> dict[str, Any]:
    if not isinstance(value, dict) or not isinstance(value.get("content"), str):
        raise TypeError(f"an added token is {value!r}, without its content")
    return value


def _token(value: Mapping[str, Any], *, special: bool) -> "AddedToken":
    """As it says, or special although it does not say so."""
    from tokenizers import AddedToken

    flags = {name: bool(value[name]) for name in _FLAGS if name in value}
    return AddedToken(value["content"], **flags, special=special or value.get("special") is True)


def _templates(directory: Path, said: Any) -> dict[str, str]:
    """Those in files of their own, else those in tokenizer_config.json: one, or several with names."""
    alone, folder = directory / "chat_template.jinja", directory / _TEMPLATES
    found: dict[str, Any] = {path.stem: path.read_text("utf-8") for path in sorted(folder.glob("*.jinja"))}
    if alone.is_file():
        found["default"] = alone.read_text("utf-8")
    if not found:
        if isinstance(said, list):
            said = {each["name"]: each["template"] for each in said}
        found = said if isinstance(said, dict) else {} if said is None else {"default": said}
    for template in found.values():
        if not isinstance(template, str):
            raise TypeError(f"its chat template is no text but {template!r:.80}")
    return found

"""What KV must weigh, by a config.json."""

import json
from pathlib import Path
from typing import Any

import pytest

from kakeya.kv_bytes import ConfigError, kv_bytes_per_token, kv_live_bytes, read_config

QWEN = {"num_hidden_layers": 28, "num_attention_heads": 16, "num_key_value_heads": 8, "head_dim": 128}


def test_bytes_of_a_token() -> None:
    assert kv_bytes_per_token(QWEN, "bfloat16") == 114_688
    assert kv_bytes_per_token(QWEN, "float16") == 114_688
    assert kv_bytes_per_token(QWEN, "float32") == 2 * 114_688
    assert kv_bytes_per_token(QWEN, "int8") == 114_688 * 130 / 256  # with a scale of two bytes for each 128


@pytest.mark.parametrize("absent", [{}, {"head_dim": None, "num_key_value_heads": None}])
def test_bytes_of_a_token_of_an_old_model(absent: dict[str, None]) -> None:
    """Without head_dim it follows from the hidden size, without kv heads all heads have their own."""
    old = {"num_hidden_layers": 2, "num_attention_heads": 4, "hidden_size": 64, **absent}
    assert kv_bytes_per_token(old, "float32") == 2 * 4 * 16 * 4 * 2


@pytest.mark.parametrize(
    ("family", "num_kv_heads", "head_dim"), [("mistral", 8, 2), ("qwen3", 32, 128), ("llama", 32, 2)]
)
def test_what_is_left_out_is_the_family_s_own(family: str, num_kv_heads: int, head_dim: int) -> None:
    config = {"model_type": family, "num_hidden_layers": 1, "num_attention_heads": 32, "hidden_size": 64}
    assert kv_bytes_per_token(config, "float32") == num_kv_heads * head_dim * 4 * 2


@pytest.mark.parametrize("value", [None, "28", 28.5, 0, -1, [28], True])
@pytest.mark.parametrize("name", ["num_hidden_layers", "num_attention_heads"])
def test_a_config_without_a_size(name: str, value: Any) -> None:
    with pytest.raises(ConfigError, match=rf"config\.json has no {name} that is a whole number above 0"):
        kv_bytes_per_token({**QWEN, name: value}, "float32")


@pytest.mark.parametrize("value", ["8", 8.5, -8, [8]])
@pytest.mark.parametrize("name", ["num_key_value_heads", "head_dim"])
def test_a_config_with_a_wrong_size(name: str, value: Any) -> None:
    with pytest.raises(ConfigError, match=rf"config\.json has no {name} that is a whole number above 0"):
        kv_bytes_per_token({**QWEN, name: value}, "float32")


def test_a_config_without_a_width() -> None:
    with pytest.raises(ConfigError, match=r"config\.json has no hidden_size that is"):
        kv_bytes_per_token({**QWEN, "head_dim": None}, "float32")


def test_a_type_of_unknown_size() -> None:
    with pytest.raises(ConfigError, match=r"cannot be computed: the size of 'int3' is not known"):
        kv_bytes_per_token(QWEN, "int3")


@pytest.mark.parametrize(("history", "live_tokens"), [(0, 0), (1, 1), (67, 67), (68, 68), (69, 68), (5000, 68)])
def test_live_bytes_plateau(history: int, live_tokens: int) -> None:
    assert kv_live_bytes(history, sink=4, window=64, bytes_per_token=114_688) == live_tokens * 114_688


def test_a_config_is_named_by_itself_or_by_its_directory(tmp_path: Path) -> None:
    file = tmp_path / "config.json"
    file.write_text(json.dumps(QWEN))
    assert read_config(file) == read_config(tmp_path) == QWEN
    file.write_text(json.dumps({"model_type": "llava", "text_config": QWEN}))
    assert read_config(file) == QWEN, "that of the language model"


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "is no JSON: "),
        (b"{", "is no JSON: "),
        (b"\xff\xfe", "is no JSON: "),
        (b"[" * 100_000, "is no JSON: "),
        (b"[1]", "is no JSON object"),
    ],
)
def test_a_config_that_is_none(tmp_path: Path, content: bytes, says: str) -> None:
    file = tmp_path / "config.json"
    file.write_bytes(content)
    with pytest.raises(ConfigError) as raised:
        read_config(tmp_path)
    assert str(raised.value).startswith(f"{file} {says}")


def test_a_config_that_cannot_be_read(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "config.json"):
        with pytest.raises(ConfigError) as raised:
            read_config(path)
        assert str(raised.value) == f"{tmp_path / 'config.json'}: No such file or directory"

"""Which files of a model are wanted."""

OF_A_CHECKPOINT = ("*.json", "*.safetensors")
"""What a worker loads."""

OF_A_TOKENIZER = (
    "tokenizer*",
    "*.tiktoken",
    "special_tokens_map.json",
    "added_tokens.json",
    "chat_template.jinja",
    "additional_chat_templates/*.jinja",
    "generation_config.json",
    "config.json",
)
"""What clients and the HTTP shim load: the patterns of `kakeya.text.tokenizer_files`, which no service imports."""

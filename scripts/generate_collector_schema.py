"""Writes one JSON Schema of what our collectors are configured with, from the schemas in the collector's own sources.

python scripts/generate_collector_schema.py CHECKOUT VERSION tests/unit/ops/collector.schema.json

CHECKOUT is one of open-telemetry/opentelemetry-collector (Apache-2.0). Each part there has a config.schema.yaml that
refers to others by their folders. Of the section `service`, which has none, this says what service/config.go does.
"""

import json
import posixpath
import sys
from pathlib import Path
from typing import Any

import yaml

PARTS = {
    "receivers": {"otlp": "receiver/otlpreceiver"},
    "processors": {"batch": "processor/batchprocessor", "memory_limiter": "processor/memorylimiterprocessor"},
    "exporters": {"otlp": "exporter/otlpexporter", "debug": "exporter/debugexporter"},
}
_SAID_ELSEWHERE = {"description", "format", "$defs"}
_NAMES = {"type": "array", "items": {"type": "string"}, "minItems": 1}
_LEVEL = {"enum": ["none", "basic", "normal", "detailed"]}
"""A number to the collector's code, of which its schema speaks, and a word in a configuration."""
_SERVICE = {
    "type": "object",
    "properties": {
        "extensions": _NAMES,
        "telemetry": {
            "type": "object",
            "properties": {
                "metrics": {
                    "type": "object",
                    "properties": {"level": _LEVEL},
                    "additionalProperties": False,
                }
            },
            "additionalProperties": False,
        },
        "pipelines": {
            "type": "object",
            "patternProperties": {
                "^(traces|metrics|logs)(/.+)?$": {
                    "type": "object",
                    "properties": {"receivers": _NAMES, "processors": _NAMES, "exporters": _NAMES},
                    "required": ["receivers", "exporters"],
                    "additionalProperties": False,
                }
            },
            "additionalProperties": False,
            "minProperties": 1,
        },
    },
    "required": ["pipelines"],
    "additionalProperties": False,
}


class Bundle:
    """Definitions by the folder that they come from and their name there."""

    def __init__(self, checkout: Path) -> None:
        self._checkout = checkout
        self.definitions: dict[str, Any] = {"config/configtelemetry.level": _LEVEL}

    def reference(self, folder: str, name: str = "") -> dict[str, Any]:
        """To a definition, all of whose keys are known."""
        key = f"{folder}.{name}".rstrip(".")
        if key not in self.definitions:
            schema = yaml.safe_load((self._checkout / folder / "config.schema.yaml").read_text())
            self.definitions[key] = {}  # one that refers to itself finds it
            self.definitions[key] = self._made(schema["$defs"][name] if name else schema, folder)
            self.definitions[key].pop("unevaluatedProperties", None)  # another name: who refers to it says so
        pointer = {"$ref": "#/$defs/" + key.replace("/", "~1")}
        return pointer | ({"unevaluatedProperties": False} if "properties" in self.definitions[key] else {})

    def _made(self, node: Any, folder: str) -> Any:
        if isinstance(node, list):
            return [self._made(each, folder) for each in node]
        if not isinstance(node, dict):
            return node
        if "$ref" in node:
            return self.reference(*_place(node["$ref"], folder))
        made = {key: self._made(value, folder) for key, value in node.items() if not _is_said_elsewhere(key)}
        if "properties" in node:
            made["properties"] = {key: self._made(value, folder) for key, value in node["properties"].items()}
        for part in made.get("allOf", ()):
            part.pop("unevaluatedProperties", None)  # the whole says what is known
        return made


def _is_said_elsewhere(key: str) -> bool:
    return key in _SAID_ELSEWHERE or key.startswith("x-")


def _place(reference: str, folder: str) -> tuple[str, str]:
    """The folder and the name of what a schema in `folder` refers to."""
    if "/" not in reference:
        return folder, reference
    whole = reference.strip("/") if reference.startswith("/") else posixpath.normpath(posixpath.join(folder, reference))
    head, _, name = whole.rpartition(".")
    return head, name


def schema(checkout: Path, version: str) -> dict[str, Any]:
    bundle = Bundle(checkout)
    sections = {
        section: {
            "type": "object",
            "patternProperties": {f"^{name}(/.+)?$": bundle.reference(folder) for name, folder in parts.items()},
            "additionalProperties": False,
        }
        for section, parts in PARTS.items()
    }
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$comment": f"Of open-telemetry/opentelemetry-collector {version} (Apache-2.0): generate_collector_schema.py",
        "type": "object",
        "properties": sections | {"service": _SERVICE},
        "required": ["receivers", "exporters", "service"],
        "additionalProperties": False,
        "$defs": bundle.definitions,
    }


if __name__ == "__main__":
    made = schema(Path(sys.argv[1]), sys.argv[2])
    Path(sys.argv[3]).write_text(json.dumps(made, indent=1, sort_keys=True) + "\n")

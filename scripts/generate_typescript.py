"""Generates the TypeScript messages of the public protos for the TypeScript SDK.

    python scripts/generate_typescript.py OUTPUT_DIR      (OUTPUT_DIR/kakeya/v1/..., OUTPUT_DIR/google/rpc/...)

`protoc-gen-es` comes with the SDK's development packages, which `make proto` installs, and the protos of Google's error
details with the Python package that Kakeya reads them by.
"""

import sys
from pathlib import Path

import google.rpc
import grpc_tools
from grpc_tools import protoc

ROOT = Path(__file__).resolve().parent.parent
PLUGIN = ROOT / "sdks" / "typescript" / "node_modules" / ".bin" / "protoc-gen-es"
GOOGLE = Path(next(iter(google.rpc.__path__))).parents[1]
WELL_KNOWN = Path(grpc_tools.__file__).parent / "_proto"
PUBLIC = ("kakeya/v1", "kakeya/admin/v1")
ERRORS = ("google/rpc/status.proto", "google/rpc/error_details.proto")


def main(output_dir: str) -> int:
    protos = [str(path.relative_to(ROOT / "proto")) for folder in PUBLIC for path in _protos(ROOT / "proto" / folder)]
    Path(output_dir).mkdir(parents=True, exist_ok=True)
    plugin = [f"--plugin=protoc-gen-es={PLUGIN}", f"--es_out={output_dir}", "--es_opt=target=ts,import_extension=js"]
    paths = [f"-I{path}" for path in (ROOT / "proto", GOOGLE, WELL_KNOWN)]
    return int(protoc.main(["protoc", *paths, *plugin, *protos, *ERRORS]))


def _protos(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.proto"))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))

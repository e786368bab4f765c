"""Generates the Python stubs of every proto into one package, `kakeya_stubs`.

    python scripts/generate_stubs.py OUTPUT_DIR      (OUTPUT_DIR/kakeya_stubs/...)

protoc maps the virtual directory `kakeya_stubs` onto proto/kakeya, so that generated modules import each
other as `kakeya_stubs.*` and are never patched by hand; `kakeya` itself stays the SDK's package.
"""

import sys
from pathlib import Path

from grpc_tools import protoc

ROOT = Path(__file__).resolve().parent.parent
PROTO_DIR = ROOT / "proto" / "kakeya"
TYPED = ("mypy", "mypy_grpc")  # mypy-protobuf's plugins: the .pyi files


def main(output_dir: str) -> int:
    protos = sorted(PROTO_DIR.rglob("*.proto"))
    names = [f"kakeya_stubs/{path.relative_to(PROTO_DIR)}" for path in protos]
    package = Path(output_dir) / "kakeya_stubs"
    for path in protos:
        for folder in list(path.relative_to(PROTO_DIR).parents)[::-1]:
            (package / folder).mkdir(parents=True, exist_ok=True)
            (package / folder / "__init__.py").touch()
    plugins = [f"--plugin=protoc-gen-{name}={Path(sys.executable).parent / f'protoc-gen-{name}'}" for name in TYPED]
    outputs = [f"--{kind}_out={output_dir}" for kind in ("python", "grpc_python", *TYPED)]
    return int(protoc.main(["protoc", f"-Ikakeya_stubs={PROTO_DIR}", *plugins, *outputs, *names]))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))

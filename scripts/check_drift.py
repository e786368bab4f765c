"""Fails where a generated file differs from what its generator makes now."""

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from generate_configuration import reference
from generate_http_fields import fields_page
from generate_metrics import metrics_page
from generate_outcomes import outcomes_module
from generate_typescript import PLUGIN
from generate_vectors import vectors

ROOT = Path(__file__).resolve().parent.parent
ALERTS = ROOT / "ops" / "prometheus" / "alerts.yaml"
LOCAL_ALERTS = ROOT / "services" / "local" / "src" / "kakeya_local" / "alerts.yaml"
MESSAGES = ROOT / "sdks" / "typescript" / "src" / "_generated"
STUBS = ROOT / "proto" / "python" / "src" / "kakeya_stubs"
VECTORS = ROOT / "services" / "worker" / "src" / "kakeya_worker" / "conformance" / "vectors"
OUTCOMES = ROOT / "services" / "router" / "src" / "kakeya_router" / "store" / "outcomes.py"
PAGES = {
    ROOT / "docs" / "configuration.md": reference,
    ROOT / "docs" / "http-fields.md": fields_page,
    ROOT / "docs" / "metrics.md": metrics_page,
}


def main() -> int:
    stale = [*_stale_stubs(), *_stale_messages(), *_stale_pages(), *_stale_vectors(), *_stale_outcomes()]
    stale += [*_stale_twin(), *_stale_dashboards(), *_stale_alerts(), *_stale_formula()]
    for problem in stale:
        print(f"drift: {problem}", file=sys.stderr)
    if not stale:
        print("generated files are up to date")
    return 1 if stale else 0


def _stale_stubs() -> list[str]:
    committed = _files(STUBS)
    committed.pop(Path("py.typed"), None)
    differing = _differing(_made("generate_stubs.py", "kakeya_stubs"), committed)
    return [f"kakeya_stubs/{path} (make proto)" for path in differing]


def _stale_messages() -> list[str]:
    if not PLUGIN.exists() and shutil.which("node") is None:
        print("no node: the messages of the TypeScript SDK are not looked at")
        return []
    differing = _differing(_made("generate_typescript.py"), _files(MESSAGES))
    return [f"sdks/typescript/src/_generated/{path} (make proto)" for path in differing]


def _made(generator: str, package: str = "") -> dict[Path, bytes]:
    with tempfile.TemporaryDirectory() as directory:
        command = [sys.executable, str(ROOT / "scripts" / generator), directory]
        subprocess.run(command, check=True, stderr=subprocess.DEVNULL)
        return _files(Path(directory) / package)


def _differing(made: dict[Path, bytes], committed: dict[Path, bytes]) -> list[Path]:
    return sorted(path for path in made.keys() | committed.keys() if made.get(path) != committed.get(path))


def _stale_pages() -> list[str]:
    stale = [page for page, made in PAGES.items() if not page.is_file() or page.read_text() != made()]
    return [f"docs/{page.name} (make docs)" for page in stale]


def _stale_vectors() -> list[str]:
    stale = [name for name, text in vectors().items() if (VECTORS / name).read_text() != text]
    return [f"conformance/vectors/{name} (make vectors)" for name in stale]


def _stale_outcomes() -> list[str]:
    return [] if OUTCOMES.read_text() == outcomes_module() else ["kakeya_router/store/outcomes.py (make outcomes)"]


def _stale_twin() -> list[str]:
    generator = ROOT / "scripts" / "generate_blocking.py"
    result = subprocess.run([sys.executable, str(generator), "--check"], check=False, capture_output=True, text=True)
    return [] if result.returncode == 0 else [f"the SDK's blocking twin: {result.stdout}{result.stderr}".strip()]


def _stale_dashboards() -> list[str]:
    command = [sys.executable, "-m", "ops.grafana", "--check"]
    return subprocess.run(command, cwd=ROOT, check=False, capture_output=True, text=True).stdout.splitlines()


def _stale_alerts() -> list[str]:
    return [] if LOCAL_ALERTS.read_bytes() == ALERTS.read_bytes() else ["kakeya_local/alerts.yaml (make dashboards)"]


def _stale_formula() -> list[str]:
    command = [sys.executable, "-m", "ops.homebrew.formula", "--check"]
    return subprocess.run(command, cwd=ROOT, check=False, capture_output=True, text=True).stdout.splitlines()


def _files(directory: Path) -> dict[Path, bytes]:
    return {
        path.relative_to(directory): path.read_bytes()
        for path in directory.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }


if __name__ == "__main__":
    sys.exit(main())

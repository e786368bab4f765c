"""The chart as Helm renders it, from the sets of values beside this file."""

import os
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[4]
CHART = ROOT / "ops" / "helm" / "kakeya"
HERE = Path(__file__).parent
VALUE_SETS = sorted(each.stem for each in (HERE / "values").glob("*.yaml"))
RELEASE, NAMESPACE = "kakeya", "models"
KUBERNETES = "1.34.0"
PARTS = {"router": "router", "worker": "worker", "http": "http"}
"""Of ours, by the name of their container."""

Document = dict[str, Any]


def helm() -> str:
    """The program; "": there is none. One of the host's own may be of a version with other messages."""
    installed = ROOT / "build" / "clients" / "helm" / "helm" / "helm"
    return os.environ.get("KAKEYA_TEST_HELM") or (str(installed) if installed.exists() else "")


def run(*words: str) -> "subprocess.CompletedProcess[str]":
    """Helm, on the chart."""
    return subprocess.run([helm(), *words], check=False, capture_output=True, text=True, timeout=60)


def template(*flags: str) -> "subprocess.CompletedProcess[str]":
    return run("template", RELEASE, str(CHART), "-n", NAMESPACE, "--kube-version", KUBERNETES, *flags)


@cache
def rendered(value_set: str) -> tuple[Document, ...]:
    done = template("-f", str(HERE / "values" / f"{value_set}.yaml"))
    assert done.returncode == 0, done.stderr
    return tuple(each for each in yaml.safe_load_all(done.stdout) if each)


def of_kind(value_set: str, kind: str) -> dict[str, Document]:
    """By name, without the release's."""
    return {
        each["metadata"]["name"].removeprefix(f"{RELEASE}-"): each
        for each in rendered(value_set)
        if each["kind"] == kind
    }


def workloads(value_set: str) -> dict[str, Document]:
    """By name: what makes pods."""
    return of_kind(value_set, "Deployment") | of_kind(value_set, "StatefulSet")


def pod(workload: Document) -> Document:
    found: Document = workload["spec"]["template"]["spec"]
    return found


def container(workload: Document) -> Document:
    (found,) = pod(workload)["containers"]
    assert isinstance(found, dict)
    return found


def ours(value_set: str) -> Iterator[tuple[str, Document]]:
    """Workloads of ours, that is all but Redis, by name."""
    return ((name, each) for name, each in workloads(value_set).items() if container(each)["name"] in PARTS)


def pod_labels(workload: Document) -> dict[str, str]:
    found: dict[str, str] = workload["spec"]["template"]["metadata"]["labels"]
    return found


def selects(selector: Document, labels: dict[str, str]) -> bool:
    """Whether a LabelSelector, of the operators that the chart uses, takes these labels."""
    if any(labels.get(key) != value for key, value in selector.get("matchLabels", {}).items()):
        return False
    for rule in selector.get("matchExpressions", ()):
        if (rule["key"] in labels) != {"Exists": True, "DoesNotExist": False}[rule["operator"]]:
            return False
    return True


def plain_variables(of: Document) -> dict[str, str]:
    """Those whose values stand in the document."""
    return {each["name"]: each["value"] for each in of["env"] if "value" in each}


def secret_variables(of: Document) -> dict[str, tuple[str, str]]:
    """By variable: the secret, and the key in it."""
    refs = {each["name"]: each["valueFrom"].get("secretKeyRef") for each in of["env"] if "valueFrom" in each}
    return {name: (ref["name"], ref["key"]) for name, ref in refs.items() if ref}

"""What the chart renders is Kubernetes': each document by its schema, those of others' kinds by theirs."""

import json
from collections import Counter
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest
import yaml
from kubernetes_validate import utils as kubernetes

from tests.unit.ops.helm.chart import CHART, HERE, KUBERNETES, VALUE_SETS, Document, of_kind, rendered, run

LEAST = yaml.safe_load((CHART / "Chart.yaml").read_text())["kubeVersion"].removeprefix(">=").partition(".0-")[0]
CUSTOM = {
    schema["properties"]["kind"]["const"]: schema
    for schema in (yaml.safe_load(file.read_text()) for file in sorted((HERE / "schemas").glob("*.yaml")))
}


@pytest.fixture(scope="module", autouse=True)
def _schemas_are_read_once() -> Any:
    """A megabyte of definitions, for each of the documents otherwise."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kubernetes, "schema_contents", cache(kubernetes.schema_contents))
        yield


def check(document: Document, version: str) -> None:
    if document["kind"] in CUSTOM:
        jsonschema_rs.validate(CUSTOM[document["kind"]], document)
    else:
        kubernetes.validate(document, version, strict=True)


@cache
def is_checked(text: str, version: str) -> bool:
    """Most documents are in most sets."""
    check(json.loads(text), version)
    return True


def test_there_are_sets_enough() -> None:
    assert len(VALUE_SETS) >= 12


def test_the_chart_is_clean() -> None:
    done = run("lint", "--strict", str(CHART))
    assert done.returncode == 0, done.stdout + done.stderr
    assert "[WARNING]" not in done.stdout


@pytest.mark.parametrize("version", [LEAST, KUBERNETES])
@pytest.mark.parametrize("value_set", VALUE_SETS)
def test_every_document_is_valid(value_set: str, version: str) -> None:
    assert all(is_checked(json.dumps(each, sort_keys=True), version) for each in rendered(value_set))


@pytest.mark.parametrize("value_set", VALUE_SETS)
def test_names_are_given_once(value_set: str) -> None:
    names = Counter((each["apiVersion"], each["kind"], each["metadata"]["name"]) for each in rendered(value_set))
    assert max(names.values()) == 1
    assert all("\n" not in name and len(name) <= 63 for _, _, name in names)


def test_every_custom_kind_is_rendered() -> None:
    assert set(CUSTOM) == {each["kind"] for name in VALUE_SETS for each in rendered(name)} & set(CUSTOM)


@pytest.mark.parametrize("kind", CUSTOM)
def test_mistakes_in_custom_resources_are_found(kind: str) -> None:
    found = next(each for name in VALUE_SETS for each in rendered(name) if each["kind"] == kind)
    with pytest.raises(jsonschema_rs.ValidationError):
        check({**found, "spec": {**found["spec"], "mistaken": 1}}, KUBERNETES)


def test_mistakes_in_others_are_found() -> None:
    deployment = of_kind("defaults", "Deployment")["router"]
    with pytest.raises(kubernetes.ValidationError):
        check({**deployment, "spec": {**deployment["spec"], "replica": 1}}, KUBERNETES)


def test_the_chart_depends_on_no_other() -> None:
    assert "dependencies" not in yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert not (CHART / "charts").exists()


def test_the_notes_say_how_to_try_it(tmp_path: Path) -> None:
    done = run("install", "kakeya", str(CHART), "--dry-run=client", "-n", "models")
    assert done.returncode == 0, done.stderr
    notes = done.stdout.partition("NOTES:\n")[2]
    assert "create secret generic kakeya-keys" in notes
    assert "port-forward service/kakeya-http 8000" in notes
    assert '-H "Authorization: Bearer $KAKEYA_API_KEY"' in notes
    assert '"model": "kakeya-nano"' in notes

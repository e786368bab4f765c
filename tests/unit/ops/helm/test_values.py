"""Wrong values are refused, with their names; values.yaml names all that there are."""

import json
import re
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import pytest
import yaml

from tests.unit.ops.helm.chart import CHART, template

SCHEMA = json.loads((CHART / "values.schema.json").read_text())
WRONG = {
    "an_unknown_value": ("router.replica=3", "at '/router': additional properties 'replica' not allowed"),
    "an_unknown_part": ("proxy.replicas=3", "additional properties 'proxy' not allowed"),
    "a_type": ("worker.replicas=two", "at '/worker/replicas': got string, want integer"),
    "none_at_all": ("router.replicas=0", "at '/router/replicas': minimum"),
    "a_mode": ("redis.mode=cluster", "at '/redis/mode': value must be one of 'trial', 'external'"),
    "sentinel_without_a_name": (
        "redis.mode=external,redis.external.url=redis+sentinel://redis.example.org:26379",
        "at '/redis/external/url': value must be 'redis://HOST of one server, redis+sentinel://HOST,HOST/NAME or",
    ),
    "several_hosts": (
        r"redis.mode=external,redis.external.url=redis://a.example.org\,b.example.org",
        "at '/redis/external/url': value must be 'redis://HOST of one server, redis+sentinel://HOST,HOST/NAME or",
    ),
    "a_quantity": ("worker.cache.size=20GB", "at '/worker/cache/size'"),
    "a_share": ("worker.autoscaling.freeBytesShare=1.5", "at '/worker/autoscaling/freeBytesShare'"),
    "a_name": ("auth.secret=My_Secret", "at '/auth/secret'"),
    "a_peer": ("networkPolicy.httpFrom[0].pods=x", "at '/networkPolicy/httpFrom/0'"),
    "a_variable": ("worker.variables.KAKEYA_WORKER_WINDOWS=3", "invalid propertyName 'KAKEYA_WORKER_WINDOWS'"),
    "a_variable_of_another_part": (
        "http.variables.KAKEYA_ROUTER_AUTH=none",
        "invalid propertyName 'KAKEYA_ROUTER_AUTH'",
    ),
    "a_secret_as_a_variable": (
        "router.variables.KAKEYA_ROUTER_ADMIN_KEY=k",
        "invalid propertyName 'KAKEYA_ROUTER_ADMIN_KEY'",
    ),
    "a_snapshot_store": ("snapshots.url=/var/snapshots", "at '/snapshots/url'"),
    "a_grace": ("worker.shutdownGraceSeconds=4000", "at '/worker/shutdownGraceSeconds'"),
}
APART = {
    "no_redis": ("redis.mode=external", "give redis.external.url or redis.external.secret"),
    "two_redises": (
        "redis.mode=external,redis.external.url=redis://a,redis.external.secret=b",
        "give redis.external.url or redis.external.secret",
    ),
    "a_redis_that_is_not_used": ("redis.external.url=redis://a", "redis.mode is trial"),
    "certificates_of_workers_alone": ("tls.worker.secret=w", "tls.worker.secret needs tls.router.secret"),
    "an_issuer_of_nothing": ("tls.issuer.name=i", "no tls.*.secret says what is to be issued"),
    "tunnels_in_plaintext": (
        "router.tunnels[0].name=a,router.tunnels[0].address=a.example.org",
        "router.tunnels needs tls.router.secret",
    ),
    "tunnels_without_keys": (
        "auth.mode=none,tls.router.secret=r,router.tunnels[0].name=a,router.tunnels[0].address=a.example.org",
        "router.tunnels needs auth.mode keys",
    ),
    "two_stores": ("snapshots.url=s3://a,snapshots.claim=b", "give snapshots.url or snapshots.claim, not both"),
    "keys_for_no_store": ("snapshots.keysSecret=k", "there is nothing to encrypt"),
    "fewer_than_the_least": (
        "router.autoscaling.enabled=true,router.autoscaling.maxReplicas=1",
        "router.autoscaling.maxReplicas is below router.replicas",
    ),
    "scaling_by_nothing": ("worker.autoscaling.enabled=true", "needs worker.autoscaling.prometheus"),
}


@pytest.mark.parametrize("case", WRONG)
def test_the_schema_refuses_a_wrong_value_by_its_name(case: str) -> None:
    given, said = WRONG[case]
    done = template("--set", given)
    assert done.returncode != 0
    assert "don't meet the specifications of the schema" in done.stderr
    assert said in done.stderr


@pytest.mark.parametrize("case", APART)
def test_what_does_not_fit_together_is_refused_by_name(case: str) -> None:
    given, said = APART[case]
    done = template("--set", given)
    assert done.returncode != 0
    assert said in done.stderr


def test_what_is_said_of_a_url_holds_nothing_of_it() -> None:
    done = template("--set", "redis.mode=external,redis.external.url=sentinel://:hunter2hunter2@redis")
    assert done.returncode != 0
    assert "hunter2" not in done.stderr


def test_a_cluster_that_is_too_old_is_refused() -> None:
    done = template("--kube-version", "1.29.0")
    assert done.returncode != 0
    assert "kubeVersion" in done.stderr


def closed(schema: dict[str, Any], place: str = "") -> Iterator[tuple[str, bool]]:
    """Each object with named properties, by its place, and whether others are refused."""
    if "properties" in schema:
        yield place, schema.get("additionalProperties") is False
    for name, inner in schema.get("properties", {}).items():
        yield from closed(inner, f"{place}.{name}")


def test_nothing_is_taken_that_is_not_known() -> None:
    found = dict(closed(SCHEMA))
    for name, shared in SCHEMA["$defs"].items():
        found |= dict(closed(shared, name))
    assert len(found) > 20
    assert all(found.values()), found


def values_and_schema(values: Any, schema: dict[str, Any], place: str) -> Iterator[str]:
    """Where the one has a name that the other has not."""
    if "$ref" in schema:
        schema = SCHEMA["$defs"][schema["$ref"].rpartition("/")[2]]
    if "properties" not in schema or not isinstance(values, dict):
        return
    names = schema["properties"].keys() - {"global"}
    yield from (f"{place}.{name}" for name in names ^ values.keys())
    for name in names & values.keys():
        yield from values_and_schema(values[name], schema["properties"][name], f"{place}.{name}")


def test_values_and_schema_name_the_same() -> None:
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    assert [*values_and_schema(values, SCHEMA, "")] == []


def test_every_default_has_its_reason_beside_it_or_above() -> None:
    lines = [line.strip() for line in (CHART / "values.yaml").read_text().splitlines()]
    silent = [
        line
        for above, line in pairwise(lines)
        if re.match(r"[a-zA-Z]+: (?!\[\]|\{\}|\"\")", line) and " # " not in line and not above.startswith("#")
    ]
    assert silent == []

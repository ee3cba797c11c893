"""The shipped dashboard is one that Grafana takes, and asks only for what a service exports."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from tests.support.kubernetes.cluster import Cluster
from tests.support.kubernetes.fixtures import remove_namespace
from tests.support.kubernetes.kubectl import apply, kubectl
from tests.support.kubernetes.service import Service, training_job

GRAFANA = Path(__file__).parents[2] / "k8s" / "grafana"
DASHBOARD: dict[str, Any] = json.loads((GRAFANA / "laxity.json").read_text())
ADDED_BY_PROMETHEUS = {"job", "le"}
HARD = {"class": "hard", "epochs": "2", "epoch-estimate": "1s", "deadline": "10m", "widths": "1"}
SHOWN = {
    "promises given": "laxity_promises_total",
    "promises kept": 'laxity_outcomes_total{job=~"$job",outcome="kept"}',
    "promises broken": "laxity_promises_broken_total",
    "predicted against actual": "laxity_finish_ratio_bucket",
    "the P90's coverage": "laxity_p90_coverage",
    "the queue": 'laxity_jobs{job=~"$job",state="queued"}',
    "GPUs in all": 'laxity_gpus{job=~"$job",state="total"}',
    "GPUs free": 'laxity_gpus{job=~"$job",state="free"}',
    "the latency of decisions": "laxity_decision_seconds_bucket",
    "patches": "laxity_patches_total",
}


def panels() -> list[dict[str, Any]]:
    return [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]


def expressions() -> list[str]:
    return [target["expr"] for panel in panels() for target in panel["targets"]]


def test_the_dashboard_is_of_the_schema_that_is_written_down() -> None:
    schema = json.loads((GRAFANA / "schema.json").read_text())
    jsonschema.Draft202012Validator.check_schema(schema)
    jsonschema.Draft202012Validator(schema).validate(DASHBOARD)


def test_panels_have_a_place_and_a_number_of_their_own() -> None:
    numbers = [panel["id"] for panel in DASHBOARD["panels"]]
    assert len(set(numbers)) == len(numbers)
    taken = [cell for panel in DASHBOARD["panels"] for cell in cells(panel["gridPos"])]
    assert len(set(taken)) == len(taken)
    assert all(column < 24 for column, _ in taken)


def cells(place: dict[str, int]) -> Iterator[tuple[int, int]]:
    for column in range(place["x"], place["x"] + place["w"]):
        for line in range(place["y"], place["y"] + place["h"]):
            yield column, line


@pytest.mark.parametrize("what", SHOWN)
def test_it_shows(what: str) -> None:
    assert any(SHOWN[what] in text for text in expressions())


def test_variables_that_expressions_use_are_defined() -> None:
    defined = {one["name"] for one in DASHBOARD["templating"]["list"]}
    used = {name for text in expressions() for name in re.findall(r"\$(\w+)", text)}
    assert used - {"__rate_interval"} <= defined


@pytest.fixture(scope="module")
def exported(account: None, cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> str:
    """What /metrics of a service says after one job was promised and kept, and one refused."""
    service = Service(cluster, tmp_path_factory.mktemp("grafana"))
    namespace = "grafana-test"
    kubectl(cluster, "create", "namespace", namespace)
    apply(
        cluster,
        training_job(namespace, "kept", HARD, run_s=1.0),
        training_job(namespace, "late", {**HARD, "epoch-estimate": "1h"}),
    )
    try:
        service.start()
        cluster.until(
            lambda: (
                {'outcome="kept"', 'verdict="refused"'} <= seen(service.ask("GET", "/metrics").text)
            ),
            90.0,
            "a promise kept and a refusal",
        )
        return service.ask("GET", "/metrics").text
    finally:
        service.stop()
        remove_namespace(cluster, namespace)


def seen(text: str) -> set[str]:
    return set(re.findall(r'\w+="[^"]*"', text))


@pytest.mark.cluster
@pytest.mark.slow
@pytest.mark.timeout(240)
def test_every_metric_and_label_of_the_dashboard_is_exported_by_a_service(exported: str) -> None:
    labels = labels_of(exported)
    for text in expressions():
        for name, selector in re.findall(r"(laxity_\w+)(\{[^}]*\})?", text):
            assert name in labels, f"{name} is not exported"
            asked = set(re.findall(r"(\w+)\s*[=!]", selector)) | grouped(text)
            unknown = asked - ADDED_BY_PROMETHEUS - labels[name]
            assert not unknown or not labels[name], f"{name} has no label {unknown}"


def grouped(text: str) -> set[str]:
    """Labels that an expression groups by."""
    return {word for by in re.findall(r"by \(([^)]*)\)", text) for word in re.split(r",\s*", by)}


def labels_of(text: str) -> dict[str, set[str]]:
    """Label names by series; a family without a series yet is known by its TYPE line."""
    found: dict[str, set[str]] = {}
    for family, kind in re.findall(r"^# TYPE (laxity_\w+) (\w+)$", text, re.MULTILINE):
        for ending in ("_bucket", "_sum", "_count") if kind == "histogram" else ("",):
            found[family + ending] = set()
    for name, labels in re.findall(r"^(laxity_\w+)(?:\{([^}]*)\})? ", text, re.MULTILINE):
        found.setdefault(name, set()).update(re.findall(r'(\w+)="', labels))
    return found

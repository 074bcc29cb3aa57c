"""Alerts: on metrics that there are, each with a section in the runbook; each fires when it should."""

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from closeby.objects.reasons import Reason
from tests.deploy.helm import ROOT, objects, rendered
from tests.docs.test_metrics import told, told_by_an_agent, told_by_controllers

RULES = ROOT / "deploy" / "alerts" / "closeby.yaml"
TESTS = Path(__file__).parent / "alert_tests.yaml"
RUNBOOK = (ROOT / "docs" / "runbook.md").read_text()
#: Of every process that serves metrics.
PROCESS = {"process_start_time_seconds"}
NAME = re.compile(r"\b[a-z]+_[a-z_]+\b")
#: Not names of metrics: functions and aggregations.
WORDS = {"min_over_time", "histogram_quantile"}


def groups() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = yaml.safe_load(RULES.read_text())["groups"]
    return found


def alerts() -> list[dict[str, Any]]:
    return [rule for group in groups() for rule in group["rules"]]


@pytest.fixture(scope="module")
def metrics() -> set[str]:
    return {*told(), *told_by_controllers(), *told_by_an_agent()} | PROCESS


@pytest.mark.parametrize("alert", alerts(), ids=lambda one: one["alert"])
def test_an_alert_is_about_metrics_and_reasons_that_there_are(
    alert: dict[str, Any], metrics: set[str]
) -> None:
    expression = re.sub(r'"[^"]*"', '""', alert["expr"])
    named = {re.sub(r"_(bucket|count|sum)$", "", one) for one in NAME.findall(expression)} - WORDS
    assert named and named <= metrics, named - metrics
    reasons = {
        one for text in re.findall(r'reason=~?"([^"]+)"', alert["expr"]) for one in text.split("|") if text
    }
    assert reasons <= {str(one) for one in Reason}


@pytest.mark.parametrize("alert", alerts(), ids=lambda one: one["alert"])
def test_an_alert_has_a_section_that_says_what_it_means_and_what_to_do(alert: dict[str, Any]) -> None:
    (section,) = re.findall(rf"^## {alert['alert']}\n(.*?)(?=^## |\Z)", RUNBOOK, re.MULTILINE | re.DOTALL)
    for part in ("**Means.**", "**Look at.**", "**Do.**"):
        assert part in section, part
    assert alert["labels"]["severity"] in ("critical", "warning", "info")
    assert alert["annotations"]["summary"].endswith(".")


def test_the_runbook_has_no_section_for_alerts_that_are_gone() -> None:
    sections = re.findall(r"^## (Closeby\w+)$", RUNBOOK, re.MULTILINE)
    assert sections == [one["alert"] for one in alerts()]


def test_its_links_lead_somewhere() -> None:
    links = re.findall(r"\]\(([^)#:]+)", RUNBOOK)
    assert links
    assert [link for link in links if not (ROOT / "docs" / link).exists()] == []


def test_the_chart_has_the_same_alerts_where_they_are_wanted(helm: Path) -> None:
    def rules(*values: str) -> list[dict[str, Any]]:
        return [one for one in objects(rendered(helm, *values)) if one["kind"] == "PrometheusRule"]

    assert rules() == []
    values = "metrics.prometheusRule.enabled=true,metrics.prometheusRule.labels.release=prometheus"
    (rule,) = rules("--set", values)
    assert rule["spec"]["groups"] == groups()
    assert rule["metadata"]["labels"]["release"] == "prometheus"


@pytest.fixture
def promtool() -> str:
    found = shutil.which("promtool")
    if found is None:
        pytest.skip("needs promtool, which comes with the package prometheus")
    return found


@pytest.mark.parametrize("alert", alerts(), ids=lambda one: one["alert"])
def test_an_alert_is_tested_for_what_it_must_and_must_not_fire_on(alert: dict[str, Any]) -> None:
    names = [one["name"] for one in yaml.safe_load(TESTS.read_text())["tests"]]
    for word in ("fires", "silent"):
        assert any(name.startswith(f"{alert['alert']} {word}: ") for name in names), (alert["alert"], word)


def test_prometheus_takes_them(promtool: str) -> None:
    done = subprocess.run(
        [promtool, "check", "rules", str(RULES)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_each_fires_when_it_should_and_only_then(promtool: str, tmp_path: Path) -> None:
    shutil.copy(RULES, tmp_path / "closeby.yaml")
    shutil.copy(TESTS, tmp_path / "tests.yaml")
    done = subprocess.run(
        [promtool, "test", "rules", "tests.yaml"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr

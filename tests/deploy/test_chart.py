"""The chart: that it renders, what of it can be chosen, and that the plain YAML is what it renders."""

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

import closeby
from tests.cli.calling import closeby as call
from tests.deploy.helm import CHART, PLAIN, PLAIN_ARGUMENTS, RENDERED_FOR, ROOT, called, objects, rendered

COMPONENTS = ("scheduler", "controllers")
LEASE_TIMES = ("lease-duration", "renew-deadline", "retry-period")
ASKING = ("--set", "metrics.serviceMonitor.enabled=true", "--set-string", "metrics.serviceMonitor.labels.a=b")


def of_kind(text: str, kind: str) -> dict[str, dict[str, Any]]:
    """The rendered objects of a kind, by name."""
    return {one["metadata"]["name"]: one for one in objects(text) if one["kind"] == kind}


@pytest.mark.parametrize("kept", ["", "chart_of_2026_11_29"])
def test_values_of_a_chart_that_lacked_some_are_completed(helm: Path, tmp_path: Path, kept: str) -> None:
    """`helm upgrade --reuse-values` has the old chart's defaults alone: here none at all, or those of one."""
    copy = shutil.copytree(CHART, tmp_path / "closeby")
    old = (Path(__file__).parent / kept / "values.yaml").read_text() if kept else "{}"
    (copy / "values.yaml").write_text(old)
    (copy / "values.schema.json").unlink()
    assert objects(rendered(helm, chart=copy)) == objects(rendered(helm))
    chosen = ("--set", "scheduler.dryRun=true,metrics.secure=false,controllers.enabled=false")
    assert objects(rendered(helm, *chosen, chart=copy)) == objects(rendered(helm, *chosen))


def test_every_template_completes_the_values() -> None:
    templates = [one for one in (CHART / "templates").rglob("*") if one.suffix in (".yaml", ".txt")]
    first = {one.name: one.read_text().splitlines()[0] for one in templates}
    assert set(first.values()) == {'{{- include "closeby.defaults" . -}}'}, first


def test_the_plain_yaml_is_the_rendered_chart(helm: Path) -> None:
    # As objects: which lines are left empty depends on the version of helm.
    assert objects(PLAIN.read_text()) == objects(rendered(helm, *PLAIN_ARGUMENTS)), (
        "render it anew: helm template closeby deploy/helm/closeby "
        f"--kube-version {RENDERED_FOR} {' '.join(PLAIN_ARGUMENTS)} > deploy/closeby.yaml"
    )


def test_helm_finds_no_fault_with_it(helm: Path) -> None:
    done = called(helm, "lint", "--strict", str(CHART))
    assert done.returncode == 0, done.stdout


def test_a_package_has_the_definitions_in_it(helm: Path, tmp_path: Path) -> None:
    """The chart has a link to them, so that they are written down once."""
    done = called(helm, "package", str(CHART), "--destination", str(tmp_path))
    assert done.returncode == 0, done.stderr
    (package,) = tmp_path.glob("*.tgz")
    shown = called(helm, "template", "closeby", str(package), "--kube-version", RENDERED_FOR)
    assert len(of_kind(shown.stdout, "CustomResourceDefinition")) == 4


def test_it_is_of_this_version() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert (chart["version"], chart["appVersion"]) == (closeby.__version__, closeby.__version__)


def test_definitions_can_be_left_out(helm: Path) -> None:
    every = of_kind(rendered(helm), "CustomResourceDefinition")
    written = [yaml.safe_load(file.read_text()) for file in (ROOT / "deploy" / "crds").glob("*.yaml")]
    assert every == {one["metadata"]["name"]: one for one in written}
    ours = of_kind(rendered(helm, "--set", "definitions.applications=false"), "CustomResourceDefinition")
    assert set(ours) == {"podgroups.closeby.dev", "topologies.closeby.dev"}
    theirs = of_kind(rendered(helm, "--set", "definitions.closeby=false"), "CustomResourceDefinition")
    assert set(theirs) == set(every) - set(ours)


def test_definitions_outlive_a_release(helm: Path) -> None:
    for one in of_kind(rendered(helm), "CustomResourceDefinition").values():
        assert one["metadata"]["annotations"]["helm.sh/resource-policy"] == "keep"


def test_metrics_addresses_are_those_that_the_operator_names(helm: Path) -> None:
    def arguments(*chosen: str) -> list[str]:
        found = of_kind(rendered(helm, *chosen), "Deployment")["closeby-controllers"]
        given: list[str] = found["spec"]["template"]["spec"]["containers"][0]["args"]
        return [one for one in given if "prometheus" in one]

    addresses = ["http://prometheus.monitoring:9090", "https://[fd00::7]/prefix"]
    assert arguments() == []
    assert arguments("--set-json", f"controllers.metricsAddresses={json.dumps(addresses)}") == [
        f"--allow-prometheus-address={one}" for one in addresses
    ]
    for wrong in (
        "prometheus:9090",
        "http://user@prometheus",
        "http://prometheus/?query=1",
        "file:///etc/passwd",
    ):
        done = called(
            helm,
            "template",
            "closeby",
            str(CHART),
            "--set-json",
            f"controllers.metricsAddresses=[{wrong!r}]".replace("'", '"'),
        )
        assert done.returncode != 0 and "metricsAddresses" in done.stderr, done


@pytest.mark.parametrize("component", COMPONENTS)
def test_files_can_be_given_to_a_component(helm: Path, component: str) -> None:
    """Such as what a token for Prometheus, or its authority, is in."""
    values = {
        f"{component}.extraVolumes": [{"name": "ca", "secret": {"secretName": "prometheus-ca"}}],
        f"{component}.extraVolumeMounts": [{"name": "ca", "mountPath": "/etc/ca", "readOnly": True}],
    }
    chosen = [
        part for name, value in values.items() for part in ("--set-json", f"{name}={json.dumps(value)}")
    ]
    pods = of_kind(rendered(helm, *chosen), "Deployment")[f"closeby-{component}"]["spec"]["template"]["spec"]
    assert [one["name"] for one in pods["volumes"]] == ["configuration", "ca"]
    assert [one["name"] for one in pods["containers"][0]["volumeMounts"]] == ["configuration", "ca"]


@pytest.mark.parametrize("component", COMPONENTS)
def test_every_component_runs_without_privileges(helm: Path, component: str) -> None:
    pods = of_kind(rendered(helm), "Deployment")[f"closeby-{component}"]["spec"]["template"]["spec"]
    (container,) = pods["containers"]
    assert pods["securityContext"]["runAsNonRoot"] is True
    assert pods["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert container["image"] == f"closeby:{closeby.__version__}"


@pytest.mark.parametrize("component", COMPONENTS)
def test_what_selects_the_pods_of_a_component_selects_no_others(helm: Path, component: str) -> None:
    text = rendered(helm, *ASKING)
    name = f"closeby-{component}"
    deployment = of_kind(text, "Deployment")[name]["spec"]
    wanted = deployment["selector"]["matchLabels"]
    for other in COMPONENTS:
        labels = of_kind(text, "Deployment")[f"closeby-{other}"]["spec"]["template"]["metadata"]["labels"]
        assert (wanted.items() <= labels.items()) == (other == component)
    assert of_kind(text, "PodDisruptionBudget")[name]["spec"]["selector"]["matchLabels"] == wanted
    assert deployment["template"]["spec"]["serviceAccountName"] == name in of_kind(text, "ServiceAccount")


@pytest.mark.parametrize("component", COMPONENTS)
def test_every_component_is_monitored(helm: Path, component: str) -> None:
    text = rendered(helm, *ASKING)
    name = f"closeby-{component}"
    deployment = of_kind(text, "Deployment")[name]["spec"]
    (container,) = deployment["template"]["spec"]["containers"]
    assert "--metrics-address=:8080" in container["args"]
    assert container["ports"] == [{"name": "metrics", "containerPort": 8080}]
    service = of_kind(text, "Service")[f"{name}-metrics"]
    assert service["spec"]["selector"] == deployment["selector"]["matchLabels"]
    monitor = of_kind(text, "ServiceMonitor")[name]
    assert monitor["spec"]["selector"]["matchLabels"].items() <= service["metadata"]["labels"].items()
    assert monitor["metadata"]["labels"]["a"] == "b"


def namespaced(*names: str) -> list[dict[str, Any]]:
    """All pods of these namespaces, as peers of a NetworkPolicy."""
    return [{"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": name}}} for name in names]


@pytest.mark.parametrize("component", COMPONENTS)
def test_pods_of_chosen_namespaces_alone_reach_the_metrics(helm: Path, component: str) -> None:
    name = f"closeby-{component}"
    text = rendered(helm)
    policy = of_kind(text, "NetworkPolicy")[name]["spec"]
    assert policy["policyTypes"] == ["Ingress"]
    port = {"port": "metrics", "protocol": "TCP"}
    assert policy["ingress"] == [{"ports": [port], "from": namespaced("monitoring")}]
    assert policy["podSelector"] == of_kind(text, "Deployment")[name]["spec"]["selector"]
    more = (
        "--set-json",
        'metrics.networkPolicy={"namespaces":["a","b"],"from":[{"ipBlock":{"cidr":"::/0"}}]}',
    )
    (rule,) = of_kind(rendered(helm, *more), "NetworkPolicy")[name]["spec"]["ingress"]
    assert rule["from"] == [*namespaced("a", "b"), {"ipBlock": {"cidr": "::/0"}}]
    off = rendered(helm, "--set", "metrics.networkPolicy.enabled=false")
    assert of_kind(off, "NetworkPolicy") == {}


def test_without_peers_the_metrics_are_unreachable(helm: Path) -> None:
    """An empty list of peers would mean everybody."""
    text = rendered(helm, "--set-json", "metrics.networkPolicy.namespaces=[]")
    assert [one["spec"]["ingress"] for one in of_kind(text, "NetworkPolicy").values()] == [[], []]


def container_of(text: str, component: str) -> dict[str, Any]:
    (container,) = of_kind(text, "Deployment")[f"closeby-{component}"]["spec"]["template"]["spec"][
        "containers"
    ]
    return dict(container)


def reviewing(text: str) -> set[str]:
    """ClusterRoles that may ask the API server who somebody is, and what he may do."""
    return {
        name
        for name, role in of_kind(text, "ClusterRole").items()
        if {"tokenreviews", "subjectaccessreviews"}
        <= {one for rule in role["rules"] for one in rule.get("resources", ())}
    }


@pytest.mark.parametrize("component", COMPONENTS)
def test_metrics_are_secure_unless_configured_otherwise(helm: Path, component: str) -> None:
    text = rendered(helm, *ASKING)
    container = container_of(text, component)
    assert "--metrics-secure" in container["args"]
    probes = [one["httpGet"]["scheme"] for key, one in container.items() if key.endswith("Probe")]
    assert probes == ["HTTPS"] * 3
    (endpoint,) = of_kind(text, "ServiceMonitor")[f"closeby-{component}"]["spec"]["endpoints"]
    assert endpoint["scheme"] == "https"
    assert endpoint["bearerTokenFile"] == "/var/run/secrets/kubernetes.io/serviceaccount/token"
    assert endpoint["tlsConfig"] == {"insecureSkipVerify": True}
    assert f"closeby-{component}" in reviewing(text)
    plain = rendered(helm, *ASKING, "--set", "metrics.secure=false")
    container = container_of(plain, component)
    assert not [one for one in container["args"] if one.startswith("--metrics-secure")]
    assert container["livenessProbe"]["httpGet"]["scheme"] == "HTTP"
    (endpoint,) = of_kind(plain, "ServiceMonitor")[f"closeby-{component}"]["spec"]["endpoints"]
    assert endpoint.keys() == {"port", "interval"}
    assert reviewing(plain) == set()
    assert not {"closeby-metrics-reader", "closeby-story-reader"} & of_kind(plain, "ClusterRole").keys()


@pytest.mark.parametrize("component", COMPONENTS)
def test_a_certificate_for_the_metrics_can_be_given(helm: Path, component: str) -> None:
    text = rendered(helm, *ASKING, "--set", "metrics.tlsSecret=cert")
    container = container_of(text, component)
    mounts = {one["name"]: one["mountPath"] for one in container["volumeMounts"]}
    files = [one.partition("=")[2] for one in container["args"] if one.startswith("--metrics-tls-")]
    assert files == [f"{mounts['metrics-tls']}/tls.{one}" for one in ("crt", "key")]
    spec = of_kind(text, "Deployment")[f"closeby-{component}"]["spec"]["template"]["spec"]
    (volume,) = (one for one in spec["volumes"] if one["name"] == "metrics-tls")
    assert volume["secret"]["secretName"] == "cert"
    (endpoint,) = of_kind(text, "ServiceMonitor")[f"closeby-{component}"]["spec"]["endpoints"]
    assert endpoint["tlsConfig"]["serverName"] == f"closeby-{component}-metrics.default.svc"
    assert f"closeby-{component}-metrics" in of_kind(text, "Service")


@pytest.mark.parametrize(
    ("value", "name", "other", "path"),
    [
        ("readers", "closeby-metrics-reader", "closeby-story-reader", "/metrics"),
        ("storyReaders", "closeby-story-reader", "closeby-metrics-reader", "/stories"),
    ],
)
def test_readers_of_metrics_and_of_stories_can_be_named(
    helm: Path, value: str, name: str, other: str, path: str
) -> None:
    assert not {name, other} & of_kind(rendered(helm), "ClusterRoleBinding").keys()
    reader = {"kind": "ServiceAccount", "name": "prometheus-k8s", "namespace": "monitoring"}
    text = rendered(helm, "--set-json", f"metrics.{value}={json.dumps([reader])}")
    assert other not in of_kind(text, "ClusterRoleBinding")
    binding = of_kind(text, "ClusterRoleBinding")[name]
    assert binding["subjects"] == [reader]
    role = of_kind(text, "ClusterRole")[binding["roleRef"]["name"]]
    assert role["rules"] == [{"nonResourceURLs": [path], "verbs": ["get"]}]


def test_no_role_has_a_wildcard_or_looks_into_secrets(helm: Path) -> None:
    text = rendered(helm)
    roles = [*of_kind(text, "ClusterRole").values(), *of_kind(text, "Role").values()]
    assert len(roles) == 8
    for rule in (rule for role in roles for rule in role["rules"]):
        said = {one for named in rule.values() for one in named}
        assert not any("*" in one for one in said), rule
        assert not said & {"secrets", "escalate", "impersonate", "pods/exec", "serviceaccounts/token"}, rule


@pytest.mark.parametrize("component", COMPONENTS)
def test_its_arguments_are_options_of_the_command(helm: Path, component: str) -> None:
    arguments = ("--set", "scheduler.dryRun=true", "--set", "scheduler.events=false")
    (container,) = of_kind(rendered(helm, *arguments), "Deployment")[f"closeby-{component}"]["spec"][
        "template"
    ]["spec"]["containers"]
    command, *options = container["args"]
    assert command == component
    shown = call(command, "--help").stdout
    for option in options:
        assert re.search(rf"(^|[\s/]){option.partition('=')[0]}\b", shown), f"{option} is not in:\n{shown}"


def arguments_of(helm: Path, component: str, *settings: str) -> list[str]:
    workload = of_kind(rendered(helm, *settings), "Deployment")[f"closeby-{component}"]["spec"]
    (container,) = workload["template"]["spec"]["containers"]
    found: list[str] = container["args"]
    return found


@pytest.mark.parametrize("component", COMPONENTS)
def test_in_a_dry_run_nothing_writes_and_no_pod_waits_for_the_pod_grouper(helm: Path, component: str) -> None:
    assert "--dry-run" not in arguments_of(helm, component)
    dry = arguments_of(helm, component, "--set", "scheduler.dryRun=true")
    assert "--dry-run" in dry and "--pod-grouper" not in dry


@pytest.mark.parametrize("component", COMPONENTS)
def test_the_times_of_the_leases_are_values(helm: Path, component: str) -> None:
    times = "leaderElection.leaseDuration=1m,leaderElection.renewDeadline=40s,leaderElection.retryPeriod=5s"
    given = {
        key: value
        for key, _, value in (one.partition("=") for one in arguments_of(helm, component, "--set", times))
    }
    assert [given[f"--leader-elect-{name}"] for name in LEASE_TIMES] == ["1m", "40s", "5s"]
    # The values of an older chart have none of them.
    old = arguments_of(helm, component, "--set", "leaderElection=null")
    assert old == arguments_of(helm, component)


def test_the_configuration_is_one_that_closeby_takes(helm: Path, tmp_path: Path) -> None:
    values: dict[str, Any] = {
        "configuration": {
            "schedulerName": "near",
            "plugins": [
                {"name": "NetworkMinCost", "weight": 5},
                {"name": "thrifty:Thrifty", "weight": 2},
            ],
        },
        "modules": {"thrifty.py": "class Thrifty:\n    name = 'thrifty'\n"},
    }
    given = tmp_path / "values.yaml"
    given.write_text(yaml.safe_dump(values))
    data = of_kind(rendered(helm, "--values", str(given)), "ConfigMap")["closeby"]["data"]
    assert yaml.safe_load(data["closeby.yaml"]) == values["configuration"]
    assert data["thrifty.py"].strip() == values["modules"]["thrifty.py"].strip()


def test_a_changed_configuration_starts_new_pods(helm: Path) -> None:
    def template(*arguments: str) -> Any:
        return of_kind(rendered(helm, *arguments), "Deployment")["closeby-scheduler"]["spec"]["template"]

    assert template() == template("--set", "controllers.replicas=3")
    assert template() != template("--set", "configuration.schedulerName=near")


@pytest.mark.parametrize(
    ("values", "complaint"),
    [
        ("scheduler.replica=3", "replica"),
        ("schedulr.replicas=3", "schedulr"),
        ("image.pullPolicy=Sometimes", "pullPolicy"),
        ("scheduler.replicas=two", "replicas"),
        ("modules.rm=x", "rm"),
        ("excludedNamespaces={Kube_System}", "excludedNamespaces"),
        ("scheduler.taintNodes=true", "taintNodes"),
    ],
)
def test_values_are_checked(helm: Path, values: str, complaint: str) -> None:
    with pytest.raises(subprocess.CalledProcessError) as refused:
        rendered(helm, "--set", values)
    assert complaint in refused.value.stderr


def test_controllers_can_be_left_out(helm: Path) -> None:
    text = rendered(helm, "--set", "controllers.enabled=false")
    assert set(of_kind(text, "Deployment")) == {"closeby-scheduler"}
    assert "closeby-controllers" not in text


def policies(text: str) -> dict[str, dict[str, Any]]:
    found = of_kind(text, "ValidatingAdmissionPolicy")
    assert {
        one["spec"]["policyName"] for one in of_kind(text, "ValidatingAdmissionPolicyBinding").values()
    } == set(found)
    return found


def excluded(text: str, component: str) -> list[str]:
    (container,) = of_kind(text, "Deployment")[f"closeby-{component}"]["spec"]["template"]["spec"][
        "containers"
    ]
    return [one.partition("=")[2] for one in container["args"] if one.startswith("--exclude-namespace=")]


def test_namespaces_that_are_excluded_are_in_the_policy_and_known_to_the_programs(helm: Path) -> None:
    text = rendered(helm, "--set", "excludedNamespaces={kube-system,platform}")
    (validation,) = policies(text)["default-closeby-exclusion"]["spec"]["validations"]
    assert '["kube-system","platform"]' in validation["expression"]
    for component in COMPONENTS:
        assert excluded(rendered(helm), component) == ["kube-system"]
        assert excluded(text, component) == ["kube-system", "platform"]


def test_none_need_be_excluded(helm: Path) -> None:
    text = rendered(helm, "--set-json", "excludedNamespaces=[]")
    assert "default-closeby-exclusion" not in policies(text)
    for component in COMPONENTS:
        # Without the flag its default would hold.
        assert excluded(text, component) == [""]


def test_labels_that_plugins_bind_with_can_be_named(helm: Path) -> None:
    text = rendered(helm, "--set", "scheduler.bindingLabels={example.com/numa}")
    validation = policies(text)["default-closeby-scheduler-binding"]["spec"]["validations"][0]
    assert '["closeby.dev/rank","example.com/numa",' in validation["expression"]
    assert validation["message"].endswith("closeby.dev/rank, example.com/numa")


def test_pods_may_be_deleted_in_the_namespaces_alone_whose_budgets_are_overruled(helm: Path) -> None:
    def deleting(text: str) -> set[str | None]:
        """Where a role of the scheduler's allows to delete pods; None for everywhere."""
        return {
            one["metadata"].get("namespace")
            for one in objects(text)
            if one["kind"] in ("Role", "ClusterRole") and "scheduler" in one["metadata"]["name"]
            for rule in one["rules"]
            if "pods" in rule["resources"] and "delete" in rule["verbs"]
        }

    plugin = {"name": "DefaultPreemption", "arguments": {"overruleBudgets": ["team", "research"]}}
    asked = ("--set-json", f"configuration.plugins={json.dumps([plugin, 'NetworkMinCost'])}")
    empty = [
        {"name": "Scoring", "arguments": None},
        {"name": "Scoring", "arguments": {"overruleBudgets": None}},
    ]
    assert deleting(rendered(helm)) == set()
    assert deleting(rendered(helm, "--set-json", f"configuration.plugins={json.dumps(empty)}")) == set()
    assert deleting(rendered(helm, *asked)) == {"team", "research"}
    # Where another scheduler binds no pod is evicted.
    assert deleting(rendered(helm, *asked, "--set", "scheduler.mode=gate")) == set()


def test_clusters_that_enforce_no_policies_get_none(helm: Path) -> None:
    assert policies(rendered(helm, "--kube-version", "1.29.0")) == {}
    assert len(policies(rendered(helm, "--kube-version", "1.30.0"))) == 7
    assert len(policies(rendered(helm, "--set", "controllers.enabled=false"))) == 6

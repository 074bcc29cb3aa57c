"""Random gangs with pod affinity, anti-affinity and spread, judged by every way there is to place them."""

from collections.abc import Mapping, Sequence
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from closeby.objects.labels import HOSTNAME
from closeby.reading.configuration import Configuration
from closeby.simulator.runs import simulate
from tests.reading.manifest_text import read_objects
from tests.scheduling.term_rules import Judge, Manifest, Placed

KEYS = ("zone", "rack", HOSTNAME)
APPS = ("a", "b")
GROUP = "closeby.dev/pod-group"
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


def pod(name: str, app: str, spec: Mapping[str, Any], *, cpu: int = 1, on: str | None = None) -> Manifest:
    """A plain pod; on a node it runs."""
    running = {} if on is None else {"nodeName": on}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": {"app": app}},
        "spec": {
            **running,
            **spec,
            "containers": [{"name": "c", "resources": {"requests": {"cpu": str(cpu)}}}],
        },
        "status": {"phase": "Pending" if on is None else "Running"},
    }


def member(name: str, app: str, spec: Mapping[str, Any], *, cpu: int = 1) -> Manifest:
    """A member of the gang ``train``."""
    plain = pod(name, app, spec, cpu=cpu)
    labels = {**plain["metadata"]["labels"], GROUP: "train"}
    return {**plain, "metadata": {"name": name, "labels": labels}}


def group(minimum: int, level: str | None) -> Manifest:
    """The gang, all of which is to be in one domain of a level."""
    constraint = {} if level is None else {"topology": "fabric", "requiredTopologyLevel": level}
    return {
        "apiVersion": "closeby.dev/v1alpha1",
        "kind": "PodGroup",
        "metadata": {"name": "train"},
        "spec": {"minMember": minimum, "topologyConstraint": constraint}
        if constraint
        else {"minMember": minimum},
    }


TOPOLOGY: Manifest = {
    "apiVersion": "kueue.x-k8s.io/v1beta1",
    "kind": "Topology",
    "metadata": {"name": "fabric"},
    "spec": {"levels": [{"nodeLabel": key} for key in KEYS]},
}


@st.composite
def clusters(draw: st.DrawFn) -> list[Manifest]:
    """Two to six small nodes; some lack a label."""
    nodes: list[Manifest] = []
    for index in range(draw(st.integers(2, 6))):
        labels = {HOSTNAME: f"n{index}"}
        zone = draw(st.sampled_from(["z1", "z2", "z3", None]))
        rack = draw(st.sampled_from(["r1", "r2", None]))
        if zone is not None:
            labels["zone"] = zone
        if rack is not None:
            labels["rack"] = f"{zone}-{rack}"
        cpu = draw(st.integers(1, 4))
        nodes.append(
            {
                "apiVersion": "v1",
                "kind": "Node",
                "metadata": {"name": f"n{index}", "labels": labels},
                "status": {
                    "allocatable": {"cpu": str(cpu), "pods": "20"},
                    "conditions": [{"type": "Ready", "status": "True"}],
                },
            }
        )
    return nodes


@st.composite
def term_specs(draw: st.DrawFn, apps: Sequence[str] = APPS) -> dict[str, Any]:
    """Up to two constraints of a pod on where it goes beside others."""
    spec: dict[str, Any] = {}
    for kind in draw(st.lists(st.sampled_from(["affinity", "anti", "spread"]), max_size=2)):
        key = draw(st.sampled_from(KEYS))
        chosen = {"topologyKey": key, "labelSelector": {"matchLabels": {"app": draw(st.sampled_from(apps))}}}
        if kind == "spread":
            skew = {"maxSkew": draw(st.integers(1, 2)), "whenUnsatisfiable": "DoNotSchedule"}
            if draw(st.booleans()):
                skew["minDomains"] = draw(st.integers(1, 3))
            listed = spec.setdefault("topologySpreadConstraints", [])
            if all(one["topologyKey"] != key for one in listed):  # The API server refuses equal ones.
                listed.append({**chosen, **skew})
        else:
            field = "podAffinity" if kind == "affinity" else "podAntiAffinity"
            spec.setdefault("affinity", {}).setdefault(field, {}).setdefault(REQUIRED, []).append(chosen)
    return spec


@st.composite
def running(draw: st.DrawFn, nodes: Sequence[Manifest]) -> list[Manifest]:
    """Pods that others placed, with constraints of their own."""
    names = [node["metadata"]["name"] for node in nodes]
    return [
        pod(f"old-{index}", draw(st.sampled_from(APPS)), draw(term_specs()), on=draw(st.sampled_from(names)))
        for index in range(draw(st.integers(0, 3)))
    ]


def run(
    nodes: Sequence[Manifest],
    old: Sequence[Manifest],
    members: Sequence[Manifest],
    level: str | None,
    minimum: int | None = None,
) -> Placed:
    """Where closeby places the members; the minimum is all of them unless given."""
    least = len(members) if minimum is None else minimum
    manifests = read_objects(TOPOLOGY, group(least, level), *nodes, *old, *members)
    assert manifests.errors == ()
    found = simulate(manifests, Configuration())
    found.engine.validate_state()
    by_name = {one["metadata"]["name"]: one for one in members}
    return tuple((by_name[one.pod.name], one.node) for one in found.bindings.values())


def domains(nodes: Sequence[Manifest], level: str | None) -> list[list[str]]:
    """The nodes of each domain of the required level."""
    if level is None:
        return [[node["metadata"]["name"] for node in nodes]]
    found: dict[tuple[str, ...], list[str]] = {}
    for node in nodes:
        labels = node["metadata"]["labels"]
        above = KEYS[: KEYS.index(level) + 1]
        if level in labels:
            path = tuple(labels.get(key, f"private {node['metadata']['name']}") for key in above)
            found.setdefault(path, []).append(node["metadata"]["name"])
    return list(found.values())


def check(
    nodes: Sequence[Manifest], old: Sequence[Manifest], members: Sequence[Manifest], level: str | None
) -> None:
    judge = Judge(nodes)
    there = tuple((one, one["spec"]["nodeName"]) for one in old)
    placed = run(nodes, old, members, level)
    assert len(placed) in (0, len(members))
    assert judge.reachable(there, placed), "no order of the members leads to this placement"
    choices = domains(nodes, level)
    if placed:
        assert any(all(node in choice for _, node in placed) for choice in choices)
    else:
        assert not any(judge.placeable(members, there, choice) for choice in choices), "there is a place"


@given(st.data())
def test_a_gang_of_equal_pods_is_placed_exactly_when_that_is_possible(data: st.DataObject) -> None:
    nodes = data.draw(clusters())
    old = data.draw(running(nodes))
    app, asked = data.draw(st.sampled_from(APPS)), data.draw(term_specs())
    level = data.draw(st.sampled_from([None, None, *KEYS]))
    count = data.draw(st.integers(1, 5))
    members = [member(f"train-{index}", app, asked) for index in range(count)]
    check(nodes, old, members, level)


@given(st.data())
def test_a_gang_of_two_kinds_of_pods_is_placed_exactly_when_that_is_possible(data: st.DataObject) -> None:
    nodes = data.draw(clusters())
    old = data.draw(running(nodes))
    level = data.draw(st.sampled_from([None, None, *KEYS]))
    members = []
    for app in APPS:
        asked, cpu = data.draw(term_specs()), data.draw(st.integers(1, 2))
        count = data.draw(st.integers(1, 2))
        members += [member(f"{app}-{index}", app, asked, cpu=cpu) for index in range(count)]
    check(nodes, old, members, level)


@given(st.data())
def test_members_beyond_the_minimum_keep_the_constraints_too(data: st.DataObject) -> None:
    nodes = data.draw(clusters())
    old = data.draw(running(nodes))
    app, asked = data.draw(st.sampled_from(APPS)), data.draw(term_specs())
    members = [member(f"train-{index}", app, asked) for index in range(data.draw(st.integers(2, 5)))]
    minimum = data.draw(st.integers(1, len(members) - 1))
    judge = Judge(nodes)
    there = tuple((one, one["spec"]["nodeName"]) for one in old)
    placed = run(nodes, old, members, None, minimum)
    names = list(judge.labels)
    assert judge.reachable(there, placed)
    assert bool(placed) == judge.placeable(members[:minimum], there, names)
    if placed:
        assert len(placed) >= minimum
        left = [one for one in members if all(one is not other for other, _ in placed)]
        assert not any(judge.allows(one, name, (*there, *placed)) for one in left for name in names)


def test_equal_members_find_no_domain_that_only_one_of_them_could_open() -> None:
    """A pod that they want to be near runs in their zone, and on a node without a rack.

    So no member is the first of the group, and none may go to a rack before another one is there.
    """
    affinity = [
        {"topologyKey": key, "labelSelector": {"matchLabels": {"app": "a"}}} for key in ("zone", "rack")
    ]
    asked = {"affinity": {"podAffinity": {REQUIRED: affinity}}}
    nodes: list[Manifest] = [
        {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": name, "labels": {HOSTNAME: name, "zone": "z1", **rack}},
            "status": {
                "allocatable": {"cpu": "4", "pods": "20"},
                "conditions": [{"type": "Ready", "status": "True"}],
            },
        }
        for name, rack in (("n0", {"rack": "r1"}), ("n1", {"rack": "r1"}), ("n2", {}))
    ]
    members = [member(f"train-{index}", "a", asked) for index in range(3)]
    for minimum in (1, 2, 3):
        assert not run(nodes, [pod("old", "a", {}, on="n2")], members, None, minimum)
        assert len(run(nodes, [pod("old", "a", {}, on="n1")], members, None, minimum)) == 3
        assert len(run(nodes, [], members, None, minimum)) == 3

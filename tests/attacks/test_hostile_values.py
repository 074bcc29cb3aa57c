"""Attack: whoever may write an object writes numbers that are none, or beyond all sense: negative, endless,
larger than any machine; nodes with a thousand labels, nodes without room for a pod.

What must hold: the object that says so is told (with its field), or its value counts as what it can mean; no
fault of closeby comes to light; the state of the engine stays valid, and a good tenant's gang is placed.
"""

import asyncio
import json
from collections.abc import Mapping
from typing import Any

import pytest

from closeby.kube.state.feed import Fed, Feed
from closeby.kube.watch.changes import Change
from closeby.kube.watch.resources import NODES, PODS, Resource
from closeby.measurements.latencies import Latencies, parse_latencies
from closeby.objects.applications import APP_GROUP_LABEL, WORKLOAD_LABEL
from closeby.plugins.registry import profile_for
from closeby.reading.configuration import Configuration
from closeby.scheduling.engine import Engine
from closeby.scheduling.events import Tick
from closeby.scheduling.outcomes import Decision, Output, bindings_of
from tests.control_plane.api import ApiError, Object
from tests.control_plane.cluster import ControlPlane
from tests.kube.live_world import host, until, until_said, world
from tests.kube.test_feed import APP_GROUPS, BLOCK, CLASSES, NETWORKS, OURS, node, pod, put, served

GPU = "nvidia.com/gpu"
SLICE = "kueue.x-k8s.io/podset-slice"
QOS = "network.qos.kubernetes.io/switches"
PUBLISHED_NETWORKS = served("networktopology.diktyo.x-k8s.io", "NetworkTopology", "v1alpha1")
PUBLISHED_GROUPS = served("appgroup.diktyo.x-k8s.io", "AppGroup", "v1alpha1")

#: Where Kubernetes takes a quantity.
QUANTITIES: list[object] = [
    *(
        "-5",
        "-1e30",
        "1e30",
        "NaN",
        "Infinity",
        "-Infinity",
        "1e400",
        "1e-30",
        "999999E",
        "0",
        "",
        "0x10",
        "٣",
        "5 ",
    ),
    *("9223372036854775807", "9223372036854775808", f"1e{'9' * 50}", "9" * 99, "9" * 100_000, "\x1b[2J"),
    *(None, True, 1e308, -1, 1.5, 2**63, 2**70, [], {}, ["1"]),
]
#: Where a number stands in JSON.
NUMBERS: list[object] = [
    *(-1, 0, 2**31, 2**63, 2**64, 10**400, 1e308, -1e308, 1.5),
    *("1e30", "NaN", None, True, [], {}),
]


class Site:
    """Four nodes, a good gang of four that waits, and an engine that hears what the feed makes of objects."""

    def __init__(self) -> None:
        self.feed = Feed("closeby")
        self.engine = Engine(lambda handle: profile_for(Configuration(), handle))
        self.decisions: list[Output] = []
        self.problems: list[str] = []

    def hear(self, *changes: tuple[Resource, Change]) -> Fed:
        fed = self.feed.take(changes)
        self.decisions += self.engine.handle(*fed.events)
        self.problems += [one.located() for one in fed.problems]
        self.engine.validate_state()
        return fed

    def judge(self) -> None:
        """A good gang comes, and is placed; closeby has stumbled over nothing."""
        self.hear(
            *(put(NODES, node(f"good{i}", block=f"b{i // 2}")) for i in range(4)),
            put(OURS, {"metadata": {"name": "good", "namespace": "a"}, "spec": {"minMember": 4}}),
            *(put(PODS, member("good", i)) for i in range(4)),
        )
        self.decisions += self.engine.handle(Tick())
        self.engine.validate_state()
        assert not [one for one in self.decisions if isinstance(one, Decision) and one.fault is not None]
        assert [one for one in self.problems if "unexpectedly" in one] == []
        bound = {one.pod.name for one in bindings_of(self.decisions)}
        assert bound >= {f"good-{i}" for i in range(4)}


def member(gang: str, i: int = 0, requests: object = None, **more: Any) -> dict[str, Any]:
    resources = {} if requests is None else {"resources": {"requests": requests}}
    made: dict[str, Any] = pod(f"{gang}-{i}", containers=[{"name": "c", **resources}], **more)
    made["metadata"]["labels"] = {"closeby.dev/pod-group": gang}
    return made


@pytest.mark.parametrize("value", QUANTITIES, ids=lambda value: str(value)[:20] or "empty")
class TestQuantities:
    @pytest.mark.parametrize("resource", ["cpu", "memory", "pods", GPU, "hugepages-2Mi"])
    def test_what_a_node_has(self, resource: str, value: object) -> None:
        site = Site()
        bad = {**node("bad"), "status": {"allocatable": {"cpu": "4", "pods": "9", resource: value}}}
        site.hear(put(NODES, bad))
        site.judge()

    @pytest.mark.parametrize("resource", ["cpu", "memory", GPU, "example.com/x"])
    def test_what_a_pod_asks_for(self, resource: str, value: object) -> None:
        site = Site()
        site.hear(put(NODES, node("n")), put(PODS, member("bad", requests={resource: value})))
        site.hear(put(PODS, member("more", requests={"cpu": "1"}, overhead={resource: value})))
        site.hear(put(PODS, {**member("runs", requests={resource: value}, on="n")}))
        site.judge()

    def test_bandwidths(self, value: object) -> None:
        site = Site()
        calls = [{"name": "b", "minBandwidth": value}]
        site.hear(put(APP_GROUPS, app_group({"Pods": [{"name": "a", "dependencies": calls}, {"name": "b"}]})))
        costs = [
            {"destination": "z2", "networkCost": 1, "bandwidthCapacity": value, "bandwidthAllocated": value}
        ]
        site.hear(put(PUBLISHED_NETWORKS, published(costs)))
        annotated = pod("slow")
        annotated["metadata"] = {
            **annotated["metadata"],  # type: ignore[dict-item]
            "annotations": {"kubernetes.io/ingress-bandwidth": str(value)},
        }
        site.hear(put(PODS, annotated))
        site.judge()


@pytest.mark.parametrize("value", NUMBERS, ids=lambda value: str(value)[:20] or "empty")
class TestNumbers:
    def test_costs_between_nodes(self, value: object) -> None:
        site = Site()
        links = [
            {"origin": "good0", "destination": "good1", "cost": value},
            {"origin": "good1", "destination": "good2", "cost": 5},
            {"origin": "good2", "destination": "good0", "cost": value},
        ]
        weights = [{"algorithmName": "Dijkstra", "costList": links}]
        site.hear(
            put(NETWORKS, {"metadata": {"name": "n", "namespace": "a"}, "status": {"weights": weights}})
        )
        talking(site)
        site.judge()

    def test_costs_between_zones(self, value: object) -> None:
        site = Site()
        site.hear(put(PUBLISHED_NETWORKS, published([{"destination": "z2", "networkCost": value}])))
        talking(site)
        site.judge()

    @pytest.mark.parametrize("field", ["weight", "maxNetworkCost"])
    def test_what_an_application_says_of_its_calls(self, field: str, value: object) -> None:
        site = Site()
        calls = [{"name": "b", field: value}]
        talking(
            site,
            app_group({"Pods": [{"name": "a", "dependencies": calls}, {"name": "b"}], "numMembers": value}),
        )
        site.judge()

    def test_what_a_gang_asks_for(self, value: object) -> None:
        site = Site()
        for i, spec in enumerate(
            (
                {"minMember": value},
                {"minMember": 1, "minSubGroup": value},
                {"minMember": 1, "subGroups": [{"name": "s", "minMember": value}]},
                {"minMember": 1, "subGroups": [{"name": "s", "minMember": 1, "minSubGroup": value}]},
                {"minMember": 1, "placement": {"completionTimeout": value}},
            )
        ):
            site.hear(put(OURS, {"metadata": {"name": f"g{i}", "namespace": "a"}, "spec": spec}))
            site.hear(put(PODS, member(f"g{i}")))
        site.judge()

    def test_priorities(self, value: object) -> None:
        site = Site()
        site.hear(put(CLASSES, {"metadata": {"name": "c"}, "value": value}))
        site.hear(put(PODS, member("bad", priority=value, priorityClassName="c")))
        site.judge()


#: What stands in annotations is text, in which anything may be written.
FIGURES = [
    *("NaN", "Infinity", "-Infinity", "1e308", "-1e308", "1e400", "-1", "0", "1e999999"),
    f"{'9' * 5000}",
]


@pytest.mark.parametrize("value", FIGURES, ids=lambda value: value[:20])
class TestAnnotations:
    @pytest.mark.parametrize("metric", ["distance", "latency", "bandwidth", "uplinks"])
    def test_the_quality_of_switches(self, metric: str, value: str) -> None:
        """NaN and Infinity are no JSON, but Python would read them."""
        site = Site()
        for i, written in enumerate(
            (value, json.dumps(value), json.dumps(f"{value}ns"), json.dumps(f"{value}Gbps"))
        ):
            bad = node(f"bad{i}", block="b0")
            bad["metadata"]["annotations"] = {QOS: f'{{"b0": {{"distance": 1, "{metric}": {written}}}}}'}  # type: ignore[index]
            site.hear(put(NODES, bad))
        site.judge()

    def test_how_much_roles_say_to_each_other(self, value: str) -> None:
        site = Site()
        meta = {
            "name": "g",
            "namespace": "a",
            "annotations": {"closeby.dev/task-traffic": f"a-b={value},a-a={value}"},
        }
        site.hear(put(OURS, {"metadata": meta, "spec": {"minMember": 2}}))
        for i, role in enumerate("ab"):
            one = member("g", i)
            one["metadata"]["labels"]["closeby.dev/role"] = role
            site.hear(put(PODS, one))
        site.judge()

    @pytest.mark.parametrize(
        "key", ["closeby.dev/expected-end", "closeby.dev/rank", "closeby.dev/topology-domain"]
    )
    def test_times_and_what_we_write_ourselves(self, key: str, value: str) -> None:
        site = Site()
        one = pod("bad", on="good0")
        one["metadata"] = {**METADATA, "annotations": {key: value}, "labels": {key: value}}
        site.hear(put(PODS, one))
        site.judge()

    @pytest.mark.parametrize(
        "written",
        [
            {"volcano.sh/network-topology-highest-tier": "{}"},
            {"closeby.dev/switches": "1@{}", "closeby.dev/switch-level": "rack"},
            {"closeby.dev/switches": "1@1-{}", "closeby.dev/switch-level": "rack"},
            {"closeby.dev/switches": "{}", "closeby.dev/switch-level": "rack"},
            {"closeby.dev/segment-size": "{}", "closeby.dev/segment-level": "rack"},
            {"kai.scheduler/segment-size": "{}", "kai.scheduler/segment-topology-required-placement": "rack"},
            {f"{SLICE}-required-topology": "rack", f"{SLICE}-size": "{}"},
        ],
        ids=lambda written: next(iter(written)),
    )
    def test_where_a_pod_without_a_gang_must_be(self, written: dict[str, str], value: str) -> None:
        pod_that_asks({key: text.format(value) for key, text in written.items()})


def pod_that_asks(annotations: dict[str, str]) -> None:
    """A pod with these annotations comes, with and without a pod-grouper in the cluster."""
    site = Site()
    bad = pod("bad")
    bad["metadata"] = {**METADATA, "annotations": annotations}
    site.hear(put(PODS, bad))
    site.judge()
    Feed("closeby", pod_grouper=True).take([put(PODS, bad)])


def test_slices_that_are_nested_without_end() -> None:
    pod_that_asks({f"{SLICE}-required-topology-constraints": '[{"x": ' + "[" * 100_000})


METADATA = {"name": "bad", "namespace": "a", "uid": "bad"}


@pytest.mark.parametrize(
    "time", ["0001-01-01T00:00:00Z", "9999-12-31T23:59:59Z", "2026-13-45T99:99:99Z", "", "NaN", 5]
)
def test_times_of_creation(time: object) -> None:
    site = Site()
    one = member("bad")
    one["metadata"]["creationTimestamp"] = time
    site.hear(put(PODS, one))
    site.judge()


def test_latencies_that_are_none() -> None:
    """A Prometheus that a tenant runs says anything; what is not a latency is counted, and no cost."""
    values = ("NaN", "+Inf", "-Inf", "-1", "1e308", "", "0x10", "1e400", "250")
    series = [{"metric": {"origin": "a", "destination": "b"}, "value": [0, value]} for value in values]
    content = json.dumps({"status": "success", "data": {"resultType": "vector", "result": series}})
    found = parse_latencies(content.encode(), "prometheus")
    assert isinstance(found, Latencies)
    assert [one.microseconds for one in found.links] == [250]
    assert found.unusable == len(values) - 1


def test_nodes_with_a_thousand_labels_and_without_room() -> None:
    site = Site()
    for i in range(20):
        labels = {f"example.com/{j}-{i % 3}": f"v{j}" for j in range(1000)} | {BLOCK: f"b{i}"}
        labels |= {f"network.topology.kubernetes.io/t{j}": f"s{j}" for j in range(1000)}
        site.hear(
            put(
                NODES,
                {"metadata": {"name": f"l{i}", "labels": labels}, "status": {"allocatable": {"pods": "0"}}},
            )
        )
    site.judge()
    placed = {one.node for one in bindings_of(site.decisions)}
    assert placed and not {one for one in placed if one.startswith("l")}


def app_group(spec: Mapping[str, object]) -> dict[str, object]:
    return {"metadata": {"name": "app", "namespace": "a"}, "spec": spec}


def published(costs: list[dict[str, object]]) -> dict[str, object]:
    origins = [{"origin": "z1", "costList": costs}]
    topology = [{"topologyKey": "topology.kubernetes.io/zone", "originList": origins}]
    weights = [{"name": "UserDefined", "topologyList": topology}]
    return {"metadata": {"name": "n", "namespace": "a"}, "spec": {"weights": weights}}


def talking(site: Site, group: Mapping[str, object] | None = None) -> None:
    """An application whose two workloads talk, with its pods."""
    calls = [{"name": "b", "maxNetworkCost": 10}]
    site.hear(
        put(APP_GROUPS, group or app_group({"Pods": [{"name": "a", "dependencies": calls}, {"name": "b"}]}))
    )
    for name in "ab":
        one = pod(f"app-{name}")
        one["metadata"] = {
            "name": f"app-{name}",
            "namespace": "a",
            "uid": f"app-{name}",
            "labels": {APP_GROUP_LABEL: "app", WORKLOAD_LABEL: name},
        }
        site.hear(put(PODS, one))


def strange_hosts() -> list[Object]:
    """Nodes as the API server takes them."""
    found = [host(f"strange{i}", f"r{i}") for i in range(6)]
    found[0]["metadata"]["labels"] |= {f"example.com/l{i}": f"v{i}" for i in range(1000)}
    found[1]["metadata"]["labels"] |= {f"network.topology.kubernetes.io/t{i}": f"s{i}" for i in range(1000)}
    for one, figures in zip(
        found[2:], ({"pods": "0"}, {"cpu": "0"}, {GPU: "1e18"}, {"memory": "1e30"}), strict=True
    ):
        one["status"]["allocatable"] = {**one["status"]["allocatable"], **figures}
    for one, text in zip(found, ("NaN", "Infinity", "1e400", "-1", "1e308", "x" * 100_000), strict=True):
        quality = f'{{"s1": {{"distance": {text}, "latency": "1e308ns"}}}}'
        one["metadata"]["annotations"] = {QOS: quality}
    return found


def test_what_the_api_server_lets_through(control_plane: ControlPlane, namespace: str) -> None:
    """Nodes and tenants' objects with figures at the edge of what is taken, all at once."""

    async def run() -> None:
        nodes = [host("n1"), host("n2"), *strange_hosts()]
        async with world(control_plane, namespace, *nodes) as it, it.scheduling() as scheduler:
            taken = 0
            objects = [
                *(
                    (OURS, gang_of({"minMember": value}))
                    for value in (-1, 0, 2**31 - 1, 2**31, 2**63 - 1, 1.5)
                ),
                *((NETWORKS, network(value)) for value in (-1, 0, 2**31, 2**63 - 1, 1e308)),
                *((APP_GROUPS, calls("weight", value)) for value in (-1, 0, 1e308, 10**300)),
                *((APP_GROUPS, calls("maxNetworkCost", value)) for value in (-1, 0, 2**31, 2**63 - 1)),
                *((APP_GROUPS, calls("minBandwidth", value)) for value in ("-5", "1e30", "NaN", "9" * 99)),
            ]
            for i, (resource, content) in enumerate(objects):
                made = {**content, "apiVersion": resource.api_version, "kind": resource.kind}
                made["metadata"] = {"name": f"o{i}"}
                try:
                    await it.api.create(collection(resource, namespace), made)
                except ApiError as error:
                    assert error.status in (400, 422)
                    continue
                taken += 1
                if resource == OURS:
                    await it.create(it.pod(f"o{i}-0", gang=f"o{i}"))
            assert taken > 5
            await it.gang("good", 4, required="rack")

            async def placed() -> bool:
                return sum(name.startswith("good-") for name in await it.placed()) == 4

            await until(placed)
            await until_said(it, "good", "Placed")
            scheduler.engine.validate_state()
            assert not [fields for _, fields in it.lines if "traceback" in fields]
            assert not [fields for _, fields in it.lines if "unexpectedly" in str(fields)]

    asyncio.run(run())


def collection(resource: Resource, namespace: str) -> str:
    return f"/apis/{resource.api_version}/namespaces/{namespace}/{resource.plural.replace('gys', 'gies')}"


def gang_of(spec: Object) -> Object:
    return {"spec": spec}


def network(cost: float) -> Object:
    link = {"origin": "n1", "destination": "n2", "cost": cost}
    return {"spec": {}, "status": {"weights": [{"algorithmName": "Dijkstra", "costList": [link]}]}}


def calls(field: str, value: object) -> Object:
    dependencies = [{"name": "b", field: value}]
    return {"spec": {"Pods": [{"name": "a", "dependencies": dependencies}, {"name": "b"}], "numMembers": 2}}

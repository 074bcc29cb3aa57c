"""What happens to a cluster's objects, and what the engine hears of it."""

import json
from collections.abc import Callable, Mapping

import msgspec

from closeby.kube.client.errors import ApiError
from closeby.kube.state.awaited_kinds import AwaitedKinds, uses_volumes
from closeby.kube.state.feed import Fed, Feed
from closeby.kube.watch.changes import Change, Deleted, Synced, Troubled, upserted
from closeby.kube.watch.resources import (
    ABOUT_VOLUMES,
    NAMESPACES,
    NODES,
    PERSISTENT_VOLUME_CLAIMS,
    PODS,
    SERVICES,
    Resource,
)
from closeby.objects.groups import WORKLOAD
from closeby.objects.selectors import Namespace, PodOwner, selector_of
from closeby.objects.topologies import tier_level
from closeby.objects.volumes import CSINode, PersistentVolumeClaim
from closeby.plugins.registry import profile_for
from closeby.reading.configuration import Configuration
from closeby.reading.dialects.grouping import not_grouped
from closeby.scheduling.engine import Engine
from closeby.scheduling.events import (
    AppGroupChanged,
    AppGroupDeleted,
    BudgetChanged,
    BudgetDeleted,
    GroupChanged,
    GroupDeleted,
    NetworkTopologyChanged,
    NodeDeleted,
    NodeUpserted,
    PodDeleted,
    PodUpserted,
    PriorityClassChanged,
    SelectionChanged,
    StorageChanged,
    StorageDeleted,
    TopologyChanged,
    TopologyDeleted,
)

Object = dict[str, object]


def served(group: str, kind: str, version: str, namespaced: bool = True) -> Resource:
    return Resource(group=group, version=version, kind=kind, plural=f"{kind.lower()}s", namespaced=namespaced)


OURS = served("closeby.dev", "PodGroup", "v1alpha1")
COSCHEDULING = served("scheduling.x-k8s.io", "PodGroup", "v1alpha1")
TOPOLOGIES = served("closeby.dev", "Topology", "v1alpha1", namespaced=False)
CLASSES = served("scheduling.k8s.io", "PriorityClass", "v1", namespaced=False)
CLAIMS = served("resource.k8s.io", "ResourceClaim", "v1")
APP_GROUPS = served("scheduling.sigs.k8s.io", "AppGroup", "v1alpha1")
NETWORKS = served("scheduling.sigs.k8s.io", "NetworkTopology", "v1alpha1")

METADATA = {"name": "p", "namespace": "a", "uid": "uid-p"}
BLOCK = "network.topology.kubernetes.io/block"


def put(resource: Resource, content: Mapping[str, object]) -> tuple[Resource, Change]:
    return resource, upserted(msgspec.Raw(json.dumps(content).encode()))


def gone(resource: Resource, key: str, uid: str = "") -> tuple[Resource, Change]:
    return resource, Deleted(key, uid)


def pod(name: str, *, uid: str = "", on: str = "", phase: str = "Pending", **more: object) -> Object:
    spec: Object = {"schedulerName": "closeby", "containers": [{"name": "c"}], **more}
    if on:
        spec["nodeName"] = on
    return {
        "metadata": {"name": name, "namespace": "a", "uid": uid or f"uid-{name}"},
        "spec": spec,
        "status": {"phase": phase},
    }


def node(name: str, block: str = "", cpu: str = "4") -> Object:
    labels = {BLOCK: block} if block else {}
    return {
        "metadata": {"name": name, "labels": labels},
        "status": {"allocatable": {"cpu": cpu, "pods": "9"}},
    }


def group(name: str, members: int) -> Object:
    return {"metadata": {"name": name, "namespace": "a"}, "spec": {"minMember": members}}


def kinds(fed: Fed) -> list[str]:
    return [type(event).__name__ for event in fed.events]


def test_pods_that_wait_for_us_and_all_that_hold_a_node() -> None:
    feed = Feed("closeby")
    fed = feed.take(
        [
            put(PODS, pod("ours")),
            put(PODS, pod("theirs", schedulerName="default-scheduler")),
            put(PODS, pod("nobodys", schedulerName="")),
            put(PODS, pod("bound", on="n1", schedulerName="default-scheduler")),
            put(PODS, pod("done", on="n1", phase="Succeeded")),
        ]
    )
    names = [event.pod.name for event in fed.events if isinstance(event, PodUpserted)]
    assert (names, len(fed.events)) == (["ours", "bound"], 2)
    assert Feed("default-scheduler").take([put(PODS, pod("nobodys", schedulerName=""))]).events


def test_only_differences_become_events() -> None:
    feed = Feed("closeby")
    first = [put(PODS, pod("p")), put(NODES, node("n1")), put(OURS, group("g", 2))]
    assert kinds(feed.take(first)) == ["PodUpserted", "NodeUpserted", "GroupChanged"]
    assert feed.take(first).events == ()
    assert kinds(feed.take([put(NODES, node("n1", cpu="8"))])) == ["NodeUpserted"]


def test_a_pod_that_is_bound_by_another_scheduler_finishes_and_frees_its_node() -> None:
    feed = Feed("closeby")
    assert feed.take([put(PODS, pod("p", schedulerName="other"))]).events == ()
    assert kinds(feed.take([put(PODS, pod("p", on="n1", schedulerName="other"))])) == ["PodUpserted"]
    (finished,) = feed.take([put(PODS, pod("p", on="n1", phase="Failed"))]).events
    assert isinstance(finished, PodUpserted) and finished.pod.finished
    assert feed.take([put(PODS, pod("p", on="n1", phase="Failed")), gone(PODS, "a/p", "uid-p")]).events == ()


def test_the_gang_of_a_finished_member_hears_when_its_object_is_gone() -> None:
    feed = Feed("closeby")
    member = pod("p", on="n1", phase="Succeeded")
    member["metadata"] = {**METADATA, "labels": {"closeby.dev/pod-group": "g"}}
    (finished,) = feed.take([put(PODS, member)]).events
    assert isinstance(finished, PodUpserted) and (finished.pod.finished, finished.pod.group) == (True, "g")
    assert feed.take([put(PODS, member)]).events == (), "that is told once"
    assert feed.take([gone(PODS, "a/p", "uid-p")]).events == (PodDeleted("uid-p"),)
    assert feed.take([gone(PODS, "a/p", "uid-p")]).events == (), "and so is that"


def test_a_pod_that_comes_back_under_its_name_is_another_pod() -> None:
    feed = Feed("closeby")
    feed.take([put(PODS, pod("p", uid="one", on="n1"))])
    removed, added = feed.take([gone(PODS, "a/p", "one"), put(PODS, pod("p", uid="two"))]).events
    assert removed == PodDeleted("one")
    assert isinstance(added, PodUpserted) and added.pod.uid == "two"


def test_nodes_come_and_go() -> None:
    feed = Feed("closeby")
    feed.take([put(NODES, node("n1"))])
    assert feed.take([gone(NODES, "n1"), gone(NODES, "n2")]).events == (NodeDeleted("n1"),)


def claiming(name: str, *claims: str) -> Object:
    volumes = [{"name": one, "persistentVolumeClaim": {"claimName": one}} for one in claims]
    return pod(name, volumes=volumes)


def test_volumes_come_change_and_go() -> None:
    feed = Feed("closeby")
    claim = {"metadata": METADATA, "spec": {"volumeName": "v"}}
    (changed,) = feed.take([put(PERSISTENT_VOLUME_CLAIMS, claim)]).events
    assert isinstance(changed, StorageChanged)
    assert isinstance(changed.one, PersistentVolumeClaim) and changed.one.key == "a/p"
    nodes = served("storage.k8s.io", "CSINode", "v1", namespaced=False)
    assert kinds(feed.take([put(nodes, {"metadata": {"name": "n1"}})])) == ["StorageChanged"]
    fed = feed.take([gone(PERSISTENT_VOLUME_CLAIMS, "a/p"), gone(nodes, "n1")])
    assert fed.events == (StorageDeleted(PersistentVolumeClaim, "a/p"), StorageDeleted(CSINode, "n1"))


def awaited(
    follow: Callable[[], None] = lambda: None, listed: Callable[[], bool] = lambda: True
) -> AwaitedKinds:
    return AwaitedKinds(ABOUT_VOLUMES, "the claims and volumes", uses_volumes, follow, listed)


def test_pods_with_claims_wait_until_volumes_are_listed() -> None:
    asked: list[str] = []
    there: list[str] = []
    volumes = awaited(lambda: asked.append("volumes"), lambda: bool(there))
    feed = Feed("closeby", awaited=[volumes])
    feed.take([put(PODS, pod("plain")), put(PODS, claiming("theirs", "d") | {"spec": {"nodeName": "n"}})])
    assert asked == []
    (seen,) = feed.take([put(PODS, claiming("p", "data"))]).events
    assert isinstance(seen, PodUpserted)
    assert asked == ["volumes"] and "not listed" in volumes.lack(seen.pod)
    there.append("all")
    assert feed.take([]).events == (seen,) and volumes.lack(seen.pod) == ""
    assert feed.take([]).events == ()


def test_a_pod_that_came_to_need_no_volumes_is_not_given_as_it_was() -> None:
    there: list[str] = []
    feed = Feed("closeby", awaited=[awaited(listed=lambda: bool(there))])
    feed.take([put(PODS, claiming("p", "data"))])
    (later,) = feed.take([put(PODS, pod("p"))]).events
    assert isinstance(later, PodUpserted) and not later.pod.spec.claims
    there.append("all")
    events = feed.take([put(PODS, claiming("q", "data"))]).events
    assert {one.pod.name for one in events if isinstance(one, PodUpserted)} == {"q"}


def test_pods_with_claims_wait_for_a_right() -> None:
    """They are decided about again as soon as it is there; one that is gone is not."""
    volumes = awaited()
    feed = Feed("closeby", awaited=[volumes])
    (p, q) = feed.take([put(PODS, claiming("p", "data")), put(PODS, claiming("q", "data"))]).events[:2]
    assert isinstance(p, PodUpserted)
    nodes = served("storage.k8s.io", "CSINode", "v1", namespaced=False)
    trouble = Troubled(ApiError(403, "Forbidden", "no"), 1.0)
    assert feed.take([(nodes, trouble)]).events == (p, q)
    assert "csinodes.storage.k8s.io" in volumes.lack(p.pod)
    feed.take([gone(PODS, "a/q", "uid-q")])
    assert feed.take([(nodes, trouble)]).events == ()
    assert feed.take([(nodes, Synced("1", 0))]).events == (p,)
    assert volumes.lack(p.pod) == ""


def test_what_can_not_be_read_is_a_problem_and_not_an_end() -> None:
    feed = Feed("closeby")
    feed.take([put(OURS, group("g", 2)), put(NODES, node("n1"))])
    broken = group("g", 2) | {"spec": {"minMember": "many"}}
    fed = feed.take([put(OURS, broken), put(NODES, node("n1", cpu="lots")), put(PODS, pod("p"))])
    # The gang waits until its object is mended; the node still has what it had.
    assert kinds(fed) == ["PodUpserted", "GroupDeleted"]
    assert [one.object for one in fed.problems] == ["PodGroup/a/g", "Node/n1"]
    assert feed.take([put(OURS, broken)]) == Fed(())
    assert kinds(feed.take([put(OURS, group("g", 2))])) == ["GroupChanged"]
    assert feed.take([put(OURS, broken)]).problems[0].field == "spec.minMember"


def test_gangs_of_two_dialects_share_their_names() -> None:
    feed = Feed("closeby")
    assert kinds(feed.take([put(COSCHEDULING, group("g", 3))])) == ["GroupChanged"]
    fed = feed.take([put(OURS, group("g", 2))])
    assert [event.group.min_member for event in fed.events if isinstance(event, GroupChanged)] == [2]
    assert "closeby.dev/v1alpha1 counts" in fed.problems[0].remedy
    assert feed.take([put(COSCHEDULING, group("g", 4))]).events == ()
    (back,) = feed.take([gone(OURS, "a/g")]).events
    assert isinstance(back, GroupChanged) and back.group.min_member == 4
    assert feed.take([gone(COSCHEDULING, "a/g")]).events == (GroupDeleted("a/g"),)


def test_a_kind_that_changes_its_version_loses_nothing() -> None:
    """The new version is listed before the old one is given up."""
    feed = Feed("closeby")
    old, new = (
        served("scheduling.k8s.io", "PodGroup", "v1alpha3"),
        served("scheduling.k8s.io", "PodGroup", "v1beta1"),
    )
    gang = {
        "metadata": {"name": "g", "namespace": "a"},
        "spec": {"schedulingPolicy": {"gang": {"minCount": 2}}},
    }
    assert kinds(feed.take([put(old, gang)])) == ["GroupChanged"]
    assert "GroupDeleted" not in kinds(feed.take([put(new, gang), gone(old, "a/g")]))
    assert kinds(feed.take([gone(new, "a/g")])) == ["GroupDeleted"]


def test_priorities_applications_and_networks() -> None:
    feed = Feed("closeby")
    app = {
        "metadata": {"name": "shop", "namespace": "a"},
        "spec": {"numMembers": 1, "topologySortingAlgorithm": "KahnSort", "Pods": [{"podName": "web"}]},
    }
    network = {"metadata": {"name": "net", "namespace": "a"}, "spec": {"weights": []}}
    fed = feed.take(
        [
            put(CLASSES, {"metadata": {"name": "high"}, "value": 10}),
            put(APP_GROUPS, app),
            put(NETWORKS, network),
        ]
    )
    found = {type(event) for event in fed.events}
    assert found == {PriorityClassChanged, AppGroupChanged, NetworkTopologyChanged}
    assert feed.take([gone(APP_GROUPS, "a/shop")]).events == (AppGroupDeleted("a/shop"),)


def test_pod_disruption_budgets_come_and_go() -> None:
    budgets = served("policy", "PodDisruptionBudget", "v1")
    budget: Object = {"spec": {"minAvailable": 1}, "status": {"disruptionsAllowed": 2}, "metadata": METADATA}
    feed = Feed("closeby")
    [event] = feed.take([put(budgets, budget)]).events
    assert isinstance(event, BudgetChanged)
    assert (event.budget.key, event.budget.min_available, event.budget.allowed) == ("a/p", 1, 2)
    assert feed.take([gone(budgets, "a/p")]).events == (BudgetDeleted("a/p"),)


def test_namespaces_and_services() -> None:
    feed = Feed("closeby")
    fed = feed.take([put(NAMESPACES, {"metadata": {"name": "a", "labels": {"team": "x"}}})])
    labels = {"team": "x", "kubernetes.io/metadata.name": "a"}
    assert fed.events == (SelectionChanged(Namespace(name="a", labels=labels)),)
    (gone_event,) = feed.take([gone(NAMESPACES, "a")]).events
    assert isinstance(gone_event, SelectionChanged) and gone_event.gone
    service = {"metadata": {"name": "web", "namespace": "a"}, "spec": {"selector": {"app": "web"}}}
    owner = PodOwner(kind="Service", namespace="a", name="web", selector=selector_of({"app": "web"}))
    assert feed.take([put(SERVICES, service)]).events == (SelectionChanged(owner),)
    assert feed.take([gone(SERVICES, "a/web")]).events == (
        SelectionChanged(PodOwner(kind="Service", namespace="a", name="web"), gone=True),
    )


def test_topologies_of_network_labels_follow_the_nodes() -> None:
    feed = Feed("closeby")
    assert kinds(feed.take([put(NODES, node("n0"))])) == ["NodeUpserted"]
    fed = feed.take([put(NODES, node(f"n{i}", block=f"b{i % 2}")) for i in range(4)])
    declared = [event.topology.name for event in fed.events if isinstance(event, TopologyChanged)]
    assert declared == ["network-labels"]
    # Neither another node of a block nor one that says nothing changes which levels there are.
    assert (
        kinds(feed.take([put(NODES, node("n4", block="b0")), put(NODES, node("n5"))])) == ["NodeUpserted"] * 2
    )
    fed = feed.take([put(NODES, node(f"n{i}")) for i in range(5)])
    assert fed.events[-1] == TopologyDeleted("network-labels")


def zoned(name: str, zone: str) -> Object:
    found = node(name)
    found["metadata"] = {"name": name, "labels": {"topology.kubernetes.io/zone": zone}}
    return found


def topologies(fed: Fed) -> list[str]:
    return [
        f"+{event.topology.name}" if isinstance(event, TopologyChanged) else f"-{event.name}"
        for event in fed.events
        if isinstance(event, TopologyChanged | TopologyDeleted)
    ]


def test_zones_are_a_topology_until_an_object_declares_one() -> None:
    feed = Feed("closeby")
    assert topologies(feed.take([put(NODES, zoned("n1", "a"))])) == ["+zones"]
    assert topologies(feed.take([put(NODES, zoned("n2", "b"))])) == [], "it has the same levels"
    spec = {"levels": [{"nodeLabel": "rack"}]}
    declared = put(TOPOLOGIES, {"metadata": {"name": "own"}, "spec": spec})
    assert sorted(topologies(feed.take([declared]))) == ["+own", "-zones"]
    invalid = put(TOPOLOGIES, {"metadata": {"name": "own"}, "spec": {"levels": []}})
    assert "+zones" in topologies(feed.take([invalid])), "one that is not usable declares none"
    assert sorted(topologies(feed.take([declared]))) == ["+own", "-zones"]
    assert sorted(topologies(feed.take([gone(TOPOLOGIES, "own")]))) == ["+zones", "-own"]


def test_a_finer_family_takes_over_once_most_nodes_carry_it() -> None:
    feed = Feed("closeby")
    feed.take([put(NODES, zoned(name, "a")) for name in ("n1", "n2", "n3")])
    finer = {"topology.kubernetes.io/zone": "a", "cloud.google.com/gce-topology-block": "b"}

    def with_block(name: str) -> tuple[Resource, Change]:
        return put(NODES, {**zoned(name, "a"), "metadata": {"name": name, "labels": finer}})

    assert topologies(feed.take([with_block("n1")])) == []
    assert sorted(topologies(feed.take([with_block("n2")]))) == ["+gke", "-zones"]
    assert sorted(topologies(feed.take([gone(NODES, "n1"), gone(NODES, "n2")]))) == ["+zones", "-gke"]


def test_an_object_replaces_the_topology_of_its_name_that_was_read_from_labels() -> None:
    feed = Feed("closeby")
    feed.take([put(NODES, node("n1", block="b1"))])
    chosen = {"metadata": {"name": "network-labels"}, "spec": {"levels": [{"nodeLabel": "rack"}]}}
    (event,) = feed.take([put(TOPOLOGIES, chosen)]).events
    assert isinstance(event, TopologyChanged) and event.topology.source == "closeby.dev/v1alpha1"
    assert kinds(feed.take([put(NODES, node("n2", block="b2"))])) == ["NodeUpserted"]
    (event,) = feed.take([gone(TOPOLOGIES, "network-labels")]).events
    assert isinstance(event, TopologyChanged) and "node labels" in event.topology.source


def test_a_pod_that_requires_a_placement_waits_for_its_pod_group() -> None:
    """Placed alone it would be anywhere."""
    asks = pod("p")
    asks["metadata"] = {
        "name": "p",
        "namespace": "a",
        "uid": "u",
        "annotations": {"kueue.x-k8s.io/podset-required-topology": "rack"},
    }
    (event,) = Feed("closeby").take([put(PODS, asks)]).events
    assert isinstance(event, PodUpserted) and "PodGroup" in event.pod.spec.unsupported[0]


def test_a_pod_that_refers_to_a_workload_waits_for_its_pod_group() -> None:
    """The pod-grouper makes it, and then the pod names it."""
    one = pod("p")
    one |= {"spec": {"schedulerName": "closeby", "workloadRef": {"name": "train", "podGroup": "workers"}}}
    for grouper in (False, True):
        (event,) = Feed("closeby", pod_grouper=grouper).take([put(PODS, one)]).events
        assert isinstance(event, PodUpserted) and "train" in event.pod.spec.unsupported[0]
    labels = {"closeby.dev/pod-group": "train.workers"}
    one |= {"metadata": {"name": "p", "namespace": "a", "uid": "u", "labels": labels}}
    (event,) = Feed("closeby", pod_grouper=True).take([put(PODS, one)]).events
    assert isinstance(event, PodUpserted)
    assert (event.pod.group, event.pod.spec.unsupported) == ("train.workers", ())


def test_with_a_pod_grouper_owned_pods_wait_for_its_decision() -> None:
    def waits(owner: str = "Job", **meta: Mapping[str, str]) -> bool:
        one = pod("p")
        owners = [{"kind": owner, "name": "o", "uid": "u", "controller": True}] if owner else []
        one["metadata"] = {"name": "p", "namespace": "a", "uid": "u", "ownerReferences": owners, **meta}
        (without,) = Feed("closeby").take([put(PODS, one)]).events
        assert isinstance(without, PodUpserted) and without.pod.spec.unsupported == ()
        (event,) = Feed("closeby", pod_grouper=True).take([put(PODS, one)]).events
        assert isinstance(event, PodUpserted)
        return bool(event.pod.spec.unsupported)

    assert waits()
    assert waits(owner="ReplicaSet")
    assert waits(labels={"kueue.x-k8s.io/pod-group-name": "g"}, owner="")
    assert not waits(labels={"closeby.dev/pod-group": "g"})
    assert not waits(annotations={"closeby.dev/pod-group": "none"})
    assert not waits(annotations={"scheduling.k8s.io/group-name": "g"})
    assert not waits(owner="")
    assert not waits(owner="DaemonSet")


def test_a_word_that_is_spoken_lets_the_pod_go_on() -> None:
    feed = Feed("closeby", pod_grouper=True)
    one = pod("p")
    meta = {"name": "p", "namespace": "a", "uid": "u", "ownerReferences": [{"kind": "Job", "name": "o"}]}
    one["metadata"] = meta
    (waiting,) = feed.take([put(PODS, one)]).events
    assert isinstance(waiting, PodUpserted)
    assert waiting.pod.spec.unsupported == ("what Job/o asks for, which the pod-grouper has not said yet",)
    assert not_grouped(waiting.pod) is None
    one["metadata"] = {
        **meta,
        "annotations": {"closeby.dev/not-grouped": "GangIncomplete: Job/o: no Workload: w"},
    }
    (wrong,) = feed.take([put(PODS, one)]).events
    assert isinstance(wrong, PodUpserted)
    told = not_grouped(wrong.pod)
    assert told is not None and (told.reason, told.message) == ("GangIncomplete", "Job/o: no Workload: w")
    one["metadata"] = {**meta, "labels": {"closeby.dev/pod-group": "g"}}
    (member,) = feed.take([put(PODS, one)]).events
    assert isinstance(member, PodUpserted)
    assert (member.pod.group, member.pod.spec.unsupported) == ("g", ())


def test_a_member_of_a_volcano_job_is_in_the_subgroup_of_its_task() -> None:
    member = pod("p")
    member["metadata"] = {
        "name": "p",
        "namespace": "a",
        "uid": "u",
        "annotations": {"scheduling.k8s.io/group-name": "job", "volcano.sh/task-spec": "worker"},
    }
    (event,) = Feed("closeby").take([put(PODS, member)]).events
    assert isinstance(event, PodUpserted) and (event.pod.group, event.pod.subgroup) == ("job", "worker")


def test_the_engine_takes_it_all() -> None:
    feed = Feed("closeby")
    engine = Engine(lambda handle: profile_for(Configuration(), handle))
    for batch in (
        [put(PODS, pod("early", on="n9")), put(PODS, pod("p"))],
        [put(NODES, node("n1")), put(NODES, node("n9"))],
        [gone(NODES, "n9"), gone(PODS, "a/early", "uid-early"), gone(PODS, "a/p", "uid-p")],
    ):
        engine.handle(*feed.take(batch).events)
        engine.validate_state()
    assert engine.cluster.slot("n1") is not None


def allocated(name: str, node_name: str, **status: object) -> Object:
    field = {"key": "metadata.name", "operator": "In", "values": [node_name]}
    selector = {"nodeSelectorTerms": [{"matchFields": [field]}]}
    return {
        "metadata": {"name": name, "namespace": "a"},
        "status": {"allocation": {"nodeSelector": selector}, **status},
    }


def test_a_pod_is_read_again_when_its_resource_claim_changes() -> None:
    """It comes before its claim, which is allocated, moves, and goes."""

    def nodes_of(fed: Fed) -> list[tuple[bool, list[str]]]:
        specs = [event.pod.spec for event in fed.events if isinstance(event, PodUpserted)]
        return [
            (bool(spec.unsupported), [term.fields[0].values[0] for one in spec.claimed_nodes for term in one])
            for spec in specs
        ]

    feed = Feed("closeby")
    using = pod("p", resourceClaims=[{"name": "c", "resourceClaimName": "gpu"}])
    assert nodes_of(feed.take([put(PODS, using)])) == [(True, [])]
    waiting = {"metadata": {"name": "gpu", "namespace": "a"}}
    assert nodes_of(feed.take([put(CLAIMS, waiting), put(CLAIMS, allocated("other", "n9"))])) == []
    assert nodes_of(feed.take([put(CLAIMS, allocated("gpu", "n1"))])) == [(False, ["n1"])]
    assert nodes_of(feed.take([put(CLAIMS, allocated("gpu", "n2"))])) == [(False, ["n2"])]
    assert nodes_of(feed.take([put(CLAIMS, allocated("gpu", "n2"))])) == []
    assert nodes_of(feed.take([gone(CLAIMS, "a/gpu")])) == [(True, [])]
    feed.take([gone(PODS, "a/p", "uid-p")])
    assert nodes_of(feed.take([put(CLAIMS, allocated("gpu", "n1"))])) == []


def test_pods_wait_for_a_resource_claim_that_can_not_be_read_any_more() -> None:
    feed = Feed("closeby")
    feed.take([put(CLAIMS, allocated("gpu", "n1")), put(PODS, pod("p", resourceClaims=USING))])
    fed = feed.take([put(CLAIMS, {**allocated("gpu", "n1"), "status": {"allocation": []}})])
    assert [one.field for one in fed.problems] == ["status.allocation"]
    (event,) = fed.events
    assert isinstance(event, PodUpserted) and event.pod.spec.unsupported == ("spec.resourceClaims[0]",)
    assert feed.take([gone(CLAIMS, "a/gpu")]).events == ()


def test_a_resource_claim_serves_the_next_pod_when_one_that_uses_it_is_gone() -> None:
    """One place of the 256 is left. The claim is not reserved for a pod of ours before it has its node."""
    users = [f"o{i}" for i in range(255)]
    using: object = [{"name": "c", "resourceClaimName": "gpu"}]

    def reserved(*uids: str) -> tuple[Resource, Change]:
        consumers = [{"resource": "pods", "uid": uid} for uid in uids]
        return put(CLAIMS, allocated("gpu", "n1", reservedFor=consumers))

    def served(*changes: tuple[Resource, Change]) -> list[str]:
        events = [one for one in feed.take([*changes]).events if isinstance(one, PodUpserted)]
        waiting = [one.pod for one in events if one.pod.node_name is None]
        return [one.name for one in waiting if not one.spec.unsupported]

    feed = Feed("closeby")
    pods = [put(PODS, pod(name, resourceClaims=using)) for name in ("p", "q", "r")]
    assert served(reserved(*users), *pods) == ["p"]
    bound = put(PODS, pod("p", on="n1", resourceClaims=using))
    assert served(bound) == []
    # It is reserved for that one now, and a pod of another scheduler has ended.
    assert served(reserved("uid-p", *users[1:])) == ["q"]
    assert served(gone(PODS, "a/q", "uid-q")) == ["r"]


def sharing(places: int) -> Callable[..., dict[str, bool]]:
    """For a feed with a claim that has so many places left: which pods changes give one, or take it from."""
    feed = Feed("closeby")
    users = [{"resource": "pods", "uid": f"o{i}"} for i in range(256 - places)]
    feed.take([put(CLAIMS, allocated("gpu", "n1", reservedFor=users))])

    def served(*changes: tuple[Resource, Change]) -> dict[str, bool]:
        events = [one for one in feed.take([*changes]).events if isinstance(one, PodUpserted)]
        waiting = [one.pod for one in events if one.pod.node_name is None and not one.pod.terminating]
        return {one.name: not one.spec.unsupported for one in waiting}

    return served


USING: list[dict[str, str]] = [{"name": "c", "resourceClaimName": "gpu"}]


def test_pods_with_a_node_have_the_places_of_a_resource_claim_whatever_came_first() -> None:
    """As after a restart, where pods that wait may be listed first."""
    served = sharing(1)
    assert served(put(PODS, pod("a", resourceClaims=USING))) == {"a": True}
    assert served(put(PODS, pod("z", on="n1", resourceClaims=USING))) == {"a": False}
    assert served(gone(PODS, "a/z", "uid-z")) == {"a": True}


def test_a_pod_that_is_being_deleted_has_no_place_of_a_resource_claim_however_often_it_is_seen() -> None:
    served = sharing(1)
    ends = pod("p", resourceClaims=USING)
    ends["metadata"] = {**METADATA, "deletionTimestamp": "2030-01-01T00:00:00Z"}
    served(put(PODS, ends))
    served(put(PODS, ends))
    assert served(put(PODS, pod("q", resourceClaims=USING))) == {"q": True}


def test_only_the_next_pod_is_read_again_when_one_of_many_leaves_a_resource_claim() -> None:
    served = sharing(2)
    for number in range(300):
        served(put(PODS, pod(f"p{number}", resourceClaims=USING)))
    assert served(gone(PODS, "a/p299", "uid-p299")) == {}
    assert served(gone(PODS, "a/p0", "uid-p0")) == {"p2": True}


def test_a_pod_with_its_node_does_not_follow_its_resource_claim() -> None:
    feed = Feed("closeby")
    claims: object = [{"name": "c", "resourceClaimName": "gpu"}]
    waiting, placed = pod("p", resourceClaims=claims), pod("p", on="n1", resourceClaims=claims)
    feed.take([put(PODS, waiting), put(PODS, placed)])
    assert feed.take([put(CLAIMS, allocated("gpu", "n2"))]).events == ()


def test_hypernodes_give_nodes_their_tiers_and_take_them_back() -> None:
    feed, resource = Feed("closeby"), served("topology.volcano.sh", "HyperNode", "v1alpha1", namespaced=False)

    def hypernode(name: str, *members: str) -> Object:
        chosen = [{"type": "Node", "selector": {"exactMatch": {"name": one}}} for one in members]
        return {"metadata": {"name": name}, "spec": {"tier": 1, "members": chosen}}

    def racks(fed: Fed) -> dict[str, str | None]:
        return {
            event.node.name: event.node.labels.get(tier_level(1))
            for event in fed.events
            if isinstance(event, NodeUpserted)
        }

    assert racks(feed.take([put(NODES, node("n0")), put(NODES, node("n1"))])) == {"n0": None, "n1": None}
    fed = feed.take([put(resource, hypernode("a", "n0"))])
    assert racks(fed) == {"n0": "a"}
    (changed,) = (one for one in fed.events if isinstance(one, TopologyChanged))
    assert changed.topology.name == "hypernodes"
    # A heartbeat says nothing, a node that changes keeps its HyperNode, and a new one gets it.
    assert feed.take([put(NODES, node("n0"))]).events == ()
    assert racks(feed.take([put(NODES, node("n0", cpu="8"))])) == {"n0": "a"}
    assert racks(feed.take([put(resource, hypernode("a", "n0", "n1", "n2"))])) == {"n1": "a"}
    assert racks(feed.take([put(NODES, node("n2"))])) == {"n2": "a"}
    fed = feed.take([gone(resource, "a")])
    assert racks(fed) == {"n0": None, "n1": None, "n2": None}
    assert [one for one in fed.events if isinstance(one, TopologyDeleted)] == [TopologyDeleted("hypernodes")]


def asking(workload: str) -> Object:
    """Asks for a place for a pod of that Workload (by uid)."""
    sets = [{"name": "main", "count": 1, "template": {"spec": pod("none")["spec"]}}]
    about = {"namespace": "a", "name": "train", "uid": workload}
    return {
        "metadata": {"name": "question", "namespace": "closeby"},
        "spec": {"placesFor": {"workload": about, "podSets": sets}},
    }


def of_workload(name: str, workload: str) -> Object:
    """A pod that waits, of that Workload; of none where it is empty."""
    made = pod(name)
    annotations = {WORKLOAD: workload} if workload else {}
    return {**made, "metadata": {"name": name, "namespace": "a", "uid": name, "annotations": annotations}}


def test_a_pod_that_named_a_workload_is_heard_of_no_more_once_it_is_gone() -> None:
    for now in ("", "w2"):
        feed = Feed("closeby", own_namespace="closeby")
        feed.take([put(PODS, of_workload("p", "w1"))])
        feed.take([put(PODS, of_workload("p", now))])
        assert kinds(feed.take([gone(PODS, "a/p", "p")])) == ["PodDeleted"]
        for workload in ("w1", "w2"):
            events = feed.take([put(OURS, asking(workload))]).events
            assert not [one for one in events if isinstance(one, PodUpserted)]

"""Objects of our kinds: which the definitions take, which they refuse and in what words, and their status."""

from typing import Any

from tests.control_plane.api import Object

OURS, KEP = "closeby.dev/v1alpha1", "scheduling.sigs.k8s.io/v1alpha1"
PLURALS = {
    "PodGroup": "podgroups",
    "Topology": "topologies",
    "AppGroup": "appgroups",
    "NetworkTopology": "networktopologies",
}
LONG = "x" * 245


def an(kind: str, **spec: Any) -> Object:
    """An object with this spec."""
    group = OURS if kind in ("PodGroup", "Topology") else KEP
    return {"apiVersion": group, "kind": kind, "metadata": {"name": "one"}, "spec": spec}


def gang(**spec: Any) -> Object:
    return an("PodGroup", **spec)


def placement(**fields: str) -> Object:
    return an("PodGroup", minMember=2, placement=fields)


def levels(*given: str | tuple[str, str]) -> Object:
    """Levels by label, or by label and alias."""
    split = [(one, None) if isinstance(one, str) else one for one in given]
    return an(
        "Topology",
        levels=[{"nodeLabel": label} | ({} if alias is None else {"alias": alias}) for label, alias in split],
    )


TAKEN = {
    "a gang of which nothing is said": gang(),
    "a gang": gang(
        minMember=8,
        priorityClassName="high",
        topologyConstraint={
            "topology": "fabric",
            "requiredTopologyLevel": "zone",
            "preferredTopologyLevel": "rack",
        },
        placement={"strategy": "spread", "onPartial": "Evict", "completionTimeout": "1h30m"},
        disruptionMode={"all": {}},
    ),
    "a level of whichever topology has it": gang(topologyConstraint={"requiredTopologyLevel": "rack"}),
    "a topology of which no level is asked for": gang(topologyConstraint={"topology": "fabric"}),
    "names that are empty": gang(
        topologyConstraint={"topology": "", "requiredTopologyLevel": ""},
        placement={"strategy": "", "onPartial": "", "completionTimeout": ""},
    ),
    "a minimum below that of its subgroups": gang(minMember=1, subGroups=[{"name": "a", "minMember": 5}]),
    "a minimum above that of its subgroups": gang(minMember=9, subGroups=[{"name": "a", "minMember": 5}]),
    "a tree": gang(
        minSubGroup=1,
        subGroups=[
            {"name": "left", "minSubGroup": 1},
            {"name": "leaf", "parent": "left", "minMember": 0},
            {"name": "right", "parent": "", "topologyConstraint": {"preferredTopologyLevel": "rack"}},
        ],
    ),
    "no subgroups, and none needed": gang(minSubGroup=0, subGroups=[]),
    "as many subgroups as there may be, with the longest names": gang(
        subGroups=[
            {"name": f"{LONG}-{i:03}", **({"parent": f"{LONG}-255"} if i < 255 else {})} for i in range(256)
        ]
    ),
    "as many subgroups as the rules look at": gang(
        subGroups=[
            {
                "name": f"{LONG}-{i:03}",
                "minSubGroup": min(i, 1),
                **({"parent": f"{LONG}-{i + 1:03}"} if i < 127 else {}),
            }
            for i in range(128)
        ]
    ),
    "segments of racks within blocks": gang(
        minMember=128,
        layers=[
            {"level": "block", "size": 64, "topology": "fabric"},
            {
                "level": "rack",
                "size": 16,
                "mode": "preferred",
                "arrangement": "spread",
                "exclusive": "kind",
                "remainder": "forbid",
            },
        ],
    ),
    "segments of several sizes": gang(minMember=8, layers=[{"level": "rack", "counts": [1, 3, 4]}]),
    "segments of which some may come later": gang(
        layers=[{"level": "rack", "size": 4, "minSegments": 2, "remainder": "allow"}]
    ),
    "two racks for half an hour": gang(
        minMember=8, layers=[{"level": "rack", "maxDomains": 2, "relaxAfter": "30m"}]
    ),
    "segments of subgroups": gang(
        subGroups=[
            {"name": "driver"},
            {"name": "workers", "minMember": 8, "layers": [{"level": "rack", "size": 4}]},
        ]
    ),
    "a fraction of an hour": placement(completionTimeout="1.5h"),
    "the spans of Go": placement(completionTimeout=".5s250ms3us1ns"),
    "a topology": levels(
        ("topology.kubernetes.io/zone", "zone"), "example.com/rack", "kubernetes.io/hostname"
    ),
    "a topology of one level": levels("rack"),
    "aliases that are empty": levels(("a/zone", ""), ("a/rack", "")),
    "sixteen levels": levels(*(f"a/level-{i}" for i in range(16))),
    "an application": an(
        "AppGroup",
        numMembers=3,
        topologySortingAlgorithm="KahnSort",
        Pods=[
            {"name": "P1", "type": "Pod", "dependencies": [{"name": "P2", "type": "Pod"}]},
            {
                "name": "P2",
                "dependencies": [{"name": "P3", "weight": 2.5, "minBandwidth": "1Gi", "maxNetworkCost": 9}],
            },
            {"name": "P3", "type": "Pod"},
        ],
    ),
    "an application as in the KEP's example": an(
        "AppGroup", Pods=[{"name": "P1", "dependencies": {"podAffinity": "P2"}}, {"name": "P2"}]
    ),
    "pods in lower case": an(
        "AppGroup", pods=[{"name": "P1", "dependencies": {"podAffinity": ["P2", "P3"]}}]
    ),
    "a sort that nobody knows": an("AppGroup", topologySortingAlgorithm="Bubble", Pods=[{"name": "P1"}]),
    "a network": an(
        "NetworkTopology",
        metricProvider={"type": "Prometheus", "address": "http://prometheus:9090"},
        topologyAlgorithm="Dijkstra",
        freqUpdate=5,
        timeRangeInMinutes=30,
    ),
    "a list of providers": an("NetworkTopology", metricProvider=[{"address": "http://prometheus:9090"}]),
    "a network of which nothing is said": an("NetworkTopology"),
}

REFUSED = {
    "a negative minimum": (gang(minMember=-1), "spec.minMember", "greater than or equal to 0"),
    "a strategy that nobody knows": (
        placement(strategy="scatter"),
        "spec.placement.strategy",
        'supported values: "binpack", "spread", ""',
    ),
    "more top-level subgroups than there are": (
        gang(minSubGroup=2, subGroups=[{"name": "a"}, {"name": "b", "parent": "a"}]),
        "spec",
        "minSubGroup is greater than the number of subgroups without a parent; lower it, or leave it out",
    ),
    "subgroups that there are none of": (gang(minSubGroup=1), "spec", "minSubGroup is greater than"),
    "a parent of itself": (
        gang(subGroups=[{"name": "a", "parent": "a"}]),
        "spec.subGroups",
        "a subgroup is its own parent; take the parent out",
    ),
    "a parent that is not there": (
        gang(subGroups=[{"name": "a"}, {"name": "b", "parent": "c"}]),
        "spec.subGroups",
        "a parent is not among the subgroups; name one of them, or none",
    ),
    "more subgroups than there are below": (
        gang(subGroups=[{"name": "a", "minSubGroup": 2}, {"name": "b", "parent": "a"}]),
        "spec.subGroups",
        "a minSubGroup is greater than the number of subgroups below; lower it, or leave it out",
    ),
    "a subgroup twice": (
        gang(subGroups=[{"name": "a"}, {"name": "a"}]),
        "spec.subGroups[1]",
        "Duplicate value",
    ),
    "a subgroup without a name": (
        gang(subGroups=[{"name": ""}]),
        "spec.subGroups[0].name",
        "at least 1 chars",
    ),
    "a size that does not divide the one above": (
        gang(minMember=12, layers=[{"level": "block", "size": 6}, {"level": "rack", "size": 4}]),
        "spec.layers",
        "a size does not divide that of the layer above",
    ),
    "layers that become coarser": (
        gang(minMember=8, layers=[{"level": "rack", "size": 4}, {"level": "block", "size": 8}]),
        "spec.layers",
        "a layer is coarser than the one above",
    ),
    "a minimum of segments in an inner layer": (
        gang(
            minMember=8,
            layers=[{"level": "block", "size": 4}, {"level": "rack", "size": 2, "minSegments": 1}],
        ),
        "spec.layers",
        "minSegments stands in another layer than the first; write it there",
    ),
    "a layer of any size": (
        gang(minMember=8, layers=[{"level": "block"}]),
        "spec.layers[0]",
        "give either size or counts",
    ),
    "a layer of two sizes": (
        gang(minMember=8, layers=[{"level": "block", "size": 8, "counts": [8]}]),
        "spec.layers[0]",
        "give either size or counts",
    ),
    "a layer for no time": (
        gang(minMember=8, layers=[{"level": "block", "size": 8, "relaxAfter": "0s"}]),
        "spec.layers[0].relaxAfter",
        "must be longer than 0s",
    ),
    "a mode that nobody knows": (
        gang(minMember=8, layers=[{"level": "block", "size": 8, "mode": "hard"}]),
        "spec.layers[0].mode",
        'supported values: "", "required", "preferred"',
    ),
    "no levels": (levels(), "spec.levels", "at least 1 items"),
    "too many levels": (levels(*(f"a/level-{i}" for i in range(17))), "spec.levels", "at most 16 items"),
    "a level twice": (levels("a/rack", "a/rack"), "spec.levels[1]", "Duplicate value"),
    "a level that is not a label": (levels("a rack"), "spec.levels[0].nodeLabel", "should match"),
    "a level with an empty prefix": (levels("/rack"), "spec.levels[0].nodeLabel", "should match"),
    "a host above a rack": (
        levels("kubernetes.io/hostname", "a/rack"),
        "spec.levels",
        "kubernetes.io/hostname is not the last level; move it to the end",
    ),
    "an alias twice": (
        levels(("a/zone", "x"), ("a/rack", "x")),
        "spec.levels",
        "an alias is given twice; give each level an alias of its own",
    ),
    "an alias that is a label": (
        levels(("a/zone", "a/rack"), "a/rack"),
        "spec.levels",
        "an alias is also a nodeLabel; choose another alias",
    ),
    "an application without workloads": (
        an("AppGroup", numMembers=3),
        "spec",
        "no workloads are given; list them under Pods with their dependencies",
    ),
    "a workload without a name": (
        an("AppGroup", Pods=[{"name": ""}]),
        "spec.Pods[0].name",
        "at least 1 chars",
    ),
}

#: What closeby itself gets by with: it says so, and goes on without.
REFUSED_BY_THE_SERVER_ALONE = {
    "a policy that nobody knows": (
        placement(onPartial="Delete"),
        "spec.placement.onPartial",
        'supported values: "Keep", "Evict", ""',
    ),
    "no time at all": (
        placement(completionTimeout="0s"),
        "spec.placement.completionTimeout",
        "must be longer than 0s",
    ),
    "no span of time": (
        placement(completionTimeout="soon"),
        "spec.placement.completionTimeout",
        "should match",
    ),
    "an application of nobody": (
        an("AppGroup", numMembers=0, Pods=[{"name": "P1"}]),
        "spec.numMembers",
        "greater than or equal to 1",
    ),
    "a network looked at all the time": (
        an("NetworkTopology", freqUpdate=0),
        "spec.freqUpdate",
        "greater than or equal to 1",
    ),
}

TIME = "2026-11-21T17:00:00Z"
CONDITION = {
    "type": "Valid",
    "status": "False",
    "reason": "InvalidSpec",
    "message": "spec: no",
    "observedGeneration": 1,
    "lastTransitionTime": TIME,
}
STATUSES: dict[str, tuple[Object, Object, dict[str, str]]] = {
    "PodGroup": (
        gang(minMember=2),
        {
            "scheduled": 2,
            "domain": "zone-a/rack-1",
            "plan": {
                "topology": "fabric",
                "level": "rack",
                "domain": ["zone-a", "rack-1"],
                "made": TIME,
                "nodes": [{"name": "n1", "pods": [{"name": "w-0", "uid": "1"}, {"name": "w-1", "uid": "2"}]}],
            },
            "conditions": [CONDITION, {"type": "Scheduled", "status": "True", "reason": "Placed"}],
        },
        {
            "Min": "2",
            "Scheduled": "2",
            "Domain": "zone-a/rack-1",
            "State": "Placed",
            "Valid": "False",
        },
    ),
    "Topology": (
        levels("a/zone", "a/block", "a/rack"),
        {"conditions": [CONDITION]},
        {"Coarsest": "a/zone", "Finest": "a/rack"},
    ),
    "AppGroup": (
        an("AppGroup", numMembers=2, Pods=[{"name": "P1"}]),
        {
            "runningPods": 1,
            "podsScheduled": [{"name": "P1", "replicaID": "p1-0", "hostname": "n1"}],
            "scheduleStartTime": TIME,
            "topologyCalculationTime": TIME,
            "topologyOrder": [{"podName": "P1", "index": 1}],
            "conditions": [CONDITION],
        },
        {"Members": "2", "Running": "1", "First": "P1", "Valid": "False"},
    ),
    "NetworkTopology": (
        an("NetworkTopology", topologyAlgorithm="Dijkstra"),
        {
            "nodeCount": 2,
            "weightCalculationTime": TIME,
            "weights": [
                {
                    "algorithmName": "Dijkstra",
                    "costList": [
                        {
                            "origin": "n1",
                            "originZone": "z1",
                            "destination": "n2",
                            "destinationZone": "z2",
                            "cost": 5,
                        }
                    ],
                    "topologyList": [
                        {
                            "topologyKey": "topology.kubernetes.io/zone",
                            "originList": [
                                {
                                    "origin": "z1",
                                    "costList": [
                                        {"destination": "z2", "networkCost": 5, "bandwidthCapacity": "1Gi"}
                                    ],
                                }
                            ],
                        }
                    ],
                }
            ],
            "conditions": [CONDITION],
        },
        {"Nodes": "2", "Algorithm": "Dijkstra", "Valid": "False"},
    ),
}

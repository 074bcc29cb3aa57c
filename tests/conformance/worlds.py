"""Random small clusters, and pods to be judged on them. All of it follows from a seed.

A world is made in an order that Kubernetes accepts: what is referred to comes first. The pods on its nodes
are given their node by us; no scheduler chose it.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any

from tests.conformance.claims import add_claims, claim_devices
from tests.conformance.owners import add_owners, own
from tests.conformance.terms import add_neighbours, mind_others
from tests.conformance.volumes import add_storage, use_claims
from tests.control_plane.api import Object
from tests.control_plane.nodes import node

#: Names the profile of kube-scheduler that judges.
SCHEDULER = "judge"

ZONES = ("east", "west", "north")
KEYS = ("disk", "arch", "rank")
VALUES: Mapping[str, Sequence[str]] = {
    "disk": ("ssd", "hdd"),
    "arch": ("amd64", "arm64"),
    "rank": ("1", "2", "10", "0x2", ""),
    "topology.kubernetes.io/zone": ZONES,
}
#: Label of the nodes for which a RuntimeClass is meant.
HEAVY = "example.com/heavy"
EFFECTS = ("NoSchedule", "NoSchedule", "NoExecute", "PreferNoSchedule")
APPS = ("web", "db", "cache")

Add = Callable[["World", Random], None]
"""Adds to every world what a family of features needs."""
Alter = Callable[["World", Random, Object], None]
"""Adds a feature of a family to a pod, if chance wants it."""


@dataclass
class World:
    """One cluster: objects by the path of their collection, and the pods to be judged."""

    seed: int
    name: str
    nodes: list[Object] = field(default_factory=list)
    #: (path, object) in the order of their creation; pods on nodes are among them.
    objects: list[tuple[str, Object]] = field(default_factory=list)
    #: (path of the object, status to be written to it).
    statuses: list[tuple[str, Object]] = field(default_factory=list)
    probes: list[Object] = field(default_factory=list)
    #: (name of a pod, claim that was made for it, status of the claim): they are made after the pods.
    owned: list[tuple[str, Object, Object]] = field(default_factory=list)
    #: By which pods without constraints are spread; without any it is as the scheduler has it.
    default_constraints: list[Object] = field(default_factory=list)

    @property
    def namespace(self) -> str:
        """That of all pods but a few."""
        return self.name

    def add(self, path: str, made: Object, status: Object | None = None) -> None:
        """An object, and what stands in its status."""
        self.objects.append((path, made))
        if status is not None:
            self.statuses.append((f"{path}/{made['metadata']['name']}", status))

    def place(self, pod: Object, on: str, status: Object | None = None) -> None:
        """A pod that has a node."""
        pod["spec"]["nodeName"] = on
        namespace = pod["metadata"].get("namespace", self.namespace)
        self.add(f"/api/v1/namespaces/{namespace}/pods", pod, status)


def make_world(
    seed: int, number: int, nodes: int, probes: int, families: Mapping[str, tuple[Add, Alter]]
) -> World:
    """The world of that number."""
    random = Random(f"{seed} {number}")
    world = World(seed, f"world-{seed:x}-{number}")
    world.add("/api/v1/namespaces", {"metadata": {"name": world.namespace, "labels": {"team": "a"}}})
    # In every other world little but the families' features keeps pods away from nodes.
    rare = 0.2 if number % 2 else 1.0
    world.nodes = [_node(random, f"n{i:02}", rare) for i in range(nodes)]
    for add, _ in families.values():
        add(world, random)
    for made in world.nodes:
        for i in range(random.randrange(4)):
            pod = _pod(f"on-{made['metadata']['name']}-{i}", random)
            _resources(world, random, pod, small=True)
            _ports(world, random, pod)
            _disks(world, random, pod)
            for _, alter in families.values():
                alter(world, random, pod)
            status = _resized(random, pod) if random.random() < 0.3 else None
            world.place(pod, made["metadata"]["name"], status)
    for i in range(probes):
        pod = _pod(f"probe-{i:03}", random)
        pod["spec"]["schedulerName"] = SCHEDULER
        for chance, change in (
            (0.6, _resources),
            (0.4, _ports),
            (0.4, _disks),
            (0.3, _selector),
            (0.4, _node_affinity),
            (0.6, _tolerations),
        ):
            if random.random() < chance * rare:
                change(world, random, pod)
        for _, alter in families.values():
            alter(world, random, pod)
        world.probes.append(pod)
    return world


def _node(random: Random, name: str, rare: float) -> Object:
    labels = {}
    if random.random() < 0.9:
        labels["topology.kubernetes.io/zone"] = random.choice(ZONES)
    for key in ("topology.kubernetes.io/region", "failure-domain.beta.kubernetes.io/region"):
        if random.random() < 0.5:
            labels[key] = random.choice(("here", "there"))
    if random.random() < 0.3:
        labels["failure-domain.beta.kubernetes.io/zone"] = random.choice(ZONES)
    for key in KEYS:
        if random.random() < 0.7:
            labels[key] = random.choice(VALUES[key])
    if random.random() < 0.7:
        labels[HEAVY] = "yes"
    allocatable = {
        "cpu": random.choice(("500m", "1", "2", "4")),
        "memory": random.choice(("512Mi", "1Gi", "4Gi")),
        "pods": random.choice(("3", "5", "110", "110")),
        "ephemeral-storage": random.choice(("1Gi", "10Gi")),
    }
    if random.random() < 0.4:
        allocatable["example.com/gpu"] = random.choice(("1", "4"))
    if random.random() < 0.3:
        allocatable["hugepages-2Mi"] = random.choice(("4Mi", "64Mi"))
    taints = [
        {"key": random.choice(("a", "b")), "value": random.choice(("", "x", "y")), "effect": effect}
        for effect in random.sample(
            EFFECTS, k=random.choice((0, 0, 0, 1, 2)) if random.random() < rare else 0
        )
    ]
    unique = {(taint["key"], taint["effect"]): taint for taint in taints}
    made = node(name, labels=labels, allocatable=allocatable, taints=list(unique.values()))
    if random.random() < 0.1 * rare:
        made["spec"]["unschedulable"] = True
    return made


def _pod(name: str, random: Random) -> Object:
    return {
        "metadata": {"name": name, "labels": {"app": random.choice(APPS), "track": random.choice("xy")}},
        "spec": {"containers": [{"name": "main", "image": "example.com/main"}]},
    }


def _amounts(random: Random, small: bool) -> dict[str, str]:
    few = {"cpu": ("50m", "100m"), "memory": ("32Mi", "100Mi")}
    many = {
        "cpu": ("100m", "501m", "1", "1500m", "3"),
        "memory": ("100Mi", "600Mi", "1Gi", "3Gi"),
        "ephemeral-storage": ("100Mi", "2Gi"),
    }
    choices = few if small else many
    return {name: random.choice(amounts) for name, amounts in choices.items() if random.random() < 0.6}


def _resources(world: World, random: Random, pod: Object, small: bool = False) -> None:
    spec = pod["spec"]
    main = spec["containers"][0]
    main["resources"] = {"requests": _amounts(random, small)}
    if random.random() < 0.2:
        # Only limits: requests default to them.
        main["resources"] = {"limits": main["resources"]["requests"]}
    elif not small and random.random() < 0.2:
        gpus = random.choice(("1", "2", "5"))
        main["resources"]["requests"]["example.com/gpu"] = gpus
        main["resources"]["limits"] = {"example.com/gpu": gpus}
    elif not small and random.random() < 0.15:
        main["resources"]["requests"] |= {"hugepages-2Mi": "32Mi", "memory": "100Mi"}
        main["resources"]["limits"] = {"hugepages-2Mi": "32Mi"}
    if random.random() < 0.3:
        first: Object = {"name": "first", "image": "example.com/first"}
        first["resources"] = {"requests": _amounts(random, small)}
        sidecar: Object = {"name": "side", "image": "example.com/side", "restartPolicy": "Always"}
        sidecar["resources"] = {"requests": _amounts(random, True)}
        spec["initContainers"] = random.sample([first, sidecar], k=random.choice((1, 2)))
    gpus_asked = "limits" in main["resources"] or any("gpu" in name for name in main["resources"])
    if not gpus_asked and random.random() < 0.2:
        # All containers together; at least what they ask for by themselves.
        spec["resources"] = {"requests": {"cpu": "4" if not small else "300m"}}
        if random.random() < 0.5:
            spec["resources"] = {"requests": {"memory": "5Gi" if not small else "400Mi"}}
        elif random.random() < 0.5:
            spec["resources"]["limits"] = {"cpu": "4", "memory": "6Gi"}
    if not small and random.random() < 0.15:
        spec["runtimeClassName"] = f"{world.name}-heavy"


def _resized(random: Random, pod: Object) -> Object | None:
    """The status of a pod whose container is being resized: what it has, and what was allocated."""
    container = pod["spec"]["containers"][0]
    if "requests" not in container.get("resources", {}) or not container["resources"]["requests"]:
        return None
    has, allocated = ({name: _other(random, name) for name in ("cpu", "memory")} for _ in range(2))
    status: Object = {
        "phase": "Running",
        "containerStatuses": [
            {
                "name": "main",
                "image": container["image"],
                "imageID": "",
                "ready": True,
                "restartCount": 0,
                "state": {"running": {}},
                "resources": {"requests": has},
                "allocatedResources": allocated,
            }
        ],
    }
    # The API server lets requests default to limits, and the kubelet says what the pod has of each.
    of_pod = pod["spec"].get("resources", {})
    together = of_pod.get("requests", {}) | of_pod.get("limits", {})
    if together:
        status["resources"] = {"requests": {name: _other(random, name) for name in together}}
        status["allocatedResources"] = {name: _other(random, name) for name in together}
    if random.random() < 0.6:
        reason = random.choice(("Infeasible", "Deferred"))
        status["conditions"] = [{"type": "PodResizePending", "status": "True", "reason": reason}]
    return status


def _other(random: Random, resource: str) -> str:
    return random.choice(("10m", "400m") if resource == "cpu" else ("16Mi", "300Mi"))


def _ports(world: World, random: Random, pod: Object) -> None:
    if random.random() < 0.5:
        port: dict[str, Any] = {"containerPort": 80, "hostPort": random.choice((80, 81))}
        if random.random() < 0.5:
            port["protocol"] = random.choice(("TCP", "UDP"))
        if random.random() < 0.4:
            port["hostIP"] = random.choice(("127.0.0.1", "10.0.0.1", "0.0.0.0", "::", "::1", "fd00::1"))
        pod["spec"]["containers"][0]["ports"] = [port]


def _disks(world: World, random: Random, pod: Object) -> None:
    for number in range(random.choice((0, 0, 0, 1, 1, 2))):
        name, reads = random.choice(("d1", "d2", "d3")), random.random() < 0.5
        source: Object = random.choice(
            (
                {"gcePersistentDisk": {"pdName": name, "readOnly": reads}},
                {"awsElasticBlockStore": {"volumeID": f"vol-{name}", "readOnly": reads}},
                {"awsElasticBlockStore": {"volumeID": f"aws://east/vol-{name}", "readOnly": reads}},
                {
                    "azureDisk": {
                        "diskName": name,
                        "diskURI": f"/subscriptions/s/disks/{name}",
                        "kind": "Managed",
                        "readOnly": reads,
                    }
                },
                {"cinder": {"volumeID": name, "readOnly": reads}},
                {"portworxVolume": {"volumeID": name, "readOnly": reads}},
                {
                    "iscsi": {
                        "targetPortal": "10.0.0.9",
                        "iqn": f"iqn.2001-04.com.example:{name}",
                        "lun": 0,
                        "readOnly": reads,
                    }
                },
                {
                    "rbd": {
                        "monitors": random.sample(("m1", "m2", "m3"), k=2),
                        "image": name,
                        "pool": random.choice(("rbd", "other")),
                        "readOnly": reads,
                    }
                },
            )
        )
        pod["spec"].setdefault("volumes", []).append({"name": f"disk-{number}", **source})


def _selector(world: World, random: Random, pod: Object) -> None:
    key = random.choice(list(VALUES))
    pod["spec"]["nodeSelector"] = {key: random.choice(VALUES[key])}


def requirement(random: Random) -> Object:
    """One entry of ``matchExpressions`` about labels of nodes."""
    key = random.choice(list(VALUES))
    operator = random.choice(("In", "In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"))
    if operator in ("Gt", "Lt"):
        return {"key": "rank", "operator": operator, "values": [random.choice(("1", "5"))]}
    if operator in ("Exists", "DoesNotExist"):
        return {"key": key, "operator": operator}
    some = random.sample(list(VALUES[key]), k=random.randint(1, 2))
    return {"key": key, "operator": operator, "values": some}


def node_selector(random: Random, names: Sequence[str]) -> list[Object]:
    """Terms of which one must hold, with fields; some hold nowhere."""
    terms: list[Object] = []
    for _ in range(random.choice((1, 1, 2))):
        term: Object = {}
        if random.random() < 0.8:
            term["matchExpressions"] = [requirement(random) for _ in range(random.choice((1, 1, 2)))]
        if random.random() < 0.3:
            operator = random.choice(("In", "NotIn"))
            term["matchFields"] = [
                {"key": "metadata.name", "operator": operator, "values": [random.choice((*names, "none"))]}
            ]
        # A term without any requirement matches no node.
        terms.append(term)
    return terms


def _node_affinity(world: World, random: Random, pod: Object) -> None:
    terms = node_selector(random, [made["metadata"]["name"] for made in world.nodes])
    affinity: Object = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
    pod["spec"].setdefault("affinity", {})["nodeAffinity"] = affinity


def _tolerations(world: World, random: Random, pod: Object) -> None:
    made: list[Object] = []
    for _ in range(random.randint(1, 3)):
        one: Object = {"operator": random.choice(("Exists", "Equal"))}
        if one["operator"] == "Equal" or random.random() < 0.8:
            one["key"] = random.choice(("a", "b", "node.kubernetes.io/unschedulable"))
        if one["operator"] == "Equal":
            one["value"] = random.choice(("", "x", "y"))
        if random.random() < 0.5:
            one["effect"] = random.choice(EFFECTS)
        made.append(one)
    pod["spec"]["tolerations"] = made


def _core(world: World, random: Random) -> None:
    fixed = {"cpu": random.choice(("100m", "1")), "memory": "64Mi"}
    runtime: Object = {
        "metadata": {"name": f"{world.name}-heavy"},
        "handler": "heavy",
        "overhead": {"podFixed": fixed},
    }
    if random.random() < 0.5:
        runtime["scheduling"] = {
            "nodeSelector": {HEAVY: "yes"},
            "tolerations": [{"operator": "Exists", "key": "a"}],
        }
    world.add("/apis/node.k8s.io/v1/runtimeclasses", runtime)


def _nothing(world: World, random: Random, pod: Object) -> None:
    """The features that every pod may have are no family."""


#: What worlds may have, by name; those of the first are always there.
FAMILIES: Mapping[str, tuple[Add, Alter]] = {
    "core": (_core, _nothing),
    "claims": (add_claims, claim_devices),
    "terms": (add_neighbours, mind_others),
    "volumes": (add_storage, use_claims),
    "owners": (add_owners, own),
}
#: Those that closeby is to know.
SWITCHED_ON = ("core", "claims", "terms", "volumes", "owners")

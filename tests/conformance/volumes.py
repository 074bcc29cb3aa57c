"""Pods with claims for volumes: bound ones, ones that wait for a pod, and ones that nothing can bind.

No controller is there: what is bound is written so, as the volume controller would leave it.
"""

from random import Random
from typing import TYPE_CHECKING

from tests.control_plane.api import Object

if TYPE_CHECKING:
    from tests.conformance.worlds import World

DRIVER, CAPPED = "csi.example.com", "capped.example.com"
_ZONE, _HOST = "topology.kubernetes.io/zone", "kubernetes.io/hostname"
_REGION, _BETA = "topology.kubernetes.io/region", "failure-domain.beta.kubernetes.io"
_ZONES = ("east", "west", "north")
_STORAGE = "/apis/storage.k8s.io/v1"
_RWO, _PVC = "ReadWriteOnce", "PersistentVolumeClaim"
#: Drivers that attach the disks that specs of pods name.
_MIGRATED = (
    "ebs.csi.aws.com",
    "pd.csi.storage.gke.io",
    "disk.csi.azure.com",
    "cinder.csi.openstack.org",
    "pxd.portworx.com",
)
_BOUND = {"pv.kubernetes.io/bind-completed": "yes", "pv.kubernetes.io/bound-by-controller": "yes"}
_BOUND_CLAIMS, _FREE_VOLUMES = 14, 6
#: Classes of claims whose volume is gone.
_LOST = ("static", "later")
#: The first of the bound claims may be attached. Pods that are judged use the others: a volume that is
#: attached where no pod uses it counts twice for kube-scheduler, and once for closeby.
_ATTACHED = 5


def add_storage(world: "World", random: Random) -> None:
    """Classes, drivers, volumes and claims."""
    _classes(world, random)
    for made in world.nodes:
        _node_drivers(world, random, made["metadata"]["name"])
    for i in range(_BOUND_CLAIMS):
        _bound(world, random, i)
    for i in range(_FREE_VOLUMES):
        name = f"{world.name}-free-{i}"
        size = random.choice(("1Gi", "2Gi", "5Gi"))
        volume = _volume(world, random, name, f"{world.name}-static", size, ["ReadWriteOnce"])
        phase = "Available" if random.random() < 0.8 else "Released"
        world.add("/api/v1/persistentvolumes", volume, {"phase": phase})
    for name, storage in (
        ("now", "now"),
        ("later", "later"),
        ("here", "here"),
        ("static", "static"),
        ("capped", "capped"),
        ("no-class", ""),
        ("unknown-class", "unknown"),
    ):
        for size in ("1Gi", "3Gi"):
            claim = _claim(world, f"{name}-{size.lower()}", storage, size, ["ReadWriteOnce"])
            if storage == "later" and size == "3Gi":
                chosen = random.choice(world.nodes)["metadata"]["name"]
                claim["metadata"]["annotations"] = {"volume.kubernetes.io/selected-node": chosen}
            world.add(_claims(world), claim)
    for storage in _LOST:
        lost = _claim(world, f"lost-{storage}", storage, "1Gi", ["ReadWriteOnce"])
        lost["spec"]["volumeName"] = f"{world.name}-gone-{storage}"
        lost["metadata"]["annotations"] = _BOUND
        world.add(_claims(world), lost, {"phase": "Lost"})


def use_claims(world: "World", random: Random, pod: Object) -> None:
    """Some pods have claims: those on nodes bound ones, those to be judged any."""
    probe = "schedulerName" in pod["spec"]
    if random.random() > (0.5 if probe else 0.6):
        return
    names = [f"bound-{i}" for i in range(_ATTACHED if probe else 0, _BOUND_CLAIMS)]
    if not probe:
        names += (f"lost-{storage}" for storage in _LOST)
    if probe and random.random() < 0.5:
        kinds = (
            "later",
            "later",
            "here",
            "static",
            "static",
            "capped",
            "capped",
            "now",
            "no-class",
            "unknown-class",
        )
        names = [f"{kind}-{size}" for kind in kinds for size in ("1gi", "3gi")] + ["lost-static", "missing"]
    chosen = sorted(set(random.choices(names, k=random.choice((1, 1, 1, 2)))))
    volumes = [{"name": f"v{i}", "persistentVolumeClaim": {"claimName": one}} for i, one in enumerate(chosen)]
    if random.random() < 0.4:
        volumes.append(_ephemeral(world, random, pod))
    pod["spec"].setdefault("volumes", []).extend(volumes)


def _ephemeral(world: "World", random: Random, pod: Object) -> Object:
    """A volume of the pod's own, with the claim that its controller made: bound, or open for a probe."""
    name = pod["metadata"]["name"]
    bound = "schedulerName" not in pod["spec"] or random.random() < 0.5
    storage = "later" if bound else random.choice(("later", "here", "static", "capped"))
    claim = _claim(world, f"{name}-own", storage, "1Gi", ["ReadWriteOnce"])
    template = {"spec": dict(claim["spec"])}
    status: Object = {}
    if bound:
        made = _volume(
            world, random, f"{world.name}-of-{name}", claim["spec"]["storageClassName"], "1Gi", [_RWO]
        )
        # kube-scheduler does not look at the zone of a volume of the pod's own, and closeby does.
        made["metadata"]["labels"] = {}
        made["spec"]["claimRef"] = {"namespace": world.namespace, "name": f"{name}-own", "kind": _PVC}
        world.add("/api/v1/persistentvolumes", made, {"phase": "Bound"})
        claim["metadata"]["annotations"] = _BOUND
        claim["spec"] = {**claim["spec"], "volumeName": made["metadata"]["name"]}
        status = {"phase": "Bound", "accessModes": [_RWO], "capacity": {"storage": "1Gi"}}
    # A claim of that name may belong to another pod; where a pod runs kube-scheduler takes that for a fault.
    own = "schedulerName" not in pod["spec"] or random.random() < 0.9
    world.owned.append((name if own else "", claim, status))
    return {"name": "own", "ephemeral": {"volumeClaimTemplate": template}}


def _claims(world: "World") -> str:
    return f"/api/v1/namespaces/{world.namespace}/persistentvolumeclaims"


def _classes(world: "World", random: Random) -> None:
    there = [{"key": _ZONE, "values": random.sample(_ZONES, k=2)}]
    for name, provisioner, waits, topologies in (
        ("now", DRIVER, False, None),
        ("later", DRIVER, True, None),
        ("here", DRIVER, True, [{"matchLabelExpressions": there}]),
        ("static", "kubernetes.io/no-provisioner", True, None),
        ("capped", CAPPED, True, None),
    ):
        made: Object = {
            "metadata": {"name": f"{world.name}-{name}"},
            "provisioner": provisioner,
            "volumeBindingMode": "WaitForFirstConsumer" if waits else "Immediate",
        }
        if topologies is not None:
            made["allowedTopologies"] = topologies
        world.add(f"{_STORAGE}/storageclasses", made)
    for name, capped in ((DRIVER, False), (CAPPED, True)):
        world.add(
            f"{_STORAGE}/csidrivers",
            {"metadata": {"name": name}, "spec": {"storageCapacity": capped, "attachRequired": True}},
        )
    for i, zone in enumerate(_ZONES[:2]):
        one: Object = {
            "metadata": {"name": f"capacity-{i}"},
            "storageClassName": f"{world.name}-capped",
            "nodeTopology": {"matchLabels": {_ZONE: zone}},
            "capacity": random.choice(("500Mi", "2Gi", "10Gi")),
        }
        if random.random() < 0.5:
            one["maximumVolumeSize"] = random.choice(("1Gi", "4Gi"))
        world.add(f"{_STORAGE}/namespaces/{world.namespace}/csistoragecapacities", one)


def _node_drivers(world: "World", random: Random, name: str) -> None:
    if random.random() < 0.2:
        return
    driver: Object = {"name": DRIVER, "nodeID": name}
    if random.random() < 0.7:
        driver["allocatable"] = {"count": random.choice((1, 2, 3))}
    drivers = [driver]
    for migrated in _MIGRATED:
        if random.random() < 0.6:
            count = random.choice((0, 1, 1, 2))
            drivers.append({"name": migrated, "nodeID": name, "allocatable": {"count": count}})
    world.add(f"{_STORAGE}/csinodes", {"metadata": {"name": name}, "spec": {"drivers": drivers}})


def _bound(world: "World", random: Random, i: int) -> None:
    """A claim with its volume."""
    modes = [random.choice(("ReadWriteOnce", "ReadWriteOnce", "ReadWriteMany", "ReadWriteOncePod"))]
    storage = f"{world.name}-later"
    volume = _volume(world, random, f"{world.name}-pv-{i}", storage, "1Gi", modes)
    volume["spec"]["claimRef"] = {
        "namespace": world.namespace,
        "name": f"bound-{i}",
        "kind": "PersistentVolumeClaim",
    }
    world.add("/api/v1/persistentvolumes", volume, {"phase": "Bound"})
    claim = _claim(world, f"bound-{i}", "later", "1Gi", modes)
    claim["metadata"]["annotations"] = _BOUND
    claim["spec"]["volumeName"] = volume["metadata"]["name"]
    world.add(_claims(world), claim, {"phase": "Bound", "accessModes": modes, "capacity": {"storage": "1Gi"}})
    if i < _ATTACHED and random.random() < 0.6:
        on = random.choice(world.nodes)["metadata"]["name"]
        # That of some attachments is gone.
        gone = random.random() < 0.3
        source = {"persistentVolumeName": f"{world.name}-gone-{i}" if gone else volume["metadata"]["name"]}
        world.add(
            f"{_STORAGE}/volumeattachments",
            {
                "metadata": {"name": f"{world.name}-attached-{i}"},
                "spec": {"attacher": DRIVER, "nodeName": on, "source": source},
            },
        )


def _claim(world: "World", name: str, storage: str, size: str, modes: list[str]) -> Object:
    return {
        "metadata": {"name": name},
        "spec": {
            "accessModes": modes,
            "resources": {"requests": {"storage": size}},
            "storageClassName": f"{world.name}-{storage}" if storage else "",
        },
    }


def _volume(world: "World", random: Random, name: str, storage: str, size: str, modes: list[str]) -> Object:
    spec: Object = {
        "capacity": {"storage": size},
        "accessModes": modes,
        "storageClassName": storage,
        "persistentVolumeReclaimPolicy": "Retain",
        "csi": {"driver": DRIVER, "volumeHandle": name},
    }
    labels = {}
    if random.random() < 0.25:
        # Of an older kind, which a CSI driver attaches today.
        del spec["csi"]
        spec |= random.choice(
            (
                {"gcePersistentDisk": {"pdName": name}},
                {"awsElasticBlockStore": {"volumeID": f"aws://east/vol-{name}"}},
                {
                    "azureDisk": {
                        "diskName": name,
                        "diskURI": f"/subscriptions/s/disks/{name}",
                        "kind": "Managed",
                    }
                },
                {"cinder": {"volumeID": name}},
                {"portworxVolume": {"volumeID": name}},
            )
        )
    match random.randrange(5):
        case 0:
            spec["nodeAffinity"] = _reached_from(_ZONE, random.sample(_ZONES, k=random.choice((1, 2))))
        case 1:
            names = [made["metadata"]["name"] for made in world.nodes]
            spec["nodeAffinity"] = _reached_from(_HOST, random.sample(names, k=3))
        case 2:
            labels[_ZONE] = random.choice(("east", "west", "east__north"))
        case 3:
            key = random.choice((_REGION, f"{_BETA}/zone", f"{_BETA}/region"))
            labels[key] = random.choice(("east", "west", "here", "here__there"))
    return {"metadata": {"name": name, "labels": labels}, "spec": spec}


def _reached_from(key: str, values: list[str]) -> Object:
    requirement = {"key": key, "operator": "In", "values": values}
    return {"required": {"nodeSelectorTerms": [{"matchExpressions": [requirement]}]}}

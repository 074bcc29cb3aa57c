"""The order of the documents decides nothing: also not with terms among pods, and with volumes."""

from collections.abc import Mapping
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from closeby.objects.labels import HOSTNAME, ZONE
from closeby.reading.configuration import Configuration
from closeby.simulator.runs import simulate
from tests.reading.manifest_text import read_objects
from tests.scheduling.term_rules import Manifest
from tests.scheduling.test_gangs_with_terms import (
    APPS,
    TOPOLOGY,
    clusters,
    group,
    member,
    pod,
    running,
    term_specs,
)


def storage(names: list[str], zones: list[str]) -> list[Manifest]:
    """A class of local volumes, one of made ones, and a volume on each of these nodes or in these zones."""
    classes = [
        {
            "apiVersion": "storage.k8s.io/v1",
            "kind": "StorageClass",
            "metadata": {"name": name},
            "provisioner": provisioner,
            "volumeBindingMode": "WaitForFirstConsumer",
        }
        for name, provisioner in (
            ("local", "kubernetes.io/no-provisioner"),
            ("disks", "disk.example.com"),
        )
    ]
    places = [*((HOSTNAME, name) for name in names), *((ZONE, zone) for zone in zones)]
    return [*classes, *(volume(f"v{i}", key, value) for i, (key, value) in enumerate(places))]


def volume(name: str, key: str, value: str) -> Manifest:
    """A free volume that the nodes with a label reach."""
    wish = {"key": key, "operator": "In", "values": [value]}
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": name},
        "spec": {
            "storageClassName": "local",
            "capacity": {"storage": "1Gi"},
            "accessModes": ["ReadWriteOnce"],
            "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [wish]}]}},
        },
        "status": {"phase": "Available"},
    }


def claim(name: str, storage_class: str) -> Manifest:
    """A claim without a volume."""
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": name},
        "spec": {
            "storageClassName": storage_class,
            "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": "1Gi"}},
        },
    }


def mounting(one: Manifest, name: str) -> Manifest:
    """The pod with a claim."""
    volumes = [{"name": "data", "persistentVolumeClaim": {"claimName": name}}]
    return {**one, "spec": {**one["spec"], "volumes": volumes}}


def decided(documents: list[Manifest]) -> Mapping[str, Any]:
    """Node, volumes and reason of each pod."""
    manifests = read_objects(*documents)
    assert manifests.errors == ()
    found = simulate(manifests, Configuration())
    placed = {one.pod.name: (one.node, one.volumes) for one in found.bindings.values()}
    waiting = {left.pod.name: left.reason for left in found.leftovers.values()}
    return {**waiting, **placed}


@given(st.data())
def test_any_order_of_the_documents_gives_the_same_placements(data: st.DataObject) -> None:
    nodes = data.draw(clusters())
    for one in nodes:
        labels = one["metadata"]["labels"]
        if "zone" in labels:
            labels[ZONE] = labels["zone"]
    names = [one["metadata"]["name"] for one in nodes]
    there = data.draw(running(nodes))
    zones = ["z1", "z2"]
    there += storage(data.draw(st.lists(st.sampled_from(names), max_size=4)), zones)
    waiting = [
        member(f"train-{i}", "a", data.draw(term_specs())) for i in range(data.draw(st.integers(1, 3)))
    ]
    waiting += [
        pod(f"p{i}", data.draw(st.sampled_from(APPS)), data.draw(term_specs()))
        for i in range(data.draw(st.integers(0, 4)))
    ]
    for i, one in enumerate(waiting):
        storage_class = data.draw(st.sampled_from(["", "", "local", "disks"]))
        if storage_class:
            waiting[i] = mounting(one, f"claim-{i}")
            there.append(claim(f"claim-{i}", storage_class))
    documents = [TOPOLOGY, group(1, None), *nodes, *there, *waiting]
    assert decided(documents) == decided(data.draw(st.permutations(documents)))

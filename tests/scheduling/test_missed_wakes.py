"""A pod that waits is tried when a change cures it, whatever else keeps it from other nodes.

Random changes of pods, nodes, namespaces, owners, claims and volumes are told to two engines, one by one: one
that tries what its hints name, and one that tries all that waits after each change. Both bind the same.
"""

import random
from collections.abc import Callable, Mapping
from typing import Final

import pytest
from msgspec.structs import replace

from closeby.objects.labels import HOSTNAME, ZONE
from closeby.objects.nodes import Node, Taint
from closeby.objects.pods import Pod, PodSpec
from closeby.objects.selectors import (
    Namespace,
    PodAffinity,
    PodAffinityTerm,
    PodOwner,
    TopologySpreadConstraint,
    selector_of,
)
from closeby.objects.volumes import (
    CSIDriver,
    CSINode,
    CSIStorageCapacity,
    NodeDriver,
    StorageClass,
    StorageObject,
    VolumeAttachment,
    storage_key,
)
from closeby.plugins.registry import profile_for
from closeby.reading.configuration import Configuration, PluginEntry
from closeby.scheduling.engine import Engine
from closeby.scheduling.events import (
    Event,
    FlushUnschedulable,
    GroupChanged,
    NodeDeleted,
    NodeUpserted,
    PodDeleted,
    PodUpserted,
    SelectionChanged,
    StorageChanged,
    StorageDeleted,
    Tick,
    TopologyChanged,
)
from closeby.scheduling.outcomes import bindings_of
from tests.storage import AT_ONCE, DISKS, LOCAL, claim, naming, on_label, volume
from tests.worlds import GPU, fabric, gang, node, pods, spec

DRIVER: Final = "disk.example.com"
NAMES: Final = tuple(f"n{i}" for i in range(5))
CLAIMS: Final = tuple(f"c{i}" for i in range(6))
VOLUMES: Final = tuple(f"v{i}" for i in range(6))
SPREAD: Final = PluginEntry(
    name="PodTopologySpread",
    arguments={
        "defaultingType": "List",
        "defaultConstraints": [{"topologyKey": ZONE, "maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule"}],
    },
)
#: Changes of one history.
STEPS: Final = 40


class Changes:
    """What happens to a cluster, drawn from one seed."""

    def __init__(self, seed: int) -> None:
        self.dice = random.Random(seed)
        self.pods: dict[str, Pod] = {}
        self.where: dict[str, str] = {}
        self.nodes: dict[str, Node] = {}
        self.storage: dict[tuple[type[StorageObject], str], StorageObject] = {}
        self._count = 0
        self._kinds: Mapping[Callable[[], list[Event]], int] = {
            self._pod_comes: 25,
            self._gang_comes: 4,
            self._pod_goes: 18,
            self._labels_change: 8,
            self._is_bound: 6,
            self._node_changes: 8,
            self._node_goes: 2,
            self._storage_changes: 30,
            self._storage_goes: 5,
            self._namespace_changes: 12,
            self._owner_changes: 6,
        }

    def beginning(self) -> list[Event]:
        """Nodes, classes, claims and volumes."""
        found: list[Event] = [TopologyChanged(fabric(ZONE, "rack", HOSTNAME))]
        for name in NAMES:
            found += self._node(name)
        for one in (LOCAL, DISKS, AT_ONCE):
            found += self._put(one)
        for name in CLAIMS:
            found += self._put(self._some_claim(name))
        for name in VOLUMES:
            found += self._put(self._some_volume(name))
        return found

    def step(self) -> list[Event]:
        """What happens next."""
        [kind] = self.dice.choices(list(self._kinds), list(self._kinds.values()))
        return kind()

    # Pods

    def _labels(self) -> dict[str, str]:
        return {"app": self.dice.choice("ab"), "tier": self.dice.choice("xy")}

    def _term(self) -> PodAffinityTerm:
        dice = self.dice
        team = selector_of({"team": dice.choice("tu")}) if dice.random() < 0.4 else None
        return PodAffinityTerm(
            topology_key=dice.choice([ZONE, "rack", HOSTNAME]),
            selector=selector_of({"app": dice.choice("ab")}),
            namespace_selector=team,
            match_label_keys=("tier",) if dice.random() < 0.2 else (),
        )

    def _needs(self) -> PodSpec:
        dice = self.dice
        needs = spec(gpu=dice.choice([0, 1, 1, 2, 3]))
        if dice.random() < 0.5:
            terms = PodAffinity(
                required=(self._term(),) if dice.random() < 0.5 else (),
                forbidden=(self._term(),) if dice.random() < 0.5 else (),
            )
            needs = replace(needs, pod_affinity=terms)
        if dice.random() < 0.25:
            hard = TopologySpreadConstraint(
                topology_key=dice.choice([ZONE, "rack"]),
                max_skew=1,
                selector=selector_of({"app": dice.choice("ab")}),
                min_domains=dice.choice([1, 3]),
                honors_affinity=dice.random() < 0.5,
                honors_taints=dice.random() < 0.5,
            )
            needs = replace(needs, topology_spread=(hard,))
        if dice.random() < 0.15:
            needs = replace(needs, node_selector=(("rack", dice.choice(["r0", "r1"])),))
        return needs

    def _pod(self, name: str, needs: PodSpec, group: str | None = None) -> Pod:
        dice = self.dice
        (pod,) = pods(group, 1, needs, prefix=name, labels=self._labels(), owner="ReplicaSet/set")
        if dice.random() < 0.6:
            pod = naming(pod, *dice.sample(CLAIMS, dice.choice([1, 1, 2])))
        if group is None and not pod.spec.claims and dice.random() < 0.3:
            pod = replace(pod, namespace="other")
        self.pods[pod.uid] = pod
        return pod

    def _pod_comes(self) -> list[Event]:
        self._count += 1
        return [PodUpserted(self._pod(f"p{self._count}", self._needs()))]

    def _gang_comes(self) -> list[Event]:
        self._count += 1
        name, needs = f"g{self._count}", self._needs()
        size = self.dice.choice([2, 3])
        required = self.dice.choice([None, None, ZONE, "rack"])
        members = [self._pod(f"{name}-{i}", needs, name) for i in range(size)]
        return [GroupChanged(gang(name, size, required=required)), *map(PodUpserted, members)]

    def _pod_goes(self) -> list[Event]:
        if not self.pods:
            return []
        uid = self.dice.choice(list(self.pods))
        del self.pods[uid]
        self.where.pop(uid, None)
        return [PodDeleted(uid)]

    def _labels_change(self) -> list[Event]:
        if not self.pods:
            return []
        uid = self.dice.choice(list(self.pods))
        self.pods[uid] = replace(self.pods[uid], labels=self._labels())
        return [PodUpserted(self.pods[uid])]

    def _is_bound(self) -> list[Event]:
        """Its claims are bound with it."""
        on_way = [uid for uid in self.where if self.pods[uid].node_name is None]
        if not on_way:
            return []
        uid = self.dice.choice(on_way)
        pod = self.pods[uid] = replace(self.pods[uid], node_name=self.where[uid], phase="Running")
        return [PodUpserted(pod)]

    # What is around them

    def _node(self, name: str) -> list[Event]:
        dice = self.dice
        labels = {ZONE: dice.choice(["z0", "z1"]), "rack": dice.choice(["r0", "r1", "r2"])}
        if dice.random() < 0.08:
            del labels[dice.choice(sorted(labels))]
        taints = (Taint("t", "", "NoSchedule"),) if dice.random() < 0.2 else ()
        self.nodes[name] = node(name, labels, {GPU: dice.choice([2, 3, 4])}, taints)
        return [NodeUpserted(self.nodes[name])]

    def _node_changes(self) -> list[Event]:
        return self._node(self.dice.choice(NAMES))

    def _node_goes(self) -> list[Event]:
        name = self.dice.choice(NAMES)
        return [NodeDeleted(name)] if self.nodes.pop(name, None) is not None else []

    def _namespace_changes(self) -> list[Event]:
        team = self.dice.choice(["t", "u", ""])
        labels = {"team": team} if team else {}
        return [SelectionChanged(Namespace(name=self.dice.choice(["default", "other"]), labels=labels))]

    def _owner_changes(self) -> list[Event]:
        owner = PodOwner(
            kind="ReplicaSet",
            namespace=self.dice.choice(["default", "other"]),
            name="set",
            selector=selector_of({"app": self.dice.choice("ab")}),
        )
        return [SelectionChanged(owner, gone=self.dice.random() < 0.5)]

    # Volumes

    def _put(self, one: StorageObject) -> list[Event]:
        self.storage[type(one), storage_key(one)] = one
        return [StorageChanged(one)]

    def _storage_changes(self) -> list[Event]:
        draws = (
            self._some_claim,
            self._some_claim,
            self._some_volume,
            self._some_volume,
            self._some_class,
            self._some_csi_node,
            self._some_driver,
            self._some_capacity,
            self._some_attachment,
        )
        return self._put(self.dice.choice(draws)())

    def _some_claim(self, name: str = "") -> StorageObject:
        dice = self.dice
        name = name or dice.choice(CLAIMS)
        of_class = dice.choice(["local", "local", "local", "disks", "disks", "at-once"])
        fields: dict[str, object] = {}
        if dice.random() < 0.4:
            fields |= {"volume": dice.choice(VOLUMES), "bound": dice.random() < 0.9}
        elif dice.random() < 0.2:
            fields["selected_node"] = dice.choice(NAMES)
        if dice.random() < 0.15:
            fields["modes"] = ("ReadWriteOncePod",)
        if dice.random() < 0.05:
            fields["terminating"] = True
        return claim(name, of_class, dice.choice([1, 2]), **fields)

    def _some_volume(self, name: str = "") -> StorageObject:
        dice = self.dice
        name = name or dice.choice(VOLUMES)
        where = dice.choice([{"node": dice.choice(NAMES)}, {"zone": dice.choice(["z0", "z1"])}, {}])
        labels = {ZONE: dice.choice(["z0", "z1"])} if dice.random() < 0.3 else {}
        return volume(
            name,
            storage_class=dice.choice(["local", "disks"]),
            size=dice.choice([1, 2, 3]),
            claim=f"default/{dice.choice(CLAIMS)}" if dice.random() < 0.2 else "",
            access_modes=("ReadWriteOnce", "ReadWriteOncePod"),
            labels=labels,
            driver=dice.choice(["", DRIVER]),
            handle=name,
            **where,
        )

    def _some_class(self) -> StorageObject:
        dice = self.dice
        if dice.random() < 0.3:
            return replace(LOCAL, waits=dice.random() < 0.7)
        made = dice.choice([(), on_label(ZONE, "z0"), on_label("rack", "r1", "r2")])
        return replace(DISKS, topologies=made, provisioner=dice.choice([DRIVER, DRIVER, "other.example.com"]))

    def _some_csi_node(self) -> StorageObject:
        dice = self.dice
        keys = dice.choice([(), (ZONE,), ("rack",)])
        drivers = (NodeDriver(DRIVER, dice.choice([None, 0, 1, 2]), keys),) if dice.random() < 0.8 else ()
        return CSINode(name=dice.choice(NAMES), drivers=drivers)

    def _some_driver(self) -> StorageObject:
        return CSIDriver(name=DRIVER, storage_capacity=self.dice.random() < 0.5)

    def _some_capacity(self) -> StorageObject:
        dice = self.dice
        where = selector_of(dice.choice([{ZONE: "z0"}, {ZONE: "z1"}, {"rack": "r1"}, {}]))
        return CSIStorageCapacity(
            namespace="default",
            name=f"k{dice.randrange(3)}",
            storage_class="disks",
            nodes=where,
            largest=dice.choice([None, 1, 2]),
        )

    def _some_attachment(self) -> StorageObject:
        dice = self.dice
        return VolumeAttachment(
            name=f"a{dice.randrange(4)}",
            driver=DRIVER,
            node=dice.choice(NAMES),
            volume=dice.choice(VOLUMES),
        )

    def _storage_goes(self) -> list[Event]:
        gone = [key for key in self.storage if key[0] is not StorageClass or self.dice.random() < 0.2]
        if not gone:
            return []
        key = self.dice.choice(gone)
        del self.storage[key]
        return [StorageDeleted(*key)]


def new_engine(plugins: tuple[PluginEntry, ...]) -> Engine:
    configuration = Configuration(plugins=plugins)
    return Engine(lambda handle: profile_for(configuration, handle), backoff=False)


def bound(engine: Engine, *events: Event) -> dict[str, str]:
    return {one.pod.uid: one.node for one in bindings_of(engine.handle(*events, Tick()))}


@pytest.mark.parametrize(
    "seeds", [range(40), pytest.param(range(40, 300), marks=pytest.mark.slow)], ids=["few", "many"]
)
def test_what_a_change_cures_is_tried(seeds: range) -> None:
    for seed in seeds:
        changes = Changes(seed)
        plugins = (SPREAD,) if seed % 3 == 0 else ()
        ours, eager = new_engine(plugins), new_engine(plugins)
        events = changes.beginning()
        for number in range(STEPS):
            found, others = bound(ours, *events), bound(eager, *events, FlushUnschedulable())
            if found != others:
                # Two items were tried in another order, or a place is as good as another.
                assert not bound(ours, FlushUnschedulable()), f"seed {seed}, step {number}, {events!r}"
                break
            changes.where.update(found)
            events = changes.step()

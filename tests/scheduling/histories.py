"""Random histories of a small cluster, told to engines step by step.

A step is what happens between two ticks: jobs arrive and end, and one thing besides. A history knows what the
cluster holds and where pods were bound, so that what happens next is possible: what is confirmed was bound,
and no node shrinks below what is on it. All is drawn from one seed.
"""

from collections.abc import Iterable, Iterator
from random import Random

from msgspec.structs import replace

from closeby.measurements.bandwidth import BandwidthReadings, NodeBandwidth
from closeby.objects.applications import APP_GROUP_LABEL, WORKLOAD_LABEL
from closeby.objects.groups import PodGroup
from closeby.objects.labels import HOSTNAME
from closeby.objects.nodes import Node, Taint
from closeby.objects.pods import HostPort, Pod, PodSpec, Toleration
from closeby.objects.topologies import Topology
from closeby.plugins.registry import profile_for
from closeby.reading.configuration import Configuration, PluginEntry
from closeby.reading.decoding.bandwidth import BANDWIDTH
from closeby.scheduling.engine import Engine
from closeby.scheduling.events import (
    AppGroupChanged,
    AppGroupDeleted,
    BindFailed,
    Event,
    GroupChanged,
    GroupDeleted,
    MeasurementsChanged,
    NetworkTopologyChanged,
    NetworkTopologyDeleted,
    NodeDeleted,
    NodeUpserted,
    PodDeleted,
    PodUpserted,
    TopologyChanged,
    TopologyDeleted,
)
from closeby.scheduling.outcomes import Output, bindings_of
from closeby.scheduling.reserving.reservations import LOOK_AGAIN
from closeby.scheduling.services import Measurements, Reading
from tests.applications.calls import app
from tests.applications.networks import network, replicas
from tests.worlds import GPU, draw, fabric, gang, pods, spec, subgroup

#: Racks of one to three nodes; n6 is in no rack.
CLUSTER = """
z1 r1 : n0=3 n1=2
z1 r2 : n2=4
z2 r1 : n3=2 n4=2
z2 r2 : n5=3
z2 -  : n6=2
"""
NETWORKS = ("n0 n1 1\nn1 n2 5\nn2 n3 2\nn3 n4 1\nn4 n5 3", "n0 n1 9\nn2 n3 3\nn5 n6 1")
#: Without limits and with strict ones: 0 is the same node.
APPLICATIONS = (
    "a > b c\nb > c\nc",
    "a > b<=3\nb\nc > c<=1",
    "b > a<=1\na > c<=0\nc",
    "a > b<=0 c<=2\nb\nc",
    "a\nb",
)
#: What the link of a node carries, of which up to 80 may be in use.
LINK = 100
#: Looks at all nodes for each single pod.
BINPACK = PluginEntry(name="domain-binpack", arguments={"resources": [{"name": GPU}]})
RISK = PluginEntry(
    name="CheckRiskNodeBandwidth",
    arguments={"prometheusAddress": "http://prometheus", "RiskThreshold": 0.4},
)
TAINT = Taint("t", "", "NoSchedule")
#: More do not wait or run at once.
MOST_PODS = 60
#: The same where more arrives than ends.
MOST_PODS_WHERE_BUSY = 150


def engine(*, backoff: bool = False, reserve_after: float = 0.0) -> Engine:
    """One that heard nothing yet, with the usual plugins, what measures and what looks at domains."""
    configuration = Configuration(plugins=(RISK, BINPACK))
    return Engine(
        lambda handle: profile_for(configuration, handle), backoff=backoff, reserve_after=reserve_after
    )


class History:
    """What happens to one cluster."""

    def __init__(self, seed: int, *, busy: bool = False) -> None:
        """Where it is ``busy``, more arrives than ends, so that a queue grows; every so often much ends at
        once; little else happens, and each step is so long that no gang is still thought to be hopeless.
        """
        self.dice = Random(seed)
        self._busy = busy
        self._steps = 0
        self.now = 0.0
        self.empty = {
            one.name: replace(one, allocatable={**one.allocatable, BANDWIDTH: LINK}) for one in draw(CLUSTER)
        }
        self.nodes = dict(self.empty)
        self.topology: Topology | None = fabric("zone", "rack", HOSTNAME)
        self.pods: dict[str, Pod] = {}
        #: uid of each pod that was bound -> its node.
        self.where: dict[str, str] = {}
        self.groups: dict[str, PodGroup] = {}
        #: job -> uids of its pods, those that are gone included.
        self.jobs: dict[str, list[str]] = {}
        #: The last event about each application and each network that is there.
        self.talk: dict[str, Event] = {}
        self._count = 0
        self._happenings = {
            self._node_changes: 25,
            self._node_goes: 5,
            self._bindings_end: 20,
            self._pod_ends: 10,
            self._gang_changes: 6,
            self._application_changes: 6,
            self._network_changes: 8,
            self._topology_changes: 4,
            self._links_are_measured: 10,
            self._nothing_else: 400 if busy else 6,
        }
        if self.dice.random() < 0.5:
            self._application_changes()
            self._network_changes()

    def beginning(self) -> list[Event]:
        """The cluster as it is now, without pods and gangs."""
        topology = [] if self.topology is None else [TopologyChanged(self.topology)]
        return [*map(NodeUpserted, self.nodes.values()), *topology, *self.talk.values()]

    def step(self) -> list[Event]:
        """What happens next; then it is ``now``."""
        dice = self.dice
        events: list[Event] = []
        self._steps += 1
        most, ends = (MOST_PODS_WHERE_BUSY, [0, 1]) if self._busy else (MOST_PODS, [0, 0, 1, 2])
        if self._busy and self._steps % 8 == 0:
            ends = [6]
        for _ in range(dice.choice([1, 2, 3] if self._busy else [0, 1, 1, 2, 3])):
            if len(self.pods) < most:
                events += self._arrives()
        for _ in range(dice.choice(ends)):
            if self.jobs:
                events += self.ends(dice.choice(list(self.jobs)))
        [happens] = dice.choices(list(self._happenings), list(self._happenings.values()))
        events += happens()
        self.now += LOOK_AGAIN if self._busy else dice.choice([0.5, 1.0, 5.0, 30.0])
        return events

    def bound(self, decisions: Iterable[Output]) -> dict[str, str]:
        """The bindings among some decisions, which the cluster carries out."""
        found = {one.pod.uid: one.node for one in bindings_of(decisions)}
        self.where.update(found)
        return found

    def ends(self, job: str) -> list[Event]:
        """A job is deleted."""
        events: list[Event] = []
        for uid in self.jobs.pop(job):
            if uid in self.pods:
                self._forget(uid)
                events.append(PodDeleted(uid))
        if self.groups.pop(job, None) is not None:
            events.append(GroupDeleted(f"default/{job}"))
        return events

    def running(self) -> Iterator[Event]:
        """All bound pods, as somebody hears of them who comes late."""
        for uid, name in self.where.items():
            yield PodUpserted(replace(self.pods[uid], node_name=name, phase="Running"))

    def measured(self, averages: dict[str, int] | None) -> MeasurementsChanged:
        """So much crosses the links, steadily; None: nothing is known any more."""
        if averages is None:
            return MeasurementsChanged(RISK.name, Measurements(trouble="it is gone"))
        hosts = {name: NodeBandwidth(average=use, measured=self.now) for name, use in averages.items()}
        reading = Reading(values=BandwidthReadings("test", hosts, window=100.0), measured=self.now)
        return MeasurementsChanged(RISK.name, Measurements(reading=reading, age=0.0))

    # Jobs

    def _arrives(self) -> list[Event]:
        self._count += 1
        name = f"j{self._count}"
        kinds = (self._plain_pod, self._replica, self._gang, self._gang_of_subgroups)
        [kind] = self.dice.choices(kinds, (30, 20, 35, 15))
        members = kind(name)
        self.jobs[name] = [pod.uid for pod in members]
        self.pods.update((pod.uid, pod) for pod in members)
        if self.dice.random() < 0.2:
            self.dice.shuffle(members)
        group = [GroupChanged(self.groups[name])] if name in self.groups else []
        return [*group, *map(PodUpserted, members)]

    def _needs(self) -> PodSpec:
        dice = self.dice
        amounts = {"gpu": dice.choice([0, 1, 1, 2, 2, 3])}
        if dice.random() < 0.3:
            amounts[BANDWIDTH] = dice.choice([20, 40])
        needs = replace(spec(**amounts), priority=dice.choice([0, 0, 0, 1]))
        if dice.random() < 0.15:
            needs = replace(needs, host_ports=(HostPort(port=80),))
        if dice.random() < 0.2:
            needs = replace(needs, tolerations=(Toleration(key=TAINT.key, operator="Exists"),))
        if dice.random() < 0.15:
            needs = replace(needs, node_selector=(("zone", dice.choice(["z1", "z2"])),))
        if dice.random() < 0.05:
            needs = replace(needs, scheduling_gates=("wait",))
        return needs

    def _plain_pod(self, name: str) -> list[Pod]:
        return pods(None, 1, self._needs(), prefix=name)

    def _replica(self, name: str) -> list[Pod]:
        dice = self.dice
        application = dice.choice(["A1", "A1", "A1", "A2"])
        return replicas(dice.choice("aabbccx"), app=application, prefix=name, gpus=dice.choice([0, 1, 2]))

    def _gang(self, name: str) -> list[Pod]:
        """Some are elastic, some of unequal pods, and some talk as an application does."""
        dice = self.dice
        size = dice.choice([1, 2, 2, 3, 4, 6])
        required = dice.choice([None, None, "zone", "rack", HOSTNAME])
        preferred = dice.choice([None, None, "rack", HOSTNAME])
        if required in (HOSTNAME, preferred):
            preferred = None
        least = dice.choice([size, size, max(1, size - 1), max(1, size // 2)])
        self.groups[name] = gang(name, min_member=least, required=required, preferred=preferred)
        base = self._needs()
        members = []
        for index in range(size):
            needs = base if dice.random() < 0.85 else replace(base, requests=self._needs().requests)
            members += pods(name, 1, needs, prefix=f"{name}-{index}")
        if dice.random() < 0.15:
            members = [
                replace(pod, labels={APP_GROUP_LABEL: "A1", WORKLOAD_LABEL: dice.choice("abc")})
                for pod in members
            ]
        return members

    def _gang_of_subgroups(self, name: str) -> list[Pod]:
        dice = self.dice
        subgroups, members = [], []
        for part in "xyz"[: dice.choice([1, 2, 3])]:
            least = dice.choice([1, 2])
            subgroups.append(subgroup(part, least, required=dice.choice([None, "rack", HOSTNAME])))
            size = least + dice.choice([0, 0, 1])
            members += pods(name, size, self._needs(), subgroup=part, prefix=f"{name}-{part}")
        group = gang(
            name,
            min_member=sum(one.min_member for one in subgroups),
            required=dice.choice([None, "zone"]),
            subgroups=subgroups,
        )
        self.groups[name] = replace(group, min_subgroups=1) if dice.random() < 0.3 else group
        return members

    def _forget(self, uid: str) -> None:
        self.pods.pop(uid)
        self.where.pop(uid, None)

    # What else happens

    def _nothing_else(self) -> list[Event]:
        return []

    def _node_changes(self) -> list[Event]:
        """It comes back, has other GPUs, is cordoned or tainted, or not any more."""
        dice = self.dice
        name = dice.choice(list(self.empty))
        gpus = max(dice.randint(0, 4), self._used(name))
        changed: Node = replace(
            self.empty[name],
            allocatable={GPU: gpus, BANDWIDTH: LINK},
            unschedulable=dice.random() < 0.2,
            taints=(TAINT,) if dice.random() < 0.25 else (),
        )
        self.nodes[name] = changed
        return [NodeUpserted(changed)]

    def _used(self, name: str) -> int:
        on = (self.pods[uid] for uid, where in self.where.items() if where == name)
        return sum(dict(pod.spec.requests).get(GPU, 0) for pod in on)

    def _node_goes(self) -> list[Event]:
        name = self.dice.choice(list(self.empty))
        return [] if self.nodes.pop(name, None) is None else [NodeDeleted(name)]

    def _bindings_end(self) -> list[Event]:
        """Up to three, well or badly."""
        dice = self.dice
        events: list[Event] = []
        under_way = [uid for uid in self.where if self.pods[uid].node_name is None]
        for uid in dice.sample(under_way, min(len(under_way), 3)):
            if dice.random() < 0.6:
                pod = replace(self.pods[uid], node_name=self.where[uid], phase="Running")
                self.pods[uid] = pod
                events.append(PodUpserted(pod))
                continue
            final = dice.random() < 0.4
            events.append(BindFailed(uid, "no", final=final))
            del self.where[uid]
            if final:
                del self.pods[uid]
        return events

    def _pod_ends(self) -> list[Event]:
        """It finishes, is about to be deleted, or is deleted while it waits."""
        if not self.pods:
            return []
        uid = self.dice.choice(list(self.pods))
        pod, name = self.pods[uid], self.where.get(uid)
        if name is None:
            self._forget(uid)
            return [PodDeleted(uid)]
        if self.dice.random() < 0.5:
            self._forget(uid)
            return [PodUpserted(replace(pod, node_name=name, phase="Succeeded"))]
        self.pods[uid] = replace(pod, node_name=name, phase="Running", terminating=True)
        return [PodUpserted(self.pods[uid])]

    def _gang_changes(self) -> list[Event]:
        """Its object goes, its minimum is another, or it requires another level."""
        if not self.groups:
            return []
        dice = self.dice
        name = dice.choice(list(self.groups))
        group = self.groups[name]
        if dice.random() < 0.3:
            del self.groups[name]
            return [GroupDeleted(group.key)]
        if dice.random() < 0.5:
            group = replace(group, min_member=max(1, group.min_member + dice.choice([-1, 1])))
        else:
            required = dice.choice([None, "rack", "zone"])
            group = replace(group, constraint=gang(required=required).constraint)
        self.groups[name] = group
        return [GroupChanged(group)]

    def _application_changes(self) -> list[Event]:
        name = self.dice.choice(["A1", "A2"])
        if self.dice.random() < 0.3:
            self.talk.pop(name, None)
            return [AppGroupDeleted(f"default/{name}")]
        self.talk[name] = AppGroupChanged(app(self.dice.choice(APPLICATIONS), name=name))
        return [self.talk[name]]

    def _network_changes(self) -> list[Event]:
        if self.dice.random() < 0.3:
            self.talk.pop("net", None)
            return [NetworkTopologyDeleted("default/net")]
        self.talk["net"] = NetworkTopologyChanged(network(self.dice.choice(NETWORKS), name="net"))
        return [self.talk["net"]]

    def _topology_changes(self) -> list[Event]:
        if self.dice.random() < 0.3:
            self.topology = None
            return [TopologyDeleted("fabric")]
        self.topology = self.dice.choice([fabric("zone", "rack", HOSTNAME), fabric("zone", "rack")])
        return [TopologyChanged(self.topology)]

    def _links_are_measured(self) -> list[Event]:
        """Of some nodes nothing is known; now and then of none."""
        if self.dice.random() < 0.2:
            return [self.measured(None)]
        seen = self.dice.sample(list(self.nodes), self.dice.randint(0, len(self.nodes)))
        return [self.measured({name: self.dice.choice([0, 0, 20, 50, 90]) for name in seen})]

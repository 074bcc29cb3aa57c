"""Tiny clusters by chance with one gang that waits, and what is true of them, by counting.

Nothing here asks the scheduler: pods of the gang are equal, so that a node holds as many as its resources
and its one host port allow, and a domain as many as its nodes do.
"""

from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import combinations
from math import prod
from random import Random
from typing import NamedTuple

from msgspec.structs import replace

from closeby.objects.groups import PodGroup
from closeby.objects.nodes import Node, Taint
from closeby.objects.pods import HostPort, Pod, PodSpec, Toleration
from closeby.reading.manifests import Manifests
from tests.crowded import world
from tests.worlds import GPU, gang, node, pods

KEY = "default/train"
LEVELS = ("zone", "rack")
_PORT = HostPort(port=80)
_OWNERS = ("", "", "", "Job/one", "ReplicaSet/web", "DaemonSet/agent", "Node/static")


class Tiny(NamedTuple):
    """A world, and its gang."""

    manifests: Manifests
    group: PodGroup

    @property
    def nodes(self) -> Sequence[Node]:
        return self.manifests.nodes

    @property
    def waiting(self) -> list[Pod]:
        return [one for one in self.manifests.pods if one.group == "train" and one.node_name is None]

    @property
    def own(self) -> list[Pod]:
        return [one for one in self.manifests.pods if one.group == "train" and one.node_name is not None]

    @property
    def others(self) -> list[Pod]:
        """Pods that run and are not of the gang."""
        return [one for one in self.manifests.pods if one.group != "train"]

    @property
    def pod(self) -> Pod:
        return self.waiting[0]

    @property
    def needed(self) -> int:
        return min(max(self.group.min_member - len(self.own), 1), len(self.waiting))

    @property
    def level(self) -> str | None:
        return None if self.group.constraint is None else self.group.constraint.required

    # What may go

    def returning(self) -> list[Pod]:
        """What comes back at once on the same node."""
        return [one for one in self.others if one.owner.startswith(("DaemonSet/", "Node/"))]

    def for_ever(self) -> list[Pod]:
        """What has no end."""
        endless = ("DaemonSet/", "Node/", "ReplicaSet/")
        return [one for one in self.others if one.owner.startswith(endless)]

    def jobs(self) -> dict[str, list[Pod]]:
        """What may end, by name."""
        found: dict[str, list[Pod]] = {}
        for one in self.others:
            if one in self.for_ever():
                continue
            name = f"pod/{one.key}" if one.group is None else f"podgroup/default/{one.group}"
            name = f"job/default/{one.owner[4:]}" if not one.group and one.owner.startswith("Job/") else name
            found.setdefault(name, []).append(one)
        return found

    # What holds how many

    def open(self, one: Node, pod: Pod | None = None) -> bool:
        """Whether nothing but what runs on a node keeps a pod from it."""
        spec = (pod or self.pod).spec
        anything = any(each.operator == "Exists" and not each.key for each in spec.tolerations)
        keys = {each.key for each in spec.tolerations}
        tainted = any(each.effect == "NoSchedule" and each.key not in keys for each in one.taints)
        chosen = all(one.labels.get(key) == value for key, value in spec.node_selector)
        return one.ready and chosen and (anything or not (one.unschedulable or tainted))

    def free(self, one: Node, beside: Iterable[Pod], resource: str) -> int:
        held = sum(dict(each.spec.requests).get(resource, 0) for each in beside if each.node_name == one.name)
        return max(int(one.allocatable.get(resource, 0)) - held, 0)

    def on_node(self, one: Node, beside: Sequence[Pod], pod: Pod | None = None) -> int:
        """How many of its pods a node holds beside others."""
        spec = (pod or self.pod).spec
        if not self.open(one, pod):
            return 0
        room = min(self.free(one, beside, name) // amount for name, amount in spec.requests)
        if not spec.host_ports:
            return room
        return (
            0 if any(each.spec.host_ports and each.node_name == one.name for each in beside) else min(room, 1)
        )

    def domains(self, level: str | None) -> dict[tuple[str, ...], list[Node]]:
        """The domains of a level in which the gang may be, with their nodes."""
        depth = 0 if level is None else LEVELS.index(level) + 1
        found: dict[tuple[str, ...], list[Node]] = {}
        for one in self.nodes:
            if depth == 0 or LEVELS[depth - 1] in one.labels:
                path = tuple(one.labels.get(each, "-") for each in LEVELS[:depth])
                found.setdefault(path, []).append(one)
        if depth == 0 or not self.own:
            return found
        held = {pod.node_name for pod in self.own}
        kept = {path: nodes for path, nodes in found.items() if held <= {each.name for each in nodes}}
        return kept

    def room(
        self, beside: Sequence[Pod], level: str | None = "", pod: Pod | None = None
    ) -> dict[tuple[str, ...], int]:
        """How many each domain holds beside some pods and the members that run."""
        here = [*beside, *self.own]
        of = self.level if level == "" else level
        return {
            path: sum(self.on_node(one, here, pod) for one in nodes)
            for path, nodes in self.domains(of).items()
        }

    def fits(self, beside: Sequence[Pod], level: str | None = "", pod: Pod | None = None) -> bool:
        return max(self.room(beside, level, pod).values(), default=0) >= self.needed

    def without(self, gone: Collection[Pod]) -> list[Pod]:
        uids = {one.uid for one in gone}
        return [one for one in self.others if one.uid not in uids]

    # What stands in the way

    def weight(self, gone: Iterable[Pod]) -> int:
        """The parts that pods hold of all that nodes offer, each of the resource it holds most of."""
        offered = {
            name: sum(int(one.allocatable.get(name, 0)) for one in self.nodes)
            for name, _ in self.pod.spec.requests
        }
        whole = prod(filter(None, offered.values()))
        return sum(
            max(
                (dict(each.spec.requests).get(name, 0) * (whole // of) for name, of in offered.items() if of),
                default=0,
            )
            for each in gone
        )

    def least(self, path: tuple[str, ...]) -> int | None:
        """The weight of the least without which it fits in a domain."""
        nodes = {one.name for one in self.domains(self.level)[path]}
        stay = {one.uid for one in self.returning()}
        here = [one for one in self.others if one.node_name in nodes and one.uid not in stay]
        enough = [
            self.weight(gone)
            for size in range(len(here) + 1)
            for gone in combinations(here, size)
            if self.room(self.without(gone))[path] >= self.needed
        ]
        return min(enough, default=None)


def tiny_world(seed: int) -> Tiny:
    """One to three racks of one to three nodes, up to seven pods that run, and a gang."""
    random = Random(seed)
    nodes = list(_nodes(random))
    names = [one.name for one in nodes]
    cores = random.random() < 0.3
    specs = [_spec(random, cores) for _ in range(3)]
    running: list[Pod] = []
    for number in range(random.randint(0, 7)):
        owner = random.choice(_OWNERS)
        may_be_in_a_gang = not owner or owner.startswith("ReplicaSet/")
        old = "old" if may_be_in_a_gang and random.random() < 0.3 else None
        (one,) = pods(old, 1, random.choice(specs), prefix=f"{random.choice('az')}{number}", owner=owner)
        running.append(replace(one, node_name=random.choice(names), phase="Running"))
    count = random.randint(1, 4)
    wanted = _spec(random, cores)
    if random.random() < 0.2:
        wanted = replace(wanted, node_selector=(("disk", "ssd"),))
    if random.random() < 0.2:
        wanted = replace(wanted, tolerations=(Toleration(key="team", operator="Exists"),))
    members = pods("train", count, wanted)
    if count > 1 and random.random() < 0.25:
        members[0] = replace(members[0], node_name=random.choice(names), phase="Running")
    required = random.choice(["rack", "rack", "zone", None])
    group = gang(min_member=random.randint(1, count), required=required)
    groups = [group, gang("old")]
    return Tiny(world(groups, [*running, *members], nodes), group)


def _nodes(random: Random) -> Iterator[Node]:
    for rack in range(random.randint(1, 3)):
        zone, gpus = random.choice("ab"), random.randint(1, 4)
        labels = {"zone": zone} | ({"rack": f"r{rack}"} if random.random() < 0.95 else {})
        for number in range(random.randint(1, 3)):
            disk = {"disk": "ssd"} if random.random() < 0.8 else {}
            offered = {GPU: gpus, "cpu": random.choice([2000, 4000])}
            made = node(f"n{rack}{number}", labels | disk, offered)
            taints = [Taint(key, "x", "NoSchedule") for key in ("team", "other") if random.random() < 0.08]
            cordoned, ready = random.random() < 0.08, random.random() > 0.08
            yield replace(made, taints=tuple(taints), unschedulable=cordoned, ready=ready)


def _spec(random: Random, cores: bool) -> PodSpec:
    asked = {GPU: random.choice([1, 1, 2, 3, 4])} | (
        {"cpu": random.choice([500, 1000, 2000])} if cores else {}
    )
    ports = (_PORT,) if random.random() < 0.1 else ()
    return PodSpec(requests=tuple(sorted(asked.items())), host_ports=ports)

"""What must hold of every placement, worked out the slow way from the objects alone.

Nothing here uses the engine's own columns, trees or counts, so that it can judge them.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import product

from closeby.cluster.columns import UNLIMITED
from closeby.objects.nodes import Node, is_accelerator
from closeby.objects.pods import Pod, PodSpec
from closeby.scheduling.engine import Engine

#: A set of nodes, by name.
Where = frozenset[str]


class Oracle:
    """Nodes, a topology's labels (coarse to fine), and who is where."""

    def __init__(
        self, nodes: Iterable[Node], levels: Sequence[str], placed: Mapping[str, Sequence[Pod]]
    ) -> None:
        self.nodes = {node.name: node for node in nodes}
        self.levels = tuple(levels)
        self.placed = {name: list(placed.get(name, ())) for name in self.nodes}

    def path(self, name: str, level: int) -> tuple[str, ...]:
        """A node's path down to a level; a missing label makes a domain of its own. Level -1 is the root."""
        labels = self.nodes[name].labels
        return tuple(labels.get(key) or f"private {name}" for key in self.levels[: level + 1])

    def labelled(self, name: str, level: int) -> bool:
        """Whether a node satisfies a constraint required at a level."""
        return level < 0 or bool(self.nodes[name].labels.get(self.levels[level]))

    def domains(self, level: int, within: Where | None = None, private: bool = False) -> list[Where]:
        """Domains of a level, with the private ones of nodes without the label if asked for."""
        found: dict[tuple[str, ...], set[str]] = {}
        for name in self.nodes if within is None else within:
            if private or self.labelled(name, level):
                found.setdefault(self.path(name, level), set()).add(name)
        return [frozenset(names) for names in found.values()]

    def fits(self, name: str, spec: PodSpec) -> int:
        """How many more pods of a spec a node takes."""
        node = self.nodes[name]
        if not usable(node, spec):
            return 0
        free = left(node, self.placed[name])
        rooms = [
            free["pods"],
            *(free.get(key, 0) // amount for key, amount in spec.requests if amount),
        ]
        return max(0, min(rooms))

    def has_free_accelerators(self, name: str) -> bool:
        """Whether a node offers accelerators that no pod has."""
        free = left(self.nodes[name], self.placed[name])
        return any(amount > 0 and is_accelerator(resource) for resource, amount in free.items())

    def spared(self, spec: PodSpec) -> Where:
        """The nodes that pods take first: those without free accelerators if they ask for none, else all."""
        asks = any(is_accelerator(resource) for resource, amount in spec.requests if amount)
        return frozenset(name for name in self.nodes if asks or not self.has_free_accelerators(name))

    def room(self, names: Iterable[str], spec: PodSpec) -> int:
        """How many more pods of a spec a set of nodes takes."""
        return sum(self.fits(name, spec) for name in names)


def usable(node: Node, spec: PodSpec) -> bool:
    """Whether a node lets pods of a spec in at all, had it room."""
    if node.unschedulable or not node.ready:
        return False
    tolerated = {(toleration.key, toleration.effect) for toleration in spec.tolerations}
    if any(
        taint.effect != "PreferNoSchedule" and (taint.key, taint.effect) not in tolerated
        for taint in node.taints
    ):
        return False
    return all(node.labels.get(key) == value for key, value in spec.node_selector)


def left(node: Node, pods: Iterable[Pod]) -> dict[str, int]:
    """What is left of each resource that a node offers."""
    free: dict[str, int] = {"pods": UNLIMITED, **node.allocatable}
    for pod in pods:
        for resource, amount in (("pods", 1), *pod.spec.requests):
            if resource in free:
                free[resource] -= amount
    return {resource: max(amount, 0) for resource, amount in free.items()}


def shares_out(demands: Sequence[tuple[int, Where]], rooms: Mapping[str, int]) -> bool:
    """Whether groups of equal pods fit beside each other, each inside its own nodes."""
    taken: dict[str, list[int]] = {name: [] for name in rooms}

    def augment(group: int, seen: set[str]) -> bool:
        for name in demands[group][1]:
            if name in seen:
                continue
            seen.add(name)
            if len(taken[name]) < rooms[name]:
                taken[name].append(group)
                return True
            for index, other in enumerate(taken[name]):
                if augment(other, seen):
                    taken[name][index] = group
                    return True
        return False

    return all(augment(group, set()) for group, (count, _) in enumerate(demands) for _ in range(count))


def choices(options: Sequence[Sequence[Where]]) -> Iterator[tuple[Where, ...]]:
    """Every choice of one domain per group."""
    return product(*options)


def assert_nothing_is_overcommitted(engine: Engine, before: Mapping[str, Sequence[Pod]] = {}) -> None:
    """No node holds more than it has, unless it did so before anything was placed."""
    on: dict[str, list[Pod]] = {}
    for pod, slot in engine.cluster.placed_pods():
        on.setdefault(engine.cluster.node_at(slot).name, []).append(pod)
    for name, pods in on.items():
        known = engine.cluster.slot(name)
        assert known is not None
        node = engine.cluster.node_at(known)
        running = {pod.uid for pod in before.get(name, ())}
        new = [pod for pod in pods if pod.uid not in running]
        for resource in {"pods", *(key for pod in new for key, _ in pod.spec.requests)}:
            used = sum(dict((("pods", 1), *pod.spec.requests)).get(resource, 0) for pod in pods)
            asked = sum(dict((("pods", 1), *pod.spec.requests)).get(resource, 0) for pod in new)
            limit = node.allocatable.get(resource, UNLIMITED if resource == "pods" else 0)
            assert not asked or used <= limit, f"{name}: {used} {resource} of {limit}"
        for pod in new:
            assert usable(node, pod.spec), f"{pod.name} may not be on {name}"

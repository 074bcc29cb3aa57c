"""Pod affinity and topology spread by brute force: from the rules, one pod and one node at a time.

Nothing here uses the engine's columns or counts, so that it can judge them. The rules are those of upstream's
InterPodAffinity and PodTopologySpread.
"""

import math
import random
from collections.abc import Mapping, Sequence

import numpy as np

from closeby.cluster.columns import Batch, Cluster
from closeby.objects.labels import HOSTNAME
from closeby.objects.nodes import Node, Taint, tolerated
from closeby.objects.pods import Pod, PodSpec, Toleration
from closeby.objects.selectors import (
    LabelRequirement,
    LabelSelector,
    PodAffinity,
    PodAffinityTerm,
    TopologySpreadConstraint,
    WeightedPodTerm,
)
from tests.plugins.asking import handle_of, place

Placed = Sequence[tuple[Pod, Node]]
Namespaces = Mapping[str, Mapping[str, str]]

TAINT = Taint("dedicated", "", "NoSchedule")


def holds(requirement: LabelRequirement, labels: Mapping[str, str]) -> bool:
    there, value = requirement.key in labels, labels.get(requirement.key)
    return {
        "In": there and value in requirement.values,
        "NotIn": not there or value not in requirement.values,
        "Exists": there,
        "DoesNotExist": not there,
    }[requirement.operator]


def selected(selector: LabelSelector | None, labels: Mapping[str, str]) -> bool:
    return selector is not None and all(holds(one, labels) for one in selector.requirements)


def means(term: PodAffinityTerm, owner: Pod, other: Pod, namespaces: Namespaces) -> bool:
    """Whether a term of ``owner`` selects ``other``."""
    if not term.namespaces and term.namespace_selector is None:
        inside = owner.namespace == other.namespace
    else:
        inside = other.namespace in term.namespaces or selected(
            term.namespace_selector, namespaces[other.namespace]
        )
    if not inside or not selected(term.selector, other.labels):
        return False
    for key in term.match_label_keys:
        if key in owner.labels and other.labels.get(key) != owner.labels[key]:
            return False
    return all(
        key not in owner.labels or other.labels.get(key) != owner.labels[key]
        for key in term.mismatch_label_keys
    )


def together(one: Node, other: Node, key: str) -> bool:
    return key in one.labels and one.labels[key] == other.labels.get(key)


def affinity_allows(pod: Pod, node: Node, placed: Placed, namespaces: Namespaces) -> bool:
    own = pod.spec.pod_affinity or PodAffinity()
    for other, where in placed:
        for term in (other.spec.pod_affinity or PodAffinity()).forbidden:
            if means(term, other, pod, namespaces) and together(node, where, term.topology_key):
                return False
        for term in own.forbidden:
            if means(term, pod, other, namespaces) and together(node, where, term.topology_key):
                return False
    if not own.required:
        return True
    if any(term.topology_key not in node.labels for term in own.required):
        return False
    group = [
        where for other, where in placed if all(means(term, pod, other, namespaces) for term in own.required)
    ]
    if all(any(together(node, where, term.topology_key) for where in group) for term in own.required):
        return True
    counted = any(term.topology_key in where.labels for where in group for term in own.required)
    return not counted and all(means(term, pod, pod, namespaces) for term in own.required)


def affinity_score(
    pod: Pod, nodes: Sequence[Node], placed: Placed, namespaces: Namespaces, hard_weight: int
) -> list[int]:
    raw = []
    for node in nodes:
        total = 0
        for other, where in placed:
            for one in (pod.spec.pod_affinity or PodAffinity()).preferred:
                if means(one.term, pod, other, namespaces) and together(node, where, one.term.topology_key):
                    total += one.weight
            theirs = other.spec.pod_affinity or PodAffinity()
            weighted = [(one.weight, one.term) for one in theirs.preferred]
            weighted += [(hard_weight, term) for term in theirs.required]
            for weight, term in weighted:
                if means(term, other, pod, namespaces) and together(node, where, term.topology_key):
                    total += weight
        raw.append(total)
    least, most = min(raw, default=0), max(raw, default=0)
    if least == most:
        return [0] * len(raw)
    return [int(100 * ((one - least) / (most - least))) for one in raw]


def counted_node(pod: Pod, node: Node, one: TopologySpreadConstraint, keys: Sequence[str]) -> bool:
    """Whether pods on a node count for a constraint."""
    if any(key not in node.labels for key in keys):
        return False
    if one.honors_affinity and any(node.labels.get(key) != value for key, value in pod.spec.node_selector):
        return False
    return not one.honors_taints or all(tolerated(pod.spec.tolerations, taint) for taint in node.taints)


def spread_matches(pod: Pod, other: Pod, one: TopologySpreadConstraint) -> bool:
    keys = [key for key in one.match_label_keys if key in pod.labels]
    return selected(one.selector, other.labels) and all(
        other.labels.get(key) == pod.labels[key] for key in keys
    )


def empty(pod: Pod, one: TopologySpreadConstraint) -> bool:
    keyed = any(key in pod.labels for key in one.match_label_keys)
    return one.selector is not None and not one.selector.requirements and not keyed


def count_on(pod: Pod, node: Node, placed: Placed, one: TopologySpreadConstraint) -> int:
    if empty(pod, one):
        return 0
    return sum(
        1
        for other, where in placed
        if where is node
        and other.namespace == pod.namespace
        and not other.terminating
        and spread_matches(pod, other, one)
    )


def spread_allows(pod: Pod, node: Node, nodes: Sequence[Node], placed: Placed) -> bool:
    hard = [one for one in pod.spec.topology_spread if one.hard]
    keys = [one.topology_key for one in hard]
    for one in hard:
        key = one.topology_key
        if key not in node.labels:
            return False
        domains: dict[str, int] = {}
        for other in nodes:
            if counted_node(pod, other, one, keys):
                value = other.labels[key]
                domains[value] = domains.get(value, 0) + count_on(pod, other, placed, one)
        least = min(domains.values()) if len(domains) >= one.min_domains and domains else 0
        itself = 1 if spread_matches(pod, pod, one) else 0
        if domains.get(node.labels[key], 0) + itself - least > one.max_skew:
            return False
    return True


def spread_score(
    pod: Pod,
    feasible: Sequence[Node],
    nodes: Sequence[Node],
    placed: Placed,
    soft: Sequence[TopologySpreadConstraint],
    need_all_keys: bool = True,
) -> list[int]:
    keys = [one.topology_key for one in soft] if need_all_keys else []
    ignored = [any(key not in node.labels for key in keys) for node in feasible]
    scored = [node for node, left_out in zip(feasible, ignored, strict=True) if not left_out]
    raw: list[int | None] = []
    for node, left_out in zip(feasible, ignored, strict=True):
        if left_out:
            raw.append(None)
            continue
        total = 0.0
        for one in soft:
            key = one.topology_key
            if key not in node.labels:
                continue
            if key == HOSTNAME:
                size = len(scored)
                count = count_on(pod, node, placed, one)
            else:
                size = len({other.labels.get(key, "") for other in scored})
                count = sum(
                    count_on(pod, other, placed, one)
                    for other in nodes
                    if other.labels.get(key) == node.labels[key] and counted_node(pod, other, one, keys)
                )
            total += count * math.log(size + 2) + (one.max_skew - 1)
        raw.append(math.floor(total + 0.5))
    known = [one for one in raw if one is not None]
    most, least = max(known, default=0), min(known, default=0)
    return [0 if one is None else 100 if most == 0 else 100 * (most + least - one) // most for one in raw]


# Random worlds

NAMESPACES: Namespaces = {"a": {"team": "x"}, "b": {"team": "y"}, "c": {}}
KEYS = ("zone", "rack", HOSTNAME)


def some_selector(dice: random.Random) -> LabelSelector | None:
    if dice.random() < 0.1:
        return None
    found = []
    for key in dice.sample(["app", "tier"], dice.randint(0, 2)):
        operator = dice.choice(["In", "In", "In", "NotIn", "Exists", "DoesNotExist"])
        values = tuple(dice.sample(["1", "2", "3"], dice.randint(1, 2))) if "In" in operator else ()
        found.append(LabelRequirement(key, operator, values))
    return LabelSelector(tuple(found))


def some_term(dice: random.Random) -> PodAffinityTerm:
    namespace_selector = None
    if dice.random() < 0.3:
        team = (LabelRequirement("team", "In", (dice.choice("xy"),)),)
        namespace_selector = LabelSelector(team if dice.random() < 0.7 else ())
    return PodAffinityTerm(
        topology_key=dice.choice(KEYS),
        selector=some_selector(dice),
        namespaces=tuple(sorted(dice.sample("abc", dice.choice([0, 0, 0, 1, 2])))),
        namespace_selector=namespace_selector,
        match_label_keys=("hash",) if dice.random() < 0.2 else (),
        mismatch_label_keys=("tier",) if dice.random() < 0.1 else (),
    )


def some_constraint(dice: random.Random) -> TopologySpreadConstraint:
    hard = dice.random() < 0.5
    return TopologySpreadConstraint(
        topology_key=dice.choice(KEYS),
        max_skew=dice.randint(1, 3),
        hard=hard,
        selector=some_selector(dice),
        min_domains=dice.choice([1, 1, 3]) if hard else 1,
        honors_affinity=dice.random() < 0.8,
        honors_taints=dice.random() < 0.4,
        match_label_keys=("hash",) if dice.random() < 0.2 else (),
    )


def some_spec(dice: random.Random) -> PodSpec:
    affinity = None
    if dice.random() < 0.6:
        affinity = PodAffinity(
            required=tuple(some_term(dice) for _ in range(dice.choice([0, 0, 1, 2]))),
            forbidden=tuple(some_term(dice) for _ in range(dice.choice([0, 0, 1, 2]))),
            preferred=tuple(
                WeightedPodTerm(dice.choice([-20, -1, 5, 30]), some_term(dice))
                for _ in range(dice.choice([0, 0, 1, 2]))
            ),
        )
    return PodSpec(
        node_selector=(("disk", "ssd"),) if dice.random() < 0.3 else (),
        tolerations=(Toleration(TAINT.key, operator="Exists"),) if dice.random() < 0.3 else (),
        pod_affinity=affinity,
        topology_spread=tuple(some_constraint(dice) for _ in range(dice.choice([0, 0, 1, 2]))),
    )


def some_pod(dice: random.Random, name: str, specs: Sequence[PodSpec]) -> Pod:
    labels = {"app": dice.choice("123"), "hash": dice.choice("12")}
    if dice.random() < 0.5:
        labels["tier"] = dice.choice("123")
    if dice.random() < 0.2:
        del labels[dice.choice(sorted(labels))]
    namespace = dice.choice("aabc")
    return Pod(
        namespace=namespace,
        name=name,
        uid=f"{namespace}/{name}",
        spec=dice.choice(specs),
        labels=labels,
        terminating=dice.random() < 0.15,
    )


def some_node(dice: random.Random, name: str) -> Node:
    labels = {"zone": dice.choice("12"), "rack": dice.choice("1234"), HOSTNAME: name}
    if dice.random() < 0.3:
        del labels[dice.choice(sorted(labels))]
    if dice.random() < 0.6:
        labels["disk"] = "ssd"
    return Node(name=name, labels=labels, taints=(TAINT,) if dice.random() < 0.2 else ())


class Played:
    """A random history of a cluster, and what the brute force needs to know of it."""

    def __init__(self, seed: int) -> None:
        self.dice = random.Random(seed)
        self.nodes = [some_node(self.dice, f"n{i}") for i in range(self.dice.randint(1, 9))]
        self.specs = [some_spec(self.dice) for _ in range(4)]
        self.handle = handle_of(self.nodes)
        self.placed: dict[str, tuple[Pod, str]] = {}
        self.count = 0
        for name, labels in NAMESPACES.items():
            self.cluster.population.namespace_changed(name, labels)

    @property
    def cluster(self) -> Cluster:
        return self.handle.cluster

    def where(self) -> list[tuple[Pod, Node]]:
        by_name = {node.name: node for node in self.nodes}
        return [(pod, by_name[name]) for pod, name in self.placed.values()]

    def some_pod(self) -> Pod:
        self.count += 1
        return some_pod(self.dice, f"p{self.count}", self.specs)

    def step(self) -> None:
        dice, cluster = self.dice, self.cluster
        kind = dice.choice(["place", "place", "place", "leave", "node", "relabel", "remove", "undo"])
        if kind == "leave" and self.placed:
            uid = dice.choice(sorted(self.placed))
            cluster.forget_pod(uid)
            del self.placed[uid]
        elif kind == "node" and len(self.nodes) < 12:
            self.nodes.append(some_node(dice, f"m{self.count}"))
            self.count += 1
            cluster.add_node(self.nodes[-1])
        elif kind == "relabel":
            at = dice.randrange(len(self.nodes))
            self.nodes[at] = some_node(dice, self.nodes[at].name)
            cluster.add_node(self.nodes[at])
        elif kind == "remove" and len(self.nodes) > 1:
            node = self.nodes.pop(dice.randrange(len(self.nodes)))
            for lost in cluster.remove_node(node.name):
                del self.placed[lost.uid]
        elif kind == "undo":
            self.undone()
        else:
            new, node = self.some_pod(), dice.choice(self.nodes)
            place(cluster, new, node.name)
            self.placed[new.uid] = (new, node.name)

    def undone(self) -> None:
        """Pods are assumed and forgotten again."""
        cluster, new = self.cluster, self.some_pod()
        slots = np.sort([cluster.slot_of(self.dice.choice(self.nodes).name) for _ in range(2)])
        twins = tuple(
            Pod(
                namespace=new.namespace,
                name=f"{new.name}-{i}",
                uid=f"{new.uid}-{i}",
                spec=new.spec,
                labels=new.labels,
            )
            for i in range(2)
        )
        cluster.assume(Batch(new.spec, twins, slots))
        cluster.forget(Batch(new.spec, twins, slots))

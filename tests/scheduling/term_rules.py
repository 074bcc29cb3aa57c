"""Pod affinity, anti-affinity and spread, worked out pod by pod from plain manifests.

The rules are those of upstream's InterPodAffinity and PodTopologySpread plugins, for one namespace and
``matchLabels`` alone. Nothing here uses closeby's own code, so that it can judge it.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from typing import Any

#: A manifest as plain values.
Manifest = Mapping[str, Any]
#: Pods and the names of their nodes.
Placed = tuple[tuple[Manifest, str], ...]


class Judge:
    """Some nodes by name, and whether a pod may go to one beside the pods that are there."""

    def __init__(self, nodes: Iterable[Manifest]) -> None:
        self.labels = {node["metadata"]["name"]: node["metadata"]["labels"] for node in nodes}
        self.room = {node["metadata"]["name"]: int(node["status"]["allocatable"]["cpu"]) for node in nodes}

    def allows(self, pod: Manifest, name: str, there: Placed) -> bool:
        """Whether upstream's filters let the pod go to the node now."""
        used = sum(_cpu(other) for other, at in there if at == name)
        return (
            used + _cpu(pod) <= self.room[name]
            and self._keeps_apart(pod, name, there)
            and self._comes_together(pod, name, there)
            and self._spreads(pod, name, there)
        )

    def reachable(self, there: Placed, wanted: Placed) -> bool:
        """Whether pods can come to their nodes one after another in some order."""
        if not wanted:
            return True
        goal = frozenset(range(len(wanted)))

        @cache
        def from_here(done: frozenset[int]) -> bool:
            if done == goal:
                return True
            now = (*there, *(wanted[index] for index in sorted(done)))
            return any(
                self.allows(*wanted[index], now) and from_here(done | {index}) for index in goal - done
            )

        return from_here(frozenset())

    def placeable(self, pods: Sequence[Manifest], there: Placed, inside: Sequence[str]) -> bool:
        """Whether all pods can come to some of the nodes one after another: every way is tried."""
        kinds: list[Manifest] = []
        for pod in pods:
            if not any(_alike(pod, kind) for kind in kinds):
                kinds.append(pod)
        wanted = tuple(sum(_alike(pod, kind) for pod in pods) for kind in kinds)

        @cache
        def from_here(done: tuple[tuple[int, ...], ...]) -> bool:
            """``done``: for each node, how many pods of each kind it took."""
            counts = tuple(sum(row[kind] for row in done) for kind in range(len(kinds)))
            if counts == wanted:
                return True
            now = (*there, *self._unrolled(kinds, inside, done))
            for kind, pod in enumerate(kinds):
                if counts[kind] == wanted[kind]:
                    continue
                for at, name in enumerate(inside):
                    if self.allows(pod, name, now) and from_here(_one_more(done, at, kind)):
                        return True
            return False

        return from_here(tuple((0,) * len(kinds) for _ in inside))

    def _unrolled(
        self, kinds: Sequence[Manifest], inside: Sequence[str], done: Sequence[Sequence[int]]
    ) -> Iterator[tuple[Manifest, str]]:
        for name, row in zip(inside, done, strict=True):
            for kind, count in zip(kinds, row, strict=True):
                yield from ((kind, name) for _ in range(count))

    def _keeps_apart(self, pod: Manifest, name: str, there: Placed) -> bool:
        for other, at in there:
            for term in _terms(pod, "podAntiAffinity"):
                if _selects(term, other) and self._together(term["topologyKey"], name, at):
                    return False
            for term in _terms(other, "podAntiAffinity"):
                if _selects(term, pod) and self._together(term["topologyKey"], name, at):
                    return False
        return True

    def _comes_together(self, pod: Manifest, name: str, there: Placed) -> bool:
        terms = _terms(pod, "podAffinity")
        if not terms:
            return True
        if any(term["topologyKey"] not in self.labels[name] for term in terms):
            return False
        matching = [at for other, at in there if all(_selects(term, other) for term in terms)]
        on_key = [at for at in matching if any(term["topologyKey"] in self.labels[at] for term in terms)]
        if not on_key:
            return all(_selects(term, pod) for term in terms)
        return all(any(self._together(term["topologyKey"], name, at) for at in matching) for term in terms)

    def _spreads(self, pod: Manifest, name: str, there: Placed) -> bool:
        constraints = pod["spec"].get("topologySpreadConstraints", ())
        keys = [constraint["topologyKey"] for constraint in constraints]
        eligible = [node for node, labels in self.labels.items() if all(key in labels for key in keys)]
        for constraint in constraints:
            key = constraint["topologyKey"]
            if key not in self.labels[name]:
                return False
            counts = {self.labels[node][key]: 0 for node in eligible}
            for other, at in there:
                if at in eligible and _selects(constraint, other):
                    counts[self.labels[at][key]] += 1
            least = min(counts.values(), default=0)
            if len(counts) < constraint.get("minDomains", 1):
                least = 0
            here = counts.get(self.labels[name][key], 0) + _selects(constraint, pod)
            if here - least > constraint["maxSkew"]:
                return False
        return True

    def _together(self, key: str, one: str, other: str) -> bool:
        value = self.labels[one].get(key)
        return value is not None and value == self.labels[other].get(key)


def _one_more(done: tuple[tuple[int, ...], ...], at: int, kind: int) -> tuple[tuple[int, ...], ...]:
    row = tuple(count + (index == kind) for index, count in enumerate(done[at]))
    return (*done[:at], row, *done[at + 1 :])


def _cpu(pod: Manifest) -> int:
    return int(pod["spec"]["containers"][0]["resources"]["requests"]["cpu"])


def _alike(one: Manifest, other: Manifest) -> bool:
    return bool(one["spec"] == other["spec"] and one["metadata"]["labels"] == other["metadata"]["labels"])


def _terms(pod: Manifest, kind: str) -> Sequence[Manifest]:
    field = "requiredDuringSchedulingIgnoredDuringExecution"
    found: Sequence[Manifest] = pod["spec"].get("affinity", {}).get(kind, {}).get(field, ())
    return found


def _selects(term: Manifest, pod: Manifest) -> bool:
    labels = pod["metadata"]["labels"]
    return all(labels.get(key) == value for key, value in term["labelSelector"]["matchLabels"].items())

"""What must hold of every placement, by arithmetic of its own on the manifests."""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from tests.random_worlds.facts import TRAIN, Facts, Gang, Layer, Node, Part, Pod, Term

#: Pods and the names of their nodes.
Placed = Sequence[tuple[Pod, str]]


def problems(facts: Facts, where: Mapping[str, str], victims: Collection[str] = ()) -> list[str]:
    """What is wrong with a placement of the gang that waits; nothing where all rules are kept."""
    return list(_Check(facts, where, victims).everything())


class _Check:
    def __init__(self, facts: Facts, where: Mapping[str, str], victims: Collection[str]) -> None:
        self.facts, self.where, self.victims = facts, where, victims
        self.old = [(pod, pod.node) for pod in facts.running if pod.name not in victims and pod.node]
        self.new = [(facts.pods[name], node) for name, node in where.items()]
        self.all: Placed = [*self.old, *self.new]
        #: The members of the gang that have a node.
        self.at = {pod.name: node for pod, node in self.all if pod.group == TRAIN}

    def everything(self) -> Iterator[str]:
        yield from self._nodes()
        yield from self._gang(self.facts.gang)
        yield from self._among_pods()
        yield from self._owned_domains()
        yield from self._victims()

    # Nodes

    def _nodes(self) -> Iterator[str]:
        used: dict[str, Counter[str]] = {}
        for pod, name in self.all:
            used.setdefault(name, Counter()).update(pod.needs)
        for pod, name in self.new:
            node = self.facts.nodes[name]
            if pod.node is not None:
                yield f"{pod.name} has a node already"
            if not self.facts.lets_in(pod, node):
                yield f"{name} does not let {pod.name} in"
            for resource in pod.needs:
                if used[name][resource] > node.offers.get(resource, 0):
                    yield f"{name} has not enough {resource} for {pod.name}"
            for other, at in self.all:
                if at == name and other is not pod and set(other.ports) & set(pod.ports):
                    yield f"{pod.name} and {other.name} have one port on {name}"

    # The gang

    def _gang(self, gang: Gang) -> Iterator[str]:
        for part in (gang.whole, *gang.parts):
            members = gang.inside(part)
            placed = [pod for pod in members if pod.name in self.at]
            if self.new and len(placed) < part.minimum:
                yield f"{part.name or 'the gang'} has {len(placed)} of at least {part.minimum}"
            if part.required is not None:
                homes = {self._home(pod, part.required) for pod in placed}
                if len(homes) > 1 or (homes and not self._labelled(placed, part.required)):
                    yield f"{part.name or 'the gang'} is in {homes} of {part.required}"
            yield from self._layers(part, members)

    def _home(self, pod: Pod, level: str) -> tuple[str, ...]:
        return self.facts.path(self.at[pod.name], level)

    def _labelled(self, placed: Iterable[Pod], level: str) -> bool:
        """Whether members that were placed now are on nodes with the label of a level."""
        return all(self.facts.labelled(self.at[pod.name], level) for pod in placed if pod.name in self.where)

    def _layers(self, part: Part, members: Sequence[Pod]) -> Iterator[str]:
        for number, layer in enumerate(part.layers):
            if not layer.required:
                continue
            segments: dict[int, list[Pod]] = {}
            for at, pod in enumerate(members):
                if pod.name in self.at:
                    segments.setdefault(layer.segment(at), []).append(pod)
            homes = {at: {self._home(pod, layer.level) for pod in own} for at, own in segments.items()}
            for at, own in homes.items():
                if len(own) > 1 or not self._labelled(segments[at], layer.level):
                    yield f"segment {at} is in {own} of {layer.level}"
                begun = any(pod.name not in self.where for pod in segments[at])
                if not begun and len(segments[at]) < layer.sizes[at]:
                    yield f"segment {at} of {layer.level} has {len(segments[at])} of {layer.sizes[at]}"
            if not number:
                used = [home for own in homes.values() for home in own]
                yield from self._first_layer(layer, used)

    def _first_layer(self, layer: Layer, used: Sequence[tuple[str, ...]]) -> Iterator[str]:
        if not self.new:
            return
        if layer.most is not None and len(set(used)) > layer.most:
            yield f"{len(set(used))} domains of {layer.level}, at most {layer.most} are allowed"
        if layer.exclusive == "kind" and len(set(used)) < len(used):
            yield f"segments share {layer.level}, which each must have for itself"

    def _owned_domains(self) -> Iterator[str]:
        """Nobody came to a domain that others have for themselves, nor took one that others are in."""
        for gang in self.facts.gangs.values():
            if not gang.exclusive:
                continue
            layer = gang.whole.layers[0]
            held = {self.facts.path(at, layer.level) for pod, at in self.old if pod.group == gang.name}
            mine = {self.facts.path(at, layer.level) for pod, at in self.new if pod.group == gang.name}
            for pod, at in self.all:
                strict = layer.exclusive == "all" or self._is_kind(pod)
                homes = held if pod.name in self.where else mine - held
                if strict and pod.group != gang.name and self.facts.path(at, layer.level) in homes:
                    yield f"{pod.name} is where {gang.name} has {layer.level} for itself"

    def _is_kind(self, pod: Pod) -> bool:
        gang = self.facts.gangs.get(pod.group or "")
        return gang is not None and gang.exclusive == "kind"

    # Pods about pods

    def _among_pods(self) -> Iterator[str]:
        """Each rule as it is in the end, which is weaker than in any order of the pods."""
        for term in {term for pod, _ in self.new for term in pod.near}:
            yield from self._near(term)
        for pod, at in self.new:
            for term in pod.apart:
                for other, there in self.all:
                    if other is not pod and term.matches(other) and self.together(term, at, there):
                        yield f"{pod.name} is not apart from {other.name} by {term.key}"
            for spread in pod.spreads:
                counts = spread_counts(self.facts, pod, spread, self.all)
                least = min(counts.values()) if len(counts) >= spread.least_domains else 0
                # Those that go by other constraints, or count on other nodes, may have come after.
                same = pod.spreads, pod.selector
                own = [one for one in self.new if (one[0].spreads, one[0].selector) == same]
                spreading = [*self.old, *own]
                here = spread_counts(self.facts, pod, spread, spreading)
                if here[self.facts.nodes[at].labels[spread.key]] - least > spread.skew:
                    yield f"{pod.name} is not spread by {spread.key}: {counts}"
        for pod, at in self.old:
            for term in pod.apart:
                for other, there in self.new:
                    if term.matches(other) and self.together(term, at, there):
                        yield f"{pod.name} keeps {other.name} off by {term.key}"

    def _near(self, term: Term) -> Iterator[str]:
        """Only the very first pod may go where no other one is that the term selects."""
        asking: dict[str | None, list[Pod]] = {}
        for pod, at in self.new:
            if term in pod.near:
                asking.setdefault(self._value(term, at), []).append(pod)
        opened = []
        for value, pods in asking.items():
            if not any(
                term.matches(other)
                and self._value(term, there) == value
                and (other.node or term not in other.near)
                for other, there in self.all
            ):
                opened.append(value)
                if not all(term.matches(pod) for pod in pods):
                    yield f"{pods[0].name} is not near those that it asks for by {term.key}"
        known = any(term.matches(other) for other, there in self.old if self._value(term, there))
        if len(opened) > (not known):
            yield f"{asking[opened[0]][0].name} is not near those that it asks for by {term.key}"

    def _value(self, term: Term, node: str) -> str | None:
        return self.facts.nodes[node].labels.get(term.key)

    def together(self, term: Term, one: str, other: str) -> bool:
        """Whether two nodes are in one domain of a term."""
        value = self._value(term, one)
        return value is not None and value == self._value(term, other)

    # Victims

    def _victims(self) -> Iterator[str]:
        priority = max(pod.priority for pod in self.facts.gang.members)
        for name in self.victims:
            pod = self.facts.pods[name]
            if pod.priority >= priority:
                yield f"{name} is a victim of priority {pod.priority}"
        for gang in self.facts.gangs.values():
            gone = [pod for pod in gang.members if pod.name in self.victims]
            left = len(gang.members) - len(gone)
            if gone and 0 < left < gang.whole.minimum:
                yield f"{gang.name} keeps {left} of at least {gang.whole.minimum}"


def eligible(pod: Pod, node: Node) -> bool:
    """Whether a node counts for the spreads of a pod."""
    return all(one.key in node.labels for one in pod.spreads) and all(
        node.labels.get(key) == value for key, value in pod.selector.items()
    )


def spread_counts(facts: Facts, pod: Pod, term: Term, there: Placed) -> Counter[str]:
    """Pods that count in each domain of a spread."""
    key = term.key
    counts = Counter({node.labels[key]: 0 for node in facts.nodes.values() if eligible(pod, node)})
    for other, at in there:
        if term.matches(other) and eligible(pod, facts.nodes[at]):
            counts[facts.nodes[at].labels[key]] += 1
    return counts

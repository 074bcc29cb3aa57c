"""Whether pods can come to their nodes one after another, as the filters of upstream let each of them in."""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence

from tests.random_worlds.checker import Placed, problems, spread_counts
from tests.random_worlds.facts import Facts, Pod, Term

#: Pods that are tried on their nodes, before an order is given up.
STEPS = 2000


class Filters:
    """What upstream's filters say about one pod after another, beside what runs and is no victim."""

    def __init__(self, facts: Facts, victims: Collection[str] = ()) -> None:
        self.facts = facts
        self.old = [(pod, pod.node) for pod in facts.running if pod.name not in victims and pod.node]
        self._left = facts.left(pod for pod, _ in self.old)

    def allows(self, pod: Pod, node: str, came: Placed) -> bool:
        """Whether a pod may go to a node after those that came."""
        there = [*self.old, *came]
        return (
            self.has_room(pod, node, came)
            and not any(at == node and set(other.ports) & set(pod.ports) for other, at in there)
            and self._keeps_apart(pod, node, there)
            and self._comes_together(pod, node, there)
            and self._spreads(pod, node, there)
        )

    def has_room(self, pod: Pod, node: str, came: Placed) -> bool:
        """Whether a node lets a pod in and has what it needs."""
        used = Counter[str]()
        for other, at in came:
            if at == node:
                used.update(other.needs)
        enough = all(used[key] + need <= self._left[node][key] for key, need in pod.needs.items())
        return enough and self.facts.lets_in(pod, self.facts.nodes[node])

    def _keeps_apart(self, pod: Pod, node: str, there: Placed) -> bool:
        return not any(
            (term.matches(other) and self._together(term, node, at))
            for other, at in there
            for term in pod.apart
        ) and not any(
            (term.matches(pod) and self._together(term, node, at))
            for other, at in there
            for term in other.apart
        )

    def _comes_together(self, pod: Pod, node: str, there: Placed) -> bool:
        if not pod.near:
            return True
        matching = [at for other, at in there if all(term.matches(other) for term in pod.near)]
        known = [at for at in matching if any(term.key in self.facts.nodes[at].labels for term in pod.near)]
        if not known:
            return all(term.matches(pod) for term in pod.near)
        return all(any(self._together(term, node, at) for at in matching) for term in pod.near)

    def _spreads(self, pod: Pod, node: str, there: Placed) -> bool:
        for spread in pod.spreads:
            counts = spread_counts(self.facts, pod, spread, there)
            least = min(counts.values()) if len(counts) >= spread.least_domains else 0
            here = counts[self.facts.nodes[node].labels[spread.key]] + spread.matches(pod)
            if here - least > spread.skew:
                return False
        return True

    def _together(self, term: Term, one: str, other: str) -> bool:
        value = self.facts.nodes[one].labels.get(term.key)
        return value is not None and value == self.facts.nodes[other].labels.get(term.key)


def has_order(facts: Facts, where: Mapping[str, str], victims: Collection[str] = ()) -> bool | None:
    """Whether some order of the pods passes all filters; None: it was given up."""
    filters = Filters(facts, victims)
    pods = [(facts.pods[name], node) for name, node in where.items()]
    if not any(pod.spreads or pod.near for pod, _ in pods):
        return all(
            filters.allows(pod, node, [one for one in pods if one[0] is not pod]) for pod, node in pods
        )
    #: By what distinguishes pods: how many there are, and one of them.
    kinds = Counter((pod.kind, node) for pod, node in pods)
    one_of = {(pod.kind, node): (pod, node) for pod, node in pods}
    keys = sorted(kinds, key=repr)
    steps = 0
    seen: set[tuple[int, ...]] = set()

    def go(done: tuple[int, ...]) -> bool | None:
        nonlocal steps
        if sum(done) == len(pods):
            return True
        if done in seen:
            return False
        seen.add(done)
        came: Sequence[tuple[Pod, str]] = [
            one_of[key] for key, count in zip(keys, done, strict=True) for _ in range(count)
        ]
        for at, key in enumerate(keys):
            if done[at] == kinds[key]:
                continue
            steps += 1
            if steps > STEPS:
                return None
            if filters.allows(*one_of[key], came):
                found = go((*done[:at], done[at] + 1, *done[at + 1 :]))
                if found is not False:
                    return found
        return False

    return go((0,) * len(keys))


def left_out(facts: Facts, where: Mapping[str, str], victims: Collection[str] = ()) -> list[str]:
    """Pods without a node that could go to one beside all that were placed, by all rules."""
    filters, required = Filters(facts, victims), facts.gang.whole.required
    came = [(facts.pods[name], node) for name, node in where.items()]
    homes = [*facts.begun.values(), *where.values()]
    found = []
    for pod in facts.gang.members:
        if pod.node is not None or pod.name in where:
            continue
        for name in facts.nodes:
            near = required is None or all(
                facts.labelled(name, required) and facts.path(name, required) == facts.path(home, required)
                for home in homes
            )
            allowed = near and filters.allows(pod, name, came)
            if allowed and not problems(facts, {**where, pod.name: name}, victims):
                found.append(f"{pod.name} could go to {name}")
                break
    return found

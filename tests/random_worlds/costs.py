"""What a placement costs: by how much one is better than another that keeps the same rules."""

from collections.abc import Collection, Mapping
from datetime import datetime

from tests.random_worlds.answers import Answer
from tests.random_worlds.facts import GPU, NOW, RESTART, WORKLOAD, ZONE, Facts, Pod


def cost_of(facts: Facts, answer: Answer) -> tuple[float, ...]:
    """The least is the best: who must go, members without a node, domains of the level asked about, nodes."""
    where = {**facts.begun, **answer.where}
    missing = len(facts.gang.members) - len(where)
    level = level_asked(facts)
    domains = 0 if level is None else domains_used(facts, answer.where, level)
    nodes = len(set(where.values())) if facts.packs and not facts.calls else 0
    return (*cost_of_victims(facts, answer.victims), missing, domains, network_cost(facts, where), nodes)


def network_cost(facts: Facts, where: Mapping[str, str]) -> int:
    """What all calls cost: nothing on one node, 1 inside of a zone, between zones what the network says."""
    total = 0
    at = [(facts.pods[name].labels.get(WORKLOAD), node) for name, node in where.items()]
    for caller, called in facts.calls:
        for one in (node for workload, node in at if workload == caller):
            for other in (node for workload, node in at if workload == called):
                zones = frozenset(facts.nodes[node].labels[ZONE] for node in (one, other))
                total += 0 if one == other else 1 if len(zones) == 1 else facts.costs[zones]
    return total


def level_asked(facts: Facts) -> str | None:
    """Of which level the gang wants few domains; None where it wants many, or says nothing."""
    whole = facts.gang.whole
    if facts.packs and whole.layers:
        return whole.layers[0].level
    if not facts.packs or facts.gang.parts:
        return None
    if whole.preferred is not None:
        return whole.preferred
    finer = facts.levels.index(whole.required) + 1 if whole.required is not None else len(facts.levels)
    return facts.levels[finer] if finer < len(facts.levels) else None


def domains_used(facts: Facts, where: Mapping[str, str], level: str) -> int:
    """On how many domains of a level the gang is."""
    return len({facts.path(node, level) for node in (*facts.begun.values(), *where.values())})


def around(facts: Facts, where: Mapping[str, str], level: str) -> frozenset[str]:
    """The nodes of the tightest domain above a level that holds the gang."""
    for coarser in reversed(facts.levels[: facts.levels.index(level)]):
        homes = {facts.path(node, coarser) for node in (*facts.begun.values(), *where.values())}
        if len(homes) == 1:
            return frozenset(name for name in facts.nodes if facts.path(name, coarser) in homes)
    return frozenset(facts.nodes)


def tighter(facts: Facts, where: Mapping[str, str]) -> str | None:
    """The level below the tightest domain that holds a gang in segments, if it is to be in the tightest."""
    gang = facts.gang
    layers = gang.whole.layers
    if not layers or not all(one.required for one in layers) or gang.whole.required is not None:
        return None
    if not facts.packs or facts.begun or len(gang.members) > gang.minimum:
        return None
    for level in facts.levels:
        if domains_used(facts, where, level) > 1:
            return level
    return None


#: The highest priority of a victim, lost work, broken gangs and accelerators.
VictimCost = tuple[int, int, int, int]


def cost_of_victims(facts: Facts, gone: Collection[str]) -> VictimCost:
    """Source: ``docs/preemption.md``, rule 5, as far as it does not depend on the domain that is cleared."""
    victims = [facts.pods[name] for name in gone]
    broken = 0
    for gang in facts.gangs.values():
        left = sum(pod.name not in gone for pod in gang.members)
        broken += left < len(gang.members) and left < gang.whole.minimum
    return (
        max((pod.priority for pod in victims), default=-1),
        sum(_gpus(pod) * (_seconds(NOW) - _seconds(pod.started) + RESTART) for pod in victims),
        broken,
        sum(map(_gpus, victims)),
    )


def _gpus(pod: Pod) -> int:
    return pod.needs.get(GPU, 0) // 1000


def _seconds(text: str) -> int:
    return round(datetime.fromisoformat(text).timestamp())

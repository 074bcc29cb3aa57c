"""What a placement costs: by how much one is better than another that keeps the same rules."""

from collections.abc import Mapping
from datetime import datetime

from tests.random_worlds.answers import Answer
from tests.random_worlds.facts import GPU, NOW, RESTART, TRAIN, Facts, Pod


def cost_of(facts: Facts, answer: Answer) -> tuple[float, ...]:
    """The least is the best: who must go, members without a node, domains of the level asked about, nodes."""
    where = {pod.name: pod.node for pod in facts.running if pod.group == TRAIN and pod.node}
    where |= dict(answer.where)
    missing = len(facts.gang.members) - len(where)
    return (*_cost_of_victims(facts, answer), missing, *_closeness(facts, where))


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


def _closeness(facts: Facts, where: Mapping[str, str]) -> tuple[float, ...]:
    level = level_asked(facts)
    domains = 0 if level is None else len({facts.path(node, level) for node in where.values()})
    return domains, len(set(where.values())) if facts.packs else 0


def _cost_of_victims(facts: Facts, answer: Answer) -> tuple[float, ...]:
    """Source: ``docs/preemption.md``, rule 5, as far as it does not depend on the domain that is cleared."""
    victims = [facts.pods[name] for name in answer.victims]
    broken = 0
    for gang in facts.gangs.values():
        left = sum(pod.name not in answer.victims for pod in gang.members)
        broken += left < len(gang.members) and left < gang.whole.minimum
    return (
        max((pod.priority for pod in victims), default=-1),
        sum(_gpus(pod) * (_seconds(NOW) - _seconds(pod.started) + RESTART) for pod in victims),
        broken if victims else 0,
        sum(map(_gpus, victims)),
    )


def _gpus(pod: Pod) -> int:
    return pod.needs.get(GPU, 0) // 1000


def _seconds(text: str) -> int:
    return round(datetime.fromisoformat(text).timestamp())

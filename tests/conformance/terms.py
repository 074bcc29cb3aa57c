"""Pods that mind other pods: affinity and anti-affinity of all kinds, and topology spread."""

from random import Random
from typing import TYPE_CHECKING

from tests.control_plane.api import Object

if TYPE_CHECKING:
    from tests.conformance.worlds import World

_KEYS = ("topology.kubernetes.io/zone", "kubernetes.io/hostname", "disk")
_APPS = ("web", "db", "cache")
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"


def add_neighbours(world: "World", random: Random) -> None:
    """Another namespace, with pods of its own."""
    other = f"{world.name}-other"
    world.add("/api/v1/namespaces", {"metadata": {"name": other, "labels": {"team": "b"}}})
    for i, made in enumerate(world.nodes):
        if random.random() < 0.4:
            pod: Object = {
                "metadata": {
                    "name": f"there-{i}",
                    "namespace": other,
                    "labels": {"app": random.choice(_APPS), "track": random.choice("xy")},
                },
                "spec": {"containers": [{"name": "main", "image": "example.com/main"}]},
            }
            if random.random() < 0.15:
                pod["spec"]["affinity"] = {"podAntiAffinity": {_REQUIRED: [_term(world, random)]}}
            world.place(pod, made["metadata"]["name"])


def mind_others(world: "World", random: Random, pod: Object) -> None:
    """Some pods get terms, or a spread constraint. Those on nodes get few, or no pod could go anywhere."""
    probe = "schedulerName" in pod["spec"]
    affinity = pod["spec"].setdefault("affinity", {})
    if random.random() < (0.25 if probe else 0.05):
        affinity["podAffinity"] = {_REQUIRED: [_term(world, random) for _ in range(random.choice((1, 1, 2)))]}
    if random.random() < (0.25 if probe else 0.1):
        affinity["podAntiAffinity"] = {_REQUIRED: [_term(world, random)]}
    if random.random() < 0.1:
        weighted = {"weight": random.randint(1, 100), "podAffinityTerm": _term(world, random)}
        affinity.setdefault("podAffinity", {})[_PREFERRED] = [weighted]
    if random.random() < (0.3 if probe else 0.05):
        constraints = [_spread(random, random.choice(_KEYS)) for _ in range(random.choice((1, 1, 2)))]
        # One constraint for each key and kind is all that is taken.
        unique = {(one["topologyKey"], one["whenUnsatisfiable"]): one for one in constraints}
        pod["spec"]["topologySpreadConstraints"] = list(unique.values())
    if not affinity:
        del pod["spec"]["affinity"]


def _selector(random: Random) -> Object:
    kind = random.randrange(6)
    if kind < 3:
        return {"matchLabels": {"app": random.choice(_APPS)}}
    if kind == 3:
        return {"matchExpressions": [{"key": "app", "operator": "In", "values": random.sample(_APPS, k=2)}]}
    if kind == 4:
        return {"matchExpressions": [{"key": "track", "operator": "NotIn", "values": ["x"]}]}
    operator = random.choice(("Exists", "DoesNotExist"))
    return {"matchExpressions": [{"key": random.choice(("app", "none")), "operator": operator}]}


def _term(world: "World", random: Random) -> Object:
    term: Object = {"topologyKey": random.choice(_KEYS), "labelSelector": _selector(random)}
    other = f"{world.name}-other"
    match random.randrange(8):
        case 0:
            term["namespaces"] = [other]
        case 1:
            term["namespaces"] = [other, world.namespace]
        case 2:
            # All of this world: its namespaces alone have a team.
            term["namespaceSelector"] = {"matchExpressions": [{"key": "team", "operator": "Exists"}]}
        case 3:
            term["namespaceSelector"] = {"matchLabels": {"team": random.choice("abc")}}
        case 4:
            term["namespaceSelector"] = {}
        case 5:
            term["labelSelector"] = {"matchLabels": {"app": random.choice(_APPS)}}
            term[random.choice(("matchLabelKeys", "mismatchLabelKeys"))] = ["track"]
    return term


def _spread(random: Random, key: str) -> Object:
    hard = random.random() < 0.8
    one: Object = {
        "maxSkew": random.choice((1, 1, 2, 3)),
        "topologyKey": key,
        "whenUnsatisfiable": "DoNotSchedule" if hard else "ScheduleAnyway",
        "labelSelector": _selector(random),
    }
    if hard and random.random() < 0.3:
        one["minDomains"] = random.choice((1, 2, 4, 20))
    for name in ("nodeAffinityPolicy", "nodeTaintsPolicy"):
        if random.random() < 0.4:
            one[name] = random.choice(("Honor", "Ignore"))
    if random.random() < 0.2:
        one["labelSelector"] = {"matchLabels": {"app": random.choice(_APPS)}}
        one["matchLabelKeys"] = ["track"]
    return one

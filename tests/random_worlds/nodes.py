"""The nodes of a random world, and its topology."""

from random import Random

from tests.random_worlds.facts import GPU, HOSTNAME, ZONE, Document
from tests.random_worlds.switches import Size, Switch

BLOCK, RACK = "example.com/block", "example.com/rack"
#: Coarse to fine; a topology has some of them.
KEYS = (ZONE, BLOCK, RACK, HOSTNAME)
TAINT = {"key": "dedicated", "value": "ml", "effect": "NoSchedule"}

#: Fewest and most zones, blocks of a zone, racks of a block and nodes of a rack.
_SHAPES = {
    Size.TINY: ((1, 2), (1, 1), (1, 2), (1, 2)),
    Size.SMALL: ((1, 2), (1, 2), (1, 3), (1, 3)),
    Size.MEDIUM: ((2, 2), (2, 3), (3, 5), (5, 10)),
}
_MOST = {Size.TINY: 5, Size.SMALL: 14, Size.MEDIUM: 300}


def draw_levels(random: Random) -> list[str]:
    """The labels of the topology, coarse to fine."""
    chances = (0.6, 0.7, 0.95, 0.85)
    return [key for key, chance in zip(KEYS, chances, strict=True) if random.random() < chance] or [RACK]


def topology(levels: list[str]) -> Document:
    """The only one there is."""
    return {
        "apiVersion": "kueue.x-k8s.io/v1beta1",
        "kind": "Topology",
        "metadata": {"name": "fabric"},
        "spec": {"levels": [{"nodeLabel": one} for one in levels]},
    }


def draw_nodes(random: Random, switches: frozenset[Switch], size: Size) -> list[Document]:
    """A tree of nodes."""
    zones, blocks, racks, nodes = _SHAPES[size]
    shape = random.choice([(1, 4), (2, 4), (4, 4)])
    made: list[Document] = []
    for zone in range(random.randint(*zones)):
        for block in range(random.randint(*blocks)):
            for rack in range(random.randint(*racks)):
                for _ in range(random.randint(*nodes)):
                    if len(made) < _MOST[size]:
                        path = (f"z{zone}", f"z{zone}b{block}", f"z{zone}b{block}r{rack}", f"n{len(made)}")
                        made.append(_node(random, switches, path, shape))
    return made


def _node(
    random: Random, switches: frozenset[Switch], path: tuple[str, ...], shape: tuple[int, int]
) -> Document:
    labels = dict(zip(KEYS, path, strict=True))
    if Switch.UNLABELLED in switches and random.random() < 0.12:
        labels.pop(random.choice((BLOCK, RACK)))
    if Switch.SELECTORS in switches:
        labels["disk"] = random.choice(("ssd", "ssd", "hdd"))
    allocatable = {GPU: str(random.randint(*shape)), "cpu": "64", "memory": "64Gi", "pods": "110"}
    if Switch.RESOURCES in switches:
        allocatable["cpu"] = str(random.choice((2, 4, 8, 8)))
        allocatable["memory"] = f"{random.choice((4, 8, 16))}Gi"
        allocatable["pods"] = str(random.choice((3, 110, 110)))
    spec: Document = {}
    if Switch.TAINTS in switches and random.random() < 0.3:
        spec["taints"] = [TAINT]
    ready = "True"
    if Switch.UNHEALTHY in switches and random.random() < 0.2:
        if random.random() < 0.5:
            spec["unschedulable"] = True
        else:
            ready = "False"
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": path[-1], "labels": labels},
        "spec": spec,
        "status": {"allocatable": allocatable, "conditions": [{"type": "Ready", "status": ready}]},
    }

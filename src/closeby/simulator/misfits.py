"""What is wrong with the objects that an engine was given, as far as it shows once they are together."""

from collections.abc import Iterable, Iterator

import numpy as np

from closeby.objects.natural import natural_key
from closeby.objects.quantities import format_amount
from closeby.objects.reasons import Condition, Reason
from closeby.scheduling.engine import Engine


def conditions_of(engine: Engine, told: Iterable[Condition] = ()) -> tuple[Condition, ...]:
    """What is wrong with topologies, measurements and nodes, and what was ``told`` before, in order.

    To be asked before anything is decided: overcommitment is that of the pods that came with their nodes.
    """
    found = (
        *told,
        *(condition for topology in engine.topologies for condition in topology.conditions),
        *(condition for plugin in engine.profile.plugins for condition in plugin.conditions()),
        *_homeless(engine),
        *_overcommitted(engine),
    )
    return tuple(sorted(found, key=_condition_order))


def _condition_order(condition: Condition) -> tuple[object, ...]:
    return natural_key(condition.object), condition.field, condition.reason, condition.message


def _homeless(engine: Engine) -> Iterator[Condition]:
    """One condition per unknown node that pods are bound to."""
    for node, pods in engine.state.on_unknown_nodes.items():
        names = sorted((pod.key for pod in pods.values()), key=natural_key)
        shown = ", ".join(names[:3]) + (", …" if len(names) > 3 else "")
        bound = f"{len(names)} pods are bound" if len(names) > 1 else "a pod is bound"
        yield Condition(
            reason=Reason.INVALID_SPEC,
            object=f"Node/{node}",
            message=f"{bound} to this node, which is not there: {shown}",
            remedy="add the node, or leave these pods out",
        )


def _overcommitted(engine: Engine) -> Iterator[Condition]:
    """One condition per node on which more is used than there is."""
    cluster = engine.cluster
    over = cluster.requested > cluster.allocatable
    for slot in np.flatnonzero(over.any(axis=0) & cluster.alive).tolist():
        lacks = [
            f"{format_amount(resource, int(cluster.requested[row, slot]))} {resource} of "
            f"{format_amount(resource, int(cluster.allocatable[row, slot]))}"
            for resource, row in cluster.row_of.items()
            if over[row, slot]
        ]
        yield Condition(
            reason=Reason.INSUFFICIENT_RESOURCES,
            object=f"Node/{cluster.node_at(slot).name}",
            field="status.allocatable",
            message=f"its pods take more than it has: {', '.join(sorted(lacks))}",
            remedy="it counts as having nothing of that left",
        )

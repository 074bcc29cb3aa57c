"""Exclusive topologies: one job of a JobSet, one group of a LeaderWorkerSet or one subgroup of it has a
domain, and no other of these kinds is in it.
"""

from collections.abc import Mapping
from typing import Final

from closeby.objects.groups import ConstraintSource, Exclusive, Layer, Remainder
from closeby.objects.pods import Pod
from closeby.reading.decoding.keys import JOBSET_EXCLUSIVE, LWS_EXCLUSIVE, LWS_SUBGROUP_EXCLUSIVE

_KEYS: Final = (JOBSET_EXCLUSIVE, LWS_EXCLUSIVE, LWS_SUBGROUP_EXCLUSIVE)


def exclusive_layer(
    annotations: Mapping[str, str], key: str, owner: str, part: str = "metadata.annotations", *, size: int
) -> tuple[Layer, ...]:
    """The layer that an annotation asks for, if it is there; ``part`` of ``owner`` has it in conditions."""
    if not annotations.get(key) or not size:
        return ()
    written = ConstraintSource(owner=owner, required=f'{part}["{key}"]')
    # The pods that start may be fewer than those of whole segments: of each job the first one.
    remainder = Remainder.ALLOW
    level = annotations[key]
    return (Layer(level=level, size=size, remainder=remainder, exclusive=Exclusive.KIND, written=written),)


def unmet(pod: Pod) -> str | None:
    """The annotation by which a pod without a gang asks for a domain, where no affinity of it does.

    The webhooks of JobSet and LeaderWorkerSet write such affinity, or a node selector for pods that follow.
    """
    if not pod.annotations:
        return None
    affinity = pod.spec.pod_affinity
    given = set() if affinity is None else {one.topology_key for one in affinity.required}
    given |= {key for key, _ in pod.spec.node_selector}
    return next((key for key in _KEYS if pod.annotations.get(key, "") not in {"", *given}), None)

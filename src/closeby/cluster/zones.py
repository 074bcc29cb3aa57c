"""Zone and region of a volume, by its labels, and the nodes that are in them."""

from typing import Final

import numpy as np

from closeby.cluster.claims import Zones
from closeby.cluster.selecting import NodeReach
from closeby.objects.arrays import Bools
from closeby.objects.labels import OLD_ZONE, REGION, ZONE
from closeby.objects.pods import NodeSelectorTerm, Requirement
from closeby.objects.volumes import PersistentVolume

#: Labels that name zone or region, the older ones with those that took their place.
_NEWER: Final = {
    OLD_ZONE: ZONE,
    "failure-domain.beta.kubernetes.io/region": REGION,
}
ZONE_LABELS: Final = (ZONE, REGION, *_NEWER)
#: Between the zones of a volume that is in several.
_SEVERAL: Final = "__"


def zones_of(volume: PersistentVolume) -> Zones:
    """Zone and region of a volume by its labels."""
    return tuple(
        (key, tuple(sorted(set(volume.labels[key].split(_SEVERAL)))))
        for key in ZONE_LABELS
        if key in volume.labels
    )


def nodes_in(zones: Zones, places: NodeReach) -> Bools:
    """Nodes in the zone and region of a volume, and nodes that name neither; shape (capacity,)."""
    nowhere = NodeSelectorTerm(tuple(Requirement(key, "DoesNotExist") for key in ZONE_LABELS))
    fitting = places.mask(None).copy()
    for key, values in zones:
        terms: tuple[NodeSelectorTerm, ...] = (NodeSelectorTerm((Requirement(key, "In", values),)),)
        if key in _NEWER:
            newer = (Requirement(key, "DoesNotExist"), Requirement(_NEWER[key], "In", values))
            terms = (*terms, NodeSelectorTerm(newer))
        fitting &= places.mask(terms)
    return np.logical_or(fitting, places.mask((nowhere,)))

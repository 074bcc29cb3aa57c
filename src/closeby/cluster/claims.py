"""What the claims of a pod amount to, whatever they are called, and what each of them gets."""

from enum import StrEnum
from typing import Final

import numpy as np
from msgspec import Struct

from closeby.cluster.selecting import NodeReach, Terms
from closeby.objects.arrays import Bools
from closeby.objects.bounds import some
from closeby.objects.labels import OLD_ZONE, REGION, ZONE
from closeby.objects.pods import ClaimRequest, NodeSelectorTerm, Pod, Requirement
from closeby.objects.volumes import PersistentVolume
from closeby.objects.words import time_text

#: Labels of a volume that name its zone and region, with the values that will do.
Zones = tuple[tuple[str, tuple[str, ...]], ...]


class ClaimState(StrEnum):
    """What a claim waits for before its pod can go anywhere, or that it waits for none of these."""

    READY = "ready"
    NOT_FOUND = "is not there"
    TERMINATING = "is being deleted"
    LOST = "has lost its volume"
    #: It is another pod's of the same name.
    FOREIGN = "was not made for this pod"
    #: It is bound to a volume that is not there.
    NO_VOLUME = "is bound to a volume that is not there"
    #: It names its volume, or its class binds at once.
    NOT_BOUND = "is not bound yet"


class RefusedNode(Struct, frozen=True):
    """A node for which the volume of a claim could not be had of late."""

    node: str
    #: Labels of all nodes for which it can't be had either; None for the node alone.
    alike: NodeSelectorTerm | None = None
    #: For people, such as ``its provisioner makes no volume for node n7``.
    why: str = ""
    #: Name of the volume that was to be bound; empty where one was to be made.
    volume: str = ""
    #: Seconds for which the node is kept from the claim.
    lasts: float = 0.0

    def sentence(self) -> str:
        """Why the node is not chosen, and until when."""
        labels = () if self.alike is None else self.alike.expressions
        near = f" or others with {some([f'{one.key}={one.values[0]}' for one in labels])}" if labels else ""
        until = f"volume {self.volume}" if self.volume else "the claim, its class or its storage capacity"
        where = f"{self.node}{near}" if near else "that node"
        return f"{self.why}; {where} is not tried again for {time_text(self.lasts)}, unless {until} changes"


class ClaimNeed(Struct, frozen=True):
    """What one claim of a pod amounts to. Pods with equal needs can go to the same nodes."""

    state: ClaimState = ClaimState.READY
    #: Key of a claim that other pods may share; empty for one that each pod has for itself.
    shared: str = ""
    #: Nodes that reach the volume; None for all.
    reach: Terms = None
    zones: Zones = ()
    #: The node for which its volume is to be made, and the labels that other nodes that reach it share.
    node: str = ""
    same: tuple[str, ...] = ()
    #: What is asked for, where the volume is chosen or made with the node; the class, and when that changed.
    request: ClaimRequest | None = None
    epoch: int = 0
    #: Nodes for which its volume could not be had of late.
    refused: tuple[RefusedNode, ...] = ()
    #: The driver that attaches it, and the key of the claim where it may be attached somewhere already.
    driver: str = ""
    known: str = ""
    #: Whether one pod at a time may use it, and whether one does.
    exclusive: bool = False
    in_use: bool = False


class StandIn(Pod, frozen=True, kw_only=True):
    """A pod by which its class is judged: the needs stay when the pod itself has got its volumes."""

    needs: tuple[ClaimNeed, ...] = ()


class ClaimedVolume(Struct, frozen=True):
    """What a claim of a placed pod has, or gets with the pod's node."""

    #: Key of the claim.
    claim: str
    #: Name of the volume; None where one is made for the node.
    volume: str | None
    storage_class: str
    #: Whether it was bound to its volume before.
    bound: bool


class ChosenVolume(Struct, frozen=True):
    """What a claim gets that had no volume when its pod was placed."""

    #: Key of the claim.
    claim: str
    #: Name of the volume; None where it is made.
    volume: str | None
    #: The slot for which it was chosen.
    slot: int


#: Labels that name zone or region, the older ones with those that took their place.
_NEWER: Final = {OLD_ZONE: ZONE, "failure-domain.beta.kubernetes.io/region": REGION}
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

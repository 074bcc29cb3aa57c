"""What a scheduler wrote about an object where it lives: a condition that stands in the cluster."""

from msgspec import Struct


class Recorded(Struct, frozen=True, kw_only=True):
    """One entry of ``status.conditions``, and whose it is (``Kind/namespace/name``)."""

    object: str
    type: str
    status: str
    reason: str
    message: str
    #: ``lastTransitionTime``; empty when nobody says.
    since: str

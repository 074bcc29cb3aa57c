"""Bandwidths: quantities in bits per second, and the annotations that limit a pod's traffic."""

from collections.abc import Mapping
from functools import lru_cache
from typing import Final

from closeby.errors import QuantityError
from closeby.objects.bounds import quoted
from closeby.objects.pods import BandwidthLimits
from closeby.objects.quantities import QuantityText, Rounding, amount
from closeby.objects.reasons import invalid
from closeby.reading.decoding.errors import field_path
from closeby.reading.decoding.reading import DocumentReading

#: The extended resource that nodes offer and pods request (network-aware scheduling KEP), in bits per second.
BANDWIDTH: Final = "network.aware.com/bandwidth"
#: Read by the bandwidth plugin of the node's network (CNI).
INGRESS: Final = "kubernetes.io/ingress-bandwidth"
EGRESS: Final = "kubernetes.io/egress-bandwidth"
LIMITS: Final = frozenset({INGRESS, EGRESS})

#: Kubernetes refuses limits beyond these.
LEAST_LIMIT: Final = 10**3
GREATEST_LIMIT: Final = 10**15

#: Each distinct pair of limits is one object, for many pods have the same.
_limits = lru_cache(maxsize=4096)(BandwidthLimits)


def bits_per_second(value: QuantityText, rounding: Rounding) -> int:
    """A bandwidth.

    Raises:
        QuantityError: ``value`` is not a quantity, is negative, or does not fit 64 bits.
    """
    bits = amount(BANDWIDTH, value, rounding)
    if bits < 0:
        raise QuantityError(f"{quoted(value)} is negative", "give zero or more")
    return bits


def bandwidth_limits(
    annotations: Mapping[str, str],
) -> tuple[BandwidthLimits | None, dict[str, QuantityError]]:
    """The limits that make sense (None where there are none), and by key what is wrong with the others."""
    wrong = {}
    found: dict[str, int] = {}
    for key in (INGRESS, EGRESS):
        text = annotations.get(key)
        if text is not None:
            try:
                found[key] = _limit(text)
            except QuantityError as error:
                wrong[key] = error
    return (_limits(found.get(INGRESS), found.get(EGRESS)) if found else None), wrong


def read_bandwidth_limits(
    annotations: Mapping[str, str],
    requests: tuple[tuple[str, int], ...],
    reading: DocumentReading,
    owner: str,
    part: str,
) -> BandwidthLimits | None:
    """The limits of a pod, with a notice where they make no sense or are below what the pod requests.

    ``owner`` names the object in notices, ``part`` the field that holds its annotations.
    """
    limits, wrong = bandwidth_limits(annotations)

    def note(key: str, message: str, remedy: str) -> None:
        field = field_path((key,), part)
        condition = invalid(owner, field, message, remedy)
        reading.note(f"{key}: {message}", condition)

    for key, error in wrong.items():
        note(key, error.message, f"{error.remedy}; it counts as no limit")
    if limits is None:
        return None
    request = dict(requests).get(BANDWIDTH, 0)
    for key, limit in ((INGRESS, limits.ingress), (EGRESS, limits.egress)):
        if limit is not None and limit < request:
            message = (
                f"{annotations[key]} is less than the {request} bit/s of {BANDWIDTH} that the pod requests"
            )
            note(key, message, "raise the limit, or request less")
    return limits


@lru_cache(maxsize=4096)
def _limit(text: str) -> int:
    bits = bits_per_second(text, "down")
    if bits < LEAST_LIMIT:
        raise QuantityError(f"{text} is less than 1k bit/s, which Kubernetes refuses", "give 1k or more")
    if bits > GREATEST_LIMIT:
        raise QuantityError(f"{text} is more than 1P bit/s, which Kubernetes refuses", "give 1P or less")
    return bits

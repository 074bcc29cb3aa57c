"""Bandwidth from Prometheus: one instant query per direction and figure, over its HTTP API.

A host is what the label ``node`` says, else ``instance``, or what another label says that is chosen.
"""

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple, TypeVar
from urllib.parse import urlencode

import msgspec
from msgspec import Struct, field

from closeby.measurements.addresses import ANONYMOUS, TIMEOUT, Access, address_of
from closeby.measurements.bandwidth import (
    BandwidthReadings,
    Operator,
    Sample,
    Unavailable,
    problem,
    readings_of,
)
from closeby.measurements.fetching import Client, refusal
from closeby.measurements.promql import HOST_LABELS, STALE_AFTER, WINDOW, Queries

#: What the series of an answer are read as.
T = TypeVar("T")


class _Answer(Struct, frozen=True):
    status: str
    error: str = ""
    data: msgspec.Raw = msgspec.Raw(b"null")


class _Series(Struct, frozen=True):
    metric: dict[str, str]
    value: tuple[float, str]


class _Vector(Struct, frozen=True):
    kind: str = field(name="resultType")
    series: msgspec.Raw = field(name="result")


class Vector(NamedTuple):
    """An instant vector by host, and what could not be used of it."""

    #: The greatest value where several series name one host.
    values: Mapping[str, float]
    #: When the query was evaluated, seconds since the epoch; None for an empty vector.
    evaluated: float | None
    #: Hosts with a value that is not finite.
    bad: tuple[str, ...] = ()
    #: Series that name no host.
    nameless: int = 0


class Prometheus:
    """A Prometheus server by its address, such as ``http://prometheus:9090``."""

    def __init__(
        self,
        address: str,
        queries: Queries | None = None,
        stale_after: float = STALE_AFTER,
        timeout: float = TIMEOUT,
        *,
        access: Access = ANONYMOUS,
        label: str = "",
        window: float = WINDOW,
    ) -> None:
        """``stale_after`` and ``timeout`` (of each query) are in seconds.

        ``label`` names hosts in place of ``HOST_LABELS``, for which ``queries`` must keep it; ``window`` is
        how far they look back, in seconds.
        """
        self._url = query_address(address)
        self._queries = Queries().adapted(label) if queries is None else queries
        self._labels = (label,) if label else HOST_LABELS
        self._stale_after = stale_after
        self._window = window
        self._client = Client(access, timeout)

    def read(self) -> BandwidthReadings | Unavailable:
        """Ask all queries; the first that fails makes all unavailable."""
        asked = msgspec.structs.asdict(self._queries)
        vectors: dict[str, Vector] = {}
        for name, query in asked.items():
            if query:
                vector = self._ask(query)
                if isinstance(vector, Unavailable):
                    return vector
                vectors[name] = vector
        return combine(
            address_of(self._url), vectors, self._stale_after, window=self._window, labels=self._labels
        )

    def _ask(self, query: str) -> Vector | Unavailable:
        answer = self._client.get(f"{self._url}?{urlencode({'query': query})}")
        if isinstance(answer, Unavailable):
            return answer
        place = address_of(self._url)
        if refused := refusal(answer, place):
            return refused
        return parse_vector(answer.body, place, answer.status, self._labels)


def query_address(address: str) -> str:
    """Where the Prometheus at ``address`` takes instant queries."""
    return f"{address.rstrip('/')}/api/v1/query"


def parse_series(content: bytes, source: str, status: str, shape: type[T]) -> T | Unavailable:
    """The series of an instant vector in an answer of ``/api/v1/query``; ``shape`` is the list of them.

    ``source`` and ``status`` are for messages.
    """
    try:
        answer = msgspec.json.decode(content, type=_Answer)
        if answer.status != "success":
            return Unavailable(f"{source} answers {status}: {answer.error}", "check the query")
        vector = msgspec.json.decode(answer.data, type=_Vector)
        if vector.kind != "vector":
            return Unavailable(f"{source} answers a {vector.kind}", "write a query that gives a vector")
        return msgspec.json.decode(vector.series, type=shape)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        why = str(error).replace("`", "")
        return Unavailable(f"{source} answers {status}, not what Prometheus answers: {why}")


def parse_vector(
    content: bytes, source: str, status: str = "200 OK", labels: Sequence[str] = HOST_LABELS
) -> Vector | Unavailable:
    """The instant vector by host, as the first of ``labels`` names it that a series has.

    ``source`` and ``status`` are for messages.
    """
    series = parse_series(content, source, status, tuple[_Series, ...])
    if isinstance(series, Unavailable):
        return series
    values: dict[str, float] = {}
    bad: list[str] = []
    nameless = 0
    for one in series:
        host = next((name for label in labels if (name := one.metric.get(label))), None)
        value = usable_number(one.value[1])
        if not host:
            nameless += 1
        elif value is None:
            bad.append(host)
        else:
            values[host] = max(values.get(host, 0.0), value)
    evaluated = max((one.value[0] for one in series), default=None)
    return Vector(values, evaluated, tuple(bad), nameless)


def combine(
    source: str,
    vectors: Mapping[str, Vector],
    stale_after: float,
    *,
    window: float = WINDOW,
    labels: Sequence[str] = HOST_LABELS,
) -> BandwidthReadings:
    """Measurements from the vectors of ``Queries``, by its field names; hosts are known by ``labels``.

    What is older than ``stale_after`` does not count; that and ``window`` are seconds.
    """
    operators: Mapping[str, Operator] = {
        "transmit_average": "average",
        "receive_average": "average",
        "transmit_deviation": "deviation",
        "receive_deviation": "deviation",
    }
    measured = max((one.evaluated for one in vectors.values() if one.evaluated is not None), default=None)
    hosts = {host for name in operators if name in vectors for host in vectors[name].values}
    stale: set[str] = set()
    seen: Mapping[str, float] = {}
    if "last_sample" in vectors and measured is not None:
        seen = vectors["last_sample"].values
        stale = {host for host in hosts if measured - seen.get(host, -math.inf) > stale_after}
    samples = [
        Sample(host, operator, bits)
        for name, operator in operators.items()
        if name in vectors
        for host, bits in vectors[name].values.items()
        if host not in stale
    ]
    bad = [host for vector in vectors.values() for host in vector.bad]
    nameless = [name for name, vector in vectors.items() if vector.nameless]
    problems = (
        *problem(source, stale, f"hosts were not scraped for {stale_after:g} s", "they are left out"),
        *problem(source, bad, "hosts have values that are no rates", "those values are left out"),
        *problem(
            source,
            nameless,
            f"queries give series without the label {' or '.join(labels)}",
            "those are left out",
        ),
    )
    return readings_of(source, samples, measured, problems, window=window, sampled=seen)


def usable_number(text: str) -> float | None:
    """A usable value; None for NaN, infinities, negative ones and what is not a number."""
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) and value >= 0 else None

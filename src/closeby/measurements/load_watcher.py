"""Bandwidth from the load-watcher: its ``/watcher`` document, from a file or over HTTP.

The document gives network traffic as bytes/s x 100: the load-watcher multiplies whatever it reads by 100, as
if it were a ratio. Sent bytes, received bytes and dropped packets all have the type ``Bandwidth``; the drops
are reported by name and left out. (Source: the load-watcher's Prometheus client; the network-aware
scheduling KEP names it as where measurements come from.)
"""

import math
from collections.abc import Iterator, Sequence
from urllib.parse import urlsplit, urlunsplit

import msgspec
from msgspec import Struct, field

from closeby.measurements.addresses import ANONYMOUS, TIMEOUT, Access, address_of, is_url
from closeby.measurements.bandwidth import BandwidthReadings, Sample, Unavailable, problem, readings_of
from closeby.measurements.fetching import Client, read_file, refusal

#: Seconds that the load-watcher looks back, where a document does not say it.
WINDOW = 900.0

#: Bits/s in one unit of a document.
BITS = 8 / 100

#: What the document calls operators; the latest value, or one without an operator, stands in for an average.
_AVERAGE, _DEVIATION = "avg", "std"
_STAND_INS = ("latest", "")


class _Metric(Struct, frozen=True):
    name: str = ""
    type: str = ""
    operator: str = ""
    value: object = None


class _Host(Struct, frozen=True):
    metrics: tuple[_Metric, ...] | None = None


class _Data(Struct, frozen=True):
    hosts: dict[str, _Host] | None = field(name="NodeMetricsMap")


class _Window(Struct, frozen=True):
    start: float = 0
    end: float = 0


class _Document(Struct, frozen=True):
    data: _Data
    timestamp: float = 0
    window: _Window = _Window()


class LoadWatcher:
    """A load-watcher's address (``/watcher`` is added where no path is given), or a file with its answer."""

    def __init__(self, address: str, timeout: float = TIMEOUT, access: Access = ANONYMOUS) -> None:
        """``timeout`` is in seconds."""
        self._address = address
        self._client = Client(access, timeout)

    def read(self) -> BandwidthReadings | Unavailable:
        """Fetch and parse."""
        if not is_url(self._address):
            content = read_file(self._address)
            return content if isinstance(content, Unavailable) else parse_watcher(content, self._address)
        url = _with_path(self._address)
        if isinstance(url, Unavailable):
            return url
        answer = self._client.get(url)
        if isinstance(answer, Unavailable):
            return answer
        if refused := refusal(answer, address_of(url)):
            return refused
        if answer.code != 200:
            return Unavailable(f"{address_of(url)} answers {answer.status}", "does the load-watcher run?")
        return parse_watcher(answer.body, address_of(url))


def parse_watcher(content: bytes, source: str) -> BandwidthReadings | Unavailable:
    """The measurements of a ``/watcher`` document; ``source`` names it in messages."""
    try:
        document = msgspec.json.decode(content, type=_Document)
    except msgspec.ValidationError as error:
        return Unavailable(f"{source} is not a /watcher document: {_lowered(str(error))}")
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        return Unavailable(f"{source} is not JSON: {error}")
    samples: list[Sample] = []
    bad: list[str] = []
    silent: list[str] = []
    for host, listed in (document.data.hosts or {}).items():
        rates = [(one.operator.lower(), _rate(one.value)) for one in listed.metrics or () if _is_traffic(one)]
        usable = [(operator, bits) for operator, bits in rates if bits is not None]
        if len(usable) < len(rates):
            bad.append(host)
        if not rates:
            silent.append(host)
        samples += _samples(host, usable)
    problems = (
        *problem(source, bad, "hosts have values that are no rates", "those values are left out"),
        *problem(source, silent, "hosts have no metric of type Bandwidth", "they are left out"),
    )
    start, end = document.window.start, document.window.end or document.timestamp
    window = max(0.0, end - start) if start else WINDOW
    return readings_of(source, samples, end or None, problems, window=window)


def _samples(host: str, rates: Sequence[tuple[str, float]]) -> Iterator[Sample]:
    """All directions; latest values count where no direction has an average."""
    averages = [bits for operator, bits in rates if operator == _AVERAGE]
    instead = [bits for operator, bits in rates if operator in _STAND_INS]
    for bits in averages or instead:
        yield Sample(host, "average", bits)
    for operator, bits in rates:
        if operator == _DEVIATION:
            yield Sample(host, "deviation", bits)


def _is_traffic(metric: _Metric) -> bool:
    return metric.type.lower() == "bandwidth" and "drop" not in metric.name.lower()


def _rate(value: object) -> float | None:
    """A value of the document in bits/s; None when it is not a rate."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        rate = float(value)
    except OverflowError:  # JSON's whole numbers have no end.
        return None
    return rate * BITS if math.isfinite(rate) and rate >= 0 else None


def _with_path(address: str) -> str | Unavailable:
    try:
        parts = urlsplit(address)
    except ValueError as error:
        return Unavailable(f"{address} is not a usable address: {error}")
    return urlunsplit(parts._replace(path="/watcher")) if parts.path in ("", "/") else address


def _lowered(text: str) -> str:
    return text[:1].lower() + text[1:].replace("`", "").replace("$.", "")

"""What a NetworkTopology asks its controller for: where latencies come from, and how often."""

from collections.abc import Mapping
from typing import Final

import msgspec
from msgspec import Struct

from closeby.measurements.addresses import ANONYMOUS, Access, Address, permitted, read_address
from closeby.measurements.latencies import METRICS, is_metric
from closeby.objects.bounds import quoted
from closeby.objects.reasons import Condition, Reason

#: The only type of provider that knows latencies.
PROMETHEUS: Final = "Prometheus"
#: Where nothing usable is said, in minutes.
FREQUENCY: Final = 5
TIME_RANGE: Final = 15
#: A day and a week, in minutes: more is surely a mistake.
_MOST_FREQUENCY: Final = 24 * 60
_MOST_TIME_RANGE: Final = 7 * 24 * 60
#: Characters of names of metrics, and of bearer tokens.
_LONGEST_METRIC: Final = 1000
_LONGEST_TOKEN: Final = 16_000


class NetworkSettings(Struct, frozen=True, kw_only=True):
    """What is to be measured."""

    #: URL of a Prometheus; empty: nothing is measured, and the costs are written by hand.
    address: str = ""
    token: str = ""
    metric: str = METRICS[0]
    #: Minutes between two calculations, and minutes that measurements are taken from.
    frequency: int = FREQUENCY
    time_range: int = TIME_RANGE


class PrometheusAccess(Struct, frozen=True):
    """The servers that the operator lets NetworkTopologies name, and who we are to one of them.

    A user who may write a NetworkTopology names its address. So no other server is asked, and files of the
    controller are for the operator's own Prometheus alone.
    """

    #: The operator's own Prometheus, to which ``access`` belongs; empty: there is none.
    address: str = ""
    access: Access = ANONYMOUS
    allowed: tuple[Address, ...] = ()

    def permitted(self, address: Address) -> Address | None:
        """What may be asked for ``address``, in the operator's spelling; None if it may not be."""
        own = read_address(self.address)
        return permitted(address, (*self.allowed, *([] if own is None else [own])))

    def access_to(self, settings: "NetworkSettings", *, operators: bool) -> Access:
        """How the provider of these settings is talked to; a token of the object comes before ours.

        ``operators``: the object is in a namespace of the operator's. Our credentials are for no other.
        """
        own, named = read_address(self.address), read_address(settings.address)
        ours = own is not None and named is not None and own.covers(named)
        access = self.access if ours else ANONYMOUS
        if not operators:
            access = Access(ca_file=access.ca_file, insecure=access.insecure)
        if not settings.token:
            return access
        return msgspec.structs.replace(access, token=settings.token, token_file="")


class SettingsReading(Struct, frozen=True):
    """``measured`` says whether a provider is asked for at all, usable or not."""

    settings: NetworkSettings
    measured: bool
    problems: tuple[Condition, ...] = ()


def read_settings(key: str, spec: Mapping[str, object]) -> SettingsReading:
    """The settings in the ``spec`` of the NetworkTopology ``key`` (``namespace/name``)."""
    reader = _Reader(key)
    given = spec.get("metricProvider")
    # The KEP's schema has a list of providers, its example and its Go type a single one.
    provider = given[0] if isinstance(given, list) and given else given
    frequency = reader.minutes("freqUpdate", spec.get("freqUpdate"), FREQUENCY, _MOST_FREQUENCY)
    span = reader.minutes("timeRangeInMinutes", spec.get("timeRangeInMinutes"), TIME_RANGE, _MOST_TIME_RANGE)
    if not provider:
        return SettingsReading(
            NetworkSettings(frequency=frequency, time_range=span), False, tuple(reader.problems)
        )
    address, token, metric = reader.provider(provider)
    settings = NetworkSettings(
        address=address, token=token, metric=metric, frequency=frequency, time_range=span
    )
    return SettingsReading(settings, True, tuple(reader.problems))


class _Reader:
    """Gathers what is wrong with the fields of one object."""

    def __init__(self, key: str) -> None:
        self._key = key
        self.problems: list[Condition] = []

    def minutes(self, field: str, value: object, default: int, most: int) -> int:
        """A whole number from 1 to ``most``."""
        if value is None:
            return default
        if isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= most:
            return value
        remedy = f"{default} is used; give a whole number of minutes from 1 to {most:,}"
        self._wrong(f"spec.{field}", f"{quoted(value)} is not a usable number of minutes", remedy)
        return default

    def provider(self, provider: object) -> tuple[str, str, str]:
        """Address, token and metric; the address is empty if there is no usable one."""
        field = "spec.metricProvider"
        values = provider if isinstance(provider, dict) else {}
        texts = {name: value for name, value in values.items() if isinstance(value, str)}
        kind, address = texts.get("type") or PROMETHEUS, texts.get("address", "")
        metric = texts.get("metric") or METRICS[0]
        if kind.casefold() != PROMETHEUS.casefold():
            remedy = f"use {PROMETHEUS}; until then no costs are calculated"
            self._wrong(f"{field}.type", f"{quoted(kind)} is not a provider of latencies", remedy)
            address = ""
        elif read_address(address) is None:
            remedy = "give a URL such as http://prometheus:9090; until then no costs are calculated"
            wrong = f"{quoted(address)} is not a URL" if address else "is missing"
            self._wrong(f"{field}.address", wrong, remedy)
            address = ""
        if len(metric) > _LONGEST_METRIC or not is_metric(metric):
            remedy = f"{METRICS[0]} is used; give the name of a metric, such as {METRICS[1]}"
            self._wrong(f"{field}.metric", f"{quoted(metric)} is not a name of a metric", remedy)
            metric = METRICS[0]
        token = texts.get("token", "")
        if len(token) > _LONGEST_TOKEN:
            remedy = f"none is used; give one of at most {_LONGEST_TOKEN:,} characters"
            self._wrong(f"{field}.token", f"has {len(token):,} characters", remedy)
            token = ""
        return address, token, metric

    def _wrong(self, field: str, message: str, remedy: str) -> None:
        self.problems.append(
            Condition(
                reason=Reason.INVALID_SPEC,
                object=f"NetworkTopology/{self._key}",
                field=field,
                message=message,
                remedy=remedy,
            )
        )

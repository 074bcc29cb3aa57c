"""Which source of measured traffic a plugin's arguments name, how it is reached, and how often it is read."""

import math
import re
from typing import Final

from msgspec import Struct, field

from closeby.measurements.addresses import TIMEOUT, Access, address_of, is_url
from closeby.measurements.bandwidth import BandwidthProvider, Unavailable
from closeby.measurements.promql import STALE_AFTER, WINDOW, Queries, is_label
from closeby.scheduling.services import Reading, Source

#: Seconds between two readings, and the age beyond which measurements count for nothing.
REFRESH: Final = 30.0
MAX_AGE: Final = 300.0
#: What may be asked for, in seconds.
_LEAST_REFRESH: Final = 1.0
_MOST_REFRESH: Final = 3600.0
_MOST_TIMEOUT: Final = 300.0


class TrafficArguments(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """``watcherAddress`` is a URL or a file; at most one source may be given. Times are in seconds."""

    watcher: str = field(name="watcherAddress", default="")
    prometheus: str = field(name="prometheusAddress", default="")
    #: PromQL in place of the default queries; all give bits/s.
    queries: Queries = field(name="prometheusQueries", default=Queries())
    #: The label of series that names their node.
    label: str = field(name="prometheusNodeLabel", default="")
    #: The interfaces that the default queries count, as a regular expression of whole names.
    devices: str = field(name="prometheusDevices", default="")
    #: How far queries look back, in seconds.
    window: float = field(name="windowSeconds", default=WINDOW)
    stale_after: float = field(name="staleAfterSeconds", default=STALE_AFTER)
    timeout: float = field(name="timeoutSeconds", default=TIMEOUT)
    refresh: float = field(name="refreshSeconds", default=REFRESH)
    max_age: float = field(name="maxAgeSeconds", default=MAX_AGE)
    token_file: str = field(name="tokenFile", default="")
    ca_file: str = field(name="caFile", default="")
    cert_file: str = field(name="certFile", default="")
    key_file: str = field(name="keyFile", default="")
    insecure: bool = field(name="insecureSkipVerify", default=False)

    def __post_init__(self) -> None:
        for name, value in (
            ("windowSeconds", self.window),
            ("staleAfterSeconds", self.stale_after),
            ("timeoutSeconds", self.timeout),
        ):
            if not (math.isfinite(value) and value > 0):
                raise ValueError(f"{name} must be a number above 0, not {value:g}")
        if self.timeout > _MOST_TIMEOUT:
            raise ValueError(f"timeoutSeconds must be {_MOST_TIMEOUT:g} or less, not {self.timeout:g}")
        if not _LEAST_REFRESH <= self.refresh <= _MOST_REFRESH:
            bounds = f"{_LEAST_REFRESH:g} and {_MOST_REFRESH:g}"
            raise ValueError(f"refreshSeconds must be between {bounds}, not {self.refresh:g}")
        if not (math.isfinite(self.max_age) and self.max_age >= self.refresh):
            raise ValueError(
                f"maxAgeSeconds must be refreshSeconds ({self.refresh:g}) or more, not {self.max_age:g}"
            )
        if self.prometheus and not is_url(self.prometheus):
            raise ValueError(
                f"prometheusAddress must begin with http:// or https://, not {self.prometheus!r}"
            )
        if self.watcher and self.prometheus:
            raise ValueError("watcherAddress and prometheusAddress are both given; keep one")
        if self.label and not is_label(self.label):
            raise ValueError(f"prometheusNodeLabel must be the name of a label, not {self.label!r}")
        if problem := _pattern_problem(self.devices):
            raise ValueError(
                f"prometheusDevices must be a regular expression, not {self.devices!r}: {problem}"
            )
        if self.key_file and not self.cert_file:
            raise ValueError("keyFile is given without certFile; name the certificate too")

    @property
    def address(self) -> str:
        """Where measurements come from, for any provider; empty when nothing is measured."""
        return self.watcher or self.prometheus

    @property
    def access(self) -> Access:
        """Who asks."""
        return Access(
            token_file=self.token_file,
            ca_file=self.ca_file,
            cert_file=self.cert_file,
            key_file=self.key_file,
            insecure=self.insecure,
        )

    def provider(self) -> BandwidthProvider | None:
        """Where measurements come from, None when nothing is measured."""
        # An HTTP client takes long to import, so only a source that is read has one.
        if self.watcher:
            from closeby.measurements.load_watcher import LoadWatcher

            return LoadWatcher(self.watcher, self.timeout, self.access)
        if self.prometheus:
            from closeby.measurements.prometheus import Prometheus

            return Prometheus(
                self.prometheus,
                self.queries.adapted(self.label, self.devices),
                self.stale_after,
                self.timeout,
                access=self.access,
                label=self.label,
                window=self.window,
            )
        return None

    def source(self) -> Source | None:
        """The same for a caller that reads it repeatedly."""
        provider = self.provider()
        if provider is None:
            return None

        def read() -> Reading | str:
            found = provider.read()
            if isinstance(found, Unavailable):
                return found.sentence()
            return Reading(values=found, measured=found.measured, empty=not found.hosts)

        return Source(
            name=address_of(self.address) if is_url(self.address) else self.address,
            argument="watcherAddress" if self.watcher else "prometheusAddress",
            read=read,
            every=self.refresh,
            max_age=self.max_age,
            fallback="nodes count as using what their pods request, without swings",
            warnings=self.access.warnings(self.address),
        )


def _pattern_problem(pattern: str) -> str | None:
    """What is wrong with a regular expression; Prometheus has the last word."""
    try:
        re.compile(pattern)
    except re.error as error:
        return str(error)
    return None

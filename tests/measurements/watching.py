"""Documents as the load-watcher writes them, given in bits/s."""

import json
from collections.abc import Mapping

SENT = "instance:node_network_transmit_bytes:rate:sum"
RECEIVED = "instance:node_network_receive_bytes:rate:sum"
DROPPED = "instance:node_network_receive_drop_excluding_lo:rate5m"

#: When the documents' window ends, seconds since the epoch.
MEASURED = 1_700_000_900
#: Their averages are over so many seconds.
WINDOW = 900


def metric(operator: str, bits: object, name: str = SENT, kind: str = "Bandwidth") -> dict[str, object]:
    """One metric; numbers are turned from bits/s into bytes/s x 100."""
    value = bits * 100 / 8 if isinstance(bits, int | float) and not isinstance(bits, bool) else bits
    return {"name": name, "type": kind, "operator": operator, "rollup": "15m", "value": value}


def document(hosts: Mapping[str, list[dict[str, object]]], end: float = MEASURED) -> str:
    """A ``/watcher`` answer; its window ends at ``end``."""
    return json.dumps(
        {
            "timestamp": end + 5,
            "window": {"duration": "15m", "start": end - WINDOW, "end": end},
            "source": "Prometheus",
            "data": {"NodeMetricsMap": {host: {"metrics": found} for host, found in hosts.items()}},
        }
    )


def links(drawing: str, end: float = MEASURED) -> str:
    """A document from lines such as ``n1: 700 600`` (average and deviation in Mbit/s)."""
    hosts = {}
    for line in drawing.strip().splitlines():
        host, _, figures = line.rpartition(": ")
        average, deviation = (float(figure) * 1e6 for figure in figures.split())
        hosts[host.strip()] = [metric("AVG", average), metric("STD", deviation)]
    return document(hosts, end)

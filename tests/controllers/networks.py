"""NetworkTopologies of three zones, the controller that measures them soon, and who answers it."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from typing import Any

from closeby.controllers.networks.controller import NetworkTopologyController, Timing
from closeby.controllers.networks.settings import PrometheusAccess
from closeby.measurements.addresses import Address
from tests.control_plane.api import Object
from tests.control_plane.nodes import node
from tests.controllers.at_work import Site
from tests.measurements.serving import handled_by

#: A minute of ``freqUpdate`` lasts a second; who answers may be kept from it by a busy machine.
QUICK = Timing(minute=1.0, retry=0.5, gathered=0.2, answer=60.0)
REGION, ZONE = "topology.kubernetes.io/region", "topology.kubernetes.io/zone"

#: Three zones of two nodes each; the third is far.
MEASURED = {
    ("x-1", "x-2"): 80.0,
    ("y-1", "y-2"): 90.0,
    ("z-1", "z-2"): 70.0,
    ("x-1", "y-1"): 200.0,
    ("y-2", "x-2"): 240.0,
    ("x-1", "z-1"): 900.0,
    ("y-1", "z-2"): 950.0,
}


def host(name: str, region: str = "eu", **labels: str) -> Object:
    zone = {REGION: region, ZONE: name.partition("-")[0]}
    return node(name, labels={**zone, **labels}, allocatable={"cpu": "4"})


HOSTS = [host(f"{zone}-{number}") for zone in "xyz" for number in (1, 2)]


class Neighbours(PrometheusAccess, frozen=True):
    """An operator allows all servers of this machine: no test knows their ports before they are there."""

    def permitted(self, address: Address) -> Address | None:
        return address if address.host == "127.0.0.1" else super().permitted(address)


def controller(
    it: Site, timing: Timing = QUICK, prometheus: PrometheusAccess | None = None
) -> NetworkTopologyController:
    return NetworkTopologyController(it.writer, it.say, timing=timing, prometheus=prometheus or Neighbours())


def spec(address: str, frequency: int = 1) -> str:
    return f"""
spec:
  metricProvider: {{type: Prometheus, address: "{address}"}}
  topologyAlgorithm: Dijkstra
  freqUpdate: {frequency}
  timeRangeInMinutes: 1
"""


def costs(status: Object) -> dict[tuple[str, str], int]:
    """Between nodes and between zones."""
    found = {}
    for weights in status.get("weights", ()):
        for one in weights.get("costList", ()):
            found[one["origin"], one["destination"]] = one["cost"]
        for area in weights.get("topologyList", ()):
            for origin in area["originList"]:
                for one in origin["costList"]:
                    found[origin["origin"], one["destination"]] = one["networkCost"]
    return found


def condition(status: Object, kind: str) -> Object:
    return next((one for one in status.get("conditions", ()) if one["type"] == kind), {})


def answering(*links: tuple[str, str, float]) -> Any:
    """Prometheus' answer with these latencies, as it was recorded."""
    result = [
        {"metric": {"origin": origin, "destination": destination}, "value": [1_700_000_000.5, str(value)]}
        for origin, destination, value in links
    ]
    body = json.dumps({"status": "success", "data": {"resultType": "vector", "result": result}})
    return lambda path: (200, body)


class Hearing:
    """A server that answers one latency, and what tokens it was shown."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.tokens: list[str | None] = []


@contextmanager
def hearing(origin: str, destination: str) -> Iterator[Hearing]:
    heard = Hearing("")
    _, body = answering((origin, destination, 5.0))("")

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            heard.tokens.append(self.headers.get("Authorization"))
            self.send_response(200)
            self.end_headers()
            self.wfile.write(body.encode())

        def log_message(self, format: str, *args: object) -> None:
            """Say nothing."""

    with handled_by(Handler) as address:
        heard.address = address
        yield heard

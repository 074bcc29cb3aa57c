"""What Prometheus is asked for the traffic of nodes.

Names of recorded metrics differ between monitoring bundles, so the default queries use what every
node_exporter offers, and each can be replaced. All must give bits/s.
"""

import re
from typing import Final

import msgspec
from msgspec import Struct, field

#: Links whose traffic passes a physical one too (bonds, bridges, VLANs, tunnels, pods' and virtual machines'
#: ends), and loopback. The clouds' networks call pods' ends by a hash: eni, gke or azv and eleven digits.
_NOT_PHYSICAL = (
    "lo|bond.*|team.*|br.*|docker.*|podman.*|virbr.*|vmbr.*|veth.*|vnet.*|tap.*|tun.*|macv.*|ipvl.*|vlan.*|"
    "cali.*|cilium.*|lxc.*|cni.*|flannel.*|antrea-.*|weave.*|vxlan.*|geneve.*|genev_.*|gre.*|erspan.*|sit.*|"
    "ip6tnl.*|tunl.*|wg.*|ifb.*|kube-.*|ovn.*|ovs-.*|nodelocaldns|dummy.*|(eni|gke|azv)[0-9a-f]{11}|.*[.].*"
)
_DEVICES = f'device!~"{_NOT_PHYSICAL}"'
_BY = "by (node, instance)"


def _rate(metric: str) -> str:
    # An exporter that two jobs scrape, or that was recreated, is there twice with the same traffic.
    return f"max {_BY} (sum without (device) (8 * rate({metric}{{{_DEVICES}}}[5m])))"


_SENT = _rate("node_network_transmit_bytes_total")
_RECEIVED = _rate("node_network_receive_bytes_total")
_WINDOW = "[15m:1m]"

#: Seconds that the default queries look back.
WINDOW = 900.0

#: Labels that name a host, the first one that is there; what Prometheus takes as the name of one.
HOST_LABELS = ("node", "instance")
_LABEL_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")

#: Seconds since the last scrape after which a host's measurement no longer counts.
STALE_AFTER = 300.0


class Queries(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """PromQL that gives bits/s per host; an empty one is not asked. By default over the last 15 minutes."""

    transmit_average: str = field(name="transmitAverage", default=f"avg_over_time({_SENT}{_WINDOW})")
    receive_average: str = field(name="receiveAverage", default=f"avg_over_time({_RECEIVED}{_WINDOW})")
    transmit_deviation: str = field(name="transmitDeviation", default=f"stddev_over_time({_SENT}{_WINDOW})")
    receive_deviation: str = field(name="receiveDeviation", default=f"stddev_over_time({_RECEIVED}{_WINDOW})")
    #: When each host was last scraped, in seconds since the epoch; empty: staleness is not looked at.
    last_sample: str = field(
        name="lastSample",
        default="max by (node, instance) (timestamp(node_network_transmit_bytes_total))",
    )

    def adapted(self, label: str = "", devices: str = "") -> "Queries":
        """Those of the default ones that are among these sum up by this label, and over these interfaces.

        ``devices`` is a regular expression of whole names; empty ones change nothing.
        """
        by = f"by ({label})" if label else _BY
        # JSON's escapes of quotes and backslashes are PromQL's.
        chosen = f"device=~{msgspec.json.encode(devices).decode()}" if devices else _DEVICES
        own, default = msgspec.structs.asdict(self), msgspec.structs.asdict(Queries())
        changed = {
            name: text.replace(_BY, by).replace(_DEVICES, chosen) if text == default[name] else text
            for name, text in own.items()
        }
        return Queries(**changed)


def is_label(name: str) -> bool:
    """Whether Prometheus takes this as the name of a label."""
    return _LABEL_NAME.fullmatch(name) is not None

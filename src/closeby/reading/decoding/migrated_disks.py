"""What CSI drivers call the disks that Kubernetes attached itself, before these drivers did.

The names are those of Kubernetes' translation (its csi-translation-lib), so that a disk is one in all pods. A
disk that is not translated has none, and is counted nowhere.
"""

from collections.abc import Mapping
from typing import Final
from urllib.parse import urlsplit

from closeby.objects.labels import OLD_ZONE, ZONE

#: Labels of a volume that name its zone, the older one first: that one counts where both are there.
_ZONE_LABELS: Final = (OLD_ZONE, ZONE)
#: Between the zones of a disk that is in several.
_AND: Final = "__"
_ANYWHERE: Final = "UNSPECIFIED"


def ebs_handle(volume: str) -> str:
    """``aws://zone/vol-1`` is ``vol-1``; empty for what is no volume."""
    if not volume.startswith("aws://"):
        return volume
    try:
        found = urlsplit(volume).path.strip("/")
    except ValueError:
        return ""
    return found if found.startswith("vol-") and "/" not in found else ""


def azure_handle(uri: str | None, kind: str | None) -> str:
    """The disk's URI; empty for a disk that no driver attaches. Without a kind it is not a managed one."""
    return (uri or "") if (kind or "").lower() == "managed" else ""


def gce_handle(name: str, labels: Mapping[str, str]) -> str:
    """The disk in the zone or the zones of its volume's labels; empty where these make no sense."""
    said = next((labels[key] for key in _ZONE_LABELS if labels.get(key)), "")
    zones = said.split(_AND)
    if len(zones) == 1:
        return f"projects/{_ANYWHERE}/zones/{said or _ANYWHERE}/disks/{name}"
    if any(zone.count("-") != 2 for zone in zones):
        return ""
    regions = {zone.rpartition("-")[0] for zone in zones}
    return f"projects/{_ANYWHERE}/regions/{regions.pop()}/disks/{name}" if len(regions) == 1 else ""

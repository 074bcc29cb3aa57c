"""Networks of nodes in zones that are known to be so far apart: in namespaces of the kernel, or made up.

zone x: x-1 --+                                +-- z-1
              +- bridge -- core -- bridge -----+         each zone's link to the core has a delay; where the
zone y: y-1 --+      \\      |                  +-- z-2    kernel has netem it delays packets there, else the
        y-2 --+- bridge ----+                            agents add what it would have been
"""

import contextlib
import secrets
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pytest
import yaml

from tests.agents.programs import free_port

#: Reserved for measurements of networks (RFC 2544).
SUBNET = "198.18.77"
PROBES, METRICS = 9471, 9472


class Ground:
    """Where nodes are, and how far zones are from the core in milliseconds, there and back."""

    def __init__(self, folder: Path, nodes: Sequence[str]) -> None:
        self.folder = folder
        self.nodes = nodes
        self.zones = sorted({name.partition("-")[0] for name in nodes})
        #: What an agent is run in, where it answers, and where it tells metrics.
        self.inside: dict[str, Sequence[str]] = {}
        self.probes: dict[str, tuple[str, int]] = {}
        self.metrics: dict[str, str] = {}

    def arguments(self, name: str) -> list[object]:
        """What the agent of a node is told besides."""
        return ["--delays", self._delays(name.partition("-")[0])]

    def far(self, delays: Mapping[str, float]) -> None:
        """From now on each zone is so far from the core."""
        for zone in self.zones:
            others = {other: delays[zone] + delays[other] for other in self.zones if other != zone}
            path = self._delays(zone)
            new = path.with_suffix(".new")
            new.write_text(yaml.safe_dump(others))
            new.rename(path)

    def _delays(self, zone: str) -> Path:
        return self.folder / f"delays-{zone}.yaml"


class _Netem(Ground):
    """The kernel delays packets, half on the way to a zone and half on the way from it."""

    links: Mapping[str, Sequence[str]] = {}

    def arguments(self, name: str) -> list[object]:
        return []

    def far(self, delays: Mapping[str, float]) -> None:
        for zone, ends in self.links.items():
            for end in ends:
                amount = f"{delays[zone] / 2:g}ms"
                run("tc", "qdisc", "replace", "dev", end, "root", "netem", "delay", amount)


def on_loopback(folder: Path, nodes: Sequence[str]) -> Ground:
    """All on this machine's loopback."""
    ground = Ground(folder, nodes)
    for name in nodes:
        ground.inside[name] = ()
        ground.probes[name] = "127.0.0.1", free_port()
        ground.metrics[name] = f"127.0.0.1:{free_port()}"
    return ground


@contextlib.contextmanager
def in_namespaces(folder: Path, nodes: Sequence[str], *, netem: bool) -> Iterator[Ground]:
    """Each in a namespace of its own, inside the context; skips where the kernel does not allow it."""
    if missing := [name for name in ("ip", "tc") if shutil.which(name) is None]:
        pytest.skip(f"there is no {missing[0]}: install iproute2")
    # Names of interfaces have at most 15 characters.
    mark = f"cb{secrets.token_hex(2)}"
    made: list[Sequence[str]] = []
    ground = _Netem(folder, nodes) if netem else Ground(folder, nodes)
    try:
        links = _wired(ground, mark, made)
        if isinstance(ground, _Netem):
            ground.links = links
            first = next(iter(links.values()))[0]
            if said := failure("tc", "qdisc", "replace", "dev", first, "root", "netem", "delay", "1ms"):
                pytest.skip(f"this kernel has no netem: tc says {said!r}")
        yield ground
    finally:
        for undo in reversed(made):
            failure(*undo)


def _wired(ground: Ground, mark: str, made: list[Sequence[str]]) -> Mapping[str, Sequence[str]]:
    """Makes all of it; ``made`` says how it is undone. Both ends of each zone's link."""
    core = f"{mark}c"
    if said := failure("ip", "link", "add", core, "type", "bridge"):
        pytest.skip(f"namespaces with networks of their own are not permitted here: ip says {said!r}")
    made.append(("ip", "link", "del", core))
    run("ip", "address", "add", f"{SUBNET}.1/24", "dev", core)
    run("ip", "link", "set", core, "up")
    links = {}
    for zone in ground.zones:
        bridge, up, down = f"{mark}{zone}", f"{mark}{zone}u", f"{mark}{zone}d"
        run("ip", "link", "add", bridge, "type", "bridge")
        made.append(("ip", "link", "del", bridge))
        run("ip", "link", "add", up, "type", "veth", "peer", "name", down)
        made.append(("ip", "link", "del", up))
        for end, master in ((up, bridge), (down, core)):
            run("ip", "link", "set", end, "master", master, "up")
        run("ip", "link", "set", bridge, "up")
        links[zone] = (up, down)
    for number, name in enumerate(ground.nodes, 10):
        zone, space, end = name.partition("-")[0], f"{mark}{name}", f"{mark}n{number}"
        if said := failure("ip", "netns", "add", space):
            pytest.skip(f"namespaces are not permitted here: ip says {said!r}")
        made.append(("ip", "netns", "del", space))
        run("ip", "link", "add", end, "type", "veth", "peer", "name", "eth0", "netns", space)
        run("ip", "link", "set", end, "master", f"{mark}{zone}", "up")
        address = f"{SUBNET}.{number}"
        run("ip", "-n", space, "address", "add", f"{address}/24", "dev", "eth0")
        for interface in ("lo", "eth0"):
            run("ip", "-n", space, "link", "set", interface, "up")
        ground.inside[name] = ("ip", "netns", "exec", space)
        ground.probes[name] = address, PROBES
        ground.metrics[name] = f"{address}:{METRICS}"
    return links


def run(*command: str) -> None:
    said = failure(*command)
    assert not said, f"{' '.join(command)}: {said}"


def failure(*command: str) -> str:
    """What a command says when it fails; empty when it does not."""
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return "" if done.returncode == 0 else done.stderr.strip() or f"exit code {done.returncode}"

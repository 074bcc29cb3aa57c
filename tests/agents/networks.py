"""Networks of nodes in zones that are known to be so far apart: in namespaces of the kernel, or made up.

zone x: x-1 --+                                +-- z-1
              +- bridge -- core -- bridge -----+         each zone's link to the core has a delay, made by
zone y: y-1 --+      \\      |                  +-- z-2    the kernel's netem or by a slow wire; on loopback
        y-2 --+- bridge ----+                            the agents add what it would have been
"""

import abc
import contextlib
import secrets
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pytest
import yaml

from tests.agents.programs import free_port
from tests.agents.slow_wire import SlowWire

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


class _Linked(Ground, abc.ABC):
    """The network itself is slow: half on the way to a zone's nodes and half on the way from them."""

    def arguments(self, name: str) -> list[object]:
        return []

    def far(self, delays: Mapping[str, float]) -> None:
        for zone in self.zones:
            self.slow_down(zone, delays[zone] / 2)

    @abc.abstractmethod
    def link(self, zone: str, up: str, down: str, stack: contextlib.ExitStack) -> None:
        """Makes a zone's link with these ends, until the stack is left; skips where that is not possible."""

    @abc.abstractmethod
    def slow_down(self, zone: str, milliseconds: float) -> None:
        """What a frame takes on a zone's link from now on, one way."""


class _Netem(_Linked):
    def __init__(self, folder: Path, nodes: Sequence[str]) -> None:
        super().__init__(folder, nodes)
        self._ends: dict[str, tuple[str, str]] = {}

    def link(self, zone: str, up: str, down: str, stack: contextlib.ExitStack) -> None:
        run("ip", "link", "add", up, "type", "veth", "peer", "name", down)
        stack.callback(failure, "ip", "link", "del", up)
        if said := failure("tc", "qdisc", "replace", "dev", up, "root", "netem", "delay", "1ms"):
            pytest.skip(f"this kernel has no netem: tc says {said!r}")
        self._ends[zone] = up, down

    def slow_down(self, zone: str, milliseconds: float) -> None:
        for end in self._ends[zone]:
            run("tc", "qdisc", "replace", "dev", end, "root", "netem", "delay", f"{milliseconds:g}ms")


class _SlowWires(_Linked):
    def __init__(self, folder: Path, nodes: Sequence[str]) -> None:
        super().__init__(folder, nodes)
        self._wires: dict[str, SlowWire] = {}

    def link(self, zone: str, up: str, down: str, stack: contextlib.ExitStack) -> None:
        try:
            self._wires[zone] = wire = SlowWire(up, down)
        except OSError as error:
            pytest.skip(f"TAP devices are not permitted here: {error}")
        stack.callback(wire.close)

    def slow_down(self, zone: str, milliseconds: float) -> None:
        self._wires[zone].delay(milliseconds)


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
    """Each in a namespace of its own, inside the context; skips where the kernel does not allow it.

    Zones' links are delayed by netem, or else are slow wires.
    """
    if missing := [name for name in ("ip", "tc") if shutil.which(name) is None]:
        pytest.skip(f"there is no {missing[0]}: install iproute2")
    # Names of interfaces have at most 15 characters.
    mark = f"cb{secrets.token_hex(2)}"
    ground = _Netem(folder, nodes) if netem else _SlowWires(folder, nodes)
    with contextlib.ExitStack() as stack:
        _wire(ground, mark, stack)
        for number, name in enumerate(nodes, 10):
            _settle(ground, mark, name, number, stack)
        yield ground


def _wire(ground: _Linked, mark: str, stack: contextlib.ExitStack) -> None:
    """A bridge in the middle, one for each zone, and the links between."""
    core = f"{mark}c"
    if said := failure("ip", "link", "add", core, "type", "bridge"):
        pytest.skip(f"namespaces with networks of their own are not permitted here: ip says {said!r}")
    stack.callback(failure, "ip", "link", "del", core)
    run("ip", "address", "add", f"{SUBNET}.1/24", "dev", core)
    run("ip", "link", "set", core, "up")
    for zone in ground.zones:
        bridge, up, down = f"{mark}{zone}", f"{mark}{zone}u", f"{mark}{zone}d"
        run("ip", "link", "add", bridge, "type", "bridge")
        stack.callback(failure, "ip", "link", "del", bridge)
        ground.link(zone, up, down, stack)
        for end, master in ((up, bridge), (down, core)):
            run("ip", "link", "set", end, "master", master, "up")
        run("ip", "link", "set", bridge, "up")


def _settle(ground: Ground, mark: str, name: str, number: int, stack: contextlib.ExitStack) -> None:
    """A node's namespace, and its way to the bridge of its zone."""
    zone, space, end = name.partition("-")[0], f"{mark}{name}", f"{mark}n{number}"
    if said := failure("ip", "netns", "add", space):
        pytest.skip(f"namespaces are not permitted here: ip says {said!r}")
    stack.callback(failure, "ip", "netns", "del", space)
    run("ip", "link", "add", end, "type", "veth", "peer", "name", "eth0", "netns", space)
    run("ip", "link", "set", end, "master", f"{mark}{zone}", "up")
    address = f"{SUBNET}.{number}"
    run("ip", "-n", space, "address", "add", f"{address}/24", "dev", "eth0")
    for interface in ("lo", "eth0"):
        run("ip", "-n", space, "link", "set", interface, "up")
    ground.inside[name] = ("ip", "netns", "exec", space)
    ground.probes[name] = address, PROBES
    ground.metrics[name] = f"{address}:{METRICS}"


def run(*command: str) -> None:
    said = failure(*command)
    assert not said, f"{' '.join(command)}: {said}"


def failure(*command: str) -> str:
    """What a command says when it fails; empty when it does not."""
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return "" if done.returncode == 0 else done.stderr.strip() or f"exit code {done.returncode}"

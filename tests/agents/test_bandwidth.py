"""What an interface carries, as the kernel says, and the patch that tells it to the cluster."""

import asyncio
import copy
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from closeby.agents.bandwidth.advertising import AdvertisedNode, Advertiser, Operation, amount, patch_of
from closeby.agents.bandwidth.interfaces import Speed, default_interface, parse_bandwidth, speed_of
from closeby.objects.reasons import Problem
from closeby.reading.decoding.bandwidth import BANDWIDTH
from tests.agents.talking import Lines
from tests.kube.live import eventually

HEAD = "Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT\n"


def route(interface: str, metric: int = 0, destination: str = "00000000", mask: str = "00000000") -> str:
    return f"{interface}\t{destination}\t010200C0\t0003\t0\t0\t{metric}\t{mask}\t0\t0\t0\n"


class Machine:
    """The parts of /proc and /sys that are looked at."""

    def __init__(self, root: Path) -> None:
        self.root = root
        (root / "proc" / "net").mkdir(parents=True)
        (root / "sys" / "class" / "net").mkdir(parents=True)

    def interface(self, name: str, speed: str | None, *, of: str = "device") -> None:
        """``of`` is what it is on: hardware, another interface, or nothing."""
        folder = self.root / "sys" / "class" / "net" / name
        folder.mkdir()
        if speed is not None:
            (folder / "speed").write_text(speed)
        if of:
            (folder / of).symlink_to(self.root)

    def folder(self, name: str) -> Path:
        return self.root / "sys" / "class" / "net" / name

    def over(self, name: str, lower: str) -> None:
        (self.folder(name) / f"lower_{lower}").symlink_to(self.folder(lower))

    def routes(self, *lines: str) -> None:
        (self.root / "proc" / "net" / "route").write_text(HEAD + "".join(lines))


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def test_the_interface_of_the_default_route(machine: Machine) -> None:
    machine.interface("eth0", "25000\n")
    machine.interface("eth1", "1000\n")
    machine.routes(route("eth1", 200), route("eth1", 0, "000200C0", "00FFFFFF"), route("eth0", 100))
    assert speed_of(None, machine.root) == Speed("eth0", 25 * 10**9)
    assert speed_of("eth1", machine.root) == Speed("eth1", 10**9)


def test_a_machine_with_ipv6_alone(machine: Machine) -> None:
    zeros, gateway = "0" * 32, "fd" + "0" * 29 + "1"
    machine.routes()
    (machine.root / "proc" / "net" / "ipv6_route").write_text(
        f"{gateway} 40 {zeros} 00 {zeros} 00000100 00000001 00000000 00000001     eth7\n"
        f"{zeros} 00 {zeros} 00 {gateway} 00000400 00000002 00000000 00000003     eth0\n"
        f"{zeros} 00 {zeros} 00 {zeros} ffffffff 00000001 00000000 00200200       lo\n"
    )
    assert default_interface(machine.root) == "eth0"


@pytest.mark.parametrize("speed", ["-1\n", "0\n", "4294967295\n", "fast\n", "", None])
def test_a_speed_that_the_kernel_does_not_know(machine: Machine, speed: str | None) -> None:
    """Neither a negative one nor its other ways to say so are ever told."""
    machine.interface("eth0", speed)
    machine.routes(route("eth0"))
    found = speed_of(None, machine.root)
    assert isinstance(found, Problem)
    assert "eth0" in str(found) and "--bandwidth 10G" in str(found)


def test_a_virtual_interface_makes_its_speed_up(machine: Machine) -> None:
    """A pod's own end of its network always says 10 Gbit/s; a bond or a VLAN says what it is on."""
    machine.interface("eth0", "10000\n", of="")
    machine.interface("eth1", "25000\n")
    machine.interface("eth2", "25000\n")
    machine.interface("bond0", "50000\n", of="lower_eth1")
    machine.over("bond0", "eth2")
    assert isinstance(speed_of("eth0", machine.root), Problem)
    assert speed_of("bond0", machine.root) == Speed("bond0", 50 * 10**9)


def test_a_bridge_is_as_fast_as_its_cable_whatever_the_ends_of_pods_claim(machine: Machine) -> None:
    """br0.7 over br0 over eth0 and veth1; the kernel gives a bridge its fastest port's speed."""
    machine.interface("eth0", "1000\n")
    machine.interface("veth1", "10000\n", of="peer")
    machine.interface("br0", "10000\n", of="lower_veth1")
    (machine.folder("br0") / "bridge").mkdir()
    machine.interface("br0.7", "10000\n", of="lower_br0")
    for name in ("br0", "br0.7"):
        assert isinstance(speed_of(name, machine.root), Problem)
    machine.over("br0", "eth0")
    for name in ("br0", "br0.7"):
        assert speed_of(name, machine.root) == Speed(name, 10**9)


def test_no_interface_at_all(machine: Machine) -> None:
    for asked in (None, "eth0", "../../etc", ""):
        found = speed_of(asked, machine.root)
        assert isinstance(found, Problem) and found.reason == "UnknownBandwidth"


def test_this_machine() -> None:
    found = speed_of(None)
    assert isinstance(found, Problem) or found.bits >= 10**6


@pytest.mark.parametrize(
    ("text", "bits"), [("10G", 10**10), ("2500M", 25 * 10**8), ("1e9", 10**9), ("1Gi", 2**30)]
)
def test_a_bandwidth_that_is_given(text: str, bits: int) -> None:
    assert parse_bandwidth(text) == bits


@pytest.mark.parametrize("text", ["0", "-1", "-10G", "ten", "", "10Gbit", "1e30"])
def test_a_bandwidth_that_is_none(text: str) -> None:
    found = parse_bandwidth(text)
    assert isinstance(found, Problem) and "10G" in str(found)


# The patch


def applied(status: dict[str, Any], uid: str, operations: Sequence[Operation]) -> dict[str, Any]:
    """RFC 6902, as far as it is used."""
    found = {"metadata": {"uid": uid}, "status": copy.deepcopy(status)}
    for one in operations:
        *path, last = (part.replace("~1", "/").replace("~0", "~") for part in str(one["path"]).split("/")[1:])
        target: Any = found
        for part in path:
            target = target[part]
        if one["op"] == "test":
            # For the API server null is what is not there.
            assert target.get(last) == one["value"]
        else:
            assert one["op"] == "add"
            target[last] = one["value"]
    status = found["status"]
    return status


def now(status: dict[str, Any], uid: str = "u") -> AdvertisedNode:
    return AdvertisedNode(
        uid=uid,
        capacity=status.get("capacity", {}).get(BANDWIDTH),
        allocatable=status.get("allocatable", {}).get(BANDWIDTH),
        has_capacity="capacity" in status,
        has_allocatable="allocatable" in status,
    )


def test_the_patch_of_the_kep() -> None:
    status = {"capacity": {"cpu": "8"}, "allocatable": {"cpu": "7"}}
    assert patch_of(now(status), 10**10) == [
        {"op": "test", "path": "/metadata/uid", "value": "u"},
        {"op": "add", "path": "/status/capacity/network.aware.com~1bandwidth", "value": "10000000000"},
        {"op": "add", "path": "/status/allocatable/network.aware.com~1bandwidth", "value": "10000000000"},
    ]


QUANTITIES = st.none() | st.sampled_from(["10G", "10000000000", "1e10", "0", "5M", "-3", "much"])
STATUSES = st.fixed_dictionaries(
    {},
    optional={
        part: st.fixed_dictionaries({"cpu": st.just("8")}, optional={BANDWIDTH: QUANTITIES.filter(bool)})
        for part in ("capacity", "allocatable")
    },
)


@given(STATUSES, st.integers(1, 10**14))
def test_a_patch_makes_the_node_say_so_and_touches_nothing_else(status: dict[str, Any], bits: int) -> None:
    after = applied(status, "u", patch_of(now(status), bits))
    for part in ("capacity", "allocatable"):
        assert amount(after[part][BANDWIDTH]) == bits
        before = {key: value for key, value in status.get(part, {}).items() if key != BANDWIDTH}
        assert {key: value for key, value in after[part].items() if key != BANDWIDTH} == before
    assert patch_of(now(after), bits) == []


@pytest.mark.parametrize("part", ["capacity", "allocatable"])
def test_a_map_that_another_writer_made_meanwhile_is_not_replaced(part: str) -> None:
    operations = patch_of(now({}), 10**10)
    with pytest.raises(AssertionError):
        applied({part: {"cpu": "8"}}, "u", operations)


def test_what_says_the_same_in_another_way_is_left_alone() -> None:
    """The API server writes 10G for 10000000000."""
    status = {"capacity": {BANDWIDTH: "10G"}, "allocatable": {BANDWIDTH: "10G"}}
    assert patch_of(now(status), 10**10) == []


class Cluster:
    """Takes patches of one node, or refuses them."""

    def __init__(self, speed: Speed | Problem) -> None:
        self.speed = speed
        self.status: dict[str, Any] = {"capacity": {"cpu": "8"}}
        self.uid = "u"
        self.patches = 0
        self.refuses: Problem | None = None
        self.lines = Lines()
        self.undone = False
        self.advertiser = Advertiser(
            lambda: self.speed, self._patch, self.lines.say, every=0.05, again=0.02, pause=0.05
        )

    async def _patch(self, operations: Sequence[Operation]) -> Problem | None:
        self.patches += 1
        if self.refuses is not None:
            return self.refuses
        status = applied(self.status, self.uid, operations)
        self.status = {} if self.undone else status
        self.tell()
        return None

    def tell(self) -> None:
        self.advertiser.heard(now(self.status, self.uid))

    def heard(self) -> int | None:
        """What the agent has heard that the node says."""
        return self.advertiser.advertised

    def says(self) -> int | None:
        return amount(self.status.get("allocatable", {}).get(BANDWIDTH))


def test_a_node_is_patched_again_when_it_was_recreated_or_changed() -> None:
    async def run() -> None:
        cluster = Cluster(Speed("eth0", 10**10))
        task = asyncio.create_task(cluster.advertiser.run())
        await asyncio.sleep(0.1)
        assert cluster.patches == 0
        cluster.tell()
        await until(lambda: cluster.says() == 10**10)
        await asyncio.sleep(0.2)
        assert cluster.patches == 1
        assert cluster.heard() == 10**10
        # A kubelet that registers again sets the resources of its node to nothing.
        cluster.status = {"capacity": {BANDWIDTH: "0"}, "allocatable": {BANDWIDTH: "0"}}
        cluster.tell()
        await until(lambda: cluster.says() == 10**10)
        cluster.advertiser.heard(None)
        assert cluster.heard() is None
        cluster.uid, cluster.status = "v", {}
        cluster.tell()
        await until(lambda: cluster.says() == 10**10)
        # The cable is plugged into a faster switch.
        cluster.speed = Speed("eth0", 25 * 10**9)
        await until(lambda: cluster.says() == 25 * 10**9)
        assert cluster.patches == 4
        task.cancel()

    asyncio.run(run())


def test_what_is_not_known_removes_nothing() -> None:
    async def run() -> None:
        cluster = Cluster(Problem("the kernel does not know the speed of eth0", reason="UnknownBandwidth"))
        cluster.status = {"capacity": {BANDWIDTH: "5G"}, "allocatable": {BANDWIDTH: "5G"}}
        task = asyncio.create_task(cluster.advertiser.run())
        cluster.tell()
        await asyncio.sleep(0.3)
        assert (cluster.patches, cluster.says()) == (0, 5 * 10**9)
        assert len(cluster.lines.said("no bandwidth is advertised")) == 1
        cluster.speed = Speed("eth0", 10**9)
        await until(lambda: cluster.says() == 10**9)
        task.cancel()

    asyncio.run(run())


def test_what_the_server_refuses_is_tried_again() -> None:
    async def run() -> None:
        cluster = Cluster(Speed("eth0", 10**9))
        cluster.refuses = Problem("no", reason="Forbidden")
        task = asyncio.create_task(cluster.advertiser.run())
        cluster.tell()
        await until(lambda: cluster.patches >= 3)
        assert len(cluster.lines.said("bandwidth can't be advertised")) == 1
        cluster.refuses = None
        await until(lambda: cluster.says() == 10**9)
        task.cancel()

    asyncio.run(run())


def test_who_undoes_it_each_time_is_not_answered_as_fast_as_can_be() -> None:
    async def run() -> None:
        cluster = Cluster(Speed("eth0", 10**9))
        cluster.undone = True
        task = asyncio.create_task(cluster.advertiser.run())
        began = time.monotonic()
        cluster.tell()
        await until(lambda: cluster.patches >= 5)
        # Each comes 0.05 s after the one before.
        assert cluster.patches <= 1 + (time.monotonic() - began) / 0.05
        cluster.undone = False
        await until(lambda: cluster.says() == 10**9)
        task.cancel()

    asyncio.run(run())


async def until(met: Any) -> None:
    async def so() -> bool:
        return bool(met())

    await eventually(so, 60)

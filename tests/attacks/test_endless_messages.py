"""Attack: a tenant writes objects whose mistakes take as much room as the API server allows, a stranger sends
garbage to the metrics port. Both hope that closeby repeats it: into its log, into conditions that the server
refuses for their size, onto the terminal of whoever reads them.

What must hold: every line of the log, every message of a condition and every Event has a bounded length and
names a bounded number of things, with the number of the others; all of it is printable; a good tenant's gang
is placed meanwhile.
"""

import asyncio
import re
import secrets
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from closeby.objects.groups import PodGroup
from closeby.objects.reasons import Condition
from closeby.reading.dialects.task_topology import read_rules
from tests.attacks.assaults import BOMBS
from tests.control_plane.api import Object
from tests.control_plane.cluster import ControlPlane
from tests.kube.live_world import World, behind_proxy, group_of, host, replica, until, until_said

#: What the longest line of a log, and the longest message of a condition, may take (bytes).
LINE, MESSAGE = 20_000, 4096

#: What closeby does not read, and must not be broken.
WISHES = {f"kueue.x-k8s.io/podset-required-{i}-topology": "x" * 50 for i in range(2000)}


def judged(found: tuple[Condition, ...]) -> None:
    """A bounded number of bounded texts."""
    assert 0 < len(found) <= 20
    for one in found:
        assert one.located().isprintable()
        assert len(one.located().encode()) < 3000


@pytest.mark.parametrize("bomb", BOMBS)
def test_a_gang_whose_annotations_are_bombs(bomb: str) -> None:
    """The tenant writes a quarter of a megabyte about roles. No time or memory grows with its square."""
    group = PodGroup(namespace="a", name="g", min_member=1, annotations=BOMBS[bomb])
    judged(read_rules(group, [f"role-{i}" for i in range(500)]).conditions)


@asynccontextmanager
async def scheduler(
    control_plane: ControlPlane, namespace: str, folder: Path, *arguments: str
) -> AsyncIterator[World]:
    """A scheduler as a process of its own, with a log of its own."""
    async with behind_proxy(control_plane, namespace, host("n1"), host("n2", "r2")) as (it, proxy):
        arguments = ("--no-leader-elect", *(arguments or ("--metrics-address", "off")))
        async with replica(it, proxy, folder, *arguments):
            yield it


def log_lines(folder: Path) -> list[str]:
    (log,) = folder.glob("log-*.txt")
    return log.read_text(errors="surrogateescape").split("\n")


def the_log_is_sound(folder: Path) -> None:
    for line in log_lines(folder)[:-1]:
        assert re.match(r"time=\S+ level=(info|warning) msg=", line), line[:300]
        assert line.isprintable()
        assert len(line.encode()) <= LINE


def bombs() -> Iterator[tuple[str, Object]]:
    """Annotations that the API server takes, by the name of a gang."""
    for i, (kind, annotations) in enumerate({**BOMBS, "wishes": WISHES}.items()):
        yield f"bomb{i}-{kind.split()[0]}", annotations


@pytest.mark.slow
def test_bombs_on_a_real_api_server(control_plane: ControlPlane, namespace: str, tmp_path: Path) -> None:
    """A tenant's gangs carry all bombs at once; its pods carry them too, and gates without end."""

    async def run() -> None:
        async with scheduler(control_plane, namespace, tmp_path) as it:
            gates = [{"name": f"example.com/{'g' * 50}-{i}"} for i in range(2000)]
            for name, annotations in bombs():
                await it.declare_group(name, {"minMember": 1}, annotations=annotations)
                pod = it.pod(f"{name}-0", gang=name)
                pod["metadata"]["annotations"] = annotations
                pod["metadata"]["labels"]["volcano.sh/task-spec"] = "main"
                await it.create(pod)
            values = [f"v{i}-{'x' * 50}" for i in range(10_000)]
            terms = [{"matchExpressions": [{"key": "k", "operator": "In", "values": values}]}]
            affinity = {
                "nodeAffinity": {
                    "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}
                }
            }
            await it.create(it.pod("gated", schedulingGates=gates), it.pod("choosy", affinity=affinity))
            await it.gang("good", 4, required="rack")

            async def placed() -> bool:
                return sum(name.startswith("good-") for name in await it.placed()) == 4

            await until(placed)
            assert len((await it.refusal("choosy")).encode()) <= MESSAGE
            for name, annotations in bombs():
                if any(key.startswith("kueue") for key in annotations):
                    await until_said(it, name, "Unsupported", "Valid")
                else:
                    await until_said(it, name, "InvalidSpec", "Valid")
                for one in (await group_of(it, name))["status"]["conditions"]:
                    assert len(one["message"].encode()) <= MESSAGE
                    assert one["message"].isprintable()
            for event in (await it.api.get(f"/apis/events.k8s.io/v1/namespaces/{namespace}/events"))["items"]:
                assert event["note"].isprintable()
            await until_said(it, "good", "Placed")

    asyncio.run(run())
    the_log_is_sound(tmp_path)


GARBAGE = [
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + secrets.token_bytes(500),
    b"GET / HTTP/9.9\r\n\r\n",
    b"GET /metrics HTTP/1.1\r\n\r\n",
    b"GET /metrics HTTP/1.1\r\nHost: x\r\nContent-Length: -5\r\n\r\n",
    b"GET http://[::1/metrics HTTP/1.1\r\n\r\n",
    b"GET /" + b"a" * 100_000 + b" HTTP/1.1\r\n\r\n",
    b"POST /metrics HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
    b"GET /metrics HTTP/1.1\r\nHost: x\r\nHost: y\r\n\r\n",
    b"\r\n\r\n\x1b[2J\r\n",
]


def test_garbage_on_the_metrics_port(control_plane: ControlPlane, namespace: str, tmp_path: Path) -> None:
    """A stranger who reaches the port sends what is not HTTP. That is answered and not worth a traceback."""

    async def run() -> None:
        async with scheduler(control_plane, namespace, tmp_path, "--metrics-address", "127.0.0.1:0") as it:
            ports: list[int] = []

            async def serving() -> bool:
                said = "\n".join(log_lines(tmp_path))
                ports.extend(int(one) for one in re.findall(r'msg="serving metrics".* port=(\d+)', said))
                return bool(ports)

            await until(serving)
            for garbage in GARBAGE:
                reader, writer = await asyncio.open_connection("127.0.0.1", ports[0])
                writer.write(garbage)
                await asyncio.wait_for(reader.read(), 30)
                writer.close()
            await it.gang("good", 4, required="rack")
            await it.bound(4)

    asyncio.run(run())
    the_log_is_sound(tmp_path)
    assert "aiohttp" not in "\n".join(log_lines(tmp_path))

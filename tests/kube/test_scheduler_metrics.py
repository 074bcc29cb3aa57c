"""`closeby scheduler` is scraped and probed while it works, as Prometheus and the kubelet do."""

import asyncio
import re
from pathlib import Path

import aiohttp

from tests.cli.programs import lines_until, started
from tests.control_plane.api import Api
from tests.control_plane.cluster import ControlPlane
from tests.control_plane.nodes import joined, node
from tests.kube.live import eventually, unique
from tests.kube.scraping import Scrape


def test_numbers_and_probes_of_a_scheduler_at_work(control_plane: ControlPlane, namespace: str) -> None:
    """One pod is bound and one is too large; then it is told to stop."""
    name = unique("mine")

    def pod(called: str, cpu: str) -> dict[str, object]:
        container = {"name": "main", "image": "none", "resources": {"requests": {"cpu": cpu}}}
        return {"metadata": {"name": called}, "spec": {"schedulerName": name, "containers": [container]}}

    async def run() -> None:
        async with Api(control_plane.access()) as api, joined(api, [node(unique("n"))]):
            path = f"/api/v1/namespaces/{namespace}/pods"
            await api.create(path, pod("fits", "1"))
            await api.create(path, pod("huge", "1000"))
            arguments = ["--kubeconfig", str(control_plane.kubeconfig), "--scheduler-name", name]
            with started(
                "scheduler", *arguments, "--metrics-address", "127.0.0.1:0", "--no-leader-elect"
            ) as process:
                line = await asyncio.to_thread(lines_until, process, "serving metrics")
                (port,) = re.findall(r"port=(\d+)", line)
                await asyncio.to_thread(lines_until, process, "msg=ready")
                async with aiohttp.ClientSession(f"http://127.0.0.1:{port}") as session:
                    await probed(session, name)
                    await asked_for_stories(session, namespace)
                process.terminate()
                await asyncio.to_thread(process.communicate, timeout=60)
                assert process.returncode == 0

    asyncio.run(run())


async def probed(session: aiohttp.ClientSession, name: str) -> None:
    async def get(path: str) -> tuple[int, str]:
        async with session.get(path) as answer:
            return answer.status, await answer.text()

    assert await get("/livez") == (200, "ok")
    ready = await get("/readyz?verbose")
    assert ready[0] == 200 and "[+]informer-sync ok" in ready[1]
    told = Scrape("")

    async def counted() -> bool:
        nonlocal told
        told = Scrape((await get("/metrics"))[1])
        bound = told.value("scheduler_schedule_attempts_total", result="scheduled", profile=name)
        # It is tried again when something is new about the node.
        rests = told.value("scheduler_pending_pods", queue="unschedulable")
        return bool(bound) and bool(rests)

    await eventually(counted)
    assert told.value("scheduler_schedule_attempts_total", result="scheduled", profile=name) == 1
    assert told.value("scheduler_pod_scheduling_sli_duration_seconds_count", attempts="1") == 1
    assert told.value("scheduler_pending_pods", queue="unschedulable") == 1
    assert told.value("closeby_waiting_pods", reason="InsufficientResources") == 1
    assert (told.value("scheduler_cache_size", type="nodes") or 0) >= 1
    assert told.value("closeby_lists_total", group="", kind="Pod") == 1
    codes = told.all("rest_client_requests_total")
    assert any(code == "201" and method == "POST" for code, _, method in codes)


async def asked_for_stories(session: aiohttp.ClientSession, namespace: str) -> None:
    """What was decided about each of the two pods."""

    async def last(pod: str) -> dict[str, object]:
        async with session.get(f"/stories/{namespace}/{pod}") as answer:
            assert answer.status == 200
            found: dict[str, object] = (await answer.json())["entries"][-1]
            return found

    placed = await last("fits")
    assert placed["placed"] == 1 and str(placed["time"]).startswith("20")
    refused = await last("huge")
    assert (refused["reason"], refused["waiting"]) == ("InsufficientResources", 1)
    async with session.get(f"/stories/{namespace}/none") as answer:
        assert answer.status == 404


def test_an_address_that_can_not_be_used(tmp_path: Path, control_plane: ControlPlane) -> None:
    with started(
        "scheduler", "--kubeconfig", str(control_plane.kubeconfig), "--metrics-address", "nonsense"
    ) as process:
        _, stderr = process.communicate(timeout=60)
    assert process.returncode == 2
    assert "--metrics-address: 'nonsense' is not an address to listen on" in stderr

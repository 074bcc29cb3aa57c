"""Two releases of closeby beside one Kueue: a check is answered by the one whose controller it names."""

import asyncio

import pytest

from closeby.controllers.admission.controller import AdmissionChecks, AdmissionSettings
from closeby.controllers.running import ControllerRunner, Running
from closeby.kube.writing.writer import Writer
from tests.control_plane.cluster import ControlPlane
from tests.kube.live_world import until
from tests.kueue.running import API
from tests.kueue.test_admission_checks import CHECK, HOSTS, beside

pytestmark = [pytest.mark.soak, pytest.mark.timeout(300)]


def test_the_second_release_leaves_the_check_of_the_first_alone(kueue_cluster: ControlPlane) -> None:
    async def run() -> None:
        async with beside(kueue_cluster, *HOSTS) as it:
            await it.queues.queue("team", gpus=16, checks=[f"{CHECK}-{it.queues.namespace}"])
            other = f"{CHECK}-of-second-{it.queues.namespace}"
            spec = {"controllerName": "tests/second"}
            await it.queues.put("admissionchecks", "AdmissionCheck", other, spec)
            settings = AdmissionSettings(
                namespace="default", scheduler_name="second", controller_name="tests/second"
            )
            writer = Writer(it.transport, "closeby-controllers", "second")
            second = AdmissionChecks(it.transport, writer, it.world.say, settings)
            runner = ControllerRunner(it.transport, [second], Running(discover_every=0.5), it.world.say)
            stop = asyncio.Event()
            work = asyncio.create_task(runner.run(stop))
            await runner.ready.wait()

            async def active(check: str) -> bool:
                found = await it.world.api.get(f"{API}/admissionchecks/{check}")
                return any(one["type"] == "Active" for one in found.get("status", {}).get("conditions", ()))

            # So the second release is at work. The pods are none of its own.
            await until(lambda: active(other))
            assert not await active(f"{CHECK}-{it.queues.namespace}")
            async with it.working():
                await it.job("train", "team", pods=4)
                ready = await it.until_state("train", "Ready")
                assert "4 places held in z1/r" in ready["message"]
                assert len(await it.racks("train", 4)) == 1
            stop.set()
            assert await work is None

    asyncio.run(run())

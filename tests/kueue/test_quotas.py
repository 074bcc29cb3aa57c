"""Kueue by itself on the test control plane: what the other tests here rely on."""

import asyncio

import pytest

from tests.control_plane.cluster import ControlPlane
from tests.kueue.queues import kueue_world

pytestmark = [pytest.mark.soak, pytest.mark.timeout(300)]


def test_a_job_with_a_queue_is_admitted_and_one_beyond_the_quota_waits(kueue_cluster: ControlPlane) -> None:
    async def run() -> None:
        async with kueue_world(kueue_cluster) as it:
            await it.queue("team", gpus=8)
            await it.job("first", "team", pods=4, gpus=2)
            await it.job("second", "team", pods=1, gpus=1)
            await it.until_condition("first", "Admitted", "True")
            await it.until_condition("second", "QuotaReserved", "False")

    asyncio.run(run())

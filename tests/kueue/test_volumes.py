"""Workloads of Kueue whose pods have ephemeral volumes: quota is given where the volumes can be had."""

import asyncio

import pytest

from tests.control_plane.cluster import ControlPlane
from tests.kube.live_world import RACK
from tests.kube.provisioner import Provisioner
from tests.kueue.test_admission_checks import HOSTS, beside, check_of

pytestmark = [pytest.mark.soak, pytest.mark.timeout(300)]


def test_a_workload_is_admitted_in_the_rack_of_its_ephemeral_volumes(kueue_cluster: ControlPlane) -> None:
    """The scheduler has just started, and has listed no volumes: that is no reason to reject a Workload."""

    async def run() -> None:
        async with (
            beside(kueue_cluster, *HOSTS) as it,
            Provisioner(it.world.api, it.queues.namespace, RACK).serving() as made,
            it.working(),
        ):
            await it.queues.queue("team", gpus=16, checks=check_of(it))
            claim = {
                "accessModes": ["ReadWriteOnce"],
                "resources": {"requests": {"storage": "1Gi"}},
                "storageClassName": made.by_hand,
            }
            scratch = {"name": "scratch", "ephemeral": {"volumeClaimTemplate": {"spec": claim}}}
            await it.job("train", "team", pods=3, volumes=[scratch])
            await it.until_state("train", "Pending", "ephemeral volume scratch")
            volumes = {await made.volume(rack) for rack in ("r2", "r2", "r2")}
            await it.until_state("train", "Ready")
            assert await it.racks("train", 3) == {"r2"}
            assert set((await made.bound()).values()) == volumes

    asyncio.run(run())

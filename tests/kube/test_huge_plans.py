"""The plan of a very large gang, and an API server that keeps no object above 1.5 MiB."""

import asyncio

import msgspec
import pytest

from closeby.kube.gangs.status_records import MIRRORS
from closeby.kube.writing.writer import WriteResult
from closeby.objects.recorded import MOST_NAMES
from closeby.reading.common.plans import PlanWire, planned_nodes, rank_list
from tests.control_plane.cluster import ControlPlane
from tests.control_plane.definitions import define
from tests.kube.test_writer import scene
from tests.worlds import pods

#: Members of a gang, and whether its plan can be written: etcd, the client of etcd and the API server say no.
_SIZES = {
    10_000: WriteResult.OK,
    12_000: WriteResult.FATAL,
    18_000: WriteResult.FATAL,
    30_000: WriteResult.FATAL,
}


def _status(size: int) -> dict[str, object]:
    """Of a gang of so many pods, one a node."""
    members = [
        msgspec.structs.replace(one, uid=f"00000000-0000-4000-8000-{number:012}")
        for number, one in enumerate(pods("a-job-with-a-name-of-usual-length", size))
    ]
    plan = PlanWire(nodes=planned_nodes((one, f"gpu-node-{i}.example.com") for i, one in enumerate(members)))
    ranks = rank_list({one.uid: rank for rank, one in enumerate(members)})
    return {"scheduled": 0, "domain": "", "ranks": ranks, "plan": msgspec.to_builtins(plan)}


@pytest.mark.live
@pytest.mark.filterwarnings("ignore:Sending a large body:ResourceWarning")
def test_what_the_server_can_not_store_is_refused_for_good(
    control_plane: ControlPlane, namespace: str
) -> None:
    """A retry would keep the nodes of the gang free for ever."""

    async def run() -> None:
        async with scene(control_plane, namespace, pods=0) as it:
            await define(it.api)
            body = {
                "apiVersion": MIRRORS.api_version,
                "kind": MIRRORS.kind,
                "metadata": {"name": "huge", "namespace": namespace},
                "spec": {},
            }
            made = await it.writer.create(MIRRORS, namespace, body)
            assert made.ok
            for size, verdict in _SIZES.items():
                written = await it.writer.apply_status(MIRRORS, namespace, "huge", made.uid, _status(size))
                assert written.verdict is verdict, (size, written.error)

    asyncio.run(run())


def test_names_are_left_out_of_the_plan_of_very_many_pods() -> None:
    some = [(one, "n") for one in pods("train", MOST_NAMES + 1)]
    (few,), (many,) = planned_nodes(some[1:]), planned_nodes(some)
    assert few.pods[0].name == "train-1"
    assert {one.name for one in many.pods} == {""}
    assert many.pods[0].uid == "default/train-0"

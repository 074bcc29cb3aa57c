"""Somebody has the controllers' token where they answer admission checks of Kueue.

Their role lets them write the status of every Workload; policies narrow that to the states of closeby's own
checks, and to the one annotation by which pods find their places.
"""

import asyncio
from pathlib import Path

import pytest

from closeby.controllers.admission.controller import AdmissionChecks, AdmissionSettings
from closeby.controllers.running import ControllerRunner, Running
from closeby.kube.writing.writer import Writer
from tests.attacks.test_stolen_tokens import Theft, at_work, refused, stolen
from tests.control_plane.api import ApiError, Object
from tests.control_plane.cluster import ControlPlane
from tests.kube.live import eventually
from tests.kueue.queues import KueueWorld, kueue_world
from tests.kueue.running import API

pytestmark = [pytest.mark.soak, pytest.mark.timeout(300)]

CHECKS = ("--set", "controllers.admissionChecks.enabled=true")
WHEN = "2026-01-01T00:00:00Z"
ALONE = "states of admission checks alone"
OF_OURS = "AdmissionChecks with controllerName closeby.dev/placement alone"
ANNOTATION = "annotation closeby.dev/workload alone"


def active(type_: str = "Active") -> Object:
    condition = {"type": type_, "status": "True", "reason": type_, "message": "", "lastTransitionTime": WHEN}
    return {"status": {"conditions": [condition]}}


async def queued(it: KueueWorld) -> tuple[str, str]:
    """A Job of another scheduler has its quota and waits for two checks: closeby's, and somebody else's."""
    ours, others = f"ours-{it.namespace}", f"others-{it.namespace}"
    await it.put("admissionchecks", "AdmissionCheck", ours, {"controllerName": "closeby.dev/placement"})
    await it.put("admissionchecks", "AdmissionCheck", others, {"controllerName": "tests/other"})
    for one in (ours, others):
        await it.api.patch(f"{API}/admissionchecks/{one}/status", active())
    await it.queue("team", gpus=8, checks=[ours, others])
    await it.job("train", "team", pods=2, gpus=2)
    await it.until_condition("train", "QuotaReserved", "True")

    async def asked() -> bool:
        states = (await it.workload("train"))["status"].get("admissionChecks", ())
        return {one["name"] for one in states} == {ours, others}

    await eventually(asked)
    return ours, others


async def learnt(theft: Theft, path: str, policy: str, body: Object) -> None:
    """Waits until the policy is at work: it refuses to have this written."""

    async def known() -> bool:
        name = f"{theft.release.namespace}-{theft.release.namespace}-admission-checks{policy}"
        return await at_work(name, theft.thief.patch(path, body, dryRun="All"))

    await eventually(known, 60)


def test_of_a_workload_nothing_but_the_state_of_our_check_is_written(
    helm: Path, kueue_cluster: ControlPlane
) -> None:
    async def run() -> None:
        async with (
            kueue_world(kueue_cluster) as it,
            stolen(helm, kueue_cluster, it.namespace, "controllers", *CHECKS) as theft,
        ):
            ours, others = await queued(it)
            found = await it.workload("train")
            path = f"{API}/namespaces/{it.namespace}/workloads/{found['metadata']['name']}"

            def states(**more: Object | None) -> Object:
                """All states as they are, but for some: by the name of the check; None takes one out."""
                before = {one["name"]: one for one in found["status"]["admissionChecks"]}
                entry: Object = {"state": "Ready", "message": "", "lastTransitionTime": WHEN}
                after = {
                    name: None if change is None else before.get(name, {"name": name}) | entry | change
                    for name, change in more.items()
                }
                merged = [one for one in {**before, **after}.values() if one is not None]
                return {"status": {"admissionChecks": merged}}

            def updated(**update: object) -> Object:
                return states(**{ours: {"podSetUpdates": [{"name": "main", **update}]}})

            uid = found["metadata"]["uid"]
            attempts: list[tuple[Object, str]] = [
                ({"status": {"conditions": []}}, ALONE),
                ({"status": {"admission": None}}, ALONE),
                ({"status": {"requeueState": {"count": 9}}}, ALONE),
                (states(**{others: {}}), OF_OURS),
                (states(**{others: {"state": "Rejected"}, ours: {}}), OF_OURS),
                (states(**{others: None}), "may not add or remove"),
                (states(more={}), "may not add or remove"),
                (updated(nodeSelector={"zone": "a"}), ANNOTATION),
                (updated(tolerations=[{"operator": "Exists"}]), ANNOTATION),
                (updated(labels={"app": "shop"}), ANNOTATION),
                (updated(annotations={"note": "x"}), ANNOTATION),
                (updated(annotations={"closeby.dev/workload": "other"}), ANNOTATION),
            ]
            await learnt(theft, f"{path}/status", "-workloads", attempts[0][0])
            for body, complaint in attempts:
                await refused(theft.thief.patch(f"{path}/status", body), complaint)
            with pytest.raises(ApiError) as denied:
                await theft.thief.patch(path, {"spec": {"active": False}})
            assert "cannot patch" in denied.value.message
            mine = updated(annotations={"closeby.dev/workload": uid})
            await theft.thief.patch(f"{path}/status", mine)
            after = {one["name"]: one for one in (await it.workload("train"))["status"]["admissionChecks"]}
            assert (after[ours]["state"], after[others]["state"]) == ("Ready", "Pending")

    asyncio.run(run())


def test_of_admission_checks_nothing_but_that_ours_are_active_is_written(
    helm: Path, kueue_cluster: ControlPlane
) -> None:
    async def run() -> None:
        async with (
            kueue_world(kueue_cluster) as it,
            stolen(helm, kueue_cluster, it.namespace, "controllers", *CHECKS) as theft,
        ):
            ours, others = await queued(it)
            status = {one: f"{API}/admissionchecks/{one}/status" for one in (ours, others)}
            inactive: Object = {"status": {"conditions": []}}
            await learnt(theft, status[others], "", inactive)
            await refused(theft.thief.patch(status[others], inactive), OF_OURS)
            await refused(theft.thief.patch(status[ours], active("Other")), "condition Active alone")
            await theft.thief.patch(status[ours], inactive)

    asyncio.run(run())


def test_what_the_controllers_do_write_is_still_written(helm: Path, kueue_cluster: ControlPlane) -> None:
    """Their own code, with the same token."""

    async def run() -> None:
        async with (
            kueue_world(kueue_cluster) as it,
            stolen(helm, kueue_cluster, it.namespace, "controllers", *CHECKS) as theft,
        ):
            ours, others = await queued(it)
            await it.api.patch(f"{API}/admissionchecks/{ours}/status", {"status": {"conditions": []}})
            found = await it.workload("train")
            path = f"{API}/namespaces/{it.namespace}/workloads/{found['metadata']['name']}/status"
            await learnt(theft, path, "-workloads", {"status": {"conditions": []}})
            await learnt(theft, f"{API}/admissionchecks/{others}/status", "", active("Other"))
            lines: list[tuple[str, dict[str, object]]] = []

            def say(message: str, /, *, warning: bool = False, **fields: object) -> None:
                lines.append((message, fields))

            writer = Writer(theft.transport, "closeby-controllers", "a-test")
            settings = AdmissionSettings(namespace=it.namespace, scheduler_name=it.namespace)
            checks = AdmissionChecks(theft.transport, writer, say, settings)
            runner = ControllerRunner(theft.transport, [checks], Running(discover_every=0.5), say)
            stop = asyncio.Event()
            work = asyncio.create_task(runner.run(stop))

            async def ready() -> bool:
                states = (await it.workload("train"))["status"]["admissionChecks"]
                check = await it.api.get(f"{API}/admissionchecks/{ours}")
                said = check["status"].get("conditions", ())
                return {one["name"]: one["state"] for one in states}[ours] == "Ready" and bool(said)

            try:
                await eventually(ready, 60)
            except TimeoutError as error:
                raise AssertionError(str(lines)) from error
            finally:
                stop.set()
                assert await work is None

    asyncio.run(run())

"""`closeby controllers` as a program of its own."""

import asyncio
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path

import pytest

from tests.cli.calling import closeby
from tests.cli.programs import lines_until, started
from tests.control_plane.cluster import ControlPlane
from tests.controllers.grouper_world import World, until, world


@pytest.mark.parametrize("end", [signal.SIGTERM, signal.SIGINT])
def test_it_groups_and_ends_on_a_signal(
    whole_control_plane: ControlPlane, namespace: str, end: signal.Signals
) -> None:
    async def run() -> None:
        async with world(whole_control_plane, namespace, {"r1": 1}) as it:
            await it.job("train", 3, it.wish())

            async def made() -> bool:
                return len(await it.pods()) == 3

            # Else they may be told one after the other.
            await until(made)
            arguments = ["--kubeconfig", str(whole_control_plane.kubeconfig), "--only", "pod-grouper"]
            arguments += ["--scheduler-name", it.name, "--lease-namespace", namespace]
            with started("controllers", *arguments) as process:
                line = await asyncio.to_thread(lines_until, process, "msg=grouped")
                assert f"owner=Job/{namespace}/train group={namespace}/train pods=3" in line
                found = await it.api.get(it.path("coordination.k8s.io/v1", "leases", "closeby-controllers"))
                assert found["spec"]["holderIdentity"].startswith("closeby-controllers-")
                process.send_signal(end)
                rest = await asyncio.to_thread(process.communicate, timeout=60)
                assert (process.returncode, rest[0]) == (0, ""), rest
                assert "msg=stopped" in rest[1]
            await it.members("train", 3)
            # The Lease was handed over.
            found = await it.api.get(it.path("coordination.k8s.io/v1", "leases", "closeby-controllers"))
            assert not found["spec"].get("holderIdentity")

    asyncio.run(run())


def test_the_start_of_a_gang_fits_on_a_screen(
    whole_control_plane: ControlPlane, namespace: str, tmp_path: Path
) -> None:
    """A scheduler and controllers begin and start a healthy Job: few lines, and no Warning."""

    async def run() -> None:
        async with world(whole_control_plane, namespace, {"r1": 16}) as it, both(it, tmp_path) as logs:
            before = {name: len(lines(file)) for name, file in logs.items()}
            assert all(number <= 30 for number in before.values()), before
            await it.job("train", 16, it.wish())
            await until(lambda: bound(it, 16))
            new = [line for name, file in logs.items() for line in lines(file)[before[name] :]]
            assert any("msg=placed" in line for line in new)
            assert len([line for line in new if namespace in line]) <= 25, new
            found = await it.api.get(it.path("events.k8s.io/v1", "events"))
            assert [one["note"] for one in found["items"] if one["type"] == "Warning"] == []

    asyncio.run(run())


def test_in_a_dry_run_of_both_nothing_is_written(
    whole_control_plane: ControlPlane, namespace: str, tmp_path: Path
) -> None:
    async def run() -> None:
        async with (
            world(whole_control_plane, namespace, {"r1": 4}) as it,
            both(it, tmp_path, "--dry-run") as logs,
        ):
            await it.job("train", 4, it.wish())

            async def decided() -> bool:
                grouped = any(f"owner=Job/{namespace}/train" in one for one in lines(logs["controllers"]))
                would = sum(f"item=pod/{namespace}/train-" in one for one in lines(logs["scheduler"]))
                return grouped and would >= 4

            await until(decided)
            assert await it.groups() == {}
            for pod in (await it.pods()).values():
                assert "closeby.dev/pod-group" not in pod["metadata"]["labels"]
                assert "nodeName" not in pod["spec"] and not pod["status"].get("conditions")
            found = await it.api.get(it.path("coordination.k8s.io/v1", "leases"))
            assert found["items"] == []

    asyncio.run(run())


def lines(file: Path) -> list[str]:
    return file.read_text().splitlines()


async def bound(it: World, number: int) -> bool:
    return sum("nodeName" in pod["spec"] for pod in (await it.pods()).values()) == number


@asynccontextmanager
async def both(it: World, folder: Path, *arguments: str) -> AsyncIterator[dict[str, Path]]:
    """A scheduler and controllers as programs that are ready, and their logs by name.

    As in the chart the scheduler waits for the pod-grouper, but not in a dry run.
    """
    kubeconfig = str(it.control_plane.kubeconfig)
    given = ["--kubeconfig", kubeconfig, "--scheduler-name", it.name, "--lease-namespace", it.namespace]
    given += ["--metrics-address", "off", *arguments]
    waits = () if "--dry-run" in arguments else ("--pod-grouper",)
    logs = {name: folder / f"{name}.log" for name in ("scheduler", "controllers")}

    async def ready() -> bool:
        return all("msg=ready" in file.read_text() for file in logs.values())

    with ExitStack() as held:
        for name, file in logs.items():
            log = held.enter_context(file.open("w"))
            command = [sys.executable, "-m", "closeby", name, *given, *(waits if name == "scheduler" else ())]
            process = await asyncio.to_thread(subprocess.Popen, command, stderr=log)
            held.callback(process.wait)
            held.callback(process.kill)
        await until(ready)
        yield logs


def test_all_controllers_run_unless_some_are_named(control_plane: ControlPlane) -> None:
    kubeconfig = ["--kubeconfig", str(control_plane.kubeconfig)]
    with started("controllers", *kubeconfig, "--dry-run") as process:
        line = lines_until(process, "msg=starting")
        lines_until(process, "msg=ready")
        process.terminate()
        process.communicate(timeout=60)
        assert process.returncode == 0
    assert "controllers=pod-grouper,app-groups,network-topologies" in line and "dry_run=True" in line


def test_what_can_not_be_used(tmp_path: Path) -> None:
    for arguments, part in (
        (["--only", "everything"], "'everything' is not one of"),
        (["--kubeconfig", str(tmp_path / "nothing")], "nothing"),
        (["--prometheus-token-file", "token"], "whom are the token and the certificates for?"),
        (["--prometheus-address", "prometheus:9090"], "'prometheus:9090' is not a URL"),
        (["--prometheus-address", "http://user@p"], "'http://user@p' is not a URL"),
        (
            ["--allow-prometheus-address", "http://p/?a=b"],
            "--allow-prometheus-address: 'http://p/?a=b' is no",
        ),
        (["--prometheus-address", "https://p", "--prometheus-key-file", "k"], "needs --prometheus-cert-file"),
        (["--costs-max-age", "0"], "--costs-max-age"),
    ):
        done = closeby("controllers", *arguments)
        assert done.exit_code == 2, done
        assert part in done.stderr
        assert "Traceback" not in done.stderr

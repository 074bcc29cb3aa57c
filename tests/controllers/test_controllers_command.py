"""`closeby controllers` as a program of its own."""

import asyncio
import signal
from pathlib import Path

import pytest

from tests.cli.calling import closeby
from tests.cli.programs import lines_until, started
from tests.control_plane.cluster import ControlPlane
from tests.controllers.grouper_world import until, world


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

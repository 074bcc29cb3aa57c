"""`closeby scheduler` as a program of its own."""

import asyncio
import json
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.calling import closeby
from tests.cli.programs import lines_until, started
from tests.control_plane.api import Api
from tests.control_plane.cluster import ControlPlane
from tests.control_plane.nodes import joined, node
from tests.kube.faulty_proxy import Refuse
from tests.kube.live import unique
from tests.kube.live_world import behind_proxy, kubeconfig_to

NOBODY_THERE = """
current-context: c
contexts: [{name: c, context: {cluster: c, user: u}}]
clusters: [{name: c, cluster: {server: "http://127.0.0.1:9"}}]
users: [{name: u, user: {}}]
"""


@pytest.mark.parametrize("end", [signal.SIGTERM, signal.SIGINT])
def test_it_binds_and_ends_on_a_signal(
    control_plane: ControlPlane, namespace: str, end: signal.Signals, tmp_path: Path
) -> None:
    name = unique("mine")
    config = tmp_path / "closeby.yaml"
    config.write_text(f"schedulerName: {name}\n")
    pod = {
        "metadata": {"name": "p"},
        "spec": {"schedulerName": name, "containers": [{"name": "main", "image": "none"}]},
    }

    async def run() -> None:
        async with Api(control_plane.access()) as api, joined(api, [node("n1")]):
            await api.create(f"/api/v1/namespaces/{namespace}/pods", pod)
            arguments = ["--kubeconfig", str(control_plane.kubeconfig), "--config", str(config)]
            with started("scheduler", *arguments) as process:
                placed = await asyncio.to_thread(lines_until, process, "msg=placed")
                assert f"level=info msg=placed item=pod/{namespace}/p pods=1 nodes=1 node=n1" in placed
                await asyncio.to_thread(lines_until, process, "msg=ready")
                process.send_signal(end)
                rest = await asyncio.to_thread(process.communicate, timeout=60)
                assert process.returncode == 0, rest
                assert "msg=stopped" in rest[1]
                assert rest[0] == ""
            # What was sent was finished.
            found = await api.get(f"/api/v1/namespaces/{namespace}/pods/p")
            assert found["spec"]["nodeName"] == "n1"

    asyncio.run(run())


def test_an_ordinary_user_reads_what_is_not_allowed(control_plane: ControlPlane) -> None:
    if control_plane.ordinary_kubeconfig is None:
        pytest.skip("needs a user without rights: run it without CLOSEBY_TEST_KUBECONFIG")
    with started("scheduler", "--kubeconfig", str(control_plane.ordinary_kubeconfig)) as process:
        line = lines_until(process, "watch failed")
        process.terminate()
        assert "level=warning" in line and "Forbidden" in line
        assert process.wait(timeout=60) == 0


@pytest.mark.parametrize(
    ("command", "right"), [("scheduler", "create pods/binding"), ("controllers", "patch pods")]
)
def test_rights_that_lack_are_named(control_plane: ControlPlane, command: str, right: str) -> None:
    if control_plane.ordinary_kubeconfig is None:
        pytest.skip("needs a user without rights: run it without CLOSEBY_TEST_KUBECONFIG")
    with started(command, "--kubeconfig", str(control_plane.ordinary_kubeconfig)) as process:
        line = lines_until(process, "rights lacking")
        process.terminate()
        assert "level=warning" in line and "may not watch nodes, " in line and f"may not {right}, " in line
        assert process.wait(timeout=60) == 0


@pytest.mark.parametrize("command", ["scheduler", "controllers"])
def test_a_cluster_that_is_not_there_is_waited_for(command: str, tmp_path: Path) -> None:
    kubeconfig = tmp_path / "config"
    kubeconfig.write_text(NOBODY_THERE)
    with started(command, "--kubeconfig", str(kubeconfig), "--metrics-address", "off") as process:
        for _ in range(2):
            line = lines_until(process, "waiting for the API server")
            assert "level=warning" in line and "Unreachable" in line and "retry_in=" in line
        process.terminate()
        assert process.wait(timeout=60) == 0


def test_it_begins_once_the_server_answers(
    control_plane: ControlPlane, namespace: str, tmp_path: Path
) -> None:
    """A server that starts refuses at first what it grants later."""

    async def run() -> None:
        async with behind_proxy(control_plane, namespace) as (it, proxy):
            proxy.chance = lambda method, path: Refuse(403)
            kubeconfig = kubeconfig_to(proxy, tmp_path)
            with started(
                "scheduler", "--kubeconfig", str(kubeconfig), "--scheduler-name", it.name
            ) as process:
                for code in (503, 503):
                    await asyncio.to_thread(lines_until, process, "waiting for the API server")
                    proxy.chance = lambda method, path, code=code: Refuse(code)
                proxy.forgive()
                await asyncio.to_thread(lines_until, process, "msg=ready")
                process.terminate()
                assert await asyncio.to_thread(process.wait, 60) == 0

    asyncio.run(run())


def test_credentials_that_the_server_does_not_take_end_it(
    control_plane: ControlPlane, tmp_path: Path
) -> None:
    kubeconfig = tmp_path / "config"
    server = control_plane.access()
    kubeconfig.write_text(
        NOBODY_THERE.replace("http://127.0.0.1:9", server.server)
        .replace("cluster: {server", "cluster: {insecure-skip-tls-verify: true, server")
        .replace("user: {}", "user: {token: nobodys}")
    )
    done = subprocess.run(
        [sys.executable, "-m", "closeby", "scheduler", "--kubeconfig", str(kubeconfig)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2 and "Unauthorized (401)" in done.stderr


def test_times_of_the_lease_that_can_not_work_together(tmp_path: Path) -> None:
    kubeconfig = tmp_path / "config"
    kubeconfig.write_text(NOBODY_THERE)

    def refused(*arguments: str) -> str:
        done = closeby("scheduler", "--kubeconfig", kubeconfig, *arguments)
        assert done.exit_code == 2
        return done.stderr

    assert "lease-duration must be longer" in refused("--leader-elect-lease-duration", "10s")
    assert "renew-deadline must be longer" in refused("--leader-elect-retry-period", "8.5s")
    assert "not a span of time" in refused("--leader-elect-renew-deadline", "soon")


def test_it_can_be_stopped_while_a_server_says_nothing(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        kubeconfig = tmp_path / "config"
        kubeconfig.write_text(NOBODY_THERE.replace("127.0.0.1:9", f"127.0.0.1:{silent.getsockname()[1]}"))
        with started("scheduler", "--kubeconfig", str(kubeconfig)) as process:
            lines_until(process, "msg=starting")
            connection, _ = silent.accept()
            process.terminate()
            assert process.wait(timeout=60) == 0
            connection.close()


def test_what_can_not_be_used(tmp_path: Path) -> None:
    config = tmp_path / "closeby.yaml"
    config.write_text("plugins: [{name: FlushUnschedulable}]\n")
    kubeconfig = tmp_path / "config"
    kubeconfig.write_text(NOBODY_THERE)
    missing = closeby("scheduler", "--kubeconfig", tmp_path / "none")
    assert (missing.exit_code, missing.stderr.startswith("error: ")) == (2, True)
    wrong = closeby("scheduler", "--kubeconfig", kubeconfig, "--context", "other")
    assert wrong.exit_code == 2 and "other" in wrong.stderr
    done = subprocess.run(
        [sys.executable, "-m", "closeby", "scheduler", "--kubeconfig", kubeconfig, "--config", config],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2 and "FlushUnschedulable" in done.stderr


def test_an_exec_plugin_without_the_official_client(tmp_path: Path) -> None:
    kubeconfig = tmp_path / "config"
    user = (
        'user: {exec: {apiVersion: client.authentication.k8s.io/v1, command: "true", interactiveMode: Never}}'
    )
    kubeconfig.write_text(NOBODY_THERE.replace("user: {}", user))
    blocked = (
        "import sys; sys.modules['kubernetes_asyncio'] = sys.modules['kubernetes'] = None; "
        "from closeby.cli.main import main; main()"
    )
    done = subprocess.run(
        [sys.executable, "-c", blocked, "scheduler", "--kubeconfig", str(kubeconfig)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2, done.stderr
    assert "pip install 'closeby[kube]'" in done.stderr


def test_its_lines_are_json_for_those_who_collect_them(control_plane: ControlPlane, namespace: str) -> None:
    arguments = ["--kubeconfig", str(control_plane.kubeconfig), "--scheduler-name", unique("mine")]
    arguments += ["--lease-namespace", namespace, "--log-format", "json", "--metrics-address", "off"]
    with started("scheduler", *arguments) as process:
        line = json.loads(lines_until(process, "leading"))
        process.terminate()
        process.wait(timeout=60)
    assert (line["level"], line["msg"], line["lease"]) == ("info", "leading", "closeby-scheduler")


@pytest.mark.parametrize("command", ["scheduler", "controllers"])
@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        (["--kubeconfig", "none"], "none"),
        (["--leader-elect-renew-deadline", "1h"], "lease-duration"),
        (["--no-such-option"], "no-such-option"),
    ],
)
def test_why_it_ends_is_json_too(command: str, arguments: list[str], part: str, tmp_path: Path) -> None:
    kubeconfig = tmp_path / "config"
    kubeconfig.write_text(NOBODY_THERE)
    for form in (["--log-format", "json"], ["--log-format=json"]):
        done = subprocess.run(
            [sys.executable, "-m", "closeby", command, *form, "--kubeconfig", str(kubeconfig), *arguments],
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 2
        (said,) = map(json.loads, done.stderr.splitlines())
        assert (said["level"], said["msg"]) == ("error", "exiting") and part in said["error"]

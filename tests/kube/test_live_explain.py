"""`closeby explain` shows what a scheduler at work decided, and where it knows that from.

The scheduler is a process of its own. It is cut off from the API server before the cluster changes, so that a
new decision would differ: what is shown was read, not decided.
"""

import asyncio
import json
import resource
import socket
import ssl
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import yaml
from aiohttp import web

from closeby.kube.metrics.serving import FORWARDED_TOKEN
from tests.certificates import Authority
from tests.cli.calling import closeby
from tests.cli.programs import Program, lines_until, started
from tests.control_plane.api import Object
from tests.control_plane.cluster import ControlPlane
from tests.control_plane.nodes import joined, node
from tests.kube.faulty_proxy import Proxy, Refuse
from tests.kube.live import unique
from tests.kube.live_world import RACK, ZONE, World, behind_proxy, kubeconfig_to, until, until_said, world
from tests.kube.test_live_seeds import APP, WORKLOAD, create
from tests.kube.test_reading import RBAC, changed

REGION_LABEL, ZONE_LABEL = "topology.kubernetes.io/region", "topology.kubernetes.io/zone"
#: Two racks of two nodes; in each zone a rack.
HOSTS = [
    node(
        f"{rack}-{i}",
        labels={RACK: rack, ZONE: "z", REGION_LABEL: "eu", ZONE_LABEL: zone},
        allocatable={"cpu": "4", "nvidia.com/gpu": "8"},
    )
    for rack, zone in (("r1", "north"), ("r2", "south"))
    for i in (1, 2)
]
#: What a pod asks for that no node has, and the node that has it.
MUCH = "100"
ROOMY = node(
    "roomy", labels=HOSTS[0]["metadata"]["labels"], allocatable={"cpu": "400", "nvidia.com/gpu": "8"}
)


class Site:
    """A scheduler process behind a proxy, and what `explain` says of its decisions."""

    def __init__(self, it: World, proxy: Proxy, process: Program, kubeconfig: Path, config: Path) -> None:
        self.it = it
        self.proxy = proxy
        self.process = process
        self.port = 0
        self._kubeconfig = kubeconfig
        self._config = config

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def ready(self) -> None:
        line = await asyncio.to_thread(lines_until, self.process, "serving metrics")
        self.port = int(line.split("port=")[1].split()[0])
        await asyncio.to_thread(lines_until, self.process, "msg=ready")

    async def explain(self, subject: str, *arguments: str, output: str = "json") -> Any:
        options = ("-n", self.it.namespace, "--scheduler-name", self.it.name, "--config", str(self._config))
        done = await asyncio.to_thread(
            closeby, "explain", subject, *options, *arguments, "--kubeconfig", self._kubeconfig, "-o", output
        )
        assert (done.exit_code, done.stderr) == (0, ""), done.stderr
        return json.loads(done.stdout) if output == "json" else done.stdout

    async def asked(self, subject: str) -> Any:
        return await self.explain(subject, "--scheduler", self.url)

    async def cut_off(self) -> None:
        """From now on the scheduler hears nothing of the cluster."""
        for method in ("GET", "WATCH", "POST", "PATCH", "PUT"):
            self.proxy.inject(method, "", Refuse(503), times=1_000_000)
        self.proxy.cut_streams()

    async def condition(self, pod: str) -> Object:
        found: Object = (await self.it.pods())[pod]
        return next(one for one in found["status"]["conditions"] if one["type"] == "PodScheduled")


def configuration(folder: Path, namespace: str) -> Path:
    """Costs of the test's namespace count, and place applications."""
    file = folder / "closeby.yaml"
    content = {"networkTopologyNamespaces": [namespace], "plugins": [{"name": "NetworkMinCost"}]}
    file.write_text(yaml.safe_dump(content))
    return file


@asynccontextmanager
async def site(
    control_plane: ControlPlane, namespace: str, folder: Path, *arguments: str
) -> AsyncIterator[Site]:
    config = configuration(folder, namespace)
    async with behind_proxy(control_plane, namespace, *HOSTS) as (it, proxy):
        kubeconfig = str(kubeconfig_to(proxy, folder))
        options = ["--scheduler-name", it.name, "--config", str(config), "--no-leader-elect", *arguments]
        options = (
            options if "--metrics-address" in options else [*options, "--metrics-address", "127.0.0.1:0"]
        )
        with started("scheduler", "--kubeconfig", kubeconfig, *options) as process:
            found = Site(it, proxy, process, control_plane.kubeconfig, config)
            try:
                await found.ready()
                yield found
            finally:
                process.kill()


def member(it: World, name: str, workload: str, cpu: str = "1") -> Object:
    pod = it.pod(name, 0, cpu=cpu)
    pod["metadata"]["labels"] = {APP: "shop", WORKLOAD: workload}
    return pod


async def application(it: World) -> None:
    """web calls db; from north to south that costs 8."""
    origin = {"origin": "north", "costList": [{"destination": "south", "networkCost": 8}]}
    topologies = [{"topologyKey": ZONE_LABEL, "originList": [origin]}]
    weights = {"weights": [{"algorithmName": "UserDefined", "topologyList": topologies}]}
    await create(it, "NetworkTopology", "costs", {"configmapName": "none"})
    path = f"/apis/scheduling.sigs.k8s.io/v1alpha1/namespaces/{it.namespace}/networktopologies/costs/status"
    await it.api.patch(path, {"status": weights})
    workloads = [
        {"name": "web", "type": "Pod", "dependencies": [{"name": "db", "type": "Pod"}]},
        {"name": "db", "type": "Pod"},
    ]
    await create(it, "AppGroup", "shop", {"numMembers": 3, "Pods": workloads})
    await it.create(member(it, "db-0", "db"), member(it, "web-0", "web"), member(it, "web-1", "web", MUCH))


def test_it_shows_what_was_decided_though_a_new_decision_would_differ(
    control_plane: ControlPlane, namespace: str, tmp_path: Path
) -> None:
    """A gang and pods that are bound, a gang and a pod that wait, an application of which one pod waits."""

    async def run() -> None:
        async with site(control_plane, namespace, tmp_path) as here:
            it = here.it
            await it.gang("train", 2, required="rack", gpus=8)
            await it.bound(2)
            await it.create(it.pod("solo", 0))
            await it.bound(3)
            await application(it)
            await it.bound(5)
            await it.create(it.pod("huge", 0, cpu=MUCH))
            await it.create_group("wide", 2, required="rack")
            await it.create(*(it.pod(f"wide-{i}", 0, cpu=MUCH, gang="wide") for i in range(2)))
            for name in ("huge", "web-1", "wide-0"):
                await it.refusal(name)
            await until_said(it, "wide", "GangDoesNotFit")
            await here.cut_off()
            async with joined(it.api, [ROOMY]):
                await the_scheduler_is_asked(here)
                await its_status_is_read(here)
                await it_does_not_answer(here)

    asyncio.run(run())


async def the_scheduler_is_asked(here: Site) -> None:
    """Each fact is the scheduler's own, with its token and time; what would be decided now stands beside."""
    it = here.it
    huge, last = await asked_and_served(here, "pod/huge", "huge?item=pod")
    assert huge["decided"] == {"source": "scheduler", "scheduler": it.name, "time": last["time"]}
    assert last["time"].startswith("20")
    assert (huge["reason"], huge["pods"][0]["reason"]) == ("InsufficientResources", "InsufficientResources")
    assert (huge["pods"][0]["node"], huge["pods"][0]["message"]) == (None, last["message"])
    assert huge["story"][-1]["reason"] == "InsufficientResources"
    assert (huge["now"]["scheduled"], huge["now"]["reason"]) == (1, None)
    assert "notAsked" not in huge

    solo = await here.asked("pod/solo")
    placed = await it.placed()
    (one,) = solo["decisions"]
    assert (one["node"], one["source"]) == (placed["solo"], "pod")
    assert one["time"] == (await here.condition("solo"))["lastTransitionTime"]
    chosen = (await last_of(here, "solo?item=pod"))["time"]
    assert any(chosen in sentence for sentence in solo["sentences"])

    wide, last = await asked_and_served(here, "podgroup/wide", "wide?item=gang")
    assert wide["decided"] == {"source": "scheduler", "scheduler": it.name, "time": last["time"]}
    assert (wide["reason"], wide["gang"]["message"]) == ("GangDoesNotFit", last["message"])
    assert {(one["reason"], one["source"]) for one in wide["decisions"]} == {("GangDoesNotFit", "scheduler")}
    assert wide["now"]["scheduled"] == 2

    train, last = await asked_and_served(here, "podgroup/train", "train?item=gang")
    assert train["decided"] == {"source": "scheduler", "scheduler": it.name, "time": last["time"]}
    assert {one["node"] for one in train["decisions"]} == {placed["train-0"], placed["train-1"]}

    shop, last = await asked_and_served(here, "appgroup/shop", "shop?item=application")
    assert shop["decided"] == {"source": "scheduler", "scheduler": it.name, "time": last["time"]}
    far = placed["db-0"][:2] != placed["web-0"][:2]
    near = 0 if placed["db-0"] == placed["web-0"] else 1
    assert shop["appGroup"]["cost"] == (8 if far else near)
    by_name = {one["name"]: one for one in shop["decisions"]}
    assert {name: one["node"] for name, one in by_name.items()} == {
        "db-0": placed["db-0"],
        "web-0": placed["web-0"],
        "web-1": None,
    }
    assert (by_name["web-1"]["source"], by_name["web-1"]["reason"]) == ("scheduler", "InsufficientResources")
    assert by_name["db-0"]["time"] == (await here.condition("db-0"))["lastTransitionTime"]
    assert shop["reason"] == "InsufficientResources" and shop["now"]["scheduled"] == 3
    web = await here.asked("pod/web-1")
    assert (web["decided"]["source"], web["reason"]) == ("scheduler", "InsufficientResources")


async def its_status_is_read(here: Site) -> None:
    """Without asking, a gang's decision is in its status, and a pod's condition has upstream's word only."""
    it = here.it
    wide = await here.explain("podgroup/wide", "--scheduler", "off")
    assert (wide["decided"]["source"], wide["reason"]) == ("status", "GangDoesNotFit")
    assert wide["decided"]["time"] == wide["lastDecision"]["time"]
    huge = await here.explain("pod/huge", "--scheduler", "off")
    condition = await here.condition("huge")
    assert huge["decided"] == {"source": "pod", "scheduler": None, "time": condition["lastTransitionTime"]}
    assert (huge["reason"], huge["pods"][0]["message"]) == ("Unschedulable", condition["message"])
    assert huge["now"]["scheduled"] == 1 and "story" not in huge and "notAsked" not in huge
    shop = await here.explain("appgroup/shop", "--scheduler", "off")
    assert (shop["decided"]["source"], shop["reason"]) == ("pod", "Unschedulable")
    assert shop["appGroup"]["cost"] is not None and shop["appGroup"]["scheduled"] == 2
    shown = await here.explain("appgroup/shop", "--scheduler", "off", output="table")
    assert (await it.placed())["db-0"] in shown


async def it_does_not_answer(here: Site) -> None:
    """That is no error: the rest is shown, with what to do."""
    here.process.kill()
    await asyncio.to_thread(here.process.wait)
    for where in (here.url, here.it.namespace, "none"):
        found = await here.explain("pod/huge", "--scheduler", where)
        assert found["decided"]["source"] == "pod" and found["reason"] == "Unschedulable"
        assert found["notAsked"]["message"] and "--scheduler" in found["notAsked"]["remedy"]


async def asked_and_served(here: Site, subject: str, path: str) -> tuple[Any, Any]:
    """An explanation and the newest entry of the story; what waits may be decided again in between."""
    while True:
        before = await last_of(here, path)
        found = await here.asked(subject)
        if before == await last_of(here, path):
            return found, before


async def last_of(here: Site, path: str) -> Any:
    """The newest entry of a story, as the scheduler serves it."""
    url = f"{here.url}/stories/{here.it.namespace}/{path}"
    async with aiohttp.ClientSession() as session, session.get(url) as answer:
        assert answer.status == 200
        return (await answer.json())["entries"][-1]


def test_a_pod_that_took_the_name_of_another(
    control_plane: ControlPlane, namespace: str, tmp_path: Path
) -> None:
    """A story is about a pod by its uid: of the new one no decision is known."""

    async def run() -> None:
        async with site(control_plane, namespace, tmp_path) as here:
            await here.it.create(here.it.pod("huge", 0, cpu=MUCH))
            await here.it.refusal("huge")
            await here.cut_off()
            await here.it.delete("huge")
            await here.it.create(here.it.pod("huge", 0))
            found = await here.asked("pod/huge")
            assert found["decided"]["source"] == "command" and found["reason"] is None
            assert found["story"][-1]["reason"] == "InsufficientResources"

    asyncio.run(run())


def test_the_pod_of_another_scheduler_is_not_asked_about(
    control_plane: ControlPlane, namespace: str, tmp_path: Path
) -> None:
    async def run() -> None:
        async with site(control_plane, namespace, tmp_path) as here:
            await here.it.create(here.it.pod("theirs", schedulerName="gpu-scheduler"))
            found = await here.asked("pod/theirs")
            assert (found["decided"]["source"], found["reason"]) == ("pod", None)
            assert "story" not in found and "notAsked" not in found
            # Asked as that scheduler's, the one that answers is another.
            found = await here.explain(
                "pod/theirs", "--scheduler", here.url, "--scheduler-name", "gpu-scheduler"
            )
            assert here.it.name in found["notAsked"]["message"]

    asyncio.run(run())


@pytest.mark.parametrize("status", [200, 404])
def test_a_scheduler_of_an_older_version(
    control_plane: ControlPlane, namespace: str, tmp_path: Path, status: int
) -> None:
    """It has no such path, or serves stories without the fields that are needed."""

    async def answer(request: web.Request) -> web.Response:
        story = {
            "apiVersion": "closeby.dev/v1alpha1",
            "kind": "Story",
            "namespace": namespace,
            "name": "huge",
        }
        entry = {"event": 1, "what": "decided", "reason": "InsufficientResources", "waiting": 1}
        return web.json_response({**story, "entries": [entry]}, status=status)

    async def run() -> None:
        app = web.Application()
        app.router.add_get("/stories/{namespace}/{name}", answer)
        runner = web.AppRunner(app)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        try:
            async with world(control_plane, namespace, *HOSTS) as it:
                await it.create(it.pod("huge", 0, cpu=MUCH))
                url = f"http://127.0.0.1:{runner.addresses[0][1]}"
                arguments = ("--scheduler-name", it.name, "--scheduler", url, "-o", "json")
                done = await asyncio.to_thread(
                    closeby,
                    "explain",
                    f"{namespace}/huge",
                    *arguments,
                    "--kubeconfig",
                    control_plane.kubeconfig,
                )
                assert done.exit_code == 0, done.stderr
                found = json.loads(done.stdout)
                assert found["notAsked"]["remedy"] == "update the scheduler"
                assert (found["decided"]["source"], found["reason"]) == ("command", "InsufficientResources")
        finally:
            await runner.cleanup()

    asyncio.run(run())


def own_address() -> str | None:
    """An address of this machine that an API server connects to; it refuses that of the loopback."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("198.51.100.1", 9))  # Nothing is sent.
            found = str(probe.getsockname()[0])
        except OSError:
            return None
    return None if found.startswith(("127.", "169.254.")) else found


async def its_pod(it: World, name: str, address: str, port: int, scheme: str) -> None:
    """A pod that a scheduler's process would run in, with the chart's labels, port and probe."""
    probe = {"httpGet": {"path": "/readyz", "port": "metrics", "scheme": scheme}}
    container = {
        "name": "scheduler",
        "image": "none",
        "ports": [{"name": "metrics", "containerPort": port}],
        "readinessProbe": probe,
    }
    labels = {"app.kubernetes.io/name": "closeby", "app.kubernetes.io/component": "scheduler"}
    pod = {
        "metadata": {"name": name, "labels": labels},
        "spec": {"nodeName": "r2-2", "containers": [container]},
    }
    await it.create(pod)

    async def runs() -> bool:
        found = (await it.pods())[name]
        return bool(found["status"].get("phase") == "Running")

    await until(runs)
    path = f"/api/v1/namespaces/{it.namespace}/pods/{name}/status"
    addresses = {"podIP": address, "podIPs": [{"ip": address}]}
    await it.api.patch(path, {"status": addresses}, kind="strategic")


@pytest.mark.parametrize("secure", [False, True])
def test_it_asks_through_the_api_server(
    control_plane: ControlPlane, namespace: str, tmp_path: Path, secure: bool
) -> None:
    address, token = own_address(), control_plane.access().token
    if address is None or not control_plane.ours or token is None:
        pytest.skip("needs an API server on this machine, which has an address besides the loopback's")
    arguments = ("--metrics-address", ":0", *(["--metrics-secure"] if secure else []))

    async def run() -> None:
        async with site(control_plane, namespace, tmp_path, *arguments) as here:
            await here.it.create(here.it.pod("huge", 0, cpu=MUCH))
            await here.it.refusal("huge")
            await its_pod(here.it, "closeby-scheduler", address, here.port, "HTTPS" if secure else "HTTP")
            given = ["--scheduler", namespace]
            if secure:
                without = await here.explain("pod/huge", *given)
                assert "--scheduler-token-file" in without["notAsked"]["remedy"]
                file = tmp_path / "token"
                file.write_text(token)
                given += ["--scheduler-token-file", str(file)]
                wrong = tmp_path / "wrong"
                wrong.write_text("nonsense")
                refused = await here.explain("pod/huge", *given[:2], "--scheduler-token-file", str(wrong))
                assert "token" in refused["notAsked"]["message"]
            found = await here.explain("pod/huge", *given)
            assert "notAsked" not in found, found["notAsked"]
            assert (found["decided"]["source"], found["decided"]["scheduler"]) == ("scheduler", here.it.name)
            assert found["reason"] == "InsufficientResources"
            if not secure:
                await a_user_without_the_right(here, control_plane, tmp_path)

    asyncio.run(run())


class Listener:
    """A server that knows no story, and keeps the headers by which it was shown a token."""

    def __init__(self) -> None:
        self.port = 0
        self.shown: list[dict[str, str]] = []

    async def answer(self, request: web.Request) -> web.Response:
        names = ("Authorization", FORWARDED_TOKEN)
        self.shown.append({name: request.headers[name] for name in names if name in request.headers})
        return web.json_response({}, status=404)


@asynccontextmanager
async def listening(host: str, tls: ssl.SSLContext | None = None) -> AsyncIterator[Listener]:
    listener = Listener()
    app = web.Application()
    app.router.add_get("/stories/{namespace}/{name}", listener.answer)
    runner = web.AppRunner(app)
    await runner.setup()
    try:
        await web.TCPSite(runner, host, 0, ssl_context=tls).start()
        listener.port = runner.addresses[0][1]
        yield listener
    finally:
        await runner.cleanup()


def test_the_token_goes_to_no_pod_that_serves_plain_http(
    control_plane: ControlPlane, namespace: str, tmp_path: Path
) -> None:
    address = own_address()
    if address is None or not control_plane.ours:
        pytest.skip("needs an API server on this machine, which has an address besides the loopback's")
    certificate, key = Authority(tmp_path).issue("scheduler", address)
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    tls.load_cert_chain(certificate, key)
    token = tmp_path / "token"
    token.write_text("secret")

    async def run() -> None:
        async with (
            world(control_plane, namespace, *HOSTS) as it,
            listening(address) as plain,
            listening(address, tls) as secure,
        ):
            await it.create(it.pod("huge", 0, cpu=MUCH))
            await its_pod(it, "plain", address, plain.port, "HTTP")
            await its_pod(it, "secure", address, secure.port, "HTTPS")
            options = ("--scheduler-name", it.name, "--kubeconfig", control_plane.kubeconfig)
            asked = ("--scheduler", namespace, "--scheduler-token-file", str(token))
            done = await asyncio.to_thread(closeby, "explain", f"{namespace}/huge", *options, *asked)
            assert done.exit_code == 0, done.stderr
            assert plain.shown == [{}]
            assert secure.shown == [{FORWARDED_TOKEN: "Bearer secret"}]

    asyncio.run(run())


def test_the_token_goes_to_no_url_of_another_machine_over_plain_http(
    control_plane: ControlPlane, namespace: str, tmp_path: Path
) -> None:
    """A kubectl port-forward listens on this machine, where nobody is on the way."""
    address = own_address()
    if address is None:
        pytest.skip("needs an address besides the loopback's")
    token = tmp_path / "token"
    token.write_text("secret")

    async def run() -> None:
        async with (
            world(control_plane, namespace, *HOSTS) as it,
            listening(address) as far,
            listening("127.0.0.1") as near,
        ):
            await it.create(it.pod("huge", 0, cpu=MUCH))

            async def explained(url: str, *more: str) -> Any:
                options = ("--scheduler-name", it.name, "--kubeconfig", control_plane.kubeconfig)
                return await asyncio.to_thread(
                    closeby, "explain", f"{namespace}/huge", *options, "--scheduler", url, *more
                )

            shows = ("--scheduler-token-file", str(token))
            refused = await explained(f"http://{address}:{far.port}", *shows)
            assert (refused.exit_code, refused.stdout, far.shown) == (2, "", [])
            assert "--scheduler-token-file" in refused.stderr and "https://" in refused.stderr
            assert (await explained(f"http://{address}:{far.port}")).exit_code == 0
            assert far.shown == [{}]
            for host in ("127.0.0.1", "localhost"):
                assert (await explained(f"http://{host}:{near.port}", *shows)).exit_code == 0
            assert near.shown == [{"Authorization": "Bearer secret"}] * 2

    asyncio.run(run())


async def a_user_without_the_right(here: Site, control_plane: ControlPlane, folder: Path) -> None:
    """It may read the cluster and not pods/proxy: what to allow is said, and then it works."""
    user = unique("reader")
    rules = [{"apiGroups": ["*"], "resources": ["*"], "verbs": ["list"]}]
    rules.append({"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]})
    subjects = [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user}]
    ref = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": user}
    await here.it.api.create(f"{RBAC}/clusterroles", {"metadata": {"name": user}, "rules": rules})
    body = {"metadata": {"name": user}, "roleRef": ref, "subjects": subjects}
    await here.it.api.create(f"{RBAC}/clusterrolebindings", body)
    there = Site(
        here.it,
        here.proxy,
        here.process,
        changed(control_plane.kubeconfig, folder / "r", user=user),
        here._config,
    )
    found: Any = {}

    async def explained() -> bool:
        try:
            found.update(await there.explain("pod/huge", "--scheduler", here.it.namespace))
        except AssertionError:  # The API server has not heard of the role yet.
            return False
        return True

    try:
        await until(explained)
        assert "pods/proxy" in found["notAsked"]["remedy"]
        assert found["decided"]["source"] == "pod"
        rules.append({"apiGroups": [""], "resources": ["pods/proxy"], "verbs": ["get"]})
        await here.it.api.patch(f"{RBAC}/clusterroles/{user}", {"rules": rules})

        async def allowed() -> bool:
            found.clear()
            return await explained() and "notAsked" not in found

        await until(allowed)
        assert found["decided"]["source"] == "scheduler"
    finally:
        await here.it.api.delete(f"{RBAC}/clusterrolebindings/{user}")
        await here.it.api.delete(f"{RBAC}/clusterroles/{user}")


@pytest.mark.slow
def test_one_gang_of_a_large_cluster_costs_little(control_plane: ControlPlane, namespace: str) -> None:
    """400 nodes with a pod each; what has to change for the gang is looked for too."""
    hosts = [
        node(
            unique(f"n{i}"),
            labels={RACK: f"r{i // 16}", ZONE: "z"},
            allocatable={"cpu": "4", "nvidia.com/gpu": "8"},
        )
        for i in range(400)
    ]

    async def run() -> None:
        async with world(control_plane, namespace, *hosts) as it:
            running = [it.pod(f"p{i}", 8 * (i % 2), cpu="1") for i in range(400)]
            for pod, on in zip(running, hosts, strict=True):
                pod["spec"]["nodeName"] = on["metadata"]["name"]
            await it.create(*running, *(it.pod(f"g-{i}", 8, gang="g") for i in range(17)))
            await it.create_group("g", 17, required="rack")
            options = ("-n", namespace, "--scheduler-name", it.name, "--scheduler", "off", "-o", "json")
            before = resource.getrusage(resource.RUSAGE_CHILDREN)

            def explained() -> "subprocess.CompletedProcess[str]":
                command = [sys.executable, "-m", "closeby", "explain", "g", *options]
                return subprocess.run(
                    [*command, "--kubeconfig", str(control_plane.kubeconfig)],
                    capture_output=True,
                    text=True,
                    check=False,
                )

            done = await asyncio.to_thread(explained)
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            assert json.loads(done.stdout)["reason"] == "TopologyPlacementFailed", done.stderr
            assert after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime < 2.0

    asyncio.run(run())

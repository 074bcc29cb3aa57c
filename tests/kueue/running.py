"""Kueue as a process on a control plane, with its kinds and those of its webhooks that the tests need.

The webhooks are called by URL, with an authority of the tests' own. Those for workloads whose kinds are not
served here are left out, and so are those for plain pods, Deployments and StatefulSets: they would hold up
every pod of the cluster while Kueue does not run, and no test queues such pods.
"""

import asyncio
import base64
import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from tests.certificates import Authority
from tests.control_plane.api import Api, Object
from tests.control_plane.cluster import ControlPlane
from tests.control_plane.commands import free_ports
from tests.control_plane.definitions import applied
from tests.control_plane.processes import Command, Process
from tests.kueue.building import Kueue

API = "/apis/kueue.x-k8s.io/v1beta2"
_ADMISSION = "/apis/admissionregistration.k8s.io/v1"
_PLURALS = {
    "MutatingWebhookConfiguration": "mutatingwebhookconfigurations",
    "ValidatingWebhookConfiguration": "validatingwebhookconfigurations",
}
_HOOKED = frozenset({"kueue.x-k8s.io", "batch"})


@contextlib.contextmanager
def kueue_runs(kueue: Kueue, control_plane: ControlPlane, folder: Path) -> Iterator[Process]:
    """Kueue runs inside the context, and its webhooks are asked; its log is in ``folder``."""
    folder.mkdir(parents=True, exist_ok=True)
    authority = Authority(folder)
    # The names of the files are those that Kueue looks for.
    authority.issue("tls", "localhost", "127.0.0.1")
    webhooks, health, metrics = free_ports(3)
    settings = folder / "kueue.yaml"
    settings.write_text(yaml.safe_dump(_configuration(folder, webhooks, health, metrics)))
    command = Command(
        arguments=[
            str(kueue.program),
            f"--config={settings}",
            "--zap-log-level=3",
            # It would serve an API of its own, on a port that can't be chosen.
            "--feature-gates=VisibilityOnDemand=false",
        ],
        ready_url=f"http://127.0.0.1:{health}/readyz",
        environment={"KUBECONFIG": str(control_plane.kubeconfig), "KUEUE_METRICS_CERTS": str(folder)},
    )
    process = Process("kueue", command, folder / "kueue.log")
    definitions = [yaml.safe_load(path.read_text()) for path in kueue.definitions]
    asyncio.run(_prepare(control_plane, definitions))
    process.start()
    try:
        hooks = list(yaml.safe_load_all(kueue.webhooks.read_text()))
        asyncio.run(_hook(control_plane, hooks, webhooks, authority.path.read_bytes()))
        yield process
    finally:
        process.stop()


async def _prepare(control_plane: ControlPlane, definitions: list[Object]) -> None:
    async with Api(control_plane.access()) as api:
        for one in definitions:
            await applied(api, one)
        await api.create("/api/v1/namespaces", {"metadata": {"name": "kueue-system"}})


def _configuration(folder: Path, webhooks: int, health: int, metrics: int) -> Object:
    return {
        "apiVersion": "config.kueue.x-k8s.io/v1beta2",
        "kind": "Configuration",
        "health": {"healthProbeBindAddress": f"127.0.0.1:{health}"},
        "metrics": {"bindAddress": f"127.0.0.1:{metrics}"},
        "webhook": {"host": "127.0.0.1", "port": webhooks, "certDir": str(folder)},
        "leaderElection": {"leaderElect": False},
        "internalCertManagement": {"enable": False},
        "integrations": {"frameworks": ["batch/job"]},
    }


async def _hook(
    control_plane: ControlPlane, configurations: list[Object], port: int, authority: bytes
) -> None:
    bundle = base64.b64encode(authority).decode()
    async with Api(control_plane.access()) as api:
        for found in configurations:
            hooks = [one for one in found["webhooks"] if set(_groups(one)) <= _HOOKED]
            for one in hooks:
                path = one["clientConfig"]["service"]["path"]
                one["clientConfig"] = {"url": f"https://127.0.0.1:{port}{path}", "caBundle": bundle}
            made = {**found, "metadata": {"name": "kueue"}, "webhooks": hooks}
            await api.create(f"{_ADMISSION}/{_PLURALS[found['kind']]}", made)


def _groups(hook: dict[str, Any]) -> list[str]:
    return [group for rule in hook["rules"] for group in rule["apiGroups"]]

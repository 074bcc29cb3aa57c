"""The chart's rights in a real cluster, and programs that run with them and nothing else."""

import asyncio
import contextlib
import re
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp

from tests.control_plane.access import write_kubeconfig_as
from tests.control_plane.api import Api, Object
from tests.control_plane.cluster import ControlPlane
from tests.control_plane.definitions import define
from tests.deploy.helm import objects, rendered
from tests.kube.live import eventually

_POLICIES = "/apis/admissionregistration.k8s.io/v1"
_PATHS = {
    "ServiceAccount": "/api/v1/namespaces/{namespace}/serviceaccounts",
    "Role": "/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}/roles",
    "RoleBinding": "/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}/rolebindings",
    "ClusterRole": "/apis/rbac.authorization.k8s.io/v1/clusterroles",
    "ClusterRoleBinding": "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
    "ValidatingAdmissionPolicy": f"{_POLICIES}/validatingadmissionpolicies",
    "ValidatingAdmissionPolicyBinding": f"{_POLICIES}/validatingadmissionpolicybindings",
}


@dataclass(frozen=True)
class Release:
    """What was rendered for one namespace, after which everything in it is called."""

    namespace: str
    objects: list[dict[str, Any]]

    def account(self, component: str) -> str:
        """Name of a component's service account."""
        return f"{self.namespace}-{component}"

    def user(self, component: str) -> str:
        """As the API server calls the component."""
        return f"system:serviceaccount:{self.namespace}:{self.account(component)}"

    def arguments(self, component: str, folder: Path) -> list[str]:
        """Those of the component's container, for this machine: it listens on a port of its own choice.

        What its container finds in /etc/closeby is in ``folder``.
        """
        for one in self.objects:
            if one["kind"] == "ConfigMap":
                for name, content in one["data"].items():
                    (folder / name).write_text(content)
        given = [str(one).replace("/etc/closeby", str(folder)) for one in self.container(component)["args"]]
        return [one.replace("=:8080", "=127.0.0.1:0") for one in given]

    def container(self, component: str) -> dict[str, Any]:
        """The only one of the component's pods."""
        found: dict[str, Any]
        (found,) = (
            container
            for one in self.objects
            if one["kind"] == "Deployment" and one["metadata"]["name"] == self.account(component)
            for container in one["spec"]["template"]["spec"]["containers"]
        )
        return found


@contextlib.asynccontextmanager
async def installed(helm: Path, api: Api, namespace: str, *more: str) -> AsyncIterator[Release]:
    """The definitions and the rights of a release, with a scheduler name of its own, inside the context.

    ``more`` are arguments of helm.
    """
    text = rendered(
        helm,
        f"--namespace={namespace}",
        "--set",
        f"fullnameOverride={namespace},configuration.schedulerName={namespace}",
        *more,
    )
    release = Release(namespace, objects(text))
    await define(api)
    paths = []
    try:
        for one in release.objects:
            path = _PATHS.get(one["kind"])
            if path is not None:
                await api.create(path.format(namespace=namespace), one)
                paths.append(f"{path.format(namespace=namespace)}/{one['metadata']['name']}")
        await asyncio.gather(*(_known(api, one) for one in _granted(release)))
        yield release
    finally:
        for path in paths:
            await api.delete(path)


async def allowed(api: Api, user: str, verb: str, resource: str, **more: str) -> bool:
    """Whether the API server would let this service account do it; ``resource`` is ``group/resource``."""
    group, _, plural = resource.rpartition("/")
    plural, _, part = plural.partition(":")
    asked = {"verb": verb, "group": group, "resource": plural, "subresource": part, **more}
    return await _reviewed(api, user, resourceAttributes=asked)


async def _reviewed(api: Api, user: str, **asked: Object) -> bool:
    namespace = user.split(":")[2]
    groups = ["system:serviceaccounts", f"system:serviceaccounts:{namespace}", "system:authenticated"]
    review = {"spec": {"user": user, "groups": groups, **asked}}
    answer = await api.create("/apis/authorization.k8s.io/v1/subjectaccessreviews", review)
    return bool(answer["status"]["allowed"])


async def kubeconfig(
    control_plane: ControlPlane, api: Api, release: Release, component: str, pod: Object | None = None
) -> Path:
    """A file with a token of the component's service account, as its pods (or ``pod``) get one."""
    account = release.account(component)
    asked: Object = {"expirationSeconds": 3600}
    if pod is not None:
        named = {key: pod["metadata"][key] for key in ("name", "uid")}
        asked["boundObjectRef"] = {"apiVersion": "v1", "kind": "Pod", **named}
    answer = await api.create(
        f"/api/v1/namespaces/{release.namespace}/serviceaccounts/{account}/token", {"spec": asked}
    )
    path = control_plane.kubeconfig.parent / f"{account}.kubeconfig"
    return write_kubeconfig_as(
        path, control_plane.kubeconfig, account, answer["status"]["token"], release.namespace
    )


async def probes(release: Release, component: str, log: Path) -> dict[str, int]:
    """What the component answers to the probes of its container, by the kind of probe."""
    answers, port = {}, port_told(log)
    async with aiohttp.ClientSession() as session:
        for kind, probe in release.container(component).items():
            if kind.endswith("Probe"):
                asked = probe["httpGet"]
                url = f"{asked['scheme'].lower()}://127.0.0.1:{port}{asked['path']}"
                # The kubelet checks no certificate either.
                async with session.get(url, ssl=False) as answer:
                    answers[kind] = answer.status
    return answers


def port_told(log: Path) -> int:
    """Where the component serves its metrics, as it says in its log."""
    (port,) = re.findall(r'msg="serving metrics" .*\bport=(\d+)', log.read_text())
    return int(port)


@contextlib.contextmanager
def running(arguments: list[str], kubeconfig: Path, log: Path) -> Iterator[None]:
    """`closeby` with these arguments inside the context; it must still run at its end, and stop when told."""
    command = [sys.executable, "-m", "closeby", *arguments, "--kubeconfig", str(kubeconfig)]
    with log.open("w") as output, subprocess.Popen(command, stdout=output, stderr=output) as process:
        try:
            yield
            assert process.poll() is None, log.read_text()
        finally:
            process.terminate()
            try:
                process.wait(60)
            except subprocess.TimeoutExpired:
                process.kill()
                raise
    assert process.returncode == 0, log.read_text()


@dataclass(frozen=True)
class _Right:
    """Something that a rule of a role lets somebody do, in one namespace or everywhere.

    Without a resource ``where`` has a path.
    """

    user: str
    verb: str
    resource: str
    where: dict[str, str]


def _granted(release: Release) -> Iterator[_Right]:
    """One right of each rule of each role that somebody is given."""
    roles = {(one["kind"], one["metadata"]["name"]): one for one in release.objects if "Role" in one["kind"]}
    for binding in release.objects:
        if binding["kind"] not in ("RoleBinding", "ClusterRoleBinding"):
            continue
        where = {"namespace": release.namespace} if binding["kind"] == "RoleBinding" else {}
        role = roles[binding["roleRef"]["kind"], binding["roleRef"]["name"]]
        for subject in binding["subjects"]:
            user = f"system:serviceaccount:{subject['namespace']}:{subject['name']}"
            for rule in role["rules"]:
                if "nonResourceURLs" in rule:
                    yield _Right(user, rule["verbs"][0], "", {"path": rule["nonResourceURLs"][0]})
                    continue
                resource = f"{rule['apiGroups'][0]}/{rule['resources'][0].replace('/', ':')}"
                names = rule.get("resourceNames")
                named = {"name": names[0]} if names else {}
                yield _Right(user, rule["verbs"][0], resource, where | named)


async def _known(api: Api, right: _Right) -> None:
    """The API server learns of roles, and of who has them, through watches of its own."""

    async def known() -> bool:
        if not right.resource:
            return await _reviewed(api, right.user, nonResourceAttributes={"verb": right.verb, **right.where})
        return await allowed(api, right.user, right.verb, right.resource, **right.where)

    try:
        await eventually(known)
    except TimeoutError as error:
        raise AssertionError(f"the API server does not learn of {right}") from error

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
from tests.control_plane.api import Api, Object, delete_namespace
from tests.control_plane.cluster import ControlPlane
from tests.control_plane.definitions import CRDS, define
from tests.deploy.helm import CHART, PLAIN, called, objects, rendered
from tests.kube.live import eventually

_POLICIES = "/apis/admissionregistration.k8s.io/v1"
#: Where objects of each kind are made; first what gives rights.
_PATHS = {
    "ServiceAccount": "/api/v1/namespaces/{namespace}/serviceaccounts",
    "Role": "/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}/roles",
    "RoleBinding": "/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}/rolebindings",
    "ClusterRole": "/apis/rbac.authorization.k8s.io/v1/clusterroles",
    "ClusterRoleBinding": "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
    "ValidatingAdmissionPolicy": f"{_POLICIES}/validatingadmissionpolicies",
    "ValidatingAdmissionPolicyBinding": f"{_POLICIES}/validatingadmissionpolicybindings",
}
_OTHER_PATHS = {
    "Namespace": "/api/v1/namespaces",
    "ConfigMap": "/api/v1/namespaces/{namespace}/configmaps",
    "Service": "/api/v1/namespaces/{namespace}/services",
    "Deployment": "/apis/apps/v1/namespaces/{namespace}/deployments",
    "NetworkPolicy": "/apis/networking.k8s.io/v1/namespaces/{namespace}/networkpolicies",
    "PodDisruptionBudget": "/apis/policy/v1/namespaces/{namespace}/poddisruptionbudgets",
    "CustomResourceDefinition": CRDS,
}


@dataclass(frozen=True)
class Release:
    """What was rendered for one namespace; everything in it is called after that, or by ``name``."""

    namespace: str
    objects: list[dict[str, Any]]
    name: str = ""

    def account(self, component: str) -> str:
        """Name of a component's service account, and of its Deployment and Lease."""
        return f"{self.name or self.namespace}-{component}"

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
    release = Release(namespace, objects(rendered(helm, *naming(namespace), *more)))
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


def naming(namespace: str) -> tuple[str, ...]:
    """Arguments of helm for a release in the namespace that is called like it, its scheduler too."""
    names = f"fullnameOverride={namespace},configuration.schedulerName={namespace}"
    return f"--namespace={namespace}", "--set", names


def helm_says(helm: Path, control_plane: ControlPlane, *arguments: str, namespace: str | None = None) -> str:
    """What a command of helm prints that must succeed.

    Its second argument names the release; that is in the namespace of its name unless another one is given.
    """
    where = ("--namespace", namespace or arguments[1], "--kubeconfig", str(control_plane.kubeconfig))
    done = called(helm, *arguments, *where)
    assert done.returncode == 0, done.stderr
    return done.stdout


@contextlib.asynccontextmanager
async def installed_by_helm(
    helm: Path, control_plane: ControlPlane, api: Api, namespace: str
) -> AsyncIterator[Release]:
    """A release as an operator installs it, in a namespace that it makes, inside the context."""
    # As other tests left them: not as Helm's.
    await define(api)
    asked = (str(CHART), *naming(namespace)[1:], "--create-namespace", "--take-ownership")
    await asyncio.to_thread(helm_says, helm, control_plane, "install", namespace, *asked)
    release = Release(namespace, objects(rendered(helm, *naming(namespace))))
    try:
        await asyncio.gather(*(_known(api, one) for one in _granted(release)))
        yield release
    finally:
        await asyncio.to_thread(helm_says, helm, control_plane, "uninstall", namespace)
        await removed(api, namespace)


@contextlib.asynccontextmanager
async def applied_plain(api: Api) -> AsyncIterator[Release]:
    """The plain YAML as it is, inside the context; the definitions stay."""
    release = Release("closeby-system", objects(PLAIN.read_text()), "closeby")
    try:
        for one in release.objects:
            await apply(api, one)
        await asyncio.gather(*(_known(api, one) for one in _granted(release)))
        yield release
    finally:
        for one in release.objects:
            if one["kind"] not in ("CustomResourceDefinition", "Namespace"):
                await api.delete(path_of(one))
        await removed(api, release.namespace)


async def removed(api: Api, namespace: str) -> None:
    """Deletes a namespace whose name others need, and waits until it is gone."""

    async def gone() -> bool:
        found = await api.get("/api/v1/namespaces", fieldSelector=f"metadata.name={namespace}")
        return not found["items"]

    await delete_namespace(api, namespace)
    await eventually(gone, 60)


def path_of(one: dict[str, Any]) -> str:
    """Where the API server has the object."""
    path = (_PATHS | _OTHER_PATHS)[one["kind"]].format(namespace=one["metadata"].get("namespace"))
    return f"{path}/{one['metadata']['name']}"


async def apply(api: Api, one: dict[str, Any]) -> Object:
    """As ``kubectl apply --server-side`` does it; the object as it stands then."""
    return await api.patch(path_of(one), one, kind="apply", fieldManager="kubectl", force="true")


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

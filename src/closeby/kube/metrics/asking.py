"""Asks a scheduler at work for its story of one item: at an address, or through the API server's proxy.

Through the proxy the API server connects to the scheduler's pod. It passes on neither the user's token nor a
certificate, so a scheduler with secure metrics wants a token of its own, in a header that is passed on. That
token is sent over HTTPS only, or within this machine.
"""

import asyncio
import ipaddress
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import msgspec
from msgspec import Struct

from closeby.kube.client.connection import Connection, connection_to
from closeby.kube.client.credentials import TokenFile
from closeby.kube.client.errors import CERTIFICATE, CHECK_KUBECONFIG, ApiError, decoded
from closeby.kube.client.transport import Limits, Request, Retry, Transport
from closeby.kube.client.waiting import RequestPace
from closeby.kube.metrics.serving import FORWARDED_TOKEN
from closeby.kube.watch.resources import PODS, path_of
from closeby.objects.bounds import line
from closeby.objects.reasons import Problem
from closeby.objects.recorded import Story
from closeby.scheduling.outcomes import ItemKind

#: Where the chart and the plain YAML put the scheduler.
DEFAULT_NAMESPACE: Final = "closeby-system"
#: The pods of schedulers, by the labels of the chart and the plain YAML.
_SELECTOR: Final = "app.kubernetes.io/name=closeby,app.kubernetes.io/component=scheduler"
#: Seconds for one answer: an explanation without the scheduler's story is better than a long wait.
_WITHIN: Final = 5.0
_LIMITS: Final = Limits(attempts=2, pace=RequestPace(0.1, 0.5), answer_within=_WITHIN, connect_within=3.0)
#: The container port's name and the default of a pod that does not name it.
_PORT_NAME: Final = "metrics"
_PORT: Final = 8080
#: Bytes of a story; a scheduler bounds its entries, texts and pods.
LONGEST_STORY: Final = 4 * 1024 * 1024
#: Bytes of one text of it.
_TEXT: Final = 4096
_NUMBER: Final = 2**63 - 1


class SchedulerAddress(Struct, frozen=True, kw_only=True):
    """Where a scheduler is asked: at ``url``, else in the pods of ``namespace``."""

    url: str | None = None
    namespace: str = DEFAULT_NAMESPACE
    #: A bearer token that may ``get`` ``/stories``; and for ``url``: PEM, or whether to take any certificate.
    token_file: str | None = None
    ca_file: str | None = None
    insecure: bool = False

    @property
    def exposes_token(self) -> bool:
        """Whether the token would be sent unencrypted to another machine."""
        if self.url is None or self.token_file is None:
            return False
        try:
            parts = urlsplit(self.url)
        except ValueError:  # Nothing is sent there.
            return False
        return parts.scheme == "http" and not _is_loopback(parts.hostname or "")


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


class _Meta(Struct):
    name: str


class _ContainerPort(Struct, rename="camel"):
    name: str = ""
    container_port: int = _PORT


class _HttpGet(Struct):
    scheme: str = "HTTP"


class _Probe(Struct, rename="camel"):
    http_get: _HttpGet | None = None


class _Container(Struct, rename="camel"):
    ports: list[_ContainerPort] = []
    readiness_probe: _Probe | None = None


class _Spec(Struct):
    containers: list[_Container] = []


class _Status(Struct):
    phase: str = ""


class _SchedulerPod(Struct):
    metadata: _Meta
    spec: _Spec
    status: _Status

    @property
    def endpoint(self) -> str:
        """As a proxy's path names it: scheme, name and port."""
        port, scheme = _PORT, "http"
        for container in self.spec.containers:
            for one in container.ports:
                if one.name == _PORT_NAME:
                    port, probe = one.container_port, container.readiness_probe
                    if probe is not None and probe.http_get is not None:
                        scheme = probe.http_get.scheme.lower()
        return f"{scheme}:{self.metadata.name}:{port}"


class _Pods(Struct):
    items: list[_SchedulerPod] = []


_read_pods: Final = msgspec.json.Decoder(_Pods).decode
_read_story: Final = msgspec.json.Decoder(Story).decode


async def ask_for_story(
    transport: Transport, address: SchedulerAddress, scheduler: str, kind: ItemKind, key: str
) -> Story | Problem:
    """What the scheduler of that name knows of an item (``namespace/name``); a story may be empty.

    ``transport`` is to the API server, for asking through its proxy.
    """
    if address.url is not None:
        answers = [await _at_url(address, address.url, kind, key)]
    else:
        found = await _through_proxy(transport, address, kind, key)
        if isinstance(found, Problem):
            return found
        answers = found
    return _best(answers, scheduler)


async def _at_url(address: SchedulerAddress, url: str, kind: ItemKind, key: str) -> Story | Problem:
    connection = connection_to(
        url, token_file=address.token_file, ca_file=address.ca_file, insecure=address.insecure
    )
    if isinstance(connection, Problem):
        return connection
    async with Transport(connection, _LIMITS) as direct:
        request = Request(
            path=_story_path(key), query=_query(kind), longest=LONGEST_STORY, repeats_within=_WITHIN
        )
        return _story(await direct.send(request), f"the scheduler at {connection.url}", connection)


async def _through_proxy(
    transport: Transport, address: SchedulerAddress, kind: ItemKind, key: str
) -> list[Story | Problem] | Problem:
    namespace = address.namespace
    query = {"labelSelector": _SELECTOR}
    listing = Request(
        path=PODS.collection(namespace), query=query, within=_WITHIN, repeats_within=_WITHIN, longest=None
    )
    body = await transport.send(listing)
    remedy = "name the scheduler's namespace or URL with --scheduler"
    if isinstance(body, ApiError):
        return Problem(f"pods in namespace {namespace} can't be listed: {body}", remedy)
    try:
        pods = [one for one in decoded(_read_pods, body).items if one.status.phase == "Running"]
    except msgspec.DecodeError as error:
        return Problem(f"pods in namespace {namespace} can't be read: {error}", remedy)
    if not pods:
        return Problem(f"namespace {namespace} has no running pod of a scheduler", remedy)
    shown: Mapping[str, str] = {}
    if address.token_file is not None:
        token = await TokenFile(Path(address.token_file)).authorization()
        if isinstance(token, Problem):
            return token
        shown = {FORWARDED_TOKEN: token}

    async def ask(pod: _SchedulerPod) -> Story | Problem:
        where = f"the scheduler's pod {namespace}/{pod.metadata.name}"
        secure = pod.endpoint.startswith("https:")
        if secure and not shown:
            return _wants_a_token(where)
        path = path_of("api", "v1", "namespaces", namespace, "pods", pod.endpoint, "proxy")
        request = Request(
            path=f"{path}{_story_path(key)}",
            query=_query(kind),
            # From the API server to a pod that serves plain HTTP the token could be read on the way.
            headers=shown if secure else {},
            retry=Retry.NEVER,
            within=_WITHIN,
            longest=LONGEST_STORY,
        )
        return _story(await transport.send(request), where, None)

    return list(await asyncio.gather(*map(ask, pods)))


def _story_path(key: str) -> str:
    return path_of("stories", *key.split("/", 1))


def _query(kind: ItemKind) -> Mapping[str, str]:
    return {"item": kind.value}


def _story(answer: bytes | ApiError, where: str, direct: Connection | None) -> Story | Problem:
    """The story in an answer; ``direct`` is the connection, None through the API server's proxy."""
    if isinstance(answer, ApiError):
        return _refused(answer, where, direct)
    try:
        story = _printable(decoded(_read_story, answer))
    except msgspec.DecodeError as error:
        return Problem(f"the answer of {where} can't be read: {error}", "check the address and the version")
    if not story.scheduler:
        return _older(where)
    return story


def _printable(story: Story) -> Story:
    """A story each text of which is one printable line, as those of a scheduler are anyway.

    Raises:
        msgspec.ValidationError: it has a number that no document can show.
    """
    return msgspec.convert(_texts(msgspec.to_builtins(story)), Story)


def _texts(value: Any) -> Any:
    if isinstance(value, str):
        return line(value, _TEXT)
    if isinstance(value, int) and abs(value) > _NUMBER:
        raise msgspec.ValidationError("it has a number of more than 64 bits")
    if isinstance(value, dict):
        return {key: _texts(one) for key, one in value.items()}
    return [_texts(one) for one in value] if isinstance(value, (list, tuple)) else value


def _refused(error: ApiError, where: str, direct: Connection | None) -> Problem:
    by_api_server = direct is None and not error.reason.startswith("HTTP")
    if by_api_server and error.code == 403:
        namespace = where.rpartition(" ")[2].partition("/")[0]
        return Problem(
            f"{where} can't be asked: {error}",
            f"let this user get pods/proxy in namespace {namespace}, or give its URL with --scheduler",
        )
    if direct is not None and error.reason == CERTIFICATE:
        return Problem(
            f"{where} can't be asked: {str(error).removesuffix(f'; {CHECK_KUBECONFIG}')}",
            "name who signed its certificate with --scheduler-ca-file, or accept any with "
            "--scheduler-insecure; write http:// where it serves no TLS",
        )
    if not by_api_server and error.code == 401:
        return _wants_a_token(where)
    if not by_api_server and error.code == 403:
        return Problem(
            f"{where} refuses the token",
            "bind the ClusterRole closeby-story-reader to its user, or name the user in metrics.storyReaders",
        )
    if not by_api_server and error.code == 404:
        return _older(where)
    return Problem(f"{where} can't be asked: {error}", "check that it runs; or give its URL with --scheduler")


def _wants_a_token(where: str) -> Problem:
    return Problem(
        f"{where} answers only to a bearer token that may get /stories",
        "give the file of one with --scheduler-token-file",
    )


def _older(where: str) -> Problem:
    return Problem(f"{where} is of a version that does not tell its decisions", "update the scheduler")


def _best(answers: Sequence[Story | Problem], scheduler: str) -> Story | Problem:
    """Of several replicas the one that decided last."""
    stories = [one for one in answers if isinstance(one, Story)]
    ours = [one for one in stories if one.scheduler == scheduler]
    if ours:
        return max(ours, key=lambda one: (_decided(one), len(one.entries)))
    if stories:
        names = ", ".join(dict.fromkeys(one.scheduler for one in stories))
        return Problem(
            f"the scheduler that was asked schedules the pods of {names}, not of {scheduler}",
            f"name the namespace or URL of {scheduler} with --scheduler",
        )
    return next(one for one in answers if isinstance(one, Problem))


def _decided(story: Story) -> str:
    return "" if story.last_decision is None else story.last_decision.time

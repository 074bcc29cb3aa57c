"""Who asks: the Authorization header of each request, renewed before it runs out and when it was refused.

Tokens and passwords stand in the kubeconfig file; a service account's token is in a file that the kubelet
replaces; an exec plugin is a program that prints a token or a client certificate
(https://kubernetes.io/docs/reference/access-authn-authz/authentication/#client-go-credential-plugins).
"""

import asyncio
import base64
import os
import ssl
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, Protocol
from weakref import WeakKeyDictionary

from msgspec import Struct

from closeby.objects.bounds import is_header_token
from closeby.objects.reasons import Problem

#: A token's file is read again after so many seconds, as client-go does.
REREAD_AFTER: Final = 60.0
#: A credential is renewed so many seconds before it ends, and not later than in the last tenth of its life.
RENEW_BEFORE: Final = 60.0
#: A plugin that asks a user to log in may take a while, but not forever.
PLUGIN_PATIENCE: Final = 120.0


#: What to do when a part of closeby is missing that only some clusters need.
_INSTALL_EXTRA: Final = "install it: pip install 'closeby[kube]'"


class Credentials(Protocol):
    """Where the Authorization header comes from."""

    async def authorization(self) -> str | Problem | None:
        """The header's value; None when a client certificate says who asks, or nothing does."""

    def refused(self) -> None:
        """The server answered 401: what is known is out of date."""


class Fixed(Struct, frozen=True):
    """A header that never changes."""

    header: str | None = None

    async def authorization(self) -> str | None:
        """The header."""
        return self.header

    def refused(self) -> None:
        """There is nothing else to try."""


def basic(username: str, password: str) -> Fixed:
    """User name and password."""
    return Fixed("Basic " + base64.b64encode(f"{username}:{password}".encode()).decode())


class TokenFile:
    """A token in a file that is replaced from time to time."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._header: str | None = None
        self._until = 0.0

    async def authorization(self) -> str | Problem:
        """The header, at most a minute old."""
        if self._header is None or time.monotonic() >= self._until:
            return self._read()
        return self._header

    def refused(self) -> None:
        """Reads the file again for the next request."""
        self._header = None

    def _read(self) -> str | Problem:
        try:
            token = self._path.read_text(encoding="utf-8", errors="replace").strip()
        except (OSError, ValueError) as error:
            return Problem(f"the token file {self._path} can't be read: {error}", "mount a token there")
        if not token:
            return Problem(f"the token file {self._path} is empty", "mount a token there")
        if not is_header_token(token):
            return not_a_token(f"the token file {self._path}")
        self._header = f"Bearer {token}"
        self._until = time.monotonic() + REREAD_AFTER
        return self._header


class Credential(Struct, frozen=True):
    """What a plugin gave; ``ends`` in seconds since the epoch, None when it does not say."""

    header: str | None
    ends: float | None = None


class Renewed:
    """A credential that is asked for again before it ends; requests that come together ask once."""

    def __init__(self, ask: Callable[[], Awaitable[Credential | Problem]]) -> None:
        self._ask = ask
        #: One for each event loop that asks: the lead is held in another than everything else.
        self._locks: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Lock] = WeakKeyDictionary()
        self._known: Credential | None = None
        self._until: float | None = None

    async def authorization(self) -> str | Problem | None:
        """The header, of a credential that still holds."""
        if self._known is None or self._stale():
            async with self._locks.setdefault(asyncio.get_running_loop(), asyncio.Lock()):
                if self._known is None or self._stale():
                    fault = await self._renew()
                    if fault is not None:
                        return fault
        return self._known.header if self._known else None

    def refused(self) -> None:
        """Asks again for the next request."""
        self._known = None

    def _stale(self) -> bool:
        return self._until is not None and time.time() >= self._until

    async def _renew(self) -> Problem | None:
        given = await self._ask()
        if isinstance(given, Problem):
            return given
        now = time.time()
        self._known = given
        if given.ends is None:
            self._until = None
        else:
            self._until = given.ends - min(RENEW_BEFORE, max(0.0, given.ends - now) / 10)
        return None


def exec_plugin(
    given: Mapping[str, object], folder: Path, context: ssl.SSLContext | None
) -> Renewed | Problem:
    """The program that ``users[].user.exec`` names; certificates that it gives are put into ``context``."""
    command = given.get("command")
    if not isinstance(command, str) or not command:
        return Problem("the exec plugin of the kubeconfig file names no command", "name one")
    # A path counts from the file that names it; a bare name is looked up in PATH.
    program = str(folder / command) if "/" in command else command
    settings = {**{key: value for key, value in given.items() if value is not None}, "command": program}

    async def ask() -> Credential | Problem:
        status = await _run_plugin(settings)
        return status if isinstance(status, Problem) else _credential(status, program, context)

    return Renewed(ask)


async def _run_plugin(settings: dict[str, object]) -> Mapping[str, object] | Problem:
    program = settings["command"]
    try:
        from kubernetes.aio.config import ConfigException
        from kubernetes.aio.config.exec_provider import ExecProvider
        from kubernetes.aio.config.kube_config import ConfigNode
    except ImportError:
        return Problem("exec plugins need the official Kubernetes client, which is not here", _INSTALL_EXTRA)
    try:
        async with asyncio.timeout(PLUGIN_PATIENCE):
            status: Mapping[str, object] = await ExecProvider(ConfigNode("exec", settings)).run()
    except FileNotFoundError:
        hint = settings.get("installHint")
        remedy = hint if isinstance(hint, str) else "install it, or name its full path"
        return Problem(f"the exec plugin {program} is not here", remedy)
    except (ConfigException, OSError, TypeError, KeyError) as error:
        return Problem(f"the exec plugin {program} failed: {error}", "run it by hand to see what it lacks")
    except TimeoutError:
        return Problem(f"the exec plugin {program} did not end", "run it by hand to see what it waits for")
    return status


def _credential(
    status: Mapping[str, object], program: str, context: ssl.SSLContext | None
) -> Credential | Problem:
    ends = _moment(status.get("expirationTimestamp"))
    certificate, key = status.get("clientCertificateData"), status.get("clientKeyData")
    if isinstance(certificate, str) and isinstance(key, str):
        if context is None:
            return Problem(f"the exec plugin {program} gave a certificate for a server without TLS")
        fault = load_certificate(context, certificate.encode(), key.encode(), f"of the exec plugin {program}")
        if fault is not None:
            return fault
    token = status.get("token")
    if isinstance(token, str) and token:
        if not is_header_token(token):
            return not_a_token(f"the status of the exec plugin {program}")
        return Credential(f"Bearer {token}", ends)
    if certificate is None:
        remedy = "run it by hand: its status must hold token, or clientCertificateData and clientKeyData"
        return Problem(f"the exec plugin {program} gave no credential", remedy)
    return Credential(None, ends)


def auth_provider(kubeconfig: Mapping[str, object]) -> Renewed:
    """An identity provider (``auth-provider``: OpenID Connect, Google), left to the official client.

    ``kubeconfig`` is a file's content with this user, its cluster and context alone.
    """

    async def ask() -> Credential | Problem:
        try:
            from kubernetes.aio.client import Configuration
            from kubernetes.aio.config import ConfigException
            from kubernetes.aio.config.kube_config import KubeConfigLoader
        except ImportError:
            return Problem(
                "auth-provider needs the official Kubernetes client, which is not here", _INSTALL_EXTRA
            )
        configuration = Configuration()
        try:
            await KubeConfigLoader(kubeconfig).load_and_set(configuration)
        except (ConfigException, OSError, ValueError, KeyError) as error:
            return Problem(f"the auth-provider of the kubeconfig file failed: {error}", "log in again")
        header = configuration.api_key.get("BearerToken")
        if not header:
            return Problem("the auth-provider of the kubeconfig file gave no token", "log in again")
        if not is_header_token(header.removeprefix("Bearer ")):
            return not_a_token("the answer of the auth-provider of the kubeconfig file")
        # The loader looks itself whether the token still holds.
        return Credential(header, time.time() + REREAD_AFTER)

    return Renewed(ask)


def load_certificate(context: ssl.SSLContext, certificate: bytes, key: bytes, whose: str) -> Problem | None:
    """Has new connections of ``context`` show this client certificate (both in PEM)."""
    with as_file(certificate) as certificate_file, as_file(key) as key_file:
        try:
            context.load_cert_chain(certificate_file, key_file, password="")
        except (ssl.SSLError, OSError, ValueError) as error:
            remedy = "give a certificate and its unencrypted key, both in PEM"
            return Problem(f"the client certificate {whose} can't be used: {error}", remedy)
    return None


def not_a_token(where: str) -> Problem:
    """What to say of a token that no header can hold; the token itself is never shown."""
    remedy = "give a bearer token: one line of ASCII without spaces or control characters"
    return Problem(f"{where} holds no usable token", remedy)


def _moment(text: object) -> float | None:
    if not isinstance(text, str) or not text:
        return None
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


@contextmanager
def as_file(content: bytes) -> Iterator[str]:
    """The path of a file with this content, which only this process can read; gone after the context.

    On Linux it is in memory: a container's root file system may be read-only.
    """
    if hasattr(os, "memfd_create"):
        with open(os.memfd_create("closeby"), "wb") as file:
            file.write(content)
            file.flush()
            yield f"/proc/self/fd/{file.fileno()}"
        return
    with tempfile.TemporaryDirectory(prefix="closeby-") as folder:
        path = Path(folder, "content.pem")
        path.touch(mode=0o600)
        path.write_bytes(content)
        yield str(path)

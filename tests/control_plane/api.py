"""The few requests that the tests make themselves, so that what closeby does is seen with other eyes."""

import asyncio
import contextlib
import secrets
import socket
from collections.abc import AsyncIterator, Mapping
from typing import Any, Self

import aiohttp
import msgspec

from tests.control_plane.access import Access

Object = dict[str, Any]
"""A Kubernetes object as JSON."""

_PATCHES = {
    "merge": "application/merge-patch+json",
    "strategic": "application/strategic-merge-patch+json",
    "apply": "application/apply-patch+yaml",
}


class ApiError(Exception):
    """The API server said no: the HTTP status, and `reason` and `message` of the Status it answered."""

    def __init__(self, status: int, reason: str, message: str) -> None:
        super().__init__(f"{status} {reason}: {message}")
        self.status = status
        self.reason = reason
        self.message = message


class Api:
    """A client with up to 32 requests at once; paths are as in `/api/v1/nodes`."""

    def __init__(self, access: Access, *, accept: str = "application/json") -> None:
        self._access = access
        self._accept = accept
        self._sockets: list[socket.socket] = []

    async def __aenter__(self) -> Self:
        headers = {"Accept": self._accept, "User-Agent": "closeby-tests"}
        if self._access.token is not None:
            headers["Authorization"] = f"Bearer {self._access.token}"
        self._session = aiohttp.ClientSession(
            self._access.server,
            headers=headers,
            connector=aiohttp.TCPConnector(ssl=self._access.tls, limit=0, socket_factory=self._socket),
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=10),
        )
        self._slots = asyncio.Semaphore(32)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._session.close()
        # A request that was given up leaves its connection waiting for the server's farewell, past the end of
        # the event loop if the server is frozen.
        while left := self._open_sockets():
            for each in left:
                # One that the server has reset is not connected any more.
                with contextlib.suppress(OSError):
                    each.shutdown(socket.SHUT_RDWR)
            await asyncio.sleep(0.001)

    def _socket(self, address: aiohttp.AddrInfoType) -> socket.socket:
        made = socket.socket(*address[:3])
        made.setblocking(False)
        self._sockets = [*self._open_sockets(), made]
        return made

    def _open_sockets(self) -> list[socket.socket]:
        return [each for each in self._sockets if each.fileno() != -1]

    async def get(self, path: str, **query: str) -> Object:
        """One object, or a list of them."""
        return await self._request("GET", path, query=query)

    async def create(self, path: str, body: Mapping[str, Any]) -> Object:
        """POSTs to the path of the collection, or of a subresource such as `binding`."""
        return await self._request("POST", path, body=body)

    async def patch(self, path: str, body: Mapping[str, Any], *, kind: str = "merge", **query: str) -> Object:
        """Patches in one of the ways `merge`, `strategic`, `apply` (the last needs `fieldManager`)."""
        return await self._request("PATCH", path, body=body, content_type=_PATCHES[kind], query=query)

    async def delete(self, path: str, body: Mapping[str, Any] | None = None, **query: str) -> Object:
        """Deletes an object or a collection; `body` are DeleteOptions."""
        return await self._request("DELETE", path, body=body, query=query)

    async def watch(
        self, path: str, resource_version: str, **query: str
    ) -> AsyncIterator[tuple[str, Object]]:
        """Yields type and object of the events after `resource_version`, with bookmarks, to the server's end.

        Raises ApiError(410) when the version is too old.
        """
        query |= {"watch": "true", "allowWatchBookmarks": "true", "resourceVersion": resource_version}
        async with self._session.get(path, params=query) as answer:
            await _raise_for(answer)
            rest = b""
            async for chunk in answer.content.iter_any():
                *lines, rest = (rest + chunk).split(b"\n")
                for line in lines:
                    event = msgspec.json.decode(line, type=Object)
                    if event["type"] == "ERROR":
                        raise _error(event["object"])
                    yield event["type"], event["object"]

    async def _request(
        self,
        method: str,
        path: str,
        *,
        body: Mapping[str, Any] | None = None,
        content_type: str = "application/json",
        query: Mapping[str, str] | None = None,
    ) -> Object:
        data = None if body is None else msgspec.json.encode(body)
        async with (
            self._slots,
            self._session.request(
                method, path, data=data, headers={"Content-Type": content_type}, params=query
            ) as answer,
        ):
            await _raise_for(answer)
            return msgspec.json.decode(await answer.read(), type=Object)


async def _raise_for(answer: aiohttp.ClientResponse) -> None:
    if answer.ok:
        return
    content = await answer.read()
    try:
        status = msgspec.json.decode(content, type=Object)
    except msgspec.DecodeError:
        status = {"code": answer.status, "message": content.decode(errors="replace")}
    raise _error(status)


def _error(status: Object) -> ApiError:
    return ApiError(status["code"], status.get("reason", "?"), status.get("message", ""))


async def create_namespace(api: Api, *, service_accounts: bool = True) -> str:
    """A new namespace that takes pods: with its service account, unless told that nobody makes those."""
    name = f"test-{secrets.token_hex(4)}"
    await api.create("/api/v1/namespaces", {"metadata": {"name": name}})
    if service_accounts:
        await wait_for_service_account(api, name)
    return name


async def wait_for_service_account(api: Api, namespace: str) -> None:
    """Waits for the service account `default`, which the controller manager makes."""
    path = f"/api/v1/namespaces/{namespace}/serviceaccounts"
    query = {"fieldSelector": "metadata.name=default"}
    async with asyncio.timeout(100):
        while True:
            found = await api.get(path, **query)
            if found["items"]:
                return
            async for kind, _ in api.watch(path, found["metadata"]["resourceVersion"], **query):
                if kind == "ADDED":
                    return


async def delete_namespace(api: Api, name: str) -> None:
    """Deletes it with all that is in it; the controller manager does so, and is not waited for."""
    path = f"/api/v1/namespaces/{name}"
    try:
        await api.delete(path)
    except ApiError as error:
        if error.status != 404:
            raise
        return
    # Nothing is made in it from now on; what is there must not wait for a kubelet to end it.
    await api.delete(f"{path}/pods", {"gracePeriodSeconds": 0})

"""Bindings as closeby sends them, and nothing else: what the server can do with this client.

python -m tests.benchmarks.raw_bindings KUBECONFIG NAMESPACE PODS NODES
"""

import asyncio
import sys

import msgspec
import uvloop

from closeby.kube.client.connection import Connection, connect
from closeby.kube.client.transport import Request, Retry, Transport
from closeby.kube.gangs.binder import CONCURRENCY


async def bind_all(kubeconfig: str, namespace: str, pods: int, nodes: int) -> None:
    """Binds p-0, p-1, … to n-0000, n-0001, … in turn, as many at once as closeby does."""
    connection = connect(kubeconfig)
    assert isinstance(connection, Connection)
    encode = msgspec.json.Encoder().encode
    numbers = iter(range(pods))
    async with Transport(connection) as transport:

        async def work() -> None:
            for number in numbers:
                body = {
                    "apiVersion": "v1",
                    "kind": "Binding",
                    "metadata": {"name": f"p-{number}", "namespace": namespace},
                    "target": {"apiVersion": "v1", "kind": "Node", "name": f"n-{number % nodes:04}"},
                }
                path = f"/api/v1/namespaces/{namespace}/pods/p-{number}/binding"
                answer = await transport.send(
                    Request(method="POST", path=path, body=encode(body), retry=Retry.UNSENT)
                )
                assert isinstance(answer, bytes), answer

        await asyncio.gather(*(work() for _ in range(CONCURRENCY)))


if __name__ == "__main__":
    uvloop.run(bind_all(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])))

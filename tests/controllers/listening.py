"""A reconciler that keeps what it hears, and counts how often it is called."""

import asyncio
import time
from typing import Final

from closeby.controllers.running import News
from closeby.kube.client.transport import Transport
from closeby.kube.watch.changes import Deleted
from closeby.kube.watch.resources import NODES, Watched
from closeby.kube.writing.events import Events
from closeby.kube.writing.work_queue import WorkQueue
from closeby.kube.writing.writer import Reference, Writer

GROUPS: Final = Watched("closeby.dev", "PodGroup", ("v1alpha1",))


def say(message: str, /, *, warning: bool = False, **fields: object) -> None:
    """Nobody listens."""


class Listener:
    """Keeps what it hears of one namespace, and counts how often it was told to reconcile that."""

    def __init__(
        self,
        transport: Transport,
        namespace: str,
        *followed: Watched,
        again: float | None = None,
    ) -> None:
        self.name = "listener"
        self.followed = followed
        self.work: WorkQueue[str] = WorkQueue(time.monotonic, str)
        self.events = Events(Writer(transport, "listener", "a-test"), say)
        self.news: list[News] = []
        self.calls = 0
        self.ended = 0
        self.slow = 0.0
        self._namespace = namespace
        self._again = again
        self.work.add(namespace)

    def observe(self, news: News) -> None:
        if news.resource == NODES or news.change.key.startswith(f"{self._namespace}/"):
            self.news.append(news)
            self.work.add(self._namespace)

    def names(self, kind: str) -> list[str]:
        found = [one for one in self.news if one.resource.kind == kind]
        return [
            ("-" if isinstance(one.change, Deleted) else "+") + one.change.key.split("/")[-1] for one in found
        ]

    async def reconcile(self, key: str) -> None:
        self.calls += 1
        await asyncio.sleep(self.slow)
        self.ended += 1
        if self._again is not None:
            self.work.add(key, after=self._again)

    def regarding(self, key: str) -> Reference | None:
        return Reference(api_version="v1", kind="Namespace", name=key)

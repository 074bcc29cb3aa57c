"""Says what becomes of pods that were handed over to another scheduler, and which it can't bind.

Such a pod keeps what it holds in the engine until it is gone: it may be bound at any moment. It is never
deleted; an Event says what is in the way, and so does the condition of its gang.
"""

import asyncio
import time
from collections.abc import Callable, Iterable
from typing import Final

from closeby.kube.state.gated_pods import GatedPods, UnboundPod
from closeby.kube.state.ownership import scheduler_of
from closeby.kube.watch.changes import Change
from closeby.kube.watch.resources import Resource
from closeby.kube.writing.events import Events
from closeby.kube.writing.writer import Note, pod_reference
from closeby.objects.pods import gang_key
from closeby.objects.process import Say
from closeby.scheduling.outcomes import Binding

#: How often is looked for schedulers that say nothing (seconds).
_EVERY: Final = 5.0


class HandedOver:
    """Looks after the pods that were placed and are not bound."""

    def __init__(
        self,
        pods: GatedPods,
        events: Events,
        say: Say,
        waits: Callable[[str], bool],
        review: Callable[[str], None],
    ) -> None:
        """``waits``: whether a pod (uid) is there and not bound, as far as the watches said.

        ``review`` gets the key of a gang whose status may not be true any more.
        """
        self._pods = pods
        self._events = events
        self._say = say
        self._waits = waits
        self._review = review
        #: uids of pods of which an Event said that they can't be bound.
        self._said: set[str] = set()

    async def run(self) -> None:
        """Looks for schedulers that say nothing, until it is cancelled."""
        while True:
            await asyncio.sleep(_EVERY)
            self._tell(self._pods.silent(time.monotonic()))

    def placed(self, binding: Binding) -> None:
        """The pod has its node."""
        pod, node = binding.pod, binding.node
        heard: list[UnboundPod] = []
        if self._waits(pod.uid):
            heard.append(self._pods.placed(pod, node, time.monotonic()))
        else:  # The watch was quicker than the answer to our write.
            self._pods.not_sent(pod.uid)
        text = f"placed on {node}, where {scheduler_of(pod)} is to bind it"
        self._events.post(pod_reference(pod), Note(reason="Placed", action="Placing", text=text))
        self._tell(one for one in heard if one.why)

    def take(self, changes: Iterable[tuple[Resource, Change]]) -> None:
        """What the watches brought."""
        self._tell(self._pods.take(changes))

    def _tell(self, news: Iterable[UnboundPod]) -> None:
        for one in news:
            pod = one.pod
            if not one.why:
                self._said.discard(pod.uid)
            elif pod.uid not in self._said:
                self._said.add(pod.uid)
                self._say("not bound", warning=True, pod=pod.key, node=one.node, why=one.why)
                text = (
                    f"{one.sentence}; it is bound once there is room on {one.node}, or delete it so that "
                    "its controller makes another"
                )
                note = Note(reason="NotBound", action="Binding", text=text, warning=True)
                self._events.post(pod_reference(pod), note)
            if pod.group is not None:
                self._review(gang_key(pod))

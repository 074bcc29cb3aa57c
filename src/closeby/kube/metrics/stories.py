"""What the scheduler decided about one pod, gang or application and when, as JSON for those who ask it.

A story is bounded: the engine keeps the last entries of an item, each text is one line of bounded length, and
of a large item the newest decisions about some of its pods are listed.
"""

from collections.abc import Iterator, Sequence
from itertools import chain, islice
from typing import Final

import msgspec

from closeby.objects.bounds import line
from closeby.objects.labels import API_VERSION
from closeby.objects.quantities import utc
from closeby.objects.recorded import DecisionStatus, PodDecision, RefusedVolume, Story, StoryLine
from closeby.scheduling.engine import Engine
from closeby.scheduling.outcomes import ItemKind, Outcome, StoryEntry

#: Entries that are shown: of a gang, an application and a pod of one name together.
_ENTRIES: Final = 64
#: Pods whose newest decision is shown, those that wait first.
_PODS: Final = 200
_encode: Final = msgspec.json.Encoder().encode


def story_json(
    engine: Engine, scheduler: str, namespace: str, name: str, kind: ItemKind | None = None
) -> bytes | None:
    """The document; None where nothing is known of that name, and no ``kind`` of item was asked for.

    ``scheduler`` is whose pods are scheduled.
    """
    key = f"{namespace}/{name}"
    entries = engine.story(key, ItemKind if kind is None else (kind,))
    if not entries and kind is None:
        return None
    newest = next((entry for entry in reversed(entries) if entry.outcome is not None), None)
    kept = engine.reservation_of(key) if kind in (None, ItemKind.GANG) else None
    return _encode(
        Story(
            api_version=API_VERSION,
            kind="Story",
            namespace=namespace,
            name=name,
            scheduler=scheduler,
            entries=tuple(map(_line, entries[-_ENTRIES:])),
            last_decision=None if newest is None else _decision(newest),
            pods=_pods(entries),
            reservation=None if kept is None else kept.status,
            refused_volumes=tuple(islice(_refused_volumes(engine, entries), _PODS)),
        )
    )


def _refused_volumes(engine: Engine, entries: Sequence[StoryEntry]) -> Iterator[RefusedVolume]:
    """For which nodes the volumes of the pods that wait could not be had of late."""
    volumes = engine.cluster.volumes
    waiting = {one.pod.uid: one.pod for entry in entries if entry.outcome for one in entry.outcome.leftover}
    keys = dict.fromkeys(
        volumes.claim_key(pod, place)
        for pod in waiting.values()
        if pod.uid in engine.state.pods
        for place in range(len(pod.spec.claims))
    )
    for key in keys:
        for one in volumes.refused.of(key):
            yield RefusedVolume(
                claim=key,
                node=one.node,
                why=line(one.why),
                volume=one.volume,
                near=one.alike is not None,
                seconds=one.lasts,
            )


def _line(entry: StoryEntry) -> StoryLine:
    outcome = entry.outcome
    if outcome is None:
        return StoryLine(event=entry.stimulus, what=line(entry.what), time=_time(entry))
    reason, message = _why(outcome)
    return StoryLine(
        event=entry.stimulus,
        what=line(entry.what),
        time=_time(entry),
        reason=reason,
        message=message,
        placed=len(outcome.bindings),
        waiting=len(outcome.refused) + len(outcome.left),
    )


def _decision(entry: StoryEntry) -> DecisionStatus:
    assert entry.outcome is not None
    reason, message = _why(entry.outcome)
    return DecisionStatus(time=_time(entry), reason=reason, message=message or "")


def _why(outcome: Outcome) -> tuple[str | None, str | None]:
    """Why the item waits, or else the first of its pods that does."""
    if outcome.reason is None and outcome.left:
        return str(outcome.left[0].reason), outcome.left[0].message
    return (None if outcome.reason is None else str(outcome.reason)), outcome.full_message


def _pods(entries: Sequence[StoryEntry]) -> tuple[PodDecision, ...]:
    """The newest decision about each pod, of the newest decisions about the item."""
    found: dict[str, PodDecision] = {}
    for entry in reversed(entries):
        if entry.outcome is None:
            continue
        for one in islice(_of_pods(entry, entry.outcome), _PODS):
            found.setdefault(one.uid, one)
        if len(found) >= _PODS:
            break
    return tuple(islice(found.values(), _PODS))


def _of_pods(entry: StoryEntry, outcome: Outcome) -> Iterator[PodDecision]:
    time, (reason, _) = _time(entry), _why(outcome)
    yield from chain(
        (
            PodDecision(
                name=one.pod.name, uid=one.pod.uid, reason=str(one.reason), message=one.message, time=time
            )
            for one in outcome.left
        ),
        (PodDecision(name=pod.name, uid=pod.uid, reason=reason, time=time) for pod in outcome.refused),
        (
            PodDecision(name=one.pod.name, uid=one.pod.uid, node=one.node, time=time)
            for one in outcome.bindings
        ),
    )


def _time(entry: StoryEntry) -> str:
    return "" if entry.wall is None else utc(entry.wall)

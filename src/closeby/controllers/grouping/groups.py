"""The PodGroups there are, and those that the pod-grouper made; what it wrote counts before the watch reports
it."""

import time
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from closeby.controllers.grouping.objects import (
    POD_GROUPS,
    Object,
    SeenGroup,
    names_for,
    same_condition,
    seen_group,
    stands,
    validity,
)
from closeby.controllers.grouping.owners import Ref, owner_of
from closeby.kube.watch.changes import Deleted, Upserted
from closeby.kube.watch.resources import Resource
from closeby.kube.writing.writer import StatusCondition
from closeby.objects.groups import PodGroup
from closeby.objects.reasons import Condition

#: Seconds for which a write counts before the watch reports it.
_BELIEVED: Final = 10.0


class Key(NamedTuple):
    """A PodGroup's place."""

    namespace: str
    name: str


class Groups:
    """PodGroups of all dialects: they share their names, as a reference does not say the dialect."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        """``clock`` counts seconds and never goes back."""
        self._clock = clock
        #: By API group: who bears a name.
        self._seen: dict[Key, dict[str, SeenGroup]] = {}
        #: Names that were given away, with the owner that has them.
        self._claims: dict[Key, Ref] = {}
        #: By uid of an owner: those of ours that stand.
        self._standing: dict[str, set[Key]] = {}
        self._claimed: dict[Ref, frozenset[Key]] = {}
        #: What was written last, with the uid that it got, and when.
        self._written: dict[Key, tuple[Object, str, float]] = {}
        #: Uids of those that were gone before it was known that they are ours.
        self._ended: dict[Key, str] = {}
        self._valid: dict[Key, StatusCondition | None] = {}

    def observe(self, resource: Resource, change: Upserted | Deleted) -> Ref | None:
        """Takes in one change; returns the owner of one of ours that is to be looked at because of it."""
        key = Key(*change.key.split("/", 1))
        holders = self._seen.setdefault(key, {})
        before = holders.pop(resource.group, None)
        if before is not None and before.managed:
            self._unlist(before, key)
        if isinstance(change, Upserted):
            seen = holders[resource.group] = seen_group(resource, change.raw)
            for uid in seen.owners if seen.managed else ():
                self._standing.setdefault(uid, set()).add(key)
            if not seen.managed or (before is not None and before.spec == seen.spec):
                return None
            written = self._written.get(key)
            return owner_of(change.raw) if written is None or not stands(seen, written[0]) else None
        if not holders:
            del self._seen[key]
        if resource != POD_GROUPS:
            return None
        self._valid.pop(key, None)
        if not self.lost(key, change.uid) and key in self._claims:
            self._ended[key] = change.uid
        return self._claims.get(key)

    def lost(self, key: Key, uid: str) -> bool:
        """What was written there is there no more; whether that was known as ours."""
        if key not in self._written or self._written[key][1] != uid:
            return False
        del self._written[key]
        self._valid.pop(key, None)
        return True

    def ours(self, namespace: str, name: str) -> bool:
        """Whether the pod-grouper made this PodGroup, or is about to."""
        key = Key(namespace, name)
        return self._stands_there(key) or (key in self._claims and key not in self._seen)

    def of(self, owner: Ref) -> frozenset[Key]:
        """The PodGroups that an owner has."""
        claimed = self._claimed.get(owner, frozenset())
        return frozenset(self._standing.get(owner.uid, ())) | claimed

    def claim(self, group: PodGroup, owner: Ref, owners: Sequence[Ref]) -> Key:
        """The place of a gang's PodGroup: the one it has, else the best unused name."""
        uids = {one.uid for one in owners}
        free = None
        for name in names_for(group, owner.kind, owner.uid or owner.name):
            key = last = Key(group.namespace, name)
            found = self._seen.get(key, {}).get(POD_GROUPS.group)
            if self._claims.get(key) == owner and not self.ours(*key):
                # Another writer was faster, or created one of that name after ours was deleted.
                self._give_up(key)
            claim = self._claims.get(key)
            if claim == owner or (claim is None and found and found.managed and found.owners & uids):
                free = key
                break
            if free is None and claim is None and key not in self._seen:
                free = key
        key = free or last
        self._claims[key] = owner
        self._claimed[owner] = self._claimed.get(owner, frozenset()) | {key}
        return key

    def disclaim(self, key: Key) -> None:
        """Nothing was created there, or it is no longer needed."""
        if not self._stands_there(key):
            self._give_up(key)

    def _stands_there(self, key: Key) -> bool:
        """Whether one of ours does, as far as is known."""
        found = self._seen.get(key, {}).get(POD_GROUPS.group)
        return key in self._written or (found is not None and found.managed)

    def _give_up(self, key: Key) -> None:
        self._ended.pop(key, None)
        owner = self._claims.pop(key, None)
        if owner is None:
            return
        left = self._claimed.pop(owner, frozenset()) - {key}
        if left:
            self._claimed[owner] = left

    def release(self, owner: Ref) -> None:
        """The owner has no pods any more."""
        for key in self.of(owner):
            self.disclaim(key)

    def uid(self, key: Key) -> str | None:
        """The uid of ours there, None where none was made yet."""
        if key in self._written:
            return self._written[key][1]
        found = self._seen.get(key, {}).get(POD_GROUPS.group)
        return found.uid if found is not None and found.managed else None

    def stands(self, key: Key, wanted: Object) -> bool:
        """Whether the PodGroup needs not be written: it was, and is unchanged since."""
        written = self._written.get(key)
        if written is None or written[0] != wanted:
            return False
        found = self._seen.get(key, {}).get(POD_GROUPS.group)
        if found is None:
            # It may have gone before the watch reported it.
            return self._clock() < written[2] + _BELIEVED
        return found.uid == written[1] and stands(found, wanted)

    def wrote(self, key: Key, wanted: Object, uid: str) -> None:
        """The PodGroup was written; the watch may have reported its deletion before."""
        if self._ended.pop(key, None) != uid:
            self._written[key] = wanted, uid, self._clock()

    def verdict(self, key: Key, conditions: Sequence[Condition]) -> StatusCondition | None:
        """The condition ``WorkloadValid`` that is to be written, None if it stands."""
        found = self._seen.get(key, {}).get(POD_GROUPS.group)
        before = found.valid if found is not None else self._valid.get(key)
        wanted = validity(conditions, before or self._valid.get(key))
        return None if same_condition(wanted, before) else wanted

    def judged(self, key: Key, condition: StatusCondition) -> None:
        """The condition was written."""
        self._valid[key] = condition

    def _unlist(self, group: SeenGroup, key: Key) -> None:
        for uid in group.owners:
            left = self._standing.get(uid, set())
            left.discard(key)
            if not left:
                self._standing.pop(uid, None)

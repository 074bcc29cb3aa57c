"""PodGroups of all dialects, and the mirrors in which closeby keeps the plans and ranks of others' gangs.

A PodGroup of closeby's own kind with the label ``closeby.dev/mirror-of`` is not a gang. What stands in its
status, which only closeby may write, belongs to the PodGroup of the same name of the API group that the
label names.
"""

from typing import Final

import msgspec

from closeby.kube.state.names import SharedNames
from closeby.kube.watch.resources import Resource
from closeby.objects.groups import PodGroup
from closeby.objects.reasons import Condition, Reason
from closeby.reading.common.plans import completed
from closeby.reading.decoding.wire import object_id
from closeby.reading.registry import OWN_GROUP
from closeby.scheduling.events import GroupChanged, GroupDeleted

#: Where the definition of closeby's PodGroup stands in a release.
DEFINITION: Final = "deploy/crds/podgroups.yaml"


class SharedGangs:
    """What is said under each name of a gang, by whom."""

    def __init__(self) -> None:
        self.names: Final = SharedNames(GroupDeleted)
        #: By name: what was read of others' PodGroups, and of the mirrors.
        self._others: dict[str, dict[Resource, PodGroup]] = {}
        self._mirrors: dict[str, PodGroup] = {}
        #: Whether there can be mirrors.
        self._can_keep_plans = True

    def put(self, name: str, source: Resource, group: PodGroup) -> None:
        """``source`` now has this PodGroup under this name."""
        if source.group != OWN_GROUP:
            self._others.setdefault(name, {})[source] = group
            self.names.put(name, source, GroupChanged(self._with_plan(group)))
        elif group.mirrors:
            self.names.drop(name, source)
            self._mirrored(name, group)
        else:
            self.names.put(name, source, GroupChanged(group))
            self._mirrored(name, None)

    def drop(self, name: str, source: Resource) -> None:
        """``source`` has none of this name any more; unknown names are fine."""
        self.names.drop(name, source)
        if source.group == OWN_GROUP:
            self._mirrored(name, None)
        elif self._others.get(name, {}).pop(source, None) is not None and not self._others[name]:
            del self._others[name]

    def can_keep_plans(self, can: bool) -> None:
        """Whether closeby's own kind is served, without which others' gangs have no place for a plan."""
        if can is not self._can_keep_plans:
            self._can_keep_plans = can
            for name in self._others:
                self._renew(name)

    def _mirrored(self, name: str, mirror: PodGroup | None) -> None:
        before = self._mirrors.pop(name, None)
        if mirror is not None:
            self._mirrors[name] = mirror
        if mirror != before:
            self._renew(name)

    def _renew(self, name: str) -> None:
        for source, group in self._others.get(name, {}).items():
            self.names.put(name, source, GroupChanged(self._with_plan(group)))

    def _with_plan(self, group: PodGroup) -> PodGroup:
        if not self._can_keep_plans and group.can_be_partial:
            lack = Condition(
                reason=Reason.UNSUPPORTED,
                object=object_id("PodGroup", group.namespace, group.name),
                message=f"the plan of its start needs {OWN_GROUP}'s kind PodGroup, which is not installed",
                remedy=f"apply {DEFINITION} of closeby's release",
                blocking=True,
            )
            return msgspec.structs.replace(group, conditions=(*group.conditions, lack))
        return completed(group, self._mirrors.get(group.key))

"""How far the starts of gangs are: bindings on the way, and plans that have not come to their end."""

from collections.abc import Callable, Iterator, Sequence

from msgspec.structs import replace

from closeby.kube.gangs.status import GangStanding
from closeby.objects.pods import Pod
from closeby.scheduling.engine import Engine
from closeby.scheduling.outcomes import Binding, Place


class GangProgress:
    """All gangs of one engine, as far as their bindings are concerned."""

    def __init__(self, engine: Engine, informed: Callable[[], bool]) -> None:
        """``informed``: whether what the engine knows may be relied upon."""
        self._engine = engine
        self.informed = informed
        #: By gang: uids of members whose binding is on the way.
        self._on_the_way: dict[str, set[str]] = {}
        self._gang_of: dict[str, str] = {}
        #: Gangs whose start was written down and has not come to its end.
        self._begun: set[str] = set()
        #: Those of them that were complete before, and lost members since.
        self._reduced: set[str] = set()

    def resume(self) -> tuple[str, ...]:
        """Takes up the starts whose plan stands in the cluster; returns their gangs."""
        found = tuple(key for key, group in self._engine.state.groups.items() if group.plan)
        self._begun.update(found)
        for key in found:
            # The plan of a start names members that are not bound yet.
            bound = {pod.uid for pod in self._engine.state.placed(key)}
            if self._engine.state.groups[key].plan.keys() <= bound:
                self._reduced.add(key)
        return found

    def gangs(self) -> tuple[str, ...]:
        """All gangs that were heard of."""
        return tuple(self._engine.state.groups)

    def needs_plan(self, key: str, binds: Sequence[Binding]) -> bool:
        """Whether these bindings could leave the gang with some members bound but too few.

        Asked before they are noted as sent. What a start wrote down already need not be written again.
        """
        group = self._engine.state.groups.get(key)
        if group is None:
            return False
        if key in self._begun:
            return any(group.plan.get(bind.pod.uid) != bind.node for bind in binds)
        before = len(self._engine.state.placed(key)) - len(binds) - len(self._on_the_way.get(key, ()))
        return len(binds) > 1 and before < group.min_member and group.can_be_partial

    def sent(self, key: str, binds: Sequence[Binding]) -> None:
        """Bindings of a gang are on the way: a start of its own, or one that goes on along its plan."""
        group = self._engine.state.groups.get(key)
        if group is not None and any(bind.pod.uid in group.plan for bind in binds):
            self._begun.add(key)
        on_the_way = self._on_the_way.setdefault(key, set())
        for bind in binds:
            on_the_way.add(bind.pod.uid)
            self._gang_of[bind.pod.uid] = key

    def begin(self, key: str) -> bool:
        """The gang's start is being written down; returns whether it makes up for lost members."""
        self._begun.add(key)
        again = key in self._reduced
        self._reduced.discard(key)
        return again

    def lost(self, key: str) -> None:
        """A member is gone. Fewer members than the gang needs never stand there without a plan."""
        standing = self.standing(key)
        if standing is not None and standing.bound and not standing.enough and key not in self._begun:
            self._begun.add(key)
            self._reduced.add(key)

    def ended(self, uid: str) -> str | None:
        """A binding came to its end, one way or the other; returns the gang if it was the last on the way."""
        key = self._gang_of.pop(uid, None)
        if key is None:
            return None
        on_the_way = self._on_the_way[key]
        on_the_way.discard(uid)
        if on_the_way:
            return None
        del self._on_the_way[key]
        return key

    def settle(self, key: str) -> bool:
        """A start that has come to its end, or of which nothing is left, is no start any more; returns that.

        While the PodGroup is gone nobody can tell: somebody may be making it anew, and then its plan must
        be written on the new one.
        """
        standing = self.standing(key)
        if standing is None:
            over = key not in self._on_the_way and not self._engine.state.placed(key)
        else:
            over = not standing.starting
        if over:
            self._begun.discard(key)
            self._reduced.discard(key)
        return over

    def settled(self) -> list[str]:
        """Gangs whose start has come to its end since this was asked last, and nobody noticed."""
        return [key for key in tuple(self._begun) if self.settle(key)]

    def unfinished(self) -> Iterator[GangStanding]:
        """Gangs of whose start some members are bound, but too few."""
        for key in self._begun:
            standing = self.standing(key)
            if standing is not None and standing.unfinished and not standing.reduced:
                yield standing

    def told(self, key: str) -> GangStanding | None:
        """The same as ``standing``, with the place of the members that hold a node."""
        standing = self.standing(key)
        return None if standing is None else replace(standing, place=self.place(key))

    def place(self, key: str) -> Place | None:
        """Where the gang's members lie now."""
        return self._engine.recheck.place(key)

    def standing(self, key: str) -> GangStanding | None:
        """How a gang stands; None when there is none of that name."""
        state = self._engine.state
        group = state.groups.get(key)
        if group is None:
            return None
        kept = self._engine.reservation
        return GangStanding(
            group=group,
            held=tuple(self._held(state.placed(key))),
            on_the_way=frozenset(self._on_the_way.get(key, ())),
            waiting=state.waiting(key),
            done=len(state.done(key)),
            outcome=self._engine.outcome(key),
            reservation=kept if kept is not None and kept.key == key else None,
            ranks=state.ranks(key),
            begun=key in self._begun,
            reduced=key in self._reduced,
        )

    def _held(self, pods: Sequence[Pod]) -> Iterator[tuple[Pod, str]]:
        cluster = self._engine.cluster
        for pod in pods:
            slot = cluster.placement(pod.uid)
            node = pod.node_name if slot is None else cluster.names[slot]
            if node:
                yield pod, node

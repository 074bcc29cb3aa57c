"""How far the starts of gangs are: bindings on the way, and plans that have not come to their end."""

from collections.abc import Iterator, Sequence

from closeby.kube.gangs.status import Standing
from closeby.objects.groups import PodGroup
from closeby.objects.pods import Pod
from closeby.scheduling.engine import Engine
from closeby.scheduling.outcomes import Bind


class GangProgress:
    """All gangs of one engine, as far as their bindings are concerned."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        #: By gang: uids of members whose binding is on the way.
        self._on_the_way: dict[str, set[str]] = {}
        self._gang_of: dict[str, str] = {}
        #: Gangs whose start was written down and has not come to its end.
        self._begun: set[str] = set()

    def resume(self) -> tuple[str, ...]:
        """Takes up the starts whose plan stands in the cluster; returns their gangs."""
        found = tuple(key for key, group in self._engine.books.groups.items() if group.plan)
        self._begun.update(found)
        return found

    def gangs(self) -> tuple[str, ...]:
        """All gangs that were heard of."""
        return tuple(self._engine.books.groups)

    def needs_plan(self, key: str, binds: Sequence[Bind]) -> bool:
        """Whether these bindings could leave the gang with some members bound but too few.

        Asked before they are noted as sent. What stands in the cluster already need not be written again.
        """
        group = self._engine.books.groups.get(key)
        if group is None or all(group.plan.get(bind.pod.uid) == bind.node for bind in binds):
            return False
        if key in self._begun:
            return True
        before = len(self._engine.books.placed(key)) - len(binds) - len(self._on_the_way.get(key, ()))
        return len(binds) > 1 and before < group.min_member and group.can_be_partial

    def wants(self, bind: Bind) -> bool:
        """Whether the pod still holds this node, and the node is there."""
        slot = self._engine.cluster.placement(bind.pod.uid)
        return slot is not None and self._engine.cluster.names[slot] == bind.node

    def group(self, key: str) -> PodGroup | None:
        """The gang as last heard of."""
        return self._engine.books.groups.get(key)

    def sent(self, key: str, binds: Sequence[Bind]) -> None:
        """Bindings of a gang are on the way: a start of its own, or one that goes on along its plan."""
        group = self._engine.books.groups.get(key)
        if group is not None and any(bind.pod.uid in group.plan for bind in binds):
            self._begun.add(key)
        on_the_way = self._on_the_way.setdefault(key, set())
        for bind in binds:
            on_the_way.add(bind.pod.uid)
            self._gang_of[bind.pod.uid] = key

    def begin(self, key: str) -> None:
        """The gang's start is being written down."""
        self._begun.add(key)

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

    def settle(self, key: str) -> None:
        """A start that has come to its end, or of which nothing is left, is no start any more.

        While the PodGroup is gone nobody can tell: somebody may be making it anew, and then its plan must
        be written on the new one.
        """
        standing = self.standing(key)
        if standing is None:
            over = key not in self._on_the_way and not self._engine.books.placed(key)
        else:
            over = not standing.starting
        if over:
            self._begun.discard(key)

    def unfinished(self) -> Iterator[Standing]:
        """Gangs of whose start some members are bound, but too few."""
        for key in tuple(self._begun):
            self.settle(key)
            standing = self.standing(key)
            if standing is not None and standing.unfinished:
                yield standing

    def standing(self, key: str) -> Standing | None:
        """How a gang stands; None when there is none of that name."""
        books = self._engine.books
        group = books.groups.get(key)
        if group is None:
            return None
        return Standing(
            group=group,
            held=tuple(self._held(books.placed(key))),
            on_the_way=frozenset(self._on_the_way.get(key, ())),
            waiting=books.waiting(key),
            done=len(books.done(key)),
            outcome=self._engine.outcome(key),
            ranks=books.ranks(key),
            begun=key in self._begun,
        )

    def _held(self, pods: Sequence[Pod]) -> Iterator[tuple[Pod, str]]:
        cluster = self._engine.cluster
        for pod in pods:
            slot = cluster.placement(pod.uid)
            node = pod.node_name if slot is None else cluster.names[slot]
            if node:
                yield pod, node

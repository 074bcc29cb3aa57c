"""Bindings that were decided and have not come to their end.

Before each attempt at one of them the engine is asked whether it would still decide so. If not, all that
certainly had no effect is withdrawn, and decided again together: a gang as a whole, unless some of it took
effect. While an attempt is on its way, or nobody knows what became of one, nothing of its gang is withdrawn:
what the others may do depends on it.
"""

from collections.abc import Callable, Iterable, Sequence
from enum import Enum, auto

from msgspec.structs import replace

from closeby.scheduling.events import BindingsWithdrawn
from closeby.scheduling.intake.scheduling_state import gang_key
from closeby.scheduling.outcomes import Binding
from closeby.scheduling.placing.rechecking import Checked, Recheck


class Ask(Enum):
    """What to do about a binding now."""

    SEND = auto()
    #: It should be withdrawn, but an earlier attempt may have taken effect: read the pod, and tell.
    LOOK = auto()
    #: Nothing: it was, or will be, withdrawn.
    LET_GO = auto()


class _Item:
    """A plain pod, or all members of a gang whose bindings are under way."""

    __slots__ = ("bindings", "broken", "checked", "started")

    def __init__(self, checked: Checked) -> None:
        self.bindings: dict[str, _Binding] = {}
        self.checked = checked
        #: Whether a binding of it took effect.
        self.started = False
        #: Why it is to be withdrawn; empty while it holds.
        self.broken = ""


class _Binding:
    __slots__ = ("bind", "doubted", "item", "sent")

    def __init__(self, bind: Binding, item: _Item) -> None:
        self.bind = bind
        self.item = item
        #: Whether an attempt is on its way, and whether an earlier one may have taken effect.
        self.sent = False
        self.doubted = False


class UnderWay:
    """All bindings under way; only the newest one of a pod counts."""

    def __init__(self, recheck: Recheck, withdrawn: Callable[[BindingsWithdrawn], None]) -> None:
        """``withdrawn`` passes on to the engine what is given up."""
        self._recheck = recheck
        self._withdrawn = withdrawn
        self._by_uid: dict[str, _Binding] = {}
        self._gangs: dict[str, _Item] = {}

    def begin(self, binds: Iterable[Binding]) -> None:
        """These were decided just now."""
        checked = self._recheck.now()
        for bind in binds:
            if bind.pod.group is None:
                item = _Item(checked)
            else:
                # What was decided earlier about this gang was checked earlier, and that counts for all of it.
                item = self._gangs.setdefault(gang_key(bind.pod), _Item(checked))
                item.checked = replace(item.checked, slots=None)  # It has one node more.
            item.bindings[bind.pod.uid] = self._by_uid[bind.pod.uid] = _Binding(bind, item)

    def asks(self, bind: Binding) -> Ask:
        """What to do now; SEND means that an attempt is on its way from here on."""
        binding = self._of(bind)
        if binding is None:
            return Ask.LET_GO
        if self._holds(binding.item):
            binding.sent = True
            return Ask.SEND
        if binding.doubted:
            return Ask.LOOK
        self._withdraw(binding.item)
        return Ask.LET_GO

    def hold(self, binds: Sequence[Binding]) -> bool:
        """Whether bindings of a gang, none of which was sent yet, still hold; else they are withdrawn.

        Where another binding of the gang is on its way, they are withdrawn as soon as that has ended.
        """
        bindings = [self._of(bind) for bind in binds]
        items = {id(one.item): one.item for one in bindings if one is not None}
        for item in items.values():
            if not self._holds(item):
                self._withdraw(item)
        return all(one is not None and not one.item.broken for one in bindings)

    def missed(self, bind: Binding, *, in_doubt: bool) -> None:
        """An attempt had no effect, or (``in_doubt``) nobody knows."""
        binding = self._of(bind)
        if binding is not None:
            binding.sent = False
            binding.doubted = binding.doubted or in_doubt
            self._go_on(binding.item)

    def settled(self, bind: Binding) -> None:
        """The pod was read: no attempt so far has taken effect, and none will."""
        binding = self._of(bind)
        if binding is not None:
            binding.doubted = False
            self._go_on(binding.item)

    def over(self, bind: Binding, *, bound: bool) -> bool:
        """The binding came to its end; False where it had been withdrawn before."""
        binding = self._of(bind)
        if binding is None:
            return False
        self._remove(binding)
        binding.item.started |= bound
        self._go_on(binding.item)
        return True

    def give_up(self, binds: Iterable[Binding], why: str) -> None:
        """Bindings of a gang of which none was sent are not to be."""
        for item in {id(one.item): one.item for bind in binds if (one := self._of(bind))}.values():
            item.broken = item.broken or why
            self._withdraw(item)

    def _of(self, bind: Binding) -> _Binding | None:
        binding = self._by_uid.get(bind.pod.uid)
        return binding if binding is not None and binding.bind is bind else None

    def _holds(self, item: _Item) -> bool:
        if item.broken:
            return False
        if item.checked.version == self._recheck.version:
            return True
        binds = [one.bind for one in item.bindings.values()]
        item.checked = self._recheck.still_holds(binds, item.checked, started=item.started)
        if item.checked.broken is not None:
            item.broken = item.checked.broken.sentence()
        return not item.broken

    def _go_on(self, item: _Item) -> None:
        if item.broken:
            self._withdraw(item)

    def _withdraw(self, item: _Item) -> None:
        """As soon as it is known what became of all attempts."""
        bindings = tuple(item.bindings.values())
        if not bindings or any(one.sent or one.doubted for one in bindings):
            return
        for binding in bindings:
            self._remove(binding)
        pods = [one.bind.pod for one in bindings]
        gang = None if pods[0].group is None else gang_key(pods[0])
        self._withdrawn(BindingsWithdrawn(tuple(pod.uid for pod in pods), item.broken, gang))

    def _remove(self, binding: _Binding) -> None:
        pod, item = binding.bind.pod, binding.item
        del self._by_uid[pod.uid], item.bindings[pod.uid]
        if not item.bindings and pod.group is not None:
            del self._gangs[gang_key(pod)]

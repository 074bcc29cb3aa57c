"""What annotations ask for, whichever dialect they are written in."""

from msgspec import Struct

from closeby.objects.groups import TopologyConstraint
from closeby.objects.reasons import Condition


class PlacementAsk(Struct, frozen=True, kw_only=True):
    """A wish for closeness, for none at all, or nothing."""

    constraint: TopologyConstraint | None = None
    #: The author says that the pods may lie anywhere.
    unconstrained: bool = False
    conditions: tuple[Condition, ...] = ()
    #: Whose annotations these are; empty where there are none.
    dialect: str = ""

    @property
    def given(self) -> bool:
        """Whether anything about placement was said, understood or not."""
        return self.constraint is not None or self.unconstrained or bool(self.conditions)

"""Extension points after a placement was found: whether it may stand, and how its pods are bound."""

from typing import Final

from closeby.objects.pods import Pod
from closeby.objects.reasons import Condition, Reason
from closeby.scheduling.extension import Handle, NoArguments, Plugin
from closeby.scheduling.plugin_view import CycleState

_ONLY_TRIED: Final = Condition(
    reason=Reason.NODE_RESERVED, object="", message="this was a trial", blocking=True
)


class Permit(Plugin):
    """Last word before a work item is committed."""

    def permit(self, state: CycleState, placements: tuple[tuple[Pod, int], ...]) -> Condition | None:
        """A condition takes the placement back."""
        raise NotImplementedError


class TryOnly(Permit):
    """Notes where an item would be placed, and takes the placement back."""

    name = "TryOnly"

    def __init__(self, handle: Handle) -> None:
        super().__init__(NoArguments(), handle)
        self.placed: tuple[tuple[Pod, int], ...] | None = None

    def permit(self, state: CycleState, placements: tuple[tuple[Pod, int], ...]) -> Condition | None:
        self.placed = placements
        return _ONLY_TRIED


class PreBind(Plugin):
    """Adds labels and annotations that are written with the binding."""

    def pre_bind(self, pod: Pod, slot: int) -> dict[str, str]:
        """Labels for the pod."""
        raise NotImplementedError


class Bind(Plugin):
    """Chooses who writes the binding; by default the engine's caller does."""

    def bind(self, pod: Pod, node_name: str) -> bool:
        """True when this plugin takes the binding over; the decision then names it as ``binder``."""
        raise NotImplementedError


class PostBind(Plugin):
    """Called when a pod is bound."""

    def post_bind(self, pod: Pod, node_name: str) -> None:
        """The binding stands."""
        raise NotImplementedError

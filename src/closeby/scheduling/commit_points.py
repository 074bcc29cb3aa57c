"""Extension points after a placement was found: whether it may stand, and how its pods are bound."""

from closeby.objects.pods import Pod
from closeby.objects.reasons import Condition
from closeby.scheduling.extension import Plugin
from closeby.scheduling.plugin_view import CycleState


class Permit(Plugin):
    """Last word before a work item is committed."""

    def permit(self, state: CycleState, placements: tuple[tuple[Pod, int], ...]) -> Condition | None:
        """A condition takes the placement back."""
        raise NotImplementedError


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

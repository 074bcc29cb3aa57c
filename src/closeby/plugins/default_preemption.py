"""DefaultPreemption: pods of lower priority make room where that costs the least."""

from closeby.objects.pods import Pod
from closeby.scheduling.extension import Handle
from closeby.scheduling.plugin_view import CycleState
from closeby.scheduling.preempting.rule import PreemptionRule, Preempts


class DefaultPreemption(Preempts):
    """Upstream's plugin of that name, which also clears whole domains for gangs.

    The search for victims is the engine's (``closeby.scheduling.preempting``); this says by which rule.
    Without it nothing is preempted.
    """

    name = "DefaultPreemption"
    Arguments = PreemptionRule

    def __init__(self, arguments: PreemptionRule, handle: Handle) -> None:
        super().__init__(arguments, handle)
        self._rule = arguments

    @property
    def rule(self) -> PreemptionRule:
        return self._rule

    def post_filter(self, state: CycleState, pods: tuple[Pod, ...]) -> None:
        """Nothing to note: the engine asks for victims once the item is refused."""

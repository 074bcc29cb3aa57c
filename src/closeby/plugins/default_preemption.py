"""DefaultPreemption: pods of lower priority make room where that costs the least."""

from closeby.scheduling.preemption.rule import Preempts


class DefaultPreemption(Preempts):
    """Upstream's plugin of that name, which also clears whole domains for gangs.

    The search for victims is the engine's (``closeby.scheduling.preemption``); this says by which rule.
    Without it nothing is preempted.
    """

    name = "DefaultPreemption"

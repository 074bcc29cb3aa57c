"""random: any node that the filters let pass, each as likely. The least that a policy has to beat."""

from collections.abc import Iterable
from typing import ClassVar

from msgspec import Struct

from closeby.objects.arrays import Scores
from closeby.objects.pods import Pod
from closeby.scheduling.extension import Candidate, Handle, PartView, PlacementGenerate, Scope, Score
from closeby.scheduling.plugin_helpers import lots, wherever_allowed
from closeby.scheduling.plugin_view import CycleState, Nodes


class RandomArguments(Struct, frozen=True, forbid_unknown_fields=True):
    """``seed``: other seeds choose other nodes."""

    seed: int = 0


class Random(PlacementGenerate, Score):
    """Scores each node with a number that is drawn for the pod."""

    name: ClassVar[str] = "random"
    Arguments = RandomArguments
    # A gang is to be placed pod by pod, as its pods draw.
    score_scope: ClassVar[Scope] = Scope.PER_PLACEMENT

    def __init__(self, arguments: RandomArguments, handle: Handle) -> None:
        super().__init__(arguments, handle)
        self._seed = arguments.seed

    def score(self, state: CycleState, pod: Pod, nodes: Nodes) -> Scores:
        """Even between 0 and 100."""
        return 100.0 * lots(self._seed, pod, nodes)

    def placement_generate(self, state: CycleState, part: PartView) -> Iterable[Candidate] | None:
        """Anywhere; the domains of a level that is required, the tightest first."""
        return wherever_allowed(part)

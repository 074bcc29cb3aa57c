"""What is recorded of the decision about a gang, if it is to be explained."""

import numpy as np
from msgspec.structs import replace

from closeby.objects.bounds import some
from closeby.objects.pods import Pod
from closeby.objects.words import path_text
from closeby.scheduling.outcomes import DomainFit, PodExplanation
from closeby.scheduling.placing.segment_refusals import segment_room, segments_text
from closeby.scheduling.placing.segment_room import SegmentRoom
from closeby.scheduling.placing.statement import Statement
from closeby.scheduling.placing.tools import Placed, Tools, WaitingGang
from closeby.topology.tree import ROOT_LEVEL, Domain, Tree


class Explaining:
    """Made only where the gang is to be explained: that costs as much as deciding, or more."""

    def __init__(
        self,
        tools: Tools,
        gang: WaitingGang,
        statement: Statement,
    ) -> None:
        self._tools = tools
        self._gang = gang
        self._state = statement.state
        self._statement = statement
        self._recorded: dict[str, PodExplanation] = {}

    def survey(self) -> tuple[DomainFit, ...]:
        """How many of the pods each domain would take now, at the level that the gang asks for."""
        demand = self._tools.table.shares(self._gang.waiting)
        asked = self._gang.constraints.levels
        levels = asked.get("") or next(iter(asked.values()), None)
        if levels is None or not demand:
            return ()
        tree, level = levels.tree, levels.required if levels.required is not None else levels.preferred
        part = self._gang.parts(everyone=True)
        room = None if part.segments is None else segment_room(self._tools, self._gang.group, part)
        if level is None or levels.by_default:
            level = max(tree.node_level - 1, ROOT_LEVEL)
            if room is not None:
                # Then each segment asks for a domain, and nothing for all of them.
                tree, level = room.tree, room.layers[0].level
        limit = None if self._tools.explain_everything else 20
        found = self._tools.diagnosis.survey(demand, tree, level, limit, self._gang.group.strategy)
        if room is not None:
            return self._by_segments(found, room, tree, level)
        return self._beside_members(found, tree, level) if level == levels.required else found

    def _beside_members(self, found: tuple[DomainFit, ...], tree: Tree, level: int) -> tuple[DomainFit, ...]:
        """Where all members must be in one domain, others than that of those that run are no choice."""
        if not self._state.anchors or level == ROOT_LEVEL or "" not in self._gang.constraints.levels:
            return found
        owners = tree.owners_of_slots(self._state.anchors, level)
        paths = [tree.path(Domain(level, index)) for index in np.unique(owners[owners >= 0]).tolist()]
        text = f"the members that already run are in {some(list(map(path_text, paths)))}"
        return tuple(
            one if one.path in paths else replace(one, lack="; ".join(filter(None, (text, one.lack))))
            for one in found
        )

    def _by_segments(
        self, found: tuple[DomainFit, ...], room: SegmentRoom, tree: Tree, level: int
    ) -> tuple[DomainFit, ...]:
        """Of a gang with layers only what fits in whole segments counts."""
        if room.tree is not tree or level == ROOT_LEVEL:
            return found
        paths = {tree.path(Domain(level, index)): index for index in range(tree.count(level))}
        fits = []
        for one in found:
            pods, text = segments_text(room, level, paths[one.path], one.wanted)
            lack = "; ".join(filter(None, (text, one.lack)))
            fits.append(replace(one, fits=min(one.fits, pods), lack=lack) if text else one)
        return tuple(fits)

    def pods(self) -> tuple[PodExplanation, ...]:
        """What was recorded pod by pod; for a fill by descent the state before it, once per class."""
        if self._recorded:
            return tuple(self._recorded[pod.uid] for pod in self._gang.waiting if pod.uid in self._recorded)
        batches = tuple(self._statement.since(0))
        first = self._state.placed[:1]
        self._statement.rollback(0)
        # Closeness is judged as for the first member: before that has a place, all nodes are as close.
        self._state.placed[:] = first
        explanations = []
        for share in self._tools.table.shares(self._gang.waiting):
            shared = self._tools.explain_pod(self._state, share.pods[0])
            explanations += [
                PodExplanation(
                    pod=pod.key,
                    scores=shared.scores,
                    rejected=shared.rejected,
                    feasible_nodes=shared.feasible_nodes,
                    rejected_by=shared.rejected_by,
                )
                for pod in share.pods
            ]
        self._state.placed.clear()
        self._statement.assume_again(batches)
        return tuple(explanations)

    def record(self, pod: Pod) -> None:
        """To be called with each pod before it is placed by itself."""
        self._recorded[pod.uid] = self._tools.explain_pod(self._state, pod)


def chosen_first(
    domains: tuple[DomainFit, ...], tree: Tree | None, placed: tuple[Placed, ...]
) -> tuple[DomainFit, ...]:
    """The domain taken, then the others in the order of the gang's strategy."""
    if not placed or tree is None:
        return domains
    positions = tree.position_of[np.asarray([slot for _, slot in placed], dtype=np.intp)]
    path = tree.path(tree.tightest(positions))
    taken = [fit for fit in domains if path[: len(fit.path)] == fit.path or fit.path[: len(path)] == path]
    return (*taken, *(fit for fit in domains if fit not in taken))

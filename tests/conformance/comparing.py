"""Worlds judged twice, and where the two judgements differ."""

import json
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from tests.conformance.closeby_judge import allowed_by_closeby
from tests.conformance.kube_judge import judging
from tests.conformance.worlds import FAMILIES, SWITCHED_ON, make_world
from tests.control_plane.api import Object
from tests.control_plane.binaries import Programs


@dataclass(frozen=True)
class Disagreement:
    """A pod on whose nodes the two do not agree."""

    pod: str
    only_kube: tuple[str, ...]
    only_closeby: tuple[str, ...]
    kube_says: str
    closeby_says: str
    manifest: Object

    def __str__(self) -> str:
        return "\n".join(
            (
                f"{self.pod}:",
                f"  kube-scheduler alone allows {', '.join(self.only_kube) or 'nothing'}",
                f"  closeby alone allows {', '.join(self.only_closeby) or 'nothing'}",
                f"  kube-scheduler: {self.kube_says}",
                f"  closeby: {self.closeby_says}",
                f"  {json.dumps(self.manifest['spec'])}",
            )
        )


@dataclass
class Comparison:
    """What came out."""

    pods: int = 0
    pairs: int = 0
    allowed: int = 0
    disagreements: list[Disagreement] = field(default_factory=list)
    #: Pods that the API server did not take, and why.
    refused: list[str] = field(default_factory=list)
    #: How often kube-scheduler gave each reason, for the nodes that it refused.
    reasons: Counter[str] = field(default_factory=Counter)


async def compare(
    programs: Programs,
    folder: Path,
    seed: int,
    *,
    worlds: int,
    nodes: int,
    probes: int,
    only: Collection[str] = (),
    tell: Callable[[str], None],
) -> Comparison:
    """Judges the pods of some worlds, which follow from the seed."""
    found = Comparison()
    families = {name: family for name, family in FAMILIES.items() if name in ("core", *(only or SWITCHED_ON))}
    async with judging(programs, folder) as judge:
        for number in range(worlds):
            world = make_world(seed, number, nodes, probes, families)
            by_kube, objects = await judge.judge(world)
            by_closeby = allowed_by_closeby(objects, default_constraints=world.default_constraints)
            manifests = {one["metadata"]["name"]: one for one in objects if one["kind"] == "Pod"}
            assert by_kube.keys() == by_closeby.keys()
            before = len(found.disagreements)
            for pod, (allowed, says) in sorted(by_kube.items()):
                found.pods += 1
                found.pairs += nodes
                found.allowed += len(allowed)
                found.reasons.update(_reasons(says))
                ours, why = by_closeby[pod]
                if ours != allowed:
                    found.disagreements.append(
                        Disagreement(
                            pod,
                            tuple(sorted(allowed - ours)),
                            tuple(sorted(ours - allowed)),
                            says,
                            why,
                            manifests[pod.partition("/")[2]],
                        )
                    )
            found.refused += [f"{path}: {why}" for path, why in sorted(judge.refused.items())]
            judge.refused.clear()
            new = len(found.disagreements) - before
            tell(f"{world.name}: {len(by_kube)} pods on {nodes} nodes, {new} disagreements")
    return found


def _reasons(message: str) -> Iterator[str]:
    """The reasons of a condition: ``0/3 nodes are available: 1 Insufficient cpu, 2 …``."""
    _, _, rest = message.partition(": ")
    for part in rest.rstrip(".").split(", "):
        count, _, reason = part.strip().partition(" ")
        if count.isdecimal() and not reason.startswith("it was asked"):
            # What follows names a taint, a claim, or what preemption says.
            yield reason.split(". ")[0].split(" {")[0]

"""A small run of ``make conformance``, and that such a run finds what is wrong."""

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conformance.closeby_judge import allowed_by_closeby
from tests.conformance.comparing import compare
from tests.conformance.kube_judge import judging
from tests.conformance.worlds import FAMILIES, SWITCHED_ON, make_world
from tests.control_plane.binaries import find_programs
from tests.control_plane.cluster import ControlPlane

pytestmark = [pytest.mark.slow]


def _seed(config: pytest.Config) -> int:
    return int(config.option.hypothesis_seed)


def test_closeby_and_kube_scheduler_allow_the_same_nodes(
    whole_control_plane: ControlPlane,
    tmp_path: Path,
    pytestconfig: pytest.Config,
    tell: Callable[[str], None],
) -> None:
    programs = find_programs(lambda line: None)
    found = asyncio.run(
        compare(programs, tmp_path, _seed(pytestconfig), worlds=2, nodes=12, probes=40, tell=tell)
    )
    assert found.pairs > 2 * 12 * 30
    assert 0 < found.allowed < found.pairs
    assert not found.disagreements, "\n\n".join(map(str, found.disagreements))


def test_a_filter_that_is_missing_is_noticed(
    whole_control_plane: ControlPlane, tmp_path: Path, pytestconfig: pytest.Config
) -> None:
    """In most worlds any filter matters; there are a few, as in one of them all may be tolerated."""

    async def unnoticed() -> set[str]:
        left = {"TaintToleration", "NodeResourcesFit"}
        families = {name: FAMILIES[name] for name in SWITCHED_ON}
        async with judging(find_programs(lambda line: None), tmp_path) as judge:
            for number in range(0, 12, 2):
                world = make_world(_seed(pytestconfig), number, nodes=12, probes=40, families=families)
                by_kube, objects = await judge.judge(world)
                allowed = {pod: nodes for pod, (nodes, _) in by_kube.items()}
                for disabled in sorted(left):
                    given = world.default_constraints
                    found = allowed_by_closeby(objects, disabled=disabled, default_constraints=given)
                    if {pod: nodes for pod, (nodes, _) in found.items()} != allowed:
                        left.discard(disabled)
                if not left:
                    break
        return left

    assert asyncio.run(unnoticed()) == set()

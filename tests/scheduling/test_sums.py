"""How many times pods fit into domains is kept, and looked at again where nodes were used meanwhile."""

from collections.abc import Sequence
from random import Random

import numpy as np
import pytest
from msgspec.structs import replace

from closeby.objects.arrays import Counts
from closeby.objects.labels import HOSTNAME
from closeby.scheduling.gangs.parts import NodeSet
from closeby.scheduling.judging.pod_classes import Share
from closeby.scheduling.placing.sums import Sums
from closeby.topology.tree import Tree
from tests.worlds import GPU, fabric, gang, node, pods, spec, subgroup, world


@pytest.mark.parametrize("chunk", range(4))
def test_what_is_kept_is_what_a_new_sum_finds(chunk: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Subgroups of unequal pods, placed and taken back in racks, blocks and on nodes."""
    times, asked, again = Sums.times, 0, 0

    def checked(self: Sums, demand: Sequence[Share], tree: Tree, level: int, inside: NodeSet) -> Counts:
        nonlocal asked, again
        asked, again = asked + 1, again + ((self._needs(demand), tree.name, level) in self._times)
        found = times(self, demand, tree, level, inside)
        mask = inside.mask_for(tree, self._cluster.capacity)
        np.testing.assert_array_equal(found, self._times_at(demand, tree, level, None, mask), f"seed {seed}")
        return found

    monkeypatch.setattr(Sums, "times", checked)
    for seed in range(chunk * 25, (chunk + 1) * 25):
        random = Random(seed)
        nodes = [
            node(
                f"n{at}",
                {"block": f"b{at // 8}", "rack": f"r{at // 2}"},
                {GPU: random.randint(0, 8), "cpu": random.randint(2, 16)},
            )
            for at in range(random.randint(4, 24))
        ]
        kinds = [spec(gpu=random.randint(0, 3), cpu=random.randint(1, 4)) for _ in range(3)]
        names = [f"s{at}" for at in range(random.randint(2, 6))]
        members = [
            replace(one, name=f"{name}-{at}", uid=f"{name}-{at}")
            for name in names
            for at, needs in enumerate(random.choices(kinds, k=random.randint(2, 5)))
            for one in pods("train", 1, needs, subgroup=name)
        ]
        sizes = {name: sum(one.subgroup == name for one in members) for name in names}
        levels = random.choices(["block", "rack", HOSTNAME], k=len(names))
        drawn = [
            subgroup(name, sizes[name], required=level) for name, level in zip(names, levels, strict=True)
        ]
        required = random.choice([None, "block"])
        world(nodes, fabric("block", "rack", HOSTNAME)).run(
            gang(min_member=len(members), required=required, subgroups=drawn), members=members
        )
    assert again > asked // 10 > 0

"""Host ports and disks are taken where a pod has one that is in the way of another."""

from random import Random

import pytest

from closeby.cluster.columns import PortsAndDisks
from closeby.objects.pods import HostPort, InlineDisk, PortOrDisk, conflict


def some(draw: Random) -> PortOrDisk:
    if draw.random() < 0.5:
        address = draw.choice(["0.0.0.0", "10.0.0.1", "10.0.0.2"])
        return HostPort(draw.choice([80, 81]), draw.choice(["TCP", "UDP"]), address)
    monitors = tuple(sorted(draw.sample("abc", draw.randint(0, 2))))
    return InlineDisk(draw.choice(["rbd", "iscsi"]), draw.choice("xy"), draw.random() < 0.5, monitors)


@pytest.mark.parametrize("seed", range(40))
def test_what_is_in_the_way_is_found_however_pods_come_and_go(seed: int) -> None:
    draw, ports_and_disks = Random(seed), PortsAndDisks()
    pods: list[tuple[int, tuple[PortOrDisk, ...]]] = []
    for _ in range(60):
        if pods and draw.random() < 0.4:
            slot, held = pods.pop(draw.randrange(len(pods)))
            ports_and_disks.charge(held, slot, -1)
        else:
            slot, held = draw.randrange(5), tuple({some(draw) for _ in range(draw.randint(1, 3))})
            pods.append((slot, held))
            ports_and_disks.charge(held, slot, +1)
        wanted = [some(draw) for _ in range(2)]
        taken = {at for at, held in pods if any(conflict(one, other) for one in wanted for other in held)}
        assert ports_and_disks.slots(wanted) == sorted(taken), f"seed {seed}"
        assert {at for at in range(5) if ports_and_disks.taken(at, wanted)} == taken

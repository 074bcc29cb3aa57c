"""Racks of hosts with an adapter on each of several leaves, of which any may be out: which leaves are one."""

import random

import pytest

from closeby.discovery.equal_switches import alike


def leaves(seed: int, *, rails: int, out: float) -> tuple[dict[str, set[str]], dict[str, int]]:
    """Hosts per leaf of two to eight racks, and the rack of each leaf; GUIDs are in any order."""
    dice = random.Random(seed)
    guids = iter(dice.sample(range(10_000), 100))
    below: dict[str, set[str]] = {}
    rack_of: dict[str, int] = {}
    for rack in range(dice.randint(2, 8)):
        hosts = [f"r{rack}-{number}" for number in range(dice.randint(6, 18))]
        for _ in range(rails):
            guid = f"{next(guids):016x}"
            below[guid] = {host for host in hosts if dice.random() >= out}
            rack_of[guid] = rack
    return below, rack_of


@pytest.mark.parametrize("rails", [1, 2, 4, 8])
@pytest.mark.parametrize("more", ["", "storage", "manager", "storage and manager"])
def test_leaves_are_one_where_they_are_of_one_rack(more: str, rails: int) -> None:
    """One adapter in fifty is out. Storage is a leaf with all hosts, a manager a host on some leaves."""
    for seed in range(100):
        below, rack_of = leaves(seed, rails=rails, out=0.02)
        dice = random.Random(seed)
        everybody = sorted(set[str]().union(*below.values()))
        if "manager" in more:
            for guid in dice.sample(sorted(below), 2):
                below[guid].add("manager")
            below[f"{dice.randrange(10_000):016x}0"] = {"manager"}
        if "storage" in more:
            below[f"{dice.randrange(10_000):016x}1"] = {host for host in everybody if dice.random() >= 0.02}
        domain = alike(below, racks=True).domain
        racks: dict[int, set[str]] = {}
        for guid, rack in rack_of.items():
            racks.setdefault(rack, set()).add(domain[guid])
        assert all(len(one) == 1 for one in racks.values()), f"seed {seed}: a rack is two"
        assert len(set[str]().union(*racks.values())) == len(racks), f"seed {seed}: two racks are one"

"""How the roles of a gang's pods belong together (Volcano task-topology, and traffic between roles)."""

from collections.abc import Mapping
from typing import Final

from msgspec import Struct

#: Two roles in alphabetical order; a role with itself stands for the pods of that role among each other.
Pair = tuple[str, str]

#: What makes a role go earlier: the greatest that holds for it counts.
_SELF_ANTI_AFFINITY: Final = 4
_INTER_AFFINITY: Final = 3
_SELF_AFFINITY: Final = 2
_INTER_ANTI_AFFINITY: Final = 1


class RoleRules(Struct, frozen=True, kw_only=True):
    """How the roles of one gang belong together."""

    affinity: frozenset[Pair] = frozenset()
    anti_affinity: frozenset[Pair] = frozenset()
    #: Roles that come first, in this order; the others follow.
    order: tuple[str, ...] = ()
    #: Traffic between two pods of these roles; pairs that are not in it have none.
    traffic: Mapping[Pair, float] = {}

    def ranks(self) -> dict[str, int]:
        """Self-anti-affinity 4, affinity to others 3, self-affinity 2, anti-affinity to others 1.

        Roles that no rule names are not in it; their rank is 0.
        """
        found: dict[str, int] = {}
        for pairs, to_itself, to_others in (
            (self.anti_affinity, _SELF_ANTI_AFFINITY, _INTER_ANTI_AFFINITY),
            (self.affinity, _SELF_AFFINITY, _INTER_AFFINITY),
        ):
            for one, other in pairs:
                rank = to_itself if one == other else to_others
                found[one] = max(found.get(one, 0), rank)
                found[other] = max(found.get(other, 0), rank)
        return found

    def place(self, role: str) -> int:
        """Place in ``order``; roles that are not in it share the last one."""
        return self.order.index(role) if role in self.order else len(self.order)

    def pulls(self) -> dict[str, dict[str, int]]:
        """For each role the others with affinity (1) or anti-affinity (-1), where not both are asked for."""
        found: dict[str, dict[str, int]] = {}
        for pairs, pull in (
            (self.affinity - self.anti_affinity, 1),
            (self.anti_affinity - self.affinity, -1),
        ):
            for one, other in pairs:
                found.setdefault(one, {})[other] = pull
                found.setdefault(other, {})[one] = pull
        return found

    def repels(self, one: str, other: str) -> bool:
        """Whether pods of these roles are to be apart."""
        return pair_of(one, other) in self.anti_affinity

    def weight(self, one: str, other: str) -> float:
        """The traffic between two pods of these roles."""
        return self.traffic.get(pair_of(one, other), 0.0)

    def by_traffic(self, sizes: Mapping[str, int]) -> "RoleRules":
        """The rules with what traffic adds where the annotations leave something open.

        Without affinity, roles with traffic belong together; without an order either, the role whose pod says
        most goes first. ``sizes`` holds the number of pods of each role.
        """
        if not self.traffic or self.affinity:
            return self
        order = self.order or tuple(sorted(sizes, key=lambda role: (-self._traffic_of(role, sizes), role)))
        return RoleRules(
            affinity=frozenset(self.traffic),
            anti_affinity=self.anti_affinity,
            order=order,
            traffic=self.traffic,
        )

    def _traffic_of(self, role: str, sizes: Mapping[str, int]) -> float:
        """The traffic of one pod of a role with all others."""
        return sum(self.weight(role, other) * (count - (role == other)) for other, count in sizes.items())


def pair_of(one: str, other: str) -> Pair:
    """Two roles as ``RoleRules`` names them."""
    return (one, other) if one <= other else (other, one)

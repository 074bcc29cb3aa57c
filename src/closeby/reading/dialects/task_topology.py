"""What a gang's annotations say about the roles of its pods (Volcano task-topology).

Three annotations are Volcano's: which roles belong together, which apart, and which come first. The fourth is
closeby's: the traffic between roles (the design's second future improvement). Any mistake in any of
them drops all of that gang's task-topology, with a condition for each.
"""

from collections import Counter
from collections.abc import Collection, Iterator
from typing import Final, NamedTuple

from closeby.objects.bounds import quoted, some
from closeby.objects.groups import Pair, PodGroup, RoleRules, pair_of
from closeby.objects.reasons import Condition, few, invalid
from closeby.reading.configuration import GREATEST_WEIGHT
from closeby.reading.decoding.errors import field_path
from closeby.reading.decoding.keys import (
    ROLE_TOPOLOGY,
    TASK_AFFINITY,
    TASK_ANTI_AFFINITY,
    TASK_ORDER,
    TASK_TRAFFIC,
)

#: Characters of an annotation about roles, and roles in one list of it: far beyond what a gang has.
LONGEST_RULES: Final = 16_384
MOST_ROLES: Final = 128
#: Two names of roles, which are values of labels or names of pods.
_LONGEST_PAIR: Final = 2 * 253 + 3

_DROPPED: Final = "until then the gang is placed without task-topology"


class RoleReading(NamedTuple):
    """``rules`` is None when nothing is asked for, or when something is wrong with it."""

    rules: RoleRules | None
    conditions: tuple[Condition, ...] = ()


def asks_for_rules(group: PodGroup) -> bool:
    """Whether a gang has any annotation about roles."""
    annotations = group.annotations
    return bool(annotations) and any(annotations.get(key, "").strip() for key in ROLE_TOPOLOGY)


def read_rules(group: PodGroup, roles: Collection[str]) -> RoleReading:
    """The rules of a gang whose pods have these roles."""
    if not asks_for_rules(group):
        return RoleReading(None)
    reader = _Reader(group, roles)
    rules = RoleRules(
        affinity=reader.pairs(TASK_AFFINITY),
        anti_affinity=reader.pairs(TASK_ANTI_AFFINITY),
        order=reader.order(),
        traffic=reader.traffic(),
    )
    conditions = few(dict.fromkeys(reader.conditions))
    return RoleReading(None if conditions else rules, conditions)


class _Reader:
    """Reads one gang's annotations and gathers what is wrong with them."""

    def __init__(self, group: PodGroup, roles: Collection[str]) -> None:
        self._group = group
        self._roles = frozenset(roles)
        self._known = some(sorted(self._roles)) or "none"
        self.conditions: list[Condition] = []

    def pairs(self, key: str) -> frozenset[Pair]:
        """Every pair inside each group; a group of one role is about that role's pods among each other."""
        found: set[Pair] = set()
        for text in self._text(key).split(";"):
            roles = self.group(key, text)
            if len(roles) == 1:
                found.add(pair_of(roles[0], roles[0]))
            found.update(pair_of(one, other) for i, one in enumerate(roles) for other in roles[:i])
        return frozenset(found)

    def order(self) -> tuple[str, ...]:
        """Roles in the order in which they are to be placed."""
        return self.group(TASK_ORDER, self._text(TASK_ORDER))

    def group(self, key: str, text: str) -> tuple[str, ...]:
        """The roles of one comma-separated list; blank entries are passed over."""
        counts = Counter(role for role in (part.strip() for part in text.split(",")) if role)
        if len(counts) > MOST_ROLES:
            message = f"{len(counts)} roles stand in one list, and at most {MOST_ROLES} may"
            self._wrong(key, message, "name the roles that matter")
            return ()
        for role, count in counts.items():
            if role not in self._roles:
                self._unknown(key, role)
            if count > 1:
                message = f"role {quoted(role)} stands twice in {quoted(text.strip())}"
                self._wrong(key, message, "name it once")
        return tuple(counts)

    def traffic(self) -> dict[Pair, float]:
        """Weights of ``one-other=weight`` entries; blank entries are passed over."""
        found: dict[Pair, float] = {}
        for entry in self._text(TASK_TRAFFIC).split(","):
            if not entry.strip():
                continue
            names, _, number = entry.rpartition("=")
            pair, weight = self._named_pair(entry.strip(), names.strip()), _weight(number)
            if weight is None:
                self._wrong(
                    TASK_TRAFFIC,
                    f"{quoted(entry.strip())} gives no weight",
                    f"write ROLE-ROLE=NUMBER with a number above 0 and up to {GREATEST_WEIGHT:,}",
                )
            if pair is None or weight is None:
                continue
            if found.setdefault(pair, weight) != weight:
                self._wrong(TASK_TRAFFIC, f"{'-'.join(pair)} has two weights", "give it one")
        return found

    def _text(self, key: str) -> str:
        """The annotation; nothing where it is too long to be read."""
        text = self._group.annotations.get(key, "")
        if len(text) <= LONGEST_RULES:
            return text
        message = f"has {len(text):,} characters, and at most {LONGEST_RULES:,} are read"
        self._wrong(key, message, "name the roles that matter")
        return ""

    def _named_pair(self, entry: str, names: str) -> Pair | None:
        """The only way to read ``one-other`` as two roles, for names may have dashes themselves."""
        ways = {
            pair_of(one, other)
            for one, other in _splits(names)
            if one in self._roles and other in self._roles
        }
        if len(ways) == 1:
            return ways.pop()
        if ways:
            told = some(sorted(f"{one} and {other}" for one, other in ways), joint=" or ")
            self._wrong(TASK_TRAFFIC, f"{quoted(entry)} may mean {told}", "rename one of these roles")
        else:
            message = f"{quoted(entry)} names no two roles of the gang's pods"
            self._wrong(TASK_TRAFFIC, message, f"roles there are: {self._known}")
        return None

    def _unknown(self, key: str, role: str) -> None:
        self._wrong(key, f"no pod of the gang has the role {quoted(role)}", f"roles there are: {self._known}")

    def _wrong(self, key: str, message: str, remedy: str) -> None:
        self.conditions.append(
            invalid(
                f"PodGroup/{self._group.key}",
                field_path((key,), "metadata.annotations"),
                f"{key}: {message}",
                f"{remedy}; {_DROPPED}",
            )
        )


def _splits(names: str) -> Iterator[tuple[str, str]]:
    if len(names) > _LONGEST_PAIR:
        return
    for index, letter in enumerate(names):
        if letter == "-":
            yield names[:index].strip(), names[index + 1 :].strip()


def _weight(text: str) -> float | None:
    if not text.isascii() or "_" in text:  # Only Python would read them.
        return None
    try:
        number = float(text)
    except ValueError:
        return None
    return number if 0 < number <= GREATEST_WEIGHT else None

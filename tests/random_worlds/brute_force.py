"""Whether the gang of a tiny world fits, by trying every node for every pod."""

from collections.abc import Iterator

from tests.random_worlds.checker import problems
from tests.random_worlds.facts import Facts
from tests.random_worlds.orders import Filters, has_order

#: Ways that are looked at.
WAYS = 20_000


def fits(facts: Facts) -> bool | None:
    """Whether all members can come to nodes in some order; None: there are too many ways to look at.

    Only for gangs that need all their members.
    """
    members = [pod for pod in facts.gang.members if pod.node is None]
    filters, ways = Filters(facts), 0

    def placed(at: int, where: dict[str, str]) -> Iterator[dict[str, str]]:
        """Ways in which no node has too little."""
        nonlocal ways
        if at == len(members):
            yield where
            return
        pod = members[at]
        came = [(other, where[other.name]) for other in members[:at]]
        for node in facts.nodes:
            ways += 1
            if filters.has_room(pod, node, came):
                yield from placed(at + 1, {**where, pod.name: node})

    for where in placed(0, {}):
        if ways > WAYS:
            return None
        if not problems(facts, where) and has_order(facts, where):
            return True
    return False

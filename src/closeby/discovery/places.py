"""Collects where nodes are, one record of a file after another, and what records say against each other."""

import re
from collections.abc import Mapping, Sequence
from typing import Final

from closeby.discovery.assembling import assemble, several, warning
from closeby.discovery.findings import ScanFindings
from closeby.discovery.labelling import Place
from closeby.discovery.source_files import lines_of, shown
from closeby.errors import UnreadableError
from closeby.objects.reasons import Condition
from closeby.objects.words import natural_key

_NAME_LINE: Final = re.compile(r'([^\s=,"]+)(?:\s*[=,]\s*|\s+)"?([^\s=,"]+)"?')
_COMMENT: Final = re.compile(r"(?:^|\s)#.*")


class Collected:
    """Places of nodes by the names that Kubernetes knows; for one file."""

    def __init__(self, names: Mapping[str, str] | None = None) -> None:
        self.warnings: list[Condition] = []
        self._names = names
        self._places: dict[str, Place] = {}
        self._domains: dict[str, str] = {}
        self._labels: dict[str, Mapping[str, str]] = {}
        self._unnamed: list[str] = []

    def add(
        self,
        source_name: str,
        place: Place,
        domain: str | None = None,
        labels: Mapping[str, str] | None = None,
    ) -> None:
        """One node as its source calls it; of two records that differ the first counts."""
        node = source_name if self._names is None else self._names.get(source_name, source_name)
        if self._names is not None and source_name not in self._names:
            self._unnamed.append(source_name)
        if node in self._places:
            if (place, domain) != (self._places[node], self._domains.get(node)):
                message = "it is described twice, at different places; the first one counts"
                self.warnings.append(warning(f"Node/{node}", message, "describe it once"))
            return
        self._places[node] = place
        if domain is not None:
            self._domains[node] = domain
        if labels:
            self._labels[node] = labels

    def findings(self, file: str, keys: Sequence[str] | None, *, from_above: bool = False) -> ScanFindings:
        """All that was collected. With ``from_above`` places of unequal depth meet at their coarsest level,
        unless a switch of a shorter one is known from a full one.

        Raises:
            UnreadableError: not one node was there.
        """
        if not self._places:
            raise UnreadableError(file, "describes no node", "check that it is the right file and not empty")
        places = _met(self._places) if from_above else self._places
        warnings = [*sorted(self.warnings, key=lambda one: natural_key(one.object)), *self._summaries()]
        return assemble(places, keys, domains=self._domains, labels=self._labels, warnings=warnings)

    def _summaries(self) -> list[Condition]:
        found = []
        if self._unnamed:
            message = f"{several(self._unnamed)} {_are(self._unnamed)} not in the file of node names"
            found.append(
                warning(
                    f"Node/{min(self._unnamed, key=natural_key)}", message, "add a line with its node's name"
                )
            )
        lost = [node for node, place in self._places.items() if not any(place) and node not in self._domains]
        if lost:
            message = f"nothing says where {several(lost)} {'is' if len(lost) == 1 else 'are'}"
            found.append(warning(f"Node/{min(lost, key=natural_key)}", message, "it gets no labels"))
        return found


def _met(places: Mapping[str, Place]) -> dict[str, Place]:
    """Places of one depth; what is missing is known of no switch."""
    depth = max(map(len, places.values()))
    level_of = {
        name: level
        for place in places.values()
        if len(place) == depth
        for level, name in enumerate(place)
        if name is not None
    }
    found = {}
    for node, place in places.items():
        room = depth - len(place)
        offsets = (level_of[name] - at for at, name in enumerate(place) if name in level_of)
        offset = next((one for one in offsets if 0 <= one <= room), room)
        found[node] = (*(None,) * offset, *place) if place else ()
    return found


def read_names(file: str, text: str) -> dict[str, str]:
    """A file of node names: a line per node with what the source calls it and its name in Kubernetes.

    Raises:
        UnreadableError: a line is something else, or names a thing twice.
    """
    names: dict[str, str] = {}
    for number, line in lines_of(text):
        content = _COMMENT.sub("", line).strip()
        if not content:
            continue
        found = _NAME_LINE.fullmatch(content)
        if found is None:
            message = f"{shown(content)} is not an identifier and a name"
            raise UnreadableError(file, message, "write lines like: i-0123456789abcdef0 node-1", line=number)
        if names.setdefault(found[1], found[2]) != found[2]:
            raise UnreadableError(
                file, f"{shown(found[1])} has two names", "keep one of the two", line=number
            )
    return names


def _are(names: Sequence[str]) -> str:
    return "is" if len(names) == 1 else "are"

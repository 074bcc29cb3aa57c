"""Delays that an agent adds to what it measures, for trials where the network itself can't be slowed down."""

import math
import time
from collections.abc import Mapping, Sequence
from typing import Final

import msgspec
from msgspec.structs import replace

from closeby.discovery.source_files import MOST_YAML_BYTES, read_text, read_yaml
from closeby.errors import UnreadableError
from closeby.objects.process import Say
from closeby.objects.reasons import Problem

_REMEDY: Final = "give ZONE=MILLISECONDS, from 0 to 10000"
_MOST: Final = 10_000.0
_INVALID: Final = "InvalidDelays"


class Delays:
    """Seconds by the peer's zone; what a file says goes before what was given otherwise."""

    def __init__(self, given: Mapping[str, float], path: str | None, say: Say) -> None:
        """``given`` in milliseconds; the file is read again with every round."""
        self._given = given
        self._path = path
        self._say = say
        self._known: Mapping[str, float] = given
        self._told = ""

    def __bool__(self) -> bool:
        """Whether there may be any."""
        return bool(self._given) or self._path is not None

    def read(self) -> Problem | None:
        """Looks at the file. One that can't be used changes nothing."""
        if self._path is None:
            return None
        try:
            content = read_text(self._path, MOST_YAML_BYTES)
            pairs = msgspec.convert(_value(self._path, content), dict[str, float])
            found = parse_delays(tuple(f"{key}={value}" for key, value in pairs.items()))
        except UnreadableError as error:
            found = replace(error.problem, reason=_INVALID, remedy=f"{error.problem.remedy}; {_REMEDY}")
        except msgspec.ValidationError as error:
            found = Problem(str(error), _REMEDY, file=self._path, reason=_INVALID)
        if isinstance(found, Problem):
            if self._told != str(found):
                self._say("the delays are unusable", warning=True, error=found)
            self._told = str(found)
            return found
        self._known = {**self._given, **found}
        return None

    def of(self, zone: str) -> float:
        """Milliseconds that an answer of this zone is to take longer."""
        return self._known.get(zone, 0.0)

    def pause(self, zone: str) -> None:
        """Waits as long."""
        milliseconds = self.of(zone)
        if milliseconds > 0:
            time.sleep(milliseconds / 1000)


def parse_delays(given: Sequence[str]) -> dict[str, float] | Problem:
    """Milliseconds by zone, of texts such as ``zone-b=5``."""
    found = {}
    for text in given:
        zone, equals, number = text.partition("=")
        try:
            value = float(number)
        except ValueError:
            value = math.nan
        if not zone or not equals or not 0 <= value <= _MOST:
            return Problem(f"{text!r} is not a delay of a zone", _REMEDY, reason=_INVALID)
        found[zone] = value
    return found


def _value(path: str, content: str) -> object:
    return read_yaml(path, content).value if content.strip() else {}

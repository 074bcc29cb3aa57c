"""What a tree of sources decides about worlds."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.random_worlds.facts import TRAIN
from tests.random_worlds.worlds import World

UNDECIDED = "SearchBudgetExhausted"
_DECIDER = Path(__file__).with_name("decider.py")


@dataclass(frozen=True)
class Answer:
    """The decision about the gang of a world."""

    #: Pod -> node, of those that were placed.
    where: Mapping[str, str] = field(default_factory=dict)
    victims: frozenset[str] = frozenset()
    #: Whether it says that no cheaper victims would do.
    exact: bool = True
    reason: str | None = None
    message: str | None = None
    #: What all calls of its application cost.
    cost: float | None = None
    seconds: float = 0.0
    #: The exception in which deciding ended.
    error: str = ""

    @property
    def verdict(self) -> str:
        """``yes``, ``no`` or ``undecided``."""
        if self.where:
            return "yes"
        return "undecided" if self.reason == UNDECIDED else "no"


def answer_of(found: Mapping[str, Any]) -> Answer:
    """From a line of a decider."""
    if "error" in found:
        return Answer(error=found["error"])
    report = found["report"]
    groups = [one for one in report["groups"] if one["name"] == TRAIN]
    where = {one["name"]: one["node"] for one in report["pods"] if one["phase"] == "Scheduled"}
    victims = frozenset(one["name"] for one in report["pods"] if one["phase"] == "Preempted")
    pods = [one for one in report["pods"] if one["name"].startswith(f"{TRAIN}-") and one["node"] is None]
    waiting = [*groups, *pods]
    reason, message = next(
        ((one["reason"], one["message"]) for one in waiting if one["reason"]), (None, None)
    )
    cost = next((one["cost"] for one in report["appGroups"]), None)
    exact = all(one.get("exact", True) for one in report["preemptions"])
    return Answer(where, victims, exact, reason, message, cost, found["seconds"])


class Decider:
    """A process that decides by one tree of sources."""

    def __init__(self, sources: Path) -> None:
        """``sources``: a folder that holds ``closeby``, or a checkout with such a folder in ``src``.

        Where a checkout has an environment, it runs there: other sources may need other packages.
        """
        inside = sources / "src"
        root = (inside if inside.is_dir() else sources).resolve()
        if not (root / "closeby").is_dir():
            raise ValueError(f"{sources} holds no sources of closeby")
        own = root.parent / ".venv" / "bin" / "python"
        self._process = subprocess.Popen(
            [str(own) if own.is_file() else sys.executable, str(_DECIDER)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": str(root)},
        )

    def ask(self, world: World) -> None:
        """Send a world; ``answer`` is to be called before the next one."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(world.documents).encode() + b"\n")
        self._process.stdin.flush()

    def answer(self) -> Answer:
        """What is decided about the last world."""
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            return Answer(error=f"the decider ended with {self._process.wait()}")
        return answer_of(json.loads(line))

    def close(self) -> None:
        """End the process."""
        self._process.communicate()

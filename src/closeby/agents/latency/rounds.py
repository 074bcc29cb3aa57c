"""Probes peers, round after round, in a thread of its own: the plan of each round, within the limits.

The number of a round is the time divided by how long a round lasts, so that all agents are in the same one as
far as their clocks agree. They do not all begin at once: each waits for a share of the round that its name
says.
"""

import time
import zlib
from collections.abc import Callable, Sequence
from threading import Event, Thread
from typing import Final, TypeVar

from msgspec import Struct

from closeby.agents.latency.limits import Bucket, ResponderLimits
from closeby.agents.latency.peers import Peer
from closeby.agents.latency.plan import MOST, peers_to_probe
from closeby.agents.latency.probing import Probe
from closeby.agents.latency.results import Results
from closeby.objects.process import Contained, Say, brief
from closeby.objects.reasons import Problem

T = TypeVar("T")
#: The peers now, or why they are not known.
Peers = Callable[[], Sequence[Peer] | Problem]
#: Bits/s that a peer can be sent.
Throughput = Callable[[Peer], float | Problem]

#: In which a round's first questions are spread.
_SPREAD: Final = 0.5
#: Of probes that brought a fault of ours to light.
UNEXPECTED: Final = "Unexpected"
#: Of probes that were not begun before the round was over.
LATE: Final = "RoundOver"


class RoundSettings(Struct, frozen=True, kw_only=True):
    """How rounds go."""

    #: The own node's.
    name: str
    #: Seconds that a round lasts.
    seconds: float = 20.0
    #: See ``plan``.
    most: int = MOST


class RoundInputs(Struct, frozen=True, kw_only=True):
    """What a round calls."""

    peers: Peers
    probe: Probe
    #: What one call of ``probe`` sends and receives, in bytes.
    bytes: int = 0
    throughput: Throughput | None = None
    #: What one call of ``throughput`` sends, in bytes.
    carried: int = 0
    #: At the beginning of each round.
    before: Callable[[], object] = lambda: None


class LatencyRounds:
    """From ``start`` to ``stop``."""

    def __init__(
        self,
        course: RoundSettings,
        inputs: RoundInputs,
        results: Results,
        say: Say,
        limits: ResponderLimits,
        now: Callable[[], float] = time.time,
    ) -> None:
        """``now`` is in seconds since the epoch."""
        self._course = course
        self._inputs = inputs
        self._results = results
        self._say = say
        self._now = now
        self._probes = Bucket(limits.probes)
        self._bytes = Bucket(limits.bytes)
        self._end = Event()
        self._thread = Thread(target=self._run, name="rounds", daemon=True)
        self._failing: dict[str, str] = {}
        self._unknown = ""
        #: Rounds that are over, and peers there were in the last one, this node among them.
        self.rounds = 0
        self.known = 0
        #: What ended the thread, for who waits for it.
        self.broken: BaseException | None = None

    def start(self) -> None:
        """Begins with the round that it is."""
        self._thread.start()

    def stop(self) -> None:
        """Begins nothing any more."""
        self._end.set()

    def join(self, within: float) -> None:
        """Waits at most ``within`` seconds for the end of what was begun, if anything was."""
        if self._thread.is_alive():
            self._thread.join(within)

    def _run(self) -> None:
        try:
            while not self._end.is_set():
                number = int(self._now() // self._course.seconds)
                self.one_round(number)
                self._end.wait(self._until(number + 1))
        except BaseException as error:
            self.broken = error
            raise

    def _until(self, number: int) -> float:
        """Seconds until this node's part of a round."""
        share = _SPREAD * zlib.crc32(self._course.name.encode()) / 2**32
        wait = (number + share) * self._course.seconds - self._now()
        # The clock may be set back meanwhile.
        return min(max(0.0, wait), (1 + _SPREAD) * self._course.seconds)

    def one_round(self, number: int) -> None:
        """Asks all that are to be asked in it."""
        self._inputs.before()
        peers = self._inputs.peers()
        if isinstance(peers, Problem):
            self._unknown_peers(peers.sentence())
            return
        self._unknown = ""
        names = {peer.name for peer in peers}
        self._results.keep(names - {self._course.name})
        self._failing = {name: why for name, why in self._failing.items() if name in names}
        self.known = len(peers)
        if peers and self._course.name not in names:
            self._unknown_peers(f"{self._course.name} is not among the {len(peers)} peers, so it probes none")
        targets = peers_to_probe(peers, self._course.name, number, self._course.most)
        for place, peer in enumerate(targets):
            self._end.wait(max(self._probes.wait(), self._bytes.wait(self._inputs.bytes)))
            if self._end.is_set():
                return
            if place and self._now() >= (number + 1 + _SPREAD) * self._course.seconds:
                for _ in targets[place:]:
                    self._results.failed(LATE)
                break
            self._ask(peer)
        if self._inputs.throughput is not None and targets:
            # What is much takes its time within the limit like what is little.
            self._end.wait(self._bytes.wait(self._inputs.carried))
            if self._end.is_set():
                return
            self._carry(targets[number % len(targets)], self._inputs.throughput)
        self.rounds += 1

    def _ask(self, peer: Peer) -> None:
        found = self._found(peer, self._inputs.probe)
        if self._end.is_set():
            return
        if isinstance(found, Problem):
            self._results.failed(found.reason)
            if self._failing.get(peer.name) != found.reason:
                self._say("no latency", warning=True, peer=peer.name, address=peer.host, error=found)
            self._failing[peer.name] = found.reason
            return
        self._results.measured(peer.name, found)
        if self._failing.pop(peer.name, None) is not None:
            self._say("latency recovered", peer=peer.name)

    def _carry(self, peer: Peer, throughput: Throughput) -> None:
        found = self._found(peer, throughput)
        if self._end.is_set():
            return
        if isinstance(found, Problem):
            self._results.failed(found.reason)
            self._say("no bandwidth", warning=True, peer=peer.name, address=peer.host, error=found)
        else:
            self._results.carries(peer.name, found)

    def _found(self, peer: Peer, ask: Callable[[Peer], T | Problem]) -> T | Problem:
        """What a peer was found to be; a fault of ours with one does not keep us from all the others."""
        with Contained() as probing:
            return ask(peer)
        why = "" if probing.error is None else brief(probing.error)
        return Problem(
            f"probing it failed unexpectedly, which is a fault of closeby: {why}", reason=UNEXPECTED
        )

    def _unknown_peers(self, message: str) -> None:
        if self._unknown != message:
            self._say("peers unknown", warning=True, error=message)
        self._unknown = message

"""Probes one peer: one connection, a few requests to warm it up, then many whose responses are timed."""

import contextlib
import socket
import time
from collections.abc import Callable
from threading import Lock
from typing import Final

from closeby.agents.latency.credentials import PeerCredentials
from closeby.agents.latency.delays import Delays
from closeby.agents.latency.limits import ResponderLimits
from closeby.agents.latency.peers import Peer
from closeby.agents.latency.results import PeerLatency, latency_of
from closeby.agents.latency.wire import TRIP, Channel, WireError, ask, authenticate_to, problem_of
from closeby.objects.reasons import Problem

#: Seconds; none at all would mean not to wait.
_SHORTEST: Final = 0.001

#: Asks a peer how long it takes to answer.
Probe = Callable[[Peer], PeerLatency | Problem]


class TcpProbe:
    """The agents' own way. One question at a time, one peer at a time."""

    def __init__(
        self, name: str, credentials: PeerCredentials, delays: Delays, limits: ResponderLimits
    ) -> None:
        """``name`` is the own node's."""
        self._name = name
        self._credentials = credentials
        self._delays = delays
        self._limits = limits
        self._lock = Lock()
        self._connected: socket.socket | None = None
        self._closed = False

    @property
    def bytes(self) -> int:
        """What one probe sends and receives, at most."""
        return (self._limits.trips + self._limits.warm + 1) * TRIP

    def __call__(self, peer: Peer) -> PeerLatency | Problem:
        """How long the peer takes, or why that is not known."""
        until = time.monotonic() + self._limits.within
        try:
            connected = socket.create_connection((peer.host, peer.port), timeout=self._limits.within)
            self._hold(connected)
            connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            connected.settimeout(max(_SHORTEST, until - time.monotonic()))
            connected = self._credentials.client_side(connected)
            self._hold(connected)
            channel = Channel(connected, until)
            authenticate_to(channel, self._name, peer.name, self._credentials.keys()[0])
            return self._timed(channel, peer)
        except (OSError, EOFError, ValueError, WireError) as error:
            return problem_of(error)
        finally:
            self._let_go()

    def close(self) -> None:
        """Cancels the probes in flight, and starts none any more."""
        with self._lock:
            self._closed = True
            if self._connected is not None:
                with contextlib.suppress(OSError):
                    self._connected.shutdown(socket.SHUT_RDWR)

    def _timed(self, channel: Channel, peer: Peer) -> PeerLatency | Problem:
        times: list[float] = []
        try:
            for number in range(self._limits.warm + self._limits.trips):
                began = time.perf_counter_ns()
                self._delays.pause(peer.zone)
                ask(channel, number)
                times.append((time.perf_counter_ns() - began) / 1000)
        except TimeoutError:
            # A far peer may not answer all of them in time; a few will do.
            if len(times) < self._limits.warm + self._limits.least:
                raise
        return latency_of(times[self._limits.warm :])

    def _hold(self, connected: socket.socket) -> None:
        with self._lock:
            self._connected = connected
            if self._closed:
                raise ConnectionAbortedError

    def _let_go(self) -> None:
        with self._lock:
            if self._connected is not None:
                self._connected.close()
                self._connected = None

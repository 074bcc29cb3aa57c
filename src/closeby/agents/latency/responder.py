"""Answers the probes of peers, on one port, and gives other clients as little as possible.

Every connection has a thread of its own, since a thread that waits in the kernel answers sooner than an event
loop with other work does. A client that does not authenticate within a second is disconnected, as is one that
sends what no agent sends; connections are counted, all together and by address, and none lasts long.
"""

import contextlib
import socket
import time
from collections import Counter
from threading import Lock, Thread
from typing import Final

from closeby.agents.latency.credentials import PeerCredentials
from closeby.agents.latency.limits import Bucket, ResponderLimits
from closeby.agents.latency.wire import Channel, WireError, answer, authenticate_client, problem_of
from closeby.objects.process import Say
from closeby.objects.reasons import Problem

#: Connections that the kernel holds until they are looked at.
_BACKLOG: Final = 64
#: Rate limits among which addresses are shared out: a client that connects all the time drains one of them.
ADDRESS_BUCKETS: Final = 64
#: Seconds until the same kind of problem is logged again.
_LOGGED_AGAIN: Final = 60.0


class Responder:
    """From ``open`` to ``close``."""

    def __init__(self, name: str, credentials: PeerCredentials, say: Say, limits: ResponderLimits) -> None:
        """``name`` is the node's."""
        self._name = name
        self._credentials = credentials
        self._say = say
        self._limits = limits
        self._arrivals = Bucket(limits.arrivals)
        self._by_address = [Bucket(limits.arrivals_per_address) for _ in range(ADDRESS_BUCKETS)]
        self._lock = Lock()
        self._connections: dict[int, _Connection] = {}
        self._count = 0
        self._listening: socket.socket | None = None
        self._told: dict[str, float] = {}
        #: Conversations by how they ended: ``Answered``, ``TooMany``, or a reason as of failed probes.
        self.outcomes: Counter[str] = Counter()
        #: What ended the thread that listens, for who waits for it.
        self.broken: BaseException | None = None

    @property
    def connections(self) -> int:
        """Connections at the moment."""
        return len(self._connections)

    def open(self, host: str, port: int) -> int | Problem:
        """Begins to listen (an empty ``host``: on all addresses; port 0: any); the port."""
        try:
            if host:
                family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
                listening = socket.create_server((host, port), family=family, backlog=_BACKLOG)
            else:
                both = socket.has_dualstack_ipv6()
                family = socket.AF_INET6 if both else socket.AF_INET
                listening = socket.create_server(
                    ("", port), family=family, backlog=_BACKLOG, dualstack_ipv6=both
                )
        except OSError as error:
            message = f"{host}:{port} can't be listened on: {error.strerror or error}"
            return Problem(message, "give another one with --listen", reason="CantListen")
        self._listening = listening
        Thread(target=self._listen, args=(listening,), name="responder", daemon=True).start()
        return int(listening.getsockname()[1])

    def close(self) -> None:
        """Listens no more, and cuts all conversations short."""
        listening, self._listening = self._listening, None
        if listening is not None:
            # Wakes the thread that waits for connections.
            with contextlib.suppress(OSError):
                listening.shutdown(socket.SHUT_RDWR)
            listening.close()
        with self._lock:
            left = [one.connected for one in self._connections.values()]
        for one in left:
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)

    def _listen(self, listening: socket.socket) -> None:
        try:
            self._accept(listening)
        except BaseException as error:
            self.broken = error
            raise

    def _accept(self, listening: socket.socket) -> None:
        while self._listening is listening:
            try:
                connected, address = listening.accept()
            except OSError as error:
                if self._listening is listening:
                    # Out of file descriptors, say: that passes, and must not be tried as fast as possible.
                    self._tell(Problem(error.strerror or str(error), reason="CantAccept"), "")
                    time.sleep(0.1)
                continue
            # IPv4 on a socket that takes both.
            host = str(address[0]).removeprefix("::ffff:")
            number = self._enter(_Connection(connected, host))
            if number is None:
                connected.close()
                continue
            try:
                Thread(target=self._serve, args=(number,), name="answer", daemon=True).start()
            except RuntimeError as error:
                # The system gives no more threads, for now.
                self._leave(number, "CantAccept")
                self._tell(Problem(str(error), reason="CantAccept"), "")

    def _enter(self, connection: "_Connection") -> int | None:
        """The connection's number; None if it is one too many."""
        with self._lock:
            here = sum(1 for one in self._connections.values() if one.host == connection.host)
            few = len(self._connections) < self._limits.connections and here < self._limits.per_address
            # What one address has too many of is not taken from the others.
            if not (
                few
                and self._by_address[hash(connection.host) % ADDRESS_BUCKETS].take()
                and self._arrivals.take()
            ):
                self.outcomes["TooMany"] += 1
                return None
            self._count += 1
            self._connections[self._count] = connection
            return self._count

    def _serve(self, number: int) -> None:
        connection = self._connections[number]
        outcome = "Answered"
        try:
            self._answer_peer(connection)
        except (OSError, EOFError, ValueError, WireError) as error:
            problem = problem_of(error)
            outcome = problem.reason
            self._tell(problem, connection.host)
        finally:
            self._leave(number, outcome)

    def _leave(self, number: int, outcome: str) -> None:
        with self._lock:
            connection = self._connections.pop(number)
            self.outcomes[outcome] += 1
        connection.connected.close()

    def _answer_peer(self, connection: "_Connection") -> None:
        until = time.monotonic() + self._limits.proof_within
        connection.connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.connected.settimeout(self._limits.proof_within)
        connection.connected = self._credentials.server_side(connection.connected)
        channel = Channel(connection.connected, until)
        authenticate_client(channel, self._name, self._credentials.keys())
        channel.deadline = time.monotonic() + self._limits.served_within
        # It goes when it has asked all it wanted to.
        with contextlib.suppress(EOFError):
            for _ in range(self._limits.questions):
                answer(channel)

    def _tell(self, problem: Problem, host: str) -> None:
        """Logs it, but not for every connection of a client that keeps connecting."""
        now = time.monotonic()
        if self._listening is None or now - self._told.get(problem.reason, -_LOGGED_AGAIN) < _LOGGED_AGAIN:
            return
        self._told[problem.reason] = now
        self._say("connection failed", warning=True, address=host or None, error=problem)


class _Connection:
    """One connection."""

    def __init__(self, connected: socket.socket, host: str) -> None:
        #: Another one once there is TLS.
        self.connected = connected
        self.host = host

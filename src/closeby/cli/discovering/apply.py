"""`closeby discover … --apply`: the nodes of the cluster get their labels, once or again and again."""

import asyncio
import contextlib
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final

from closeby.cli.discovering.options import Chosen
from closeby.cli.discovering.output import Discover, read, show
from closeby.cli.discovering.programs import end_programs
from closeby.cli.operating.log_lines import FORMATS
from closeby.cli.operating.long_running import reach, run_until_told
from closeby.cli.reading.inputs import Unusable
from closeby.discovery.findings import ScanFindings
from closeby.kube.client.errors import ApiError
from closeby.kube.client.transport import DryTransport, Transport
from closeby.kube.writing.node_labels import LabelledNode, label_nodes
from closeby.objects.reasons import Condition
from closeby.topology.families import listed

if TYPE_CHECKING:
    from closeby.objects.process import Say

_FORBIDDEN: Final = 403


def apply(source: str, discover: Discover, chosen: Chosen) -> None:
    """Labels nodes by what ``discover`` gives; ``source`` is its name, under which it is remembered.

    Once: the findings are printed as well. With ``--watch`` a round that fails is logged and changes nothing.

    Raises:
        Unusable: the source, the cluster or a node can't be read or written (not with ``--watch``).
    """
    say = FORMATS["text"]
    teller = _Teller(say, chosen)
    connection = reach(chosen.kubeconfig, chosen.context)
    client = DryTransport if chosen.dry_run else Transport

    async def once(transport: Transport, stop: asyncio.Event) -> ApiError | None:
        findings = await _beside(lambda: read(lambda: discover(chosen.keys)), stop)
        if findings is None:
            return None
        done = await label_nodes(transport, source, findings.nodes, chosen.rules)
        if isinstance(done, ApiError):
            if done.code != _FORBIDDEN:
                return done
            raise Unusable(f"nodes can't be listed: {done}; let this user list and patch nodes")
        teller.done(done)
        if done.refused:
            name, error = next(iter(done.refused.items()))
            raise Unusable(
                f"{len(done.refused)} nodes could not be labelled, the first of them {name}: {error}",
                "let this user patch nodes",
            )
        show(findings, chosen)
        if findings.nodes and not done.found:
            raise Unusable(
                f"none of the {len(findings.nodes)} hosts that were found is a node of {transport.source}, "
                f"such as {next(iter(findings.nodes))}; name them as the nodes are called: --map gives names "
                "by GUID"
            )
        return None

    async def again(transport: Transport, stop: asyncio.Event) -> ApiError | None:
        say("watching", cluster=transport.source, source=source, seconds=chosen.watch)
        while not stop.is_set():
            await _round(transport, stop)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(chosen.watch):
                    await stop.wait()
        return None

    async def _round(transport: Transport, stop: asyncio.Event) -> None:
        try:
            findings = await _beside(lambda: read(lambda: discover(chosen.keys)), stop)
        except Unusable as error:
            say("reading the source failed, so nothing changes", warning=True, error=error.message)
            return
        if findings is None:
            return
        done = await label_nodes(transport, source, findings.nodes, chosen.rules)
        if isinstance(done, ApiError):
            say("reading the nodes failed, so nothing changes", warning=True, error=done)
            return
        teller.odd(findings)
        teller.done(done)

    run_until_told(connection, client(connection), once if chosen.watch is None else again)


class _Teller:
    """Tells an operator what a round did, and what is odd when it is new."""

    def __init__(self, say: "Say", chosen: Chosen) -> None:
        self._say = say
        self._dry_run = chosen.dry_run
        self._strangers: tuple[str, ...] = ()
        self._foreign: Mapping[str, tuple[str, ...]] = {}
        self._known: frozenset[Condition] = frozenset()
        self._levels: tuple[str, ...] | None = None

    def odd(self, findings: ScanFindings) -> None:
        """What the source noticed and did not in the round before, and whether it found as many levels."""
        if self._levels is not None and len(findings.levels) != len(self._levels):
            before, after = (" > ".join(reversed(levels)) for levels in (self._levels, findings.levels))
            self._say("the number of levels changed", warning=True, before=before, after=after)
        self._levels = findings.levels
        for one in findings.warnings:
            if one not in self._known:
                self._say("noticed", warning=True, object=one.object, reason=one.reason, why=one.sentence())
        self._known = frozenset(findings.warnings)

    def done(self, labelled: LabelledNode) -> None:
        """What became of the nodes."""
        for name, error in labelled.refused.items():
            self._say("labelling a node failed", warning=True, node=name, error=error)
        self._say(
            "nodes labelled",
            found=labelled.found,
            changed=len(labelled.changed),
            nodes=listed(labelled.changed) if labelled.changed else None,
            cleared=listed(labelled.cleared) if labelled.cleared else None,
            dry_run=self._dry_run or None,
        )
        if labelled.cut_short is not None:
            lost, labels = labelled.cut_short
            self._say(
                "the scan seems to be cut short, so nothing counts as missed",
                warning=True,
                not_found=lost,
                labelled=labels,
            )
        if labelled.foreign and labelled.foreign != self._foreign:
            self._say(
                "labels of other writers stay unchanged",
                warning=True,
                labels=listed(sorted({label for own in labelled.foreign.values() for label in own})),
                nodes=listed(tuple(labelled.foreign)),
                remedy="--overwrite takes them over",
            )
        self._foreign = labelled.foreign
        strangers = labelled.strangers
        if strangers and strangers != self._strangers:
            self._say("hosts without a node", warning=True, number=len(strangers), hosts=listed(strangers))
        self._strangers = strangers


async def _beside(work: Callable[[], ScanFindings], stop: asyncio.Event) -> ScanFindings | None:
    """What ``work`` gives, in a thread of its own; None when it is stopped before."""
    result = asyncio.create_task(asyncio.to_thread(work))
    told = asyncio.create_task(stop.wait())
    await asyncio.wait((result, told), return_when=asyncio.FIRST_COMPLETED)
    told.cancel()
    if stop.is_set() and not result.done():
        end_programs()
        with contextlib.suppress(Unusable):
            await result
        return None
    return await result

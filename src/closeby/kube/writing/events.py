"""Events: how users are told what happened, and the operator that they could not be told."""

from closeby.kube.writing.writer import Note, Reference, Verdict, Writer
from closeby.objects.saying import Say


class Events:
    """Posts the Events of one component. None is vital: one that fails is told in the log, and let go."""

    def __init__(self, writer: Writer, say: Say, *, wanted: bool = True) -> None:
        """Unless they are ``wanted`` none is posted."""
        self._writer = writer
        self._say = say
        self.wanted = wanted

    async def post(self, about: Reference, note: Note, now: float) -> None:
        """Says ``note`` about an object; ``now`` is when it happened, in seconds since the epoch."""
        if not self.wanted:
            return
        written = await self._writer.event(about, note, now)
        # The server creates no Events in a namespace that is being deleted.
        if written.error is None or written.verdict is Verdict.GONE or written.error.namespace_ends:
            return
        self._say("event not written", warning=True, object=about, event=note.reason, error=written.error)

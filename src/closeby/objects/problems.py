"""What is wrong with something, in one shape: where, what, and what to do about it."""

from msgspec import Struct
from msgspec.structs import force_setattr

from closeby.objects.bounds import line


class Problem(Struct, frozen=True):
    """One problem: of a manifest, a configuration, a trace, a kubeconfig file, a server, or an agent's peer.

    Each text is one printable line of bounded length, whatever its author wrote.
    """

    message: str
    #: What the user can do about it; empty when there is nothing to do.
    remedy: str = ""
    #: Name of the file; empty when no file is to blame.
    file: str = ""
    #: Counted from 1; None when the whole file is meant.
    document: int | None = None
    #: Counted from 1; None when it stands nowhere in the file.
    line: int | None = None
    #: ``Kind/namespace/name`` as far as it could be read; empty otherwise.
    object: str = ""
    #: Path of the field, such as ``spec.containers[0].image``; empty when none is to blame.
    field: str = ""
    #: A stable token that tools may match on; empty where there is none.
    reason: str = ""

    def __post_init__(self) -> None:
        """Cuts the texts."""
        for name in ("object", "field", "message", "remedy"):
            text = getattr(self, name)
            bounded = line(text)
            if bounded is not text:
                force_setattr(self, name, bounded)

    @property
    def place(self) -> str:
        """``file:line``, or ``file, document 2, line 7`` where a file has several documents."""
        if self.document is None:
            return self.file if self.line is None else f"{self.file}:{self.line}"
        return f"{self.file}, document {self.document}" + ("" if self.line is None else f", line {self.line}")

    @property
    def where(self) -> str:
        """The place, the object and the field, as far as they are known."""
        return ": ".join(part for part in (self.place, self.object, self.field) if part)

    def sentence(self) -> str:
        """One line: ``where: message; remedy``."""
        sentence = f"{self.where}: {self.message}" if self.where else self.message
        return f"{sentence}; {self.remedy}" if self.remedy else sentence

    def __str__(self) -> str:
        """The sentence, after the reason if there is one."""
        return f"{self.reason}: {self.sentence()}" if self.reason else self.sentence()

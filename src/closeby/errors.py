"""All exceptions that closeby raises on purpose: one tree.

``ClosebyError`` is the root, so that a program that uses closeby can tell its errors from others. A
problem of a file, or one that a server reports, is data (``Problem``, ``ApiError``). Two children live in the
modules that need them: ``WireError`` of the agents, and ``Unusable``, by which a command ends.
"""

from collections.abc import Iterable

from closeby.objects.reasons import Problem


class ClosebyError(Exception):
    """The root."""


# What a user wrote


class ConfigurationError(ClosebyError, ValueError):
    """The configuration can't be used; ``problems`` holds all that was found, in the file's order."""

    #: Problems that are shown; of the others the number is.
    MOST = 20

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = tuple(sorted(problems, key=lambda problem: problem.line or 0))
        super().__init__("\n".join(self.lines))

    @property
    def lines(self) -> list[str]:
        """The first problems, a line each, and how many there are besides."""
        more = len(self.problems) - self.MOST
        shown = [str(problem) for problem in self.problems[: self.MOST]]
        return [*shown, f"and {more} more"] if more > 0 else shown


class UnreadableError(ClosebyError):
    """A source that can't be used: where, why, and what to do."""

    def __init__(
        self, file: str, message: str, remedy: str = "", *, line: int | None = None, field: str = ""
    ) -> None:
        self.problem = Problem(file=file, line=line, field=field, message=message, remedy=remedy)
        super().__init__(str(self.problem))


class RemediedError(ClosebyError):
    """Says what is wrong and what to write instead."""

    def __init__(self, message: str, remedy: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.remedy = remedy


class FieldError(RemediedError):
    """A value of a document that can't be read; its reader makes a ``Problem`` of it."""

    def __init__(self, path: tuple[str | int, ...], message: str, remedy: str = "") -> None:
        super().__init__(message, remedy)
        #: Keys and list positions from the document's top to the value.
        self.path = path


class YamlError(RemediedError):
    """Something that YAML allows and a manifest may not have; ``line`` counts from 0."""

    def __init__(self, line: int, message: str, remedy: str) -> None:
        super().__init__(message, remedy)
        self.line = line


class QuantityError(RemediedError, ValueError):
    """A text that is not a quantity, or one that does not fit."""


class HostlistError(ClosebyError, ValueError):
    """A list that is not a host list, or stands for too many names."""


class UnknownWorkloadError(ClosebyError, ValueError):
    """No workload has that name."""


class UnrunnableError(ClosebyError, ValueError):
    """The cluster, the topology and the jobs' wishes make no sense together; the text says what to do."""


# What closeby itself does


class StandstillError(ClosebyError):
    """A run over time would never end: its clock stands still, and nothing happens."""


# What a plugin does


class PluginLookupError(RemediedError, ValueError):
    """There is no such plugin, or it can't be loaded."""


class ScoreError(ClosebyError, ValueError):
    """A plugin gave scores that it must not give: its own fault, not the input's."""

    def __init__(self, plugin: object, what: str) -> None:
        super().__init__(what)
        self.plugin = plugin

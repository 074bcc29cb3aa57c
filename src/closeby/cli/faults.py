"""Tells a fault of a plugin, or a part that is not installed, from a fault of closeby."""

from errno import EDQUOT, EFBIG, EIO, ENOSPC
from types import TracebackType
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from closeby.scheduling.extension import Plugin

_OUTPUT_ERRORS: Final = frozenset({EDQUOT, EFBIG, EIO, ENOSPC})


def without_laboratory(error: BaseException) -> str | None:
    """What to say when the laboratory, which is optional, would be needed; None: that is not the problem."""
    from closeby.scheduling.plugin_lookup import INSTALL_LABORATORY, LABORATORY

    missing = isinstance(error, ModuleNotFoundError) and f"{error.name}.".startswith(f"{LABORATORY}.")
    return INSTALL_LABORATORY if missing else None


def fault_of_plugin(error: BaseException) -> str | None:
    """What to say when a plugin that is not one of ours raised ``error``, or returned nonsense; None when
    no such plugin was at work.

    The innermost call of a method of such a plugin (also of one that it inherits) is to blame.
    """
    from closeby.errors import ScoreError
    from closeby.scheduling.extension import Plugin

    if isinstance(error, ScoreError) and isinstance(error.plugin, Plugin) and not _ours(error.plugin):
        return f"plugin {_called(error.plugin)} failed: {error}"
    blamed: tuple[Plugin, TracebackType] | None = None
    trace = error.__traceback__
    while trace is not None:
        caller = trace.tb_frame.f_locals.get("self")
        if isinstance(caller, Plugin) and not _ours(caller):
            blamed = caller, trace
        trace = trace.tb_next
    if blamed is None:
        return None
    plugin, place = blamed
    frame = place.tb_frame
    own = frame.f_globals.get("__name__") == type(plugin).__module__
    where = f" in {frame.f_code.co_name}, line {place.tb_lineno}" if own else ""
    said = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    return f"plugin {_called(plugin)} failed{where}: {said}"


def output_refused(error: BaseException) -> str | None:
    """What to say when standard output takes no more, as on a full disk; None: that is not the problem."""
    if not isinstance(error, OSError) or error.filename is not None or error.errno not in _OUTPUT_ERRORS:
        return None
    from closeby.cli.output import discard_output

    discard_output()
    return f"the output can't be written: {error.strerror}"


def _ours(plugin: "Plugin") -> bool:
    return type(plugin).__module__.startswith("closeby.")


def _called(plugin: "Plugin") -> str:
    """As a configuration names it."""
    return f"{type(plugin).__module__}:{type(plugin).__qualname__}"

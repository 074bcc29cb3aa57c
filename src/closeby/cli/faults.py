"""Tells a fault of somebody's plugin from a fault of closeby."""

from types import TracebackType


def fault_of_plugin(error: BaseException) -> str | None:
    """What to say when a plugin that is not one of ours raised ``error``, or returned nonsense; None when
    no such plugin was at work.

    The innermost call of a method of such a plugin (also of one that it inherits) is to blame.
    """
    from closeby.scheduling.extension import Plugin

    blamed: tuple[Plugin, TracebackType] | None = None
    trace = error.__traceback__
    while trace is not None:
        caller = trace.tb_frame.f_locals.get("self")
        if isinstance(caller, Plugin) and not type(caller).__module__.startswith("closeby."):
            blamed = caller, trace
        trace = trace.tb_next
    if blamed is None:
        return None
    plugin, place = blamed
    kind = type(plugin)
    called = f"{kind.__module__}:{kind.__qualname__}"
    frame = place.tb_frame
    own = frame.f_globals.get("__name__") == kind.__module__
    where = f" in {frame.f_code.co_name}, line {place.tb_lineno}" if own else ""
    said = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    return f"plugin {called} failed{where}: {said}"

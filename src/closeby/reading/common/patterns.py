"""Regular expressions that others write, which Python matches by backtracking: some take for ever.

Go, for which they are written, matches all in linear time. So those are refused that may take very long here.
"""

import re
from typing import Final

#: Parts of a pattern that may have any length.
_MOST: Final = 8
_TOKEN: Final = re.compile(
    r"\\.|\[\^?\]?(?:\\.|[^\]\\])*\]|\(\?[aiLmsux-]*[:)]|\(\?P<\w+>|\{\d*,?\d*\}|.", re.DOTALL
)
_ONCE: Final = frozenset(("{0}", "{1}", "{0,1}", "{,1}", "{1,1}", "?"))


def takes_too_long(pattern: str) -> str | None:
    """Why a valid pattern may take very long to match; None if it does not."""
    #: For each open group, whether it may match a text in several ways; whether the one that just ended may.
    open_groups, ended = [False], False
    lengths, before = 0, ""
    for token in _TOKEN.findall(pattern):
        repeats = token in ("*", "+") or (len(token) > 2 and token[0] == "{")
        if token == "?" and before in ("*", "+", "?", "}"):
            before = ""
            continue
        if repeats or token == "?":
            if ended and token not in _ONCE:
                return "a group that may match in several ways is repeated"
            if "," in token or token[0] != "{":
                lengths += 1
                open_groups[-1] = True
            before, ended = token[-1], False
            continue
        before, ended = "", False
        if token[0] == "(" and token[-1] != ")":
            open_groups.append(False)
        elif token == ")" and len(open_groups) > 1:
            ended = open_groups.pop()
            open_groups[-1] |= ended
        elif token == "|":
            open_groups[-1] = True
    return f"more than {_MOST} parts of it have any length" if lengths > _MOST else None

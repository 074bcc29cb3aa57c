"""Words that the project gave up, what to say instead, and how many of them remain where."""

from typing import Final

#: The word, in lower case, and what to say instead.
INSTEAD: Final = {
    "anew": "again, or a verb with re-: restart, reload, recreate",
    "anybody": "any client, any user, or a passive",
    "bereft": "losing members",
    "homeless": "on an unknown node",
    "nobody": "no pod, no user, no scheduler, or a passive",
    "somebody": "a user, another writer, or a passive",
    "strayed": "refused",
    "told": "reported, logged, written, known",
    "unheard": "not listed yet",
    "whoever": "a user who, a client that",
}

#: Places that still have such words, and how many. A number may fall and never rise; other places have none.
REMAINING: Final[dict[str, int]] = {}

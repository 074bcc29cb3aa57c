"""Who this process is to others that do the same work."""

import os
import secrets
import socket
from typing import Final

#: Of what the API server takes as the instance that reports an Event.
_LONGEST: Final = 128


def replica(component: str) -> str:
    """A name that no other replica and no later process has: component, host (or pod), and chance.

    A process that restarts on the same host must not take its predecessor's Lease for its own:
    that one may still be at work.
    """
    host = os.environ.get("POD_NAME") or socket.gethostname()
    return f"{component}-{host}"[: _LONGEST - 9] + f"-{secrets.token_hex(4)}"

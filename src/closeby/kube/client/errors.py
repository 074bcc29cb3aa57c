"""What the API server says when it does not do what was asked: its ``Status``, as data."""

from collections.abc import Callable
from typing import Final, TypeVar

import msgspec
from msgspec import Struct

from closeby.objects.bounds import line

#: Tokens for requests of which no answer came: no server was there, the connection broke, it took too long.
UNREACHABLE: Final = "Unreachable"
CUT: Final = "ConnectionCut"
LATE: Final = "NoAnswerInTime"
#: We held it back ourselves, at the last moment.
WITHHELD: Final = "Withheld"
#: The server can't prove who it is.
CERTIFICATE: Final = "CertificateRefused"
#: What to do then, where a kubeconfig file says how to reach the server.
CHECK_KUBECONFIG: Final = (
    "check certificate-authority(-data), tls-server-name and the server's name in the kubeconfig"
)
#: There are no credentials to send.
NO_CREDENTIALS: Final = "NoCredentials"
#: What should be written makes no sense.
INVALID: Final = "Invalid"
#: The answer makes no sense.
UNREADABLE: Final = "UnreadableAnswer"
#: The answer has more bytes than its request takes.
TOO_LONG: Final = "AnswerTooLong"
#: A fault of ours, be it before the request was sent or after.
FAULT: Final = "SchedulerError"

#: The server gave up, and may have begun: of all its 4xx the only one that may have had an effect.
_TIMED_OUT: Final = 408
#: What the server says with a 500 where etcd refuses the object for its size, or it does not send it there.
_TOO_LARGE: Final = ("etcdserver: request is too large", "trying to send message larger than max")
#: Of the body, for messages, where the answer is not a Status (a proxy's page, say).
_SHOWN: Final = 300
#: Bytes of a message: the server quotes what it refuses.
_LONGEST: Final = 2048
#: Seconds that a server may ask to wait; no client stands still for longer.
LONGEST_WAIT: Final = 60.0

T = TypeVar("T")


class ErrorCause(Struct, frozen=True):
    """``details.causes[]``: one thing that is wrong, and the field."""

    reason: str = ""
    message: str = ""
    field: str = ""


class Details(Struct, frozen=True, rename="camel"):
    """``details``: the object meant, and what is wrong with it."""

    name: str = ""
    group: str = ""
    kind: str = ""
    uid: str = ""
    causes: tuple[ErrorCause, ...] = ()
    retry_after_seconds: float | None = None


class ApiError(Struct, frozen=True):
    """A request that was not carried out, or (``code`` None) of which no answer came: it may have been."""

    #: HTTP's status; None when no answer came.
    code: int | None
    #: Kubernetes' own token, such as NotFound, Conflict or Expired; ours when no answer came.
    reason: str
    message: str
    details: Details = Details()
    #: Seconds that the server asks to wait, at most ``LONGEST_WAIT``.
    retry_after: float | None = None
    #: Whether the request certainly had no effect: refused by the server, or never sent.
    unsent: bool = False

    def __str__(self) -> str:
        """One line."""
        return (
            f"{self.reason} ({self.code}): {self.message}" if self.code else f"{self.reason}: {self.message}"
        )

    @property
    def expired(self) -> bool:
        """Whether a resource version or a continue token is too old (410)."""
        return self.code == 410 or self.reason in ("Expired", "Gone")

    @property
    def ahead(self) -> bool:
        """Whether the resource version is newer than all that the server has: it lost some of its memory."""
        return any(cause.reason == "ResourceVersionTooLarge" for cause in self.details.causes)

    @property
    def namespace_ends(self) -> bool:
        """Whether nothing can be created because the namespace is being deleted."""
        return any(cause.reason == "NamespaceTerminating" for cause in self.details.causes)

    @property
    def passing(self) -> bool:
        """Whether the same request may succeed later, without a change of anything."""
        if self.code is None:
            return self.reason != CERTIFICATE
        return not self.too_large and (self.code in (_TIMED_OUT, 429) or self.code >= 500)

    @property
    def too_large(self) -> bool:
        """Whether the server, or etcd behind it, keeps no object of that size."""
        return self.code == 413 or any(words in self.message for words in _TOO_LARGE)


class _NullableDetails(Struct, rename="camel"):
    name: str | None = None
    group: str | None = None
    kind: str | None = None
    uid: str | None = None
    causes: tuple[ErrorCause, ...] | None = None
    retry_after_seconds: float | None = None


class _Status(Struct):
    code: int | None = None
    reason: str | None = None
    message: str | None = None
    details: _NullableDetails | None = None


_decode = msgspec.json.Decoder(_Status).decode


#: What reading the answer of a server raises: also where its text is not UTF-8 or it is nested too deeply.
UNREADABLE_ERRORS: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


def decoded(decode: Callable[[bytes], T], body: bytes) -> T:
    """The answer of a server, read with ``decode``: whatever its bytes are, there is one exception for it.

    Raises:
        msgspec.DecodeError: it can't be read; also where its text is not UTF-8 or it is nested too deeply.
    """
    try:
        return decode(body)
    except UnicodeDecodeError as error:
        raise msgspec.DecodeError(f"it is not UTF-8: {error.reason}") from error
    except RecursionError as error:
        raise msgspec.DecodeError("it is nested too deeply") from error


def read_error(code: int | None, body: bytes, retry_after: str | None = None) -> ApiError:
    """The error in an answer with HTTP status ``code`` (in an ERROR event: None, the Status knows it)."""
    try:
        status = decoded(_decode, body)
    except msgspec.DecodeError:
        status = _Status(message=body[:_SHOWN].decode(errors="replace").strip())
    given = status.details or _NullableDetails()
    asked = _seconds(retry_after) or given.retry_after_seconds
    details = Details(
        name=given.name or "",
        group=given.group or "",
        kind=given.kind or "",
        uid=given.uid or "",
        causes=given.causes or (),
        retry_after_seconds=given.retry_after_seconds,
    )
    return ApiError(
        code=code if code is not None else status.code,
        reason=status.reason or f"HTTP{code or ''}",
        message=line(status.message or "the server gives no reason", _LONGEST),
        details=details,
        retry_after=None if asked is None else min(max(asked, 0.0), LONGEST_WAIT),
        unsent=code is not None and 400 <= code < 500 and code != _TIMED_OUT,
    )


def _seconds(text: str | None) -> float | None:
    """``Retry-After`` in seconds; Kubernetes never gives a date."""
    return float(text) if text is not None and text.isdecimal() else None

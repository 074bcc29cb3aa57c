"""What the readers of one run share: the pool of specs, generated names, and what is worth telling."""

import hashlib
import re
from collections import Counter
from typing import Final

import msgspec

from closeby.errors import FieldError
from closeby.objects.bounds import quoted
from closeby.objects.reasons import Condition, Reason, invalid
from closeby.reading.decoding.documents import Document
from closeby.reading.decoding.keys import Wish, wish_condition
from closeby.reading.decoding.podspecs import SpecPool
from closeby.reading.decoding.result import SharedNotice
from closeby.reading.decoding.wire import Meta

_HASH_LENGTH: Final = 8
#: Wider than Kubernetes' own rules, but nothing that would make keys ambiguous.
_NAME: Final = re.compile(r"[\w.:-]{1,253}", re.ASCII)
_NAME_REMEDY: Final = "use letters, digits, dots and dashes"


class DocumentReading:
    """One run over all documents; it has one owner and is thrown away afterwards."""

    def __init__(self) -> None:
        self.pool = SpecPool()
        self.notices: list[Condition] = []
        self._generated: Counter[str] = Counter()
        self._unheeded: dict[str, tuple[Condition, int]] = {}
        #: By the same key: all objects that share a condition.
        self._sharing: dict[str, dict[str, None]] = {}

    def name(self, document: Document, meta: Meta) -> str:
        """The object's name; one made from ``generateName`` depends on the content alone, and equal objects
        are distinguished by a count, so that the order of files does not matter.

        Raises:
            FieldError: there is neither, or it is not a name.
        """
        if meta.namespace and not _NAME.fullmatch(meta.namespace):
            raise FieldError(
                ("metadata", "namespace"), f"{quoted(meta.namespace)} is not a name", _NAME_REMEDY
            )
        if meta.name:
            if not _NAME.fullmatch(meta.name):
                raise FieldError(("metadata", "name"), f"{quoted(meta.name)} is not a name", _NAME_REMEDY)
            return meta.name
        if not meta.generate_name or not _NAME.fullmatch(meta.generate_name):
            raise FieldError(("metadata", "name"), "is missing", "give the object a name")
        content = msgspec.json.encode(document.plain(), order="sorted")
        digest = hashlib.sha256(content).hexdigest()
        count = self._generated[digest]
        self._generated[digest] += 1
        if count:
            digest = hashlib.sha256(f"{digest} {count}".encode()).hexdigest()
        return meta.generate_name + digest[:_HASH_LENGTH]

    def refused(self, field: str, message: str, remedy: str, owner: str) -> None:
        """Notes a value that no API server accepts; said once per field and value."""
        condition = invalid(owner, field, f"{message}; no API server accepts it", remedy)
        self.note(f"{field} {message}", condition)

    def unread(self, wish: Wish, owner: str, part: str) -> None:
        """Notes a key of another scheduler; reported once per key and value."""
        self.note(f"{wish.key}={wish.value}", wish_condition(wish, owner, part))

    def unread_too(self, count: int, owner: str, part: str) -> None:
        """Notes how many more such keys an object has than are named."""
        message = f"{count} more keys ask for what is not known or not supported"
        remedy = "they are ignored; remove those named before, to see which"
        condition = Condition(
            reason=Reason.UNSUPPORTED, object=owner, field=part, message=message, remedy=remedy
        )
        self.note(f"{owner} {part}", condition)

    @property
    def silent(self) -> bool:
        """Whether nothing was noted, nor a name made."""
        return not (self.notices or self._unheeded or self._generated)

    def all_notices(self) -> tuple[Condition, ...]:
        """Everything noted, in a fixed order."""
        counted = [
            condition
            if count == 1
            else msgspec.structs.replace(condition, message=f"{condition.message} ({count} objects)")
            for condition, count in self._unheeded.values()
        ]
        return tuple(sorted([*self.notices, *counted], key=lambda one: (one.object, one.field, one.message)))

    def note(self, key: str, condition: Condition) -> None:
        """Keeps a condition that many objects may share: once per ``key``, with one object's name."""
        first, count = self._unheeded.get(key, (condition, 0))
        if condition.object < first.object:
            first = condition
        self._unheeded[key] = first, count + 1
        self._sharing.setdefault(key, {})[condition.object] = None

    def shared(self) -> tuple[SharedNotice, ...]:
        """What several objects share, each with all of them."""
        return tuple(
            SharedNotice(condition, frozenset(self._sharing[key]))
            for key, (condition, count) in self._unheeded.items()
            if count > 1
        )

"""Finds what a pod was made for: up its chain of owners to the highest object whose pods closeby can count.

A Job's pods may be a JobSet's, a worker's StatefulSet may belong to a leader pod. Owners are fetched by what
the references say; kinds that closeby does not know are walked through for what stands above them.
"""

import asyncio
from collections.abc import Mapping
from typing import Final

import msgspec
from msgspec import Struct

from closeby.kube.client.errors import LATE, UNREADABLE, ApiError
from closeby.kube.client.transport import Request, Transport
from closeby.kube.state.decoding import Decoder
from closeby.kube.watch.changes import Upserted
from closeby.kube.watch.resources import Resource, is_name, path_of
from closeby.objects.bounds import shown
from closeby.objects.reasons import Condition
from closeby.objects.workloads import Workload
from closeby.reading.registry import READERS

#: Kinds that are read in manifests, and whose controllers make an object which says more of the pods.
_PASSED: Final = frozenset({("ray.io", "RayJob"), ("trainer.kubeflow.org", "TrainJob")})
#: Owners above owners; more is a mistake.
_HIGHEST: Final = 16
#: Owners of pods of which is remembered what stands at the top, as that does not change.
_REMEMBERED: Final = 100_000
#: The server does not know the kind: its CRD may come later.
NO_SUCH_KIND: Final = "NoSuchKind"
#: An owner reference has a name that no object can have.
NO_NAME: Final = "NoSuchName"
_UNAUTHORIZED: Final = 401
#: Seconds for one look-up of all owners above a pod, unless configured otherwise.
LOOKUP_WITHIN: Final = 10.0


class Ref(Struct, frozen=True, order=True):
    """An object that owns others."""

    namespace: str
    api_version: str
    kind: str
    name: str
    #: Empty for pods without an owner.
    uid: str

    @property
    def group(self) -> str:
        """The API group; empty for the core group."""
        return self.api_version.rpartition("/")[0]

    def __str__(self) -> str:
        """As conditions name it."""
        return f"{self.kind}/{self.namespace}/{self.name}"


class GroupOwner(Struct, frozen=True):
    """An owner as it was fetched."""

    ref: Ref
    raw: bytes
    annotations: Mapping[str, str]
    above: Ref | None


class Lineage(Struct, frozen=True, kw_only=True):
    """What some pods were made for."""

    #: The highest owner that closeby can count the pods of; else the highest that is known at all.
    owner: Ref
    #: None: closeby can't count its pods.
    workload: Workload | None = None
    raw: bytes = b""
    #: Of the owners above ``owner``, or of itself where there is no workload; the nearest counts.
    annotations: Mapping[str, str] = {}
    #: What could not be read, and why.
    problem: str = ""
    #: Whether the object that the pods name as their owner is not there.
    gone: bool = False


class _Reference(Struct, frozen=True, rename="camel"):
    api_version: str = ""
    kind: str = ""
    name: str = ""
    uid: str = ""
    controller: bool | None = None


class _Meta(Struct, frozen=True, rename="camel"):
    namespace: str = ""
    name: str = ""
    uid: str = ""
    resource_version: str = ""
    annotations: dict[str, str] | None = None
    owner_references: tuple[_Reference, ...] | None = None


class _Object(Struct, frozen=True):
    metadata: _Meta


class _Kind(Struct, frozen=True):
    name: str
    kind: str
    namespaced: bool = True


class _Kinds(Struct, frozen=True):
    resources: tuple[_Kind, ...] | None = None


_read_object: Final = msgspec.json.Decoder(_Object).decode
_read_kinds: Final = msgspec.json.Decoder(_Kinds).decode


def owner_of(raw: bytes) -> Ref | None:
    """Who made this object; its first owner where none says that it controls it.

    Raises:
        msgspec.DecodeError: it is not an object.
    """
    return _above(_read_object(raw).metadata)


class Owners:
    """Walks up from owners; remembers what does not change."""

    def __init__(self, transport: Transport, within: float = LOOKUP_WITHIN) -> None:
        """A look-up that takes longer than ``within`` seconds ends with an error."""
        self._transport = transport
        self._within = within
        self._decoder = Decoder()
        self._kinds: dict[tuple[str, str], Resource] = {}
        #: By the owner that pods name: the one that was found to count.
        self._tops: dict[Ref, Ref] = {}

    def top(self, direct: Ref) -> Ref | None:
        """Where the walk up from an owner ended last, if that stands for good."""
        return self._tops.get(direct)

    async def lineage(self, ref: Ref) -> Lineage | ApiError:
        """What pods were made for that name ``ref`` as their owner (or for which ``ref`` was found before).

        An error is one that passes: nothing can be said now.
        """
        if not ref.uid:
            return Lineage(owner=ref)
        try:
            async with asyncio.timeout(self._within):
                return await self._walk(ref)
        except TimeoutError:
            return ApiError(None, LATE, f"its owners were not found within {self._within:g} s")

    async def _walk(self, ref: Ref) -> Lineage | ApiError:
        chain: list[GroupOwner] = []
        problem, missing = "", False
        above: Ref | None = ref
        while above is not None and len(chain) < _HIGHEST:
            found = await self._fetch(above)
            if isinstance(found, ApiError):
                if found.passing or found.code in (None, _UNAUTHORIZED):
                    return found
                missing = found.code == 404 and found.reason not in (NO_SUCH_KIND, NO_NAME) and not chain
                problem = f"{shown(above.kind)} {shown(above.name)} can't be read: {found}"
                break
            chain.append(found)
            above = found.above
        if len(chain) == _HIGHEST and above is not None:
            problem = f"{ref.kind} {ref.name} has more than {_HIGHEST} owners above each other"
            # There may be no end of them, and no owner that counts.
            del chain[1:]
        lineage = self._judged(ref, chain, problem, missing)
        self._remember(ref, lineage)
        return lineage

    def _judged(self, ref: Ref, chain: list[GroupOwner], problem: str, missing: bool) -> Lineage:
        for place in range(len(chain) - 1, -1, -1):
            read = self._read(chain[place])
            if isinstance(read, Workload):
                return Lineage(
                    owner=chain[place].ref,
                    workload=read,
                    raw=chain[place].raw,
                    annotations=_annotations(chain[place + 1 :]),
                    problem=problem,
                )
            if read is not None and not problem:
                problem = f"{read.object} {read.field}: {read.sentence()}"
        highest = chain[-1].ref if chain else ref
        return Lineage(owner=highest, annotations=_annotations(chain), problem=problem, gone=missing)

    async def _fetch(self, ref: Ref) -> GroupOwner | ApiError:
        """An owner as it is now; 404 also for another object of its name."""
        if not is_name(ref.name):
            return ApiError(404, NO_NAME, "no object can have this name; correct metadata.ownerReferences")
        kind = await self._kind(ref)
        if isinstance(kind, ApiError):
            return kind
        body = await self._get(kind.item(ref.namespace, ref.name))
        if isinstance(body, ApiError):
            return body
        try:
            meta = _read_object(body).metadata
        except msgspec.DecodeError as error:
            return ApiError(None, UNREADABLE, str(error))
        if meta.uid != ref.uid:
            return ApiError(404, "NotFound", "another object bears its name now")
        return GroupOwner(ref, body, meta.annotations or {}, _above(meta))

    def _remember(self, direct: Ref, lineage: Lineage) -> None:
        """The walk ended here, with nothing left to read."""
        if not lineage.problem:
            if len(self._tops) >= _REMEMBERED:
                self._tops.clear()
            self._tops[direct] = lineage.owner

    def _read(self, owner: GroupOwner) -> Workload | Condition | None:
        """The owner as a workload, what is wrong with it, or None for a kind that is none."""
        ref = owner.ref
        if (ref.group, ref.kind) not in READERS or (ref.group, ref.kind) in _PASSED:
            return None
        resource = self._kinds[ref.api_version, ref.kind]
        read = self._decoder.read(resource, Upserted(ref.name, ref.uid, "", owner.raw))
        if isinstance(read, Condition):
            return read
        return read.record if isinstance(read.record, Workload) else None

    async def _kind(self, ref: Ref) -> Resource | ApiError:
        known = self._kinds.get((ref.api_version, ref.kind))
        if known is not None:
            return known
        missing = ApiError(
            404, NO_SUCH_KIND, f"the server has no {shown(ref.kind)} in {shown(ref.api_version)}"
        )
        root = ("apis", *ref.api_version.split("/")) if ref.group else ("api", ref.api_version)
        if not all(map(is_name, root)):
            return missing
        body = await self._get(path_of(*root))
        if isinstance(body, ApiError):
            return missing if body.code == missing.code else body
        try:
            kinds = _read_kinds(body).resources or ()
        except msgspec.DecodeError as error:
            return ApiError(None, UNREADABLE, str(error))
        version = ref.api_version.rpartition("/")[2]
        for one in kinds:
            # Of a kind's parts (``jobs/status``) some name the same kind.
            if "/" not in one.name:
                self._kinds[ref.api_version, one.kind] = Resource(
                    group=ref.group,
                    version=version,
                    kind=one.kind,
                    plural=one.name,
                    namespaced=one.namespaced,
                )
        return self._kinds.get((ref.api_version, ref.kind), missing)

    async def _get(self, path: str) -> bytes | ApiError:
        """A server that does not answer is asked a second time within the deadline of the look-up."""
        return await self._transport.send(Request(path=path, within=self._within / 2))


def _above(meta: _Meta) -> Ref | None:
    references = meta.owner_references
    if not references:
        return None
    one = next((one for one in references if one.controller), references[0])
    return Ref(meta.namespace, one.api_version, one.kind, one.name, one.uid)


def _annotations(owners: list[GroupOwner]) -> dict[str, str]:
    """Those of the nearest owner count most."""
    return {key: value for one in reversed(owners) for key, value in one.annotations.items()}

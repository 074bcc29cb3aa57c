"""The claims that controllers would make for the pods of a run, with the class that admission gives them."""

from collections.abc import Iterable

from msgspec.structs import replace

from closeby.objects.pods import ClaimName, Pod
from closeby.objects.volumes import PersistentVolumeClaim, StorageClass, StorageObject
from closeby.reading.manifests import Manifests


def storage_of(manifests: Manifests, pods: Iterable[Pod]) -> tuple[StorageObject, ...]:
    """All objects about volumes, with the claims of pods that wait and the default class.

    Of a whole cluster what is there: its controllers have done this.
    """
    if manifests.whole:
        return manifests.storage
    claims = {one.key: one for one in manifests.storage if isinstance(one, PersistentVolumeClaim)}
    for pod in pods:
        if pod.node_name is None and not pod.finished:
            for one in _made_for(pod):
                claims.setdefault(one.key, one)
    default = _default_class(manifests.storage)
    others = (one for one in manifests.storage if not isinstance(one, PersistentVolumeClaim))
    return (*others, *(_with_class(one, default) for one in claims.values()))


def _made_for(pod: Pod) -> Iterable[PersistentVolumeClaim]:
    for one in pod.spec.claims:
        if one.request is not None:
            name = one.of(pod.name)
            yield PersistentVolumeClaim(
                namespace=pod.namespace,
                name=name,
                uid=f"{pod.namespace}/{name}",
                request=one.request,
                controller=pod.uid if one.naming is ClaimName.AFTER_POD else "",
            )


def _default_class(storage: Iterable[StorageObject]) -> str | None:
    """The newest of the default classes, of equals the first by name."""
    marked = [one for one in storage if isinstance(one, StorageClass) and one.default]
    newest = min(marked, key=lambda one: (-(one.created or 0.0), one.name), default=None)
    return None if newest is None else newest.name


def _with_class(claim: PersistentVolumeClaim, default: str | None) -> PersistentVolumeClaim:
    if default is None or claim.volume or claim.request.storage_class is not None:
        return claim
    return replace(claim, request=replace(claim.request, storage_class=default))

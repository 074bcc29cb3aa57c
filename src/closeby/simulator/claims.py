"""The claims that controllers would make for the pods of a run, with the class that admission gives them."""

from collections.abc import Iterable

from closeby.objects.pods import ClaimName, Pod
from closeby.objects.volumes import (
    PersistentVolumeClaim,
    StorageClass,
    StorageObject,
    default_class,
    with_class,
)
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
    default = default_class(one for one in manifests.storage if isinstance(one, StorageClass))
    others = (one for one in manifests.storage if not isinstance(one, PersistentVolumeClaim))
    return (*others, *(with_class(one, default) for one in claims.values()))


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

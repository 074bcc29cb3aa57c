"""What other objects say about a pod: its RuntimeClass, as admission applies it, and its ResourceClaims."""

from collections.abc import Callable, Iterable, Mapping

from msgspec.structs import replace

from closeby.objects.pods import Pod, PodSpec, ResourceClaim, RuntimeClass
from closeby.objects.workloads import Workload


def with_runtime_class(pod: Pod, classes: Mapping[str, RuntimeClass]) -> Pod:
    """The pod with the overhead, the node selector and the tolerations of its class.

    A pod that has an overhead has been admitted.
    """
    found = classes.get(pod.spec.runtime_class)
    if found is None or found == RuntimeClass(name=found.name):
        return pod
    spec = pod.spec
    requests = dict(spec.requests)
    for name, value in found.overhead:
        requests[name] = requests.get(name, 0) + value
    selector = {**dict(found.node_selector), **dict(spec.node_selector)}
    more = tuple(one for one in found.tolerations if one not in spec.tolerations)
    spec = replace(
        spec,
        requests=tuple(sorted(requests.items())),
        node_selector=tuple(sorted(selector.items())),
        tolerations=(*spec.tolerations, *more),
    )
    return replace(pod, spec=spec)


def claim_keys(pod: Pod) -> frozenset[str]:
    """Keys of the ResourceClaims that a pod names."""
    return frozenset(f"{pod.namespace}/{one.claim}" for one in pod.resource_claims)


def with_claims(
    pod: Pod, claims: Mapping[str, ResourceClaim], has_place: Callable[[ResourceClaim], bool]
) -> Pod:
    """The pod with the node selectors of its ResourceClaims, if devices are allocated for it.

    For the others it waits, as it does without their objects. ``has_place``: whether a claim that is not
    reserved for the pod yet can still be, beside the pods that come first.
    """
    if not pod.resource_claims or pod.node_name is not None:
        return pod
    met = set[str]()
    nodes = []
    for one in pod.resource_claims:
        claim = claims.get(f"{pod.namespace}/{one.claim}")
        if claim is not None and claim.usable and (claim.reserves(pod) or has_place(claim)):
            met.add(one.field)
            if claim.nodes is not None:
                nodes.append(claim.nodes)
    if not met:
        return pod
    spec = replace(
        pod.spec,
        unsupported=tuple(one for one in pod.spec.unsupported if one not in met),
        claimed_nodes=tuple(nodes),
    )
    return replace(pod, spec=spec)


class Resolving:
    """Applies both to the pods of some manifests, and classes to templates; equal specs stay one object."""

    def __init__(
        self, classes: Iterable[RuntimeClass], claims: Iterable[ResourceClaim], pods: Iterable[Pod]
    ) -> None:
        """``classes``, ``claims`` and ``pods`` are all that there are; pods that wait are in their order."""
        self._classes = {one.name: one for one in classes}
        self._claims = {one.key: one for one in claims}
        self._specs: dict[PodSpec, PodSpec] = {}
        users: dict[str, list[Pod]] = {key: [] for key in self._claims}
        for pod in sorted(pods, key=lambda one: one.node_name is None):
            for key in claim_keys(pod) if pod.resource_claims and not pod.finished else ():
                if key in users:
                    users[key].append(pod)
        #: Claim -> uids of the pods that have its places.
        self._places = {key: self._claims[key].places(its) for key, its in users.items()}

    def pod(self, pod: Pod) -> Pod:
        """One of the pods."""
        if not pod.spec.runtime_class and not pod.resource_claims:
            return pod
        found = with_claims(
            with_runtime_class(pod, self._classes),
            self._claims,
            lambda claim: pod.uid in self._places[claim.key],
        )
        return self._shared(pod, found)

    def workload(self, workload: Workload) -> Workload:
        """A workload with its templates; of claims it depends on each of the pods whether they serve it."""
        sets = tuple(replace(one, template=self._template(one.template)) for one in workload.pod_sets)
        return replace(workload, pod_sets=sets)

    def _template(self, pod: Pod) -> Pod:
        return self._shared(pod, with_runtime_class(pod, self._classes))

    def _shared(self, pod: Pod, found: Pod) -> Pod:
        """The pod as it was found to be, with the spec of all that have an equal one."""
        return pod if found is pod else replace(found, spec=self._specs.setdefault(found.spec, found.spec))

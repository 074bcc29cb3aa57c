"""Attack: a tenant makes pods that each name a thousand ResourceClaims, and changes the claims all the time.

What must hold: a change of a claim has only those pods read again for which it says something else than
before.
"""

from msgspec.structs import replace

from closeby.kube.state.claims_of_pods import ClaimsOfPods
from closeby.objects.pods import MOST_CONSUMERS, Pod, PodResourceClaim, PodSpec, ResourceClaim

GPU = ResourceClaim(namespace="evil", name="gpu")
ALLOCATED = replace(GPU, allocated=True)


def waiting(count: int) -> list[Pod]:
    """Pods that name the claim and another one."""
    named = tuple(
        PodResourceClaim(f"spec.resourceClaims[{at}]", name) for at, name in enumerate(("gpu", "nic"))
    )
    spec = PodSpec(unsupported=tuple(one.field for one in named))
    return [
        Pod(
            namespace="evil",
            name=f"p{i}",
            uid=f"u{i:03}",
            spec=spec,
            resource_claims=named,
            phase="Pending",
        )
        for i in range(count)
    ]


def named_by(pods: list[Pod]) -> ClaimsOfPods:
    claims = ClaimsOfPods()
    for pod in pods:
        claims.resolved(pod)
    return claims


def test_a_claim_that_no_pod_may_use_has_none_read_again() -> None:
    pods = waiting(3)
    claims = named_by(pods)
    for one in (GPU, replace(GPU, reserved_for=frozenset({"x"})), replace(ALLOCATED, terminating=True)):
        assert claims.put(one) == ()
    assert claims.drop(GPU.key) == ()
    assert claims.drop(GPU.key) == ()


def test_a_claim_that_is_reserved_for_one_pod_after_another_has_none_read_again() -> None:
    pods = waiting(3)
    claims = named_by(pods)
    assert claims.put(ALLOCATED) == tuple(pods)
    for known in range(4):
        assert claims.put(replace(ALLOCATED, reserved_for=frozenset(f"u{i:03}" for i in range(known)))) == ()
    assert claims.drop(GPU.key) == tuple(pods)


def test_only_the_pods_that_win_or_lose_a_place_are_read_again() -> None:
    pods = waiting(MOST_CONSUMERS + 4)
    claims = named_by(pods)
    assert claims.put(ALLOCATED) == tuple(pods[:MOST_CONSUMERS])
    taken = replace(ALLOCATED, reserved_for=frozenset({"x", "y"}))
    assert claims.put(taken) == tuple(pods[MOST_CONSUMERS - 2 : MOST_CONSUMERS])
    assert claims.put(replace(taken, allocated=False)) == tuple(pods[: MOST_CONSUMERS - 2])
    assert claims.forget(pods[0].uid) == ()

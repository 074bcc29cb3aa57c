"""What the admission check writes for one Workload, as its watches bring what happens."""

import asyncio
from typing import Any, cast

import msgspec
import pytest

from closeby.controllers.admission.controller import AdmissionChecks, AdmissionSettings
from closeby.controllers.admission.kueue_objects import KUEUE
from closeby.controllers.admission.verdicts import AdmissionLimits
from closeby.controllers.running import News
from closeby.kube.client.errors import ApiError
from closeby.kube.client.transport import Request, Transport
from closeby.kube.watch.changes import Deleted, Upserted
from closeby.kube.watch.resources import Resource
from closeby.kube.writing.writer import DONE, Writer, Written
from closeby.objects.labels import PLACEMENT

Object = dict[str, Any]

PLURALS = {"AdmissionCheck": "admissionchecks", "Workload": "workloads", "ResourceFlavor": "resourceflavors"}
START = 1_800_000_000.0
QUOTA = {"type": "QuotaReserved", "status": "True", "lastTransitionTime": "2027-01-15T08:00:00Z"}
EVICTED = {"type": "Evicted", "status": "True", "reason": "Preempted"}


class Server:
    """Notes what is written; a PodGroup that asks is answered as if it was made now."""

    def __init__(self) -> None:
        self.asked: list[Object] = []
        self.withdrawn = 0
        self.said: list[Object] = []
        #: How it refuses every question; None where it does not.
        self.refuses: ApiError | None = None

    async def send(self, request: Request) -> bytes | ApiError:
        if request.method == "DELETE":
            self.withdrawn += 1
            return b"{}"
        if self.refuses is not None:
            return self.refuses
        made: Object = msgspec.json.decode(request.body or b"")
        self.asked.append(made["spec"]["placesFor"])
        made["metadata"] |= {"uid": f"g{len(self.asked)}", "generation": len(self.asked)}
        return msgspec.json.encode(made)

    async def apply_status(self, resource: Resource, *named: Any) -> Written:
        if resource.kind == "Workload":
            self.said += named[3]["admissionChecks"]
        return DONE


def silent(message: str, /, *, warning: bool = False, **fields: object) -> None:
    """Logs nothing."""


class Site:
    """One controller, and what it hears."""

    def __init__(self, **settings: str) -> None:
        self.server = Server()
        self.now = START
        self.checks = AdmissionChecks(
            cast("Transport", self.server),
            cast("Writer", self.server),
            silent,
            AdmissionSettings(namespace="closeby-system", limits=AdmissionLimits(deadline=60.0), **settings),
            now=lambda: self.now,
        )
        self.hear("AdmissionCheck", "placement", {"spec": {"controllerName": PLACEMENT}})

    def hear(self, kind: str, name: str, body: Object | None) -> None:
        namespaced = kind == "Workload"
        resource = Resource(
            group=KUEUE, version="v1beta2", kind=kind, plural=PLURALS[kind], namespaced=namespaced
        )
        key = f"team/{name}" if namespaced else name
        change: Upserted | Deleted = Deleted(key, f"uid-{name}")
        if body is not None:
            meta = {"name": name, "namespace": "team" if namespaced else "", "uid": f"uid-{name}"}
            change = Upserted(key, f"uid-{name}", "1", msgspec.json.encode({"metadata": meta, **body}))
        self.checks.observe(News(resource, change, None))

    def workload(self, *conditions: Object, state: str = "Pending", flavor: str = "") -> None:
        """The Workload ``train`` is so now."""
        given = {"podSetAssignments": [{"name": "main", "flavors": {"cpu": flavor}}]} if flavor else {}
        template = {"spec": {"schedulerName": "closeby", "containers": []}}
        body = {
            "spec": {"podSets": [{"name": "main", "count": 2, "template": template}]},
            "status": {
                "conditions": list(conditions),
                "admission": given,
                "admissionChecks": [{"name": "placement", "state": state}],
            },
        }
        self.hear("Workload", "train", body)

    def look(self) -> None:
        asyncio.run(self.checks.reconcile(("Workload", "team/train")))


@pytest.mark.parametrize("state", ["Pending", "Ready"])
def test_a_workload_that_is_being_evicted_gets_no_answer_and_gives_its_places_back(state: str) -> None:
    """Kueue sets the check back to Pending with the eviction; what is said then would count the next time."""
    site = Site()
    site.workload(QUOTA)
    site.look()
    assert len(site.server.asked) == 1
    site.now += 3600
    site.workload(QUOTA, EVICTED, state=state)
    site.look()
    assert (site.server.withdrawn, site.server.said, len(site.server.asked)) == (1, [], 1)
    # With the next quota it is asked again.
    site.workload({**QUOTA, "lastTransitionTime": "2027-01-15T09:00:00Z"}, {**EVICTED, "status": "False"})
    site.look()
    assert len(site.server.asked) == 2


@pytest.mark.parametrize(("name", "answers"), [(PLACEMENT, True), ("example.com/second", False)])
def test_a_second_closeby_leaves_the_checks_of_the_first_alone(name: str, answers: bool) -> None:
    """The pods are the first one's: as far as the second one knows, nothing is to be done for them."""
    site = Site(scheduler_name="second", controller_name=name)
    site.workload(QUOTA)
    site.look()
    assert [said["state"] for said in site.server.said] == (["Ready"] if answers else [])
    assert not site.server.asked


def test_nothing_is_asked_before_the_flavor_is_known() -> None:
    """The labels and tolerations in it say where the pods may go."""
    site = Site()
    site.workload(QUOTA, flavor="gpus")
    site.look()
    assert not site.server.asked
    (said,) = site.server.said
    assert (said["state"], "ResourceFlavor gpus" in said["message"]) == ("Pending", True)
    site.hear("ResourceFlavor", "gpus", {"spec": {"nodeLabels": {"pool": "gpus"}}})
    site.look()
    (asked,) = site.server.asked
    assert asked["podSets"][0]["template"]["spec"]["nodeSelector"] == {"pool": "gpus"}


def test_a_flavor_that_never_comes_holds_no_quota_for_ever() -> None:
    site = Site()
    site.workload(QUOTA, flavor="gpus")
    site.now += 61
    site.look()
    assert [one["state"] for one in site.server.said] == ["Retry"]


def test_a_podgroup_that_is_not_served_says_what_to_install() -> None:
    site = Site()
    # An API server that does not know the path answers without a reason of Kubernetes.
    site.server.refuses = ApiError(404, "HTTP404", "404 page not found")
    site.workload(QUOTA)
    site.look()
    (said,) = site.server.said
    assert said["state"] == "Pending"
    assert "NotAsked" in said["message"] and "deploy/crds" in said["message"]


@pytest.mark.parametrize("ends", ["deleted", "without its check", "finished"])
def test_a_workload_that_wants_no_places_any_more_gives_them_back(ends: str) -> None:
    site = Site()
    site.workload(QUOTA)
    site.look()
    match ends:
        case "deleted":
            site.hear("Workload", "train", None)
        case "without its check":
            site.hear("AdmissionCheck", "placement", None)
        case _:
            site.workload(QUOTA, {"type": "Finished", "status": "True"}, state="Ready")
    site.look()
    assert (site.server.withdrawn, len(site.server.asked)) == (1, 1)


def test_a_check_does_not_stay_ready_without_the_quota() -> None:
    """Kueue takes some quotas without an eviction (its LocalQueue is stopped, say) and leaves the check."""
    site = Site()
    site.workload(QUOTA, state="Ready")
    site.look()
    site.workload({**QUOTA, "status": "False"}, state="Ready")
    site.look()
    assert site.server.withdrawn == 1
    assert [(one["state"], "podSetUpdates" in one) for one in site.server.said] == [("Pending", False)]
    site.server.said.clear()
    site.workload({**QUOTA, "status": "False"}, {"type": "Finished", "status": "True"}, state="Ready")
    site.look()
    assert not site.server.said

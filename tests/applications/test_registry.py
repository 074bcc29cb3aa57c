"""What follows from an AppGroup, and to which application a pod belongs."""

from msgspec.structs import replace

from closeby.applications.registry import Applications, application, workload_name
from closeby.objects.applications import APP_GROUP_LABEL, WORKLOAD_LABEL
from closeby.objects.pods import Pod
from closeby.objects.reasons import Condition, Reason
from tests.applications.calls import app
from tests.worlds import pods

#: web calls db, within 20, and itself; db calls a cache that nobody declares.
SHOP = app("web > db:3<=20 web\ndb > cache", name="shop")


def replica(name: str, **labels: str) -> Pod:
    return replace(pods(None, 1)[0], name=name, labels={APP_GROUP_LABEL: "shop", **labels})


def test_each_end_of_an_edge_is_pulled_to_the_other() -> None:
    found = application(SHOP)
    pulls = {name: sorted(pull.other for pull in pulls) for name, pulls in found.pulls_of.items()}
    assert pulls == {"web": ["db", "web"], "db": ["cache", "web"], "cache": ["db"]}
    limits = {name: [pull.other for pull in pulls] for name, pulls in found.limits_of.items()}
    assert limits == {"web": ["db"], "db": ["web"], "cache": []}


def test_a_pod_belongs_to_the_workload_of_its_label_else_of_its_name() -> None:
    labelled = replica("shop-1", **{WORKLOAD_LABEL: "db"})
    assert [workload_name(pod) for pod in (labelled, replica("web"))] == ["db", "web"]
    found = application(SHOP)
    workloads = [found.workload_of(pod) for pod in (labelled, replica("web"), replica("shop-2"))]
    assert workloads == ["db", "web", None]


def test_what_is_wrong_is_kept_but_not_used() -> None:
    wrong = Condition(reason=Reason.INVALID_SPEC, object="AppGroup/shop", message="wrong", blocking=True)
    known = Applications()
    known.declare(SHOP)
    before, pod = known.version, replica("web")
    assert known.of(pod) is not None and known.of(pods(None, 1)[0]) is None
    known.declare(replace(SHOP, conditions=(wrong,)))
    assert known.of(pod) is None and known.get(SHOP.key) is None
    assert [one.key for one in known] == [SHOP.key] and known.version > before
    known.withdraw(SHOP.key)
    assert len(known) == 0

"""Pods of an application preempt like plain pods, although they are one work item."""

from closeby.objects.applications import APP_GROUP_LABEL, WORKLOAD_LABEL, AppGroup, AppWorkload
from closeby.scheduling.events import AppGroupChanged
from closeby.scheduling.preemption.rule import Preemptible
from tests.preempting.site import Site, names
from tests.worlds import GPU, node


def shop(*workloads: str) -> Site:
    """Two full nodes, and an application with one pod for each workload that needs a whole node."""
    site = Site([node(name, {}, {GPU: 2}) for name in ("n0", "n1")], whose=Preemptible(reports=True))
    for index, name in enumerate(("n0", "n1")):
        site.alone(f"low{index}", name, priority=index, gpu=2)
    group = AppGroup(
        namespace="default", name="shop", workloads=tuple(AppWorkload(name=one) for one in workloads)
    )
    site.tell(AppGroupChanged(group))
    for one in workloads:
        labels = {APP_GROUP_LABEL: "shop", WORKLOAD_LABEL: one}
        site.alone(one, priority=10, gpu=2, labels=labels)
    return site


def test_two_pods_of_one_application_clear_two_nodes() -> None:
    site = shop("cart", "front")
    plans = site.tick()
    assert sorted((plan.node, names(plan)) for plan in plans) == [("n0", ["low0"]), ("n1", ["low1"])]
    assert site.engine.preemptions == tuple(plans), "no plan ended another one"
    assert site.evict(*plans) == []
    assert set(site.where) == {"cart", "front"}


def test_a_pod_for_which_there_is_no_node_left_leaves_the_plans_of_the_others_alone() -> None:
    site = shop("cart", "front", "stock")
    plans = site.tick()
    assert len(plans) == 2
    assert site.engine.preemptions == tuple(plans)
    assert site.tick() == []
    assert site.engine.preemptions == tuple(plans)

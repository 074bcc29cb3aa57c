"""The numbers that the live scheduler tells, driven by decisions of the real engine."""

from msgspec.structs import replace

from closeby.scheduling.events import GroupChanged, NodeUpserted, PodDeleted, PodUpserted
from tests.kube.metered import Metered, added
from tests.worlds import GPU, gang, node, pods, spec, world

TWO_RACKS = """
zone-a rack-1 : a1=2 a2=2
zone-a rack-2 : a3=4
"""


def test_a_pod_from_its_arrival_to_its_node() -> None:
    it = Metered(world(TWO_RACKS))
    uids = it.hear(*added(pods(None, 1)))
    assert it.scrape().value("scheduler_pending_pods", queue="active") == 1
    it.now += 2.0
    it.bind(uids)
    told = it.scrape()
    assert told.value("scheduler_schedule_attempts_total", result="scheduled", profile="mine") == 1
    attempt = "scheduler_scheduling_attempt_duration_seconds"
    assert told.value(f"{attempt}_sum", result="scheduled", profile="mine") == 0.75
    assert told.value(f"{attempt}_bucket", result="scheduled", profile="mine", le="0.512") == 0
    assert told.value(f"{attempt}_bucket", result="scheduled", profile="mine", le="1.024") == 1
    assert told.value("scheduler_pod_scheduling_sli_duration_seconds_sum", attempts="1") == 2.25
    assert told.value("scheduler_pod_scheduling_attempts_sum") == 1
    assert told.value("closeby_binding_duration_seconds_sum") == 0.25
    assert told.value("closeby_decision_duration_seconds_sum") == 0.5
    assert sum(told.all("scheduler_pending_pods").values()) == 0


def test_a_batch_shares_its_time_among_its_items() -> None:
    it = Metered(world(TWO_RACKS))
    it.hear(*added(pods(None, 2, prefix="fits")), *added(pods(None, 2, spec(gpu=9), prefix="huge")))
    told = it.scrape()
    refused = {"result": "unschedulable", "profile": "mine"}
    assert told.value("scheduler_scheduling_attempt_duration_seconds_sum", **refused) == 0.25
    assert told.value("closeby_decision_duration_seconds_count") == 1


def test_waiting_items_are_counted_by_queue_plugin_and_reason() -> None:
    """One is too large, one gated, of a gang of three two are there, and a gang of two finds no rack."""
    it = Metered(world(TWO_RACKS))
    gated = replace(spec(gpu=1), scheduling_gates=("quota",))
    it.hear(
        GroupChanged(gang("late", 3)),
        GroupChanged(gang("wide", 2, required="rack")),
        *added(pods(None, 1, spec(gpu=9), prefix="huge")),
        *added(pods(None, 1, gated, prefix="gated")),
        *added(pods("late", 2)),
        *added(pods("wide", 2, spec(gpu=4))),
    )
    told = it.scrape()
    assert told.all("scheduler_pending_pods") == {
        ("active",): 0,
        ("backoff",): 0,
        ("unschedulable",): 3,
        ("gated",): 3,
    }
    assert told.value("scheduler_unschedulable_pods", plugin="NodeResourcesFit", profile="mine") == 1
    assert told.value("scheduler_unschedulable_pods", plugin="SchedulingGates", profile="mine") == 1
    reasons = told.all("closeby_waiting_pods")
    assert reasons[("GangIncomplete",)] == 2 and reasons[("InsufficientResources",)] == 1
    assert sum(reasons.values()) == 6
    assert told.all("closeby_waiting_gangs") == {("GangIncomplete",): 1, ("GangDoesNotFit",): 1}
    # What was never tried is not an attempt.
    assert told.value("scheduler_schedule_attempts_total", result="unschedulable", profile="mine") == 3
    assert (
        told.value("scheduler_podgroup_schedule_attempts_total", result="unschedulable", profile="mine") == 1
    )


def test_a_refused_pod_rests_and_its_attempts_are_counted() -> None:
    it = Metered(world("zone-a rack-1 : a1=1"))
    it.hear(*added(pods(None, 1, spec(gpu=2))))
    assert it.scrape().value("scheduler_pending_pods", queue="unschedulable") == 1
    it.now += 0.5
    bigger = NodeUpserted(node("a2", {"zone": "zone-a", "rack": "rack-1"}, {GPU: 2}))
    assert it.hear(bigger) == []
    assert it.scrape().value("scheduler_pending_pods", queue="backoff") == 1
    it.now += 0.5
    uids = it.hear()
    it.bind(uids)
    told = it.scrape()
    assert told.value("scheduler_pod_scheduling_sli_duration_seconds_sum", attempts="2") == 1.25
    assert told.value("scheduler_pod_scheduling_attempts_sum") == 2


def test_a_gang_and_how_close_it_lies() -> None:
    """Both racks hold it; the first by name has two nodes."""
    it = Metered(world(TWO_RACKS))
    uids = it.hear(GroupChanged(gang("train", 4, required="rack")), *added(pods("train", 4)))
    it.bind(uids)
    told = it.scrape()
    assert told.value("scheduler_podgroup_schedule_attempts_total", result="scheduled", profile="mine") == 1
    assert told.value("scheduler_schedule_attempts_total", result="scheduled", profile="mine") == 4
    spans = {
        level: told.value("closeby_gang_span_sum", level=level) for level in ("zone", "rack", "hostname")
    }
    assert spans == {"zone": 1, "rack": 1, "hostname": 2}


def test_a_binding_that_fails_is_an_error_and_the_pod_waits_on() -> None:
    it = Metered(world(TWO_RACKS))
    first, second = it.hear(*added(pods(None, 2)))
    it.meters.binds(lambda: (1, 1))
    it.meters.binding(first)
    it.meters.binding(second)
    assert it.scrape().value("closeby_bindings_in_flight") == 1
    assert it.scrape().value("closeby_bindings_awaiting_volumes") == 1
    assert it.scrape().value("scheduler_cache_size", type="assumed_pods") == 2
    it.now += 1.0
    it.meters.not_bound(first)
    it.meters.not_bound(second, final=True)
    told = it.scrape()
    assert told.value("scheduler_schedule_attempts_total", result="error", profile="mine") == 2
    assert told.value("scheduler_pending_pods", queue="active") == 1


def test_one_that_lost_the_lead_forgets_the_pods_that_it_knew() -> None:
    it = Metered(world(TWO_RACKS))
    (uid,) = it.hear(*added(pods(None, 1)))
    it.meters.binding(uid)
    it.meters.shows(world(TWO_RACKS).engine)
    assert it.meters.waits == {}


def test_the_watch_may_tell_of_a_binding_before_its_answer_comes() -> None:
    it = Metered(world(TWO_RACKS))
    (pod,) = pods(None, 1)
    (uid,) = it.hear(PodUpserted(pod))
    it.meters.binding(uid)
    it.hear(PodUpserted(replace(pod, node_name="a1")))
    it.now += 0.5
    it.meters.bound(uid)
    told = it.scrape()
    assert told.value("scheduler_pod_scheduling_sli_duration_seconds_count", attempts="1") == 1


def test_nothing_is_kept_of_pods_that_are_gone() -> None:
    """Deleted, bound by somebody else, finished, or being deleted."""
    it = Metered(world("zone-a rack-1 : a1=0"))
    members = pods(None, 4)
    it.hear(*added(members))
    assert len(it.meters.waits) == 4
    it.hear(
        PodDeleted(members[0].uid),
        PodUpserted(replace(members[1], node_name="a1")),
        PodUpserted(replace(members[2], phase="Failed")),
        PodUpserted(replace(members[3], terminating=True)),
    )
    assert not it.meters.waits
    assert sum(it.scrape().all("closeby_waiting_pods").values()) == 0


def test_nothing_is_kept_of_pods_that_go_while_they_are_being_bound() -> None:
    """The same; their bindings fail after that was heard."""
    it = Metered(world("zone-a rack-1 : a1=4"))
    members = pods(None, 4)
    uids = it.hear(*added(members))
    for uid in uids:
        it.meters.binding(uid)
    it.hear(
        PodDeleted(members[0].uid),
        PodUpserted(replace(members[1], node_name="a1")),
        PodUpserted(replace(members[2], phase="Failed")),
        PodUpserted(replace(members[3], terminating=True)),
    )
    for uid in uids:
        it.meters.not_bound(uid)
    assert not it.meters.waits
    assert it.scrape().value("scheduler_schedule_attempts_total", result="error", profile="mine") == 4


def test_a_binding_of_a_pod_that_never_arrived() -> None:
    """A start that was cut off is carried on: what is bound then is counted, with one attempt."""
    it = Metered(world(TWO_RACKS))
    it.bind(["carried-on"])
    told = it.scrape()
    assert told.value("scheduler_schedule_attempts_total", result="scheduled", profile="mine") == 1
    assert told.value("scheduler_pod_scheduling_sli_duration_seconds_sum", attempts="1") == 0.25


def test_the_caches_are_measured() -> None:
    it = Metered(world(TWO_RACKS))
    it.hear(*added(pods(None, 2, on="a1")), *added(pods(None, 1, prefix="new")))
    told = it.scrape()
    assert told.all("scheduler_cache_size") == {("nodes",): 3, ("pods",): 3, ("assumed_pods",): 0}


def test_many_attempts_are_one_label() -> None:
    it = Metered(world("zone-a rack-1 : a1=1"))
    it.hear(*added(pods(None, 1, spec(gpu=2))))
    (wait,) = it.meters.waits.values()
    wait.attempts = 20
    it.bind(it.meters.waits)
    assert it.scrape().value("scheduler_pod_scheduling_sli_duration_seconds_count", attempts="15+") == 1

"""Which labels a node gets or loses, over several rounds."""

import msgspec

from closeby.discovery.findings import FoundNode, LinkQuality
from closeby.discovery.relabelling import NodeNow, Relabelling, Rules, cut_short, match_hosts, relabel

BLOCK, ZONE = "example.com/block", "example.com/zone"
OTHER = {"kubernetes.io/hostname": "n1", "example.com/owner": "them"}
NOTE = "discovery.closeby.dev/ibnetdiscover"


def found(block: str | None, zone: str | None = None) -> FoundNode:
    labels = {key: value for key, value in ((BLOCK, block), (ZONE, zone)) if value is not None}
    return FoundNode(path=(block, zone), labels=labels)


class Rounds:
    """A node over several rounds, with every change carried out."""

    def __init__(self, **labels: str) -> None:
        self.node = NodeNow("n1", "uid-1", {**OTHER, **labels})
        self.last = Relabelling({}, {})

    @property
    def foreign(self) -> list[str]:
        """Labels that were left to others in the last one."""
        return list(self.last.foreign)

    def round(
        self,
        seen: FoundNode | None,
        misses: int = 3,
        source: str = "ibnetdiscover",
        *,
        overwrite: bool = False,
    ) -> dict[str, str]:
        """One more; the labels after it, without those of others."""
        self.last = relabel(source, self.node, seen, Rules(misses=misses, overwrite=overwrite))
        labels, annotations = dict(self.node.labels), dict(self.node.annotations)
        for held, changes in ((labels, self.last.labels), (annotations, self.last.annotations)):
            for key, value in changes.items():
                if value is None:
                    del held[key]
                else:
                    held[key] = value
        self.node = NodeNow("n1", "uid-1", labels, annotations)
        assert OTHER.items() <= labels.items()
        return {key: value for key, value in labels.items() if key not in OTHER}


def test_what_was_found_is_written_once() -> None:
    rounds = Rounds()
    assert rounds.round(found("L1", "S1")) == {BLOCK: "L1", ZONE: "S1"}
    assert rounds.node.annotations[NOTE] == f'{{"{BLOCK}":{{"value":"L1"}},"{ZONE}":{{"value":"S1"}}}}'
    rounds.round(found("L1", "S1"))
    assert not rounds.last


def test_only_what_changes_is_written() -> None:
    rounds = Rounds()
    rounds.round(found("L1", "S1"))
    rounds.round(found("L2", "S1"))
    assert rounds.last.labels == {BLOCK: "L2"}


def test_a_node_that_was_not_found_keeps_its_labels_until_the_third_time() -> None:
    rounds = Rounds()
    rounds.round(found("L1", "S1"))
    assert rounds.round(None) == rounds.round(None) == {BLOCK: "L1", ZONE: "S1"}
    assert rounds.round(None) == {}
    assert rounds.last.labels == {BLOCK: None, ZONE: None}
    assert rounds.node.annotations == {}
    # Nothing is left to do, and nothing is written any more.
    rounds.round(None)
    assert not rounds.last


def test_a_node_that_is_found_again_starts_over() -> None:
    rounds = Rounds()
    rounds.round(found("L1"))
    for _ in range(4):
        rounds.round(None)
        rounds.round(None)
        assert rounds.round(found("L1")) == {BLOCK: "L1"}


def test_a_level_that_is_missing_is_missed_alone() -> None:
    # The leaf has lost its uplinks: it is there, but nobody knows under which spine.
    rounds = Rounds()
    rounds.round(found("L1", "S1"))
    rounds.round(found("L1"))
    assert rounds.round(found("L1")) == {BLOCK: "L1", ZONE: "S1"}
    assert rounds.round(found("L1")) == {BLOCK: "L1"}


def test_with_one_miss_it_goes_at_once() -> None:
    rounds = Rounds()
    rounds.round(found("L1"), misses=1)
    assert rounds.round(None, misses=1) == {}


def test_labels_of_others_are_never_removed() -> None:
    rounds = Rounds(**{BLOCK: "theirs"})
    for _ in range(5):
        assert rounds.round(None) == {BLOCK: "theirs"}
        assert not rounds.last


def test_labels_of_others_are_never_changed_unless_that_is_wanted() -> None:
    rounds = Rounds(**{BLOCK: "theirs"})
    assert rounds.round(found("L1", "S1")) == {BLOCK: "theirs", ZONE: "S1"}
    assert rounds.foreign == [BLOCK]
    assert rounds.node.annotations[NOTE] == f'{{"{ZONE}":{{"value":"S1"}}}}'
    # Another source is somebody else, too.
    assert rounds.round(found("L1", "S2"), source="slurm") == {BLOCK: "theirs", ZONE: "S1"}
    assert rounds.foreign == [BLOCK, ZONE]
    assert rounds.round(found("L1", "S1"), overwrite=True) == {BLOCK: "L1", ZONE: "S1"}
    assert rounds.foreign == []
    # From then on it is ours.
    assert rounds.round(found("L2", "S1")) == {BLOCK: "L2", ZONE: "S1"}
    assert rounds.round(None, misses=1) == {}


def test_a_label_that_another_writer_changed_since_is_theirs() -> None:
    for seen in (None, found("L1"), found("L2")):
        rounds = Rounds()
        rounds.round(found("L1"))
        node = rounds.node
        rounds.node = NodeNow("n1", "uid-1", {**node.labels, BLOCK: "theirs"}, node.annotations)
        for _ in range(4):
            assert rounds.round(seen) == {BLOCK: "theirs"}
        assert rounds.node.annotations == {}


def test_a_scan_that_misses_most_nodes_is_cut_short() -> None:
    note = {NOTE: f'{{"{BLOCK}":{{"value":"L1"}}}}'}
    nodes = [NodeNow(f"n{i}", f"uid-{i}", {BLOCK: "L1"}, note) for i in range(4)]
    # Whom nobody labelled is not missed.
    nodes.append(NodeNow("login", "uid-login"))
    assert cut_short("ibnetdiscover", nodes, {"n0", "n1"}) is None
    assert cut_short("ibnetdiscover", nodes, {"n0"}) == (3, 4)
    assert cut_short("ibnetdiscover", nodes, {"login"}) == (4, 4)
    assert cut_short("slurm", nodes, ()) is None


def test_sources_do_not_miss_what_others_found() -> None:
    rounds = Rounds()
    rounds.round(found("L1"))
    for _ in range(5):
        assert rounds.round(found(None, "S1"), source="slurm") == {BLOCK: "L1", ZONE: "S1"}


def test_the_quality_of_switches_comes_and_goes_with_the_labels() -> None:
    qos = "network.qos.kubernetes.io/switches"
    seen = FoundNode(path=("L1",), labels={BLOCK: "L1"}, qos={"L1": LinkQuality(bandwidth=400 * 10**9)})
    node = NodeNow("n1", "uid-1", OTHER)
    # Only where it is wanted.
    assert qos not in relabel("s", node, seen, Rules()).annotations
    change = relabel("s", node, seen, Rules(with_quality=True))
    assert change.labels == {BLOCK: "L1"}
    assert change.annotations[qos] == '{"L1":{"bandwidth":"400Gbps"}}'
    annotations = {key: value for key, value in change.annotations.items() if value is not None}
    node = NodeNow("n1", "uid-1", {**OTHER, BLOCK: "L1"}, annotations)
    assert not relabel("s", node, seen, Rules(with_quality=True))
    gone = relabel("s", node, None, Rules(misses=1, with_quality=True))
    assert gone.labels == {BLOCK: None}
    assert gone.annotations == {qos: None, "discovery.closeby.dev/s": None}


def test_a_garbled_note_makes_nothing_ours() -> None:
    for text in ("{not json", '{"a": {"value": "x", "more": ' + "[" * 100_000):
        node = NodeNow("n1", "uid-1", {BLOCK: "L1"}, {NOTE: text})
        assert relabel("ibnetdiscover", node, None, Rules(misses=1)).labels == {}


def test_a_forged_note_takes_no_label_of_kubernetes_away() -> None:
    """A kubelet may annotate its node, but not move it out of a tenant's."""
    held = {
        "node-restriction.kubernetes.io/tenant": "a",
        "topology.kubernetes.io/zone": "z",
        "example.node-restriction.kubernetes.io/tenant": "a",
        "network.topology.kubernetes.io/block": "L1",
        BLOCK: "L1",
    }
    note = msgspec.json.encode({key: {"value": value, "missed": 9} for key, value in held.items()}).decode()
    changes = relabel("ibnetdiscover", NodeNow("n1", "uid-1", held, {NOTE: note}), None, Rules())
    assert changes.labels == {"network.topology.kubernetes.io/block": None, BLOCK: None}


def test_hosts_are_nodes_by_name_hostname_label_or_short_name() -> None:
    nodes = [
        NodeNow("n1", "1"),
        NodeNow("ip-10-0-0-2", "2", {"kubernetes.io/hostname": "n2"}),
        NodeNow("n3.cluster.example", "3"),
        NodeNow("twin.a", "4"),
        NodeNow("twin.b", "5"),
        NodeNow("n6", "6"),
    ]
    hosts = ["n1", "n2", "n3", "twin", "N6", "stranger"]
    assert match_hosts(hosts, nodes) == {
        "n1": "n1",
        "n2": "ip-10-0-0-2",
        "n3": "n3.cluster.example",
        "N6": "n6",
    }


def test_of_several_hosts_the_best_match_is_the_node() -> None:
    """Another cluster's hosts on the same fabric, or one host by two names."""
    nodes = [NodeNow("n1", "1"), NodeNow("n2.here.example", "2"), NodeNow("n3", "3")]
    assert match_hosts(["n1.example", "N1", "n1", "n2.there.example", "n3.example"], nodes) == {
        "n1": "n1",
        "n3.example": "n3",
    }
    assert match_hosts(["n2", "n2.there.example"], nodes) == {"n2": "n2.here.example"}


def test_a_label_that_others_wrote_alike_stays_theirs() -> None:
    rounds = Rounds(**{BLOCK: "L1"})
    rounds.round(found("L1", "S1"))
    assert rounds.last.labels == {ZONE: "S1"}
    rounds.round(None)
    rounds.round(None)
    assert rounds.round(None) == {BLOCK: "L1"}

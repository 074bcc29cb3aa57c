"""NodeAffinity: node selectors, required node affinity, and preferred terms as a score.

A requirement is one array operation on a label's column: In looks the values' codes up, Gt and Lt judge each
distinct value once. The rules are upstream's (``component-helpers/scheduling/corev1/nodeaffinity``).
"""

from collections.abc import Hashable, Sequence

import numpy as np

from closeby.cluster.selecting import integer, satisfies
from closeby.objects.arrays import Bools, Scores
from closeby.objects.bounds import sentences, some
from closeby.objects.nodes import Node
from closeby.objects.pods import NodeSelectorTerm, Pod, PreferredTerm, Requirement
from closeby.objects.reasons import Reason, Rejection
from closeby.scheduling.extension import Filter, NormalizeScore
from closeby.scheduling.plugin_view import CycleState, Nodes
from closeby.topology.labels import MISSING


class NodeAffinity(Filter, NormalizeScore):
    """``nodeSelector`` and ``affinity.nodeAffinity`` (upstream's plugin of that name), and the node selectors
    of allocated ResourceClaims, which is what upstream's DynamicResources does for these.

    A requirement that breaks the API's rules makes its term match nothing. The score is the sum of the
    weights of the preferred terms that match, scaled so that the best node has 100.
    """

    name = "NodeAffinity"
    shares_by_spec = True
    reads = (
        "spec.node_selector",
        "spec.required_affinity",
        "spec.preferred_affinity",
        "spec.claimed_nodes",
    )
    reason = Reason.NODE_AFFINITY_MISMATCH
    default_weight = 2.0

    def class_key(self, pod: Pod) -> Hashable:
        spec = pod.spec
        return spec.node_selector, spec.required_affinity, spec.preferred_affinity, spec.claimed_nodes

    def concerns(self, pod: Pod) -> bool:
        spec = pod.spec
        return bool(spec.node_selector or spec.claimed_nodes) or spec.required_affinity is not None

    def filter(self, state: CycleState, pod: Pod, nodes: Nodes) -> Bools:
        answer = self.asked(pod, nodes)
        for terms in pod.spec.claimed_nodes:
            answer = np.logical_and(answer, self._any_term(nodes, terms))
        return answer

    def asked(self, pod: Pod, nodes: Nodes) -> Bools:
        """Where ``nodeSelector`` and the required affinity let a pod go, whatever its claims say."""
        answer: Bools | None = None
        for key, value in pod.spec.node_selector:
            hit = _has_value(nodes, key, (value,))
            answer = hit if answer is None else np.logical_and(answer, hit, out=answer)
        if pod.spec.required_affinity is not None:
            hit = self._any_term(nodes, pod.spec.required_affinity)
            answer = hit if answer is None else np.logical_and(answer, hit, out=answer)
        return nodes.all(True) if answer is None else answer

    def rejection(self, state: CycleState, pod: Pod, slot: int) -> Rejection:
        node = self.handle.cluster.node_at(slot)
        return Rejection(Reason.NODE_AFFINITY_MISMATCH, _why_not(pod, node))

    def scores(self, pod: Pod) -> bool:
        return any(_tells_apart(preferred) for preferred in pod.spec.preferred_affinity)

    def score(self, state: CycleState, pod: Pod, nodes: Nodes) -> Scores:
        total = np.zeros(len(nodes))
        for preferred in pod.spec.preferred_affinity:
            if _tells_apart(preferred):
                np.add(total, preferred.weight, out=total, where=self._term(nodes, preferred.term))
        return total

    def normalize(self, state: CycleState, pod: Pod, scores: Scores) -> Scores:
        best = scores.max(initial=0.0)
        return scores if best == 0 else scores * 100.0 / best

    def _any_term(self, nodes: Nodes, terms: Sequence[NodeSelectorTerm]) -> Bools:
        """Where one of the terms holds."""
        hit = nodes.all(False)
        for term in terms:
            hit |= self._term(nodes, term)
        return hit

    def _term(self, nodes: Nodes, term: NodeSelectorTerm) -> Bools:
        """Where all of a term's requirements hold; nowhere when it has none or one that breaks the rules."""
        requirements = [(one, False) for one in term.expressions] + [(one, True) for one in term.fields]
        if not requirements or any(_broken_rule(one, is_field) for one, is_field in requirements):
            return nodes.all(False)
        answer: Bools | None = None
        for one, is_field in requirements:
            hit = self._field(nodes, one) if is_field else _expression(nodes, one)
            answer = hit if answer is None else np.logical_and(answer, hit, out=answer)
        return nodes.all(False) if answer is None else answer

    def _field(self, nodes: Nodes, requirement: Requirement) -> Bools:
        """``metadata.name``, the only field that upstream knows."""
        slot = self.handle.cluster.slot(requirement.values[0])
        same = nodes.all(False) if slot is None else np.equal(nodes.slots, slot)
        return same if requirement.operator == "In" else ~same


def _tells_apart(preferred: PreferredTerm) -> bool:
    return preferred.weight > 0 and bool(preferred.term.expressions or preferred.term.fields)


def _expression(nodes: Nodes, requirement: Requirement) -> Bools:
    key, operator = requirement.key, requirement.operator
    if operator == "In":
        return _has_value(nodes, key, requirement.values)
    if operator == "NotIn":
        return ~_has_value(nodes, key, requirement.values)
    if operator in ("Exists", "DoesNotExist"):
        missing: Bools = nodes.label_codes(key) == MISSING
        return missing if operator == "DoesNotExist" else ~missing
    matching = nodes.label_column(key).matching(lambda value: satisfies(requirement, value))
    return matching.take(nodes.label_codes(key))


def _has_value(nodes: Nodes, key: str, values: tuple[str, ...]) -> Bools:
    """Where the label has one of the values; never where it is missing."""
    column = nodes.label_column(key)
    wanted = [code for code in map(column.code, values) if code is not None]
    if not wanted:
        return nodes.all(False)
    codes = nodes.label_codes(key)
    if len(wanted) == 1:
        return np.equal(codes, wanted[0])
    matching = np.zeros(len(column.values), dtype=np.bool_)
    matching[wanted] = True
    return matching.take(codes)


def _broken_rule(requirement: Requirement, is_field: bool) -> str | None:
    """What makes a requirement meaningless (upstream's validation), None when it is sound."""
    operator, values = requirement.operator, requirement.values
    if is_field:
        if requirement.key != "metadata.name":
            return "the only field is metadata.name"
        if operator not in ("In", "NotIn") or len(values) != 1:
            return "metadata.name takes In or NotIn and exactly one value"
        return None
    if operator in ("In", "NotIn"):
        return None if values else f"{operator} needs values"
    if operator in ("Exists", "DoesNotExist"):
        return f"{operator} takes no values" if values else None
    if operator in ("Gt", "Lt"):
        sound = len(values) == 1 and integer(values[0]) is not None
        return None if sound else f"{operator} needs exactly one integer"
    return f"unknown operator {operator}"


def _why_not(pod: Pod, node: Node) -> str:
    for key, value in pod.spec.node_selector:
        if node.labels.get(key) != value:
            return f"node selector {key}={value}: {_label(node, key)}"
    required = pod.spec.required_affinity
    failures = None if required is None else _failures(required, node)
    if failures is None:
        for nodes in pod.spec.claimed_nodes:
            lacking = _failures(nodes, node)
            if lacking is not None:
                where = sentences(lacking) or "its node selector has no terms, which matches no node"
                return f"the devices of an allocated ResourceClaim are elsewhere: {where}"
        return "required node affinity"
    if len(failures) == 1:
        return f"required node affinity {failures[0]}"
    if not failures:
        return "required node affinity has no terms, which matches no node"
    return f"none of {len(failures)} required node affinity terms: {sentences(failures)}"


def _failures(terms: Sequence[NodeSelectorTerm], node: Node) -> list[str] | None:
    """Why none of the alternatives holds; None where one does."""
    failures = [_failure(term, node) for term in terms]
    return None if "" in failures else failures


def _failure(term: NodeSelectorTerm, node: Node) -> str:
    """The first requirement of a term that does not hold, and why; empty where all hold."""
    for requirement, is_field in [
        *((one, False) for one in term.expressions),
        *((one, True) for one in term.fields),
    ]:
        broken = _broken_rule(requirement, is_field)
        if broken:
            return f"{_describe(requirement)}: {broken}"
        value = node.name if is_field else node.labels.get(requirement.key)
        if not satisfies(requirement, value):
            have = f"the node is {node.name}" if is_field else _label(node, requirement.key)
            return f"{_describe(requirement)}: {have}"
    return "" if term.expressions or term.fields else "has no requirements, which matches no node"


def _label(node: Node, key: str) -> str:
    value = node.labels.get(key)
    return f"the node has no label {key}" if value is None else f"the node has {key}={value}"


def _describe(requirement: Requirement) -> str:
    if not requirement.values:
        return f"{requirement.key} {requirement.operator}"
    if requirement.operator in ("In", "NotIn"):
        return f"{requirement.key} {requirement.operator} [{some(requirement.values)}]"
    return f"{requirement.key} {requirement.operator} {some(requirement.values)}"

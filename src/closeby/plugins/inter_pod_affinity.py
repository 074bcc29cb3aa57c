"""InterPodAffinity: pods that must, must not or would rather be near other pods.

The rules are upstream's (``plugins/interpodaffinity``). What placed pods forbid holds for every pod, also
where another scheduler placed them.
"""

from collections import Counter
from collections.abc import Container, Hashable, Iterable, Iterator, Mapping, Sequence
from typing import Annotated, ClassVar, Final, TypeVar

import numpy as np
from msgspec import Meta, Struct, field

from closeby.cluster.columns import Cluster
from closeby.cluster.population import Population
from closeby.cluster.terms import LabelClass, Tally, TermCounts
from closeby.objects.arrays import Bools, Counts, Scores
from closeby.objects.labels import HOSTNAME
from closeby.objects.pods import Pod, PodSpec
from closeby.objects.reasons import Reason, Rejection
from closeby.objects.selectors import PodAffinity, PodAffinityTerm
from closeby.scheduling.by_domain import CountedPods, DomainFilter, DomainLimit, DomainMask
from closeby.scheduling.extension import Handle, NormalizeScore, Scope
from closeby.scheduling.plugin_view import CycleState, Nodes
from closeby.scheduling.repeats import UNSCORED, Repeats, SumsByDomain

_NO_TERMS = PodAffinity()
#: Terms of one topology key that are judged one by one; more are counted together.
_FEW: Final = 4

_Item = TypeVar("_Item")
#: What forbids domains of a key: where the pods are, the term if it is one, and whether a pod closes the
#: domain that it comes to for others like it.
_Part = tuple[Tally, str, PodAffinityTerm | None, bool]


class InterPodAffinityArguments(Struct, frozen=True, forbid_unknown_fields=True):
    """Names and defaults as upstream's."""

    #: Weight of the required affinity of placed pods in the score.
    hard_pod_affinity_weight: Annotated[int, Meta(ge=0, le=100)] = field(
        default=1, name="hardPodAffinityWeight"
    )
    #: Whether pods without preferences of their own are not scored by those of others.
    ignore_preferred_terms_of_existing_pods: bool = field(
        default=False, name="ignorePreferredTermsOfExistingPods"
    )


class _Apart(DomainMask):
    """Domains without any of the pods that a term, or any of many, selects, or that carry such a term."""

    def __init__(
        self, cluster: Cluster, key: str, tally: Tally, term: PodAffinityTerm | None, own: bool, itself: bool
    ) -> None:
        """``itself``: the term selects the pods that carry it, of which the one that is judged is one."""
        self.key = key
        self._counts_itself = itself
        #: None: the tally has several.
        self._term = term
        #: Whether it is a term of the pod that is judged, not of placed ones.
        self.own = own
        self._cluster = cluster
        self._tally = tally
        self._answer: tuple[int, Bools] = (-1, np.zeros(0, dtype=np.bool_))
        self._causes: tuple[int, dict[int, tuple[PodAffinityTerm, int]]] = (-1, {})

    def stamp(self) -> Hashable:
        return self._counts.flips

    def allowed(self) -> Bools:
        counts = self._counts
        if counts.flips != self._answer[0]:
            free: Bools = counts.by_code == 0
            free[0] = True
            self._answer = (counts.flips, free)
        return self._answer[1]

    @property
    def asks(self) -> str:
        return f"pod anti-affinity to {self._term or f'several kinds of pods per {self.key}'}"

    @property
    def apart(self) -> bool:
        return self._counts_itself and self.own

    @property
    def closes(self) -> bool | None:
        return self._counts_itself

    def limit(self) -> DomainLimit | None:
        if not self.apart:
            return None
        codes = self._cluster.labels.column(self.key).codes[: self._cluster.capacity]
        return DomainLimit(codes=codes, counts=self._counts.by_code)

    def cause(self, slot: int) -> tuple[PodAffinityTerm, int]:
        """The term that keeps a node, and how many pods in its domain it is about."""
        counts, code = self._counts, int(self._cluster.labels.column(self.key).codes[slot])
        if self._term is not None:
            return self._term, int(counts.by_code[code])
        if counts.version != self._causes[0]:
            self._causes = (counts.version, self._tally.causes(self.key))
        return self._causes[1][code]

    @property
    def _counts(self) -> TermCounts:
        return self._tally.domains(self._cluster.structure, self.key)


class _Together(DomainMask):
    """Domains of one key with a pod that all required terms select; anywhere for the first of a group."""

    def __init__(
        self, cluster: Cluster, keys: Sequence[str], key: str, terms: Sequence[PodAffinityTerm], first: bool
    ) -> None:
        self.key = key
        self._terms = tuple(terms)
        #: All keys of the terms: a group has no pod yet where none is in a domain of any of them.
        self._keys = tuple(keys)
        self._cluster = cluster
        self._tally = cluster.population.tally(terms)
        #: Whether the pod that is judged is itself selected.
        self._first = first
        self._answer: tuple[Hashable, Bools] = (None, np.zeros(0, dtype=np.bool_))

    def stamp(self) -> Hashable:
        structure = self._cluster.structure
        return tuple([self._tally.domains(structure, key).flips for key in self._keys])

    def allowed(self) -> Bools:
        stamp = self.stamp()
        if stamp != self._answer[0]:
            counts = self._tally.domains(self._cluster.structure, self.key).by_code
            there: Bools = np.ones(len(counts), dtype=np.bool_) if self.begins else counts > 0
            there[0] = False
            self._answer = (stamp, there)
        return self._answer[1]

    def grows_with(self, pod: Pod) -> bool:
        population = self._cluster.population
        own = tuple(term.of_pod(pod.namespace, pod.labels) for term in _own(pod).required)
        if own == self._terms and self.allowed().any():
            return False  # It goes only to domains that are open already.
        return all(population.selects(term, population.class_of(pod)) for term in self._terms)

    @property
    def asks(self) -> str:
        return f"pod affinity to {' and '.join(map(str, self._terms))}"

    @property
    def gathers(self) -> bool:
        return self.begins

    @property
    def closes(self) -> bool | None:
        return None if self.begins else False

    @property
    def begins(self) -> bool:
        """Whether a pod would be the first of its group."""
        structure = self._cluster.structure
        return self._first and not any(
            self._tally.domains(structure, key).by_code[1:].any() for key in self._keys
        )


class _Judgement:
    """What there is to know about pods of one label class with one spec."""

    __slots__ = ("key", "masks", "seen", "spec")

    def __init__(self, spec: PodSpec, masks: Sequence[DomainMask], key: Hashable, seen: int) -> None:
        self.spec = spec
        self.masks = tuple(masks)
        self.key = key
        #: How many carried terms of the class it knows of.
        self.seen = seen


class InterPodAffinity(DomainFilter, NormalizeScore):
    """Upstream's plugin of that name.

    Required affinity holds where one pod that all terms select is in the same domain of each key; the first
    pod of a group that selects itself may go anywhere. Required anti-affinity holds both ways. The score adds
    the weights of preferences, the pod's own and those of placed pods, from the least (0) to the greatest
    (100).
    """

    name = "InterPodAffinity"
    Arguments = InterPodAffinityArguments
    score_scope: ClassVar[Scope] = Scope.PER_PLACEMENT
    default_weight = 2.0

    def __init__(self, arguments: InterPodAffinityArguments, handle: Handle) -> None:
        super().__init__(arguments, handle)
        self._hard_weight = arguments.hard_pod_affinity_weight
        self._own_only = arguments.ignore_preferred_terms_of_existing_pods

    @property
    def shares_by_spec(self) -> bool:
        return not self._population.active

    def class_key(self, pod: Pod) -> Hashable:
        if pod.spec.pod_affinity is None and not self._population.active:
            return None
        return self._judgement(pod).key

    def lasting_key(self, pod: Pod) -> Hashable:
        return self._population.class_of(pod) if self._population.active else None

    def masks(self, pod: Pod) -> Sequence[DomainMask]:
        if pod.spec.pod_affinity is None and not self._population.active:
            return ()
        return self._judgement(pod).masks

    def counts(self, pod: Pod) -> Sequence[CountedPods]:
        affinity = _own(pod)
        forbidden = [term.of_pod(pod.namespace, pod.labels) for term in affinity.forbidden]
        required = tuple([term.of_pod(pod.namespace, pod.labels) for term in affinity.required])
        counted = [CountedPods((term,), apart=term.topology_key) for term in forbidden]
        return [*counted, CountedPods(required)] if required else counted

    def constrained(self, pod: Pod) -> bool:
        return pod.spec.pod_affinity is not None

    def helped_by_pods(self, pod: Pod) -> bool:
        return bool(_own(pod).required)

    def rejection(self, state: CycleState, pod: Pod, slot: int) -> Rejection:
        masks = self._judgement(pod).masks
        place = self.refusing(pod, slot)
        mask = masks[place] if place is not None else None
        node = self.handle.cluster.node_at(slot)
        if isinstance(mask, _Apart):
            term, count = mask.cause(slot)
            pods = f"{count} pod{'s' if count != 1 else ''}"
            there = _domain(mask.key, node.labels.get(mask.key, ""))
            if mask.own:
                text = f"required pod anti-affinity to {term}: {pods} there {there}"
            else:
                text = f"required pod anti-affinity of {pods} {there}, to {term}"
            return Rejection(Reason.POD_ANTI_AFFINITY_CONFLICT, text)
        return Rejection(Reason.POD_AFFINITY_MISMATCH, _why_not_together(pod, mask, node.labels))

    # Scores

    @property
    def scores_by_spec(self) -> bool:
        return self._own_only or not self._population.active

    def scores(self, pod: Pod) -> bool:
        if _own(pod).preferred:
            return True
        if self._own_only or not self._population.active:
            return False
        return any(sums.any() for sums in self._sums(pod).values())

    def score(self, state: CycleState, pod: Pod, nodes: Nodes) -> Scores:
        total = np.zeros(len(nodes))
        for key, sums in self._sums(pod).items():
            total += sums.take(nodes.label_codes(key), mode="clip")
        return total

    def normalize(self, state: CycleState, pod: Pod, scores: Scores) -> Scores:
        least, most = scores.item(scores.argmin()), scores.item(scores.argmax())
        if least == most:
            return np.zeros(len(scores))
        scaled: Scores = scores - least
        scaled /= most - least
        scaled *= 100.0
        return np.floor(scaled, out=scaled)

    def repeats(self, state: CycleState, pod: Pod, nodes: Nodes) -> Repeats:
        """Each pod counts for the preferences of the next ones, and brings its own terms."""
        if self._own_only and not _own(pod).preferred:
            return UNSCORED
        population, moves = self._population, []
        own, terms = population.class_of(pod), population.scored_terms(pod)
        if terms is not None:
            # Each counts as a preference of the next one and of this one, a required term only of this one.
            mutual = population.weights.between(terms, own)
            steps = Counter[str]()
            for weight in (0, self._hard_weight):
                for key, _, weights in population.weights.weights(mutual, weight):
                    steps[key] += int(weights.sum())
            moves = [(nodes.label_codes(key), step) for key, step in steps.items() if step]
        return SumsByDomain(self.score(state, pod, nodes), moves)

    def _sums(self, pod: Pod) -> Mapping[str, Counts]:
        """What nodes score by code of their value of a topology key."""
        population, structure = self._population, self.handle.cluster.structure
        own, terms = population.class_of(pod), population.scored_terms(pod)
        found = population.weights.of_placed(own, self._hard_weight).by_key(structure)
        if terms is None or not _own(pod).preferred:
            return found
        both = dict(population.weights.of_own(terms).by_key(structure))
        for key, sums in found.items():
            both[key] = both[key] + sums if key in both else sums
        return both

    # Inside

    @property
    def _population(self) -> Population:
        return self.handle.cluster.population

    def _judgement(self, pod: Pod) -> _Judgement:
        own = self._population.class_of(pod)
        place = (self.name, id(pod.spec))
        found = own.notes.get(place)
        if isinstance(found, _Judgement) and found.spec is pod.spec and found.seen == len(own.carried):
            return found
        made = self._made(pod, own)
        self._population.note(own, place, made)
        return made

    def _made(self, pod: Pod, own: LabelClass) -> _Judgement:
        cluster, population = self.handle.cluster, self._population
        affinity = _own(pod)
        masks: list[DomainMask] = []
        tallies: list[object] = []
        required = tuple(term.of_pod(pod.namespace, pod.labels) for term in affinity.required)
        first = False
        if required:
            first = all(population.selects(term, own) for term in required)
            keys = tuple(dict.fromkeys(term.topology_key for term in required))
            masks += [_Together(cluster, keys, key, required, first) for key in keys]
            tallies += [population.tally(required), keys]
        forbidden = dict.fromkeys(term.of_pod(pod.namespace, pod.labels) for term in affinity.forbidden)
        for by_own, parts in ((True, self._of_own(own, forbidden)), (False, self._of_placed(own, forbidden))):
            for tally, key, term, itself in parts:
                masks.append(self._apart(tally, key, term, own=by_own, itself=itself))
                tallies += [tally, key]
        return _Judgement(pod.spec, masks, (first, *tallies) if tallies else None, len(own.carried))

    def _of_own(self, own: LabelClass, terms: Iterable[PodAffinityTerm]) -> Iterator[_Part]:
        """What keeps pods off by their own terms: each term, or all of a key together where they are many."""
        population = self._population
        for key, some in _by_key((term, term) for term in terms):
            itself = [population.selects(term, own) for term in some]
            if len(some) > _FEW:
                yield population.tally(some, of_any=True), key, None, any(itself)
                continue
            for term, selected in zip(some, itself, strict=True):
                yield population.tally((term,)), key, term, selected

    def _of_placed(self, own: LabelClass, terms: Container[PodAffinityTerm]) -> Iterator[_Part]:
        """The same by the terms of placed pods; ``terms`` are those that the pod has too."""
        for key, some in _by_key((one.term, one) for one in own.carried):
            if len(some) > _FEW:
                itself = any(one.term in terms for one in some)
                yield self._population.anti_affinity_of_others(own, key), key, None, itself
                continue
            for one in some:
                yield one, key, one.term, one.term in terms

    def _apart(
        self, tally: Tally, key: str, term: PodAffinityTerm | None, *, own: bool, itself: bool
    ) -> _Apart:
        """The mask of a term; pods of all classes and specs that have the term share it."""
        place = (self.name, key, own, itself)
        found = tally.notes.get(place)
        if not isinstance(found, _Apart):
            found = tally.notes[place] = _Apart(self.handle.cluster, key, tally, term, own, itself)
        return found


def _by_key(terms: Iterable[tuple[PodAffinityTerm, _Item]]) -> Iterable[tuple[str, list[_Item]]]:
    """Items of terms by the term's topology key."""
    found: dict[str, list[_Item]] = {}
    for term, item in terms:
        found.setdefault(term.topology_key, []).append(item)
    return found.items()


def _own(pod: Pod) -> PodAffinity:
    return pod.spec.pod_affinity or _NO_TERMS


def _why_not_together(pod: Pod, mask: DomainMask | None, labels: object) -> str:
    terms = _own(pod).required
    key = mask.key if mask is not None else terms[0].topology_key
    wanted = " and ".join(dict.fromkeys(str(term) for term in terms))
    value = labels.get(key) if isinstance(labels, dict) else None
    if value is None:
        return f"required pod affinity to {wanted}: the node has no label {key}"
    return f"required pod affinity to {wanted}: no such pod is {_domain(key, value)}"


def _domain(key: str, value: str) -> str:
    """Where pods are; a node is not named, so that equal reasons of several nodes are one."""
    return "on the node" if key == HOSTNAME else f"in {key}={value}"

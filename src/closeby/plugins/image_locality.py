"""ImageLocality: prefers nodes that have the pod's images already."""

from collections.abc import Hashable

import numpy as np
from msgspec import Struct, field

from closeby.objects.arrays import Scores
from closeby.objects.nodes import Node, NodeImage
from closeby.objects.pods import Pod
from closeby.scheduling.extension import Handle, Scope, Score
from closeby.scheduling.plugin_helpers import asked_accelerators
from closeby.scheduling.plugin_view import CycleState, NodeChanges, Nodes

#: Bytes. What is had below the first is worth nothing, above the second (a container) no more.
LEAST, MOST = 23 * 1024 * 1024, 1000 * 1024 * 1024

#: By which part the spread of an image may be wrong until it is worked out again.
DRIFT = 0.01
#: Up to so many nodes are looked at one by one.
FEW = 64


class ImageLocalityArguments(Struct, frozen=True, forbid_unknown_fields=True):
    """``scoreAccelerators``: whether pods that ask for accelerators are scored too, as upstream does.

    They are not by default: they go to the fullest node.
    """

    score_accelerators: bool = field(name="scoreAccelerators", default=False)


class _Image:
    """One image under one name."""

    __slots__ = ("slots", "worth")

    def __init__(self) -> None:
        #: Slots that have it, with its size there.
        self.slots: dict[int, int] = {}
        #: Its size times the part of all nodes that have it, as of the last look.
        self.worth = 0.0


class ImageLocality(Score):
    """Upstream's plugin of that name.

    Each image that a node has counts with its size, times the part of all nodes that have it, so that pods do
    not crowd where an image came first. 23 MiB and less are 0 points, 1,000 MiB for each image of the pod are
    100. Unlike upstream's, the points are not rounded down, an image has one size everywhere, the greatest
    reported, and the part of nodes follows the cluster when it is wrong by more than a hundredth.
    """

    name = "ImageLocality"
    shares_by_spec = True
    Arguments = ImageLocalityArguments
    score_scope = Scope.STATIC
    reads = ("spec.images",)

    def __init__(self, arguments: ImageLocalityArguments, handle: Handle) -> None:
        super().__init__(arguments, handle)
        self._scores_accelerators = arguments.score_accelerators
        self._changes = NodeChanges(handle.cluster)
        #: slot -> images of the node there, for slots with any.
        self._at: dict[int, tuple[NodeImage, ...]] = {}
        self._images: dict[str, _Image] = {}
        #: The number of nodes by which images are valued.
        self._nodes = 0

    def class_key(self, pod: Pod) -> Hashable:
        return self._wanted(pod)

    def scores(self, pod: Pod) -> bool:
        wanted = self._wanted(pod)
        if not wanted:
            return False
        self._follow()
        return any(name in self._images for name in wanted)

    def score(self, state: CycleState, pod: Pod, nodes: Nodes) -> Scores:
        self._follow()
        wanted = self._wanted(pod)
        images = [self._images[name] for name in wanted if name in self._images]
        if len(nodes) <= FEW:
            had = np.asarray(
                [sum([one.worth for one in images if slot in one.slots]) for slot in nodes.slots.tolist()],
                dtype=np.float64,
            )
        else:
            every: Scores = np.zeros(self.handle.cluster.capacity)
            for one in images:
                every[np.fromiter(one.slots, np.intp, len(one.slots))] += one.worth
            had = every[nodes.index]
        most = MOST * max(1, len(wanted))
        points: Scores = (np.clip(had, LEAST, most) - LEAST) * (100.0 / (most - LEAST))
        return points

    def _wanted(self, pod: Pod) -> tuple[str, ...]:
        if not pod.spec.images:
            return ()
        left_out = not self._scores_accelerators and bool(asked_accelerators(pod))
        return () if left_out else pod.spec.images

    def _follow(self) -> None:
        """Take in which nodes changed, and value again what has spread or vanished since."""
        changed = self._changes.take()
        cluster = self.handle.cluster
        if changed is None:
            self._at.clear()
            self._images.clear()
            slots = set(range(cluster.capacity))
        elif len(changed):
            slots = set(changed.tolist())
        else:
            return
        touched = {name for slot in slots for name in self._note(slot, cluster.nodes[slot])}
        if abs(cluster.node_count - self._nodes) > DRIFT * self._nodes:
            self._nodes = cluster.node_count
            touched = set(self._images)
        self._value(touched)

    def _note(self, slot: int, node: Node | None) -> set[str]:
        """Names of the images that the slot gained or lost."""
        before = self._at.pop(slot, ())
        now = () if node is None else node.images
        if now:
            self._at[slot] = now
        if now == before:
            return set()
        had, has = set(before), set(now)
        for one in had - has:
            self._images[one.name].slots.pop(slot, None)
        for one in has - had:
            image = self._images.setdefault(one.name, _Image())
            image.slots[slot] = one.size
        return {one.name for one in had ^ has}

    def _value(self, names: set[str]) -> None:
        drifted: set[int] = set()
        for name in names:
            image = self._images[name]
            if not image.slots:
                del self._images[name]
                continue
            worth = max(image.slots.values()) * len(image.slots) / max(1, self._nodes)
            if abs(worth - image.worth) > DRIFT * image.worth:
                image.worth = worth
                drifted.update(image.slots)
        # A node that gained or lost an image is judged again in any case; these had it before.
        if drifted:
            self.handle.cluster.usage_changes.add(np.asarray(sorted(drifted), dtype=np.intp))

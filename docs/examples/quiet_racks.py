"""Keeps pods that ask for quiet out of noisy racks, and prefers nodes that draw little power."""

from closeby.plugin import Node, Pod, ScalarCost, ScalarFilter


class QuietRacks(ScalarFilter, ScalarCost):
    name = "quiet-racks"
    reason = "RackTooNoisy"

    def class_key(self, pod: Pod) -> str | None:
        return pod.labels.get("quiet")

    def filter_node(self, pod: Pod, node: Node) -> bool | str:
        if pod.labels.get("quiet") == "required" and node.labels.get("noisy") == "true":
            return "the rack is noisy, and the pod asks for quiet"
        return True

    def cost_node(self, pod: Pod, node: Node) -> float | None:
        watts = node.annotations.get("power-draw")
        return None if watts is None else float(watts)

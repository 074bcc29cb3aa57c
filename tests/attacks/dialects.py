"""PodGroups of every dialect, as a tenant would write them."""

from typing import Final

_METADATA: Final = "metadata: {{name: {name}, namespace: default}}"
_TEXTS: Final = {
    "closeby.dev/v1alpha1": "minMember: {minimum}",
    "scheduling.run.ai/v2alpha2": "minMember: {minimum}",
    "scheduling.x-k8s.io/v1alpha1": "minMember: {minimum}",
    "scheduling.volcano.sh/v1beta1": "minMember: {minimum}",
    "scheduling.k8s.io/v1alpha2": "schedulingPolicy: {{gang: {{minCount: {minimum}}}}}",
    "scheduling.k8s.io/v1beta1": "schedulingPolicy: {{gang: {{minCount: {minimum}}}}}",
}
#: API versions.
DIALECTS: Final = tuple(_TEXTS)
#: Those that have a field for a priority class.
CLASSED: Final = tuple(one for one in DIALECTS if one != "scheduling.x-k8s.io/v1alpha1")


def dialect_of(dialect: str, name: str, minimum: int, class_name: str = "") -> str:
    """The manifest of a PodGroup."""
    lines = [f"apiVersion: {dialect}", "kind: PodGroup", _METADATA.format(name=name), "spec:"]
    lines.append("  " + _TEXTS[dialect].format(minimum=minimum))
    if class_name:
        lines.append(f"  priorityClassName: {class_name}")
    return "\n".join(lines) + "\n"

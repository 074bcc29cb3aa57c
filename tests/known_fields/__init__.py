"""Makes the table of fields that the API servers know: `python -m tests.known_fields SCHEMA…`."""

from typing import Final

#: The oldest and the newest release of each project whose schemas have no field that the table lacks;
#: `python -m tests.known_fields.releases` compares those of a clone.
RELEASES: Final = {
    "Kubernetes": ("1.35", "1.37"),
    "Kueue": ("0.10", "0.19"),
    "KAI": ("0.4", "0.17"),
    "Volcano": ("1.8", "1.15"),
    "JobSet": ("0.3", "0.12"),
    "LeaderWorkerSet": ("0.1", "0.10"),
    "Kubeflow Training Operator (trainer v1)": ("1.3", "1.9"),
    "KubeRay": ("1.1", "1.7"),
    "scheduler-plugins": ("0.25", "0.34"),
}

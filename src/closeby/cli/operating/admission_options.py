"""The options of `closeby controllers` about the admission checks of Kueue's Workloads."""

from functools import wraps

import click

from closeby.cli.options import Command, with_options
from closeby.objects.labels import PLACEMENT

_OPTIONS = (
    click.option(
        "--admission-controller-name",
        metavar="NAME",
        default=PLACEMENT,
        show_default=True,
        help="The spec.controllerName of the AdmissionChecks that are answered. Several closeby in one "
        "cluster need a name each.",
    ),
    click.option(
        "--admission-deadline",
        metavar="SECONDS",
        type=click.FloatRange(min=1),
        default=600.0,
        show_default=True,
        help="How long a Workload may hold its quota without places until its admission check says Retry.",
    ),
    click.option(
        "--admission-retry-after",
        metavar="SECONDS",
        type=click.IntRange(min=0),
        default=0,
        show_default=True,
        help="How long such a Workload waits then before it may get its quota again. Kueue 0.19 gives the "
        "quota back when that time is over, and at once with 0.",
    ),
)


def limits_admission(command: Command) -> Command:
    """Adds the options; the command gets them as ``admission`` and ``admission_controller_name``."""

    @wraps(command)
    def with_limits(*, admission_deadline: float, admission_retry_after: int, **options: object) -> None:
        from closeby.controllers.admission.verdicts import AdmissionLimits

        limits = AdmissionLimits(deadline=admission_deadline, retry_after=admission_retry_after)
        command(admission=limits, **options)

    return with_options(_OPTIONS, with_limits)

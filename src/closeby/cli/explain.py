"""`closeby explain`: why one pod, gang or application waits, or why it is where it is."""

import time
from collections.abc import Iterable
from typing import TYPE_CHECKING

import click

from closeby.cli.names import NAMESPACE_NAME, SUBJECT_NAME
from closeby.cli.options import (
    SchedulerOptions,
    Sources,
    asks_scheduler,
    counts_lost_work,
    output_option,
    reads_cluster_or_manifests,
)

if TYPE_CHECKING:
    from rich.console import RenderableType

    from closeby.cli.reading.cluster import ReadCluster
    from closeby.cli.reading.inputs import Inputs
    from closeby.kube.metrics.asking import SchedulerAddress
    from closeby.report.documents.explanations import Explanation
    from closeby.report.documents.subjects import Several, Subject
    from closeby.simulator.runs import Run


@click.command(name="explain", short_help="Explain why something waits, or why it was placed where it is.")
@click.argument("subject", metavar="POD|PODGROUP|APPGROUP|WORKLOAD", type=SUBJECT_NAME)
@reads_cluster_or_manifests
@output_option
@click.option(
    "-n",
    "--namespace",
    metavar="NAME",
    type=NAMESPACE_NAME,
    help="Namespace of NAME.  [default: all; if several match in a cluster, the context's namespace]",
)
@counts_lost_work
@asks_scheduler
def command(
    *,
    subject: str,
    sources: Sources,
    output: str,
    namespace: str | None,
    now: float | None,
    scheduler: SchedulerOptions,
) -> None:
    """Explain why a pod, gang or application waits and what would have to change, or why it was placed where
    it is, and what an application's traffic costs.

    Names are NAME, NAMESPACE/NAME, pod/NAME, podgroup/NAME or appgroup/NAME; job/NAME, jobset/NAME, lws/NAME
    and so on mean the gang or the pods of a workload. Reads the live cluster, or manifests with -f. In a
    cluster, it shows what the scheduler decided last and says where it knows that from; it tries what would
    have to change, undoes that, and writes nothing.

    \b
    Examples:
      closeby explain train
      closeby explain job/train
      kubectl closeby explain worker-0 -n team-a
      closeby explain podgroup/train -f cluster.yaml -f my-job.yaml
    """
    from closeby.cli.output import emit
    from closeby.cli.reading.inputs import read_cluster_or_files

    if now is not None and not sources.paths:
        raise click.UsageError("--now is the time of manifests: give them with -f")
    address = _address(sources, scheduler)
    inputs, cluster = read_cluster_or_files(sources)
    explanation = _explanation(subject, namespace, inputs, cluster, address, now)

    def views() -> "Iterable[RenderableType]":
        from closeby.report.views.explanation import explanation_views

        return explanation_views(explanation, wanted=scheduler != SchedulerOptions())

    emit(explanation, output, views)


def _address(sources: Sources, scheduler: SchedulerOptions) -> "SchedulerAddress | None":
    """Where to ask the running scheduler; None for files.

    Raises:
        UsageError: the options are about a scheduler, and files are read.
    """
    if sources.paths and scheduler != SchedulerOptions():
        raise click.UsageError("-f reads files, and --scheduler is about a cluster: give one of them")
    if sources.paths:
        return None
    from closeby.cli.reading.cluster import scheduler_address

    return scheduler_address(scheduler)


def _explanation(
    subject: str,
    namespace: str | None,
    inputs: "Inputs",
    cluster: "ReadCluster | None",
    address: "SchedulerAddress | None",
    now: float | None,
) -> "Explanation":
    """Why the pod, gang or application that the user means waits, or is where it is.

    Raises:
        Unusable: nothing is called so, or several things are; or the configuration can't be used.
    """
    from closeby.cli.reading.inputs import usable_configuration
    from closeby.cli.reading.measuring import measures
    from closeby.report.documents.decided import Live, refused_volumes, standing_of
    from closeby.report.documents.explanations import explain
    from closeby.report.documents.subjects import Several, choose, objects_of, schedules
    from closeby.scheduling.events import VolumeRefused
    from closeby.simulator.runs import Asked, Simulation
    from closeby.whatif.gathering import counterfactuals

    asked = Asked(
        scheduler_name=inputs.scheduler_name,
        explain=(),
        explain_everything=True,
        measure=measures(inputs.configuration, live=cluster is not None),
        wall=None if cluster is None else time.time(),
        now=now,
        networks=inputs.networks,
        # Live, what is there now is explained; who is evicted the scheduler says itself.
        preempt=cluster is None,
        observe=cluster is not None and cluster.has_plans,
    )

    def begun() -> Simulation:
        simulation = Simulation(inputs.manifests, inputs.configuration, asked)
        if cluster is not None and inputs.scheduler_name is not None:
            simulation.tell(*cluster.besides(simulation.engine, inputs.scheduler_name))
        return simulation

    with usable_configuration():
        simulation = begun()
    before = simulation.standing()
    found, chosen = _meant(before, subject, namespace, cluster, inputs), None
    if isinstance(found, Several):  # Which of them waits is known once all is decided.
        found, chosen = choose(simulation.decided(), found)
        simulation = begun()
        before = simulation.standing()
    live = None
    if cluster is not None:
        ours = inputs.scheduler_name if schedules(before, found, inputs.scheduler_name) else None
        status = cluster.decided(found, ours, address)
        live = Live(standing=standing_of(before, found), status=status)
        if status.story is not None:  # Where volumes could not be had only the scheduler knows.
            simulation.tell(*map(VolumeRefused, refused_volumes(status.story)))
    run = simulation.decided(explain=[found.item])
    different = counterfactuals(run, only=[found.item])
    about = objects_of(run, found, inputs.manifests.workloads)
    own = inputs.manifests.notices_about(about)
    said = {(one.object, one.field) for one in own}
    others = (one for one in run.conditions if one.object in about and (one.object, one.field) not in said)
    return explain(run, found, live, different, (*own, *others), chosen)


def _meant(
    run: "Run", subject: str, namespace: str | None, cluster: "ReadCluster | None", inputs: "Inputs"
) -> "Subject | Several":
    """What the user means by a name; of several in different namespaces what is in that of the context.

    Raises:
        Unusable: nothing is called so, or several things are.
    """
    from closeby.cli.reading.inputs import Unusable
    from closeby.objects.groups import is_for_places
    from closeby.report.documents.subjects import Subject, Unclear, find_subject, left_out_as

    workloads = inputs.manifests.workloads
    near = None if cluster is None else cluster.namespace
    found = find_subject(run, subject, namespace=namespace, near=near, workloads=workloads)
    of_places = isinstance(found, Subject) and is_for_places(found.item.partition("/")[2])
    if not isinstance(found, Unclear) and not of_places:
        return found
    asked = [] if cluster is None else cluster.places_asked_for(subject, namespace)
    if asked:
        raise Unusable(*asked)
    left_out = left_out_as(subject, (*inputs.manifests.errors, *inputs.manifests.notices))
    if left_out:
        raise Unusable(*left_out)
    if not isinstance(found, Unclear):
        return found
    choices = f"; did you mean {' or '.join(found.choices)}?" if found.choices else ""
    raise Unusable(f"{found.message}{choices}")

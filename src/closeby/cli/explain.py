"""`closeby explain`: why one pod, gang or application waits, or why it lies where it lies."""

from collections.abc import Iterable
from typing import TYPE_CHECKING

import click

from closeby.cli.options import Sources, output_option, reads_manifests

if TYPE_CHECKING:
    from rich.console import RenderableType


@click.command(name="explain")
@click.argument("subject", metavar="POD|PODGROUP|APPGROUP")
@reads_manifests
@output_option
def command(*, subject: str, sources: Sources, output: str) -> None:
    """Say why a pod or gang waits, or why it lies where it lies, and what an application's talk costs.

    Names are NAME, NAMESPACE/NAME, pod/NAME, podgroup/NAME or appgroup/NAME.
    """
    from closeby.cli.inputs import Unusable, read_inputs, usable_configuration
    from closeby.cli.output import emit
    from closeby.report.explanations import explain
    from closeby.report.subjects import Unclear, find_subject
    from closeby.simulator.runs import simulate

    inputs = read_inputs(sources)
    with usable_configuration():
        found = find_subject(simulate(inputs.manifests, inputs.configuration, schedule=False), subject)
        if isinstance(found, Unclear):
            choices = f"; did you mean {' or '.join(found.choices)}?" if found.choices else ""
            raise Unusable(f"{found.message}{choices}")
        run = simulate(inputs.manifests, inputs.configuration, explain=[found.item], explain_everything=True)
    explanation = explain(run, found)

    def views() -> "Iterable[RenderableType]":
        from closeby.report.explanation_view import explanation_views

        return explanation_views(explanation)

    emit(explanation, output, views)

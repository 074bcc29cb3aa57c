"""`closeby demo`: gangs on a made-up GPU cluster of a real shape, before, after and why."""

from collections.abc import Iterable
from time import perf_counter
from typing import TYPE_CHECKING

import click

from closeby.cli.options import output_option

if TYPE_CHECKING:
    from rich.console import RenderableType


@click.command(name="demo")
@output_option
def command(*, output: str) -> None:
    """Place gangs on a synthetic GPU cluster and explain why. Requires no input."""
    from closeby.cli.output import emit
    from closeby.report.documents.scheduling import scheduling_report
    from closeby.simulator.demo import CONFIGURATION, WHY_HERE, WHY_NOT, demo_manifests
    from closeby.simulator.runs import Asked, simulate

    manifests = demo_manifests()
    began = perf_counter()
    run = simulate(manifests, CONFIGURATION, Asked(explain=[WHY_HERE, WHY_NOT], explain_everything=True))
    seconds = perf_counter() - began
    report = scheduling_report(run)

    def views() -> "Iterable[RenderableType]":
        from rich.text import Text

        from closeby.report.views.demo import demo_views

        before = simulate(manifests, CONFIGURATION, Asked(schedule=False))
        yield from demo_views(before, run, report, WHY_HERE, WHY_NOT)
        yield Text()
        yield Text(
            f"Taking {len(manifests.nodes)} nodes and {len(manifests.pods)} pods in, deciding and explaining "
            f"took {seconds * 1000:.0f} ms. Next: closeby simulate -f YOUR-MANIFESTS",
            style="dim",
        )

    emit(report, output, views)

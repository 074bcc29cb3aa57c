"""`closeby bench`: how fast decisions are on this machine."""

from collections.abc import Iterable
from typing import IO, TYPE_CHECKING

import click

if TYPE_CHECKING:
    from rich.console import RenderableType

    from closeby.lab.benchmarks.figures import Figure


@click.command(name="bench")
@click.option(
    "--only",
    metavar="NAME",
    multiple=True,
    help="Run only this benchmark; an unknown name lists all of them. May be repeated.",
)
@click.option(
    "--json",
    "json_file",
    metavar="FILE",
    type=click.File("wb"),
    help="Write the figures to a JSON file, or to standard output with -.",
)
def command(*, only: tuple[str, ...], json_file: IO[bytes] | None) -> None:
    """Measure the speed of decisions and print a table."""
    import msgspec

    from closeby.cli.reading.inputs import Unusable
    from closeby.lab.benchmarks.figures import BenchmarkResult, this_machine
    from closeby.lab.benchmarks.suite import BENCHMARKS, run
    from closeby.objects.words import not_known
    from closeby.report.views.console import show

    unknown = [name for name in only if name not in BENCHMARKS]
    if unknown:
        raise Unusable(not_known(unknown[0], BENCHMARKS, "benchmark"))
    figures = []
    for figure in run(only):
        figures.append(figure)
        click.echo(f"measured {figure.benchmark}: {figure.case}", err=True)
    show(_views(figures))
    if json_file is not None:
        result = BenchmarkResult(this_machine(), tuple(figures))
        json_file.write(msgspec.json.format(msgspec.json.encode(result), indent=2) + b"\n")


def _views(figures: "Iterable[Figure]") -> "Iterable[RenderableType]":
    from rich.text import Text

    from closeby.report.views.layout import plain_table

    figured = ("nodes", "pods", "placed", "CPU ms", "least", "wall ms", "pods/s", "target")
    by_benchmark: dict[str, list[Figure]] = {}
    for figure in figures:
        by_benchmark.setdefault(figure.benchmark, []).append(figure)
    for benchmark, members in by_benchmark.items():
        yield Text(benchmark, style="bold")
        table = plain_table("case", *figured, right=figured)
        for figure in members:
            speed, memory = figure.placed_per_second, figure.memory_mib is not None
            style = {None: "", True: "green", False: "red"}[figure.meets_target]
            table.add_row(
                figure.case,
                f"{figure.nodes:,}",
                f"{figure.pods:,}",
                f"{figure.placed:,}",
                Text(f"{figure.memory_mib:,.0f} MiB" if memory else f"{figure.cpu_ms:.3f}", style=style),
                "" if memory else f"{figure.cpu_ms_min:.3f}",
                "" if memory else f"{figure.wall_ms:.3f}",
                "" if memory or not speed else f"{speed:,.0f}",
                "" if figure.target_ms is None else f"{figure.target_ms:.3f}",
            )
        yield table
        yield Text()

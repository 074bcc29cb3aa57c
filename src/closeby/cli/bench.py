"""`closeby bench`: how fast decisions are on this machine."""

import click


@click.command(name="bench")
@click.option("--only", metavar="NAME", multiple=True, help="Only this benchmark. May be repeated.")
@click.option("--json", "json_path", metavar="FILE", type=click.Path(dir_okay=False), help="Write figures.")
def command(*, only: tuple[str, ...], json_path: str | None) -> None:
    """Measure the speed of decisions and print a table."""
    from closeby.benchmarks.suite import run_all

    run_all(only, json_path)

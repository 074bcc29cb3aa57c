"""`closeby schema`: the JSON schemas of what commands print with `-o json`."""

from importlib.resources import files
from typing import Final

import click

#: The command that prints such a document.
DOCUMENTS: Final = {
    "SchedulingReport": "closeby simulate -f PATH, closeby demo",
    "SimulationReport": "closeby simulate --workload NAME",
    "ComparisonReport": "closeby compare",
    "TopologyReport": "closeby topology",
    "Explanation": "closeby explain",
    "Discovery": "closeby discover SOURCE",
    "DiscoveryDiff": "closeby discover diff",
}


@click.command(name="schema", short_help="Print the JSON schema of a report.")
@click.argument("document", type=click.Choice(tuple(DOCUMENTS)), required=False)
def command(document: str | None) -> None:
    """Print the JSON schema (2020-12) of what a command prints with -o json or -o yaml.

    Without DOCUMENT the documents are listed, with the commands that print them. Fields are added to them,
    never renamed or removed within one apiVersion.

    \b
    Example:
      closeby schema SchedulingReport > schema.json
    """
    if document is None:
        width = max(map(len, DOCUMENTS))
        for name, commands in DOCUMENTS.items():
            click.echo(f"{name:{width}}  {commands}")
        return
    click.echo(files("closeby.report").joinpath("schemas", f"{document}.json").read_text(), nl=False)

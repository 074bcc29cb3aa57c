"""`closeby schema`: the JSON schemas of what commands print with `-o json`."""

from importlib.resources import files
from typing import Final

import click

from closeby.cli.names import OneOf

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


class _DocumentName(OneOf):
    """The kind of a document; the name of a command is not one, but says which are meant."""

    def refusal(self, value: str) -> str:
        """What is wrong with a value, and what there is."""
        from closeby.objects.words import similar

        word = value.removeprefix("closeby ")
        folded = {name.casefold(): name for name in DOCUMENTS}
        close = similar(word.casefold(), folded)
        meant = [name for name, commands in DOCUMENTS.items() if _prints(commands, word)]
        if not meant and close is not None:
            meant = [folded[close]]
        listed = ", ".join(f"{name} ({commands})" for name, commands in DOCUMENTS.items())
        guess = f"; did you mean {' or '.join(meant)}?" if meant else ""
        return f"{value!r} is not a document; documents: {listed}{guess}"


def _prints(commands: str, word: str) -> bool:
    return any(f"{one} ".startswith(f"closeby {word} ") for one in commands.split(", "))


@click.command(name="schema", short_help="Print the JSON schema of a report.")
@click.argument("document", metavar="[DOCUMENT]", type=_DocumentName(tuple(DOCUMENTS)), required=False)
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

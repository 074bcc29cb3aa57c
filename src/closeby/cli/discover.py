"""`closeby discover`: where nodes are in the network, as other tools know it."""

import importlib

import click

#: Sources in the order of `closeby discover --help`: the module and the attribute of each command.
SOURCES = {
    "ibnetdiscover": ("closeby.cli.discovering.fabric", "command"),
    "slurm": ("closeby.cli.discovering.files", "slurm"),
    "topograph": ("closeby.cli.discovering.files", "topograph"),
    "aws": ("closeby.cli.discovering.files", "aws"),
    "gcp": ("closeby.cli.discovering.files", "gcp"),
    "oci": ("closeby.cli.discovering.files", "oci"),
    "nvidia-smi": ("closeby.cli.discovering.files", "nvidia_smi"),
    "labels": ("closeby.cli.discovering.files", "labels"),
    "diff": ("closeby.cli.discovering.diff", "command"),
}


class _Sources(click.Group):
    """Finds a source's file by its name."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(SOURCES)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in SOURCES:
            return None
        module, attribute = SOURCES[cmd_name]
        command = getattr(importlib.import_module(module), attribute)
        return command if isinstance(command, click.Command) else None


@click.group(name="discover", cls=_Sources, short_help="Discover where nodes are in the network.")
def command() -> None:
    """Read the network topology that other tools know, and label nodes with it.

    \b
    Examples:
      ibnetdiscover | closeby discover ibnetdiscover -
      closeby discover ibnetdiscover plane-1.txt plane-2.txt --map names.txt -o labels
      closeby discover ibnetdiscover --apply --watch 300
    """

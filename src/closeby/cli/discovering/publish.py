"""What becomes of findings: they are printed, or written to the nodes of the cluster."""

import click

from closeby.cli.discovering.options import EXCHANGED, Chosen
from closeby.cli.discovering.output import Discover, read, show
from closeby.discovery.assembling import ALL_LEVELS


def publish(discover: Discover, chosen: Chosen) -> None:
    """Does with a source's findings what the options say. ``discover`` is called once, or in every round.

    Raises:
        Unusable: the source can't be read, holds no node, or the cluster can't be written to.
    """
    if chosen.apply:
        from closeby.cli.discovering.apply import apply

        apply(click.get_current_context().info_name or "", discover, chosen)
        return
    # A file of another tool takes all levels, whatever nodes can be labelled with.
    keys = ALL_LEVELS if chosen.output in EXCHANGED else chosen.keys
    show(read(lambda: discover(keys)), chosen)

"""What a command looks at: the files that the options name, or else the live cluster."""

from typing import TYPE_CHECKING

from closeby.cli.options import Sources
from closeby.cli.reading.inputs import Inputs, read_inputs

if TYPE_CHECKING:
    from closeby.cli.reading.cluster import ReadCluster


def read_cluster_or_files(sources: Sources) -> "tuple[Inputs, ReadCluster | None]":
    """As ``read_inputs``; without paths the live cluster, which comes second then.

    Raises:
        Unusable: see ``read_inputs``; or the cluster can't be read.
    """
    if sources.paths:
        return read_inputs(sources), None
    from closeby.cli.reading.cluster import read_live

    return read_live(sources)

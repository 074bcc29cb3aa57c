"""The buckets of a gang with task-topology, and where each of them lies."""

from collections import Counter
from collections.abc import Mapping, Sequence

from rich.table import Table
from rich.text import Text

from closeby.objects.words import names_text, plural
from closeby.report.views.layout import plain_table

#: Buckets shown, and nodes of one bucket.
LINES = 12
NODES = 4


def buckets_table(buckets: Sequence[Sequence[str]], nodes: Mapping[str, str | None]) -> Table:
    """One line per bucket, in the order in which they were made; ``nodes`` has the node of each pod."""
    table = plain_table("bucket", "pods that belong on one node", "lie on", right=("bucket",))
    for number, bucket in enumerate(buckets[:LINES], start=1):
        table.add_row(f"{number}", names_text(bucket), _nodes(bucket, nodes))
    left = len(buckets) - LINES
    if left > 0:
        table.add_row("", Text(f"{plural(left, 'more bucket')} (-o json)", style="dim"))
    return table


def _nodes(bucket: Sequence[str], nodes: Mapping[str, str | None]) -> Text:
    """Nodes with most of the bucket first; green where it is together."""
    counts = Counter(nodes.get(name) or "–" for name in bucket)
    told = [f"{node} ×{count}" if len(counts) > 1 else node for node, count in counts.most_common(NODES)]
    more = f" and {plural(len(counts) - NODES, 'more node')}" if len(counts) > NODES else ""
    return Text(", ".join(told) + more, style="green" if len(counts) == 1 and "–" not in counts else "")

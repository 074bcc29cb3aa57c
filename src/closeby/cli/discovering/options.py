"""What all sources of `closeby discover` share: which labels, in what form, and whether nodes get them."""

from functools import wraps
from typing import NamedTuple

import click

from closeby.cli.names import OneOf
from closeby.cli.options import Command, connects, with_options
from closeby.discovery.relabelling import Rules, reserved
from closeby.objects.labels import is_label_key

#: Files of other tools, in which findings can be written.
EXCHANGED = ("slurm", "slurm-block", "slurm-yaml", "topograph")
FORMS = ("table", "json", "yaml", "topology", "labels", *EXCHANGED)


class Chosen(NamedTuple):
    """What becomes of the findings."""

    output: str
    #: Label keys, closest first; None: those of the Topograph label standard.
    keys: tuple[str, ...] | None
    apply: bool
    dry_run: bool
    #: Seconds between two rounds; None: once.
    watch: float | None
    rules: Rules
    kubeconfig: str | None
    context: str | None
    #: What the Topology object is called; None: as all are.
    name: str | None = None


def label_keys(context: click.Context, option: click.Parameter, text: str | None) -> tuple[str, ...] | None:
    """The keys in ``KEY,KEY``; a callback of an option."""
    if text is None:
        return None
    keys = tuple(key.strip() for key in text.split(",") if key.strip())
    wrong = [key for key in keys if not is_label_key(key)]
    if wrong:
        raise click.BadParameter(f"{wrong[0]!r} is not a key of a label; give PREFIX/NAME")
    if not keys or len(set(keys)) < len(keys):
        raise click.BadParameter(
            "give one or more different keys, such as example.com/leaf,example.com/spine"
        )
    return keys


def _check(chosen: Chosen) -> None:
    """Raises UsageError for options that don't go together."""
    if not chosen.apply and (chosen.dry_run or chosen.watch is not None or chosen.rules.overwrite):
        raise click.UsageError("--dry-run, --watch and --overwrite go with --apply")
    own = next(filter(reserved, chosen.keys or ()), None)
    if chosen.apply and own is not None:
        raise click.UsageError(
            f"{own} is a label of Kubernetes' own, which --apply does not write; give keys of a "
            "domain of yours, or those of network.topology.kubernetes.io"
        )


#: How findings are shown, and by which labels.
_OUTPUT_OPTIONS = (
    click.option(
        "-o",
        "--output",
        type=OneOf(FORMS),
        default="table",
        show_default=True,
        help="Output format: topology is a Topology object, labels a partial Node per node, slurm and "
        "slurm-block a topology.conf, slurm-yaml a topology.yaml, topograph its graph in JSON.",
    ),
    click.option(
        "--labels",
        "keys",
        metavar="KEY,KEY",
        callback=label_keys,
        help="Keys of the labels that are written, closest first.  [default: block, datacenter and zone of "
        "network.topology.kubernetes.io, as many as there are levels, and accelerator where it is known; the "
        "source labels keeps its own keys]",
    ),
)
#: Whether and how they are written to the nodes of a cluster.
_APPLY_OPTIONS = (
    click.option(
        "--qos/--no-qos",
        default=None,
        help="With -o labels or --apply: also write the annotation network.qos.kubernetes.io/switches, with "
        "the uplinks of each switch and their bandwidth.  [default: if uplinks are known and no other tool "
        "wrote one]",
    ),
    click.option("--apply", is_flag=True, help="Write the labels to the nodes of the cluster."),
    click.option(
        "--dry-run",
        is_flag=True,
        help="With --apply: send the requests as server-side dry runs; nothing is persisted.",
    ),
    click.option(
        "--watch",
        metavar="SECONDS",
        type=click.FloatRange(min=1),
        help="With --apply: repeat, with this many seconds between rounds.",
    ),
    click.option(
        "--misses",
        metavar="K",
        type=click.IntRange(min=1),
        default=Rules().misses,
        show_default=True,
        help="With --apply: remove closeby's labels from a node after it was missing in this many "
        "consecutive rounds.",
    ),
    click.option(
        "--overwrite",
        is_flag=True,
        help="With --apply: overwrite labels of another writer that have different values.",
    ),
)


def discovers(command: Command) -> Command:
    """Adds ``-o``, ``--labels`` and the options of ``--apply``; the command gets them as ``chosen``."""

    @wraps(command)
    def with_choice(
        *,
        output: str,
        keys: tuple[str, ...] | None,
        apply: bool,
        dry_run: bool,
        watch: float | None,
        misses: int,
        overwrite: bool,
        kubeconfig: str | None,
        context: str | None,
        qos: bool | None,
        **options: object,
    ) -> None:
        rules = Rules(misses=misses, with_quality=qos, overwrite=overwrite)
        chosen = Chosen(output, keys, apply, dry_run, watch, rules, kubeconfig, context)
        _check(chosen)
        command(chosen=chosen, **options)

    return with_options((*_OUTPUT_OPTIONS, *_APPLY_OPTIONS), connects(with_choice))

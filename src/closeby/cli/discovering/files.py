"""`closeby discover slurm`, `topograph`, `aws`, `labels` and so on: where nodes are by files of others."""

from collections.abc import Callable, Mapping, Sequence

import click

from closeby.cli.discovering.options import Chosen, discovers
from closeby.cli.names import FILE_NAME
from closeby.cli.options import manifests_option
from closeby.cli.reading.inputs import Unusable
from closeby.discovery.findings import ScanFindings
from closeby.discovery.source_files import read_text
from closeby.objects.nodes import Node
from closeby.objects.words import not_known
from closeby.reading.decoding.sources import STDIN_NAME

_STDIN = "-"
#: Reads a text, given its name, label keys, and names of nodes by what the source calls them.
_Reader = Callable[[str, str, Sequence[str] | None, Mapping[str, str] | None], ScanFindings]

_FILE = click.argument("file", metavar="FILE", type=FILE_NAME)
_NAMES = click.option(
    "--node-names",
    "names_path",
    metavar="FILE",
    type=FILE_NAME,
    help="Kubernetes names of the nodes, one per line, such as: i-0123456789abcdef0 node-1",
)


@click.command(name="slurm", short_help="Slurm's topology.conf or topology.yaml.")
@_FILE
@click.option(
    "--topology",
    metavar="NAME",
    help="Which topology of a topology.yaml to use.  [default: the cluster's default, else the first tree or "
    "block topology]",
)
@discovers
def slurm(*, file: str, topology: str | None, chosen: Chosen) -> None:
    """Read where nodes are from Slurm's topology.conf (tree or block plugin), or from a topology.yaml if FILE
    ends in .yaml; - reads standard input.

    \b
    Examples:
      closeby discover slurm /etc/slurm/topology.conf
      closeby discover slurm topology.yaml -o labels
    """
    from closeby.discovery.slurm import read_slurm

    _publish(file, None, lambda name, text, keys, names: read_slurm(name, text, keys, topology), chosen)


@click.command(name="topograph", short_help="Topograph's graph (JSON) or model (YAML).")
@_FILE
@_NAMES
@discovers
def topograph(*, file: str, names_path: str | None, chosen: Chosen) -> None:
    """Read where nodes are from the output of Topograph's graph engine, or from a model for its simulators.

    The first is JSON, the second YAML; - reads standard input.
    """
    from closeby.discovery.topograph import read_topograph

    _publish(file, names_path, read_topograph, chosen)


def _cloud(name: str, short_help: str, text: str) -> click.Command:
    @discovers
    def run(*, file: str, names_path: str | None, chosen: Chosen) -> None:
        from closeby.discovery import clouds

        reader: _Reader = {"aws": clouds.read_aws, "gcp": clouds.read_gcp, "oci": clouds.read_oci}[name]
        _publish(file, names_path, reader, chosen)

    return click.command(name=name, short_help=short_help, help=text)(_FILE(_NAMES(run)))


aws = _cloud(
    "aws",
    "Output of `aws ec2 describe-instance-topology`.",
    "Read where nodes are from the output of `aws ec2 describe-instance-topology --output json`.",
)
gcp = _cloud(
    "gcp",
    "Output of `gcloud compute instances list`.",
    "Read where nodes are from the output of `gcloud compute instances list --format=json`.",
)
oci = _cloud(
    "oci",
    "Output of `oci compute compute-host list`.",
    "Read where nodes are from the output of `oci compute compute-host list --all`.",
)


@click.command(name="nvidia-smi", short_help="NVLink partitions, from nvidia-smi's output.")
@_FILE
@click.option("--host", metavar="NAME", help="The host of the lines, if they don't name one.")
@_NAMES
@discovers
def nvidia_smi(*, file: str, host: str | None, names_path: str | None, chosen: Chosen) -> None:
    """Discover which nodes share an NVLink partition.

    FILE holds lines such as `node-1: 81b2…, 3`, as pdsh collects them, or the lines of one host that --host
    names.

    \b
    Example:
      pdsh -w node-[1-18] nvidia-smi --query-gpu=fabric.clusterUuid,fabric.cliqueId \\
        --format=csv,noheader | closeby discover nvidia-smi - -o labels
    """
    from closeby.discovery.accelerators import read_nvidia_smi

    def read(
        name: str, text: str, keys: Sequence[str] | None, names: Mapping[str, str] | None
    ) -> ScanFindings:
        return read_nvidia_smi(name, text, keys, host=host, names=names)

    _publish(file, names_path, read, chosen)


@click.command(name="labels", short_help="Labels that the nodes already have.")
@manifests_option(
    "A file or folder of manifests with nodes, or - for standard input. May be repeated.  "
    "[default: the live cluster]"
)
@click.option(
    "--preset",
    metavar="NAME",
    help="Family of labels; list shows all families.  [default: network-labels]",
)
@click.option(
    "--key",
    "own",
    metavar="KEY,KEY",
    help="Label keys of a family that closeby does not know, closest first.",
)
@click.option("--name", metavar="NAME", help="With -o topology: name of the Topology.  [default: network]")
@discovers
def labels(
    *, paths: tuple[str, ...], preset: str | None, own: str | None, name: str | None, chosen: Chosen
) -> None:
    """Read where nodes are from one family of labels, on the nodes of the live cluster or of manifests.

    Families are never mixed, since some use the same word for different things. Labels keep their keys unless
    --labels gives others.

    \b
    Examples:
      closeby discover labels --preset eks
      kubectl get nodes -o yaml | closeby discover labels -f - --preset eks
      closeby discover labels -f nodes.yaml --key example.com/rack,example.com/row -o topology
    """
    from closeby.cli.discovering.publish import publish
    from closeby.discovery.labels import family_of, read_labels
    from closeby.objects.labels import is_label_key, is_object_name
    from closeby.topology.families import PRESETS

    if preset == "list":
        for one in PRESETS.values():
            tiers = (f"{one.tiers}N",) if one.tiers else ()
            click.echo(f"{one.name}: {', '.join((*one.labels, *tiers))}")
        return
    if paths and not chosen.apply and (chosen.kubeconfig is not None or chosen.context is not None):
        raise click.UsageError("-f reads files, --kubeconfig and --context a cluster: give one of them")
    if preset is not None and own is not None:
        raise click.UsageError("--preset and --key both say which labels: give one of them")
    if preset is not None and preset not in PRESETS:
        raise Unusable(not_known(preset, PRESETS, "preset"))
    family = PRESETS["network-labels" if preset is None else preset]
    if own is not None:
        keys = tuple(key.strip() for key in own.split(","))
        wrong = [key for key in keys if not is_label_key(key)]
        if wrong or len(set(keys)) < len(keys):
            raise Unusable(
                f"--key {own}: give different keys of labels, such as example.com/rack,example.com/row"
            )
        family = family_of(keys)
    if chosen.watch is not None and _STDIN in paths:
        raise click.UsageError("standard input can be read once: --watch needs files")
    if name is not None and chosen.output != "topology":
        raise click.UsageError("--name goes with -o topology")
    if name is not None and not is_object_name(name):
        raise Unusable(f"--name {name}: give a name as Kubernetes takes it, such as gpu-network")
    nodes = _nodes(paths, chosen)
    own_keys = read_labels(nodes, family).keys if chosen.keys is None else chosen.keys

    def discover(keys: tuple[str, ...] | None) -> ScanFindings:
        return read_labels(nodes if chosen.watch is None else _nodes(paths, chosen), family, keys).findings

    publish(discover, chosen._replace(keys=own_keys, name=name))


def _nodes(paths: Sequence[str], chosen: Chosen) -> tuple[Node, ...]:
    """The nodes in manifests; without paths those of the live cluster.

    Raises:
        Unusable: a document or the cluster can't be read, or there is no node.
    """
    if not paths:
        from closeby.cli.reading.cluster import read_live_nodes

        live = read_live_nodes(chosen.kubeconfig, chosen.context)
        for notice in live.notices:
            click.echo(f"note: {notice.object}: {notice.sentence()}", err=True)
        if not live.nodes:
            raise Unusable("the cluster has no node")
        return live.nodes
    from closeby.reading.manifests import read_manifests

    manifests = read_manifests(paths)
    if manifests.errors:
        raise Unusable(*(str(error) for error in manifests.errors))
    if not manifests.nodes:
        raise Unusable(f"{', '.join(paths)}: holds no Node; give what `kubectl get nodes -o yaml` prints")
    return manifests.nodes


def _publish(file: str, names_path: str | None, reader: _Reader, chosen: Chosen) -> None:
    from closeby.cli.discovering.publish import publish
    from closeby.discovery.places import read_names

    if chosen.watch is not None and file == _STDIN:
        raise click.UsageError("standard input can be read once: --watch needs a file")

    def discover(keys: tuple[str, ...] | None) -> ScanFindings:
        names = None if names_path is None else read_names(names_path, read_text(names_path))
        return reader(STDIN_NAME if file == _STDIN else file, read_text(file), keys, names)

    publish(discover, chosen)

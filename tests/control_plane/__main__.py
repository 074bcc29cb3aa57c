"""Starts a control plane by hand, with nodes and their stand-in for kubelets, until Ctrl-C."""

import asyncio
import contextlib
import logging
import signal
import tempfile
from pathlib import Path

import click

from tests.control_plane.api import Api, wait_for_service_account
from tests.control_plane.binaries import UnavailableError, find_programs
from tests.control_plane.cluster import ControlPlane, started
from tests.control_plane.commands import Settings
from tests.control_plane.nodes import joined, kubelets, node
from tests.control_plane.processes import StartError


@click.command()
@click.option(
    "--nodes", default=16, show_default=True, help="Nodes of 8 GPUs, 4 in a rack, 4 racks in a block."
)
@click.option("--scheduler", is_flag=True, help="Run kube-scheduler too.")
@click.option(
    "--folder", type=click.Path(path_type=Path), help="For its files and logs, else a temporary one."
)
def main(nodes: int, scheduler: bool, folder: Path | None) -> None:
    """Starts etcd, kube-apiserver and kube-controller-manager on free ports, until Ctrl-C."""
    with contextlib.ExitStack() as held:
        if folder is None:
            folder = Path(held.enter_context(tempfile.TemporaryDirectory(prefix="closeby-cluster-")))
        try:
            programs = find_programs(click.echo)
            control_plane = held.enter_context(started(programs, folder, Settings(scheduler=scheduler)))
        except (UnavailableError, StartError, FileNotFoundError) as error:
            raise click.ClickException(str(error)) from error
        asyncio.run(_run(control_plane, nodes))


async def _run(control_plane: ControlPlane, nodes: int) -> None:
    stop = asyncio.Event()
    for each in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(each, stop.set)
    async with Api(control_plane.access()) as api, joined(api, map(_gpu_node, range(nodes))), kubelets(api):
        if control_plane.controllers:
            await wait_for_service_account(api, "default")
        click.echo(f"{control_plane.origin}\n{nodes} nodes; logs in {control_plane.kubeconfig.parent}\n")
        click.echo(f"export KUBECONFIG={control_plane.kubeconfig}\n\nCtrl-C stops it.")
        await stop.wait()
    click.echo("stopping")


def _gpu_node(number: int) -> dict[str, object]:
    rack = number // 4
    labels = {
        "network.topology.kubernetes.io/zone": "zone-0",
        "network.topology.kubernetes.io/datacenter": f"block-{rack // 4}",
        "network.topology.kubernetes.io/block": f"rack-{rack}",
    }
    return node(f"node-{number:03}", labels=labels, allocatable={"nvidia.com/gpu": "8"})


if __name__ == "__main__":
    logging.basicConfig(level=logging.WARNING)
    main()

"""The options of `closeby controllers` about the Prometheus that keeps latencies."""

from functools import wraps
from typing import TYPE_CHECKING

import click

from closeby.cli.options import Command, with_options

if TYPE_CHECKING:
    from collections.abc import Sequence

    from closeby.controllers.networks.settings import PrometheusAccess
    from closeby.measurements.addresses import Access, Address

_FILE = click.Path(dir_okay=False)


_OPTIONS = (
    click.option(
        "--prometheus-address",
        metavar="URL",
        default="",
        help="The Prometheus that the options below configure. NetworkTopologies may refer to it.",
    ),
    click.option(
        "--allow-prometheus-address",
        "allowed",
        metavar="URL",
        multiple=True,
        help="Another Prometheus that NetworkTopologies may refer to, as scheme://host[:port][/prefix]. May "
        "be repeated; no other address is queried.",
    ),
    click.option(
        "--prometheus-token-file",
        metavar="FILE",
        type=_FILE,
        default="",
        help="File with a bearer token, reloaded for each request.",
    ),
    click.option(
        "--prometheus-ca-file",
        metavar="FILE",
        type=_FILE,
        default="",
        help="Certificate authorities to trust (PEM).",
    ),
    click.option(
        "--prometheus-cert-file",
        metavar="FILE",
        type=_FILE,
        default="",
        help="Client certificate (PEM); the file may also contain the key.",
    ),
    click.option(
        "--prometheus-key-file",
        metavar="FILE",
        type=_FILE,
        default="",
        help="Private key of the client certificate (PEM).",
    ),
    click.option(
        "--prometheus-insecure-skip-verify",
        is_flag=True,
        help="Do not verify the server's certificate. For tests only.",
    ),
    click.option(
        "--costs-max-age",
        "max_age",
        metavar="HOURS",
        type=click.FloatRange(min=0, min_open=True, max=24 * 365),
        default=24.0,
        show_default=True,
        help="Drop the costs of a NetworkTopology when they are older than this and no latencies are "
        "available.",
    ),
)


def knows_prometheus(command: Command) -> Command:
    """Adds the options; the command gets them as ``prometheus``, and ``max_age`` in hours."""

    @wraps(command)
    def with_prometheus(
        *,
        prometheus_address: str,
        allowed: tuple[str, ...],
        prometheus_token_file: str,
        prometheus_ca_file: str,
        prometheus_cert_file: str,
        prometheus_key_file: str,
        prometheus_insecure_skip_verify: bool,
        **options: object,
    ) -> None:
        from closeby.measurements.addresses import Access

        access = Access(
            token_file=prometheus_token_file,
            ca_file=prometheus_ca_file,
            cert_file=prometheus_cert_file,
            key_file=prometheus_key_file,
            insecure=prometheus_insecure_skip_verify,
        )
        command(prometheus=_access_of(prometheus_address, access, allowed), **options)

    return with_options(_OPTIONS, with_prometheus)


def _access_of(address: str, access: "Access", allowed: "Sequence[str]") -> "PrometheusAccess":
    from closeby.controllers.networks.settings import PrometheusAccess
    from closeby.measurements.addresses import ANONYMOUS

    if address:
        _address("--prometheus-address", address)
    others = tuple(_address("--allow-prometheus-address", one) for one in allowed)
    if not address and access != ANONYMOUS:
        raise click.UsageError(
            "whom are the token and the certificates for? name it with --prometheus-address"
        )
    if access.key_file and not access.cert_file:
        raise click.UsageError("--prometheus-key-file needs --prometheus-cert-file")
    return PrometheusAccess(address, access, others)


def _address(option: str, text: str) -> "Address":
    from closeby.measurements.addresses import read_address

    found = read_address(text)
    if found is None:
        raise click.UsageError(
            f"{option}: {text!r} is not a URL of scheme, host, port and prefix; give one such as "
            "http://prometheus:9090"
        )
    return found

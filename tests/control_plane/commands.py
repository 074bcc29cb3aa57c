"""The command lines of a control plane's programs on 127.0.0.1, with the reasons for the odd flags."""

import contextlib
import secrets
import socket
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tests.control_plane.access import write_kubeconfig
from tests.control_plane.binaries import Programs, minor_of
from tests.control_plane.certificates import Certificates, make_certificates
from tests.control_plane.processes import Command

ADMIN = "admin"
ORDINARY = "ordinary"

# User, and the groups that the API server puts it in.
_USERS = {
    ADMIN: "system:masters",
    ORDINARY: "",
    "system:kube-controller-manager": "",
    "system:kube-scheduler": "",
}

# Kubernetes has gangs and one topology key behind gates, since 1.36 (alpha), in 1.37 as a beta that is off:
# served, so that closeby can read upstream's PodGroups, and obeyed by kube-scheduler, so that the two can be
# compared. By minor version: the served version, and the gates.
_GANGS = {
    "1.36": ("v1alpha2", "GenericWorkload=true,GangScheduling=true,TopologyAwareWorkloadScheduling=true"),
    "1.37": ("v1beta1", "GenericWorkload=true,TopologyAwareWorkloadScheduling=true"),
}


@dataclass(frozen=True)
class Settings:
    """What kind of control plane it is to be.

    `controllers`: with kube-controller-manager, so that Jobs get pods and namespaces get service accounts.
    `scheduler`: with kube-scheduler, which takes the pods that name no other.
    `gangs`: upstream's gang and topology scheduling, where the version has it.
    `environment`: for all programs, such as `GOGC`. `flags`: more of them, by program.
    """

    controllers: bool = True
    scheduler: bool = False
    gangs: bool = True
    environment: Mapping[str, str] = field(default_factory=dict)
    flags: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


@dataclass(frozen=True)
class Site:
    """The folder of one control plane, its ports, certificates and kubeconfigs by user."""

    folder: Path
    ports: Mapping[str, int]
    certificates: Certificates
    tokens: Path
    kubeconfigs: Mapping[str, Path]

    @property
    def server(self) -> str:
        """The API server's URL."""
        return f"https://127.0.0.1:{self.ports['kube-apiserver']}"


def make_site(folder: Path) -> Site:
    """Free ports, new certificates and tokens, and a kubeconfig for each user, in `folder`."""
    names = ("etcd", "etcd-peer", "kube-apiserver", "kube-controller-manager", "kube-scheduler")
    ports = dict(zip(names, free_ports(len(names)), strict=True))
    certificates = make_certificates(folder)
    server = f"https://127.0.0.1:{ports['kube-apiserver']}"
    tokens = folder / "tokens.csv"
    tokens.touch(mode=0o600)
    rows = []
    kubeconfigs = {}
    for user, group in _USERS.items():
        token = secrets.token_urlsafe()
        rows.append(f"{token},{user},{user}" + (f",{group}" if group else ""))
        path = folder / f"{user.removeprefix('system:')}.kubeconfig"
        kubeconfigs[user] = write_kubeconfig(path, server, certificates.authority, user, token)
    tokens.write_text("\n".join(rows) + "\n")
    return Site(folder, ports, certificates, tokens, kubeconfigs)


def commands(site: Site, programs: Programs, settings: Settings) -> dict[str, Command]:
    """The commands of the programs that are there, in the order in which they start."""
    served, gates = "", []
    if settings.gangs and (known := _GANGS.get(minor_of(programs.version()))):
        served, gates = known[0], [f"--feature-gates={known[1]}"]
    flags = {
        "etcd": _etcd(site),
        "kube-apiserver": [
            *_apiserver(site, settings),
            *gates,
            *([f"--runtime-config=scheduling.k8s.io/{served}=true"] if served else []),
        ],
        "kube-controller-manager": _controller_manager(site),
        "kube-scheduler": [*_scheduler(site), *gates],
    }
    healthy = {"etcd": "/health", "kube-apiserver": "/readyz"}
    made = {}
    for name, its_flags in flags.items():
        path = programs.path(name)
        if path is not None:
            scheme = "http" if name == "etcd" else "https"
            made[name] = Command(
                arguments=[str(path), *its_flags, *settings.flags.get(name, ())],
                ready_url=f"{scheme}://127.0.0.1:{site.ports[name]}{healthy.get(name, '/healthz')}",
                environment=settings.environment,
            )
    return made


def _etcd(site: Site) -> list[str]:
    client = f"http://127.0.0.1:{site.ports['etcd']}"
    peer = f"http://127.0.0.1:{site.ports['etcd-peer']}"
    return [
        f"--data-dir={site.folder / 'etcd'}",
        f"--listen-client-urls={client}",
        f"--advertise-client-urls={client}",
        f"--listen-peer-urls={peer}",
        f"--initial-advertise-peer-urls={peer}",
        f"--initial-cluster=default={peer}",
        # Nobody misses the data of a test after the machine went down; a binding takes 0.1 ms less.
        "--unsafe-no-fsync",
        f"--quota-backend-bytes={8 << 30}",
        "--log-level=warn",
    ]


def _apiserver(site: Site, settings: Settings) -> list[str]:
    key = site.certificates.service_account_key
    # A new node would be tainted not-ready until the controller manager has seen it.
    disabled = ["TaintNodesByCondition"]
    if not settings.controllers:
        # Nobody makes the service account `default`, without which no pod would be taken.
        disabled.append("ServiceAccount")
    return [
        f"--etcd-servers=http://127.0.0.1:{site.ports['etcd']}",
        "--bind-address=127.0.0.1",
        "--advertise-address=127.0.0.1",
        f"--secure-port={site.ports['kube-apiserver']}",
        # The service `kubernetes` leads nowhere: 127.0.0.1 can't be an endpoint.
        "--endpoint-reconciler-type=none",
        f"--tls-cert-file={site.certificates.server}",
        f"--tls-private-key-file={site.certificates.server_key}",
        f"--client-ca-file={site.certificates.authority}",
        # The other programs read it from the API server, and complain each 10 s if it is not there.
        f"--requestheader-client-ca-file={site.certificates.authority}",
        "--requestheader-allowed-names=nobody",
        f"--token-auth-file={site.tokens}",
        "--authorization-mode=RBAC",
        "--service-account-issuer=https://kubernetes.default.svc",
        f"--service-account-key-file={key}",
        f"--service-account-signing-key-file={key}",
        "--service-cluster-ip-range=10.0.0.0/16",
        f"--disable-admission-plugins={','.join(disabled)}",
        # It ends its watches 2 s after it was told to stop, not 60 s.
        "--shutdown-send-retry-after=true",
        "--profiling=false",
        "--event-ttl=10m",
        "--max-requests-inflight=3000",
        "--max-mutating-requests-inflight=1000",
    ]


def _controller_manager(site: Site) -> list[str]:
    return [
        *_client(site, "kube-controller-manager"),
        "--kube-api-qps=2000",
        "--kube-api-burst=4000",
        f"--service-account-private-key-file={site.certificates.service_account_key}",
        f"--root-ca-file={site.certificates.authority}",
        # RBAC has roles for the single controllers, not for their manager.
        "--use-service-account-credentials=true",
        # Nobody renews the nodes' leases.
        "--node-monitor-grace-period=24h",
    ]


def _scheduler(site: Site) -> list[str]:
    return [
        *_client(site, "kube-scheduler"),
        "--kube-api-qps=5000",
        "--kube-api-burst=10000",
    ]


def _client(site: Site, name: str) -> list[str]:
    kubeconfig = site.kubeconfigs[f"system:{name}"]
    return [
        f"--kubeconfig={kubeconfig}",
        f"--authentication-kubeconfig={kubeconfig}",
        f"--authorization-kubeconfig={kubeconfig}",
        "--bind-address=127.0.0.1",
        f"--secure-port={site.ports[name]}",
        "--leader-elect=false",
    ]


def free_ports(count: int) -> list[int]:
    """Ports of 127.0.0.1 that nothing listens on."""
    # All are held until all are known, so that none is given out twice.
    with contextlib.ExitStack() as held:
        sockets = [held.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [int(each.getsockname()[1]) for each in sockets]

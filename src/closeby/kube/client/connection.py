"""How to reach a cluster: address, TLS, proxy and who asks, from a kubeconfig file or from inside a pod."""

import base64
import binascii
import os
import ssl
from collections.abc import Mapping
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from msgspec import Struct

from closeby.kube.client.credentials import (
    Credentials,
    Fixed,
    TokenFile,
    auth_provider,
    basic,
    exec_plugin,
    load_certificate,
    not_a_token,
)
from closeby.kube.client.kubeconfig import (
    VARIABLE,
    ClusterAccess,
    KubeconfigCluster,
    UserEntry,
    chosen_files,
    read_access,
)
from closeby.measurements.fetching import proxy_of
from closeby.objects.bounds import is_header_token
from closeby.objects.reasons import Problem

#: Where the kubelet puts the token, the certificate authority and the namespace of a pod.
SERVICE_ACCOUNT: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")


class Connection(Struct, frozen=True, kw_only=True):
    """One cluster, and who asks it."""

    #: Without a slash at its end.
    url: str
    credentials: Credentials
    #: None for a server without TLS.
    tls: ssl.SSLContext | None = None
    #: The name that the server's certificate must have; None for the name in ``url``.
    server_name: str | None = None
    #: ``http://...``; None for a direct connection.
    proxy: str | None = None
    #: Headers besides Authorization: whom to act as.
    headers: tuple[tuple[str, str], ...] = ()
    #: Of the context or of this pod.
    namespace: str = "default"
    #: Where all this stands, for messages.
    source: str

    @property
    def host(self) -> str:
        """The server's name and port, for metrics."""
        return urlsplit(self.url).netloc.rpartition("@")[2]


def told_namespace(environment: Mapping[str, str] = os.environ) -> str | None:
    """The namespace in which this process is to count as a pod, as its environment says; None without."""
    return environment.get("POD_NAMESPACE") or None


def own_namespace() -> str | None:
    """The namespace in which this process runs as a pod; None where it is not a pod.

    Never that of a kubeconfig's context, which says where a user likes to look.
    """
    named = told_namespace()
    if named is not None:
        return named
    try:
        return (SERVICE_ACCOUNT / "namespace").read_text().strip() or None
    except OSError:
        return None


def connect(
    kubeconfig: str | None = None,
    context: str | None = None,
    environment: Mapping[str, str] = os.environ,
    service_account: Path = SERVICE_ACCOUNT,
) -> Connection | Problem:
    """The cluster of the named file and context, of KUBECONFIG, of ``~/.kube/config``, or around this pod.

    Nothing is sent yet.
    """
    files = chosen_files(kubeconfig, environment)
    if files:
        access = read_access(files, context)
        return access if isinstance(access, Problem) else _of_access(access, files, environment)
    if context is not None:
        return Problem(f"there is no kubeconfig file with the context {context!r}", _hint(environment))
    if environment.get("KUBERNETES_SERVICE_HOST"):
        return _in_cluster(environment, service_account)
    return Problem(
        "no cluster is known: there is no kubeconfig file, and this is not a pod", _hint(environment)
    )


def connection_to(
    url: str, *, token_file: str | None = None, ca_file: str | None = None, insecure: bool = False
) -> Connection | Problem:
    """A server at ``url`` that is no API server, such as a scheduler's metrics; nothing is sent yet.

    ``ca_file`` (PEM): who may have signed its certificate, instead of the system's authorities.
    ``insecure``: any certificate will do.
    """
    try:
        parts = urlsplit(url)
        # Of control characters the parts would say nothing.
        known = (
            url.isprintable()
            and " " not in url
            and parts.scheme in ("http", "https")
            and bool(parts.hostname)
            and parts.port != 0
        )
    except ValueError:
        known = False
    if not known:
        return Problem(f"{url!r} is not an address of a server", "give https://HOST:PORT")
    tls = None
    if parts.scheme == "https":
        try:
            tls = _server_context(Path(ca_file).read_bytes() if ca_file else None)
        except (OSError, ValueError) as error:
            return Problem(f"the certificate authority {ca_file} can't be used: {error}", "give a PEM file")
        if insecure:
            tls.check_hostname = False
            tls.verify_mode = ssl.CERT_NONE
    return Connection(
        url=url.rstrip("/"),
        credentials=Fixed() if token_file is None else TokenFile(Path(token_file)),
        tls=tls,
        source="as given",
    )


def _hint(environment: Mapping[str, str]) -> str:
    named = environment.get(VARIABLE)
    if named:
        return f"{VARIABLE} names {named}, which is not there; name a kubeconfig file that is"
    return f"name a kubeconfig file, or set {VARIABLE}"


def _in_cluster(environment: Mapping[str, str], folder: Path) -> Connection | Problem:
    host = environment["KUBERNETES_SERVICE_HOST"]
    port = environment.get("KUBERNETES_SERVICE_PORT") or "443"
    authority, token, namespace = folder / "ca.crt", folder / "token", folder / "namespace"
    if not token.exists():
        remedy = "let the pod have its service account's token (automountServiceAccountToken: true)"
        return Problem(f"this pod has no token at {token}", remedy)
    try:
        tls = _server_context(authority.read_bytes())
    except (OSError, ValueError) as error:
        return Problem(
            f"the certificate authority {authority} can't be used: {error}", "mount the cluster's own"
        )
    return Connection(
        url=f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}",
        credentials=TokenFile(token),
        tls=tls,
        namespace=namespace.read_text().strip() if namespace.exists() else "default",
        source="the pod's service account",
    )


def _of_access(
    access: ClusterAccess, files: tuple[Path, ...], environment: Mapping[str, str]
) -> Connection | Problem:
    cluster = access.cluster
    parts = urlsplit(cluster.server if "://" in cluster.server else f"http://{cluster.server}")
    source = f"context {access.context!r} of {', '.join(str(file) for file in files)}"
    if parts.scheme not in ("http", "https") or not parts.hostname:
        return Problem(
            f"{cluster.server!r} in {source} is not an address of a server", "give https://HOST:PORT"
        )
    proxy = cluster.proxy_url or proxy_of(parts.scheme, parts.hostname, environment)
    if proxy and urlsplit(proxy).scheme not in ("http", "https"):
        return Problem(f"the proxy {proxy} in {source} is not supported", "give an HTTP proxy")
    tls = _tls(access, source) if parts.scheme == "https" else None
    if isinstance(tls, Problem):
        return tls
    credentials = _credentials(access, tls, source)
    if isinstance(credentials, Problem):
        return credentials
    headers = _impersonation(access.user)
    if not all(value.isprintable() for _, value in headers):
        return Problem(
            f"a name to act as (as, as-groups, as-uid) in {source} has control characters",
            "fix the kubeconfig file",
        )
    return Connection(
        url=parts.geturl().rstrip("/"),
        credentials=credentials,
        tls=tls,
        server_name=cluster.tls_server_name or None,
        proxy=proxy,
        headers=headers,
        namespace=access.namespace,
        source=source,
    )


def _credentials(access: ClusterAccess, tls: ssl.SSLContext | None, source: str) -> Credentials | Problem:
    """In client-go's order: a token before a plugin, a password last."""
    user = access.user
    if user.token_file:
        return TokenFile(access.user_folder / user.token_file)
    if user.token:
        if not is_header_token(user.token):
            return not_a_token(f"the field token of the user of {source}")
        return Fixed(f"Bearer {user.token}")
    if user.exec is not None:
        return exec_plugin(user.exec, access.user_folder, tls)
    if user.auth_provider is not None:
        return auth_provider(_alone(access))
    if user.username:
        return basic(user.username, user.password)
    if user.password:
        return Problem(f"{source} has a password without a user name", "give both")
    return Fixed()


def _alone(access: ClusterAccess) -> dict[str, object]:
    """What an identity provider's user needs of its file, as a kubeconfig of its own."""
    return {
        "current-context": "only",
        "contexts": [{"name": "only", "context": {"cluster": "only", "user": "only"}}],
        "clusters": [{"name": "only", "cluster": {}}],
        "users": [{"name": "only", "user": {"auth-provider": access.user.auth_provider}}],
    }


def _impersonation(user: UserEntry) -> tuple[tuple[str, str], ...]:
    named = (("Impersonate-User", user.impersonate), ("Impersonate-Uid", user.impersonate_uid))
    groups = (("Impersonate-Group", group) for group in user.impersonate_groups)
    return (*((key, value) for key, value in named if value), *groups)


def _tls(access: ClusterAccess, source: str) -> ssl.SSLContext | Problem:
    """Whom to trust, and the client certificate if the file has one."""
    cluster, user = access.cluster, access.user
    try:
        authority = _bytes_of(
            cluster.certificate_authority_data, cluster.certificate_authority, access.cluster_folder
        )
        tls = _server_context(authority, cluster)
    except (OSError, ValueError) as error:
        remedy = "give certificate-authority a PEM file, or certificate-authority-data its base64"
        return Problem(f"the certificate authority of {source} can't be used: {error}", remedy)
    try:
        certificate = _bytes_of(user.client_certificate_data, user.client_certificate, access.user_folder)
        key = _bytes_of(user.client_key_data, user.client_key, access.user_folder)
    except (OSError, ValueError) as error:
        return Problem(
            f"the client certificate of {source} can't be read: {error}", "fix the kubeconfig file"
        )
    if (certificate is None) != (key is None):
        return Problem(f"{source} has only one of client-certificate and client-key", "give both")
    fault = load_certificate(tls, certificate, key, f"of {source}") if certificate and key else None
    return fault or tls


def _server_context(authority: bytes | None, cluster: KubeconfigCluster | None = None) -> ssl.SSLContext:
    """Trusts ``authority`` (PEM), or the system's authorities.

    Raises:
        ValueError: it holds no certificate.
    """
    if authority is not None and b"-----BEGIN" not in authority:
        raise ValueError("it holds no certificate in PEM")
    try:
        tls = ssl.create_default_context(cadata=None if authority is None else authority.decode())
    except ssl.SSLError as error:
        raise ValueError(str(error)) from error
    # Newer Pythons refuse certificates without key identifiers, which many clusters' authorities lack.
    tls.verify_flags &= ~ssl.VERIFY_X509_STRICT
    if cluster is not None and cluster.insecure_skip_tls_verify:
        tls.check_hostname = False
        tls.verify_mode = ssl.CERT_NONE
    return tls


def _bytes_of(data: str, file: str, folder: Path) -> bytes | None:
    """What stands in the kubeconfig (base64) or in the file it names.

    Raises:
        ValueError: the data is not base64.
        OSError: the file can't be read.
    """
    if data:
        try:
            return base64.b64decode(data, validate=True)
        except binascii.Error as error:
            raise ValueError(f"it is not base64: {error}") from error
    return (folder / file).read_bytes() if file else None

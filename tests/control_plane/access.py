"""How to reach a cluster as somebody: kubeconfig files, written for our clusters and read for any."""

import base64
import binascii
import ssl
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml


@dataclass(frozen=True)
class Access:
    """An API server and the one who asks: by a bearer token, or by a certificate that `tls` presents."""

    server: str
    tls: ssl.SSLContext
    token: str | None = None


def write_kubeconfig(path: Path, server: str, authority: Path, user: str, token: str) -> Path:
    """A kubeconfig that holds all it needs, so that it may be copied elsewhere."""
    cluster = {
        "server": server,
        "certificate-authority-data": base64.b64encode(authority.read_bytes()).decode(),
    }
    return _write(path, cluster, {"user": user}, {"name": user, "user": {"token": token}})


def write_kubeconfig_as(path: Path, of: Path, user: str, token: str, namespace: str) -> Path:
    """The cluster of the kubeconfig `of` as somebody else, who is in `namespace` if nothing is said."""
    document = yaml.safe_load(of.read_text())
    context = _named(document, "contexts", document["current-context"])["context"]
    cluster = dict(_named(document, "clusters", context["cluster"])["cluster"])
    authority = cluster.get("certificate-authority")
    if authority:
        cluster["certificate-authority"] = str((of.parent / authority).resolve())
    return _write(
        path, cluster, {"user": user, "namespace": namespace}, {"name": user, "user": {"token": token}}
    )


def _write(path: Path, cluster: dict[str, Any], context: dict[str, str], user: dict[str, Any]) -> Path:
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "test",
        "contexts": [{"name": "test", "context": {"cluster": "test", **context}}],
        "clusters": [{"name": "test", "cluster": cluster}],
        "users": [user],
    }
    path.touch(mode=0o600)
    path.write_text(yaml.safe_dump(document, sort_keys=False))
    return path


def read_kubeconfig(path: Path) -> Access:
    """The current context of a kubeconfig; ValueError for a way to prove oneself that tests don't know."""
    document = yaml.safe_load(path.read_text())
    context = _named(document, "contexts", document["current-context"])["context"]
    cluster = _named(document, "clusters", context["cluster"])["cluster"]
    user = _named(document, "users", context["user"])["user"]
    tls = ssl.create_default_context(cadata=_text(cluster, "certificate-authority", path.parent))
    if cluster.get("insecure-skip-tls-verify"):
        tls.check_hostname = False
        tls.verify_mode = ssl.CERT_NONE
    token = user.get("token") or _text(user, "tokenFile", path.parent)
    certificate = _text(user, "client-certificate", path.parent)
    if certificate is not None:
        _present(tls, certificate, _text(user, "client-key", path.parent) or "")
    elif token is None:
        raise ValueError(
            f"{path}: user {context['user']!r} has neither a token nor a certificate; "
            "the tests know no other way to prove who they are"
        )
    return Access(cluster["server"].rstrip("/"), tls, token.strip() if token else None)


def _named(document: dict[str, Any], kind: str, name: str) -> dict[str, Any]:
    found: dict[str, Any] = next(entry for entry in document[kind] if entry["name"] == name)
    return found


def _text(holder: dict[str, Any], key: str, folder: Path) -> str | None:
    """What a kubeconfig says inline as `<key>-data` or in a file named by `<key>`."""
    inline = holder.get(f"{key}-data")
    if inline:
        try:
            return base64.b64decode(inline, validate=True).decode()
        except binascii.Error as error:
            raise ValueError(f"{key}-data is not base64: {error}") from error
    named = holder.get(key)
    return (folder / named).read_text() if named else None


def _present(tls: ssl.SSLContext, certificate: str, key: str) -> None:
    # Python's ssl takes a client's certificate from a file only.
    with tempfile.NamedTemporaryFile("w", suffix=".pem") as file:
        file.write(certificate + "\n" + key)
        file.flush()
        tls.load_cert_chain(file.name)

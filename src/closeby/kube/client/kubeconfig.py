"""Reads kubeconfig files: which server, and who asks. Several files are merged as kubectl merges them.

The format is that of https://kubernetes.io/docs/concepts/configuration/organize-cluster-access-kubeconfig/.
"""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, TypeVar

import msgspec
import yaml
from msgspec import Struct

from closeby.objects.reasons import Problem

T = TypeVar("T")

VARIABLE: Final = "KUBECONFIG"


class KubeconfigCluster(Struct, frozen=True, rename="kebab"):
    """``clusters[].cluster``."""

    server: str
    certificate_authority: str = ""
    certificate_authority_data: str = ""
    insecure_skip_tls_verify: bool = False
    tls_server_name: str = ""
    proxy_url: str = ""


class UserEntry(Struct, frozen=True, rename="kebab"):
    """``users[].user``. What runs a program or asks an identity provider is kept as it stands."""

    client_certificate: str = ""
    client_certificate_data: str = ""
    client_key: str = ""
    client_key_data: str = ""
    token: str = ""
    token_file: str = msgspec.field(name="tokenFile", default="")
    username: str = ""
    password: str = ""
    exec: dict[str, object] | None = None
    auth_provider: dict[str, object] | None = None
    impersonate: str = msgspec.field(name="as", default="")
    impersonate_groups: tuple[str, ...] = msgspec.field(name="as-groups", default=())
    impersonate_uid: str = msgspec.field(name="as-uid", default="")


class _ContextEntry(Struct, frozen=True):
    cluster: str
    user: str = ""
    namespace: str = ""


class ClusterAccess(Struct, frozen=True, kw_only=True):
    """One context, resolved. Relative paths in ``cluster`` and ``user`` start at their file's folder."""

    context: str
    cluster: KubeconfigCluster
    user: UserEntry
    namespace: str
    cluster_folder: Path
    user_folder: Path


class _Named(Struct, frozen=True):
    content: Mapping[str, object]
    file: Path


class _Merged(Struct):
    contexts: dict[str, _Named]
    clusters: dict[str, _Named]
    users: dict[str, _Named]
    current: str


def chosen_files(named: str | None, environment: Mapping[str, str]) -> tuple[Path, ...]:
    """The files to read: the named one, else those in KUBECONFIG, else ``~/.kube/config``.

    Files that were not asked for one by one may be absent, as for kubectl; the result is empty if all are.
    """
    if named:
        return (Path(named).expanduser(),)
    listed = [Path(part).expanduser() for part in environment.get(VARIABLE, "").split(os.pathsep) if part]
    candidates = listed or [Path(environment.get("HOME") or Path.home()) / ".kube" / "config"]
    return tuple(path for path in candidates if path.exists())


def read_access(files: Sequence[Path], context: str | None = None) -> ClusterAccess | Problem:
    """The context with this name, or the current one."""
    merged = _Merged({}, {}, {}, "")
    for file in files:
        fault = _merge(file, merged)
        if fault is not None:
            return fault
    name = context or merged.current
    places = ", ".join(str(file) for file in files)
    if not name:
        if not merged.contexts:
            return Problem(f"{places} has no context", "name another kubeconfig file")
        remedy = f"name one of {_listed(merged.contexts)}, or run: kubectl config use-context NAME"
        return Problem(f"{places} has no current context", remedy)
    found = merged.contexts.get(name)
    if found is None:
        return Problem(f"{places} has no context {name!r}", f"it has {_listed(merged.contexts)}")
    return _resolve(name, found, merged)


def _resolve(name: str, found: _Named, merged: _Merged) -> ClusterAccess | Problem:
    entry = _as(found, _ContextEntry, f"context {name!r}")
    if isinstance(entry, Problem):
        return entry
    named_cluster = merged.clusters.get(entry.cluster)
    if named_cluster is None:
        message = f"context {name!r} in {found.file} names the cluster {entry.cluster!r}, which is not there"
        return Problem(message, f"the clusters are {_listed(merged.clusters)}")
    cluster = _as(named_cluster, KubeconfigCluster, f"cluster {entry.cluster!r}")
    if isinstance(cluster, Problem):
        return cluster
    named_user = merged.users.get(entry.user) if entry.user else _Named({}, found.file)
    if named_user is None:
        message = f"context {name!r} in {found.file} names the user {entry.user!r}, who is not there"
        return Problem(message, f"the users are {_listed(merged.users)}")
    user = _as(named_user, UserEntry, f"user {entry.user!r}")
    if isinstance(user, Problem):
        return user
    return ClusterAccess(
        context=name,
        cluster=cluster,
        user=user,
        namespace=entry.namespace or "default",
        cluster_folder=named_cluster.file.parent,
        user_folder=named_user.file.parent,
    )


def _merge(file: Path, into: _Merged) -> Problem | None:
    """Adds what ``into`` has not got yet: the first file that says something counts."""
    try:
        content = yaml.safe_load(file.read_bytes())
    except OSError as error:
        return Problem(f"{file} can't be read: {error.strerror or error}", "name another kubeconfig file")
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        return Problem(f"{file} is not YAML: {' '.join(str(error).split())}", "fix the kubeconfig file")
    if content is None:
        return None
    if not isinstance(content, dict):
        return Problem(f"{file} is not a kubeconfig file", "name another kubeconfig file")
    for key, entry_key, target in (
        ("contexts", "context", into.contexts),
        ("clusters", "cluster", into.clusters),
        ("users", "user", into.users),
    ):
        entries = content.get(key) or []
        if not isinstance(entries, list):
            return Problem(f"{key} in {file} is not a list", "fix the kubeconfig file")
        for entry in entries:
            if not isinstance(entry, dict) or not isinstance(entry.get("name"), str):
                return Problem(f"an entry of {key} in {file} has no name", "fix the kubeconfig file")
            target.setdefault(entry["name"], _Named(entry.get(entry_key) or {}, file))
    into.current = into.current or str(content.get("current-context") or "")
    return None


def _as(named: _Named, shape: type[T], what: str) -> T | Problem:
    given = {key: value for key, value in named.content.items() if value is not None}
    try:
        return msgspec.convert(given, shape)
    except msgspec.ValidationError as error:
        return Problem(f"{what} in {named.file} can't be read: {error}", "fix the kubeconfig file")


def _listed(entries: Mapping[str, object]) -> str:
    return ", ".join(sorted(entries)) or "none"

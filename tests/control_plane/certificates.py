"""The certificates and keys of a control plane that lives as long as a run of the tests."""

from dataclasses import dataclass
from pathlib import Path

from tests.certificates import Authority, write_key


@dataclass(frozen=True)
class Certificates:
    """Paths of PEM files: who signs, what the API server shows, and the key of service accounts' tokens."""

    authority: Path
    server: Path
    server_key: Path
    service_account_key: Path


def make_certificates(folder: Path) -> Certificates:
    """Writes a new authority, a server certificate for 127.0.0.1 and localhost, and a service-account key."""
    authority = Authority(folder)
    server, server_key = authority.issue("server", "localhost", "127.0.0.1")
    account_key = folder / "service-account.key"
    write_key(account_key)
    return Certificates(authority.path, server, server_key, account_key)

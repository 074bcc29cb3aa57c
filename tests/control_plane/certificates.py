"""The certificates and keys of a control plane that lives as long as a run of the tests."""

import datetime
import ipaddress
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

_LIFE = datetime.timedelta(days=30)

# Python 3.13 refuses an authority that doesn't say so.
_SIGNS_CERTIFICATES = x509.KeyUsage(
    key_cert_sign=True,
    crl_sign=True,
    digital_signature=False,
    content_commitment=False,
    key_encipherment=False,
    data_encipherment=False,
    key_agreement=False,
    encipher_only=False,
    decipher_only=False,
)


@dataclass(frozen=True)
class Certificates:
    """Paths of PEM files: who signs, what the API server shows, and the key of service accounts' tokens."""

    authority: Path
    server: Path
    server_key: Path
    service_account_key: Path


def make_certificates(folder: Path) -> Certificates:
    """Writes a new authority, a server certificate for 127.0.0.1 and localhost, and a service-account key."""
    paths = Certificates(
        authority=folder / "ca.crt",
        server=folder / "server.crt",
        server_key=folder / "server.key",
        service_account_key=folder / "service-account.key",
    )
    authority_key, server_key, account_key = (ec.generate_private_key(ec.SECP256R1()) for _ in range(3))
    authority_name = x509.Name.from_rfc4514_string("CN=closeby test authority")
    authority = (
        _certificate(authority_name, authority_name, authority_key.public_key())
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .add_extension(_SIGNS_CERTIFICATES, critical=True)
        .sign(authority_key, hashes.SHA256())
    )
    names = [x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
    server = (
        _certificate(
            x509.Name.from_rfc4514_string("CN=kube-apiserver"), authority_name, server_key.public_key()
        )
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(authority_key.public_key()), critical=False
        )
        .sign(authority_key, hashes.SHA256())
    )
    paths.authority.write_bytes(authority.public_bytes(serialization.Encoding.PEM))
    paths.server.write_bytes(server.public_bytes(serialization.Encoding.PEM))
    _write_key(paths.server_key, server_key)
    _write_key(paths.service_account_key, account_key)
    return paths


def _certificate(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey
) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        # An hour back, for a clock that is set while the tests run.
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + _LIFE)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
    )


def _write_key(path: Path, key: ec.EllipticCurvePrivateKey) -> None:
    path.touch(mode=0o600)
    # The API server takes the public half of a service-account key only from this format, not from PKCS #8.
    form = serialization.PrivateFormat.TraditionalOpenSSL
    path.write_bytes(key.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption()))

"""Certificates as an operator would have them made: by an authority of one's own, with elliptic curves."""

import datetime
import ipaddress
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

_LIFE = datetime.timedelta(days=30)
#: A certificate is good since yesterday, for a clock that is set while the tests run.
_DAY = datetime.timedelta(days=1)

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


class Authority:
    """Signs certificates, and writes them in PEM to a folder, its own among them."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = _named("closeby's test authority")
        certificate = (
            self._certificate(self._name, self._key.public_key())
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(_SIGNS_CERTIFICATES, critical=True)
            .sign(self._key, hashes.SHA256())
        )
        self.path = folder / "ca.crt"
        _write(self.path, certificate)

    def issue(
        self,
        stem: str,
        *names: str,
        life: datetime.timedelta = _LIFE,
        begins: datetime.timedelta = -_DAY,
    ) -> tuple[Path, Path]:
        """A certificate for these DNS names and addresses, ``STEM.crt``, and its key, ``STEM.key``; ``life``
        from now on, less than none for one that has expired; good from ``begins`` on, also counted from now.
        """
        path, key_path = self._folder / f"{stem}.crt", self._folder / f"{stem}.key"
        signer = x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key())
        certificate = (
            self._certificate(_named(stem), write_key(key_path), life, begins)
            .add_extension(x509.SubjectAlternativeName([_alternative(one) for one in names]), critical=False)
            .add_extension(signer, critical=False)
            .sign(self._key, hashes.SHA256())
        )
        _write(path, certificate)
        return path, key_path

    def _certificate(
        self,
        subject: x509.Name,
        key: ec.EllipticCurvePublicKey,
        life: datetime.timedelta = _LIFE,
        begins: datetime.timedelta = -_DAY,
    ) -> x509.CertificateBuilder:
        now = datetime.datetime.now(datetime.UTC)
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now + begins)
            .not_valid_after(now + life)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
        )


def write_key(path: Path) -> ec.EllipticCurvePublicKey:
    """Writes a new key; returns its public half."""
    key = ec.generate_private_key(ec.SECP256R1())
    path.touch(mode=0o600)
    # The API server takes the public half of a service-account key only from this format, not from PKCS #8.
    form = serialization.PrivateFormat.TraditionalOpenSSL
    path.write_bytes(key.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption()))
    return key.public_key()


def _named(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])


def _alternative(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _write(path: Path, certificate: x509.Certificate) -> None:
    path.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))

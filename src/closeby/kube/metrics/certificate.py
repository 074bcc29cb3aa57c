"""The certificate of the metrics' server: from files, which are read again when they change, or made here.

A certificate made here is signed by its own key, as kube-scheduler's is without ``--tls-cert-file``: the
connection is encrypted, but a scraper can't tell the server from another.
"""

import datetime
import ipaddress
import socket
import ssl
from typing import Final

from msgspec import Struct

from closeby.kube.client.credentials import as_file
from closeby.objects.process import Say
from closeby.objects.reasons import Problem
from closeby.reading.decoding.sources import stamp_of

#: Of a certificate that is made here; the process rarely lives as long.
_LIFE: Final = datetime.timedelta(days=3650)
#: Clocks differ.
_EARLIER: Final = datetime.timedelta(hours=1)
_REMEDY: Final = "give a certificate (with its chain) and its unencrypted key, both in PEM"

Stamp = tuple[tuple[int, int, int] | None, ...]


class CertificateFiles(Struct, frozen=True):
    """PEM files, as a Secret of the type ``kubernetes.io/tls`` is mounted."""

    certificate: str
    key: str


class FileCertificate:
    """A certificate in files: each connection gets what they hold then."""

    def __init__(self, files: CertificateFiles, say: Say) -> None:
        self._files = files
        self._say = say
        self._stamp: Stamp = ()
        self._current: ssl.SSLContext | None = None

    def context(self) -> ssl.SSLContext | Problem:
        """What to listen with; a fault if the files can't be used."""
        self._stamp = self._stamp_now()
        made = _context(self._files.certificate, self._files.key)
        if isinstance(made, Problem):
            return made
        self._current = made
        listening = _context(self._files.certificate, self._files.key)
        if isinstance(listening, Problem):
            return listening
        listening.sni_callback = self._choose
        return listening

    def _choose(self, connection: ssl.SSLObject, name: str | None, listening: ssl.SSLContext) -> None:
        """Called in each handshake, whether or not the client names the server."""
        stamp = self._stamp_now()
        if stamp != self._stamp:
            self._stamp = stamp
            made = _context(self._files.certificate, self._files.key)
            if isinstance(made, Problem):
                self._say("the new certificate is unusable, so the old one stays", warning=True, error=made)
            else:
                self._current = made
                self._say("certificate reloaded", file=self._files.certificate)
        if self._current is not None:
            connection.context = self._current

    def _stamp_now(self) -> Stamp:
        return tuple(stamp_of(path) for path in (self._files.certificate, self._files.key))


def self_signed() -> ssl.SSLContext:
    """A certificate of this process alone, with its host's name."""
    # It takes a while to load, and only this needs it.
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    host = socket.gethostname() or "localhost"
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, f"closeby@{host}"[:64])])
    names: list[x509.GeneralName] = [x509.DNSName(one) for one in dict.fromkeys((host, "localhost"))]
    names.append(x509.IPAddress(ipaddress.ip_address("127.0.0.1")))
    now = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _EARLIER)
        .not_valid_after(now + _LIFE)
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .sign(key, hashes.SHA256())
    )
    pem = certificate.public_bytes(serialization.Encoding.PEM) + key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    with as_file(pem) as path:
        made = _context(path, path)
    assert not isinstance(made, Problem), made
    return made


def _context(certificate: str, key: str) -> ssl.SSLContext | Problem:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        # A password would be asked for on the terminal.
        context.load_cert_chain(certificate, key, password="")
    except (OSError, ValueError) as error:
        return Problem(f"{certificate} and {key} can't be used: {error}", _REMEDY)
    return context

"""Who asks a server of measurements, and how that server is known: bearer tokens and TLS, out of files."""

from typing import Final

from msgspec import Struct

from closeby.measurements.addresses import is_url

#: Seconds to wait for an answer.
TIMEOUT: Final = 5.0


class Access(Struct, frozen=True, kw_only=True):
    """A token or the file of one, and files in PEM; all may be empty."""

    token: str = ""
    token_file: str = ""
    #: Authorities that may have signed the server's certificate; empty: those of the system.
    ca_file: str = ""
    #: What we show if the server asks who we are; the key may stand in the same file.
    cert_file: str = ""
    key_file: str = ""
    #: Take any server for the right one.
    insecure: bool = False

    def warnings(self, address: str) -> tuple[str, ...]:
        """Warnings about such access to ``address``."""
        secure = address.lower().startswith("https://")
        found = []
        if self.insecure and secure:
            found.append("its certificate is not verified, so any server may impersonate it")
        if is_url(address) and not secure and (self.token or self.token_file):
            found.append("the token is sent without encryption")
        return tuple(found)


#: Access without credentials.
ANONYMOUS = Access()

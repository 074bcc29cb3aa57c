"""Which proxy the environment names for a server: HTTPS_PROXY, HTTP_PROXY and NO_PROXY, as Go reads them."""

import ipaddress
from collections.abc import Mapping
from typing import Final

#: Never reached through a proxy.
_LOCAL: Final = ("localhost", "127.0.0.0/8", "::1/128")


def proxy_of(scheme: str, host: str, environment: Mapping[str, str]) -> str | None:
    """The URL of the proxy for a server, unless NO_PROXY leaves its host out; one without a scheme is HTTP.

    A variable in capitals goes before the same one in small letters.
    """
    exempt = (*_LOCAL, *_variable("no_proxy", environment).split(","))
    if any(_covers(entry.strip().lower(), host.lower()) for entry in exempt):
        return None
    proxy = _variable(f"{scheme}_proxy", environment)
    if not proxy:
        return None
    return proxy if "://" in proxy else f"http://{proxy}"


def _variable(name: str, environment: Mapping[str, str]) -> str:
    return environment.get(name.upper()) or environment.get(name) or ""


def _covers(entry: str, host: str) -> bool:
    """Whether an entry of NO_PROXY (a name, a domain, an address, a network, ``*``) means this host."""
    try:
        return ipaddress.ip_address(host) in ipaddress.ip_network(entry, strict=False)
    except ValueError:
        return bool(entry) and (entry == "*" or f".{host}".endswith(f".{entry.lstrip('.')}"))

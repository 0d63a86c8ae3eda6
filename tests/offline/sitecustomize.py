"""Refuses the network. Python imports this module when it starts, if its folder is on PYTHONPATH.

The tests put it there, so that their kernels and other child processes do without the network too.
"""

import functools
import ipaddress
import socket


def _is_near(host: object) -> bool:
    """Whether a host is this machine: an address of its own, its name, or none at all."""
    host = host.decode() if isinstance(host, bytes) else host
    if host in (None, "", "localhost", socket.gethostname()):
        return True
    try:
        address = ipaddress.ip_address(str(host).partition("%")[0])
    except ValueError:
        return False
    return address.is_loopback or address.is_unspecified


def _refuse(host: object) -> None:
    if not _is_near(host):
        raise RuntimeError(f"a test reached for {host!r} over the network: what it needs must be here")


def _guarded(name: str, address_at: int) -> None:
    original = getattr(socket.socket, name)

    @functools.wraps(original)
    def guarded(self: socket.socket, *arguments: object) -> object:
        if self.family in (socket.AF_INET, socket.AF_INET6):
            _refuse(arguments[address_at][0])  # type: ignore[index]
        return original(self, *arguments)

    setattr(socket.socket, name, guarded)


_guarded("connect", 0)
_guarded("connect_ex", 0)
_guarded("sendto", -1)

_getaddrinfo = socket.getaddrinfo


@functools.wraps(_getaddrinfo)
def _near_address(host: object, *arguments: object, **options: object) -> object:
    _refuse(host)
    return _getaddrinfo(host, *arguments, **options)  # type: ignore[arg-type]


socket.getaddrinfo = _near_address

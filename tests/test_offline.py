"""The network is refused to tests and to every process that they start; this machine is not."""

import socket
import subprocess
import sys
import urllib.request

import pytest

REACH = "import urllib.request; urllib.request.urlopen('http://192.0.2.1/', timeout=5)"  # nobody's


def test_the_network_is_refused_here():
    for address in ("http://192.0.2.1/", "http://example.org/"):
        with pytest.raises(RuntimeError, match="reached for"):
            urllib.request.urlopen(address, timeout=5)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as datagrams, pytest.raises(RuntimeError):
        datagrams.sendto(b"", ("192.0.2.1", 53))


def test_the_network_is_refused_to_child_processes():
    ended = subprocess.run([sys.executable, "-c", REACH], capture_output=True, text=True)
    assert "RuntimeError: a test reached for '192.0.2.1'" in ended.stderr


def test_this_machine_is_not_refused():
    with socket.create_server(("127.0.0.1", 0)) as server:
        socket.create_connection(server.getsockname(), timeout=5).close()

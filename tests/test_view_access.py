"""Who can open the viewer's page: foreign pages and names are refused, connections bounded."""

from __future__ import annotations

import base64
import socket
import time
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from clashsim.commands import view
from clashsim.core.errors import ParamError

viser = pytest.importorskip("viser", reason="the viewer needs viser: pip install 'clashsim[viser]'")
access = pytest.importorskip("clashsim.view.access")

PATIENCE = 60.0  # s: how long a test that fails waits; one that passes never waits for it
MACHINE = "robot-pc"  # what this machine is called in these tests


@pytest.fixture
def server() -> Iterator[Any]:
    """A server at a free port, with nothing on its page yet."""
    opened = view.serve("127.0.0.1", 0)
    yield opened
    opened.stop()


def request(host: str, origin: str | None, *, websocket: bool) -> bytes:
    """What a browser asks for first: the page, or its websocket."""
    lines = ["GET / HTTP/1.1", f"Host: {host}"]
    if origin is not None:
        lines.append(f"Origin: {origin}")
    if websocket:
        lines += [
            "Connection: Upgrade",
            "Upgrade: websocket",
            "Sec-WebSocket-Version: 13",
            f"Sec-WebSocket-Key: {base64.b64encode(bytes(16)).decode()}",
            f"Sec-WebSocket-Protocol: viser-v{viser.__version__}",
        ]
    return "\r\n".join([*lines, "", ""]).encode()


def connect(server: Any, asked: bytes) -> tuple[socket.socket, int]:
    """A connection, and the status it was answered with; 0 where it was cut off."""
    connection = socket.socket()
    connection.settimeout(PATIENCE)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 16384)  # else it grows when unread
    connection.connect(("127.0.0.1", server.get_port()))
    answer = b""
    try:
        connection.sendall(asked)
        while b"\r\n" not in answer:
            part = connection.recv(1)
            if not part:
                break
            answer += part
    except ConnectionError:  # closed before the request was sent
        pass
    words = answer.split()
    status = int(words[1]) if len(words) > 1 else 0
    return connection, status


def read_all(connection: socket.socket) -> bytes:
    """All that still comes until the other side closes."""
    parts = []
    with connection:
        while part := connection.recv(65536):
            parts.append(part)
    return b"".join(parts)


def visit(server: Any) -> tuple[socket.socket, int]:
    """A visitor's websocket, and the status it was answered with."""
    own = f"127.0.0.1:{server.get_port()}"
    return connect(server, request(own, f"http://{own}", websocket=True))


def wait_for_a_place(server: Any) -> bool:
    """Whether a further visitor is let in, sooner or later."""
    until = time.monotonic() + PATIENCE
    while time.monotonic() < until:
        connection, status = visit(server)
        connection.close()
        if status == 101:
            return True
        time.sleep(0.02)
    return False


@pytest.mark.parametrize(
    ("opened", "host", "origin", "allowed"),
    [
        ("127.0.0.1", "127.0.0.1:8080", "http://127.0.0.1:8080", True),
        ("127.0.0.1", "localhost:8080", "http://localhost:8080", True),
        ("127.0.0.1", "[::1]:8080", "http://[::1]:8080", True),
        ("127.0.0.1", "LocalHost:8080", "http://localhost:8080", True),
        ("127.0.0.1", "localhost:9999", "http://localhost:9999", True),  # ssh -L 9999:...
        ("127.0.0.1", "localhost", "http://localhost", True),  # a forwarded port 80 has no number
        ("127.0.0.1", "localhost", "http://localhost:80", True),
        ("127.0.0.1", "localhost:8080", None, True),  # the page itself is fetched without an Origin
        ("::1", "localhost:8080", "http://localhost:8080", True),
        ("127.0.0.1", "localhost:8080", "http://evil.example", False),
        ("127.0.0.1", "localhost:8080", "http://localhost:9999", False),  # another server here
        ("127.0.0.1", "localhost:8080", "http://127.0.0.1:8080", False),
        ("127.0.0.1", "localhost:8080", "http://localhost", False),
        ("127.0.0.1", "localhost:8080", "file://localhost:8080", False),
        ("127.0.0.1", "localhost:8080", "null", False),  # a file, or a frame in a sandbox
        ("127.0.0.1", "localhost:8080", "", False),
        ("127.0.0.1", "evil.example:8080", "http://evil.example:8080", False),  # DNS rebinding
        ("127.0.0.1", "evil.example:8080", None, False),
        ("127.0.0.1", "localhost.evil.example", "http://localhost.evil.example", False),
        ("127.0.0.1", "127.0.0.1.evil.example", None, False),
        ("127.0.0.1", "evil.example@localhost", None, False),
        ("127.0.0.1", "localhost:8080/evil", None, False),
        ("127.0.0.1", "[localhost", None, False),
        ("127.0.0.1", "", None, False),
        ("127.0.0.1", "192.168.1.5:8080", "http://192.168.1.5:8080", False),  # not opened there
        ("127.0.0.1", f"{MACHINE}:8080", f"http://{MACHINE}:8080", False),
        ("192.168.1.5", "192.168.1.5:8080", "http://192.168.1.5:8080", True),
        ("192.168.1.5", "localhost:8080", "http://localhost:8080", True),  # forwarded by SSH
        ("192.168.1.5", "192.168.1.6:8080", "http://192.168.1.6:8080", False),
        ("2001:db8::5", "[2001:DB8:0:0::5]:8080", "http://[2001:db8::5]:8080", True),
        ("0.0.0.0", "192.168.1.5:8080", "http://192.168.1.5:8080", True),
        ("0.0.0.0", f"{MACHINE}:8080", f"http://{MACHINE}:8080", True),
        ("0.0.0.0", f"{MACHINE}.local:8080", f"http://{MACHINE}.local:8080", True),
        ("0.0.0.0", "localhost:8080", "http://localhost:8080", True),
        ("0.0.0.0", "evil.example:8080", "http://evil.example:8080", False),
        ("0.0.0.0", "192.168.1.5:8080", "http://192.168.1.6:8080", False),
        ("::", "[2001:db8::5]:8080", "http://[2001:db8::5]:8080", True),
    ],
)
def test_which_names_and_pages_are_known(opened, host, origin, allowed, monkeypatch):
    monkeypatch.setattr(socket, "gethostname", lambda: MACHINE)
    origins = [] if origin is None else [origin]
    refusal = access.Access.of(opened, opened).refusal([host], origins)
    assert (refusal is None) == allowed


def test_a_name_that_was_opened_is_known_and_headers_come_once():
    named = access.Access.of("Robot.Lab.Example", "192.168.1.5")
    for name in ("robot.lab.example", "ROBOT.lab.example", "192.168.1.5", "localhost"):
        assert named.refusal([f"{name}:80"], [f"http://{name}"]) is None
    assert "--host" in str(named.refusal(["robot.example"], []))
    assert named.refusal([], []) is not None
    assert named.refusal(["localhost", "evil.example"], []) is not None
    assert named.refusal(["localhost"], ["http://localhost", "http://evil.example"]) is not None


def test_the_page_and_its_websocket_open_from_the_loopback(server):
    own, forwarded = f"127.0.0.1:{server.get_port()}", "localhost:9"
    for host in (own, forwarded):
        page, status = connect(server, request(host, None, websocket=False))
        assert status == 200 and b"<html" in read_all(page)
        visitor, status = connect(server, request(host, f"http://{host}", websocket=True))
        with visitor:
            assert status == 101
            header = b""
            while b"\r\n\r\n" not in header:
                header += visitor.recv(1)
            assert visitor.recv(1) == b"\x82"  # a binary message: the scene


def test_foreign_pages_and_names_are_sent_nothing(server):
    own, foreign = f"127.0.0.1:{server.get_port()}", f"evil.example:{server.get_port()}"
    refused = [
        request(own, "http://evil.example", websocket=True),
        request(own, None, websocket=True),  # a browser always says where from
        request(own, "http://evil.example", websocket=False),
        request(foreign, f"http://{foreign}", websocket=True),
        request(foreign, None, websocket=False),
    ]
    for asked in refused:
        connection, status = connect(server, asked)
        body = read_all(connection)
        assert status == 403
        assert b"<html" not in body and len(body) < 1000


def test_connections_are_bounded_and_a_place_that_is_left_is_given_again(server):
    visitors = [visit(server) for _ in range(access.MAX_CONNECTIONS + 3)]
    statuses = [status for _, status in visitors]
    assert statuses[: access.MAX_CONNECTIONS] == [101] * access.MAX_CONNECTIONS
    assert set(statuses[access.MAX_CONNECTIONS :]) <= {503, 0}
    visitors[0][0].close()
    assert wait_for_a_place(server)
    for connection, _ in visitors:
        connection.close()


def test_a_visitor_who_reads_nothing_loses_the_place(server, monkeypatch):
    monkeypatch.setattr(access, "MAX_CONNECTIONS", 1)
    monkeypatch.setattr(access, "MAX_UNREAD_SECONDS", 0.01)
    visitor, status = visit(server)
    with visitor:
        assert status == 101
        points = np.zeros((2_000_000, 3), np.float32)  # 24 MB: more than a socket buffers
        server.scene.add_point_cloud("/much", points, (0, 0, 0))
        assert wait_for_a_place(server)


def test_a_message_that_is_too_long_is_not_waited_for(server):
    visitor, status = visit(server)
    assert status == 101
    announced = (access.MAX_MESSAGE_BYTES + 1).to_bytes(8, "big")
    visitor.sendall(b"\x82\xff" + announced + bytes(4))  # the head of a masked binary message
    assert b"\x03\xf1" in read_all(visitor)  # closed with code 1009, too big


def test_a_viser_that_cannot_be_guarded_is_not_served(monkeypatch):
    import websockets
    from viser.infra import _infra

    server_module = websockets.asyncio.server
    elsewhere = SimpleNamespace(
        asyncio=SimpleNamespace(server=SimpleNamespace(**vars(server_module))),
        exceptions=websockets.exceptions,
        datastructures=websockets.datastructures,
    )
    monkeypatch.setattr(_infra, "websockets", elsewhere)
    plain = server_module.serve
    with pytest.raises(ParamError, match="install viser"):
        view.serve("127.0.0.1", 0)
    assert server_module.serve is plain

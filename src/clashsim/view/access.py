"""Who may open the page: requests are checked before anything is sent, and connections bounded.

A foreign web page that is open in another tab runs on the same machine, so listening on the
loopback does not keep it out. It may open a websocket to any port (then `Origin` names the foreign
page), and its own host name may resolve to this machine (DNS rebinding: then `Host` and `Origin`
both name the foreign page). So `Host` has to be a name by which this page may be opened, and
`Origin` has to be the page that `Host` names.
"""

from __future__ import annotations

import asyncio
import contextlib
import http
import ipaddress
import re
import socket
import threading
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, cast

import websockets.asyncio.server as websockets_server
from websockets.asyncio.server import ServerConnection
from websockets.http11 import Request, Response

MAX_CONNECTIONS = 32
"""Connections at a time: one for each visitor, and those over which files are being fetched."""

MAX_UNREAD_SECONDS = 60.0
"""A visitor who reads nothing for this long is disconnected; a browser reconnects by itself."""

MAX_MESSAGE_BYTES = 2**20
"""Longest message accepted from a visitor: the page sends positions and values, a few bytes."""

# A host name, or an IPv6 address in brackets, and a port where there is one.
_AUTHORITY = re.compile(r"(\[[^\[\]]+\]|[^\[\]:/@\s]+)(?::([0-9]{1,5}))?")
_DEFAULT_PORTS = {"http": 80, "https": 443}
_FULL = (
    b"HTTP/1.1 503 Service Unavailable\r\nConnection: close\r\nContent-Type: text/plain\r\n\r\n"
    b"All connections of this page are in use: close it elsewhere and load it again.\n"
)
_STARTING = threading.Lock()  # held by `guarding`, which changes a module that threads share

Check = Callable[[ServerConnection, Request], Awaitable[Response | None] | Response | None]


@dataclass(frozen=True)
class Access:
    """The host names by which the page may be opened, besides those of the loopback.

    Names of the loopback are always allowed, with any port: no foreign page can have such a name,
    and a port forwarded by SSH is opened by it.

    Attributes:
        names: Host names in lower case and IP addresses in their shortest form.
        any_address: Whether all IP addresses are allowed, because the page listens on all
            addresses of this machine.
    """

    names: frozenset[str]
    any_address: bool = False

    @classmethod
    def of(cls, host: str, address: str) -> Access:
        """Return the access to a page on `host`, which resolves to the IP address `address`."""
        names = {_canonical(host.lower()), _canonical(address)}
        listens_everywhere = ipaddress.ip_address(address).is_unspecified
        if listens_everywhere:
            own_name = socket.gethostname().lower()
            names |= {own_name, f"{own_name}.local"}
        return cls(frozenset(names), any_address=listens_everywhere)

    def refusal(self, hosts: Sequence[str], origins: Sequence[str]) -> str | None:
        """Return why a request is refused, in one sentence, or None where it is allowed.

        Args:
            hosts: Values of the request's `Host` headers.
            origins: Values of its `Origin` headers; a browser sends none when it fetches the page.
        """
        host = _split(hosts[0]) if len(hosts) == 1 else None
        if host is None or not self._knows(host[0]):
            return (
                "This page does not answer to the host name it was asked for: open it as "
                "localhost, or start clashsim view with --host and that name."
            )
        if len(origins) > 1 or any(not _same_page(origin, host) for origin in origins):
            return "This page takes requests from itself only, not from other pages."
        return None

    def _knows(self, name: str) -> bool:
        if name in self.names or name == "localhost":
            return True
        try:
            address = ipaddress.ip_address(name)
        except ValueError:
            return False
        return self.any_address or address.is_loopback


@contextlib.contextmanager
def guarding(access: Access) -> Iterator[threading.Event]:
    """Guard the server that viser starts within this context.

    viser has no setting for this. So `websockets.serve`, by which it opens its server, is replaced
    meanwhile by a function that adds our check and our class of connections.

    Returns:
        An event that is set when the server is guarded: if it is not, every page can connect.
    """
    guarded = threading.Event()
    original_serve = websockets_server.serve

    def serve(handler: Any, *args: Any, **options: Any) -> Any:
        if not handler.__module__.startswith("viser."):  # not the server of the page
            return original_serve(handler, *args, **options)
        guarded.set()
        options["process_request"] = _checked(access, options.get("process_request"))
        options["create_connection"] = BoundedConnection
        options["max_size"] = MAX_MESSAGE_BYTES
        return original_serve(handler, *args, **options)

    with _STARTING:
        websockets_server.serve = serve  # type: ignore[assignment,misc]
        try:
            yield guarded
        finally:
            websockets_server.serve = original_serve  # type: ignore[misc]


def _checked(access: Access, then: Check | None) -> Check:
    """Return a check that answers a request with a refusal, or else as `then` does."""

    async def check(connection: ServerConnection, request: Request) -> Response | None:
        origins = request.headers.get_all("Origin")
        refusal = access.refusal(request.headers.get_all("Host"), origins)
        if refusal is not None:
            return connection.respond(http.HTTPStatus.FORBIDDEN, refusal + "\n")
        response = then(connection, request) if then is not None else None
        if isinstance(response, Awaitable):
            response = await response
        opens_websocket = response is None
        if opens_websocket and not origins:
            # Every browser sends an `Origin` with a websocket, and only browsers open the page.
            sentence = "This page is for browsers: a websocket needs the header Origin.\n"
            return connection.respond(http.HTTPStatus.FORBIDDEN, sentence)
        return response

    return check


class BoundedConnection(ServerConnection):
    """A connection that is refused when there are too many, and ended when it is not read."""

    _unread_deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Refuse the connection if there are too many."""
        super().connection_made(transport)
        if len(self.server.handlers) > MAX_CONNECTIONS:  # handlers include this one
            writable = cast(asyncio.Transport, transport)
            writable.write(_FULL)
            writable.close()

    def pause_writing(self) -> None:
        """Set a deadline until which the visitor has to read what was sent."""
        # The pings of websockets do not notice such a visitor: they wait in the same full buffer.
        super().pause_writing()
        self._unread_deadline = self.loop.call_later(MAX_UNREAD_SECONDS, self.transport.abort)

    def resume_writing(self) -> None:
        """Drop the deadline: the visitor reads again."""
        super().resume_writing()
        self._forget_deadline()

    def connection_lost(self, exc: Exception | None) -> None:
        """Drop the deadline of a connection that has ended."""
        self._forget_deadline()
        super().connection_lost(exc)

    def _forget_deadline(self) -> None:
        if self._unread_deadline is not None:
            self._unread_deadline.cancel()
            self._unread_deadline = None


def _canonical(name: str) -> str:
    """Return a host name unchanged, or an IP address in its shortest form."""
    try:
        return str(ipaddress.ip_address(name))
    except ValueError:
        return name


def _split(authority: str) -> tuple[str, int | None] | None:
    """Return name and port of `name` or `name:port`; None where it has another form."""
    match = _AUTHORITY.fullmatch(authority.lower())
    if match is None:
        return None
    name, port = match.groups()
    return _canonical(name.strip("[]")), None if port is None else int(port)


def _same_page(origin: str, host: tuple[str, int | None]) -> bool:
    """Whether an `Origin` has the name and the port of `Host`, given as from `_split`."""
    scheme, _, authority = origin.lower().partition("://")
    page = _split(authority)
    if scheme not in _DEFAULT_PORTS or page is None:
        return False
    page_name, page_port = page
    host_name, host_port = host
    default_port = _DEFAULT_PORTS[scheme]
    same_port = (page_port or default_port) == (host_port or default_port)
    return same_port and page_name == host_name

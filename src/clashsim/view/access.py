"""Who may open the page: requests are checked before anything is sent, and connections bounded.

A web page that somebody has open beside ours runs on the same machine, so listening on the loopback
does not keep it out: it may open a websocket to any port (its `Origin` then names the foreign
page), and its own host name may resolve to this machine (DNS rebinding: then `Host` and `Origin`
both name the foreign page). So `Host` has to name the address that was opened, and `Origin` has to
be the page that `Host` names.
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
"""Connections held at a time, files being fetched included: each visitor needs one that stays."""

MAX_UNREAD_SECONDS = 60.0
"""A visitor who reads nothing for so long is disconnected; a browser connects again by itself."""

MAX_MESSAGE_BYTES = 2**20
"""Longest message taken from a visitor: those of the page are positions and values."""

_AUTHORITY = re.compile(r"(\[[^\[\]]+\]|[^\[\]:/@\s]+)(?::([0-9]{1,5}))?")
_DEFAULT_PORTS = {"http": 80, "https": 443}
_FULL = (
    b"HTTP/1.1 503 Service Unavailable\r\nConnection: close\r\nContent-Type: text/plain\r\n\r\n"
    b"All connections of this page are in use: close it elsewhere and load it again.\n"
)
_STARTING = threading.Lock()  # `guarding` changes a module that all threads share

Check = Callable[[ServerConnection, Request], Awaitable[Response | None] | Response | None]


@dataclass(frozen=True)
class Access:
    """The names by which the page may be asked for, beside those of the loopback.

    The loopback's own are always among them: no foreign page can have them, and a port forwarded
    by SSH is opened by one of them, whatever its number.

    Attributes:
        names: Host names in lower case and IP addresses in their shortest form.
        any_address: Whether any IP address may be one of this machine's.
    """

    names: frozenset[str]
    any_address: bool = False

    @classmethod
    def of(cls, host: str, address: str) -> Access:
        """Access to a page that was opened on `host`, which stands for the IP `address`."""
        names = {_canonical(host.lower()), _canonical(address)}
        everywhere = ipaddress.ip_address(address).is_unspecified
        if everywhere:
            own_name = socket.gethostname().lower()
            names |= {own_name, f"{own_name}.local"}
        return cls(frozenset(names), any_address=everywhere)

    def refusal(self, hosts: Sequence[str], origins: Sequence[str]) -> str | None:
        """Why a request is refused, in one sentence, or None.

        Args:
            hosts: Values of its `Host` headers.
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

    viser has no setting for it, so the one call by which it opens its server, the `serve` of
    websockets, is given our check and our kind of connection on the way.

    Returns:
        An event that is set once that happened: if it is not, the server is open to every page.
    """
    guarded = threading.Event()
    plain = websockets_server.serve

    def serve(handler: Any, *args: Any, **options: Any) -> Any:
        if not handler.__module__.startswith("viser."):  # a server of somebody else's
            return plain(handler, *args, **options)
        guarded.set()
        options["process_request"] = _checked(access, options.get("process_request"))
        options["create_connection"] = BoundedConnection
        options["max_size"] = MAX_MESSAGE_BYTES
        return plain(handler, *args, **options)

    with _STARTING:
        websockets_server.serve = serve  # type: ignore[assignment,misc]
        try:
            yield guarded
        finally:
            websockets_server.serve = plain  # type: ignore[misc]


def _checked(access: Access, then: Check | None) -> Check:
    """What answers a request: a refusal, else what `then` has for it."""

    async def check(connection: ServerConnection, request: Request) -> Response | None:
        origins = request.headers.get_all("Origin")
        refusal = access.refusal(request.headers.get_all("Host"), origins)
        if refusal is not None:
            return connection.respond(http.HTTPStatus.FORBIDDEN, refusal + "\n")
        response = then(connection, request) if then is not None else None
        if isinstance(response, Awaitable):
            response = await response
        if response is None and not origins:  # it would become a websocket
            # Every browser sends where a websocket is opened from, and the page is the only client.
            sentence = "This page is for browsers: a websocket needs the header Origin.\n"
            return connection.respond(http.HTTPStatus.FORBIDDEN, sentence)
        return response

    return check


class BoundedConnection(ServerConnection):
    """A connection that is refused when there are too many, and ended when it is not read."""

    _unread: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Refuse the connection where all are in use."""
        super().connection_made(transport)
        if len(self.server.handlers) > MAX_CONNECTIONS:  # this one is counted already
            writable = cast(asyncio.Transport, transport)
            writable.write(_FULL)
            writable.close()

    def pause_writing(self) -> None:
        """Set a deadline until which the visitor has to read what was sent."""
        # The pings of websockets do not find such a visitor: they wait for the same buffer.
        super().pause_writing()
        self._unread = self.loop.call_later(MAX_UNREAD_SECONDS, self.transport.abort)

    def resume_writing(self) -> None:
        """Drop the deadline: the visitor reads again."""
        super().resume_writing()
        self._forget_deadline()

    def connection_lost(self, exc: Exception | None) -> None:
        """Drop the deadline of a connection that has ended."""
        self._forget_deadline()
        super().connection_lost(exc)

    def _forget_deadline(self) -> None:
        if self._unread is not None:
            self._unread.cancel()
            self._unread = None


def _canonical(name: str) -> str:
    """A host name as it is, an IP address in its shortest form."""
    try:
        return str(ipaddress.ip_address(name))
    except ValueError:
        return name


def _split(authority: str) -> tuple[str, int | None] | None:
    """Name and port of `name:port`, None where it is none."""
    match = _AUTHORITY.fullmatch(authority.lower())
    if match is None:
        return None
    name, port = match.groups()
    return _canonical(name.strip("[]")), None if port is None else int(port)


def _same_page(origin: str, host: tuple[str, int | None]) -> bool:
    """Whether an `Origin` has the name and the port of `Host`."""
    scheme, _, authority = origin.lower().partition("://")
    page = _split(authority)
    if scheme not in _DEFAULT_PORTS or page is None:
        return False
    default = _DEFAULT_PORTS[scheme]
    same_port = (page[1] or default) == (host[1] or default)
    return same_port and page[0] == host[0]

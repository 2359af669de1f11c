"""An HTTP server between a client and an S3 server, which breaks what a test tells it to."""

from __future__ import annotations

import http.client
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Literal

Fault = Literal["", "refuse", "half", "busy", "lost", "half answer", "forbid"]
Choose = Callable[[str, str], Fault]  # method, path and query


class Faults:
    """Attributes:
    choose: says for each request how it goes wrong; empty: it does not.
    seen: the requests so far, as "METHOD path?query".
    """

    def __init__(self, endpoint: str) -> None:
        self.target = endpoint.partition("//")[2]
        self.choose: Choose = lambda method, path: ""
        self.seen: list[str] = []
        self.address = ""

    def count(self, method: str, what: str = "") -> int:
        """How many requests there were."""
        return sum(each.startswith(f"{method} ") and what in each for each in self.seen)

    def pass_on(self, handler: BaseHTTPRequestHandler) -> None:
        """One request, and its answer."""
        method, path = handler.command, handler.path
        self.seen.append(f"{method} {path}")
        fault, length = self.choose(method, path), int(handler.headers.get("Content-Length", 0))
        handler.close_connection = bool(fault)
        if fault == "refuse":  # before the first byte was read
            return
        body = handler.rfile.read(length // 2 if fault == "half" else length)
        if fault == "half":
            return
        if fault in ("busy", "forbid"):
            code, name = (503, "SlowDown") if fault == "busy" else (403, "AccessDenied")
            text = f"<Error><Code>{name}</Code><Message>Not now, token=abc</Message></Error>".encode()
            self._answer(handler, code, [("Content-Length", str(len(text)))], text)
            return
        connection = http.client.HTTPConnection(self.target, timeout=30)
        connection.request(method, path, body, dict(handler.headers))
        answer = connection.getresponse()
        data = answer.read()
        connection.close()
        if fault == "lost":
            return
        headers = [(k, v) for k, v in answer.getheaders() if k.lower() != "transfer-encoding"]
        if answer.headers.get("Content-Length") is None:
            headers.append(("Content-Length", str(len(data))))
        self._answer(
            handler, answer.status, headers, data[: len(data) // 2] if fault == "half answer" else data
        )

    def _answer(
        self, handler: BaseHTTPRequestHandler, code: int, headers: list[tuple[str, str]], data: bytes
    ) -> None:
        handler.send_response_only(code)
        for name, value in headers:
            handler.send_header(name, value)
        handler.end_headers()
        handler.wfile.write(data)


@contextmanager
def faults(endpoint: str) -> Iterator[Faults]:
    """Listens at `.address` meanwhile."""
    found = Faults(endpoint)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def handle_one_request(self) -> None:
            self.raw_requestline = self.rfile.readline(65537)
            if not self.raw_requestline or not self.parse_request():
                self.close_connection = True
                return
            found.pass_on(self)

    class Server(ThreadingHTTPServer):
        daemon_threads = True

        def handle_error(self, request: object, client_address: object) -> None:
            """The client left: it may."""

    with Server(("127.0.0.1", 0), Handler) as server:
        found.address = f"http://127.0.0.1:{server.server_port}"
        thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
        thread.start()
        yield found
        server.shutdown()
        thread.join()

"""A proxy in front of the API that ends TLS under a name of its own, as operators put nginx there."""

from __future__ import annotations

import datetime as dt
import http.client
import ssl
import tempfile
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

NAME = "localhost"
"""What clients call it, and its certificate too: the one name that every machine finds."""
_OWN = frozenset({"connection", "keep-alive", "transfer-encoding", "host"})
"""Headers of one connection: a proxy does not pass them on."""


class _Server(ThreadingHTTPServer):
    """Passes requests on; `tells` are the headers that it sets, over those of the same name."""

    daemon_threads = True

    def __init__(self, port: int, source: str, tells: Mapping[str, str]) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.port, self.source = port, source
        self.tells = dict(tells)

    def handle_error(self, request: object, client_address: object) -> None:
        """Browsers go away in the middle of streams."""


class _Handler(BaseHTTPRequestHandler):
    server: _Server

    def log_message(self, *args: object) -> None:
        pass

    def _pass_on(self) -> None:
        ours = self.server
        behind = http.client.HTTPConnection("127.0.0.1", ours.port, 20, source_address=(ours.source, 0))
        given = {name: value for name, value in self.headers.items() if name.lower() not in _OWN}
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        try:
            behind.request(self.command, self.path, body, given | ours.tells)
            self._answer(behind.getresponse())
        finally:
            behind.close()

    def _answer(self, response: http.client.HTTPResponse) -> None:
        self.send_response_only(response.status, response.reason)
        for name, value in response.getheaders():
            if name.lower() not in _OWN:
                self.send_header(name, value)
        self.end_headers()
        while piece := response.read1(1 << 16):
            self.wfile.write(piece)

    do_GET = do_HEAD = do_POST = do_PUT = do_DELETE = _pass_on  # noqa: N815  # the library's names


@contextmanager
def standing_before(
    port: int, folder: Path, *, source: str = "127.0.0.1", **tells: str
) -> Iterator[tuple[str, Path]]:
    """Its address, and the file of the authority that vouches for it.

    Args:
        port: The API's.
        folder: For the certificate.
        source: The address that it asks the API from; all of 127.0.0.0/8 are this machine's.
        **tells: Headers that it sets; `{port}` stands for its own.
    """
    authority = _certify(Path(tempfile.mkdtemp(dir=folder)))
    with _Server(port, source, {}) as server:
        for name, value in tells.items():
            server.tells[name] = value.format(port=server.server_port)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(authority, authority.with_name("key.pem"))
        server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            yield f"https://{NAME}:{server.server_port}", authority
        finally:
            server.shutdown()
            thread.join()


def _certify(folder: Path) -> Path:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, NAME)])
    now, day = dt.datetime.now(dt.UTC), dt.timedelta(days=1)
    certificate = (
        x509.CertificateBuilder(
            name, name, key.public_key(), x509.random_serial_number(), now - day, now + day
        )
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(NAME)]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    plain = serialization.NoEncryption()
    pem, pkcs8 = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
    (folder / "key.pem").write_bytes(key.private_bytes(pem, pkcs8, plain))
    (folder / "authority.pem").write_bytes(certificate.public_bytes(pem))
    return folder / "authority.pem"

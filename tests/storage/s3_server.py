"""An object store in memory that speaks as much of S3's protocol as Arrow's client uses.

    with S3Server() as server:
        Store.open(server.uri("bucket/shop"), shards=1)

It keeps the promises of S3 on which storage depends: an object is there as a whole or not at all, also if the client is
killed while it sends one, and whoever reads or lists after a write sees it. It answers clients with one key only
(`ACCESS_KEY`), and can show, fail or lose requests: see `S3Server.interfere`.

The tests can use another server instead, so that they do not depend on how this one reads the protocol: the variable
IKEBANA_S3 has its address, such as 127.0.0.1:5000. Tests that interfere are then skipped.
"""

from __future__ import annotations

import os
import re
import secrets
import threading
import uuid
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, quote, unquote, urlsplit
from xml.sax.saxutils import escape

ACCESS_KEY, SECRET_KEY = "PUBLICFLOWER", "secret/vase"
VARIABLE = "IKEBANA_S3"

Interference = Callable[[str, str], int | None]
"""Called with the method and the path of each request. If it returns a number, that is the answer's status."""

_ERRORS = {403: "InvalidAccessKeyId", 404: "NoSuchKey", 500: "InternalError", 503: "SlowDown"}


class S3Server:
    """The server, in threads of this process; or another one, if IKEBANA_S3 has its address."""

    def __init__(self) -> None:
        self.buckets: dict[str, dict[str, bytes]] = {}
        self.uploads: dict[str, dict[int, bytes]] = {}
        self.lock = threading.Lock()
        self.interfere: Interference = lambda method, path: None
        self.address = os.environ.get(VARIABLE, "")
        self.is_own = not self.address

    def __enter__(self) -> S3Server:
        if self.is_own:
            self._http = _Http(("127.0.0.1", 0), _Handler)
            self._http.store = self
            self.address = f"127.0.0.1:{self._http.server_address[1]}"
            self._thread = threading.Thread(target=self._http.serve_forever, args=(0.05,), daemon=True)
            self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self.is_own:
            self._http.shutdown()
            self._thread.join()
            self._http.server_close()

    def uri(self, path: str, key: str = ACCESS_KEY, secret: str = SECRET_KEY) -> str:
        """The URI of a path, with its bucket, which is created when something is written."""
        options = f"scheme=http&endpoint_override={self.address}&region=us-east-1&allow_bucket_creation=true"
        return f"s3://{quote(key)}:{quote(secret, safe='')}@{path}?{options}"

    def new_uri(self) -> str:
        """The URI of a path in a bucket that does not exist yet."""
        return self.uri(f"{secrets.token_hex(8)}/a shop")


class _Http(ThreadingHTTPServer):
    daemon_threads = True
    store: S3Server

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Clients are killed in the middle of requests."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: _Http

    def log_message(self, format: str, *args: Any) -> None:
        """Write nothing."""

    def do_HEAD(self) -> None:
        self._answer(self._get)

    def do_GET(self) -> None:
        self._answer(self._get)

    def do_PUT(self) -> None:
        self._answer(self._put)

    def do_POST(self) -> None:
        self._answer(self._post)

    def do_DELETE(self) -> None:
        self._answer(self._delete)

    def _answer(self, action: Callable[[str, str, dict[str, str], bytes], None]) -> None:
        """Read a request, and let `action` answer it."""
        store, url = self.server.store, urlsplit(self.path)
        query = {name: values[0] for name, values in parse_qs(url.query, keep_blank_values=True).items()}
        bucket, _, key = unquote(url.path).lstrip("/").partition("/")
        body = self._body()
        status = store.interfere(self.command, unquote(url.path))
        if f"Credential={ACCESS_KEY}/" not in self.headers.get("Authorization", ""):
            status = 403
        if status is not None:
            self._fail(status)
            return
        with store.lock:
            action(bucket, key, query, body)

    def _body(self) -> bytes:
        """The body of a request, without the framing of chunks that are signed or have a checksum after them."""
        if self.headers.get("Transfer-Encoding") == "chunked":
            content = b""
            while size := int(self.rfile.readline(), 16):
                content += self.rfile.read(size)
                self.rfile.readline()
            self.rfile.readline()
        else:
            content = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if "aws-chunked" not in self.headers.get("Content-Encoding", ""):
            return content
        body, at = b"", 0
        while True:
            end = content.index(b"\r\n", at)
            size = int(content[at:end].partition(b";")[0], 16)
            if not size:
                return body
            body += content[end + 2 : end + 2 + size]
            at = end + 4 + size

    def _send(self, status: int, body: bytes = b"", **headers: object) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), str(value))
        if "Content_Length" not in headers:
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def _fail(self, status: int, code: str = "") -> None:
        code = code or _ERRORS[status]
        self._send(status, f"<Error><Code>{code}</Code><Message>{code}</Message></Error>".encode())

    def _objects(self, bucket: str) -> dict[str, bytes] | None:
        """The objects of a bucket; if there is none, that is the answer."""
        objects = self.server.store.buckets.get(bucket)
        if objects is None:
            self._fail(404, "NoSuchBucket")
        return objects

    def _get(self, bucket: str, key: str, query: dict[str, str], body: bytes) -> None:
        objects = self._objects(bucket)
        if objects is None:
            return
        if not key:
            self._list(bucket, objects, query)
        elif key not in objects:
            self._fail(404)
        else:
            self._get_object(objects[key])

    def _get_object(self, content: bytes) -> None:
        asked = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("Range", ""))
        status, part = (206, content[int(asked[1]) : int(asked[2]) + 1]) if asked else (200, content)
        headers = {"ETag": '"0"', "Last_Modified": "Thu, 01 Jan 2026 00:00:00 GMT", "Accept_Ranges": "bytes"}
        self._send(status, part, **headers, Content_Length=len(part))

    def _list(self, bucket: str, objects: dict[str, bytes], query: dict[str, str]) -> None:
        prefix, delimiter = query.get("prefix", ""), query.get("delimiter", "")
        first, most = query.get("continuation-token", ""), int(query.get("max-keys", 1000))
        entries: dict[str, str] = {}
        for key in sorted(objects):
            if key.startswith(prefix):
                end = key.find(delimiter, len(prefix)) if delimiter else -1
                if end >= 0:
                    entries[key[: end + 1]] = f"<Prefix>{escape(key[: end + 1])}</Prefix>"
                else:
                    size = len(objects[key])
                    entries[key] = (
                        f"<Key>{escape(key)}</Key><Size>{size}</Size><LastModified>2026-01-01T00:00:00Z</LastModified>"
                    )
        names = sorted(name for name in entries if name >= first)
        shown, rest = names[:most], names[most:]
        parts = (("Contents" if "<Key>" in entries[name] else "CommonPrefixes", entries[name]) for name in shown)
        text = "".join(f"<{part}>{entry}</{part}>" for part, entry in parts)
        more = f"<NextContinuationToken>{escape(rest[0])}</NextContinuationToken>" if rest else ""
        self._send(
            200,
            f"<ListBucketResult><Name>{bucket}</Name><KeyCount>{len(shown)}</KeyCount>"
            f"<IsTruncated>{str(bool(rest)).lower()}</IsTruncated>{more}{text}</ListBucketResult>".encode(),
        )

    def _put(self, bucket: str, key: str, query: dict[str, str], body: bytes) -> None:
        if not key:
            self.server.store.buckets.setdefault(bucket, {})
            self._send(200)
        elif (objects := self._objects(bucket)) is not None:
            if "uploadId" in query:
                self.server.store.uploads[query["uploadId"]][int(query["partNumber"])] = body
            else:
                objects[key] = body
            self._send(200, ETag='"0"')

    def _post(self, bucket: str, key: str, query: dict[str, str], body: bytes) -> None:
        objects = self._objects(bucket)
        if objects is None:
            return
        store = self.server.store
        if "delete" in query:
            for name in re.findall(rb"<Key>(.*?)</Key>", body):
                objects.pop(name.decode(), None)
            self._send(200, b"<DeleteResult></DeleteResult>")
        elif "uploads" in query:
            number = uuid.uuid4().hex
            store.uploads[number] = {}
            names = f"<Bucket>{bucket}</Bucket><Key>{escape(key)}</Key><UploadId>{number}</UploadId>"
            self._send(200, f"<InitiateMultipartUploadResult>{names}</InitiateMultipartUploadResult>".encode())
        else:
            parts = store.uploads.pop(query["uploadId"])
            objects[key] = b"".join(parts[number] for number in sorted(parts))
            done = f"<Bucket>{bucket}</Bucket><Key>{escape(key)}</Key><ETag>0</ETag>"
            self._send(200, f"<CompleteMultipartUploadResult>{done}</CompleteMultipartUploadResult>".encode())

    def _delete(self, bucket: str, key: str, query: dict[str, str], body: bytes) -> None:
        objects = self._objects(bucket)
        if objects is None:
            return
        if "uploadId" in query:
            self.server.store.uploads.pop(query["uploadId"], None)
        else:
            objects.pop(key, None)
        self._send(204)

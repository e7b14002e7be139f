"""The filesystem of an `s3://` URI: Amazon's S3, and the many stores that speak its protocol.

    s3://bucket/path
    s3://key:secret@bucket/path?endpoint_override=127.0.0.1:9000&scheme=http

Arrow's own reading of URIs has no timeouts and retries; here they can be given, and have values that suit a log: a
request that hangs is given up before the lease of a session ends, and one that the store refuses because it is busy is
repeated for some seconds.

Small objects are sent with one request. Versions of Arrow before 21 need three.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

import pyarrow as pa
import pyarrow.fs

from ikebana.errors import StorageError

_CONNECT_SECONDS, _REQUEST_SECONDS, _ATTEMPTS = 3.0, 5.0, 4

_HAS_SMALL_REQUESTS = int(pa.__version__.partition(".")[0]) >= 21


def _flag(text: str) -> bool:
    if text.lower() not in ("true", "false", "1", "0"):
        raise ValueError(f"{text!r} is neither true nor false")
    return text.lower() in ("true", "1")


_OPTIONS: dict[str, Callable[[str], Any]] = {
    "region": str,
    "scheme": str,
    "endpoint_override": str,
    "anonymous": _flag,
    "allow_bucket_creation": _flag,
    "force_virtual_addressing": _flag,
    "role_arn": str,
    "session_name": str,
    "external_id": str,
    "connect_timeout": float,
    "request_timeout": float,
    "attempts": int,
}
"""The options of a URI: arguments of `pyarrow.fs.S3FileSystem`, and how often a request is tried."""


def open_s3(uri: str) -> tuple[pyarrow.fs.FileSystem, str, bool]:
    """The filesystem of a URI, the path in it, and whether its bucket may be created."""
    parsed = urlsplit(uri)
    user, _, bucket = parsed.netloc.rpartition("@")
    key, _, secret = user.partition(":")
    options = _options(parsed)
    if not bucket:
        raise ValueError("it names no bucket")
    if key:
        options |= {"access_key": unquote(key), "secret_key": unquote(secret)}
    if not options.get("region") and not options.get("endpoint_override"):
        options["region"] = pyarrow.fs.resolve_s3_region(bucket)
    if _HAS_SMALL_REQUESTS:
        options["allow_delayed_open"] = True
    retries = pyarrow.fs.AwsStandardS3RetryStrategy(max_attempts=options.pop("attempts", _ATTEMPTS))
    defaults = {"connect_timeout": _CONNECT_SECONDS, "request_timeout": _REQUEST_SECONDS, "retry_strategy": retries}
    filesystem = pyarrow.fs.S3FileSystem(**{**defaults, **options})
    return filesystem, f"{bucket}{unquote(parsed.path)}", options.get("allow_bucket_creation", False)


def _options(parsed: SplitResult) -> dict[str, Any]:
    """The options in the query of a URI."""
    options = {}
    for name, text in parse_qsl(parsed.query, keep_blank_values=True):
        if name not in _OPTIONS:
            raise StorageError(
                f"the storage URI of the bucket {parsed.netloc.rpartition('@')[2]} has the unknown option {name!r}",
                hint=f"the options are {', '.join(_OPTIONS)}",
            )
        try:
            options[name] = _OPTIONS[name](text)
        except ValueError as error:
            raise ValueError(f"its option {name} has a wrong value: {error}") from None
    return options


_PROBLEMS = {
    "NO_SUCH_BUCKET": "create the bucket, or add allow_bucket_creation=true to the URI",
    "ACCESS_DENIED": "give the driver and every worker credentials that may list, read, write and delete there",
    "INVALID_ACCESS_KEY_ID": "check AWS_ACCESS_KEY_ID where the driver and the workers run, or the key in the URI",
    "SIGNATURE_DOES_NOT_MATCH": "check AWS_SECRET_ACCESS_KEY where the driver and the workers run, or that in the URI",
    "ExpiredToken": "renew the credentials where the driver and the workers run",
    "NETWORK_CONNECTION": "check the region and the endpoint_override of the URI, and the network",
    "HTTP status 503": "the store is busy or not available: try again, or set attempts= in the URI",
}


def hint_for(error: Exception) -> str:
    """What to do about an error of the client."""
    text = str(error)
    return next((hint for problem, hint in _PROBLEMS.items() if problem in text), "")

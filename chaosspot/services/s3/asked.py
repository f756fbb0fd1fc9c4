"""What a request to S3 asks for, read from its line and headers: pure."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Mapping
from urllib.parse import parse_qsl, unquote, urlsplit

import msgspec

from chaosspot.store_misbehaviour import Operation

__all__ = ["Asked", "access_key_of", "read"]

# What turns a request about a bucket or an object into one about its configuration.
_SETTINGS = frozenset({
    "accelerate", "acl", "analytics", "attributes", "cors", "encryption", "intelligent-tiering",
    "inventory", "legal-hold", "lifecycle", "location", "logging", "metrics", "notification",
    "object-lock", "ownershipControls", "policy", "policyStatus", "publicAccessBlock",
    "replication", "requestPayment", "restore", "retention", "select", "tagging", "torrent",
    "versioning", "website",
})  # fmt: skip
_CREDENTIAL = re.compile(r"Credential=([^/,\s]+)/|^AWS ([^:\s]+):")
_HOST = re.compile(r"(?P<bucket>.+?)\.(?:localhost$|s3[.-])")
_ROOT: dict[str, Operation] = {"GET": "list", "HEAD": "head", "DELETE": "other", "PUT": "other"}
_OBJECT: dict[str, Operation] = {"GET": "get", "HEAD": "head", "DELETE": "delete", "PUT": "put"}
_UPLOAD: dict[str, Operation] = {
    "GET": "list",
    "PUT": "multipart-part",
    "POST": "multipart-complete",
    "DELETE": "multipart-abort",
}


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """One request. ``target`` is path-style, as it is to be sent on, with nothing decoded."""

    method: str
    target: str
    bucket: str
    key: str
    upload_id: str
    operation: Operation
    access_key: str

    @property
    def resource(self) -> str:
        """What errors name."""
        return "/" + "/".join(part for part in (self.bucket, self.key) if part)


def read(method: str, target: str, headers: Mapping[str, str]) -> Asked:
    """``target`` is that of the request line; names of ``headers`` may be in any case."""
    if not target.startswith("/"):  # absolute form, as clients of a proxy send it
        url = urlsplit(target)
        target = (url.path or "/") + (f"?{url.query}" if url.query else "")
    path, mark, question = target.partition("?")
    if virtual := _virtual_bucket(headers.get("Host", "")):
        path = f"/{virtual}{path}"
    bucket, _, key = path[1:].partition("/")
    query = dict(parse_qsl(question, keep_blank_values=True))
    return Asked(
        method=method,
        target=path + mark + question,
        bucket=unquote(bucket),
        key=unquote(key),
        upload_id=query.get("uploadId", ""),
        operation=_operation(method, bucket, key, query, "x-amz-copy-source" in headers),
        access_key=access_key_of(headers.get("Authorization", ""), query),
    )


def access_key_of(authorization: str, query: Mapping[str, str]) -> str:
    """The id of the key that signed a request, empty when none did."""
    if found := _CREDENTIAL.search(authorization):
        return found[1] or found[2]
    credential = query.get("X-Amz-Credential", query.get("AWSAccessKeyId", ""))
    return credential.partition("/")[0]


def _virtual_bucket(host: str) -> str:
    name = re.sub(r":\d+$", "", host).lower()
    try:
        ipaddress.ip_address(name.strip("[]"))
    except ValueError:
        found = _HOST.match(name)
        return found["bucket"] if found else ""
    return ""


def _operation(
    method: str, bucket: str, key: str, query: Mapping[str, str], copies: bool
) -> Operation:
    if not bucket:
        return "other"
    if "uploadId" in query and key:
        return _UPLOAD.get(method, "other")
    if _SETTINGS & query.keys():
        return "other"
    if not key:
        if method == "POST":
            return "delete" if "delete" in query else "put"
        return _ROOT.get(method, "other")
    if method == "POST":
        return "multipart-create" if "uploads" in query else "other"
    if method == "PUT" and copies:
        return "copy"
    return _OBJECT.get(method, "other")

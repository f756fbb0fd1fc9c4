"""S3's errors: codes, statuses and messages as S3 has them, and the XML that carries them.

https://docs.aws.amazon.com/AmazonS3/latest/API/ErrorResponses.html
"""

from __future__ import annotations

from collections.abc import Mapping
from xml.sax.saxutils import escape

__all__ = ["BY_STATUS", "ERRORS", "Refused", "document"]

ERRORS: dict[str, tuple[int, str]] = {
    "AccessDenied": (403, "Access Denied"),
    "BadDigest": (400, "The Content-MD5 you specified did not match what we received."),
    "EntityTooLarge": (400, "Your proposed upload exceeds the maximum allowed size"),
    "ExpiredToken": (400, "The provided token has expired."),
    "IncompleteBody": (
        400,
        "You did not provide the number of bytes specified by the Content-Length HTTP header",
    ),
    "InternalError": (500, "We encountered an internal error. Please try again."),
    "InvalidDigest": (400, "The Content-MD5 you specified was invalid."),
    "InvalidRequest": (400, "Invalid Request"),
    "MalformedTrailerError": (
        400,
        "The request contained trailing data that was not well-formed or did not conform to our "
        "published schema.",
    ),
    "MethodNotAllowed": (405, "The specified method is not allowed against this resource."),
    "MissingContentLength": (411, "You must provide the Content-Length HTTP header."),
    "NoSuchKey": (404, "The specified key does not exist."),
    "NoSuchUpload": (
        404,
        "The specified upload does not exist. The upload ID may be invalid, or the upload may "
        "have been aborted or completed.",
    ),
    "NotImplemented": (
        501,
        "A header you provided implies functionality that is not implemented",
    ),
    "PreconditionFailed": (
        412,
        "At least one of the pre-conditions you specified did not hold",
    ),
    "RequestTimeTooSkewed": (
        403,
        "The difference between the request time and the current time is too large.",
    ),
    "ServiceUnavailable": (503, "Service is unable to handle request."),
    "SlowDown": (503, "Please reduce your request rate."),
    "XAmzContentSHA256Mismatch": (
        400,
        "The provided 'x-amz-content-sha256' header does not match what was computed.",
    ),
}

# What moto leaves empty, or fills with a page of its web framework.
BY_STATUS = {
    400: "InvalidRequest",
    403: "AccessDenied",
    404: "NoSuchKey",
    405: "MethodNotAllowed",
    411: "MissingContentLength",
    412: "PreconditionFailed",
    501: "NotImplemented",
}


class Refused(Exception):
    """The request is answered with an error of S3's.

    ``message`` stands for the usual one; ``more`` are further elements of the document.
    """

    def __init__(self, code: str, message: str = "", more: Mapping[str, str] | None = None) -> None:
        super().__init__(code)
        self.code = code
        self.status, usual = ERRORS[code]
        self.message = message or usual
        self.more = dict(more or {})


def document(error: Refused, *, resource: str, request_id: str, host_id: str) -> bytes:
    """The XML document that S3 sends."""
    elements = {"Code": error.code, "Message": error.message, **error.more}
    elements |= {"Resource": resource, "RequestId": request_id, "HostId": host_id}
    inside = "".join(f"<{name}>{_plain(text)}</{name}>" for name, text in elements.items())
    return f'<?xml version="1.0" encoding="UTF-8"?>\n<Error>{inside}</Error>'.encode()


def _plain(text: str) -> str:
    """Text that may stand in XML 1.0, which has no place for most control characters."""
    allowed = (c if c >= " " or c in "\t\n\r" else "\ufffd" for c in text)
    return escape("".join(allowed).encode("utf-8", "replace").decode())

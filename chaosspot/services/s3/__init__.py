"""An object store that speaks S3, and misbehaves as it is told."""

from chaosspot.services.s3.changes import Change, ObjectGone, ObjectStored, UploadChanged
from chaosspot.services.s3.exchange import Injection
from chaosspot.services.s3.reader import Reader, StoredObject, StoredVersion, Upload
from chaosspot.services.s3.server import S3Service

__all__ = [
    "Change",
    "Injection",
    "ObjectGone",
    "ObjectStored",
    "Reader",
    "S3Service",
    "StoredObject",
    "StoredVersion",
    "Upload",
    "UploadChanged",
]

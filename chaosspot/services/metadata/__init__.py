"""The metadata service of a cloud, one listener per node."""

from chaosspot.services.metadata.server import MetadataService
from chaosspot.services.metadata.values import Instance

__all__ = ["Instance", "MetadataService"]

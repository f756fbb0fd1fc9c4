"""The metadata service of a cloud, one listener per node."""

from chaosspot.services.metadata.aws_tree import AwsSettings
from chaosspot.services.metadata.azure_events import AzureSettings
from chaosspot.services.metadata.gcp_tree import GcpSettings
from chaosspot.services.metadata.server import MetadataService
from chaosspot.services.metadata.values import Instance, Notice

__all__ = [
    "AwsSettings",
    "AzureSettings",
    "GcpSettings",
    "Instance",
    "MetadataService",
    "Notice",
]

"""A TCP proxy that fails on command, by Toxiproxy's HTTP API or by Python."""

from chaosspot.services.proxy.api import Api
from chaosspot.services.proxy.backend import serving
from chaosspot.services.proxy.client import Client
from chaosspot.services.proxy.control import ProxyControl
from chaosspot.services.proxy.service import ProxyService
from chaosspot.services.proxy.values import Proxy, ProxyError, Toxic, Traffic

__all__ = [
    "Api",
    "Client",
    "Proxy",
    "ProxyControl",
    "ProxyError",
    "ProxyService",
    "Toxic",
    "Traffic",
    "serving",
]

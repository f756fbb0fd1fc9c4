"""Servers that stand in for the cloud."""

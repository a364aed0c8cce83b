"""Bakehouse builds, tests and publishes container images for training jobs."""

__version__ = "0.2.0"

"""Registries that fail when they are told to, and an Amazon ECR without AWS: for tests, ours and others'.

`pytest_plugins = ["bakehouse.testing.plugin"]` in a `conftest.py` gives their fixtures.
"""

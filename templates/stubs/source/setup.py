"""A stub: an empty package of the right name and version."""

from setuptools import setup

setup(name="@name@", version="@version@", packages=[])

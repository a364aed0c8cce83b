"""A stand-in: a package of the right name and version, with a module that knows it."""

from setuptools import setup

setup(name="@name@", version="@version@", py_modules=[], description="a stand-in of Bakehouse")

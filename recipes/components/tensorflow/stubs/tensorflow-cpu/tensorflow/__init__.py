"""A stub."""

__version__ = "@version@"

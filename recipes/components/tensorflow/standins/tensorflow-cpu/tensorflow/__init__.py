"""A stand-in."""

__version__ = "@version@"

"""A team that signs statements about an image in a registry."""

from tests.support.teams import keys, proxy, team

__all__ = ["keys", "proxy", "team"]

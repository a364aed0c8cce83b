"""A team that signs statements about an image in a registry."""

from tests.support.candidates import fake_registries, proxies
from tests.support.teams import keys, proxy, team

__all__ = ["fake_registries", "keys", "proxies", "proxy", "team"]

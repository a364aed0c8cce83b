"""Logins in files of apt."""

from urllib.parse import urlsplit

import pytest

from bakehouse.fetch.credentials import apt_login
from bakehouse.fetch.http_client import basic_authorization
from tests.support.file_server import basic

CANARY = "canary-4711"


@pytest.mark.parametrize(
    ("machine", "address", "is_for"),
    [
        ("example.org", "https://example.org/debian", True),
        ("example.org", "http://example.org/debian", False),
        ("http://example.org", "http://example.org/debian", True),
        ("http://example.org", "https://example.org/debian", False),
        ("example.org/deb", "https://example.org/debian", True),
        ("example.org/debian/", "https://example.org/debian/pool/x", True),
        ("example.org/deb/", "https://example.org/debian", False),
        ("example.org:443", "https://example.org/debian", False),
        ("Example.org:8443", "https://example.org:8443/debian", True),
        ("example.orga", "https://example.org/debian", False),
    ],
)
def test_apts_logins_are_for_what_apt_has_them_for(machine: str, address: str, is_for: bool) -> None:
    others = "# machine example.org login no password no\nmachine other login no password no\n"
    text = f"{others}machine {machine}\n login me password {CANARY} # ours\n"
    assert apt_login(text, urlsplit(address)) == (("me", CANARY) if is_for else None)


def test_a_password_of_any_characters_fits_into_a_header() -> None:
    assert basic_authorization("ci", "hunter2") == basic("ci:hunter2")
    # Servers read older characters as Latin-1 and others as UTF-8.
    assert basic_authorization("ci", "\u00e9") == "Basic Y2k66Q=="
    assert basic_authorization("ci", "\u20ac") == basic("ci:\u20ac")

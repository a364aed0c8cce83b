"""Proxies for each server, trusted certificates, and URLs without credentials."""

from pathlib import Path
from urllib.parse import urlsplit

import pytest

from bakehouse.fetch.connection import Proxies, machine_settings, redacted
from bakehouse.fetch.pip_config import PipConfig

CANARY = "canary-4711"


def test_proxies_of_the_environment() -> None:
    from_environment = Proxies.of_environment(
        {
            "HTTP_PROXY": "proxy.example:3128",
            "all_proxy": "http://all.example",
            "no_proxy": ".intern,10.0.0.1",
        }
    )
    to = {
        url: from_environment.to(urlsplit(url))
        for url in ("http://x/", "https://x/", "http://a.intern/", "http://10.0.0.1/")
    }
    assert list(to.values()) == ["http://proxy.example:3128", "http://all.example", "", ""]


@pytest.mark.parametrize(
    ("address", "is_direct"),
    [
        ("http://10.1.2.3/", True),
        ("http://11.1.2.3/", False),
        ("http://[fd00::1]/", True),
        ("http://one.example:8080/", True),
        ("http://one.example/", False),
        ("http://a.two.example:99/", True),
        ("https://three.example/", True),
        ("http://three.example/", False),
    ],
)
def test_what_no_proxy_exempts(address: str, is_direct: bool) -> None:
    proxies = Proxies(
        {"http": "http://p", "https": "http://p"},
        not_for="10.0.0.0/8, fd00::/8,one.example:8080,.two.example,three.example:443",
    )
    assert (proxies.to(urlsplit(address)) == "") == is_direct


@pytest.mark.parametrize("none", ["DIRECT", "false"])
def test_apts_words_for_no_proxy(none: str) -> None:
    proxies = Proxies({"https": none, "http": "p:1"}, {"one.example": none})
    assert proxies.to(urlsplit("https://two.example/")) == ""
    assert proxies.to(urlsplit("http://one.example/")) == ""
    assert proxies.to(urlsplit("http://two.example/")) == "http://p:1"


def test_urls_are_shown_without_credentials() -> None:
    assert redacted(f"https://u:{CANARY}@index.example:8443/simple/?key={CANARY}#{CANARY}") == (
        "https://index.example:8443/simple"
    )
    assert redacted("/srv/mi:rr@or") == "/srv/mi:rr@or"
    assert redacted(f"u:{CANARY}@index.example/simple") == "index.example/simple"
    assert redacted(f"//u:{CANARY}@index.example/simple") == "index.example/simple"


def test_the_settings_of_a_machine(tmp_path: Path) -> None:
    ca, other = tmp_path / "ca.pem", tmp_path / "other.pem"
    ca.touch()
    other.touch()
    environment = {
        "REQUESTS_CA_BUNDLE": str(other),
        "CURL_CA_BUNDLE": "/nowhere",
        "https_proxy": "http://p:1",
    }
    settings = machine_settings(ca, PipConfig(), environment)

    assert settings.certificates == (ca, other)
    assert settings.proxies.to(urlsplit("https://registry.example/v2/")) == "http://p:1"
    assert machine_settings(ca, PipConfig(), {"CURL_CA_BUNDLE": str(ca)}).certificates == (ca,)

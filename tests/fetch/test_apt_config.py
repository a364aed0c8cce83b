"""Mirrors and settings, as apt itself tells them."""

from pathlib import Path

from bakehouse.fetch.apt_config import (
    AptSource,
    directory_line,
    for_suite,
    read_settings,
    read_targets,
    written,
)

TARGETS = """\
Vendor|vendor|https://vendor.example/debian|bookworm|main
Debian|Debian|http://mirror.example/debian|bookworm|main
Debian|Debian|http://mirror.example/debian|bookworm|contrib
Debian|Debian|http://mirror.example/debian|bookworm-updates|main
Debian|Debian-Security|http://mirror.example/debian-security|bookworm-security|main
"""


def test_a_suite_with_its_updates_and_security_updates() -> None:
    assert [source.line for source in for_suite("bookworm", read_targets(TARGETS))] == [
        "deb http://mirror.example/debian bookworm main contrib",
        "deb http://mirror.example/debian bookworm-updates main",
        "deb http://mirror.example/debian-security bookworm-security main",
    ]


def test_a_machine_of_another_release_lends_its_mirrors() -> None:
    assert [source.line for source in for_suite("trixie", read_targets(TARGETS))] == [
        "deb http://mirror.example/debian trixie main",
        "deb http://mirror.example/debian trixie-updates main",
        "deb http://mirror.example/debian-security trixie-security main",
    ]


def test_another_distributions_mirrors_are_of_no_use() -> None:
    assert (
        for_suite("bookworm", read_targets("Ubuntu|Ubuntu|http://mirror.example/ubuntu|noble|main\n")) == ()
    )


def test_only_the_way_to_the_mirrors_is_carried() -> None:
    dump = (
        'APT::Architecture "amd64";\nAcquire::http::Proxy "http://proxy.example:3128";\n'
        'Acquire::https::Proxy::mirror.example "DIRECT";\nAcquire::https::CaInfo "/etc/ca.pem";\n'
        'Acquire::IndexTargets::deb::Packages::MetaKey "x";\nAcquire::Check-Valid-Until "false";\n'
    )
    assert written(read_settings(dump)) == (
        'Acquire::http::Proxy "http://proxy.example:3128";\n'
        'Acquire::https::Proxy::mirror.example "DIRECT";\n'
        'Acquire::https::CaInfo "/etc/ca.pem";\n'
        'Acquire::Check-Valid-Until "false";\n'
    )


def test_a_source_is_one_line() -> None:
    assert AptSource("Debian", "http://m.example", "sid", ("main", "contrib")).line == (
        "deb http://m.example sid main contrib"
    )


def test_a_directory_whose_name_has_a_space_is_one_word() -> None:
    line = directory_line(Path("/home/ann/my project/build"))
    assert line == "deb [trusted=yes] copy:/home/ann/my%20project/build ./"

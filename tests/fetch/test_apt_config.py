"""Sources and settings in the files of apt, which may not be installed."""

from pathlib import Path

import pytest

from bakehouse.fetch.apt_config import ConfiguredSource, entries, read_settings, settings, written

MAIN = ("main",)


@pytest.fixture
def apt(tmp_path: Path) -> Path:
    (tmp_path / "sources.list.d").mkdir()
    (tmp_path / "apt.conf.d").mkdir()
    return tmp_path


def test_a_machine_without_apt_has_neither_sources_nor_settings(tmp_path: Path) -> None:
    assert entries(tmp_path / "none") == ()
    assert settings(tmp_path / "none", {}) == {}


def test_the_lines_of_a_list(apt: Path) -> None:
    (apt / "sources.list").write_text(
        "# a comment\n"
        "deb http://mirror.example/debian bookworm main contrib # both\n"
        "  deb [arch=amd64 signed-by=/a/b.gpg]   https://user:word@two.example/debian/ sid main\n"
        "deb-src http://mirror.example/debian bookworm main\n"
        "#deb http://off.example/debian bookworm main\n"
        "deb http://flat.example/ ./\n"
        "deb nonsense\n"
    )
    assert entries(apt) == (
        ConfiguredSource("http://mirror.example/debian", "bookworm", ("main", "contrib")),
        ConfiguredSource("https://user:word@two.example/debian/", "sid", MAIN),
    )


def test_the_stanzas_of_a_sources_file(apt: Path) -> None:
    (apt / "sources.list.d/debian.sources").write_text(
        "# made by a cloud\n"
        "Types: deb deb-src\n"
        "URIs: http://one.example/debian http://two.example/debian\n"
        "Suites: bookworm bookworm-updates\n"
        "Components: main\n"
        "Signed-By:\n"
        " -----BEGIN PGP PUBLIC KEY BLOCK-----\n"
        " .\n"
        " mQIN\n"
        "\n"
        "Enabled: no\nTypes: deb\nURIs: http://off.example/debian\nSuites: sid\nComponents: main\n"
        "\n"
        "types: deb\nuris: http://three.example/debian\nsuites: sid\ncomponents: main\n"
    )
    (apt / "sources.list.d/debian.sources.save").write_text("Types: deb\nURIs: http://x/\nSuites: x\n")
    assert entries(apt) == (
        ConfiguredSource("http://one.example/debian", "bookworm", MAIN),
        ConfiguredSource("http://one.example/debian", "bookworm-updates", MAIN),
        ConfiguredSource("http://two.example/debian", "bookworm", MAIN),
        ConfiguredSource("http://two.example/debian", "bookworm-updates", MAIN),
        ConfiguredSource("http://three.example/debian", "sid", MAIN),
    )


def test_a_list_of_mirrors_names_its_mirrors(apt: Path) -> None:
    (apt / "mirrors.list").write_text(
        "# mirrors\nhttps://one.example/debian\tpriority:1\n\nhttp://two.example\n"
    )
    (apt / "sources.list").write_text(f"deb mirror+file:{apt}/mirrors.list bookworm main\n")
    assert [entry.url for entry in entries(apt)] == ["https://one.example/debian", "http://two.example"]


def test_files_of_another_user_are_passed_over(apt: Path) -> None:
    (apt / "sources.list").mkdir()
    (apt / "apt.conf").mkdir()
    assert (entries(apt), settings(apt, {})) == ((), {})


def test_only_the_way_to_the_mirrors_is_carried(apt: Path) -> None:
    (apt / "apt.conf").write_text(
        'APT::Architecture "amd64";\nAcquire::http::Proxy "http://proxy.example:3128";\n'
        'Acquire::https::Proxy::mirror.example "DIRECT";\nAcquire::https::CaInfo "/etc/ca.pem";\n'
        'Acquire::IndexTargets::deb::Packages::MetaKey "x";\nAcquire::Check-Valid-Until "false";\n'
    )
    assert written(settings(apt, {})) == (
        'Acquire::http::Proxy "http://proxy.example:3128";\n'
        'Acquire::https::Proxy::mirror.example "DIRECT";\n'
        'Acquire::https::CaInfo "/etc/ca.pem";\n'
        'Acquire::Check-Valid-Until "false";\n'
    )


def test_scopes_lists_and_comments() -> None:
    text = """
// one
/* two
   Acquire::Retries "9"; */
# three
Acquire {
  http { Proxy "http://proxy.example:3128/"; Proxy { one.example "DIRECT"; }; };  // four
  Languages { "en"; "de"; };
  Retries 3;
};
APT::Get::Assume-Yes;
#clear Acquire::https;
"""
    assert [*read_settings(text)] == [
        ("Acquire::http::Proxy", "http://proxy.example:3128/"),
        ("Acquire::http::Proxy::one.example", "DIRECT"),
        ("Acquire::Retries", "3"),
        ("Acquire::https", None),
    ]


def test_later_files_replace_settings_of_earlier_ones(apt: Path) -> None:
    (apt / "named").write_text('Acquire::http::Proxy "http://first";\nAcquire::Retries "1";\n')
    (apt / "apt.conf.d/10one").write_text('acquire::HTTP::proxy "http://second";\n')
    (apt / "apt.conf.d/20two.conf").write_text('Acquire::Check-Date "no";\n#clear Acquire::Retries;\n')
    (apt / "apt.conf.d/30three.bak").write_text('Acquire::http::Proxy "http://wrong";\n')
    assert settings(apt, {"APT_CONFIG": str(apt / "named")}) == {
        "Acquire::http::Proxy": "http://second",
        "Acquire::Check-Date": "no",
    }

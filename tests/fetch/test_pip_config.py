"""pip's own settings, read as pip reads them."""

from pathlib import Path

import pytest

from bakehouse.fetch.pip_config import PipConfig, read


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """Nothing of this machine, but what /etc holds, is read."""
    return {
        "HOME": str(tmp_path),
        "XDG_CONFIG_DIRS": str(tmp_path / "xdg"),
        "PIP_CERT": "",
        "PIP_FIND_LINKS": "",
    }


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def test_the_users_file_and_its_sections(tmp_path: Path, environment: dict[str, str]) -> None:
    write(
        tmp_path / ".config/pip/pip.conf",
        "[global]\nindex-url = https://a.example/simple\nfind_links =\n    /one\n    /two\n"
        "[install]\nindex-url = https://b.example/simple\n[list]\nindex-url = https://c.example/simple\n",
    )
    config = read(environment)
    assert (config.index_url, config.find_links) == ("https://b.example/simple", ("/one", "/two"))


def test_variables_win_over_files(tmp_path: Path, environment: dict[str, str]) -> None:
    named = write(tmp_path / "named.conf", "[global]\nextra-index-url = https://a.example\ntimeout = 7\n")
    environment |= {
        "PIP_CONFIG_FILE": str(named),
        "PIP_EXTRA_INDEX_URL": "https://b.example https://c.example",
    }
    config = read(environment)
    assert config.extra_index_urls == ("https://b.example", "https://c.example")
    assert config.timeout == "7"


def test_no_file_is_read_if_pip_is_isolated(tmp_path: Path, environment: dict[str, str]) -> None:
    write(tmp_path / ".config/pip/pip.conf", "[global]\nindex-url = https://a.example/simple\n")
    environment |= {"PIP_CONFIG_FILE": "/dev/null", "PIP_NO_INDEX": "1", "PIP_DEFAULT_TIMEOUT": "180"}
    assert read(environment) == PipConfig(no_index=True, timeout="180")


def test_a_file_that_is_not_for_pip_is_ignored(tmp_path: Path, environment: dict[str, str]) -> None:
    environment["PIP_CONFIG_FILE"] = str(write(tmp_path / "bad.conf", "no section\n"))
    assert read(environment).index_url == ""

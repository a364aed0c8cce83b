"""pip's own settings, read as pip reads them."""

from pathlib import Path

import pytest

from bakehouse.fetch.pip_config import PipConfig, read, run_uv


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


def test_uv_gets_the_settings_in_variables_except_those_that_are_set(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("UV_INDEX", "SSL_CERT_FILE", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    monkeypatch.setenv("PIP_EXTRA_INDEX_URL", "https://me:secret@a.example/simple https://b.example/simple")
    monkeypatch.setenv("PIP_FIND_LINKS", "/wheels /more")
    monkeypatch.setenv("PIP_CERT", "/ca.pem")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("UV_HTTP_TIMEOUT", "7")
    monkeypatch.setenv("PIP_TIMEOUT", "60")
    calls: list[tuple[str, list[str], dict[str, str]]] = []
    monkeypatch.setattr("os.execve", lambda *arguments: calls.append(arguments))

    run_uv(["/bin/uv", "pip", "sync"])

    ((program, command, environment),) = calls
    assert (program, command) == ("/bin/uv", ["/bin/uv", "pip", "sync", "--no-index"])
    assert environment["UV_INDEX"] == "https://me:secret@a.example/simple https://b.example/simple"
    assert environment["UV_FIND_LINKS"] == "/wheels,/more"
    assert (environment["SSL_CERT_FILE"], environment["UV_HTTP_TIMEOUT"]) == ("/ca.pem", "7")
    assert "ALL_PROXY" not in environment

"""The entry point of images with ssh: what it does before it becomes a job's command, or the ssh daemon."""

import json
import os
import shutil
import socket
import subprocess
import types
from pathlib import Path

import pytest

PROGRAM = Path(__file__).parents[2] / "recipes/components/sshd/files/start-job"


class Container:
    """The program with all paths below a temporary directory."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.hooks = directory / "hooks"
        self.ssh = directory / "ssh"
        self.host_key = directory / "host-key"
        self.hooks.mkdir()
        text = PROGRAM.read_text()
        for old, new in {
            '"/usr/local/lib/start-job.d"': repr(str(self.hooks)),
            '"/usr/lib/openssh/sshd"': repr(str(directory / "real-sshd")),
            '"/root/.ssh"': repr(str(self.ssh)),
            '"/etc/ssh/ssh_host_ed25519_key"': repr(str(self.host_key)),
            '"/etc/environment"': repr(str(directory / "environment")),
            "PORT = 7022": "PORT = 0",
            "DEADLINE = 3600.0": "DEADLINE = 0.1",
            "/usr/bin/python3 -I": "/usr/bin/env python3",
        }.items():
            assert old in text, old
            text = text.replace(old, new)
        self.program = self.write("start-job", text)
        self.sshd = directory / "sshd"
        self.sshd.symlink_to("start-job")
        self.write("real-sshd", '#!/bin/sh\necho "daemon $0 $*"\n')

    def write(self, name: str, text: str) -> Path:
        path = self.directory / name
        path.write_text(text)
        path.chmod(0o755)
        return path

    def job_of(self, *hosts: str) -> None:
        file = self.directory / "ml/input/config/resourceconfig.json"
        file.parent.mkdir(parents=True)
        file.write_text(json.dumps({"current_host": hosts[0], "hosts": hosts}))

    def run(self, *command: str | Path) -> "subprocess.CompletedProcess[str]":
        environment = {**os.environ, "SAGEMAKER_BASE_DIR": str(self.directory / "ml")}
        return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


@pytest.fixture
def container(tmp_path: Path) -> Container:
    return Container(tmp_path)


needs_ssh = pytest.mark.skipif(shutil.which("ssh-keygen") is None, reason="needs ssh-keygen")


def test_hooks_set_what_the_command_sees(container: Container) -> None:
    container.write("hooks/10-first", "#!/bin/sh\necho FIRST=1; echo BOTH=a; echo 'no setting'\n")
    container.write("hooks/20-second", '#!/bin/sh\necho BOTH="$FIRST and b"\n')
    (container.hooks / "README").write_text("not a program")
    result = container.run(container.program, "sh", "-c", 'echo "$FIRST, $BOTH"')
    assert (result.stdout, result.stderr) == ("1, 1 and b\n", "")


def test_a_hook_that_fails_is_reported_and_the_job_starts(container: Container) -> None:
    container.write("hooks/broken", "#!/bin/sh\nexit 3\n")
    result = container.run(container.program, "echo", "started")
    assert result.stdout == "started\n"
    assert "start-job: broken failed" in result.stderr


def test_a_missing_command_is_reported(container: Container) -> None:
    result = container.run(container.program, "no-such-command")
    assert (result.returncode, result.stderr) == (127, "start-job: no command `no-such-command` on PATH\n")


def test_called_as_the_daemon_it_becomes_the_real_one(container: Container) -> None:
    container.write("hooks/loud", "#!/bin/sh\necho hook >&2\n")
    result = container.run(container.sshd, "-t", "-h", "key")
    assert (result.stdout, result.stderr) == (f"daemon {container.directory}/real-sshd -t -h key\n", "")
    assert not container.ssh.exists()


@needs_ssh
def test_the_daemon_of_a_job_of_two_hosts_gets_keys(container: Container) -> None:
    """The newer SDK replaces the entry point and starts the daemon itself."""
    container.job_of("algo-1", "algo-2")
    assert container.run(container.sshd, "-D").stdout == f"daemon {container.directory}/real-sshd -D\n"
    assert container.host_key.is_file()
    assert (container.ssh / "id_ed25519").is_file()
    assert "PATH=" in (container.directory / "environment").read_text()


@needs_ssh
def test_keys_that_the_entry_point_made_stay(container: Container) -> None:
    container.job_of("algo-1", "algo-2")
    assert container.run(container.program, "true").returncode == 0
    content = container.host_key.read_bytes()
    assert container.run(container.sshd, "-D").returncode == 0
    assert container.host_key.read_bytes() == content


def test_a_job_of_one_host_needs_no_keys(container: Container) -> None:
    container.job_of("algo-1")
    assert container.run(container.program, "true").returncode == 0
    assert container.run(container.sshd, "-D").returncode == 0
    assert not container.host_key.exists()


@needs_ssh
def test_mounted_keys_stay(container: Container) -> None:
    container.job_of("algo-1", "algo-2")
    container.ssh.mkdir()
    (container.ssh / "id_rsa").write_text("of the user")
    result = container.run(container.program, "echo", "started")
    assert result.stdout == "started\n"
    assert result.stderr == f"start-job: the keys in {container.ssh} stay: no keys are exchanged\n"
    assert [path.name for path in container.ssh.iterdir()] == ["id_rsa"]


@needs_ssh
def test_the_daemon_makes_a_host_key_for_mounted_keys(container: Container) -> None:
    """The Kubernetes MPI operator mounts keys and starts the daemon of each worker."""
    container.ssh.mkdir()
    (container.ssh / "authorized_keys").write_text("key of the user")
    result = container.run(container.sshd, "-De")
    assert (result.stdout, result.stderr) == (f"daemon {container.directory}/real-sshd -De\n", "")
    assert container.host_key.is_file()
    assert [path.name for path in container.ssh.iterdir()] == ["authorized_keys"]


@needs_ssh
def test_keys_of_an_earlier_start_are_replaced(container: Container) -> None:
    container.job_of("algo-1", "algo-2")
    assert container.run(container.program, "true").returncode == 0
    first = (container.ssh / "id_ed25519.pub").read_text()
    assert container.run(container.program, "true").returncode == 0
    second = (container.ssh / "id_ed25519.pub").read_text()
    assert first != second
    assert (container.ssh / "authorized_keys").read_text() == f"{' '.join(second.split()[:2])} algo-1\n"


@needs_ssh
def test_a_job_starts_where_keys_cannot_be_written(container: Container) -> None:
    """As another user, or with a read-only root."""
    container.job_of("algo-1", "algo-2")
    container.ssh.write_text("not a directory")
    result = container.run(container.program, "echo", "started")
    assert (result.returncode, result.stdout) == (0, "started\n")
    assert "start-job: no ssh keys, so mpirun cannot reach the other hosts: " in result.stderr


def test_sessions_of_the_daemon_get_the_variables_of_the_image(
    container: Container, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LD_LIBRARY_PATH", "/opt/library")
    container.run(container.sshd, "-D")
    lines = (container.directory / "environment").read_text().splitlines()
    assert "LD_LIBRARY_PATH=/opt/library" in lines


def test_a_login_shell_keeps_its_path(tmp_path: Path) -> None:
    profile = PROGRAM.with_name("profile")
    command = ["sh", "-c", f'PATH=/usr/bin:/bin; . {profile}; echo "$PATH"']
    environment = {"PATH": f"{tmp_path}:/usr/bin:/bin"}
    result = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert result.stdout == f"{tmp_path}:/usr/bin:/bin\n"


def test_directories_that_jobs_write_to_are_made(container: Container) -> None:
    assert container.run(container.program, "true").returncode == 0
    directory = container.directory / "ml"
    assert sorted(str(path.relative_to(directory)) for path in directory.rglob("*")) == [
        "model",
        "output",
        "output/data",
    ]


def test_output_directories_that_cannot_be_made_are_reported(container: Container) -> None:
    (container.directory / "ml").write_text("not a directory")
    result = container.run(container.program, "echo", "started")
    assert result.stdout == "started\n"
    message = (
        f"start-job: {container.directory}/ml/output/data cannot be made, so a failed job may exit with 0: "
    )
    assert message in result.stderr


KEY = f"ssh-ed25519 {'A' * 68}"


@pytest.mark.parametrize(
    ("sent", "address", "reason"),
    [
        (["hello", "algo-9", KEY, KEY], "127.0.0.1", "127.0.0.1 calls itself algo-9"),
        (["hello", "localhost", KEY, KEY], "192.0.2.7", "192.0.2.7 calls itself localhost"),
        (["hello", "localhost", "x", "y"], "127.0.0.1", "not the expected message `hello`"),
        (["pinned", "localhost", KEY, KEY], "127.0.0.1", "not the expected message `hello`"),
        ({"hello": "localhost"}, "127.0.0.1", "not a message of this exchange"),
    ],
)
def test_the_key_exchange_lets_in_hosts_of_the_job_only(
    container: Container, sent: object, address: str, reason: str
) -> None:
    module = types.ModuleType("start_job")
    exec(container.program.read_text().removesuffix("main()\n"), module.__dict__)
    accepted: list[str] = []
    keys = types.SimpleNamespace(
        name="algo-1",
        host_key=KEY,
        user_key=KEY,
        pin=lambda host, key: accepted.append(host),
        authorize=lambda host, key: accepted.append(host),
    )
    server, client = socket.socketpair()
    with server, client:
        client.sendall(f"{json.dumps(sent)}\n".encode())
        with pytest.raises(ValueError, match=reason):
            module.Talk(server, keys).answer(address, {"localhost"})
    assert accepted == []

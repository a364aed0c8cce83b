"""Files from the first source that has their bytes: cut, lied to, refused, interrupted, and two at once."""

import re
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path

import pytest

from bakehouse.fetch import downloader, http_client, retry
from bakehouse.fetch.cache import FileCache
from bakehouse.fetch.downloader import Fetcher, MissingError
from bakehouse.fetch.faults import Fault, SourceError
from bakehouse.fetch.http_client import SourceResponse
from bakehouse.fetch.local_mirror import HashCache, LocalMirrors
from bakehouse.fetch.pip_config import PipConfig
from bakehouse.fetch.sources import DownloadConfig, Offer
from bakehouse.util.oci import Sha256
from tests.support.data import text_of
from tests.support.fetchers import CONTENT, Fetching
from tests.support.file_server import FileServer, required_file, serving


@pytest.fixture
def machine(tmp_path: Path) -> Fetching:
    return Fetching(tmp_path)


@pytest.fixture
def servers() -> Iterator[list[FileServer]]:
    with ExitStack() as stack:
        yield [stack.enter_context(serving()) for _ in range(2)]


def reasons(error: pytest.ExceptionInfo[MissingError]) -> list[str]:
    return [message for _, message in error.value.failures]


def test_a_file_is_placed_as_a_mirror_has_it(machine: Fetching, servers: list[FileServer]) -> None:
    file = servers[0].put(CONTENT)
    with machine.run(servers[0].url) as fetcher:
        path = fetcher.get(file)
    assert path == machine.directory / "store" / str(file.sha256) / file.file
    assert path.read_bytes() == CONTENT


def test_stored_files_need_no_request(machine: Fetching, servers: list[FileServer]) -> None:
    file = servers[0].put(CONTENT)
    for _ in range(2):
        with machine.run(servers[0].url) as fetcher:
            fetcher.get(file)
    assert len(servers[0].requests) == 1


def test_a_connection_that_is_cut_goes_on_where_it_ended(
    machine: Fetching, servers: list[FileServer]
) -> None:
    file = servers[0].put(CONTENT)
    servers[0].cuts = [200_000, 100_000]
    with machine.run(servers[0].url) as fetcher:
        assert fetcher.get(file).read_bytes() == CONTENT
    assert servers[0].ranges() == ["", "bytes=200000-", "bytes=300000-"]
    assert servers[0].requests[1][1]["If-Range"] == '"one"'


def test_a_later_run_goes_on_where_an_earlier_one_ended(machine: Fetching, servers: list[FileServer]) -> None:
    file = servers[0].put(CONTENT)
    servers[0].cuts = [100_000] + [0] * 10
    with machine.run(servers[0].url) as fetcher, pytest.raises(MissingError):
        fetcher.get(file)
    servers[0].requests.clear()
    servers[0].cuts = []
    with machine.run(servers[0].url) as fetcher:
        assert fetcher.get(file).read_bytes() == CONTENT
    assert servers[0].ranges() == ["bytes=100000-"]


def test_another_source_goes_on_with_what_one_has_begun(machine: Fetching, servers: list[FileServer]) -> None:
    file = servers[0].put(CONTENT)
    servers[1].put(CONTENT)
    servers[0].cuts = [100_000] + [0] * 10
    with machine.run(servers[0].url, servers[1].url) as fetcher:
        assert fetcher.get(file).read_bytes() == CONTENT
    assert servers[1].ranges() == ["bytes=100000-"]
    assert "If-Range" not in servers[1].requests[0][1]


def test_a_file_that_has_changed_at_its_source_is_fetched_anew(
    machine: Fetching, servers: list[FileServer]
) -> None:
    file = servers[0].put(CONTENT)
    servers[0].cuts = [100_000] + [0] * 10
    with machine.run(servers[0].url) as fetcher, pytest.raises(MissingError):
        fetcher.get(file)
    servers[0].cuts, servers[0].etag = [], '"two"'
    with machine.run(servers[0].url) as fetcher:
        assert fetcher.get(file).read_bytes() == CONTENT


@pytest.mark.parametrize("lie", [CONTENT[:-1] + b"!", CONTENT[:-1], CONTENT + b"!", b"<html>log in</html>"])
def test_a_mirror_with_other_bytes_is_reported_and_the_next_one_asked(
    machine: Fetching, servers: list[FileServer], lie: bytes
) -> None:
    file = servers[0].put(CONTENT)
    servers[0].files[f"/{file.sha256}/{file.file}"] = lie
    servers[1].put(CONTENT)
    liar = servers[0].url.replace("//", "//user:canary@")
    with machine.run(liar, servers[1].url) as fetcher:
        assert fetcher.get(file).read_bytes() == CONTENT
        [line] = fetcher.lines()
    how = "returned a file that does not match the pinned sha256"
    if len(lie) != len(CONTENT):
        how = f"has {len(lie)} bytes instead of {len(CONTENT)}"
    assert line == f"part-1.0.tar.gz: mirror `{servers[0].url}` {how}; refused"


def test_bytes_of_a_liar_that_were_left_do_not_spoil_an_honest_source(
    machine: Fetching, servers: list[FileServer]
) -> None:
    file = servers[0].put(CONTENT)
    servers[0].files[f"/{file.sha256}/{file.file}"] = b"x" * len(CONTENT)
    servers[0].cuts = [100_000] + [0] * 10
    servers[1].put(CONTENT)
    with machine.run(servers[0].url, servers[1].url) as fetcher:
        assert fetcher.get(file).read_bytes() == CONTENT
        assert list(fetcher.lines()) == []
    assert servers[1].ranges() == ["bytes=100000-", ""]


def test_a_file_of_unknown_size(machine: Fetching, servers: list[FileServer]) -> None:
    file = required_file(CONTENT, "part-1.0.tar.gz", has_size=False)
    servers[0].put(b"other", path=f"/{file.sha256}/part-1.0.tar.gz")
    servers[1].put(CONTENT)
    with machine.run(servers[0].url, servers[1].url) as fetcher:
        assert fetcher.get(file).read_bytes() == CONTENT


def test_a_source_that_fails_once_is_asked_again(machine: Fetching, servers: list[FileServer]) -> None:
    file = servers[0].put(CONTENT)
    servers[0].statuses = [503]
    with machine.run(servers[0].url) as fetcher:
        assert fetcher.get(file).read_bytes() == CONTENT


def test_each_source_is_reported_with_its_answer(machine: Fetching, servers: list[FileServer]) -> None:
    file = servers[0].put(CONTENT)
    servers[0].statuses = [403, 403]
    with (
        machine.run(servers[0].url, "http://127.0.0.1:9", servers[1].url) as fetcher,
        pytest.raises(MissingError) as caught,
    ):
        fetcher.get(file)
    assert caught.value.failures == (
        (f"mirror `{servers[0].url}`", "refused access (403)"),
        ("mirror `http://127.0.0.1:9`", "is unreachable: connection refused"),
        (f"mirror `{servers[1].url}`", "does not have the file"),
    )


def test_a_source_that_is_down_is_not_asked_for_every_file(
    machine: Fetching, servers: list[FileServer], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(downloader, "MAX_CONCURRENT_DOWNLOADS", 1)
    files = [servers[1].put(CONTENT + bytes([number])) for number in range(3)]
    servers[0].statuses = []
    servers[0].cuts = [0] * 50
    for number in range(3):
        servers[0].put(CONTENT + bytes([number]))
    with machine.run(servers[0].url, servers[1].url) as fetcher:
        for file in files:
            fetcher.get(file)
    assert len(servers[0].requests) == 2


def test_a_silent_source_is_left(
    machine: Fetching, servers: list[FileServer], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_client, "READ_SECONDS", 0.5)
    servers[0].gate = threading.Event()
    servers[0].put(CONTENT)
    file = servers[1].put(CONTENT)
    with machine.run(servers[0].url, servers[1].url, patience=60.0) as fetcher:
        assert fetcher.get(file).read_bytes() == CONTENT


def test_no_source_is_asked_once_patience_is_over(
    machine: Fetching, servers: list[FileServer], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(downloader, "_OPEN_SECONDS", 0.0)
    file = servers[1].put(CONTENT)
    servers[0].statuses = [503] * 9
    with (
        machine.run(servers[0].url, servers[1].url, patience=0.0) as fetcher,
        pytest.raises(MissingError) as caught,
    ):
        fetcher.get(file)
    assert reasons(caught)[-1] == "not tried: no time left"
    assert servers[1].requests == []


def test_a_source_that_trickles_is_left_for_the_next(
    machine: Fetching, servers: list[FileServer], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_client, "_SLOW_SECONDS", 0.3)
    servers[0].pause = 0.02
    servers[0].put(CONTENT)
    file = servers[1].put(CONTENT)
    with machine.run(servers[0].url, servers[1].url) as fetcher:
        assert fetcher.get(file).read_bytes() == CONTENT
    assert len(servers[0].requests) == 1


def test_a_very_slow_source_is_reported_if_it_is_the_only_one(
    machine: Fetching, servers: list[FileServer], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_client, "_SLOW_SECONDS", 0.3)
    servers[0].pause = 0.02
    file = servers[0].put(CONTENT)
    with machine.run(servers[0].url) as fetcher, pytest.raises(MissingError) as caught:
        fetcher.get(file)
    [reason] = reasons(caught)
    assert re.fullmatch(r"sent \d+ bytes in [\d.]+ s: too slow", reason)


def failures_of_files(
    directory: Path,
    source: Callable[[int, str], AbstractContextManager[SourceResponse]],
    count: int,
    patience: float,
) -> set[tuple[tuple[str, str], ...]]:
    """Return the failures of files that one source has."""
    local = LocalMirrors([], HashCache(directory / "hashes.json"))
    offers = [Offer("mirror", "there", source)]
    with Fetcher(
        FileCache(directory / "store", print), local, offers=lambda _: offers, patience=patience
    ) as fetcher:
        transfers = [fetcher.ask(required_file(bytes([number]), f"{number}.whl")) for number in range(count)]
        for transfer in transfers:
            transfer.done.wait()
    return {transfer.failure.failures for transfer in transfers if isinstance(transfer.failure, MissingError)}


def test_many_unavailable_files_take_as_long_as_one(
    machine: Fetching, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(downloader, "MAX_CONCURRENT_DOWNLOADS", 1)
    monkeypatch.setattr(retry, "_DOWN_SECONDS", 0.0)
    starts = []

    @contextmanager
    def silent(start: int, validator: str) -> Iterator[SourceResponse]:
        starts.append(start)
        threading.Event().wait(0.2)
        reason = "silent"
        raise SourceError(reason, Fault.SILENT)
        yield

    assert failures_of_files(machine.directory, silent, 20, 0.5) == {(("mirror", "silent"),)}
    assert 0 < len(starts) < 5


def test_sources_that_answer_are_all_asked_however_long_that_takes(
    machine: Fetching, servers: list[FileServer], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(downloader, "MAX_CONCURRENT_DOWNLOADS", 1)

    @contextmanager
    def without(start: int, validator: str) -> Iterator[SourceResponse]:
        threading.Event().wait(0.4)
        reason = "does not have the file"
        raise SourceError(reason)
        yield

    failures = failures_of_files(machine.directory, without, 7, 2.0)
    assert failures == {(("mirror", "does not have the file"),)}


def test_a_damaged_file_is_removed_reported_and_fetched_again(
    machine: Fetching, servers: list[FileServer]
) -> None:
    file = servers[0].put(CONTENT)
    with machine.run(servers[0].url) as fetcher:
        path = fetcher.get(file)
    path.write_bytes(b"damaged")
    with machine.run(servers[0].url) as fetcher:
        assert fetcher.get(file).read_bytes() == CONTENT
    assert machine.messages == [f"{path} is damaged; removed"]


def test_a_file_of_a_mirror_directory_is_used_in_place(
    machine: Fetching, servers: list[FileServer], tmp_path: Path
) -> None:
    file = required_file(CONTENT, "part-1.0.tar.gz")
    (tmp_path / "mirror").mkdir()
    (tmp_path / "mirror/part-1.0.tar.gz").write_bytes(CONTENT)
    with machine.run(str(tmp_path / "mirror"), servers[0].url) as fetcher:
        assert fetcher.get(file) == tmp_path / "mirror/part-1.0.tar.gz"
    assert servers[0].requests == []
    assert not (tmp_path / "store" / str(file.sha256)).exists()


def test_what_could_not_be_had_is_tried_again_when_it_is_asked_for_again(
    machine: Fetching, servers: list[FileServer]
) -> None:
    file = required_file(CONTENT, "part-1.0.tar.gz")
    with machine.run(servers[0].url) as fetcher:
        with pytest.raises(MissingError):
            fetcher.get(file)
        assert [failure.file for failure in fetcher.take_failures()] == [file]
        assert fetcher.take_failures() == ()
        servers[0].put(CONTENT)
        assert fetcher.get(file).read_bytes() == CONTENT


def test_what_was_removed_meanwhile_is_fetched_again(machine: Fetching, servers: list[FileServer]) -> None:
    file = servers[0].put(CONTENT)
    with machine.run(servers[0].url) as fetcher:
        fetcher.get(file)
        FileCache(machine.directory / "store", print).clear()
        assert fetcher.get(file).read_bytes() == CONTENT


def test_a_file_of_this_machine_that_can_not_be_trusted_is_fetched_instead(
    machine: Fetching, servers: list[FileServer], tmp_path: Path
) -> None:
    file = servers[0].put(CONTENT)
    path = tmp_path / "mirror/part-1.0.tar.gz"
    path.parent.mkdir()
    path.write_bytes(b"x" * len(CONTENT))
    hashes = HashCache(tmp_path / "hashes.json")
    hashes.remember(path, Sha256(str(file.sha256)))
    offers = DownloadConfig((servers[0].url,), PipConfig(no_index=True), None, {"HOME": str(tmp_path)}).offers
    store, local = FileCache(tmp_path / "store", print), LocalMirrors([path.parent], hashes)
    with Fetcher(store, local, offers=offers, copies=True) as fetcher:
        assert fetcher.get(file).read_bytes() == CONTENT
        assert list(fetcher.lines()) == [f"{path} changed on disk; ignored"]


RUN = text_of(__file__, "run")


def a_process(directory: Path, url: str) -> "subprocess.Popen[str]":
    command = [sys.executable, "-c", RUN, str(directory), url]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout
    assert process.stdout.readline() == "ready\n"
    return process


def go(process: "subprocess.Popen[str]") -> None:
    assert process.stdin
    process.stdin.write("go\n")
    process.stdin.flush()


def test_two_processes_at_once_fetch_a_file_once(machine: Fetching, servers: list[FileServer]) -> None:
    servers[0].put(CONTENT)
    servers[0].gate = threading.Event()
    processes = [a_process(machine.directory, servers[0].url) for _ in range(2)]
    go(processes[0])
    assert servers[0].half_sent.wait(60)
    go(processes[1])
    servers[0].gate.set()
    paths = {process.communicate()[0].strip() for process in processes}
    assert len(paths) == 1
    assert Path(paths.pop()).read_bytes() == CONTENT
    assert len(servers[0].requests) == 1


def test_an_interrupt_leaves_only_what_the_next_run_goes_on_with(
    machine: Fetching, servers: list[FileServer]
) -> None:
    file = servers[0].put(CONTENT)
    servers[0].gate = threading.Event()
    process = a_process(machine.directory, servers[0].url)
    go(process)
    part = machine.directory / "store/.parts" / str(file.sha256)
    assert servers[0].half_sent.wait(60)
    while not (part.exists() and part.stat().st_size):
        assert process.poll() is None
    process.send_signal(signal.SIGINT)
    assert process.communicate()[0] == "interrupted\n"
    assert not (machine.directory / "store" / str(file.sha256)).exists()
    size = part.stat().st_size

    servers[0].gate.set()
    with machine.run(servers[0].url) as fetcher:
        assert fetcher.get(file).read_bytes() == CONTENT
    assert servers[0].ranges()[-1] == f"bytes={size}-"

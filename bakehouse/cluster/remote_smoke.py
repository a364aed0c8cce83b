"""Smoke checks on other machines: a script for the hosts of a job, and a report from the results it writes.

`probes/remote_smoke.py` runs the checks of `smoke_checks` in one container per host. Their results are
evaluated here by the rules of a local smoke test.
"""

import base64
import hashlib
import itertools
import json
import re
import secrets
import zlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from bakehouse.builder import verify
from bakehouse.catalog.base_contents import KEY_DIRECTORIES, KEY_MARK
from bakehouse.cluster import check_keys, smoke_report
from bakehouse.cluster.check_keys import COMPONENT_SECONDS, REMOTE_PROBE, STARTUP, obstacle_to, startup_of
from bakehouse.cluster.job import TrainingJob, input_files
from bakehouse.cluster.job_runner import HostResult, JobResult, split_logs
from bakehouse.cluster.ranks import read_events
from bakehouse.cluster.smoke import empty_directory
from bakehouse.cluster.smoke_checks import SmokeCheck, Startup, job_checks
from bakehouse.cluster.smoke_report import COMPONENTS, PRIVATE_KEYS, CheckResult, Setup, SmokeReport
from bakehouse.cluster.smoke_results import (
    component_results,
    evaluate_job,
    evaluate_user_job,
    key_result,
    not_tested,
)
from bakehouse.errors import SmokeError
from bakehouse.plan.model import Image
from bakehouse.util import archive_reader
from bakehouse.util.files import read_bytes, read_text, write_whole
from bakehouse.util.hashing import key_of
from bakehouse.util.json_reader import parse_json
from bakehouse.util.oci import ContentId, Digest

UNKNOWN = ContentId("")
JOIN_SECONDS = 900.0
"""Seconds that the first host waits for the others."""
MARK = "bakehouse-smoke-results"
"""Start of the lines of a job's log that contain its results."""
_MAX_RESULTS = 200_000_000
_MARKED = re.compile(rf"{MARK} (?P<number>\d+)/(?P<count>\d+) (?P<text>[A-Za-z0-9+/=]+)")


@dataclass(frozen=True, slots=True)
class RemoteSmoke:
    """Smoke checks of a published image on hosts with the same number of GPUs."""

    image: Image
    uri: str
    """Image URI by digest."""
    content: ContentId = UNKNOWN
    """Content that the report is for; empty for a job that is only written."""
    hosts: int = 1
    gpus: int = 0
    """GPUs of each host."""
    gpu_ids: tuple[str, ...] = ()
    """These GPUs of the host, as numbers or UUIDs; empty means the first ones."""
    only: tuple[str, ...] = ()
    deadline: float | None = None
    """Seconds for each check, instead of the check's own limit."""
    base_keys: frozenset[str] = frozenset()

    def script(self) -> bytes:
        """Return the script that runs the checks; it contains all their files."""
        plan = {**self._plan(), "token": secrets.token_hex(16)}
        text = base64.b64encode(zlib.compress(json.dumps(plan, sort_keys=True).encode(), 9)).decode()
        return read_bytes(REMOTE_PROBE) + f'\n\nif __name__ == "__main__":\n    main("{text}")\n'.encode()

    def report(self, document: Mapping[str, Any], logs: Path, machine: str, origin: str) -> SmokeReport:
        """Evaluate the results of the script. Checks without a result are listed as unfinished.

        Raises SmokeError for results of another image or of other checks.
        """
        self._require_own(document)
        startup = startup_of(str(document["startup"]).split())
        setup = self._setup(startup)
        results: list[CheckResult] = []
        unfinished: list[str] = []
        if self._is_selected(PRIVATE_KEYS):
            keys = [path for path, sha256 in document["keys"] if sha256 not in self.base_keys]
            results.append(key_result(keys, 0.0))
        for name, check in self._checks(startup).items():
            run = document["results"].get(name)
            if check and not (job := self._runnable(check)):
                results.append(not_tested(check, obstacle_to(check, setup)))
            elif run is None:
                unfinished.append(name)
            elif check and job:
                evaluate = evaluate_user_job if check.smoke else evaluate_job
                directory = empty_directory(logs / name)
                results.append(evaluate(check, job, _job_result(job, run, directory), directory))
            else:
                results += self._components(run, empty_directory(logs / name) / "components.log")
        date = datetime.fromtimestamp(document["finished"], UTC).isoformat()
        return SmokeReport(
            self.image.name,
            self.content,
            smoke_report.transport_of(results),
            check_keys.with_keys(results, self.image, setup, self.base_keys, date, machine),
            machine,
            date=date,
            origin=origin,
            unfinished=tuple(unfinished),
            interrupted=str(document["interrupted"]),
        )

    def _require_own(self, document: Mapping[str, Any]) -> None:
        if document["image"] != self.uri:
            facts = (("expected", self.uri), ("found", str(document["image"])))
            raise SmokeError("the results are of another image", facts=facts)
        expected = self._plan()["id"]
        if document["id"] != expected:
            facts = (("expected", expected[:12]), ("found", str(document["id"])[:12]))
            raise SmokeError(
                "the results are of other checks",
                facts=facts,
                hint="run the checks again with this version of the recipe and of Bakehouse",
            )

    def _is_selected(self, name: str) -> bool:
        return not self.only or name in self.only

    def _checks(self, startup: Startup) -> dict[str, SmokeCheck | None]:
        """Return the selected checks by name; None is the check of the components."""
        checks = job_checks(self.image, self.uri, self.gpus * self.hosts, startup, self.hosts)
        by_name: dict[str, SmokeCheck | None] = {COMPONENTS: None, **{check.name: check for check in checks}}
        return {name: check for name, check in by_name.items() if self._is_selected(name)}

    def _setup(self, startup: Startup) -> Setup:
        return Setup(check_keys.words_of(startup), self.hosts, self.gpus * self.hosts, is_remote=True)

    def _runnable(self, check: SmokeCheck) -> TrainingJob | None:
        if check.job is None or obstacle_to(check, self._setup(Startup())):
            return None
        job = replace(check.job, deadline=self.deadline or check.job.deadline)
        return replace(job, channels={**job.channels, **_channels(job)}, channel_directories={})

    def _plan(self) -> dict[str, Any]:
        blobs: dict[str, str] = {}
        variants = {
            " ".join(words): [*self._steps(startup_of(words), blobs)]
            for count in range(len(check_keys.WORDS) + 1)
            for words in itertools.combinations(check_keys.WORDS, count)
        }
        plan = {
            "image": self.uri,
            "startup": STARTUP,
            "variants": variants,
            "blobs": blobs,
            "key_directories": KEY_DIRECTORIES,
            "key_mark": KEY_MARK,
            "join_seconds": JOIN_SECONDS,
        }
        # The script itself decides what a result means.
        return {**plan, "id": key_of(plan, read_text(REMOTE_PROBE))}

    def _steps(self, startup: Startup, blobs: dict[str, str]) -> Iterator[dict[str, Any]]:
        """Yield the steps of the script: first the components, because jobs leave files in the container."""
        for name, check in self._checks(startup).items():
            if check is None:
                seconds = self.deadline or COMPONENT_SECONDS
                spec = verify.check_spec(self.image, Digest(""), seconds)
                yield {
                    **_step(name, (*self.image.entrypoint, *spec.command), seconds),
                    "files": {"algo-1": _blobs(spec.files, blobs)},
                    "answers": True,
                }
            elif job := self._runnable(check):
                yield {
                    # On the hosts of a job, the entry point may choose libraries for their driver.
                    **_step(name, (*self.image.entrypoint, *(job.command or ("train",))), job.deadline),
                    "hosts": job.size,
                    "grace": job.grace,
                    "environment": {"TRAINING_JOB_NAME": job.name, **job.environment},
                    "files": {host: _blobs(input_files(job, host), blobs) for host in job.host_names},
                    "own_code": check.smoke is not None,
                }

    def _components(self, run: Mapping[str, Any], log: Path) -> tuple[CheckResult, ...]:
        [host] = run["hosts"].values()
        write_whole(log, host["log"])
        code = host["exit_code"]
        end = f"exited with {code}" if code is not None else f"no result within {run['seconds']:g} s"
        probes = verify.check_results(self.image, host["answers"], run["seconds"], log, end)
        return component_results(probes)


def read_results(text: str, source: str) -> dict[str, Any]:
    """Return the results in a file that the script wrote, or in the log of a job; raise SmokeError."""
    try:
        if marked := {int(match["number"]): match for match in _MARKED.finditer(text)}:
            pieces = [marked[number]["text"] for number in range(1, int(marked[1]["count"]) + 1)]
            content = archive_reader.decompress([base64.b64decode("".join(pieces))], "gzip")
            text = b"".join(archive_reader.limited(content, _MAX_RESULTS)).decode()
        document = dict(parse_json(text))
        for field in ("id", "image", "startup", "keys", "results", "interrupted", "finished"):
            document[field]
    except (ValueError, KeyError, TypeError) as error:
        facts = (("because", f"{type(error).__name__}: {error}"),)
        raise SmokeError(
            f"{source} contains no complete results of smoke checks", facts=facts, hint="run the checks again"
        ) from error
    return document


def _step(name: str, command: Iterable[str], seconds: float) -> dict[str, Any]:
    return {
        "name": name,
        "command": list(command),
        "seconds": seconds,
        "hosts": 1,
        "grace": 0.0,
        "environment": {},
        "own_code": False,
        "answers": False,
    }


def _blobs(files: Mapping[str, bytes], blobs: dict[str, str]) -> dict[str, str]:
    """Return the sha256 of each file, and add its content to `blobs`."""
    hashes = {path: hashlib.sha256(content).hexdigest() for path, content in files.items()}
    blobs |= {hashes[path]: base64.b64encode(content).decode() for path, content in files.items()}
    return hashes


def _channels(job: TrainingJob) -> dict[str, dict[str, bytes]]:
    """Return the files of the channels that are directories."""
    channels: dict[str, dict[str, bytes]] = {name: {} for name in job.channel_directories}
    for path, file in check_keys.channel_files(job):
        name, _, inner = path.partition("/")
        channels[name][inner] = read_bytes(file)
    return channels


def _job_result(job: TrainingJob, run: Mapping[str, Any], directory: Path) -> JobResult:
    """Return the result of a check as if its job had run here."""
    for host in job.host_names:
        write_whole(directory / f"{host}.log", run["hosts"][host]["log"])
    logs, rank_logs = split_logs(job, directory)
    results = [(host, run["hosts"][host]) for host in job.host_names]
    return JobResult(
        tuple(
            HostResult(
                host,
                result["exit_code"],
                success=result["success"],
                failure=result["failure"],
                model=result["model"],
                seconds=result["seconds"],
            )
            for host, result in results
        ),
        read_events(text.encode() for _, result in results for text in result["events"]),
        logs,
        rank_logs,
        run["timed_out"],
        run["seconds"],
    )

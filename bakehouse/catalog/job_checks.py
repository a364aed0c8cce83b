"""The smoke checks that run a job, from `data/job_checks.toml`. To add one, add a table and a script."""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from bakehouse.util.files import read_text

EFA_BANDWIDTH = "efa_bandwidth"
"""Name of the key of recipes with the bandwidth that this check must reach."""
_TABLE = Path(__file__).with_name("data") / "job_checks.toml"


@dataclass(frozen=True, slots=True)
class JobCheck:
    """A job that shows whether an image can train."""

    name: str
    proves: str
    leaves_open: str
    """Facts that a passed check does not show."""
    script: str = ""
    """File in `bakehouse/probes`; empty for the script of a component or of the user."""
    start: Literal["train", "direct", "either"] = "train"
    """With `train` as SageMaker starts it, without it, or without it if the image has no toolkit."""
    launcher: str = ""
    interpreter: str = "python3"
    """Words before the script, without a toolkit."""
    contents: tuple[str, ...] = ()
    """The check is for images that contain one of these; empty means all images."""
    hosts: int = 1
    processes: int = 1
    """Ranks on each host, without GPUs."""
    gpus: str = ""
    """Scope of the GPUs: `one` host, `all` hosts of the job, `several` hosts, or `shared` by two hosts."""
    arguments: Mapping[str, str | int] = field(default_factory=dict)
    """Arguments of the script. The toolkit gets them as hyperparameters."""
    environment: Mapping[str, str] = field(default_factory=dict)
    channels: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """Content of the files of each input channel."""
    must_fail: bool = False
    """The check passes if the job reports its failure as SageMaker requires."""
    needs_model: bool = False
    records_ranks: bool = True
    """The script records the events of each rank."""
    needs_efa: bool = False
    """The hosts must communicate over EFA; without EFA devices the script reports that it tested nothing."""
    transport: str = ""
    """Library with which ranks communicate."""
    seconds: float = 300.0


def _read() -> dict[str, JobCheck]:
    rows = tomllib.loads(read_text(_TABLE)).items()
    return {name: JobCheck(name, **{**row, "contents": tuple(row.get("contents", ()))}) for name, row in rows}


JOB_CHECKS = _read()
"""The checks by name, longest first."""
GPU_CHECKS = tuple(check.name for check in JOB_CHECKS.values() if check.gpus)
"""Smoke checks that fail or are not tested without a GPU. No other check counts as a test on GPUs."""

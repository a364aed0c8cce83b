"""Smoke tests on another machine: their plans and results."""

import base64
import json
import zlib
from dataclasses import replace
from typing import Any

from bakehouse.cluster.remote_smoke import RemoteSmoke
from tests.support.fake_engine import CONTENT, DIGEST, image

URI = f"123456789012.dkr.ecr.eu-west-1.amazonaws.com/team/mpi-cpu@{DIGEST}"


def step(name: str, *scripts: str, seconds: float = 20.0, answers: bool = False) -> dict[str, Any]:
    """Return a step that runs a shell script on each host."""
    hosts = [f"algo-{number}" for number in range(1, len(scripts) + 1)]
    return {
        "name": name,
        "command": ["sh", "/opt/ml/input/data/run.sh"],
        "seconds": seconds,
        "hosts": len(hosts),
        "grace": 0.2,
        "environment": {"WHERE": "/opt/ml/output"},
        "files": {
            host: {"/opt/ml/input/data/run.sh": script} for host, script in zip(hosts, scripts, strict=True)
        },
        "own_code": False,
        "answers": answers,
    }


def remote(**changed: Any) -> RemoteSmoke:
    return replace(RemoteSmoke(image(), URI, CONTENT, only=("train_success", "mpi_2x2")), **changed)


def plan_of(smoke: RemoteSmoke) -> dict[str, Any]:
    return plan_in(smoke.script().decode())


def plan_in(script: str) -> dict[str, Any]:
    """Return the plan of a script."""
    text = script.rpartition('main("')[2].partition('"')[0]
    return dict(json.loads(zlib.decompress(base64.b64decode(text))))


def document(smoke: RemoteSmoke, **results: Any) -> dict[str, Any]:
    """Return the results of the script."""
    fields = {"id": plan_of(smoke)["id"], "image": smoke.uri, "startup": "train toolkit", "keys": []}
    return {**fields, "results": results, "interrupted": "", "finished": 1795430000}


def run_of(*codes: int | None, timed_out: bool = False, log: str = "") -> dict[str, Any]:
    """Return the result of one check on the hosts."""
    events = "".join(
        json.dumps({"rank": 0, "host": "algo-1", "step": step, "at": 1.0}) + "\n"
        for step in ("started", "arrived", "finished")
    )
    hosts = {
        f"algo-{number}": {
            **{"exit_code": code, "seconds": 1.0, "success": code == 0, "failure": None, "log": log},
            **{"model": {"model.json": 2}, "events": [events], "answers": ""},
        }
        for number, code in enumerate(codes, 1)
    }
    return {"seconds": 2.0, "timed_out": timed_out, "hosts": hosts}

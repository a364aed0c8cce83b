"""Results of checks in the state directory: for each content ID, the last result of each check.

Only this machine writes them, and reports that it accepted from others. Gates believe them, so they are never
read from the checkout.
"""

import json
from collections.abc import Iterable
from dataclasses import asdict
from datetime import datetime
from pathlib import Path

from bakehouse.builder.verify import Outcome
from bakehouse.cluster.smoke_report import CheckResult, age_of
from bakehouse.errors import SmokeError
from bakehouse.evidence.step_layers import check_file
from bakehouse.util import file_format
from bakehouse.util.file_lock import exclusive
from bakehouse.util.files import read_bytes, write_whole
from bakehouse.util.json_reader import decode, parse_json
from bakehouse.util.oci import ContentId

_FORMAT = 1
_PRECEDENCE = (Outcome.NOT_TESTED, Outcome.PASSED, Outcome.FAILED)
VERSIONS = "versions"
"""Name of the check of a build; smoke checks have other names."""
Rows = tuple[CheckResult, ...]


def load(state: Path, content: ContentId) -> Rows:
    """Return the results of an image's checks. Raises SmokeError if they cannot be read."""
    path = check_file(state, content)
    try:
        document = parse_json(read_bytes(path))
        file_format.require_known(document, _FORMAT)
        rows = decode(dict(document)["rows"], Rows)
        for row in rows:
            age_of(row.date)
    except FileNotFoundError:
        return ()
    except file_format.NewerFormatError as error:
        facts = (("because", str(error)),)
        raise SmokeError(f"cannot read `{path}`", facts=facts, hint=file_format.UPGRADE) from error
    except (OSError, ValueError, TypeError, KeyError) as error:
        facts = (("because", str(error)),)
        hint = "remove it, then run `bake smoke` again"
        raise SmokeError(f"`{path}` has no valid results of checks", facts=facts, hint=hint) from error
    return rows


def record(state: Path, content: ContentId, new: Iterable[CheckResult]) -> None:
    """Add results of an image's checks."""
    path = check_file(state, content)
    with exclusive(path.with_suffix(".lock")):
        rows = merge((*load(state, content), *(row for row in new if row.key)))
        document = file_format.numbered({"rows": [*map(asdict, rows)]}, _FORMAT)
        write_whole(path, json.dumps(document, indent=1, default=str) + "\n")


def merge(rows: Iterable[CheckResult]) -> Rows:
    """Return one result for each key: the last one, a failure before a pass of the same time.

    A run that did not test anything replaces neither.
    """
    kept: dict[tuple[str, str], CheckResult] = {}
    for row in rows:
        other = kept.get((row.name, row.key))
        if other is None or _rank(other) < _rank(row):
            kept[row.name, row.key] = row
    return tuple(kept[name_key] for name_key in sorted(kept))


def _rank(row: CheckResult) -> tuple[bool, datetime, int, str]:
    is_result = row.outcome is not Outcome.NOT_TESTED
    return is_result, datetime.fromisoformat(row.date), _PRECEDENCE.index(row.outcome), repr(row)

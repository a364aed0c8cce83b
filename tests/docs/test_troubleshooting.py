"""The messages of the troubleshooting page are those of the code."""

import re

from bakehouse.catalog.project import HOME
from tests.support.documents import table_rows

PAGE = HOME / "docs/reference/troubleshooting.md"
OTHERS = {
    "externally-managed-environment",
    "bake: command not found",
    "SM_CHANNEL_…",
    "snapshot … does not exist",
}
"""Messages of pip, the shell, Python and BuildKit."""


def test_each_message_is_printed_by_the_code() -> None:
    code = "".join(path.read_text(encoding="utf-8") for path in (HOME / "bakehouse").rglob("*.py"))
    messages = [re.findall("`([^`]+)`", row[0])[:1] for row in table_rows(PAGE.read_text(encoding="utf-8"))]
    quoted = {message for names in messages for message in names}

    assert quoted > OTHERS
    assert [message for message in sorted(quoted - OTHERS) if message not in code] == []

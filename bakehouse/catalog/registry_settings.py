"""What a project says of a registry that it publishes to."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Creation:
    """What a repository of Amazon ECR is like when Bakehouse makes it."""

    scan_on_push: bool = False
    encryption: str = ""
    """`AES256`, `KMS` for AWS's own key, or a key's ARN; empty is ECR's default."""
    tags: Mapping[str, str] = field(default_factory=dict)
    lifecycle: Path | None = None
    """A file with a lifecycle policy."""
    untagged_days: int = 0
    """Days after which an image without tags expires; 0 is never."""
    pull_accounts: tuple[str, ...] = ()
    """Accounts that may pull."""
    pull_organization: str = ""
    """The organisation of AWS whose accounts may pull."""


@dataclass(frozen=True, slots=True)
class RegistrySettings:
    """One table of `[tool.bakehouse.registries]`."""

    name: str
    host: str = ""
    """Of a registry that isn't Amazon ECR."""
    account: str = ""
    """Whose ECR it is."""
    regions: tuple[str, ...] = ()
    """All of them get each image; the first one's address is the image's."""
    prefix: str = ""
    """What its repositories begin with; empty is the project's."""
    profile: str = ""
    role: str = ""
    """The ARN of a role to assume."""
    fips: bool = False
    dual_stack: bool = False
    scan: str = ""
    """The least severity of a finding that keeps an image from being released; empty asks for no scan."""
    create: Creation = field(default_factory=Creation)

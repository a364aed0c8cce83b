"""Search for secrets in recipes and settings, by name, by form and by entropy.

Names and forms follow the rules of gitleaks. Everybody who can pull an image can read its environment.
"""

import math
import re
from collections import Counter

_FORMS = {
    "an AWS access key": r"\b(A3T[A-Z0-9]|AKIA|ASIA|ABIA|ACCA)[A-Z2-7]{16}\b",
    "a GitHub token": r"\bgh[pousr]_[0-9A-Za-z]{36}|\bgithub_pat_\w{20}",
    "a GitLab token": r"\bgl(pat|ptt|rt|dt)-[\w-]{20}",
    "a Hugging Face token": r"\b(hf|api_org)_[A-Za-z]{30}",
    "a key of OpenAI or Anthropic": r"\bsk-[A-Za-z0-9_-]{20}",
    "a Slack token": r"\bxox[abeoprs]-[0-9A-Za-z-]{10}",
    "a Google API key": r"\bAIza[\w-]{35}",
    "a token of a package registry": r"\bpypi-[\w-]{50}|\bnpm_[A-Za-z0-9]{36}",
    "a Databricks token": r"\bdapi[0-9a-f]{32}",
    "a Stripe key": r"\b[rs]k_(live|test|prod)_[A-Za-z0-9]{10}",
    "a JSON web token": r"\bey[A-Za-z0-9]{17,}\.ey[A-Za-z0-9/_-]{17,}\.",
    "a private key": r"-----BEGIN[ A-Z0-9_-]{0,100}PRIVATE KEY",
    "a URL with a password": r"://[^/@:\s]+:[^/@\s]+@",
}
_NAME = re.compile(
    r"(^|_)(SECRET|PASSWORD|PASSWD|PASSPHRASE|TOKEN|CREDENTIALS?|(API|ACCESS|SECRET|PRIVATE|AUTH)_?KEY)(_|$)",
    re.I,
)
_HARMLESS = re.compile(r"|true|false|yes|no|on|off|none|auto|[0-9.]+|(~|\.{1,2})?/.*|file:.*", re.IGNORECASE)
"""Values that are not secrets whatever the name: switches, numbers and paths."""
_VARIABLE = re.compile(r"\$(\w+|\{[^}]*\})")
_RANDOM = re.compile(r"(?=.*[0-9])(?=.*[a-z])(?=.*[A-Z])[A-Za-z0-9+/_=-]{32,}")
_RANDOM_BITS = 4.3
"""Entropy of each character, in bits. Hexadecimal digests have at most 4."""


def kind_of_secret(name: str, value: str) -> str:
    """Return the kind of secret that a variable seems to contain; empty if it seems harmless."""
    if kind := _by_form(value):
        return kind
    if _NAME.search(name) and not _HARMLESS.fullmatch(value):
        return "a secret, by its name"
    return "a random key" if _RANDOM.fullmatch(value) and _entropy(value) >= _RANDOM_BITS else ""


def secret_in(command: str) -> str:
    """Return the kind of secret that a command of a shell contains; its variables are harmless."""
    return _by_form(_VARIABLE.sub("", command))


def _by_form(text: str) -> str:
    return next((kind for kind, form in _FORMS.items() if re.search(form, text)), "")


def _entropy(text: str) -> float:
    """Return the Shannon entropy of the characters, in bits."""
    counts = Counter(text).values()
    return -sum(count / len(text) * math.log2(count / len(text)) for count in counts)

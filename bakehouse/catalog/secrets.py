"""Search for secrets in recipes, settings and files, by name, by form and by entropy.

Names and forms follow the rules of gitleaks. Everybody who can pull an image can read its environment and
files. The smoke check `no_secrets` runs a copy of this module, so it imports the standard library only and
runs on Python 3.8.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from typing import BinaryIO, Iterator, NamedTuple  # noqa: UP035

_FORMS = {
    "a GitHub token": r"\bgh[pousr]_[0-9A-Za-z]{36}|\bgithub_pat_\w{20}",
    "a GitLab token": r"\bgl(?:pat|ptt|rt|dt)-[\w-]{20}",
    "a Hugging Face token": r"\b(?:hf|api_org)_[A-Za-z]{30}",
    "a Slack token": r"\bxox[abeoprs]-[0-9A-Za-z-]{10}",
    "a Google API key": r"\bAIza[\w-]{35}",
    "a token of a package registry": r"\bpypi-[\w-]{50}|\bnpm_[A-Za-z0-9]{36}",
    "a Databricks token": r"\bdapi[0-9a-f]{32}",
    "a Stripe key": r"\b[rs]k_(?:live|prod)_[A-Za-z0-9]{10}",
}
_VALUE_FORMS = {
    "an AWS access key": r"\b(A3T[A-Z0-9]|AKIA|ASIA|ABIA|ACCA)[A-Z2-7]{16}\b",
    **_FORMS,
    "a key of OpenAI or Anthropic": r"\bsk-[A-Za-z0-9_-]{20}",
    "a Stripe key": r"\b[rs]k_(live|test|prod)_[A-Za-z0-9]{10}",
    "a JSON web token": r"\bey[A-Za-z0-9]{17,}\.ey[A-Za-z0-9/_-]{17,}\.",
    "a private key": r"-----BEGIN[ A-Z0-9_-]{0,100}PRIVATE KEY",
    "a URL with a password": r"://[^/@:\s]+:[^/@\s]+@",
}
"""Forms of values and commands, which are short and rarely examples."""
_FILE_FORMS = {
    "an AWS access key": (
        r"\b(?:AKIA|ASIA|ABIA|ACCA)[0-9A-Z]{16}\b(?<!EXAMPLE)",
        *("AKIA", "ASIA", "ABIA", "ACCA"),
    ),
    "an AWS secret access key": (
        r"(?i:secret_?access_?key)[\"']?[ \t]{0,9}[=:][ \t]{0,9}[\"']?[A-Za-z0-9/+]{40}(?![A-Za-z0-9/+=])",
        *("ecret_access_key", "ECRET_ACCESS_KEY", "ecretAccessKey"),
    ),
    **{
        kind: (_FORMS[kind], *literals)
        for kind, literals in {
            "a GitHub token": ("ghp_", "gho_", "ghu_", "ghs_", "ghr_", "github_pat_"),
            "a GitLab token": ("glpat-", "glptt-", "glrt-", "gldt-"),
            "a Hugging Face token": ("hf_", "api_org_"),
            "a Slack token": ("xox",),
            "a Google API key": ("AIza",),
            "a token of a package registry": ("pypi-", "npm_"),
            "a Databricks token": ("dapi",),
            "a Stripe key": ("k_live_", "k_prod_"),
        }.items()
    },
    "a Google client secret": (r"\bGOCSPX-[\w-]{28}", "GOCSPX-"),
    "a Google access token": (r"\bya29\.[\w-]{40}", "ya29."),
    "a key of OpenAI or Anthropic": (
        r"\bsk-(?:proj|svcacct|admin|ant)-[\w-]{20}|\bsk-[A-Za-z0-9]{20}T3BlbkFJ[A-Za-z0-9]{20}",
        *("sk-proj-", "sk-svcacct-", "sk-admin-", "sk-ant-", "T3BlbkFJ"),
    ),
    # Programs that read keys contain the first line alone.
    "a private key": (
        r"-----BEGIN[ A-Z0-9]{0,40}PRIVATE KEY(?: BLOCK)?-----"
        r"(?:[\s\"',+()]|\\[nr]|[A-Z][A-Za-z-]{2,20}: [^\n]{0,100}\n){0,40}[A-Za-z0-9+/=]{16}",
        "PRIVATE KEY",
    ),
    "a URL with a password": (
        r"://(?P<user>[\w.~%+-]{0,100}):(?P<password>[^\s/@:\"'<>{}$%\\(),;|*`\[\]&]{3,200})"
        r"@(?!localhost\b|127\.0\.0\.1\b|0\.0\.0\.0\b)[\w.-]+",
        "://",
    ),
    "a JSON web token": (r"\bey[A-Za-z0-9]{17,}\.ey[A-Za-z0-9/_-]{17,}\.[A-Za-z0-9/_-]{10}", ".ey"),
    "a key of Azure": (
        r"(?:AccountKey|SharedAccessKey)[ \t]{0,4}=[ \t]{0,4}[\"']?[A-Za-z0-9+/]{40,90}={1,2}"
        r"|[?&;]sig=[A-Za-z0-9%+/_-]{40}|\b[\w.~]{3}\dQ~[\w.~-]{31,34}",
        *("AccountKey", "SharedAccessKey", "sig=", "Q~"),
    ),
    "the URL of a webhook": (
        r"https://hooks\.slack(?:-gov)?\.com/(?:services|workflows|triggers)/[\w+/-]{30}"
        r"|https://(?:\w+\.)?discord(?:app)?\.com/api/webhooks/\d{15,21}/[\w-]{40}"
        r"|https://[\w.-]+\.webhook\.office\.com/webhookb2/[\w@-]{36,80}/\w{4,40}/[0-9a-f]{32}"
        r"|https://outlook\.office(?:365)?\.com/webhook/[\w@-]{36,80}/\w{4,40}/[0-9a-f]{32}"
        r"|https://chat\.googleapis\.com/v1/spaces/[\w-]{5,40}/messages\?key=[\w-]{20}"
        r"|https://hooks\.zapier\.com/hooks/catch/\d{5,12}/\w{6,12}"
        r"|https://maker\.ifttt\.com/trigger/[\w-]{1,60}(?:/json)?/with/key/[\w-]{20}"
        r"|https://api\.telegram\.org/bot\d{8,12}:[\w-]{35}"
        r"|https://open\.(?:feishu\.cn|larksuite\.com)/open-apis/bot/v2/hook/[0-9a-f-]{36}"
        r"|https://qyapi\.weixin\.qq\.com/cgi-bin/webhook/send\?key=[0-9a-f-]{36}"
        r"|https://[\w.-]{4,80}/hooks/(?=[a-z]*[0-9][a-z0-9]*\b)[a-z0-9]{26}\b",
        *("hooks.slack", "/api/webhooks/", ".webhook.office.com", "/webhook/", "chat.googleapis.com"),
        *("/hooks/", "maker.ifttt.com", "api.telegram.org", "/v2/hook/"),
    ),
    "a login in a header": (
        r"(?i:authorization)[\"']{0,2}[ \t]{0,4}[:=,][ \t]{0,4}[\"']?(?i:bearer|basic|token)[ \t]{1,4}"
        r"(?P<random>[\w.~+/=-]{16,400})(?![\w.~+/=-])",
        *("uthorization", "UTHORIZATION"),
    ),
    "a random key, by its name": (
        r"(?:[:=>][ \t]{0,4}[\"']?|,[ \t]{0,4}[\"'])(?P<key>[A-Za-z0-9+/_=-]{20,200})(?![\w.()+/=\[-])",
        *("key", "Key", "KEY", "oken", "OKEN", "ecret", "ECRET", "assw", "ASSW", "assphrase", "ASSPHRASE"),
    ),
    "a random key, by its option": (
        r"--[\w-]{0,40}(?i:key|token|secret|password)[ =][ \t]{0,4}[\"']?"
        r"(?P<random>[A-Za-z0-9+/_=-]{20,200})(?![\w.()+/=\[-])",
        *("key", "token", "secret", "password"),
    ),
    "a key of Weights & Biases": (r"wandb(?:\.login\(key=[\"']?| login )[0-9a-f]{40}\b", "wandb"),
    "a password of Git": (r"(?i:extraheader[ \t]{0,9}=[ \t]{0,9}authorization:)", "xtraheader"),
}
"""Forms of texts in files, each with literals of which one occurs in the text; they are searched faster."""
_SERVICES = {
    "SG.": r"[\w-]{22}\.[\w-]{43}",
    "dop_v1_": "[0-9a-f]{64}",
    "hvs.": r"[\w-]{24,}",
    "hvb.": r"[\w-]{24,}",
    "dckr_pat_": r"[\w-]{27}",
    "dckr_oat_": r"[\w-]{32}",
    "glc_": "[A-Za-z0-9+/]{32,}={0,2}",
    "glsa_": "[A-Za-z0-9]{32}_[0-9a-f]{8}",
    "NRAK-": "[A-Z0-9]{27}",
    "lin_api_": "[A-Za-z0-9]{40}",
    "ATATT3": r"[\w=-]{60,}",
    "PMAK-": "[0-9a-f]{24}-[0-9a-f]{34}",
    "pul-": "[0-9a-f]{40}",
    "rubygems_": "[0-9a-f]{48}",
    "AGE-SECRET-KEY-1": "[0-9A-Z]{58}",
    "ABSK": "[A-Za-z0-9+/]{100,}={0,2}",
    "ops_eyJ": "[A-Za-z0-9+/]{100,}={0,2}",
    "gsk_": "[A-Za-z0-9]{52}",
    "r8_": "[A-Za-z0-9]{37}",
    "pplx-": "[A-Za-z0-9]{48}",
    "lsv2_pt_": r"[0-9a-f]{32}\w*",
    "lsv2_sk_": r"[0-9a-f]{32}\w*",
    "xapp-": "[0-9]-[A-Z0-9]{9,}-[0-9]+-[0-9a-f]{40,}",
    "shpat_": "[0-9a-fA-F]{32}",
    "shpca_": "[0-9a-fA-F]{32}",
    "shppa_": "[0-9a-fA-F]{32}",
    "shpss_": "[0-9a-fA-F]{32}",
    "sq0csp-": r"[\w-]{43}",
    "key-": "[0-9a-f]{32}",
    "wandb_v1_": r"\w{40,}",
    "phc_": "[A-Za-z0-9]{43}",
    "sntrys_": "[A-Za-z0-9+/=_]{60,}",
    "nvapi-": r"[\w-]{60,}",
    "sk-or-v1-": "[0-9a-f]{64}",
    "xai-": "[A-Za-z0-9]{70,}",
    "tgp_v1_": r"[\w-]{40,}",
    "pcsk_": "[A-Za-z0-9]{4,8}_[A-Za-z0-9]{50,}",
    "jina_": "[0-9a-f]{32}[A-Za-z0-9_-]{20,}",
    "csk-": "[A-Za-z0-9]{48}",
    "tskey-": r"[a-z]+-\w{10,}-\w{20,}",
    "ntn_": "[A-Za-z0-9]{40,}",
    "sbp_": "[0-9a-f]{40}",
}
"""Tokens of services, by the text that they begin with."""
_SEARCHES = [
    (kind, tuple(literal.encode() for literal in literals), re.compile(form.encode()))
    for kind, (form, *literals) in _FILE_FORMS.items()
] + [
    # The look-behind is after the literal, which the search skips to
    (
        "a token of a service",
        (literal.encode(),),
        re.compile(rf"{re.escape(literal)}(?<![\w-]{re.escape(literal)}){form}(?![\w-])".encode()),
    )
    for literal, form in _SERVICES.items()
]
_PLACEHOLDER = re.compile(rb"(?i)example|your|xxxx|placeholder|redacted")
_PLACEHOLDERS = (b"pass", b"passwd", b"password", b"pwd", b"pw", b"token", b"changeme", b"user", b"username")
"""Passwords in URLs of manuals."""
_HEX = re.compile(
    r"[0-9a-f]{32}|[0-9a-f]{40}|[0-9a-f]{48}|[0-9a-f]{56}|[0-9a-f]{64}|[0-9A-F]{32,64}"
    r"|[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
)
_KEY_NAME = re.compile(
    rb"(?<!:)(?i:(?:api|access|secret|auth|private|account|encryption|signing|storage"
    rb"|wandb|comet|neptune|openai|anthropic|hf|huggingface|ngc|azure|kaggle)[_-]?key"
    rb"|token|secret|passw(?:or)?d|passphrase)[\"'\]]{0,2}[ \t]{0,20}[:=]?\Z"
)
_NAME_BYTES = 50
_TEMPLATE = re.compile(
    rb"(?i)[$<{%&*!~/]|.*(?:\$[({]|\{\{|%\(|<\w|example|your|xxxx|placeholder|redacted|change_?me)"
    rb"|(?:env|file|vault|ref):|(?:null|none|true|false|str|string|text|bytes|required|optional|pass|passwd"
    rb"|password|secret|auto|\.+|x+|\*+)\Z"
)
"""Values of passwords in settings that stand for another value."""
_ALLOWED = b"gitleaks:allow"
"""Comment of gitleaks at the end of a line with a false alarm."""

_CREDENTIALS = "credentials"
_FIELD = rb"(?<![A-Za-z0-9])(?i:(?:pg|mysql_)?password|passwd|passphrase|pwd)[\"']?[ \t]*"
_LITERAL = (
    rb"[ \t]*(?P<quote>[\"']?)(?P<literal>[^\s\"'#;,{}\[\]]{3,}|(?<=[\"'])[^\s\"']{3,})(?P=quote)"
    rb"[ \t]*(?:$|[\r#;,}])"
)
_KEY_FIELD = (
    rb"(?<![A-Za-z0-9])(?i:pass|(?:api|auth|access|secret)[_-]?(?:key|token)|client[_-]?secret)[\"']?[ \t]*"
)
_LITERAL_WITH_DIGITS = rb"(?=[^\n]{0,3}[^\s]*[0-9!$%^*?+])" + _LITERAL
_NAMES = [
    (re.compile(rf"(?:{name})\Z"), kind, re.compile(content, re.MULTILINE))
    for name, kind, content in (
        (
            r"/\.env(?:\.(?!example$|sample$|template$|dist$|defaults?$)[^/]+)?",
            "environment variables, which usually include secrets",
            rb"^[ \t]*(?:export[ \t]+)?\w+[ \t]*=[ \t]*[^\s#]",
        ),
        (r"/id_(?:rsa|dsa|ecdsa|ed25519|ecdsa_sk|ed25519_sk)", "a private key", rb"\S"),
        (r"\.ppk", "a private key", rb"^PuTTY-User-Key-File"),
        (r"\.(?:p12|pfx)", "a key store", rb""),
        (r"/[._]netrc", _CREDENTIALS, rb"\S"),
        (r"/\.git-credentials|/\.config/git/credentials", _CREDENTIALS, rb"\S"),
        (r"/\.aws/credentials", _CREDENTIALS, rb"\S"),
        (r"/\.aws/(?:sso|cli)/cache/[^/]+\.json", _CREDENTIALS, rb"\S"),
        (r"/\.pypirc", _CREDENTIALS, rb"^[ \t]*password[ \t]*[=:][ \t]*\S"),
        (r"/\.npmrc", _CREDENTIALS, rb"_(?:authToken|auth|password)[ \t]*=[ \t]*(?!\$\{)\S"),
        (r"/\.yarnrc\.yml", _CREDENTIALS, rb"npmAuth(?:Token|Ident):[ \t]*[\"']?(?!\$\{)\S"),
        (
            r"/\.docker/config\.json|/\.dockercfg|/\.dockerconfigjson",
            _CREDENTIALS,
            rb'"(?:auth|identitytoken|registrytoken|password)"\s*:\s*"[^"]',
        ),
        (
            r"/\.kube/config|/(?:[^/]*[._-])?kubeconfig(?:\.ya?ml)?",
            _CREDENTIALS,
            rb"^[ \t-]*(?:client-key-data|token|password):[ \t]*\S",
        ),
        (r"\.tfstate(?:\.backup)?", "the state of Terraform, which includes secrets", rb"\S"),
        (r"/\.terraformrc|/\.terraform\.d/credentials\.tfrc\.json", _CREDENTIALS, rb"token\"?\s*[=:]\s*\S"),
        (r"/kaggle\.json", _CREDENTIALS, rb'"key"\s*:\s*"[0-9a-f]{32}"'),
        (r"/(?:\.cache/)?\.?huggingface/(?:token|stored_tokens)", _CREDENTIALS, rb"\S"),
        (r"/application_default_credentials\.json", _CREDENTIALS, rb'"(?:refresh_token|private_key)"'),
        (r"/\.boto|/\.s3cfg", _CREDENTIALS, rb"^[ \t]*\w*(?:secret|refresh)\w*[ \t]*=[ \t]*\S"),
        (r"/\.databrickscfg", _CREDENTIALS, rb"^[ \t]*(?:token|password|client_secret)[ \t]*=[ \t]*\S"),
        (r"/\.pgpass|/\.vault-token|/\.streamlit/secrets\.toml", _CREDENTIALS, rb"^[ \t]*[^\s#]"),
        (r"/[^/]+\.(?:toml|ini|cfg|conf|properties|tfvars)", "a password", rb"%s=%s" % (_FIELD, _LITERAL)),
        (
            r"/[^/]+\.(?:toml|ini|cfg|conf|properties|tfvars)",
            "a password",
            rb"%s=%s" % (_KEY_FIELD, _LITERAL_WITH_DIGITS),
        ),
        (r"/[^/]+\.toml", "a password", rb"%s=[ \t]*(?:\"{3}|'{3})(?P<literal>[^\"']{3,})" % _FIELD),
        (
            r"/[^/]+\.(?:ya?ml|sh|bash|zsh)|/(?:docker|container)file[^/]*|\.(?:docker|container)file",
            "a password",
            rb"%s=%s" % (_FIELD, _LITERAL_WITH_DIGITS),
        ),
        (
            r"/[^/]+\.xml",
            "a password",
            rb"<(?i:password|passwd|passphrase)>[ \t]*(?P<literal>[^<\s]{3,})[ \t]*</",
        ),
        # Translations and schemas have words there
        (r"/[^/]+\.(?:ya?ml|json|ini|cfg)", "a password", rb"%s:%s" % (_FIELD, _LITERAL_WITH_DIGITS)),
        (r"/\.my\.cnf", _CREDENTIALS, rb"^[ \t]*password[ \t]*=[ \t]*\S"),
    )
]
"""Names of files below any directory, the kind of secret, and what they contain unless they are harmless."""
_ANY_NAME = re.compile("|".join(name.pattern for name, _, _ in _NAMES))

_NAME = re.compile(
    r"(^|_)(SECRET|PASSWORD|PASSWD|PASSPHRASE|TOKEN|CREDENTIALS?|(API|ACCESS|SECRET|PRIVATE|AUTH)_?KEY)(_|$)",
    re.IGNORECASE,
)
_HARMLESS = re.compile(r"|true|false|yes|no|on|off|none|auto|[0-9.]+|(~|\.{1,2})?/.*|file:.*", re.IGNORECASE)
"""Values that are not secrets whatever the name: switches, numbers and paths."""
_VARIABLE = re.compile(r"\$(\w+|\{[^}]*\})")
_RANDOM = re.compile(r"(?=.*[0-9])(?=.*[a-z])(?=.*[A-Z])[A-Za-z0-9+/_=-]{32,}")
_RANDOM_BITS = 4.3
"""Entropy of each character, in bits. Hexadecimal digests have at most 4."""
_HEX_BITS, _TEXT_BITS = 3.0, 3.7
"""Entropy of keys that a name announces. Placeholders and names of classes have less."""
_CHUNK = 1 << 20
_OVERLAP = 1 << 13
"""Bytes of a chunk that are searched again with the next, for secrets that are in both."""
_HEAD = 8000
"""Bytes among which a binary file has a zero, by the rule of Git."""


class Secret(NamedTuple):
    """The first secret of a file. Its text is not kept."""

    kind: str
    line: int


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


def secret_in_file(file: BinaryIO, *paths: str) -> Secret | None:
    """Return the first secret of a text file, or of any file one of whose paths is that of credentials."""
    texts = [f"/{path.lstrip('/')}".lower() for path in paths]
    named = [text for text in texts if _ANY_NAME.search(text)]
    names = [entry for entry in _NAMES if any(entry[0].search(text) for text in named)]
    line, carry = 1, b""
    is_text: bool | None = None
    while chunk := file.read(_CHUNK):
        if is_text is None:
            is_text = b"\0" not in chunk[:_HEAD]
        if not is_text and not names:
            return None
        data = carry + chunk
        forms = _forms_in(data) if is_text else iter(())
        matches = ((kind, match) for _, kind, content in names for match in content.finditer(data))
        found = min(((match.start(), kind) for kind, match in forms), default=None) or min(
            (
                (match.start(), kind)
                for kind, match in matches
                if not _is_allowed(match) and not _is_template(match)
            ),
            default=None,
        )
        if found:
            return Secret(found[1], line + data.count(b"\n", 0, found[0]))
        carry = data[-_OVERLAP:]
        line += data.count(b"\n", 0, len(data) - len(carry))
    return None


def _forms_in(data: bytes) -> Iterator[tuple[str, re.Match[bytes]]]:
    """Yield the first match of each form that is neither a placeholder nor allowed."""
    for kind, literals, form in _SEARCHES:
        if any(literal in data for literal in literals):
            for match in form.finditer(data):
                if not _is_placeholder(match) and not _is_allowed(match):
                    yield kind, match
                    break


def _is_placeholder(match: re.Match[bytes]) -> bool:
    groups = match.groupdict()
    if (random := groups.get("random")) and not _is_random(random.decode()):
        return True
    if (key := groups.get("key")) and not (_is_named(match) and _is_random(key.decode())):
        return True
    if password := groups.get("password"):
        return (
            password == groups["user"]
            or password.lower() in _PLACEHOLDERS
            or _PLACEHOLDER.search(password) is not None
        )
    return _PLACEHOLDER.search(match[0]) is not None


def _is_template(match: re.Match[bytes]) -> bool:
    """Return whether the literal of a setting is a variable, a type or a placeholder."""
    literal = match.groupdict().get("literal") or b""
    return _TEMPLATE.match(literal) is not None


def _is_named(match: re.Match[bytes]) -> bool:
    """Return whether the name of a secret is before a value."""
    return _KEY_NAME.search(match.string[max(0, match.start() - _NAME_BYTES) : match.start()]) is not None


def _is_random(text: str) -> bool:
    """Return whether a text is hexadecimal or has mixed characters, unlike words, names and paths."""
    if _HEX.fullmatch(text):
        return _entropy(text) >= _HEX_BITS
    kinds = [re.search(kind, text) for kind in ("[0-9].*[0-9]", "[a-z]", "[A-Z]")]
    return all(kinds) and _entropy(text) >= _TEXT_BITS


def _is_allowed(match: re.Match[bytes]) -> bool:
    """Return whether the line of a match has the comment of gitleaks."""
    data, end = match.string, match.end()
    newline = data.find(b"\n", end)
    return _ALLOWED in data[end : newline if newline >= 0 else len(data)]


def _by_form(text: str) -> str:
    kinds = (kind for kind, form in _VALUE_FORMS.items() if re.search(form, text))
    return next(kinds, "") or next((kind for kind, _ in _forms_in(text.encode(errors="replace"))), "")


def _entropy(text: str) -> float:
    """Return the Shannon entropy of the characters, in bits."""
    counts = Counter(text).values()
    return -sum(count / len(text) * math.log2(count / len(text)) for count in counts)

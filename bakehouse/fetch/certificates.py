"""Knows which certificates this machine trusts."""

import os
from collections.abc import Mapping
from pathlib import Path

from bakehouse.errors import Diagnostic, EngineError
from bakehouse.fetch.pip_config import PipConfig

_CA_VARIABLES = ("PIP_CERT", "SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE")
_SYSTEM_CA = ("/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/cert.pem")


def bundle_of(ca: Path | None, pip: PipConfig, environment: Mapping[str, str] = os.environ) -> Path | None:
    """The certificates this machine trusts: those named for Bakehouse, for pip, for others, the system's."""
    if ca and not ca.is_file():
        message = f"there is no file `{ca}` with certificates"
        raise EngineError(Diagnostic(message, hint="correct `ca` in [tool.bakehouse], or BAKEHOUSE_CA"))
    named = [str(ca or ""), pip.cert, *(environment.get(name, "") for name in _CA_VARIABLES), *_SYSTEM_CA]
    return next((Path(one) for one in named if one and Path(one).is_file()), None)

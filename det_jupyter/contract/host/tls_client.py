"""TLS connections to a program whose self-signed certificate is known: the master, or an agent."""

from __future__ import annotations

import ssl

_OTHER_CERTIFICATE = (
    "the server there has another certificate than these credentials: it is another master, or "
    "this one has made its certificate anew; add the agent on the master's computer (det agent "
    "add NAME), and start it with the credentials of that"
)


def trusting(certificate: str) -> ssl.SSLContext:
    """Return a context that trusts this certificate alone, at any address.

    Raises:
        ssl.SSLError: It is no certificate.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False  # the address may change; the certificate may not
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.load_verify_locations(cadata=certificate)
    return context


def tls_problem(error: BaseException) -> str:
    """Return why a connection to the master failed, if TLS was the reason; else ""."""
    found: BaseException | None = error
    while found is not None and not isinstance(found, ssl.SSLError):
        found = found.__cause__ or found.__context__
    if found is None:
        return ""
    if isinstance(found, ssl.SSLCertVerificationError):
        return _OTHER_CERTIFICATE
    return f"the server there is no master of det_jupyter, or a proxy is in between ({found})"

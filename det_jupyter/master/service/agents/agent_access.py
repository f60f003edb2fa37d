"""Stores which agents on other computers may connect, and the secrets that they share.

    <data>/agents/access.json        the port, and the digest of each agent's token
    <data>/agents/certificate.pem    self-signed; the agents trust only this one
    <data>/agents/key.pem
    <data>/agents/gang-certificate.pem, gang-key.pem    for connections between agents
    <data>/agents/gang-secret        from which each gang's secret is derived

A token is shown once, when it is created; only its SHA-256 is stored. The port is chosen once, so
that agents find the next master at the same address.
"""

from __future__ import annotations

import datetime
import hashlib
import hmac
import re
import secrets
import socket
from pathlib import Path
from typing import TypeVar

from pydantic import ValidationError

from det_jupyter.contract.host import paths
from det_jupyter.contract.host.ownership import make_private
from det_jupyter.contract.messages import AgentCredentials, Wire
from det_jupyter.errors import ConfigError, DetError, NotFound, Problem

_Value = TypeVar("_Value")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")
_DEFAULT_ROUTE = "192.0.2.1"  # an address that is reserved for documentation
_NUM_DIGITS = 8  # digits of a master's id
_REFUSED_S = 7 * 86_400.0  # how long a removed agent that was away is expected, to be refused
_YEARS = 10  # validity of the certificate
_EARLY = datetime.datetime(1970, 1, 2, tzinfo=datetime.UTC)
_COMMON_NAME = "det_jupyter master"
_GANG_NAME = "det_jupyter gang"
_SECRET_BYTES = 32


class _Access(Wire):
    """The content of access.json."""

    port: int | None = None
    digests: dict[str, str] = {}  # digests of the tokens, by agent
    clusters: dict[str, str] = {}  # by agent on a node of a cluster: the cluster's name
    # By digest of a revoked token whose agent was not refused yet: until when it is expected, UTC.
    removed: dict[str, float] = {}


class AgentAccess:
    """The tokens of agents on other computers, in a folder of the master.

    Args:
        folder: The folder; created when the first agent is added.

    Raises:
        DetError: access.json is damaged.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._gang_certificate = folder / "gang-certificate.pem"
        self._gang_key = folder / "gang-key.pem"
        self._access = self._read()

    def _read(self) -> _Access:
        path = self._folder / "access.json"
        try:
            return _Access.model_validate_json(paths.read_private(path))
        except FileNotFoundError:
            return _Access()
        except ValidationError:
            raise DetError(
                f"{path} is damaged; remove it, and add the agents of other computers again"
            ) from None

    @property
    def certificate(self) -> Path:
        """The file of the certificate."""
        return self._folder / "certificate.pem"

    @property
    def key(self) -> Path:
        """The file of the certificate's private key."""
        return self._folder / "key.pem"

    @property
    def port(self) -> int | None:
        """The port that agents connect to; None until one was chosen."""
        return self._access.port

    @property
    def agents(self) -> list[str]:
        """The names of the agents that may connect."""
        return sorted(self._access.digests)

    def needs_port(self, now: float) -> bool:
        """Return whether an agent may connect, or a removed agent still has to be refused."""
        return bool(self._access.digests) or max(self._access.removed.values(), default=0.0) > now

    def set_port(self, port: int | None) -> None:
        """Store the port, which later masters use too; None: the next master chooses one."""
        self._write(self._access.model_copy(update={"port": port}))

    @property
    def clusters(self) -> set[str]:
        """The clusters on whose nodes agents may connect."""
        return set(self._access.clusters.values())

    def agents_of(self, cluster: str) -> list[str]:
        """Return the agents on nodes of a cluster that may connect."""
        return [name for name, of in self._access.clusters.items() if of == cluster]

    def cluster_of(self, agent_id: str) -> str:
        """Return the cluster that an agent's computer is a node of; "" if it is in none."""
        return self._access.clusters.get(agent_id, "")

    @property
    def master_id(self) -> str:
        """An id of this master, by which a cluster distinguishes its agents from those of others.

        Raises:
            DetError: A certificate is needed and cannot be created.
        """
        self._ensure_certificate()
        return hashlib.sha256(self.certificate.read_bytes()).hexdigest()[:_NUM_DIGITS]

    def credentials(self, agent_id: str, token: str, address: str) -> AgentCredentials:
        """Return the credentials with which an agent connects; the port must have been chosen.

        Args:
            agent_id: The agent.
            token: Its token.
            address: This computer's address for the agent.
        """
        return AgentCredentials(
            agent=agent_id,
            url=f"https://{f'[{address}]' if ':' in address else address}:{self.port}",
            certificate=self.certificate.read_text(encoding="ascii"),
            token=token,
        )

    def add(self, agent_id: str, *, cluster: str = "") -> str:
        """Allow an agent to connect; return its new token. An earlier token is revoked.

        Args:
            agent_id: Its name.
            cluster: The cluster that its computer is a node of, if it is one.

        Raises:
            ConfigError: The name is not valid for an agent.
            DetError: A certificate is needed and cannot be created.
        """
        if not _NAME.fullmatch(agent_id):
            given = f"got {agent_id[:80]!r}, expected up to 63 letters, digits, '.', '_' and '-'"
            raise ConfigError([Problem("agent", given)])
        self._ensure_certificate()
        token = secrets.token_urlsafe(32)
        digests = self._access.digests | {agent_id: _digest(token)}
        clusters = _without(self._access.clusters, agent_id)
        if cluster:
            clusters[agent_id] = cluster
        self._write(self._access.model_copy(update={"digests": digests, "clusters": clusters}))
        return token

    def _ensure_certificate(self) -> None:
        make_private(self._folder, "")
        _make_certificate(self.certificate, self.key, _COMMON_NAME)

    def remove(self, agent_id: str, *, awaited_from: float | None = None) -> None:
        """Revoke an agent's token; later gangs get a new certificate, whose key the agent lacks.

        Args:
            agent_id: The agent.
            awaited_from: The present time, UTC seconds, if a process of the agent may still run,
                which has to be refused; None: none runs.

        Raises:
            NotFound: No agent of this name was added.
        """
        if agent_id not in self._access.digests:
            known = ", ".join(self.agents) or "none"
            raise NotFound(f"no agent {agent_id} was added; those that were: {known}")
        digests = _without(self._access.digests, agent_id)
        clusters = _without(self._access.clusters, agent_id)
        removed = self._access.removed
        if awaited_from is not None:
            removed = {key: until for key, until in removed.items() if until > awaited_from}
            removed[self._access.digests[agent_id]] = awaited_from + _REFUSED_S
        changes = {"digests": digests, "clusters": clusters, "removed": removed}
        self._write(self._access.model_copy(update=changes))
        for path in (self._gang_certificate, self._gang_key):
            path.unlink(missing_ok=True)

    def agent_of(self, token: str) -> str | None:
        """Return the agent with this token; None if there is none."""
        digest = _digest(token)  # tokens are random: the time of comparing digests reveals nothing
        return next((name for name, d in self._access.digests.items() if d == digest), None)

    def note_refused(self, token: str) -> None:
        """Record that a process with this token was refused, and so exits."""
        digest = _digest(token)
        if digest in self._access.removed:
            removed = _without(self._access.removed, digest)
            self._write(self._access.model_copy(update={"removed": removed}))

    def gang_certificate(self) -> tuple[str, str]:
        """Return the certificate of connections between agents, and its key, as PEM.

        Raises:
            DetError: The certificate does not exist and cannot be created.
        """
        make_private(self._folder, "")
        _make_certificate(self._gang_certificate, self._gang_key, _GANG_NAME)
        return paths.read_private(self._gang_certificate), paths.read_private(self._gang_key)

    def gang_secret(self, allocation_id: str) -> str:
        """Return the secret of a gang, in hex digits; always the same for one gang."""
        path = self._folder / "gang-secret"
        make_private(self._folder, "")
        try:
            key = paths.read_private(path)
        except FileNotFoundError:
            key = secrets.token_hex(_SECRET_BYTES)
            paths.write_private(path, key)
        return hmac.digest(key.encode(), allocation_id.encode(), "sha256").hex()

    def _write(self, access: _Access) -> None:
        paths.write_private(self._folder / "access.json", access.model_dump_json())
        self._access = access


def _make_certificate(path: Path, key_path: Path, common_name: str) -> None:
    """Create a self-signed certificate and its key, unless both exist.

    Raises:
        DetError: The package that creates certificates is not installed.
    """
    if path.exists() and key_path.exists():
        return
    try:
        from cryptography import x509
        from cryptography.hazmat.primitives import hashes, serialization
        from cryptography.hazmat.primitives.asymmetric import ec
    except ImportError:
        raise DetError(
            "agents on other computers connect over TLS, and making a certificate needs the "
            "package cryptography: pip install 'det-jupyter[cluster]'"
        ) from None
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, common_name)])
    now = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(_EARLY)  # a computer's clock may be far behind
        .not_valid_after(now + datetime.timedelta(days=365 * _YEARS))
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(key, hashes.SHA256())
    )
    encoding = serialization.Encoding.PEM
    private = key.private_bytes(
        encoding, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    paths.write_private(key_path, private)
    paths.write_private(path, certificate.public_bytes(encoding))


def outward_address(host: str = _DEFAULT_ROUTE, port: int = 9) -> str:
    """Return this computer's address on the route to another computer.

    The default host is an address that is reserved for documentation, so it is on the default
    route. Nothing is sent.
    """
    with socket.socket(type=socket.SOCK_DGRAM) as probe:
        try:
            probe.connect((host, port))
        except OSError:
            return socket.gethostname()
        address: str = probe.getsockname()[0]
    is_loopback = address.startswith("127.") and host != _DEFAULT_ROUTE
    return outward_address() if is_loopback else address


def _without(values: dict[str, _Value], name: str) -> dict[str, _Value]:
    return {key: value for key, value in values.items() if key != name}


def _digest(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()

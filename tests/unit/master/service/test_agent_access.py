"""Tokens of agents on other computers."""

from __future__ import annotations

import ssl
import sys
from pathlib import Path

import pytest
from cryptography import x509

from det_jupyter.errors import ConfigError, DetError, NotFound
from det_jupyter.master.service.agent_access import AgentAccess


def test_token_is_good_for_its_agent_also_after_a_restart(tmp_path: Path) -> None:
    access = AgentAccess(tmp_path / "agents")
    token = access.add("node-b")
    access.set_port(4711)
    again = AgentAccess(tmp_path / "agents")
    assert (again.agent_of(token), again.agents, again.port) == ("node-b", ["node-b"], 4711)
    assert again.agent_of(f"{token}x") is None
    assert again.agent_of("") is None


def test_new_token_makes_the_one_before_void_and_removal_makes_it_void_too(tmp_path: Path) -> None:
    access = AgentAccess(tmp_path / "agents")
    before, token = access.add("b"), access.add("b")
    assert access.agent_of(before) is None
    access.remove("b")
    assert access.agent_of(token) is None
    with pytest.raises(NotFound, match="no agent b was added; those that were: none"):
        access.remove("b")


def test_token_is_not_stored_and_the_files_are_the_users_own(tmp_path: Path) -> None:
    access = AgentAccess(tmp_path / "agents")
    token = access.add("b")
    for path in (tmp_path / "agents").iterdir():
        assert token not in path.read_text()
        assert path.stat().st_mode & 0o077 == 0


def test_certificate_serves_tls_and_is_kept(tmp_path: Path) -> None:
    access = AgentAccess(tmp_path / "agents")
    access.add("b")
    certificate = access.certificate.read_text()
    ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(access.certificate, access.key)
    ssl.create_default_context(cadata=certificate)
    access.add("c")
    assert access.certificate.read_text() == certificate


def test_certificate_is_valid_for_computers_whose_clock_is_years_behind(tmp_path: Path) -> None:
    access = AgentAccess(tmp_path / "agents")
    access.add("b")
    access.gang_certificate()
    for path in (access.certificate, tmp_path / "agents" / "gang-certificate.pem"):
        assert x509.load_pem_x509_certificate(path.read_bytes()).not_valid_before_utc.year == 1970


def test_certificate_of_gangs_is_another_one_after_an_agent_was_removed(tmp_path: Path) -> None:
    access = AgentAccess(tmp_path / "agents")
    access.add("b")
    access.add("c")
    before, kept = access.gang_certificate(), access.gang_certificate()
    access.remove("b")
    after = access.gang_certificate()
    assert kept == before
    assert not set(after) & set(before)


@pytest.mark.parametrize("name", ["", "a/b", "..", ".b", "a b", "a\n", "x" * 64])
def test_name_that_could_be_a_path_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(ConfigError, match="expected up to 63 letters"):
        AgentAccess(tmp_path / "agents").add(name)


def test_damaged_file_is_named(tmp_path: Path) -> None:
    access = AgentAccess(tmp_path / "agents")
    access.add("b")
    (tmp_path / "agents" / "access.json").write_text("{")
    with pytest.raises(DetError, match=r"access.json is damaged; remove it"):
        AgentAccess(tmp_path / "agents")


def test_without_cryptography_the_message_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "cryptography", None)
    with pytest.raises(DetError, match=r"pip install 'det-jupyter\[cluster\]'"):
        AgentAccess(tmp_path / "agents").add("b")

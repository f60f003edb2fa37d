"""Tokens of agents on other computers."""

from __future__ import annotations

import ssl
import sys
from pathlib import Path

import pytest
from cryptography import x509

from det_jupyter.errors import ConfigError, DetError, NotFound
from det_jupyter.master.service.agents.agent_access import AgentAccess


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


def test_an_agent_that_was_removed_while_it_was_away_is_awaited_for_a_week(
    tmp_path: Path,
) -> None:
    access, week = AgentAccess(tmp_path / "agents"), 7 * 86_400.0
    token = access.add("b")
    assert access.needs_port(1e12)
    access.remove("b", awaited_from=100.0)
    assert access.needs_port(100.0 + week - 1)
    assert not access.needs_port(100.0 + week)
    access.note_refused("another")
    assert access.needs_port(101.0)
    access.note_refused(token)
    assert not AgentAccess(tmp_path / "agents").needs_port(101.0)


def test_only_those_that_may_still_come_are_awaited(tmp_path: Path) -> None:
    access, week = AgentAccess(tmp_path / "agents"), 7 * 86_400.0
    tokens = [access.add(name) for name in "bcd"]
    access.remove("b", awaited_from=0.0)
    access.remove("c", awaited_from=week)  # b is given up now
    access.remove("d")  # it was not there
    access.note_refused(tokens[1])
    assert not access.needs_port(week - 1)


def test_agents_on_nodes_of_clusters_are_known_until_they_are_removed(tmp_path: Path) -> None:
    access = AgentAccess(tmp_path / "agents")
    for name, cluster in (("r1", "ray"), ("r2", "ray"), ("o1", "other"), ("b", "")):
        access.add(name, cluster=cluster)
    assert (access.agents_of("ray"), access.clusters) == (["r1", "r2"], {"ray", "other"})
    assert [access.cluster_of(name) for name in ("r1", "o1", "b", "x")] == ["ray", "other", "", ""]
    access.remove("r1")
    access.add("r2")  # by hand, so it is in no cluster any more
    assert access.agents_of("ray") == []


def test_an_address_with_colons_is_in_brackets(tmp_path: Path) -> None:
    access = AgentAccess(tmp_path / "agents")
    token = access.add("b")
    access.set_port(4711)
    for address, url in (("10.0.0.1", "10.0.0.1"), ("fe80::1", "[fe80::1]")):
        credentials = access.credentials("b", token, address)
        assert credentials.url == f"https://{url}:4711"
        assert credentials.certificate == access.certificate.read_text()


def test_secrets_of_gangs_differ_and_stay_the_same(tmp_path: Path) -> None:
    access = AgentAccess(tmp_path / "agents")
    first, other = access.gang_secret("1.1.1"), access.gang_secret("1.1.2")
    assert first != other
    assert AgentAccess(tmp_path / "agents").gang_secret("1.1.1") == first
    before = access.gang_certificate()
    assert access.gang_certificate() == before
    access.add("b")
    access.remove("b")  # it has the key
    assert access.gang_certificate() != before


def test_a_master_has_an_id_of_its_own(tmp_path: Path) -> None:
    one, other = AgentAccess(tmp_path / "a"), AgentAccess(tmp_path / "b")
    assert one.master_id == one.master_id != other.master_id
    assert len(one.master_id) == 8


def test_a_port_is_needed_as_long_as_one_of_the_removed_is_awaited(tmp_path: Path) -> None:
    access, week = AgentAccess(tmp_path / "agents"), 7 * 86_400.0
    for name, at in (("b", 0.0), ("c", 100.0)):
        access.add(name)
        access.remove(name, awaited_from=at)
    assert access.needs_port(week + 50)
    assert not access.needs_port(week + 100)

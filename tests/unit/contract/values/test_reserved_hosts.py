"""Addresses and names of clouds' metadata, in all forms in which they can be written."""

from __future__ import annotations

import pytest

from det_jupyter.contract.values.reserved_hosts import is_reserved, names_reserved


@pytest.mark.parametrize(
    "address",
    [
        "169.254.169.254",
        "169.254.170.2",
        "100.100.100.200",
        "168.63.129.16",
        "192.0.0.192",
        "224.0.0.1",
        "0.0.0.0",
        "::",
        "fe80::a9fe:a9fe%eth0",
        "fd00:ec2::254",
        "fd20:ce::254",
        "fd00:c1::a9fe:a9fe",
        "fd00:42::42",
        "::ffff:169.254.169.254",
        "::ffff:6464:64c8",
        "::169.254.169.254",
        "::ffff:0:169.254.169.254",
        "64:ff9b::169.254.169.254",
        "64:ff9b::a83f:8110",
        "64:ff9b:1::169.254.169.254",
        "64:ff9b:1:a9fe:a9:fe00::",
        "2002:a9fe:a9fe::1",
        "2001:0:a9fe:a9fe::1",
        "2001:0:0:0:0:0:5601:5601",
        "fd12:3456::5efe:169.254.169.254",
        "fd12:3456::200:5efe:169.254.169.254",
    ],
)
def test_metadata_is_reserved_in_each_form_of_its_address(address: str) -> None:
    assert is_reserved(address)
    assert names_reserved(f"[{address}]" if ":" in address else address)


@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1", "10.0.0.5", "192.168.1.1", "100.100.100.201", "8.8.8.8", "::1", "fd00::1",
        "::ffff:10.0.0.5", "64:ff9b::10.0.0.5", "2002:a00:5::1", "2606:4700::1111",
    ],
)  # fmt: skip
def test_other_addresses_are_not_reserved(address: str) -> None:
    assert not is_reserved(address)
    assert not names_reserved(address)


@pytest.mark.parametrize(
    "host",
    [
        "2852039166", "0xA9FEA9FE", "0xa9.0xfe.0xa9.0xfe", "0251.0376.0251.0376", "169.254.43518",
        "025177524776", "metadata", "METADATA.google.internal", "metadata.google.internal.",
        "metadata.goog", "instance-data.ec2.internal",
    ],
)  # fmt: skip
def test_metadata_is_reserved_in_each_form_of_its_name(host: str) -> None:
    assert names_reserved(host)


@pytest.mark.parametrize(
    "host", ["mlflow.example.org", "metadata.example.org", "127.1", "localhost"]
)
def test_other_names_are_not_reserved(host: str) -> None:
    assert not names_reserved(host)

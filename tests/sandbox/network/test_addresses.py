"""Addresses the proxy must never connect to (row 58)."""

from __future__ import annotations

import socket
from pathlib import Path

import psutil
import pytest

from adk_skills_agent.sandbox.network.hosts import address_refusal, is_own, parse_networks


@pytest.mark.parametrize("address", ["8.8.8.8", "93.184.216.34", "2606:4700::1111", "2a00:1450:4001::1", "172.32.0.1"])
def test_a_public_address_may_be_connected_to(address: str) -> None:
    assert address_refusal(address) is None


@pytest.mark.parametrize(
    "address",
    [
        "0.0.0.0",
        "0.1.2.3",
        "127.0.0.1",
        "127.255.255.254",
        "10.1.2.3",
        "172.16.0.1",
        "172.31.255.255",
        "192.168.1.1",
        "100.64.0.1",
        "100.100.100.200",
        "169.254.169.254",
        "169.254.0.1",
        "192.0.0.192",
        "168.63.129.16",
        "198.18.0.1",
        "203.0.113.5",
        "224.0.0.251",
        "239.1.1.1",
        "240.0.0.1",
        "255.255.255.255",
        "::",
        "::1",
        "::127.0.0.1",
        "fe80::1",
        "fe80::1%eth0",
        "2606:4700::1%eth0",
        "fec0::1",
        "fc00::1",
        "fd00:ec2::254",
        "fd20:ce::254",
        "ff02::1",
        "::ffff:127.0.0.1",
        "::ffff:10.0.0.1",
        "::ffff:169.254.169.254",
        "64:ff9b::7f00:1",
        "64:ff9b::a9fe:a9fe",
        "64:ff9b:1::1",
        "2002:7f00:1::1",
        "2002:c0a8:101::1",
        "2001::1",
        "2001:db8::1",
        "2606:4700::5efe:a00:1",
        "100::1",
        "5f00::1",
        "not an address",
        "",
    ],
)
def test_this_machine_and_the_networks_around_it_are_refused(address: str) -> None:
    assert address_refusal(address)


@pytest.mark.parametrize("address", ["::ffff:8.8.8.8", "64:ff9b::808:808", "2002:808:808::1"])
def test_a_public_address_inside_another_notation_stays_public(address: str) -> None:
    assert address_refusal(address) is None


def test_only_the_owner_of_the_code_can_allow_a_private_address() -> None:
    allowed = parse_networks(["127.0.0.1/32"])
    assert address_refusal("127.0.0.1", allowed=allowed) is None
    assert address_refusal("127.0.0.2", allowed=allowed) == "loopback"
    assert address_refusal("::1", allowed=allowed) == "loopback"


def test_a_private_network_is_open_only_to_the_host_that_is_granted_with_it() -> None:
    private = parse_networks(["10.20.0.0/16", "100.100.0.0/16", "fd00::/8"])
    assert address_refusal("10.20.3.4", private=private) is None
    assert address_refusal("10.21.3.4", private=private) == "a private network"
    assert address_refusal("fd12::1", private=private) is None
    for service in ("100.100.100.200", "fd00:ec2::254", "fd20:ce::254"):  # the metadata of a cloud
        assert address_refusal(service, private=private) == "a cloud platform's own service"
    assert address_refusal("::ffff:10.20.3.4", private=private) == "a private network"  # a notation nobody granted


def test_an_own_address_stays_closed_whatever_is_granted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("adk_skills_agent.sandbox.network.hosts.is_own", lambda address: True)
    assert address_refusal("10.20.3.4", private=parse_networks(["10.20.0.0/16"])) == "this machine"


def test_every_address_of_this_machine_is_recognised_as_its_own() -> None:
    import ipaddress

    if Path("/proc/sys/net/ipv4/ip_nonlocal_bind").read_text().strip() != "0":
        pytest.skip("this machine can bind foreign addresses")
    for interface in psutil.net_if_addrs().values():
        for entry in interface:
            if entry.family == socket.AF_INET:
                assert is_own(ipaddress.ip_address(entry.address))
    assert not is_own(ipaddress.ip_address("8.8.8.8"))
    assert not is_own(ipaddress.ip_address("2606:4700::1111"))

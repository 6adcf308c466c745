"""Which addresses are on the public Internet."""

from __future__ import annotations

from ipaddress import ip_address

import pytest

from rondel.fetching.address import as_address, why_not_public
from rondel.files.media import image_type


@pytest.mark.parametrize(
    ("address", "kind"),
    [
        ("127.0.0.1", "loopback"),
        ("127.255.255.254", "loopback"),
        ("10.1.2.3", "private"),
        ("172.16.0.1", "private"),
        ("172.31.255.255", "private"),
        ("192.168.1.1", "private"),
        ("169.254.10.10", "link-local"),
        ("169.254.169.254", "metadata"),
        ("168.63.129.16", "metadata"),
        ("100.100.100.200", "metadata"),
        ("192.0.0.192", "metadata"),
        ("100.64.0.1", "carrier"),
        ("100.127.255.255", "carrier"),
        ("0.0.0.0", "unspecified"),
        ("224.0.0.251", "multicast"),
        ("255.255.255.255", "reserved"),
        ("198.18.0.1", "private"),
        ("::", "unspecified"),
        ("::1", "loopback"),
        ("::127.0.0.1", "reserved"),
        ("::ffff:127.0.0.1", "IPv4-mapped"),
        ("::ffff:93.184.215.14", "IPv4-mapped"),
        ("fe80::1", "link-local"),
        ("fe80::1%eth0", "link-local"),
        ("2606:4700::1%1", "link-local"),
        ("fc00::1", "private"),
        ("fd00:ec2::254", "metadata"),
        ("fec0::1", "private"),
        ("ff02::fb", "multicast"),
        ("2001::1", "reserved"),
        ("2001:db8::1", "documentation"),
        ("2002:7f00:1::", "hides"),
        ("64:ff9b::7f00:1", "loopback"),
        ("64:ff9b::a9fe:a9fe", "metadata"),
        ("100::1", "reserved"),
        ("5f00::1", "reserved"),
    ],
)
def test_an_address_that_leads_inside_is_not_public(address: str, kind: str):
    assert kind in why_not_public(ip_address(address))


@pytest.mark.parametrize(
    "address",
    ["93.184.215.14", "8.8.8.8", "100.128.0.1", "172.32.0.1", "2606:4700::1111", "2a00:1450::1", "64:ff9b::808:808"],
)
def test_an_address_of_the_internet_is_public(address: str):
    assert why_not_public(ip_address(address)) == ""


def test_a_name_is_no_address():
    assert as_address("example.com") is None
    assert as_address("2130706433") is None
    assert as_address("127.1") is None
    assert as_address("::1") is not None


@pytest.mark.parametrize(
    ("data", "mime"),
    [
        (b"\x89PNG\r\n\x1a\n....", "image/png"),
        (b"\xff\xd8\xff\xe0....", "image/jpeg"),
        (b"GIF87a....", "image/gif"),
        (b"GIF89a....", "image/gif"),
        (b"RIFF\x10\0\0\0WEBPVP8 ", "image/webp"),
        (b"RIFF\x10\0\0\0WAVEfmt ", ""),
        (b"<svg xmlns='http://www.w3.org/2000/svg'/>", ""),
        (b"<html>", ""),
        (b"", ""),
    ],
)
def test_an_image_is_known_by_its_first_bytes(data: bytes, mime: str):
    assert image_type(data) == mime

"""Addresses of ZooKeeper: what they say, and what is wrong with others."""

from __future__ import annotations

import pytest

from cairnmq.metadata.zookeeper_address import ROOT, ZookeeperAddress, is_zookeeper, parse_zookeeper


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("zookeeper://h:1", ZookeeperAddress(("h:1",))),
        ("zookeeper://h:1/", ZookeeperAddress(("h:1",), ROOT)),
        ("zookeeper://a,b:3,c/p/q/", ZookeeperAddress(("a:2181", "b:3", "c:2181"), "/p/q")),
        ("zookeeper://[::1]:5,10.0.0.1/x", ZookeeperAddress(("[::1]:5", "10.0.0.1:2181"), "/x")),
        ("zookeeper://h/x?tls=yes", ZookeeperAddress(("h:2181",), "/x", tls=True)),
        ("zookeeper://h/x?tls=no", ZookeeperAddress(("h:2181",), "/x")),
        ("zookeeper://h/x?ca=/c.pem", ZookeeperAddress(("h:2181",), "/x", tls=True, ca="/c.pem")),
        (
            "zookeeper://h?cert=c&key=k&digest=/d",
            ZookeeperAddress(("h:2181",), tls=True, cert="c", key="k", digest="/d"),
        ),
    ],
)
def test_what_an_address_says(text: str, expected: ZookeeperAddress) -> None:
    assert parse_zookeeper(text) == expected


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("zookeeper:h:1", "not an address"),
        ("zookeeper://", "HOST:PORT"),
        ("zookeeper://h:", "HOST:PORT"),
        ("zookeeper://h:x", "port from 1 to 65535"),
        ("zookeeper://h:99999", "port from 1 to 65535"),
        ("zookeeper://h:0", "HOST:PORT"),
        ("zookeeper://h,,i", "HOST:PORT"),
        ("zookeeper://h,h:2181", "twice"),
        ("zookeeper://u:p@h", "digest=FILE"),
        ("zookeeper://h/a//b", "cannot be a path"),
        ("zookeeper://h/a/../b", "cannot be a path"),
        ("zookeeper://h/zookeeper", "cannot be a path"),
        ("zookeeper://h/x#y", "not an address"),
        ("zookeeper://h?password=x", "password is unknown"),
        ("zookeeper://h?ca=", "names no file"),
        ("zookeeper://h?tls=1", "neither yes nor no"),
        ("zookeeper://h?tls=no&ca=c", "no use"),
        ("zookeeper://h?cert=c", "name both"),
        ("zookeeper://h?key=c", "name both"),
    ],
)
def test_what_is_wrong_is_said(text: str, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        parse_zookeeper(text)


def test_for_people_it_has_no_files() -> None:
    assert str(parse_zookeeper("zookeeper://a,b:3/x?digest=/secret")) == "zookeeper://a:2181,b:3/x"


def test_which_stores_are_meant() -> None:
    assert is_zookeeper("zookeeper://h") and is_zookeeper("ZooKeeper:h")
    assert not is_zookeeper("sqlite:zookeeper") and not is_zookeeper("zookeepers://h")

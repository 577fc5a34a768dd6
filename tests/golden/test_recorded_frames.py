"""Frames that real clients sent are read to the end and written again byte for byte."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from cairnmq.wire.apis import APIS, SERVED, request_class
from cairnmq.wire.codec import decode, encode
from cairnmq.wire.framing import read_request_header, request_frame

FRAMES = json.loads(Path(__file__).with_name("wire.json").read_text())


@pytest.mark.parametrize("case", FRAMES, ids=lambda c: f"{c['client'].replace(' ', '-')}-{c['api']}-v{c['version']}")
def test_a_recorded_frame_is_written_as_it_was_read(case: dict[str, Any]) -> None:
    frame = bytes.fromhex(case["frame"])
    header, pos = read_request_header(frame)
    assert (APIS[header.api_key].name, header.api_version) == (case["api"], case["version"])
    assert header.client_id == "golden"
    request, end = decode(request_class(header.api_key), header.api_version, frame, pos)
    assert end == len(frame)
    body = encode(request, header.api_version)
    again = request_frame(header.api_key, header.api_version, header.correlation_id, header.client_id, body)
    assert b"".join(again)[4:] == frame


def test_both_encodings_of_the_hot_requests_are_recorded() -> None:
    recorded = {
        (case["api"], APIS[key].is_flexible(case["version"]))
        for case in FRAMES
        for key in SERVED
        if APIS[key].name == case["api"]
    }
    for api in ("Produce", "Fetch", "ListOffsets", "Metadata", "OffsetCommit", "OffsetFetch", "ApiVersions"):
        assert {(api, False), (api, True)} <= recorded

"""DescribeUserScramCredentials."""

from __future__ import annotations

from pathlib import Path

from cairnmq.errors import ErrorCode
from cairnmq.wire.messages import DescribeUserScramCredentialsRequest
from unit.broker.rig import open_rig, scenario


@scenario
async def test_nobody_has_credentials(tmp_path: Path) -> None:
    async with open_rig(tmp_path) as rig:
        everyone = await rig.ask(50, 0, DescribeUserScramCredentialsRequest(users=None))
        assert (everyone.error_code, everyone.error_message, everyone.results) == (0, None, [])
        user = DescribeUserScramCredentialsRequest.UserName(name="alice")
        (alice,) = (await rig.ask(50, 0, DescribeUserScramCredentialsRequest(users=[user]))).results
        assert (alice.user, alice.error_code) == ("alice", ErrorCode.RESOURCE_NOT_FOUND)
        assert alice.credential_infos == [] and alice.error_message


@scenario
async def test_a_user_named_twice_is_answered_once(tmp_path: Path) -> None:
    async with open_rig(tmp_path) as rig:
        user = DescribeUserScramCredentialsRequest.UserName(name="alice")
        (alice,) = (await rig.ask(50, 0, DescribeUserScramCredentialsRequest(users=[user, user]))).results
        assert (alice.user, alice.error_code) == ("alice", ErrorCode.DUPLICATE_RESOURCE)

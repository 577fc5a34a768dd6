"""ACL calls without an authorizer."""

from __future__ import annotations

from pathlib import Path

import pytest

from cairnmq.errors import ErrorCode
from cairnmq.wire.messages import CreateAclsRequest, DeleteAclsRequest, DescribeAclsRequest
from unit.broker.rig import open_rig, scenario

DESCRIBE, CREATE, DELETE = 29, 30, 31


@pytest.mark.parametrize("version", [1, 2, 3])
@scenario
async def test_security_is_disabled(tmp_path: Path, version: int) -> None:
    async with open_rig(tmp_path) as rig:
        described = await rig.ask(DESCRIBE, version, DescribeAclsRequest())
        assert (described.error_code, described.resources) == (ErrorCode.SECURITY_DISABLED, [])
        assert "authorizer" in described.error_message
        creation = CreateAclsRequest.AclCreation(resource_type=2, resource_name="a", principal="User:b", host="*")
        created = await rig.ask(CREATE, version, CreateAclsRequest(creations=[creation, creation]))
        assert [each.error_code for each in created.results] == [ErrorCode.SECURITY_DISABLED] * 2
        wanted = DeleteAclsRequest(filters=[DeleteAclsRequest.DeleteAclsFilter()])
        (deleted,) = (await rig.ask(DELETE, version, wanted)).filter_results
        assert (deleted.error_code, deleted.matching_acls) == (ErrorCode.SECURITY_DISABLED, [])

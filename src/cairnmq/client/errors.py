"""What a client tells its caller when something does not work: a sentence with what, where, and what to do."""

from __future__ import annotations

from cairnmq.errors import ErrorCode


class ClientError(Exception):
    """Any failure of a client call; its text is meant for people."""


class Unreachable(ClientError):
    """No connection could be made; nothing was sent."""


class Disconnected(ClientError):
    """The connection broke, or the answer did not come in time: the request may or may not have been carried out."""


class Unsupported(ClientError):
    """The broker does not serve this API, or not in a version that can express the request."""


class GaveUp(ClientError):
    """Retried until the time was up; the text holds the last reason."""


class Refused(ClientError):
    """The broker understood, and said no. `is_followed`: it named the new leader, who is known now."""

    def __init__(self, code: int, where: str, message: str | None = None, *, is_followed: bool = False) -> None:
        self.code = code
        self.where = where
        self.is_followed = is_followed
        super().__init__(_sentence(code, where, message))


class Absent(Refused):
    """The metadata itself says that there is no such thing: asking again would not help."""


LEADER_MOVED = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.BROKER_NOT_AVAILABLE,
        ErrorCode.REPLICA_NOT_AVAILABLE,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INCONSISTENT_TOPIC_ID,
        ErrorCode.OFFSET_NOT_AVAILABLE,
    }
)
COORDINATOR_MOVED = frozenset(
    {
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.UNSTABLE_OFFSET_COMMIT,
    }
)
RETRIABLE = (
    LEADER_MOVED
    | COORDINATOR_MOVED
    | {
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.NOT_CONTROLLER,
        ErrorCode.THROTTLING_QUOTA_EXCEEDED,
        ErrorCode.CONCURRENT_TRANSACTIONS,
    }
)

# After these the request may have been carried out all the same.
UNCERTAIN = frozenset({ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND})

_SENTENCES: dict[int, str] = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: "does not exist; `cairn topic list` shows existing topics",
    ErrorCode.UNKNOWN_TOPIC_ID: "does not exist any more; `cairn topic list` shows existing topics",
    ErrorCode.TOPIC_ALREADY_EXISTS: "already exists",
    ErrorCode.INVALID_TOPIC_EXCEPTION: "is not a valid topic name; use up to 249 of a-z A-Z 0-9 . _ -",
    ErrorCode.OFFSET_OUT_OF_RANGE: "does not hold that offset (deleted by retention or trim, or not written yet)",
    ErrorCode.MESSAGE_TOO_LARGE: "accepts no batch this large; send smaller batches or raise its max.message.bytes",
    ErrorCode.LEADER_NOT_AVAILABLE: "has no leader at the moment",
    ErrorCode.NOT_LEADER_OR_FOLLOWER: "has moved to another broker",
    ErrorCode.KAFKA_STORAGE_ERROR: "is not available: the broker's disk has failed, is full or damaged; see its log",
    ErrorCode.REQUEST_TIMED_OUT: "took longer than the request timeout",
    ErrorCode.NOT_ENOUGH_REPLICAS: "has fewer in-sync replicas than min.insync.replicas",
    ErrorCode.INVALID_GROUP_ID: "is not a valid group name",
    ErrorCode.COORDINATOR_NOT_AVAILABLE: "has no coordinator at the moment",
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: "is being loaded by its coordinator",
    ErrorCode.GROUP_ID_NOT_FOUND: "does not exist; `cairn group list` shows existing groups",
    ErrorCode.NON_EMPTY_GROUP: "has members; stop them first",
    ErrorCode.UNKNOWN_MEMBER_ID: "has active members, so only they can commit offsets",
    ErrorCode.INVALID_PARTITIONS: "cannot have that number of partitions (at least 1, and not fewer than now)",
    ErrorCode.INVALID_REPLICATION_FACTOR: "cannot have that many replicas: there are fewer brokers",
    ErrorCode.UNSUPPORTED_COMPRESSION_TYPE: "does not support this compression type",
    ErrorCode.INVALID_PRODUCER_EPOCH: "is used by a newer producer, or exceeded its timeout",
    ErrorCode.PRODUCER_FENCED: "is used by a newer producer, or exceeded its timeout",
    ErrorCode.INVALID_TRANSACTION_TIMEOUT: "has a longer timeout than the broker's transaction.max.timeout.ms",
    ErrorCode.POLICY_VIOLATION: "is beyond a limit of the broker (cairn.*.max), or its cleanup.policy has no delete",
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: "is not authorized for this user",
    ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC: "cannot change while a member of the group reads that topic; stop it first",
    ErrorCode.GROUP_MAX_SIZE_REACHED: "has the maximum number of members",
    ErrorCode.INCONSISTENT_GROUP_PROTOCOL: "has members with another protocol; `cairn group describe` shows them",
    ErrorCode.TRANSACTIONAL_ID_NOT_FOUND: "does not exist; `cairn txn list` shows existing ones",
    ErrorCode.UNSUPPORTED_VERSION: "is on a broker that does not support this request",
}


def _sentence(code: int, where: str, message: str | None) -> str:
    try:
        name = ErrorCode(code).name
    except ValueError:
        name = f"error {code}"
    if message and f"'{where.partition(' ')[2]}'" in message:  # as Kafka has it: Topic 'orders' already exists
        return f"{message.removesuffix('.')} ({name})"
    if message:
        return f"{where}: {message} ({name})"
    if code in _SENTENCES:
        return f"{where} {_SENTENCES[code]} ({name})"
    return f"{where}: the broker responded with {name}"

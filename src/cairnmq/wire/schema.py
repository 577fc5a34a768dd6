"""Every message we can read or write, as one table; notation.py reads it, nothing here runs.

Notation, one API after another:

    Name key first-last flexible      the versions we know, and the first with compact encodings ("never": none has)
      > fields                        the request
      < fields                        the response
      = fields                        a message that is neither (its key is "-")
      StructName: fields              a struct of the message above it

A field is `name:type`, then in this order what it needs: `?` may be null (`?2+`: from version 2), `@2-7` or `@8+` only
in these versions, `#0` sent as tagged field 0, `=value` the default where it is not zero, empty or false.
Types: bool i8 i16 i32 i64 u16 f64 uuid str bytes records, the name of a struct, and `[type]` for an array.
Keys from 20000 on are messages of our own between our programs: served, and never advertised.
A line that begins with four spaces continues the one before. Field and struct names are Kafka's, so that its
documentation can be read beside the code; fields stand in the order of their bytes.
"""

from __future__ import annotations

TABLE = """
Produce 0 3-13 9+
  > transactional_id:str?=null acks:i16 timeout_ms:i32 topic_data:[TopicProduceData]
  TopicProduceData: name:str@3-12 topic_id:uuid@13+ partition_data:[PartitionProduceData]
  PartitionProduceData: index:i32 records:records?
  < responses:[TopicProduceResponse] throttle_time_ms:i32 node_endpoints:[NodeEndpoint]@10+#0
  TopicProduceResponse: name:str@3-12 topic_id:uuid@13+ partition_responses:[PartitionProduceResponse]
  PartitionProduceResponse: index:i32 error_code:i16 base_offset:i64 log_append_time_ms:i64=-1
    log_start_offset:i64@5+=-1 record_errors:[BatchIndexAndErrorMessage]@8+ error_message:str?@8+=null
    current_leader:LeaderIdAndEpoch@10+#0
  BatchIndexAndErrorMessage: batch_index:i32 batch_index_error_message:str?=null
  LeaderIdAndEpoch: leader_id:i32=-1 leader_epoch:i32=-1
  NodeEndpoint: node_id:i32 host:str port:i32 rack:str?=null
Fetch 1 4-18 12+
  > cluster_id:str?@12+#0=null replica_id:i32@4-14=-1 replica_state:ReplicaState@15+#1 max_wait_ms:i32 min_bytes:i32
    max_bytes:i32=2147483647 isolation_level:i8 session_id:i32@7+ session_epoch:i32@7+=-1 topics:[FetchTopic]
    forgotten_topics_data:[ForgottenTopic]@7+ rack_id:str@11+
  ReplicaState: replica_id:i32=-1 replica_epoch:i64=-1
  FetchTopic: topic:str@4-12 topic_id:uuid@13+ partitions:[FetchPartition]
  FetchPartition: partition:i32 current_leader_epoch:i32@9+=-1 fetch_offset:i64 last_fetched_epoch:i32@12+=-1
    log_start_offset:i64@5+=-1 partition_max_bytes:i32 replica_directory_id:uuid@17+#0
    high_watermark:i64@18+#1=9223372036854775807
  ForgottenTopic: topic:str@7-12 topic_id:uuid@13+ partitions:[i32]
  < throttle_time_ms:i32 error_code:i16@7+ session_id:i32@7+ responses:[FetchableTopicResponse]
    node_endpoints:[NodeEndpoint]@16+#0
  FetchableTopicResponse: topic:str@4-12 topic_id:uuid@13+ partitions:[PartitionData]
  PartitionData: partition_index:i32 error_code:i16 high_watermark:i64 last_stable_offset:i64=-1
    log_start_offset:i64@5+=-1 diverging_epoch:EpochEndOffset@12+#0 current_leader:LeaderIdAndEpoch@12+#1
    snapshot_id:SnapshotId@12+#2 aborted_transactions:[AbortedTransaction]? preferred_read_replica:i32@11+=-1
    records:records?
  EpochEndOffset: epoch:i32=-1 end_offset:i64=-1
  LeaderIdAndEpoch: leader_id:i32=-1 leader_epoch:i32=-1
  SnapshotId: end_offset:i64=-1 epoch:i32=-1
  AbortedTransaction: producer_id:i64 first_offset:i64
  NodeEndpoint: node_id:i32 host:str port:i32 rack:str?=null
ListOffsets 2 1-11 6+
  > replica_id:i32 isolation_level:i8@2+ topics:[ListOffsetsTopic] timeout_ms:i32@10+
  ListOffsetsTopic: name:str partitions:[ListOffsetsPartition]
  ListOffsetsPartition: partition_index:i32 current_leader_epoch:i32@4+=-1 timestamp:i64
  < throttle_time_ms:i32@2+ topics:[ListOffsetsTopicResponse]
  ListOffsetsTopicResponse: name:str partitions:[ListOffsetsPartitionResponse]
  ListOffsetsPartitionResponse: partition_index:i32 error_code:i16 timestamp:i64=-1 offset:i64=-1
    leader_epoch:i32@4+=-1
Metadata 3 0-13 9+
  > topics:[MetadataRequestTopic]?1+ allow_auto_topic_creation:bool@4+=true
    include_cluster_authorized_operations:bool@8-10 include_topic_authorized_operations:bool@8+
  MetadataRequestTopic: topic_id:uuid@10+ name:str?10+
  < throttle_time_ms:i32@3+ brokers:[MetadataResponseBroker] cluster_id:str?@2+=null controller_id:i32@1+=-1
    topics:[MetadataResponseTopic] cluster_authorized_operations:i32@8-10=-2147483648 error_code:i16@13+
  MetadataResponseBroker: node_id:i32 host:str port:i32 rack:str?@1+=null
  MetadataResponseTopic: error_code:i16 name:str?12+ topic_id:uuid@10+ is_internal:bool@1+
    partitions:[MetadataResponsePartition] topic_authorized_operations:i32@8+=-2147483648
  MetadataResponsePartition: error_code:i16 partition_index:i32 leader_id:i32 leader_epoch:i32@7+=-1
    replica_nodes:[i32] isr_nodes:[i32] offline_replicas:[i32]@5+
OffsetCommit 8 2-10 8+
  > group_id:str generation_id_or_member_epoch:i32=-1 member_id:str group_instance_id:str?@7+=null
    retention_time_ms:i64@2-4=-1 topics:[OffsetCommitRequestTopic]
  OffsetCommitRequestTopic: name:str@2-9 topic_id:uuid@10+ partitions:[OffsetCommitRequestPartition]
  OffsetCommitRequestPartition: partition_index:i32 committed_offset:i64 committed_leader_epoch:i32@6+=-1
    committed_metadata:str?
  < throttle_time_ms:i32@3+ topics:[OffsetCommitResponseTopic]
  OffsetCommitResponseTopic: name:str@2-9 topic_id:uuid@10+ partitions:[OffsetCommitResponsePartition]
  OffsetCommitResponsePartition: partition_index:i32 error_code:i16
OffsetFetch 9 1-10 6+
  > group_id:str@1-7 topics:[OffsetFetchRequestTopic]?2+@1-7 groups:[OffsetFetchRequestGroup]@8+
    require_stable:bool@7+
  OffsetFetchRequestTopic: name:str partition_indexes:[i32]
  OffsetFetchRequestGroup: group_id:str member_id:str?@9+=null member_epoch:i32@9+=-1
    topics:[OffsetFetchRequestTopics]?
  OffsetFetchRequestTopics: name:str@8-9 topic_id:uuid@10+ partition_indexes:[i32]
  < throttle_time_ms:i32@3+ topics:[OffsetFetchResponseTopic]@1-7 error_code:i16@2-7
    groups:[OffsetFetchResponseGroup]@8+
  OffsetFetchResponseTopic: name:str partitions:[OffsetFetchResponsePartition]
  OffsetFetchResponsePartition: partition_index:i32 committed_offset:i64 committed_leader_epoch:i32@5+=-1
    metadata:str? error_code:i16
  OffsetFetchResponseGroup: group_id:str topics:[OffsetFetchResponseTopics] error_code:i16
  OffsetFetchResponseTopics: name:str@8-9 topic_id:uuid@10+ partitions:[OffsetFetchResponsePartitions]
  OffsetFetchResponsePartitions: partition_index:i32 committed_offset:i64 committed_leader_epoch:i32=-1 metadata:str?
    error_code:i16
FindCoordinator 10 0-6 3+
  > key:str@0-3 key_type:i8@1+ coordinator_keys:[str]@4+
  < throttle_time_ms:i32@1+ error_code:i16@0-3 error_message:str?@1-3 node_id:i32@0-3 host:str@0-3 port:i32@0-3
    coordinators:[Coordinator]@4+
  Coordinator: key:str node_id:i32 host:str port:i32 error_code:i16 error_message:str?
JoinGroup 11 0-9 6+
  > group_id:str session_timeout_ms:i32 rebalance_timeout_ms:i32@1+=-1 member_id:str group_instance_id:str?@5+=null
    protocol_type:str protocols:[JoinGroupRequestProtocol] reason:str?@8+=null
  JoinGroupRequestProtocol: name:str metadata:bytes
  < throttle_time_ms:i32@2+ error_code:i16 generation_id:i32=-1 protocol_type:str?@7+=null protocol_name:str?7+
    leader:str skip_assignment:bool@9+ member_id:str members:[JoinGroupResponseMember]
  JoinGroupResponseMember: member_id:str group_instance_id:str?@5+=null metadata:bytes
Heartbeat 12 0-4 4+
  > group_id:str generation_id:i32 member_id:str group_instance_id:str?@3+=null
  < throttle_time_ms:i32@1+ error_code:i16
LeaveGroup 13 0-5 4+
  > group_id:str member_id:str@0-2 members:[MemberIdentity]@3+
  MemberIdentity: member_id:str group_instance_id:str?=null reason:str?@5+=null
  < throttle_time_ms:i32@1+ error_code:i16 members:[MemberResponse]@3+
  MemberResponse: member_id:str group_instance_id:str? error_code:i16
SyncGroup 14 0-5 4+
  > group_id:str generation_id:i32 member_id:str group_instance_id:str?@3+=null protocol_type:str?@5+=null
    protocol_name:str?@5+=null assignments:[SyncGroupRequestAssignment]
  SyncGroupRequestAssignment: member_id:str assignment:bytes
  < throttle_time_ms:i32@1+ error_code:i16 protocol_type:str?@5+=null protocol_name:str?@5+=null assignment:bytes
DescribeGroups 15 0-6 5+
  > groups:[str] include_authorized_operations:bool@3+
  < throttle_time_ms:i32@1+ groups:[DescribedGroup]
  DescribedGroup: error_code:i16 error_message:str?@6+=null group_id:str group_state:str protocol_type:str
    protocol_data:str members:[DescribedGroupMember] authorized_operations:i32@3+=-2147483648
  DescribedGroupMember: member_id:str group_instance_id:str?@4+=null client_id:str client_host:str
    member_metadata:bytes member_assignment:bytes
ListGroups 16 0-5 3+
  > states_filter:[str]@4+ types_filter:[str]@5+
  < throttle_time_ms:i32@1+ error_code:i16 groups:[ListedGroup]
  ListedGroup: group_id:str protocol_type:str group_state:str@4+ group_type:str@5+
SaslHandshake 17 0-1 never
  > mechanism:str
  < error_code:i16 mechanisms:[str]
ApiVersions 18 0-5 3+
  > client_software_name:str@3+ client_software_version:str@3+ cluster_id:str?@5+=null node_id:i32@5+=-1
  < error_code:i16 api_keys:[ApiVersion] throttle_time_ms:i32@1+ supported_features:[SupportedFeatureKey]@3+#0
    finalized_features_epoch:i64@3+#1=-1 finalized_features:[FinalizedFeatureKey]@3+#2 zk_migration_ready:bool@3+#3
  ApiVersion: api_key:i16 min_version:i16 max_version:i16
  SupportedFeatureKey: name:str min_version:i16 max_version:i16
  FinalizedFeatureKey: name:str max_version_level:i16 min_version_level:i16
CreateTopics 19 2-7 5+
  > topics:[CreatableTopic] timeout_ms:i32=60000 validate_only:bool
  CreatableTopic: name:str num_partitions:i32 replication_factor:i16 assignments:[CreatableReplicaAssignment]
    configs:[CreatableTopicConfig]
  CreatableReplicaAssignment: partition_index:i32 broker_ids:[i32]
  CreatableTopicConfig: name:str value:str?
  < throttle_time_ms:i32 topics:[CreatableTopicResult]
  CreatableTopicResult: name:str topic_id:uuid@7+ error_code:i16 error_message:str? topic_config_error_code:i16@5+#0
    num_partitions:i32@5+=-1 replication_factor:i16@5+=-1 configs:[CreatableTopicConfigs]?@5+
  CreatableTopicConfigs: name:str value:str? read_only:bool config_source:i8=-1 is_sensitive:bool
DeleteTopics 20 1-6 4+
  > topics:[DeleteTopicState]@6+ topic_names:[str]@1-5 timeout_ms:i32
  DeleteTopicState: name:str?=null topic_id:uuid
  < throttle_time_ms:i32 responses:[DeletableTopicResult]
  DeletableTopicResult: name:str?6+ topic_id:uuid@6+ error_code:i16 error_message:str?@5+=null
DeleteRecords 21 0-2 2+
  > topics:[DeleteRecordsTopic] timeout_ms:i32
  DeleteRecordsTopic: name:str partitions:[DeleteRecordsPartition]
  DeleteRecordsPartition: partition_index:i32 offset:i64
  < throttle_time_ms:i32 topics:[DeleteRecordsTopicResult]
  DeleteRecordsTopicResult: name:str partitions:[DeleteRecordsPartitionResult]
  DeleteRecordsPartitionResult: partition_index:i32 low_watermark:i64 error_code:i16
InitProducerId 22 0-5 2+
  > transactional_id:str? transaction_timeout_ms:i32 producer_id:i64@3+=-1 producer_epoch:i16@3+=-1
  < throttle_time_ms:i32 error_code:i16 producer_id:i64=-1 producer_epoch:i16
OffsetForLeaderEpoch 23 2-4 4+
  > replica_id:i32@3+=-2 topics:[OffsetForLeaderTopic]
  OffsetForLeaderTopic: topic:str partitions:[OffsetForLeaderPartition]
  OffsetForLeaderPartition: partition:i32 current_leader_epoch:i32=-1 leader_epoch:i32
  < throttle_time_ms:i32 topics:[OffsetForLeaderTopicResult]
  OffsetForLeaderTopicResult: topic:str partitions:[EpochEndOffset]
  EpochEndOffset: error_code:i16 partition:i32 leader_epoch:i32=-1 end_offset:i64=-1
AddPartitionsToTxn 24 0-5 3+
  > transactions:[AddPartitionsToTxnTransaction]@4+ v3_and_below_transactional_id:str@0-3
    v3_and_below_producer_id:i64@0-3 v3_and_below_producer_epoch:i16@0-3
    v3_and_below_topics:[AddPartitionsToTxnTopic]@0-3
  AddPartitionsToTxnTopic: name:str partitions:[i32]
  AddPartitionsToTxnTransaction: transactional_id:str producer_id:i64 producer_epoch:i16 verify_only:bool
    topics:[AddPartitionsToTxnTopic]
  < throttle_time_ms:i32 error_code:i16@4+ results_by_transaction:[AddPartitionsToTxnResult]@4+
    results_by_topic_v3_and_below:[AddPartitionsToTxnTopicResult]@0-3
  AddPartitionsToTxnTopicResult: name:str results_by_partition:[AddPartitionsToTxnPartitionResult]
  AddPartitionsToTxnPartitionResult: partition_index:i32 partition_error_code:i16
  AddPartitionsToTxnResult: transactional_id:str topic_results:[AddPartitionsToTxnTopicResult]
AddOffsetsToTxn 25 0-4 3+
  > transactional_id:str producer_id:i64 producer_epoch:i16 group_id:str
  < throttle_time_ms:i32 error_code:i16
EndTxn 26 0-5 3+
  > transactional_id:str producer_id:i64 producer_epoch:i16 committed:bool
  < throttle_time_ms:i32 error_code:i16 producer_id:i64@5+=-1 producer_epoch:i16@5+=-1
WriteTxnMarkers 27 1-2 1+
  > markers:[WritableTxnMarker]
  WritableTxnMarker: producer_id:i64 producer_epoch:i16 transaction_result:bool topics:[WritableTxnMarkerTopic]
    coordinator_epoch:i32 transaction_version:i8@2+
  WritableTxnMarkerTopic: name:str partition_indexes:[i32]
  < markers:[WritableTxnMarkerResult]
  WritableTxnMarkerResult: producer_id:i64 topics:[WritableTxnMarkerTopicResult]
  WritableTxnMarkerTopicResult: name:str partitions:[WritableTxnMarkerPartitionResult]
  WritableTxnMarkerPartitionResult: partition_index:i32 error_code:i16
TxnOffsetCommit 28 0-6 3+
  > transactional_id:str group_id:str producer_id:i64 producer_epoch:i16 generation_id_or_member_epoch:i32@3+=-1
    member_id:str@3+ group_instance_id:str?@3+=null topics:[TxnOffsetCommitRequestTopic]
  TxnOffsetCommitRequestTopic: name:str@0-5 topic_id:uuid@6+ partitions:[TxnOffsetCommitRequestPartition]
  TxnOffsetCommitRequestPartition: partition_index:i32 committed_offset:i64 committed_leader_epoch:i32@2+=-1
    committed_metadata:str?
  < throttle_time_ms:i32 topics:[TxnOffsetCommitResponseTopic]
  TxnOffsetCommitResponseTopic: name:str@0-5 topic_id:uuid@6+ partitions:[TxnOffsetCommitResponsePartition]
  TxnOffsetCommitResponsePartition: partition_index:i32 error_code:i16
DescribeAcls 29 1-3 2+
  > resource_type_filter:i8 resource_name_filter:str? pattern_type_filter:i8=3 principal_filter:str? host_filter:str?
    operation:i8 permission_type:i8
  < throttle_time_ms:i32 error_code:i16 error_message:str? resources:[DescribeAclsResource]
  DescribeAclsResource: resource_type:i8 resource_name:str pattern_type:i8=3 acls:[AclDescription]
  AclDescription: principal:str host:str operation:i8 permission_type:i8
CreateAcls 30 1-3 2+
  > creations:[AclCreation]
  AclCreation: resource_type:i8 resource_name:str resource_pattern_type:i8=3 principal:str host:str operation:i8
    permission_type:i8
  < throttle_time_ms:i32 results:[AclCreationResult]
  AclCreationResult: error_code:i16 error_message:str?
DeleteAcls 31 1-3 2+
  > filters:[DeleteAclsFilter]
  DeleteAclsFilter: resource_type_filter:i8 resource_name_filter:str? pattern_type_filter:i8=3 principal_filter:str?
    host_filter:str? operation:i8 permission_type:i8
  < throttle_time_ms:i32 filter_results:[DeleteAclsFilterResult]
  DeleteAclsFilterResult: error_code:i16 error_message:str? matching_acls:[DeleteAclsMatchingAcl]
  DeleteAclsMatchingAcl: error_code:i16 error_message:str? resource_type:i8 resource_name:str pattern_type:i8=3
    principal:str host:str operation:i8 permission_type:i8
DescribeConfigs 32 1-4 4+
  > resources:[DescribeConfigsResource] include_synonyms:bool include_documentation:bool@3+
  DescribeConfigsResource: resource_type:i8 resource_name:str configuration_keys:[str]?
  < throttle_time_ms:i32 results:[DescribeConfigsResult]
  DescribeConfigsResult: error_code:i16 error_message:str? resource_type:i8 resource_name:str
    configs:[DescribeConfigsResourceResult]
  DescribeConfigsResourceResult: name:str value:str? read_only:bool config_source:i8=-1 is_sensitive:bool
    synonyms:[DescribeConfigsSynonym] config_type:i8@3+ documentation:str?@3+
  DescribeConfigsSynonym: name:str value:str? source:i8
AlterConfigs 33 0-2 2+
  > resources:[AlterConfigsResource] validate_only:bool
  AlterConfigsResource: resource_type:i8 resource_name:str configs:[AlterableConfig]
  AlterableConfig: name:str value:str?
  < throttle_time_ms:i32 responses:[AlterConfigsResourceResponse]
  AlterConfigsResourceResponse: error_code:i16 error_message:str? resource_type:i8 resource_name:str
AlterReplicaLogDirs 34 1-2 2+
  > dirs:[AlterReplicaLogDir]
  AlterReplicaLogDir: path:str topics:[AlterReplicaLogDirTopic]
  AlterReplicaLogDirTopic: name:str partitions:[i32]
  < throttle_time_ms:i32 results:[AlterReplicaLogDirTopicResult]
  AlterReplicaLogDirTopicResult: topic_name:str partitions:[AlterReplicaLogDirPartitionResult]
  AlterReplicaLogDirPartitionResult: partition_index:i32 error_code:i16
DescribeLogDirs 35 1-5 2+
  > topics:[DescribableLogDirTopic]?
  DescribableLogDirTopic: topic:str partitions:[i32]
  < throttle_time_ms:i32 error_code:i16@3+ results:[DescribeLogDirsResult]
  DescribeLogDirsResult: error_code:i16 log_dir:str topics:[DescribeLogDirsTopic] total_bytes:i64@4+=-1
    usable_bytes:i64@4+=-1 is_cordoned:bool@5+
  DescribeLogDirsTopic: name:str partitions:[DescribeLogDirsPartition]
  DescribeLogDirsPartition: partition_index:i32 partition_size:i64 offset_lag:i64 is_future_key:bool
SaslAuthenticate 36 0-2 2+
  > auth_bytes:bytes
  < error_code:i16 error_message:str? auth_bytes:bytes session_lifetime_ms:i64@1+
CreatePartitions 37 0-3 2+
  > topics:[CreatePartitionsTopic] timeout_ms:i32 validate_only:bool
  CreatePartitionsTopic: name:str count:i32 assignments:[CreatePartitionsAssignment]?
  CreatePartitionsAssignment: broker_ids:[i32]
  < throttle_time_ms:i32 results:[CreatePartitionsTopicResult]
  CreatePartitionsTopicResult: name:str error_code:i16 error_message:str?=null
CreateDelegationToken 38 1-3 2+
  > owner_principal_type:str?@3+ owner_principal_name:str?@3+ renewers:[CreatableRenewers] max_lifetime_ms:i64
  CreatableRenewers: principal_type:str principal_name:str
  < error_code:i16 principal_type:str principal_name:str token_requester_principal_type:str@3+
    token_requester_principal_name:str@3+ issue_timestamp_ms:i64 expiry_timestamp_ms:i64 max_timestamp_ms:i64
    token_id:str hmac:bytes throttle_time_ms:i32
RenewDelegationToken 39 1-2 2+
  > hmac:bytes renew_period_ms:i64
  < error_code:i16 expiry_timestamp_ms:i64 throttle_time_ms:i32
ExpireDelegationToken 40 1-2 2+
  > hmac:bytes expiry_time_period_ms:i64
  < error_code:i16 expiry_timestamp_ms:i64 throttle_time_ms:i32
DescribeDelegationToken 41 1-3 2+
  > owners:[DescribeDelegationTokenOwner]?
  DescribeDelegationTokenOwner: principal_type:str principal_name:str
  < error_code:i16 tokens:[DescribedDelegationToken] throttle_time_ms:i32
  DescribedDelegationToken: principal_type:str principal_name:str token_requester_principal_type:str@3+
    token_requester_principal_name:str@3+ issue_timestamp:i64 expiry_timestamp:i64 max_timestamp:i64 token_id:str
    hmac:bytes renewers:[DescribedDelegationTokenRenewer]
  DescribedDelegationTokenRenewer: principal_type:str principal_name:str
DeleteGroups 42 0-3 2+
  > groups_names:[str]
  < throttle_time_ms:i32 results:[DeletableGroupResult]
  DeletableGroupResult: group_id:str error_code:i16 error_message:str?@3+=null
ElectLeaders 43 0-2 2+
  > election_type:i8@1+ topic_partitions:[TopicPartitions]? timeout_ms:i32=60000
  TopicPartitions: topic:str partitions:[i32]
  < throttle_time_ms:i32 error_code:i16@1+ replica_election_results:[ReplicaElectionResult]
  ReplicaElectionResult: topic:str partition_result:[PartitionResult]
  PartitionResult: partition_id:i32 error_code:i16 error_message:str?
IncrementalAlterConfigs 44 0-1 1+
  > resources:[AlterConfigsResource] validate_only:bool
  AlterConfigsResource: resource_type:i8 resource_name:str configs:[AlterableConfig]
  AlterableConfig: name:str config_operation:i8 value:str?
  < throttle_time_ms:i32 responses:[AlterConfigsResourceResponse]
  AlterConfigsResourceResponse: error_code:i16 error_message:str? resource_type:i8 resource_name:str
AlterPartitionReassignments 45 0-1 0+
  > timeout_ms:i32=60000 allow_replication_factor_change:bool@1+=true topics:[ReassignableTopic]
  ReassignableTopic: name:str partitions:[ReassignablePartition]
  ReassignablePartition: partition_index:i32 replicas:[i32]?=null
  < throttle_time_ms:i32 allow_replication_factor_change:bool@1+=true error_code:i16 error_message:str?
    responses:[ReassignableTopicResponse]
  ReassignableTopicResponse: name:str partitions:[ReassignablePartitionResponse]
  ReassignablePartitionResponse: partition_index:i32 error_code:i16 error_message:str?
ListPartitionReassignments 46 0-0 0+
  > timeout_ms:i32=60000 topics:[ListPartitionReassignmentsTopics]?=null
  ListPartitionReassignmentsTopics: name:str partition_indexes:[i32]
  < throttle_time_ms:i32 error_code:i16 error_message:str? topics:[OngoingTopicReassignment]
  OngoingTopicReassignment: name:str partitions:[OngoingPartitionReassignment]
  OngoingPartitionReassignment: partition_index:i32 replicas:[i32] adding_replicas:[i32] removing_replicas:[i32]
OffsetDelete 47 0-0 never
  > group_id:str topics:[OffsetDeleteRequestTopic]
  OffsetDeleteRequestTopic: name:str partitions:[OffsetDeleteRequestPartition]
  OffsetDeleteRequestPartition: partition_index:i32
  < error_code:i16 throttle_time_ms:i32 topics:[OffsetDeleteResponseTopic]
  OffsetDeleteResponseTopic: name:str partitions:[OffsetDeleteResponsePartition]
  OffsetDeleteResponsePartition: partition_index:i32 error_code:i16
DescribeClientQuotas 48 0-1 1+
  > components:[ComponentData] strict:bool
  ComponentData: entity_type:str match_type:i8 match:str?
  < throttle_time_ms:i32 error_code:i16 error_message:str? entries:[EntryData]?
  EntryData: entity:[EntityData] values:[ValueData]
  EntityData: entity_type:str entity_name:str?
  ValueData: key:str value:f64
AlterClientQuotas 49 0-1 1+
  > entries:[EntryData] validate_only:bool
  EntryData: entity:[EntityData] ops:[OpData]
  EntityData: entity_type:str entity_name:str?
  OpData: key:str value:f64 remove:bool
  < throttle_time_ms:i32 entries:[EntryData]
  EntryData: error_code:i16 error_message:str? entity:[EntityData]
  EntityData: entity_type:str entity_name:str?
DescribeUserScramCredentials 50 0-0 0+
  > users:[UserName]?
  UserName: name:str
  < throttle_time_ms:i32 error_code:i16 error_message:str? results:[DescribeUserScramCredentialsResult]
  DescribeUserScramCredentialsResult: user:str error_code:i16 error_message:str? credential_infos:[CredentialInfo]
  CredentialInfo: mechanism:i8 iterations:i32
AlterUserScramCredentials 51 0-0 0+
  > deletions:[ScramCredentialDeletion] upsertions:[ScramCredentialUpsertion]
  ScramCredentialDeletion: name:str mechanism:i8
  ScramCredentialUpsertion: name:str mechanism:i8 iterations:i32 salt:bytes salted_password:bytes
  < throttle_time_ms:i32 results:[AlterUserScramCredentialsResult]
  AlterUserScramCredentialsResult: user:str error_code:i16 error_message:str?
DescribeQuorum 55 0-2 0+
  > topics:[TopicData]
  TopicData: topic_name:str partitions:[PartitionData]
  PartitionData: partition_index:i32
  < error_code:i16 error_message:str?@2+ topics:[TopicData] nodes:[Node]@2+
  ReplicaState: replica_id:i32 replica_directory_id:uuid@2+ log_end_offset:i64 last_fetch_timestamp:i64@1+=-1
    last_caught_up_timestamp:i64@1+=-1
  TopicData: topic_name:str partitions:[PartitionData]
  PartitionData: partition_index:i32 error_code:i16 error_message:str?@2+ leader_id:i32 leader_epoch:i32
    high_watermark:i64 current_voters:[ReplicaState] observers:[ReplicaState]
  Node: node_id:i32 listeners:[Listener]
  Listener: name:str host:str port:u16
UpdateFeatures 57 0-2 0+
  > timeout_ms:i32=60000 feature_updates:[FeatureUpdateKey] validate_only:bool@1+
  FeatureUpdateKey: feature:str max_version_level:i16 allow_downgrade:bool@0 upgrade_type:i8@1+=1
  < throttle_time_ms:i32 error_code:i16 error_message:str? results:[UpdatableFeatureResult]@0-1
  UpdatableFeatureResult: feature:str error_code:i16 error_message:str?
DescribeCluster 60 0-2 0+
  > include_cluster_authorized_operations:bool endpoint_type:i8@1+=1 include_fenced_brokers:bool@2+
  < throttle_time_ms:i32 error_code:i16 error_message:str?=null endpoint_type:i8@1+=1 cluster_id:str
    controller_id:i32=-1 brokers:[DescribeClusterBroker] cluster_authorized_operations:i32=-2147483648
  DescribeClusterBroker: broker_id:i32 host:str port:i32 rack:str?=null is_fenced:bool@2+
DescribeProducers 61 0-0 0+
  > topics:[TopicRequest]
  TopicRequest: name:str partition_indexes:[i32]
  < throttle_time_ms:i32 topics:[TopicResponse]
  TopicResponse: name:str partitions:[PartitionResponse]
  PartitionResponse: partition_index:i32 error_code:i16 error_message:str?=null active_producers:[ProducerState]
  ProducerState: producer_id:i64 producer_epoch:i32 last_sequence:i32=-1 last_timestamp:i64=-1 coordinator_epoch:i32
    current_txn_start_offset:i64=-1
UnregisterBroker 64 0-0 0+
  > broker_id:i32
  < throttle_time_ms:i32 error_code:i16 error_message:str?
DescribeTransactions 65 0-0 0+
  > transactional_ids:[str]
  < throttle_time_ms:i32 transaction_states:[TransactionState]
  TransactionState: error_code:i16 transactional_id:str transaction_state:str transaction_timeout_ms:i32
    transaction_start_time_ms:i64 producer_id:i64 producer_epoch:i16 topics:[TopicData]
  TopicData: topic:str partitions:[i32]
ListTransactions 66 0-2 0+
  > state_filters:[str] producer_id_filters:[i64] duration_filter:i64@1+=-1 transactional_id_pattern:str?@2+=null
  < throttle_time_ms:i32 error_code:i16 unknown_state_filters:[str] transaction_states:[TransactionState]
  TransactionState: transactional_id:str producer_id:i64 transaction_state:str
ConsumerGroupHeartbeat 68 0-1 0+
  > group_id:str member_id:str member_epoch:i32 instance_id:str?=null rack_id:str?=null rebalance_timeout_ms:i32=-1
    subscribed_topic_names:[str]?=null subscribed_topic_regex:str?@1+=null server_assignor:str?=null
    topic_partitions:[TopicPartitions]?=null
  TopicPartitions: topic_id:uuid partitions:[i32]
  < throttle_time_ms:i32 error_code:i16 error_message:str?=null member_id:str?=null member_epoch:i32
    heartbeat_interval_ms:i32 assignment:Assignment?=null
  TopicPartitions: topic_id:uuid partitions:[i32]
  Assignment: topic_partitions:[TopicPartitions]
ConsumerGroupDescribe 69 0-1 0+
  > group_ids:[str] include_authorized_operations:bool
  < throttle_time_ms:i32 groups:[DescribedGroup]
  TopicPartitions: topic_id:uuid topic_name:str partitions:[i32]
  Assignment: topic_partitions:[TopicPartitions]
  DescribedGroup: error_code:i16 error_message:str?=null group_id:str group_state:str group_epoch:i32
    assignment_epoch:i32 assignor_name:str members:[Member] authorized_operations:i32=-2147483648
  Member: member_id:str instance_id:str?=null rack_id:str?=null member_epoch:i32 client_id:str client_host:str
    subscribed_topic_names:[str] subscribed_topic_regex:str?=null assignment:Assignment target_assignment:Assignment
    member_type:i8@1+=-1
GetTelemetrySubscriptions 71 0-0 0+
  > client_instance_id:uuid
  < throttle_time_ms:i32 error_code:i16 client_instance_id:uuid subscription_id:i32 accepted_compression_types:[i8]
    push_interval_ms:i32 telemetry_max_bytes:i32 delta_temporality:bool requested_metrics:[str]
PushTelemetry 72 0-0 0+
  > client_instance_id:uuid subscription_id:i32 terminating:bool compression_type:i8 metrics:bytes
  < throttle_time_ms:i32 error_code:i16
ListConfigResources 74 0-1 0+
  > resource_types:[i8]@1+
  < throttle_time_ms:i32 error_code:i16 config_resources:[ConfigResource]
  ConfigResource: resource_name:str resource_type:i8@1+=16
DescribeTopicPartitions 75 0-0 0+
  > topics:[TopicRequest] response_partition_limit:i32=2000 cursor:Cursor?=null
  TopicRequest: name:str
  Cursor: topic_name:str partition_index:i32
  < throttle_time_ms:i32 topics:[DescribeTopicPartitionsResponseTopic] next_cursor:Cursor?=null
  DescribeTopicPartitionsResponseTopic: error_code:i16 name:str? topic_id:uuid is_internal:bool
    partitions:[DescribeTopicPartitionsResponsePartition] topic_authorized_operations:i32=-2147483648
  DescribeTopicPartitionsResponsePartition: error_code:i16 partition_index:i32 leader_id:i32 leader_epoch:i32=-1
    replica_nodes:[i32] isr_nodes:[i32] eligible_leader_replicas:[i32]?=null last_known_elr:[i32]?=null
    offline_replicas:[i32]
  Cursor: topic_name:str partition_index:i32
KeepOffsets 20000 0-0 0+
  > topics:[KeptTopic]
  KeptTopic: topic_id:uuid partitions:[KeptPartition]
  KeptPartition: index:i32 start_offset:i64 end_offset:i64 records:records?
  < throttle_time_ms:i32 topics:[KeptTopicResult]
  KeptTopicResult: topic_id:uuid partitions:[KeptPartitionResult]
  KeptPartitionResult: index:i32 error_code:i16 error_message:str?=null log_start_offset:i64=-1 end_offset:i64=-1
DescribeJournals 20001 0-2 0+
  > journals:[i32]?=null
  < throttle_time_ms:i32 error_code:i16 error_message:str?=null cluster_id:str node_id:i32=-1 controller_id:i32=-1
    metadata_revision:i64=-1 metadata_away_ms:i64=-1 brokers:[DescribedBroker] journals:[DescribedJournal]
    links:[FailingLink]@2+ slots_trouble:str@2+
  DescribedBroker: node_id:i32 broker_epoch:i64=-1 host:str port:i32 rack:str?=null is_live:bool
    session_age_ms:i64=-1 is_stopping:bool damaged:[i32]
  DescribedJournal: journal:i32 epoch:i32=-1 leader:Member?=null replicas:[i32] isr:[Member] offline:[i32]
    resigned:i32=-1 is_weak:bool recovered:i32 unclean:i32 trouble:str?=null led_here:LedJournal?=null
    ends:[ToldEnd]@1+
  FailingLink: node_id:i32 trouble:str
  Member: node_id:i32 broker_epoch:i64=-1
  LedJournal: is_ready:bool end:i64 synced:i64 replicated_end:i64 durable_end:i64 split_end:i64 unsplit_bytes:i64
    replicas:[ReplicaEnds]
  ToldEnd: node_id:i32 last_epoch:i32=-1 end:i64=-1
  ReplicaEnds: node_id:i32 is_in_sync:bool end:i64=-1 synced:i64=-1 lag_ms:i64=-1 unsplit_bytes:i64=-1
    unsplit_percent:i32=-1 free_bytes:i64=-1 slows_producers:bool
ElectUnclean 20002 0-0 0+
  > journals:[i32] timeout_ms:i32=60000
  < throttle_time_ms:i32 results:[ElectUncleanResult]
  ElectUncleanResult: journal:i32 error_code:i16 error_message:str?=null
ForgetBroker 20003 0-0 0+
  > broker_id:i32
  < throttle_time_ms:i32 error_code:i16 error_message:str?=null
ConsumerProtocolSubscription - 0-3 never
  = topics:[str] user_data:bytes?=null owned_partitions:[TopicPartition]@1+ generation_id:i32@2+=-1
    rack_id:str?@3+=null
  TopicPartition: topic:str partitions:[i32]
ConsumerProtocolAssignment - 0-3 never
  = assigned_partitions:[TopicPartition] user_data:bytes?=null
  TopicPartition: topic:str partitions:[i32]
OffsetCommitKey - 0-1 never
  = group:str topic:str partition:i32
OffsetCommitValue - 0-4 4+
  = offset:i64 leader_epoch:i32@3+=-1 metadata:str commit_timestamp:i64 expire_timestamp:i64@1=-1 topic_id:uuid@4+#0
TopicRecord - 0-0 0+
  = name:str topic_id:uuid
PartitionRecord - 0-2 0+
  = partition_id:i32=-1 topic_id:uuid replicas:[i32] isr:[i32] removing_replicas:[i32] adding_replicas:[i32]
    leader:i32=-1 leader_epoch:i32=-1 partition_epoch:i32=-1 directories:[uuid]@1+
ConfigRecord - 0-0 0+
  = resource_type:i8 resource_name:str name:str value:str?
RemoveTopicRecord - 0-0 0+
  = topic_id:uuid
"""

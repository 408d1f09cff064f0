"""Every error that headrace raises on purpose, in a module for each subject.

HeadraceError                         base
├── ProjectError                      project: every problem at once, each with file and line
├── NotDeclaredError                  the project has no topic or table of that name
├── UnknownFormatError                a topic's format is none that headrace can read
├── EventRejectedError                an event does not fit its topic; it was not sent
├── AccountMissingError               a topic places events by account, and none is named
├── LinkTargetError                   a link writes the topic, and nothing else may
├── EnvelopeTopicError                a topic takes envelopes of many events, and no single ones
├── RecordKeyMissingError             a topic is compacted by keys that its events do not hold
├── SampleError                       no events to measure with
├── MeasurementError                  a worker, pipeline or producer can't be measured
├── DrillError                        a worker or pipeline can't be drilled
├── JavaUnavailableError              runtime: no usable Java, and the bundled one does not start
├── JarError                          a jar could not be fetched, or its hash is not the locked one
├── ServerStartError                  a server did not become ready, or its port is in use
├── ExtraMissingError                 an optional dependency is not installed
├── BrokerUnreachableError            kafka: the broker does not respond; retried
├── RegistryUnreachableError          the schema registry does not respond; retried
├── SchemaMismatchError               the newest schema can't hold all events of a class
├── SchemaRejectedError               the schema registry rejects the schema of an event class
├── AuthenticationError               the cluster rejects the login; never retried
├── AuthorizationError                an ACL is missing; never retried
├── TopicChangeError                  a live topic can't be changed into the declared one
├── RecordsUnreadableError            records are corrupt, or a broker refuses to give them
├── EventsNotDeliveredError           Kafka did not acknowledge events that were sent
├── InstanceIdInUseError              another member of the group has that instance id
├── RefusedError                      base: a start would lose or repeat data; never retried
│   ├── TopicMissingError             offsets
│   ├── PartitionMissingError
│   ├── TopicRecreatedError
│   ├── ReferenceRecreatedError
│   ├── TopicTruncatedError
│   ├── PartitionsAddedError
│   ├── KeyMovedError
│   ├── RetentionPassedError
│   ├── DeletesExpiredError
│   ├── RecordsDeletedError
│   ├── CommittedOffsetError
│   ├── WorkerTruncatedError
│   ├── StateRefusedError             the state of a worker is not that at its offsets
│   ├── TopicChangeRefusedError       a topic can't be changed into another one exactly
│   ├── CheckpointInUseError          checkpoints
│   ├── CheckpointLostError
│   ├── HandoverError
│   ├── JoinStateError
│   ├── CheckpointBehindTableError
│   ├── TableBehindCheckpointError
│   ├── QueryChangedError
│   ├── NothingCommittedError
│   ├── CommitUnknownError             it can't be known whether a batch is in the table
│   ├── TableMismatchError
│   ├── LinkError                     links: one can't continue
│   │   ├── LinkRecordError           a record can't be written as it is
│   │   │   └── LinkDamagedError      records of the source can't be read
│   │   ├── LinkNoPartitionError
│   │   ├── LinkNoLeaderError
│   │   ├── LinkLossError             its source lacks what comes next
│   │   ├── LinkNotRefusedError
│   │   ├── LinkRunningError
│   │   ├── LinkSameClusterError      both sites are one cluster
│   │   └── LinkOffsetError           copying: the log has no such offset, or it was copied
│   │       └── MirrorOffsetError     mirror
│   ├── DispatcherCoresError          dispatcher
│   ├── DispatcherRunningError
│   ├── WorkerRunningError            running
│   ├── ServiceRunningError
│   ├── LoaderRunningError
│   ├── CounterReusedError
│   ├── ReplayRunningError
│   ├── ReplayRefusedError
│   ├── ReprocessRefusedError         reprocessing
│   ├── RangeExpiredError
│   ├── ReprocessRunningError
│   ├── QueryIdTakenError             queries
│   ├── QueryUnmatchedError
│   ├── QueriesUnmatchedError
│   ├── SnapshotDamagedError           the snapshots of windows do not fit together
│   ├── MatchedRecordsDeletedError     retention was faster than the instances
│   ├── QueryTopicRecreatedError       offsets in the snapshots are those of a deleted topic
│   ├── QueryTopicTruncatedError       their log was cut before the snapshots
│   ├── MatchedEventsRunningError      matched events are sent already
│   └── MatchedEventsFormatError       matched events can't be sent of the records of this topic
├── ClaimLostError                    checkpoints: another driver of a pipeline may run it
├── StepError                         pipelines: a step of the user raised an error; never retried
├── ReferenceTooLargeError            a reference table needs too much memory; never retried
├── UnreadRangesError                 a batch has no report of ranges it had to read; retried
├── DeadLetterLimitError              too many invalid records; never retried
├── SinkError                         sinks: the sink can't take a batch
│   ├── RecordRejectedError           Kafka can't take a record as it is
│   ├── ReplayedRecordError           a dead letter's record can't be sent to its topic again
│   ├── ProfileStoreFullError         the store of profiles has no memory left
│   ├── ProfileStoreError             it can't be used; never retried
│   │   ├── ProfileTableMissingError  it has no table
│   │   └── ProfileStoreAccessError   it refuses access
│   ├── StorageError                  the storage of the lake can't be used; never retried
│   │   ├── BucketMissingError        its bucket does not exist
│   │   ├── StorageAccessError        it refuses the credentials
│   │   ├── StorageRegionError        the bucket is in another region
│   │   ├── StorageClockError         it takes requests for old ones: the clocks differ
│   │   └── ConditionalWritesError    two writers would overwrite each other's commits
│   └── SinkUnavailableError          it may take the batch later; retried
│       ├── ProfileStoreUnavailableError  the store of profiles can't be used now
│       └── StorageUnavailableError   the storage of the lake does not answer
├── ProfileMissingError               the store has no profile of this user
├── DispatcherFailedError             dispatcher: the query of a target has failed
├── QueryTextError                    queries: the text of a standing query is not valid
├── QueryInvalidError                 its id or its time to live is not possible
├── QueryMissingError                 no query of that id is registered
├── WorkerError                       workers: an instance of a worker can't continue
│   ├── ProcessingFailedError         a record failed, and the worker stops at failures
│   ├── ProcessingTimeoutError        a record was not processed in time
│   ├── TaskTimeoutError              init, punctuate or close of a task took too long
│   ├── TaskThreadsError              every thread for tasks is held by a call that does not return
│   ├── LaneEndedError                a subpartition stopped, and nothing had ended it
│   ├── LifespanEndedError            a worker's lifespan ended while its instance ran
│   ├── ReferencesTooLargeError       the references of a worker are larger than it allows
│   ├── StateTooLargeError            the state of an instance is larger than its worker allows
│   ├── SubpartitionError             the subpartitions of a partition can't be made
│   ├── PlacedRunError                an instance of a distributed run failed for good
│   ├── LastCommitError               the last commit of an instance was not confirmed
│   └── WorkerStateError              started twice, or after its end
├── InvalidRecordError                raised by a task: no retry can help this record
├── WrongOffsetError                  a record was reported done twice, or was never read
├── SpreadInvalidError                spreads: accounts of a topic can't be spread like this
├── SpreadSampleError                 its records do not say which accounts have its load
├── SpreadsChangedError               spreads were applied by others meanwhile
├── SpreadsUnknownError               a producer has not read for too long what was applied; retried
├── IngestFailedError                 ingest: the worker processes can't start
├── IngestStateError                  a file that the worker processes share can't be made
├── SpoolError                        the spool could not take records, or could not be read
│   └── SpoolFullError                its disk budget is used up; nothing was written
├── TokenUnknownError                 no such access token
├── TokenInvalidError                 an access token can't be made with these values
├── TokenNotTakenError                the service does not accept a new token yet
└── OfflineFilesError                 files can't be read, or no progress can be kept of them

The class docstring is the first line of the message; facts are fields. ``remedy`` says what to do.
``__init__.pyi`` says in which module each of them is, here or in ``errors`` of its capability; a
module is imported when one is used.
"""

from headrace.lazy_names import lazy_names

__getattr__, __dir__, __all__ = lazy_names(__name__, __file__)

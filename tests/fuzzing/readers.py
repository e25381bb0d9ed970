"""Every reader of files that users give, by name."""

from fuzzing.model_readers import MODEL_READERS
from fuzzing.plan_readers import PLAN_READERS
from fuzzing.server_readers import SERVER_READERS
from fuzzing.trace_readers import TRACE_READERS

READERS = {reader.name: reader for reader in (*PLAN_READERS, *TRACE_READERS, *MODEL_READERS, *SERVER_READERS)}

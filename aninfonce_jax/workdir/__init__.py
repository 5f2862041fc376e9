"""The work directory: every file of a run, its name, its format, and whether it is to be trusted.

    config.json     the resolved config, its hash, the command that repeats the run
    metrics.jsonl   a row for every logging interval and evaluation (remote: in several parts)
    eval.json       the last evaluation in full
    checkpoints/ tensorboard/ figures/ report.html table1.csv table1.json

`config.json` and `eval.json` carry a digest of all they hold, so that a file which was edited
or damaged is noticed. `eval.json` names the config that it belongs to and the rows of
`metrics.jsonl` that were written when it was made: files of two runs are told apart, and rows
that were lost, doubled or changed are seen without opening a checkpoint.

It may be remote, `gs://bucket/folder`: `locate` makes the path, and all here takes both kinds.

Nothing here trains, scores or draws, and jax is not imported.
"""

from aninfonce_jax.workdir.config_file import (
    SavedConfig,
    check_claim,
    check_same,
    claim,
    claimed,
    read_config,
    read_saved,
    write_config,
)
from aninfonce_jax.workdir.entries import check_entries, find_runs
from aninfonce_jax.workdir.eval_file import (
    Evaluation,
    check_metrics,
    read_eval,
    undo_eval,
    write_eval,
)
from aninfonce_jax.workdir.holding import check_held, hold, hold_report
from aninfonce_jax.workdir.metrics_file import (
    digest_rows,
    encode_row,
    read_metrics,
    restore_metrics,
)
from aninfonce_jax.workdir.metrics_parts import RowFile, open_rows
from aninfonce_jax.workdir.names import (
    CHECKPOINT_FOLDER,
    COMPILE_FILE,
    COMPILE_LOG,
    COMPILE_PAGE,
    CONFIG_FILE,
    EVAL_FILE,
    FIGURES_FOLDER,
    FINISHED_SAVE,
    INTERRUPTED_SAVE,
    LOCK_FILE,
    MADE_IN_CODE,
    METRICS_FILE,
    PREVIEW_FILE,
    PROFILE_FOLDER,
    RECORD_FILE,
    RECORD_FOLDER,
    REPORT_FILE,
    REPORT_LOCK_FILE,
    SEAL_FILE,
    STATE_FOLDER,
    TABLE_CSV_FILE,
    TABLE_JSON_FILE,
    TENSORBOARD_FOLDER,
    Row,
    WorkdirError,
    locate,
)
from aninfonce_jax.workdir.seals import FORMAT

__all__ = [
    "CHECKPOINT_FOLDER",
    "COMPILE_FILE",
    "COMPILE_LOG",
    "COMPILE_PAGE",
    "CONFIG_FILE",
    "EVAL_FILE",
    "FIGURES_FOLDER",
    "FINISHED_SAVE",
    "FORMAT",
    "INTERRUPTED_SAVE",
    "LOCK_FILE",
    "MADE_IN_CODE",
    "METRICS_FILE",
    "PREVIEW_FILE",
    "PROFILE_FOLDER",
    "RECORD_FILE",
    "RECORD_FOLDER",
    "REPORT_FILE",
    "REPORT_LOCK_FILE",
    "SEAL_FILE",
    "STATE_FOLDER",
    "TABLE_CSV_FILE",
    "TABLE_JSON_FILE",
    "TENSORBOARD_FOLDER",
    "Evaluation",
    "Row",
    "RowFile",
    "SavedConfig",
    "WorkdirError",
    "check_claim",
    "check_entries",
    "check_held",
    "check_metrics",
    "check_same",
    "claim",
    "claimed",
    "digest_rows",
    "encode_row",
    "find_runs",
    "hold",
    "hold_report",
    "locate",
    "open_rows",
    "read_config",
    "read_eval",
    "read_metrics",
    "read_saved",
    "restore_metrics",
    "undo_eval",
    "write_config",
    "write_eval",
]

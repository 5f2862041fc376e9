"""The work directory: every file of a run, its name, its format, and whether it is to be trusted.

    config.json     the resolved config, its hash, the command that repeats the run
    metrics.jsonl   a row for every logging interval and evaluation (remote: in several parts)
    eval.json       the last evaluation in full
    diagnosis.json  which assumptions the run's pairs break, and diagnosis.html
    compile.json    what a run would take elsewhere, and compile.html
    checkpoints/ tensorboard/ figures/ report.html table1.csv table1.json

The folder of a sweep has `sweep.json`, `sweep.csv`, `sweep.html` and `logs/`, and its runs below.

`config.json` and `eval.json` carry a digest of all they hold, so that a file which was edited
or damaged is noticed. `eval.json` names the config that it belongs to and the rows of
`metrics.jsonl` that were written when it was made: files of two runs are told apart, and rows
that were lost, doubled or changed are seen without opening a checkpoint.

It may be remote, `gs://bucket/folder`: `locate` makes the path, and all here takes both kinds.

Nothing here trains, scores or draws, and jax is not imported.
"""

from aninfonce_jax.workdir.compile_file import read_forecasts, write_forecasts
from aninfonce_jax.workdir.config_file import (
    SavedConfig,
    check_claim,
    check_same,
    claim,
    claimed,
    is_made_in_code,
    read_config,
    read_saved,
    write_config,
)
from aninfonce_jax.workdir.diagnosis_file import read_diagnosis, write_diagnosis
from aninfonce_jax.workdir.entries import (
    check_entries,
    find_runs,
    has_checkpoint,
    has_config,
    is_sweep,
)
from aninfonce_jax.workdir.eval_file import (
    Evaluation,
    check_metrics,
    read_eval,
    undo_eval,
    write_eval,
)
from aninfonce_jax.workdir.holding import check_held, hold, hold_report
from aninfonce_jax.workdir.metrics_file import (
    ROW_KEYS,
    Split,
    digest_rows,
    encode_row,
    make_row,
    read_metrics,
    restore_metrics,
    rows_of,
)
from aninfonce_jax.workdir.metrics_parts import RowFile, open_rows
from aninfonce_jax.workdir.names import (
    CHECKPOINT_FOLDER,
    COMPILE_LOG,
    COMPILE_PAGE,
    CONFIG_FILE,
    DIAGNOSIS_PAGE,
    EVAL_FILE,
    EVALUATED_WITH,
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
    SUBMITTED_FOLDER,
    SWEEP_CSV_FILE,
    SWEEP_PAGE,
    TABLE_CSV_FILE,
    TABLE_JSON_FILE,
    TENSORBOARD_FOLDER,
    Row,
    WorkdirError,
    locate,
)
from aninfonce_jax.workdir.sweep_file import (
    FAILED,
    FINISHED,
    STOPPED,
    WAITING,
    Status,
    SweepPoint,
    SweepRecord,
    read_sweep,
    sweep_log,
    write_sweep,
)

__all__ = [
    "CHECKPOINT_FOLDER",
    "COMPILE_LOG",
    "COMPILE_PAGE",
    "CONFIG_FILE",
    "DIAGNOSIS_PAGE",
    "EVALUATED_WITH",
    "EVAL_FILE",
    "FAILED",
    "FIGURES_FOLDER",
    "FINISHED",
    "FINISHED_SAVE",
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
    "ROW_KEYS",
    "SEAL_FILE",
    "STATE_FOLDER",
    "STOPPED",
    "SUBMITTED_FOLDER",
    "SWEEP_CSV_FILE",
    "SWEEP_PAGE",
    "TABLE_CSV_FILE",
    "TABLE_JSON_FILE",
    "TENSORBOARD_FOLDER",
    "WAITING",
    "Evaluation",
    "Row",
    "RowFile",
    "SavedConfig",
    "Split",
    "Status",
    "SweepPoint",
    "SweepRecord",
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
    "has_checkpoint",
    "has_config",
    "hold",
    "hold_report",
    "is_made_in_code",
    "is_sweep",
    "locate",
    "make_row",
    "open_rows",
    "read_config",
    "read_diagnosis",
    "read_eval",
    "read_forecasts",
    "read_metrics",
    "read_saved",
    "read_sweep",
    "restore_metrics",
    "rows_of",
    "sweep_log",
    "undo_eval",
    "write_config",
    "write_diagnosis",
    "write_eval",
    "write_forecasts",
    "write_sweep",
]

"""A script: predict raw rows with a registered model, in a process that knows nothing but that model.

    python -P tasks/tracking/score.py [PARENT_PID [MODULE...]]

It imports what it needs, the modules too, and reads one line of JSON from standard input: `store` (MLflow's address),
`model` (its URI), `rows` (a Parquet file) and `out`, a file that gets the list of predictions as JSON, in a folder that
the caller deletes. It is run by its path and imports nothing of this project, so that the `tasks` which the model finds
is the one stored with it: an old champion is scored by its own code. Exit codes: 0; 3 the model's signature can't read
the rows; 4 the model can't be had from the store; 1 anything else. The last line on stderr says what.
"""

import gc
import json
import runpy
import sys
import tempfile
from importlib import import_module
from pathlib import Path
from typing import Any

CANNOT_READ = 3
CANNOT_LOAD = 4


def main(arguments: list[str]) -> int:
    if arguments:
        helper = runpy.run_path(str(Path(__file__).resolve().parents[1] / "parent_death.py"))
        helper["die_with"](int(arguments[0]))

    import mlflow
    import mlflow.artifacts
    import mlflow.pyfunc
    import pandas as pd
    from mlflow.exceptions import MlflowException

    for module in arguments[1:]:
        import_module(module)
    request = sys.stdin.readline()
    if not request:
        return 0
    store, uri, rows_file, out_file = (json.loads(request)[name] for name in ("store", "model", "rows", "out"))
    tempfile.tempdir = str(Path(out_file).parent)  # MLflow leaves what it downloads, the caller doesn't
    mlflow.set_tracking_uri(store)
    mlflow.set_registry_uri(store)
    rows = pd.read_parquet(rows_file)
    try:
        local = mlflow.artifacts.download_artifacts(artifact_uri=uri)
    except (MlflowException, OSError) as error:
        return _fail(CANNOT_LOAD, f"{uri}: {error}")
    model = mlflow.pyfunc.load_model(local)
    try:
        predictions = model.predict(_as_signed(rows, model.metadata.get_input_schema()))
    except MlflowException as error:
        return _fail(CANNOT_READ, f"{uri}: {error}")
    column = predictions["prediction"].tolist()
    Path(out_file).write_text(json.dumps(column), encoding="utf-8")
    return 0


def _as_signed(rows: Any, schema: Any) -> Any:
    """Rows whose numbers have the types of the signature wherever that changes no value: 3 for 3.0, and back."""
    if schema is None:
        return rows
    rows = rows.copy()
    for column in schema.inputs:
        if column.name not in rows:
            continue
        kind = rows[column.name].dtype.kind
        wanted = str(getattr(column.type, "name", ""))
        if wanted == "double" and kind in "iu":
            rows[column.name] = rows[column.name].astype("float64")
        elif wanted == "long" and kind == "f" and (rows[column.name] % 1 == 0).all():
            rows[column.name] = rows[column.name].astype("int64")
    return rows


def _fail(code: int, message: str) -> int:
    print(" ".join(message.split()), file=sys.stderr)
    return code


if __name__ == "__main__":
    exit_code = main(sys.argv[1:])
    gc.freeze()  # to look for garbage among all that was imported would take half a second at exit
    sys.exit(exit_code)

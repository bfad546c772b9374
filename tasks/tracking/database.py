"""A new sqlite database for MLflow: there with all its tables, or not there."""

from __future__ import annotations

from pathlib import Path


def make_database(file: Path) -> None:
    """Make `file`, under its final name only once it is complete.

    MLflow makes its tables in dozens of migrations, which take seconds. A process that ends among them would leave a
    database that no later one can use or mend.
    """
    from mlflow.store.db.utils import _initialize_tables
    from sqlalchemy import create_engine

    partial = file.with_name(f".{file.name}.new")
    partial.unlink(missing_ok=True)  # of a process that has ended early
    engine = create_engine(f"sqlite:///{partial}")
    try:
        _initialize_tables(engine)  # type: ignore[no-untyped-call]
    finally:
        engine.dispose()
    partial.replace(file)

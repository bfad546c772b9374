"""A script: uvicorn with its arguments, for a server that finds no module in the folder it is started in.

    python -P flows/embedded_app.py --app-dir FOLDER ARGUMENT...

-P and --app-dir keep Python and uvicorn from looking there. Alembic does it too, as its configuration in Prefect puts
"." at the head of the path. The settings in that folder are the server's nevertheless.
"""

import sys
from importlib.machinery import ModuleSpec
from types import ModuleType


class FindsNothing:
    def find_spec(self, _name: str, _target: ModuleType | None = None) -> ModuleSpec | None:
        return None


def not_here(entry: str) -> FindsNothing:
    """A hook for entries of the path; those that it raises for are left to the others."""
    if entry != ".":
        raise ImportError(entry)
    return FindsNothing()


if __name__ == "__main__":
    sys.path_hooks.insert(0, not_here)

    import uvicorn

    uvicorn.main()

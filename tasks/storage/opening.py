"""How the processes of a run come to open the source store: the parent asks DVC, the others are told."""

from __future__ import annotations

from tasks.config import Params
from tasks.storage.store_options import give_options

_GIVEN_FOR: list[tuple[str | None, ...]] = []


def open_store(params: Params, root: str) -> None:
    """Give this process, and those that it starts from now on, the options of the store that holds `data.path`.

    Whoever reads the store of a project calls it before, in the parent process. Raises `ParameterError`.
    """
    data = params.data
    wanted = (root, data.remote, data.path, data.rev)
    if [wanted] == _GIVEN_FOR:
        return
    from tasks.storage.resolve import store_options  # DVC takes long to import

    give_options(store_options(root, data.remote, data.path, data.rev))
    _GIVEN_FOR[:] = [wanted]

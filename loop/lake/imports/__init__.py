"""Imports: rows made elsewhere, in published formats."""

from ....configs.schema import ConfigError
from ....stores.journal_reader import Reader

IMPORTED = "imported"
"""The key, in an imported run's journal, of what was imported and how."""


def require_loop(journal: Reader) -> None:
    """Refuse to continue the loop of an imported run.

    Raises:
        ConfigError: if the run was imported: it has no models.
    """
    if journal.meta(IMPORTED) is not None:
        name = journal.folder.name
        raise ConfigError(
            f"run {name} was imported and has no loop to continue; an interrupted import is "
            "finished by the same `lpfloop import`, and `lpfloop run --run NAME` starts a loop"
        )

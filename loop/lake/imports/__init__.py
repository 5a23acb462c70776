"""Rows that were made elsewhere come into the lake."""

from ....configs.schema import ConfigError
from ....stores.journal_reader import Reader

IMPORTED = "imported"
"""The fact in the journal of an imported run that says what was imported, and how."""


def require_loop(journal: Reader) -> None:
    """Refuse to turn the loop of an imported run.

    Raises:
        ConfigError: if the run was imported: nothing says which models would go on with it.
    """
    if journal.meta(IMPORTED) is not None:
        name = journal.folder.name
        raise ConfigError(
            f"run {name} was imported and has no loop to go on with; an interrupted import is "
            "finished by the same `lpfloop import`, and `lpfloop run --run NAME` starts a loop"
        )

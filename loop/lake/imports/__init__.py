"""Imports: rows made elsewhere, in published formats."""

from ....configs.mistakes import ConfigError
from ....stores.journal_reader import Reader

IMPORTED = "imported"
"""The key, in an imported run's journal, of the imported files and their options."""
ANSWERS = "answers"
"""The key, in the journal of a run of `lpfloop critique`, of the file that it critiques."""


def require_loop(journal: Reader) -> None:
    """Refuse to continue the loop of a run without one.

    Raises:
        ConfigError: if the run was imported, or critiques the rows of a file.
    """
    if journal.meta(IMPORTED) is not None:
        name = journal.folder.name
        raise ConfigError(
            f"run {name} was imported and cannot be resumed; the same `lpfloop import` finishes an "
            "interrupted import, and `lpfloop run --run NAME` starts a loop"
        )
    if journal.meta(ANSWERS) is not None:
        raise ConfigError(
            f"run {journal.folder.name} critiques the rows of a file and cannot be resumed: "
            "`lpfloop run --run NAME` starts a loop under another name"
        )

"""A user's function, in a file (`./mine.py:name`) or an installed module (`a.b:name`).

A file is imported under a name that its bytes decide, from those very bytes, and its folder is not
searched for modules: the code that runs is the code that was hashed.
"""

import hashlib
import importlib
import importlib.util
import inspect
import re
import sys
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, cast

from .mistakes import ConfigError

PLACE = re.compile(r"(?P<source>.+\.py|[^\W\d]\w*(?:\.[^\W\d]\w*)*):(?P<name>[^\W\d]\w*)")
"""A file's path or a module's dotted name, a colon, a function's name."""
MODULE = "lpfloop_own_"


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnFunction:
    """A function, the place that names it, and the file that it was read from."""

    place: str
    function: Callable[..., Any]
    path: Path
    source: bytes

    @property
    def name(self) -> str:
        """The function's name in its file."""
        return self.place.rpartition(":")[2]

    @property
    def sha256(self) -> str:
        """The hash of its file's bytes."""
        return hashlib.sha256(self.source).hexdigest()

    @property
    def identity(self) -> list[str]:
        """The parts of it that enter keys."""
        return ["function", self.name, self.sha256]

    def __call__(self, *arguments: Any) -> Any:
        """Call it.

        Raises:
            ConfigError: if it raises anything, naming the line.
        """
        try:
            return self.function(*arguments)
        except Exception as error:
            raise ConfigError(f"{self.place}: {fault(error, self.path)}") from error


def names_function(place: str) -> bool:
    """Whether a place has the form of a function's: a URL, a folder or a shipped name has not."""
    return PLACE.fullmatch(place) is not None


def hash_of(place: str) -> str | None:
    """Return the present hash of the file of a function's place; None if it does not exist."""
    try:
        return file_of(place)[2]
    except ConfigError:
        return None


def file_of(place: str) -> tuple[Path, bytes, str]:
    """Return the file that a function's place names, its bytes and their hash.

    Raises:
        ConfigError: if it does not exist.
    """
    path = _path(place.rpartition(":")[0])
    try:
        source = path.read_bytes()
    except OSError as error:
        raise ConfigError(f"{place}: {path} cannot be read: {error.strerror}") from error
    return path, source, hashlib.sha256(source).hexdigest()


def own_function(place: str, *, arguments: int) -> OwnFunction:
    """Import the function at a place; it must accept `arguments` arguments.

    Raises:
        ConfigError: if the function does not exist, or importing it fails, naming the line.
    """
    if not names_function(place):
        raise ConfigError(
            f"{place!r} names no function; write ./FILE.py:NAME or PACKAGE.MODULE:NAME"
        )
    where, _, name = place.rpartition(":")
    path, source, _ = file_of(place)
    try:
        module = _module(path, source) if where.endswith(".py") else importlib.import_module(where)
    # A user's file can raise anything while it is imported.
    except (Exception, SystemExit) as error:
        raise ConfigError(f"{place}: {fault(error, path)}") from error
    found = getattr(module, name, None)
    if not callable(found):
        raise ConfigError(f"{place}: {path} does not define the function {name!r}")
    function = cast("Callable[..., Any]", found)
    _require_arguments(place, function, arguments)
    return OwnFunction(place=place, function=function, path=path, source=source)


def _path(where: str) -> Path:
    """Return the file of a path or of a module's name, which is not imported for that."""
    if where.endswith(".py"):
        return Path(where)
    try:
        spec = importlib.util.find_spec(where)
    except (ImportError, ValueError) as error:
        raise ConfigError(f"{where}: no such module ({error})") from error
    if spec is None or not spec.has_location or spec.origin is None:
        raise ConfigError(f"{where}: this module is not installed; write a file as ./{where}.py")
    if not spec.origin.endswith(".py"):
        raise ConfigError(f"{where}: its source is not a .py file, so the run cannot store it")
    return Path(spec.origin)


def _module(path: Path, source: bytes) -> ModuleType:
    """Import a file from its bytes, once for these bytes at this place."""
    place = str(path.resolve())
    name = MODULE + hashlib.sha256(place.encode() + b"\0" + source).hexdigest()[:16]
    if name in sys.modules:
        return sys.modules[name]
    module = ModuleType(name)
    module.__file__ = place
    # Dataclasses and pydantic look up the module of a class while it is defined.
    sys.modules[name] = module
    try:
        exec(compile(source, str(path), "exec", dont_inherit=True), module.__dict__)  # noqa: S102
    except BaseException:
        del sys.modules[name]
        raise
    return module


def fault(error: BaseException, path: Path) -> str:
    """Return the exception of a user's file, with the line."""
    what = f"{type(error).__name__}: {error}".splitlines()[0]
    lines = [
        frame.lineno
        for frame in traceback.extract_tb(error.__traceback__)
        if frame.filename == str(path)
    ]
    line = error.lineno if isinstance(error, SyntaxError) else lines[-1] if lines else None
    return what if line is None else f"line {line}: {what}"


def _require_arguments(place: str, function: Callable[..., Any], count: int) -> None:
    """Refuse a function that cannot be called with `count` arguments."""
    if inspect.iscoroutinefunction(function):
        raise ConfigError(f"{place}: an async function; write `def`, not `async def`")
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError) as error:
        raise ConfigError(f"{place}: its arguments are unknown ({error})") from error
    try:
        signature.bind(*[None] * count)
    except TypeError as error:
        raise ConfigError(
            f"{place}: it is called with {count} arguments and is defined as "
            f"{place.rpartition(':')[2]}{signature}"
        ) from error

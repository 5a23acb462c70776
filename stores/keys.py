"""Content addresses and seeds: every id in the lake is a hash of the inputs that determine the row.

Ids can be computed before the rows exist, so progress can be recorded as a set of keys, and random
numbers derive from ids, so nothing depends on arrival order, batch composition or a global
generator.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence

Json = None | bool | int | float | str | Sequence["Json"] | Mapping[str, "Json"]

SEED_BITS = 53
"""Below 2**53, so that JSON parsers that read integers as doubles keep seeds exact."""


def canonical_json(value: Json) -> str:
    """Serialize `value` in one way only: sorted keys, no spaces, floats by their shortest repr.

    Raises:
        ValueError: for NaN or infinity, which lack a canonical form.
    """
    return json.dumps(
        value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False
    )


def digest(value: Json) -> str:
    """Return the SHA-256 (hex, 64 characters) of the canonical JSON of `value`."""
    return hashlib.sha256(canonical_json(value).encode()).hexdigest()


def row_id(prefix: str, value: Json) -> str:
    """Return a row's readable id, such as `cand-5f0c…`: the prefix and 128 bits of the digest."""
    return f"{prefix}-{digest(value)[:32]}"


def derive_seed(root: int, *parts: Json) -> int:
    """Return a seed in [0, 2**53) that depends on the run's root seed and on `parts` alone."""
    return int(digest([root, *parts])[:16], 16) >> (64 - SEED_BITS)


def derive_secret(root: int, *parts: Json) -> str:
    """Return a key (hex, 256 bits) for keyed hashes, from the run's root seed and `parts` alone."""
    return digest(["secret", root, *parts])

"""Reading a lake: query, trace, search, derive, imports, exports, statistics."""

"""Win-rates, paired differences and the bootstrap: pure statistics."""

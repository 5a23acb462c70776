"""How good answers are: what is verified, rated, compared and measured of a policy's answers."""

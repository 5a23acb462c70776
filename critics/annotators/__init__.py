"""Pairwise annotators (AlpacaFarm, Section 3, Appendix C.1): prompted models in people's place."""

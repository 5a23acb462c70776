"""IFEval's verifiable instructions as checks: 25 families, each decided by a small function.

Zhou et al., "Instruction-Following Evaluation for Large Language Models" (2023). Where the paper is
silent the decisions are those of the authors' published code; what differs says why.
"""

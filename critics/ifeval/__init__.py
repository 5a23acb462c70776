"""IFEval's verifiable instructions as checks: 25 families, each decided by a small function.

Zhou et al., "Instruction-Following Evaluation for Large Language Models" (2023). If the paper is
silent, the authors' published code decides; docstrings give the reasons for differences.
"""

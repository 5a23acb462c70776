"""Studies: claims of papers, the runs that decide them, and whether they hold.

A study is a file with a `STUDY`; `studies/` of the repository has the studies of the papers.
"""

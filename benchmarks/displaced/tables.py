"""The tables of the study."""


def print_tables(rows):
    print(len(rows))

"""A table that is wider than the terminal continues in another one."""

import io

from rich.console import Console

from lpfloop.loop.evaluation.figure_tables import print_figures


def shown(width):
    out = io.StringIO()
    figures = [(f"figure {n}", [f"{n}.5 [{n}, {n + 1}]"]) for n in range(4)]
    print_figures(Console(file=out, width=width), [("method", ["dpo"])], figures)
    return out.getvalue()


def test_every_figure_is_shown_at_any_width(subtests):
    for width, tables in ((20, 4), (40, 2), (120, 1)):
        with subtests.test(width=width):
            out = shown(width)
            assert all(f"{n}.5 [{n}, {n + 1}]" in out for n in range(4))
            assert out.count("dpo") == tables

"""Filter counts add up: over the chunks of a filter, the input equals the sum of all outcomes."""

from hypothesis import given
from hypothesis import strategies as st

from lpfloop.loop.data.filter_counts import EXAMPLES, KEPT, accounts, filter_counts, keeps

FATES = st.dictionaries(
    st.sampled_from([KEPT, f"{KEPT}: unjudged", "too_short", "low_semantics", "keptish"]),
    st.lists(st.integers(0, 10**6).map("prompt-{}".format), max_size=9),
)


@given(st.lists(FATES, min_size=1, max_size=6))
def test_account_of_all_chunks(chunks):
    rows = [row for fates in chunks for row in filter_counts(3, "rules", "prompts", fates)]
    (account,) = accounts(rows)
    ids = [name for fates in chunks for met in fates.values() for name in met]
    kept = [n for fates in chunks for fate, met in fates.items() for n in met if keeps(fate)]
    assert (account["filter"], account["items"]) == ("rules", "prompts")
    assert (account["received"], account["kept"]) == (len(ids), len(kept))
    for outcome in account["outcomes"]:
        met = [name for fates in chunks for name in fates.get(outcome["outcome"], [])]
        assert outcome["count"] == len(met)
        assert set(outcome["examples"]) <= set(met)
        assert len(outcome["examples"]) == min(EXAMPLES, len(met)) or len(chunks) > 1
    fates = [outcome["outcome"] for outcome in account["outcomes"]]
    assert fates == sorted(fates, key=lambda fate: (not keeps(fate), fate))
    assert KEPT in fates

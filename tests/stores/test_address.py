"""A lake's address leads to its folder; one in a bucket, to a local side that names the bucket."""

import pytest

from lpfloop.stores.address import STATE, AddressError, bucket_of, lake_folder, place_of


@pytest.mark.parametrize(
    ("address", "place"),
    [
        ("s3://abc", "abc"),
        ("s3://my.bucket-1/", "my.bucket-1"),
        ("s3://abc/a/b_c/D.e", "abc/a/b_c/D.e"),
        ("s3://abc/a/", "abc/a"),
    ],
)
def test_an_address_is_a_bucket_and_a_prefix(address, place):
    assert place_of(address) == place


@pytest.mark.parametrize(
    "address",
    [
        *("s3://", "s3://ab", "gs://abc/d", "s3://abc//d", "s3://abc/../d", "s3://abc/a+b"),
        *("s3://abc/.", "s3://key:secret@abc/d", "s3://abc/d?x=1", "s3://abc/a b", "s3://ABC/d"),
    ],
)
def test_another_address_is_refused_and_nothing_is_made(address, tmp_path, monkeypatch):
    monkeypatch.setenv(STATE, str(tmp_path / "state"))
    with pytest.raises(AddressError, match=r"write s3://BUCKET/PREFIX") as caught:
        lake_folder(address)
    assert "secret" not in str(caught.value)
    assert not (tmp_path / "state").exists()


def test_a_folder_is_itself(tmp_path):
    assert lake_folder(str(tmp_path / "lake")) == tmp_path / "lake"
    assert bucket_of(tmp_path / "lake") is None
    assert not (tmp_path / "lake").exists()


def test_a_lake_in_a_bucket_has_a_local_side_that_names_it(tmp_path, monkeypatch):
    monkeypatch.setenv(STATE, str(tmp_path / "state"))
    folders = [lake_folder(f"s3://bucket/{end}") for end in ("", "team/lake", "team.lake")]
    assert len(set(folders)) == 3
    assert folders[1] == lake_folder("s3://bucket/team/lake/")
    assert folders[1].name == "bucket+team+lake"
    assert bucket_of(folders[1]) == "s3://bucket/team/lake"
    assert bucket_of(lake_folder(str(folders[1]))) == "s3://bucket/team/lake"


def test_without_a_choice_the_local_side_is_below_the_home_folder(tmp_path, monkeypatch):
    monkeypatch.delenv(STATE, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    state = tmp_path / ".local" / "state" / "lpfloop"
    assert lake_folder("s3://bucket") == state / "s3" / "bucket"

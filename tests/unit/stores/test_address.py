"""A lake's address leads to its folder; a bucket's, to a local folder that names the bucket."""

import pytest

from lpfloop.stores.address import STATE, AddressError, bucket_of, lake_folder, place_of


def test_place_of(subtests):
    for address, place in [
        ("s3://my.bucket-1/", "my.bucket-1"),
        ("s3://abc/a/b_c/D.e", "abc/a/b_c/D.e"),
    ]:
        with subtests.test(case=address):
            assert place_of(address) == place


def test_bad_address(subtests, tmp_path, environ):
    for address in [
        *("s3://", "gs://abc/d", "s3://abc/../d", "s3://key:secret@abc/d", "s3://ABC/d"),
    ]:
        with subtests.test(case=address):
            environ[STATE] = str(tmp_path / "state")
            with pytest.raises(AddressError, match=r"write s3://BUCKET/PREFIX") as caught:
                lake_folder(address)
            assert "secret" not in str(caught.value)
            assert not (tmp_path / "state").exists()


def test_plain_folder(tmp_path):
    assert lake_folder(str(tmp_path / "lake")) == tmp_path / "lake"
    assert bucket_of(tmp_path / "lake") is None
    assert not (tmp_path / "lake").exists()


def test_local_side_of_bucket(tmp_path, environ):
    environ[STATE] = str(tmp_path / "state")
    folders = [lake_folder(f"s3://bucket/{end}") for end in ("", "team/lake", "team.lake")]
    assert len(set(folders)) == 3
    assert folders[1] == lake_folder("s3://bucket/team/lake/")
    assert folders[1].name == "bucket+team+lake"
    assert bucket_of(folders[1]) == "s3://bucket/team/lake"
    assert bucket_of(lake_folder(str(folders[1]))) == "s3://bucket/team/lake"


def test_default_state_folder(tmp_path, environ):
    environ.pop(STATE, None)
    environ["HOME"] = str(tmp_path)
    state = tmp_path / ".local" / "state" / "lpfloop"
    assert lake_folder("s3://bucket") == state / "s3" / "bucket"

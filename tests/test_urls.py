"""One grammar for paths, and remapping on path boundaries."""

import doctest
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from byterefs import urls
from byterefs.errors import RemapError

SPELLINGS = [
    ("/data/a b.nc", "/data/a b.nc", "/data/a b.nc", "file:///data/a%20b.nc"),
    ("file:///data/a.nc", "/data/a.nc", "/data/a.nc", "file:///data/a.nc"),
    ("/vsis3/bucket/k#1.nc", "/vsis3/bucket/k#1.nc", "s3://bucket/k#1.nc", "s3://bucket/k%231.nc"),
    ("s3://bucket/é.nc", "/vsis3/bucket/é.nc", "s3://bucket/é.nc", "s3://bucket/%C3%A9.nc"),
    (
        "/vsicurl/https://h:8080/a%20b.nc",
        "/vsicurl/https://h:8080/a%20b.nc",
        "https://h:8080/a%20b.nc",
        "https://h:8080/a%20b.nc",
    ),
]


@pytest.mark.parametrize(("source", "gdal", "fsspec", "icechunk"), SPELLINGS)
def test_each_reader_gets_its_own_spelling(source, gdal, fsspec, icechunk):
    assert urls.to_gdal(source) == gdal
    assert urls.to_fsspec(source) == fsspec
    assert urls.to_icechunk(source) == icechunk
    assert urls.from_icechunk(icechunk) == urls.plain(source)


def test_the_examples_in_the_docstrings_hold():
    assert doctest.testmod(urls).failed == 0


def test_the_longest_prefix_wins_and_only_on_a_path_boundary():
    rules = [("/data", "s3://a"), ("/data/x/", "s3://b/"), ("/dat", "s3://never")]
    assert urls.remap("/data/x/1.nc", rules, target="t") == "s3://b/1.nc"
    assert urls.remap("/data/xy/1.nc", rules, target="t") == "s3://a/xy/1.nc"


def test_a_path_that_no_rule_matches_is_an_error_and_not_a_pass_through():
    with pytest.raises(
        RemapError, match=r"/other/1.nc: no remap rule of target 'public'.*remap: public"
    ):
        urls.remap("/other/1.nc", [("/data/", "s3://a/")], target="public")


NAMES = ["a b.nc", "100%.nc", "a%20b.nc", "x#1.nc", "é/ü.nc", "a+b&c=d.nc", "q?.nc"]


@pytest.mark.parametrize("name", NAMES)
def test_names_are_encoded_where_files_become_addresses_and_decoded_the_other_way(name):
    there = urls.remap(f"/data/{name}", [("/data/", "https://h:8080/a%20b/")], target="t")
    assert there == f"https://h:8080/a%20b/{quote(name)}".replace("%2B", "+").replace("%26", "&").replace("%3D", "=")  # fmt: skip
    for prefix in ("s3://bucket/", "/elsewhere/", "/vsis3/bucket/"):
        assert urls.remap(there, [("https://h:8080/a%20b/", prefix)], target="t") == prefix + name
    kept = urls.remap(there, [("https://h:8080/", "/vsicurl/https://other/")], target="t")
    assert kept == there.replace("https://h:8080/", "/vsicurl/https://other/")
    assert urls.to_icechunk(there) == there
    assert urls.from_icechunk(there) == f"https://h:8080/a b/{name}"


def test_gdals_long_name_of_an_address_is_an_address():
    name = "/vsicurl?max_retry=5&url=https%3A%2F%2Fh%3A8080%2Fa%2520b.nc&use_head=no"
    assert urls.to_url(name) == "https://h:8080/a%20b.nc"
    assert urls.to_fsspec(name) == "https://h:8080/a%20b.nc"


@pytest.mark.parametrize("source", ["s3://b/d/1.nc", "/vsis3/b/d/1.nc"])
@pytest.mark.parametrize("prefix", ["s3://b/d/", "/vsis3/b/d/", "s3://b", "/vsis3/b"])
def test_a_rule_holds_however_it_and_the_sources_are_spelled(source, prefix):
    rules = urls.respelled({prefix: "https://h/x", "/other/": "never"}, [source])
    rest = "/d/1.nc" if prefix.endswith("b") else "1.nc"
    assert urls.remap(source, list(rules.items()), target="t") == f"https://h/x{rest}"
    assert all(source.startswith(p) or p == "/other/" for p in rules)


def test_a_rule_in_the_sources_own_spelling_goes_before_one_in_another():
    rules = {"/vsicurl/https://h/": "other", "https://h/": "own"}
    assert urls.respelled(rules, ["https://h/1.nc"]) == {"https://h/": "own"}
    mixed = urls.respelled({"file:///d/": "x"}, ["/d/1.nc", "file:///d/2.nc"])
    assert mixed == {"file:///d/": "x", "/d/": "x"}


@pytest.mark.parametrize(
    "path", ["https://u:p@h/x", "https://h/x?X-Amz-Signature=1", "s3://b/x?token=2"]
)
def test_an_address_that_holds_a_secret_is_known(path):
    assert urls.secret(path)


@pytest.mark.parametrize(
    "path", ["https://h:8080/a@b:c", "/data/key=1/sig.nc", "s3://b/x?versionId=2"]
)
def test_an_address_without_a_secret_is_let_be(path):
    assert not urls.secret(path)


def test_without_rules_the_path_stays():
    assert urls.remap("/other/1.nc", [], target="access") == "/other/1.nc"


@given(st.text(min_size=1))
def test_a_file_name_stays_inside_its_folder_and_different_names_stay_different(name):
    path = urls.file_name(name)
    assert not any(set(part) == {"."} and len(part) in (1, 2) for part in path.split("/"))
    assert urls.unquote(path) == name


@pytest.mark.parametrize(
    ("path", "url"),
    [
        ("/vsicurl/https://h.example/a b.nc", "https://h.example/a b.nc"),
        ("s3://bucket/k/a.nc", "https://bucket.s3.amazonaws.com/k/a.nc"),
        ("/vsis3/bucket/k/a.nc", "https://bucket.s3.amazonaws.com/k/a.nc"),
        ("/data/a.nc", "file:///data/a.nc"),
    ],
)
def test_a_browser_is_given_the_address_that_answers_http(path, url):
    assert urls.to_https(path) == url

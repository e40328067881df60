import pytest
from hypothesis import given
from hypothesis import strategies as st

from drumline.engines.local import resources


@given(st.integers(0, 40), st.integers(1, 20))
def test_every_part_has_something_and_nothing_is_lost(count, parts):
    shares = resources.split(tuple(range(count)), parts)
    assert parts == len(shares)
    assert set(range(count)) == {item for share in shares for item in share}
    if count >= parts:
        assert count == sum(map(len, shares))
    if count:
        assert min(map(len, shares)) >= 1
        assert max(map(len, shares)) - min(map(len, shares)) <= 1


@pytest.mark.parametrize(
    ("visible", "gpus"),
    [("", ()), ("-1", ()), ("0,1", ("0", "1")), (" 2 , GPU-abc ", ("2", "GPU-abc")), ("MIG-1", ("MIG-1",))],
)
def test_the_gpus_are_those_that_this_process_may_see(monkeypatch, visible, gpus):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert gpus == resources.gpus()

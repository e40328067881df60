import pytest
from planning import plan

from drumline.contract.errors import UsageError
from drumline.control.logs.printer import labels_of

FOUR = plan(nodes=2, distribution={"type": "pytorch", "process_count_per_instance": 2})
TENSORFLOW = plan(
    nodes=2, distribution={"type": "tensorflow", "worker_count": 2, "parameter_server_count": 1}
)


@pytest.mark.parametrize(
    ("ranks", "labels"),
    [("0", "0"), ("0,3", "03"), ("1-3", "123"), ("0-0", "0"), (" 0 , 2 - 3 ", "023"), ("1,1,0-1", "01")],
)
def test_ranks_are_numbers_and_ranges(ranks, labels):
    assert frozenset(labels) == labels_of(ranks, FOUR)


def test_nothing_is_all_ranks():
    assert labels_of("", FOUR) is None


def test_a_label_names_a_parameter_server():
    assert {"ps0"} == labels_of("ps0", TENSORFLOW)


@pytest.mark.parametrize(
    "ranks", ["4", "0-4", "3-1", "-1", "a", "0,,1", ",", "0-", "1-a", "0-99999999999999999999", "ps0"]
)
def test_a_rank_that_the_job_lacks_is_refused(ranks):
    with pytest.raises(UsageError) as refused:
        labels_of(ranks, FOUR)
    assert refused.value.hint == "this job has ranks 0-3"

"""Every policy, on histories small enough to reckon by hand."""

from __future__ import annotations

import math

import pytest

from drumline.plan.search import policies
from drumline.plan.search.policies import Course, best, due
from drumline.sweep import BanditPolicy, MedianStoppingPolicy, TruncationSelectionPolicy


def verdict(policy, goal, histories, trial, **kwargs) -> str:
    courses = {name: Course(goal, values) for name, values in histories.items()}
    return policies.verdict(policy, goal, courses, trial, **kwargs)


def stopped(policy, goal, histories, **kwargs) -> list[str]:
    return [trial for trial in histories if verdict(policy, goal, histories, trial, **kwargs)]


@pytest.mark.parametrize(
    ("interval", "delay", "expected"),
    [(1, 0, [0, 1, 2, 3, 4, 5, 6]), (0, 0, [0, 1, 2, 3, 4, 5, 6]), (2, 0, [0, 0, 2, 2, 4, 4, 6]),
     (1, 5, [0, 0, 0, 0, 0, 5, 6]), (2, 5, [0, 0, 0, 0, 0, 0, 6]), (3, 3, [0, 0, 0, 3, 3, 3, 6]),
     (None, None, [0, 1, 2, 3, 4, 5, 6])],
)  # fmt: skip
def test_a_policy_looks_at_multiples_of_the_interval_from_the_delay_on(interval, delay, expected):
    policy = MedianStoppingPolicy(evaluation_interval=interval, delay_evaluation=delay)
    assert expected == [due(policy, count) for count in range(7)]


def test_what_a_trial_is_worth_is_the_best_that_it_logged():
    assert best([0.5, 0.2, 0.9], "minimize") == 0.2
    assert best([0.5, math.nan, 0.4], "maximize") == 0.5
    assert best([math.nan], "minimize") is None
    assert best([], "maximize") is None


@pytest.mark.parametrize(("goal", "odd"), [("maximize", math.inf), ("minimize", -math.inf)])
def test_a_value_that_is_worth_nothing_stops_no_other_trial(goal, odd):
    histories = {"a": [odd], "b": [0.9], "c": [0.9]}
    assert stopped(BanditPolicy(slack_factor=0.1), goal, histories) == ["a"]


class TestBandit:
    def test_the_documented_example(self):
        """Best 0.8, a factor of 0.2, more is better: below 0.8 / 1.2 = 0.6667 a trial is stopped."""
        policy = BanditPolicy(slack_factor=0.2, evaluation_interval=10)
        histories = {"a": [0.1] * 9 + [0.8], "b": [0.67] * 10, "c": [0.66] * 10, "d": [0.1] * 9}
        assert stopped(policy, "maximize", histories) == ["c"]

    def test_less_is_better(self):
        policy = BanditPolicy(slack_factor=0.2)
        assert stopped(policy, "minimize", {"a": [0.5], "b": [0.6], "c": [0.61]}) == ["c"]

    def test_an_amount(self):
        policy = BanditPolicy(slack_amount=0.25)
        assert stopped(policy, "maximize", {"a": [1.0], "b": [0.75], "c": [0.74]}) == ["c"]
        assert stopped(policy, "minimize", {"a": [1.0], "b": [1.25], "c": [1.26]}) == ["c"]

    @pytest.mark.parametrize("goal", ["minimize", "maximize"])
    def test_a_negative_best_is_not_stopped_by_itself(self, goal):
        histories = {"a": [-1.0], "b": [-1.05]}
        assert stopped(BanditPolicy(slack_factor=0.1), goal, histories) == []
        far = {"a": [-1.0], "b": [-1.3 if goal == "maximize" else -0.7]}
        assert stopped(BanditPolicy(slack_factor=0.1), goal, far) == ["b"]

    def test_its_best_counts_not_its_last(self):
        assert stopped(BanditPolicy(slack_factor=0.1), "minimize", {"a": [0.5, 9.0], "b": [0.5, 0.5]}) == []

    def test_only_what_was_reported_until_then_counts(self):
        policy = BanditPolicy(slack_amount=0.1, evaluation_interval=2)
        histories = {"ahead": [1.0, 0.9, 0.1], "behind": [1.0, 0.95]}
        assert verdict(policy, "minimize", histories, "behind") == ""

    def test_a_trial_that_has_completed_counts_with_what_it_has(self):
        histories = {"done": [0.5], "on": [0.9, 0.9]}
        policy = BanditPolicy(slack_amount=0.1, evaluation_interval=2)
        assert verdict(policy, "minimize", histories, "on") == ""
        assert verdict(policy, "minimize", histories, "on", finished=["done"]).endswith("after 2 reports")
        median = MedianStoppingPolicy(evaluation_interval=2)
        assert verdict(median, "minimize", histories, "on", finished=["done"])
        cut = TruncationSelectionPolicy(truncation_percentage=50, evaluation_interval=2)
        assert verdict(cut, "minimize", histories, "on", finished=["done"])

    def test_no_interval_is_passed_over_and_none_looked_at_twice(self):
        policy = BanditPolicy(slack_amount=0.1, evaluation_interval=2)
        histories = {"short": [1.0, 0.5], "long": [1.0, 0.9, 0.9, 0.9, 0.9]}
        assert verdict(policy, "minimize", histories, "long").endswith("after 2 reports")
        assert verdict(policy, "minimize", histories, "long", after=2) == ""
        policy.delay_evaluation = 3
        assert verdict(policy, "minimize", histories, "long") == ""

    def test_not_a_number_is_stopped(self):
        assert stopped(BanditPolicy(slack_amount=1), "maximize", {"a": [0.1], "b": [math.nan]}) == ["b"]
        assert stopped(BanditPolicy(slack_factor=1), "minimize", {"a": [math.nan], "b": [math.inf]}) == []

    def test_the_reason_has_the_numbers(self):
        said = verdict(BanditPolicy(slack_factor=0.1), "maximize", {"s_0": [0.9], "s_1": [0.5]}, "s_1")
        assert said == "its best was 0.5, worse than 0.9 of s_0 by more than slack factor 0.1 after 1 report"


def test_very_long_histories_are_looked_at_in_no_time():
    histories = {name: [1.0] * 20_000 for name in "abcd"}
    assert stopped(BanditPolicy(slack_factor=0.1), "minimize", histories) == []


class TestMedian:
    def test_the_best_so_far_against_the_median_of_averages(self):
        """Averages after 2: 2, 3, 6; their median 3. The bests are 1, 2 and 5."""
        histories = {"a": [3.0, 1.0], "b": [4.0, 2.0], "c": [7.0, 5.0]}
        assert stopped(MedianStoppingPolicy(evaluation_interval=2), "minimize", histories) == ["c"]

    def test_more_is_better(self):
        """Averages 0.2, 0.5, 0.8; median 0.5."""
        histories = {"a": [0.2], "b": [0.5], "c": [0.8]}
        assert stopped(MedianStoppingPolicy(), "maximize", histories) == ["a"]

    def test_trials_that_have_not_come_so_far_do_not_count(self):
        histories = {"a": [1.0, 1.0], "b": [0.1], "c": [0.1]}
        assert verdict(MedianStoppingPolicy(evaluation_interval=2), "minimize", histories, "a") == ""

    def test_one_alone_goes_on(self):
        assert stopped(MedianStoppingPolicy(), "minimize", {"a": [1.0, 2.0, 3.0]}) == []

    def test_nothing_before_the_delay(self):
        policy = MedianStoppingPolicy(delay_evaluation=5, evaluation_interval=2)
        histories = {"a": [1.0] * 5, "b": [9.0] * 5}
        assert stopped(policy, "minimize", histories) == []
        assert stopped(
            policy, "minimize", {name: [*values, values[0]] for name, values in histories.items()}
        ) == ["b"]


TEN = {name: [float(index)] for index, name in enumerate("abcdefghij")}


class TestTruncation:
    def test_the_lowest_part_is_cut(self):
        policy = TruncationSelectionPolicy(truncation_percentage=20)
        assert stopped(policy, "maximize", TEN) == ["a", "b"]
        assert stopped(policy, "minimize", TEN) == ["i", "j"]

    def test_less_than_one_is_none(self):
        policy = TruncationSelectionPolicy(truncation_percentage=9)
        assert stopped(policy, "maximize", TEN) == []

    def test_the_value_at_the_interval_counts_not_the_best_before(self):
        policy = TruncationSelectionPolicy(truncation_percentage=50, evaluation_interval=2)
        assert stopped(policy, "maximize", {"a": [9.0, 1.0], "b": [0.0, 2.0]}) == ["a"]

    def test_of_equals_none_is_cut(self):
        policy = TruncationSelectionPolicy(truncation_percentage=50)
        assert stopped(policy, "maximize", {"a": [1.0], "b": [1.0]}) == []

    def test_finished_trials_may_be_left_out(self):
        policy = TruncationSelectionPolicy(truncation_percentage=50)
        histories = {"a": [3.0], "b": [2.0], "c": [0.0], "d": [1.0]}
        assert verdict(policy, "maximize", histories, "b", finished=["c", "d"]) == ""
        policy.exclude_finished_jobs = True
        assert verdict(policy, "maximize", histories, "b", finished=["c", "d"])

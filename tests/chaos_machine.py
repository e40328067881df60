"""Random sequences of what can happen to a job, made and shortened by hypothesis."""

import random
import signal
from pathlib import Path

import hypothesis.strategies as st
from chaos import BEHAVIOURS, FINAL, Trial, wait_a_moment
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule, run_state_machine_as_test

from drumline.contract.errors import DrumlineError
from drumline.control.jobs.ending import preempt

_MOST_JOBS = 2
_STEPS = 6
_PAUSE_S = 0.1


def run_machine(folder: Path, runs: int, *, is_fixed: bool = True) -> None:  # noqa: C901 - a class of rules
    """``is_fixed``: the same sequences each time. Raises whatever does not hold, with the shortest sequence found."""

    class Chaos(RuleBasedStateMachine):
        def __init__(self) -> None:
            super().__init__()
            self.trials: list[Trial] = []
            self.final: dict[str, dict[str, object]] = {}

        @precondition(lambda self: len(self.trials) < _MOST_JOBS)
        @rule(behaviour=st.sampled_from(BEHAVIOURS), ends=st.sampled_from(("", ",END=0", ",END=3")))
        def submit(self, behaviour: str, ends: str) -> None:
            self.trials.append(Trial(folder, behaviour + ends))
            self.trials[-1].wait_until_submitted()

        @precondition(lambda self: self.trials)
        @rule(
            which=st.integers(0, _MOST_JOBS - 1),
            victim=st.sampled_from(("cli", "supervisor", "agent", "rank", "child")),
            number=st.sampled_from((signal.SIGKILL, signal.SIGTERM, signal.SIGSTOP)),
            seed=st.integers(0, 1 << 32),
        )
        def send(self, which: int, victim: str, number: int, seed: int) -> None:
            trial = self.trials[which % len(self.trials)]
            pid = trial.pid_of(victim, random.Random(seed))
            if pid is not None:
                trial.send(pid, number)

        @precondition(lambda self: self.trials)
        @rule(which=st.integers(0, _MOST_JOBS - 1))
        def go_on(self, which: int) -> None:
            self.trials[which % len(self.trials)].go_on()

        @precondition(lambda self: self.trials)
        @rule(which=st.integers(0, _MOST_JOBS - 1))
        def cancel(self, which: int) -> None:
            self.trials[which % len(self.trials)].cancel()

        @precondition(lambda self: self.trials)
        @rule(which=st.integers(0, _MOST_JOBS - 1), node=st.sampled_from((None, 0, 1)))
        def preempt(self, which: int, node: int | None) -> None:
            try:
                preempt(self.trials[which % len(self.trials)].name, node)
            except DrumlineError:
                return  # It does not run.

        @precondition(lambda self: self.trials)
        @rule(seed=st.integers(0, 1 << 32))
        def wait(self, seed: int) -> None:
            wait_a_moment(random.Random(seed), _PAUSE_S)

        @precondition(lambda self: self.trials)
        @rule()
        def look(self) -> None:
            for trial in self.trials:
                shown = trial.show()
                before = self.final.setdefault(trial.name, shown) if shown.get("status") in FINAL else shown
                assert before == shown, "the end of a job never changes again"

        def teardown(self) -> None:
            for trial in self.trials:
                trial.go_on()
            for trial in self.trials:
                shown = trial.finish()
                assert self.final.get(trial.name, shown) == shown, "the end of a job never changes again"

    run_state_machine_as_test(
        Chaos,
        settings=settings(
            max_examples=runs,
            stateful_step_count=_STEPS,
            deadline=None,
            database=None,
            derandomize=is_fixed,
            phases=(Phase.generate,),
            print_blob=not is_fixed,
            suppress_health_check=list(HealthCheck),
        ),
    )

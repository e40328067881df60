"""What a person sees while data is on its way."""

import io

from drumline.contract import events as e
from drumline.contract.outcome import fold
from drumline.control.logs.progress import ProgressLine


class Terminal(io.StringIO):
    def isatty(self):
        return True


def moving(done, time=1.0):
    return e.TransferProgress(time, "inputs.d", done, 2_000_000, 1, 4)


ARRIVED = e.Transferred(9.0, "inputs.d", "s3://b/\x1b[31mx", 2_000_000, 4, 500_000, 3.2, 4, "not mounted")


def test_a_terminal_has_a_bar_that_goes_when_all_is_there():
    out = Terminal()
    progress = ProgressLine("job", out)
    progress.look(fold([moving(500_000)]))
    assert "inputs.d  [######..................]  25%  500.0 kB of 2.0 MB" in out.getvalue()
    progress.look(fold([moving(1_500_000, 2.0)]))
    assert out.getvalue().endswith("75%  1.5 MB of 2.0 MB  1.0 MB/s")
    progress.look(fold([ARRIVED]))
    told = out.getvalue().rsplit("\r\x1b[K", 1)[1]
    assert told.startswith("job job: inputs.d: 2.0 MB in 4 files from s3://b/")
    assert told.endswith("in 3.2 s, 500.0 kB of it from the cache (not mounted)\n")
    assert "\x1b" not in told


def test_elsewhere_there_are_whole_lines_once():
    out = io.StringIO()
    progress = ProgressLine("job", out)
    for events in ([moving(500_000)], [moving(900_000, 2.0)], [ARRIVED], [ARRIVED]):
        progress.look(fold(events))
    begun, arrived = out.getvalue().splitlines()
    assert begun == "job job: inputs.d: 2.0 MB in 4 files on the way"
    assert arrived.startswith("job job: inputs.d: 2.0 MB in 4 files from s3://b/")


def test_an_environment_that_was_there_is_not_worth_a_line():
    out = io.StringIO()
    progress = ProgressLine("job", out)
    progress.look(fold([e.EnvironmentReady(1.0, "d", "/p", 0.0, reused=True)]))
    assert out.getvalue() == ""
    progress.look(fold([e.EnvironmentBuilding(2.0, "installing 3 packages")]))
    progress.look(fold([e.EnvironmentReady(5.0, "d", "/p", 3.0)]))
    assert (
        out.getvalue()
        == "job job: environment: installing 3 packages\njob job: environment: ready after 3 s\n"
    )

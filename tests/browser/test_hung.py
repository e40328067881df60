"""A job that hangs, as a person sees it; and what a person can do to jobs."""

import re

from seeing import arrive, miss, see
from studio_server import run_studio

HANG = "No rank has printed anything or gone on for 3 s"


def test_a_job_that_hangs_says_so_and_marks_the_odd_stack(visit_hung, picture):
    guest = visit_hung()
    guest.open("/jobs/hung")
    # The report comes while the page is open, or has come.
    see(guest.find("hang"), HANG)
    see(guest.find("hang"), re.compile(r"ranks 0-1 and 3 are in wait_for_others \(train\.py:\d+\)"))
    see(guest.find("hang"), re.compile(r"rank 2 is in load_batch \(train\.py:\d+\)"))
    see(guest.find("status").first, "Hangs")
    guest.find("hang").get_by_text("Show the stacks now").click()
    guest.find("take-stacks").click()
    odd = guest.page.locator('[data-test="stack-group"][data-odd="true"]')
    see(odd, "rank 2")
    see(odd, "load_batch")
    see(odd, "elsewhere than most")
    see(guest.page.locator('[data-test="stack-group"][data-odd="false"]'), "ranks 0-1,3")
    picture(guest, "studio-stacks")
    guest.open("/jobs")
    see(guest.page.locator('[data-row="hung"]'), "rank 2 is in load_batch")
    see(guest.page.locator('[data-row="hung"]'), "Hangs")


def test_what_somebody_types_stays_when_the_job_changes(hung, visit_hung):
    guest = visit_hung()
    guest.open("/jobs/hung/logs")
    see(guest.find("log-view"), "step 3")
    guest.find("log-find").press_sequentially("step")
    hung.run("job", "update", "-n", "hung", "--set", "display_name=it hangs")
    see(guest.find("job-title"), "it hangs")
    assert guest.find("log-find").input_value() == "step"


def test_a_page_goes_on_when_the_studio_was_killed_and_is_there_again(hung, visit_hung):
    with run_studio(home=hung.home) as first:
        guest = visit_hung(studio=first)
        # What it asks for meanwhile is refused.
        guest.expect("ERR_", "401", "status of 4", "status of 5")
        guest.open("/jobs")
        see(guest.find("jobs"), "hung")
        first.process.kill()
        see(guest.find("connection"), "not connected since")
        see(guest.find("stale").first, "")
    with run_studio("--port", str(first.port), home=hung.home) as second:
        guest.log_in(second)
        miss(guest.find("stale"))
        see(guest.find("connection"), re.compile(r"^\s*$"))
        hung.run("run", "--name", "fresh", "--nodes", "1", "--procs", "1", "-d", "--", "true")
        see(guest.find("jobs"), "fresh")


def test_a_job_is_submitted_canceled_and_run_again_by_dialogs(visit_hung):
    guest = visit_hung()
    guest.expect("status of 400")
    guest.open("/jobs")
    guest.find("submit").click()
    guest.find("submit-yaml").fill("comand: sleep 1000")
    guest.find("submit-go").click()
    see(guest.find("error"), "comand")
    guest.find("submit-yaml").fill("command: sleep 1000\nname: long")
    guest.find("submit-set").fill("experiment_name")
    guest.find("submit-go").click()
    see(guest.find("error"), '"experiment_name" must be KEY=VALUE')
    guest.find("submit-set").fill("experiment_name=page")
    guest.find("submit-go").click()
    see(guest.find("job-title"), "long")
    see(guest.find("facts"), "page")

    guest.find("cancel").click()
    see(guest.find("dialog"), "drumline job cancel -n long")
    guest.find("dialog-no").click()
    miss(guest.find("dialog"))
    guest.find("cancel").click()
    guest.page.locator("dialog[open]").wait_for()
    guest.page.keyboard.press("Escape")
    miss(guest.find("dialog"))
    assert guest.find("status").first.get_attribute("data-status") not in ("Canceled", "CancelRequested")
    guest.find("cancel").click()
    guest.find("dialog-yes").click()
    guest.page.wait_for_selector('[data-test="status"][data-status="Canceled"]')

    guest.find("rerun").click()
    guest.find("rerun-set").fill("tags.kind")
    guest.find("dialog-yes").click()
    see(guest.find("dialog-wrong"), '"tags.kind" must be KEY=VALUE')
    guest.find("rerun-set").fill("tags.kind=second")
    guest.find("dialog-yes").click()
    arrive(guest.page, re.compile(r"/jobs/(?!long$)[\w.-]+$"))
    see(guest.find("facts"), "kind: second")
    guest.find("more").click()
    guest.find("kill").click()
    guest.find("dialog-yes").click()
    guest.page.wait_for_selector('[data-test="status"][data-status="Canceled"]')
    guest.find("more").click()
    guest.find("archive").click()
    see(guest.find("toast").last, "is archived")

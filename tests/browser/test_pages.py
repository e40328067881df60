"""Every page of the studio on real jobs, as a person sees them."""

import re

import pytest
from seeing import arrive, see
from waiting import wait_until


def test_the_list_shows_each_job_with_its_sentence(visit):
    guest = visit()
    guest.open("/")
    see(guest.find("jobs"), "rank 2 on node 1 failed first")
    see(guest.find("sentence").first, "1 job runs; ")
    shown = guest.find("job-link").all_inner_texts()
    assert {"good", "bad", "lines", "rates", "restarted", "waiting"} <= {one.strip() for one in shown}
    guest.page.goto(guest.address + "/jobs?status=failed")
    see(guest.find("jobs"), "bad")
    assert "good" not in guest.find("jobs").inner_text()


@pytest.mark.parametrize(
    ("page", "question"),
    [
        ("/", "/jobs?"),
        ("/jobs?status=failed,running&sort=name", "/jobs?"),
        ("/jobs/good", "/jobs/good"),
        ("/jobs/good", "/me"),
    ],
)
def test_what_the_page_begins_with_is_asked_once_and_before_its_modules_run(visit, page, question):
    guest = visit()
    asked = []
    # A page asks again once the server tells it of changes, which on a busy machine is soon.
    guest.page.route(re.compile("/api/v1/stream"), lambda route: None)
    guest.page.on("request", lambda request: asked.append(request.url.removeprefix(guest.address)))
    guest.open(page)
    guest.page.wait_for_selector('main [data-test="jobs"] tr[data-row], [data-test="rank-grid"] [data-rank]')
    named = [url for url in asked if url.startswith("/api/v1" + question) and "/ranks" not in url]
    assert len([url for url in named if url.partition("?")[0] == "/api/v1" + question.rstrip("?")]) == 1, (
        asked
    )


def test_a_new_job_reaches_its_curve_in_two_clicks(visit):
    guest = visit()
    guest.open("/")
    guest.find("job-link").filter(has_text=re.compile("^good$")).click()
    guest.find("tab-metrics").click()
    see(guest.find("metrics"), "loss")
    guest.page.wait_for_selector('[data-test="metrics"] canvas')
    assert guest.page.url.endswith("/jobs/good/metrics")


def test_a_failed_job_says_which_rank_and_why(visit, picture):
    guest = visit(color_scheme="light")
    guest.open("/jobs/bad")
    see(guest.find("verdict"), "Rank 2 on node 1 failed first")
    see(guest.find("verdict"), "ValueError: loss is nan at step 20")
    see(guest.find("ranks"), "failed first")
    guest.page.wait_for_selector('[data-test="heat-map"]')
    picture(guest, "studio-failed")
    guest.find("verdict").get_by_text("Rank 2").first.click()
    see(guest.find("log-view"), "2|node-1")
    assert guest.page.url.endswith("/jobs/bad/logs?ranks=2")
    guest.open("/jobs/bad?rank=2")
    see(guest.find("rank-facts"), "rank 2")


def test_the_dark_page_of_a_failed_job(visit):
    guest = visit(color_scheme="dark")
    guest.open("/jobs/bad")
    see(guest.find("verdict"), "Rank 2 on node 1 failed first")
    guest.page.wait_for_selector('[data-test="heat-map"]')


def test_the_log_jumps_to_the_first_error(visit, picture):
    guest = visit()
    guest.open("/jobs/bad/logs")
    see(guest.find("log-view"), "loss")
    guest.find("log-error").click()
    see(guest.find("log-view"), "ValueError: loss is nan at step 20")
    picture(guest, "studio-logs")
    guest.open("/jobs/bad/logs?ranks=2&line=3")
    see(guest.find("log-view"), "step 2 loss")


def test_hostile_output_stays_text(visit):
    guest = visit()
    guest.open("/jobs")
    see(guest.find("jobs"), "<b>hostile</b>")
    guest.open("/jobs/hostile")
    see(guest.find("verdict"), "<b onmouseover=alert(1)>bold</b>")
    guest.open("/jobs/hostile/logs")
    view = guest.find("log-view")
    see(view, "<script>document.title='taken'</script>")
    see(view, "red plain")
    assert guest.page.locator('[data-test="log-view"] img, [data-test="log-view"] script').count() == 0
    assert guest.page.locator('a[href^="javascript"], a[href*="example.com"]').count() == 0


TABS = ("ranks", "logs", "timeline", "metrics", "system", "environment", "code", "outputs", "plan")


@pytest.mark.parametrize("name", ["good", "restarted", "waiting"])
def test_each_tab_of_each_job(visit, name):
    guest = visit()
    for tab in TABS:
        guest.open(f"/jobs/{name}/{tab}")
        guest.page.wait_for_selector(f'[data-test="panel-{tab}"]')
        guest.wait_until_quiet()
        wrong = guest.find("error")
        assert wrong.count() == 0, f"{tab}: {wrong.first.inner_text()}"
        guest.check()


def test_a_running_job_is_asked_for_its_stacks(visit):
    guest = visit()
    guest.open("/jobs/waiting/stacks")
    guest.find("take-stacks").click()
    see(guest.find("stacks"), "load_batch")
    see(guest.find("stack-group").first, "wait_for_word")


def test_a_line_that_a_rank_writes_appears(visit, jobs):
    guest = visit()
    guest.open("/jobs/waiting/logs")
    see(guest.find("log-view"), "ready")
    jobs.say_the_word()
    see(guest.find("log-view"), "the word has come")


def test_a_line_that_comes_before_the_server_knows_who_listens_appears(visit, jobs):
    guest = visit()
    held, under_way = [], set()
    guest.page.route(re.compile("/api/v1/stream.*jobs="), lambda route: held.append(route))
    guest.page.on("request", lambda one: "/logs?" in one.url and under_way.add(one))
    guest.page.on("requestfinished", lambda one: under_way.discard(one))
    guest.open("/jobs/waiting/logs")
    see(guest.find("log-view"), "ready")
    wait_until(lambda: guest.page.evaluate("true") and held and not under_way, 20.0)
    jobs.add_line("a line of before")
    for one in held:
        one.continue_()
    see(guest.find("log-view"), "a line of before")


HEAR_OF_LOG = """
window.heard = new Promise((heard) => {
  const stream = new EventSource("/api/v1/stream?jobs=waiting");
  stream.addEventListener("log", () => { stream.close(); heard(true); });
  stream.onopen = () => { window.listens = true; };
});
true
"""


def test_a_line_that_comes_before_the_first_answer_appears(visit, jobs):
    guest = visit()
    held = []

    def hold(route):
        if held:
            route.continue_()
        else:
            held.append((route, route.fetch()))

    guest.page.route(re.compile("/logs[?]"), hold)
    guest.open("/jobs/waiting/logs")
    wait_until(lambda: guest.page.evaluate("true") and held, 20.0)
    guest.page.evaluate(HEAR_OF_LOG)
    wait_until(lambda: guest.page.evaluate("window.listens"), 20.0)
    jobs.add_line("a line of meanwhile")
    assert guest.page.evaluate("window.heard")
    route, answer = held[0]
    route.fulfill(response=answer)
    see(guest.find("log-view"), "a line of meanwhile")


def test_a_restarted_job_has_its_attempts(visit):
    guest = visit()
    guest.open("/jobs/restarted")
    guest.find("attempt-0").click()
    see(guest.find("ranks"), "failed first")


def test_the_environment_of_ranks_and_how_it_differs(visit):
    guest = visit()
    guest.open("/jobs/good/environment")
    see(guest.find("differing"), "RANK")
    see(guest.find("common"), "WORLD_SIZE")


def test_a_pipeline_and_a_sweep(visit, picture):
    guest = visit()
    guest.open("/jobs/lines")
    see(guest.find("graph"), "prepare")
    guest.open("/jobs/rates")
    see(guest.find("trials"), "0.5")
    picture(guest, "studio-sweep")


def test_what_differs_between_two_jobs(visit, picture):
    guest = visit()
    guest.open("/jobs/bad")
    guest.find("compare-good").click()
    arrive(guest.page, re.compile(r"/diff\?a=good&b=bad$"))
    see(guest.find("diff"), "--lr 0.1")
    see(guest.find("diff-phases"), "agents joined")
    guest.page.locator(".u-over").first.wait_for()
    guest.page.mouse.wheel(0, -10_000)
    picture(guest, "studio-diff")


@pytest.mark.parametrize(("path", "test"), [("/queue", "queue"), ("/nodes", "nodes"), ("/assets", "assets")])
def test_pages_of_the_machine(visit, path, test):
    guest = visit()
    guest.open(path)
    guest.page.wait_for_selector(f'[data-test="{test}"]')
    guest.wait_until_quiet()
    assert guest.find("error").count() == 0, guest.find("error").first.inner_text()


@pytest.mark.parametrize("path", ["/jobs", "/jobs/bad", "/jobs/bad/logs", "/jobs/good/metrics"])
def test_a_phone_has_no_second_direction(visit, path):
    guest = visit(width=400, height=800)
    guest.open(path)
    guest.page.wait_for_selector("[data-test='sentence'], [data-test='verdict'], [data-test='job-title']")
    guest.wait_until_quiet()
    wide = guest.page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
    assert wide <= 0


def test_keys_alone_lead_to_a_job(visit):
    guest = visit()
    guest.open("/jobs")
    see(guest.find("jobs"), "good")
    guest.page.keyboard.press("?")
    guest.page.wait_for_selector('[data-test="keys"]')
    guest.page.keyboard.press("Escape")
    guest.page.keyboard.press("j")
    guest.page.keyboard.press("Enter")
    guest.page.wait_for_selector('[data-test="job-title"]')
    guest.page.keyboard.press("g")
    guest.page.keyboard.press("q")
    guest.page.wait_for_selector('[data-test="queue"]')
    guest.page.keyboard.press("g")
    guest.page.keyboard.press("j")
    guest.page.wait_for_selector('[data-test="jobs"]')

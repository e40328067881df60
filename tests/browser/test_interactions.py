"""What a person does on the pages with a mouse, a finger and keys."""

import csv
import re

import pytest
from seeing import arrive, count, miss, see


def box_of(locator):
    locator.scroll_into_view_if_needed()
    box = locator.bounding_box()
    assert box is not None
    return box


def drag(page, box, start, end):
    """Drag from one place of a box to another, both as parts of its width and height."""
    places = [(box["x"] + x * box["width"], box["y"] + y * box["height"]) for x, y in (start, end)]
    page.mouse.move(*places[0])
    page.mouse.down()
    page.mouse.move(*places[1], steps=5)
    page.mouse.up()


def turn_wheel(page, box, pixels, key=None):
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    if key:
        page.keyboard.down(key)
    page.mouse.wheel(0, pixels)
    if key:
        page.keyboard.up(key)


def wait_until_quiet(page):
    page.wait_for_selector('[aria-busy="true"]', state="detached")


@pytest.mark.parametrize(
    ("tab", "place", "whole"),
    [("metrics", ".u-over", "chart-whole"), ("timeline", ".lanes.many .lane-track", "timeline-whole")],
)
def test_a_part_of_an_axis_is_chosen_by_dragging_and_by_the_wheel(visit, tab, place, whole):
    guest = visit()
    guest.open(f"/jobs/good/{tab}")
    axis = guest.page.locator(place).first
    axis.wait_for()
    wait_until_quiet(guest.page)
    drag(guest.page, box_of(axis), (0.3, 0.5), (0.6, 0.5))
    guest.page.wait_for_url(re.compile(r"[?&]part=[-\d.e]+\.\.[-\d.e]+"))
    # The address shows the same to somebody else.
    guest.page.reload()
    guest.find(whole).first.click()
    miss(guest.find(whole))
    guest.page.wait_for_url(lambda url: "part=" not in url)
    wait_until_quiet(guest.page)
    turn_wheel(guest.page, box_of(axis), -300, "Control")
    guest.find(whole).first.wait_for()
    turn_wheel(guest.page, box_of(axis), 3000, "Control")
    miss(guest.find(whole))


def test_curves_are_saved_as_csv(visit):
    guest = visit()
    guest.open("/jobs/good/metrics")
    guest.page.locator(".u-over").wait_for()
    with guest.page.expect_download() as told:
        guest.find("csv").click()
    assert told.value.suggested_filename == "good-loss.csv"
    with open(told.value.path(), newline="") as file:
        head, *rows = csv.reader(file)
    assert head == ["job", "metric", "run", "rank", "step", "min", "max", "mean", "last"]
    assert [row[4] for row in rows] == [str(step) for step in range(len(rows))]
    # Each of the four ranks has logged its own loss, 0.01 above that of the rank before.
    least, most = float(rows[0][5]), float(rows[0][6])
    assert most - least == pytest.approx(0.03)


def test_a_text_is_found_in_the_log_and_its_line_has_an_address(visit):
    guest = visit()
    guest.open("/jobs/good/logs")
    see(guest.find("log-view"), "step 29")
    guest.find("log-find").fill("Step 7 loss")
    guest.find("log-find").press("Enter")
    see(guest.find("log-told"), "no line after")
    guest.page.locator('[aria-label="lines of the log"]').press("Home")
    guest.find("log-find").fill("step 7 loss")
    guest.find("log-find").press("Enter")
    chosen = guest.page.locator(".log-row.chosen")
    see(chosen, "step 7 loss")
    first = chosen.get_attribute("data-n")
    guest.find("log-next").click()
    guest.page.wait_for_selector(f'.log-row.chosen:not([data-n="{first}"])')
    see(chosen, "step 7 loss")
    arrive(guest.page, re.compile(rf"line={chosen.get_attribute('data-n')}\b"))
    address, number = guest.page.url, chosen.get_attribute("data-n")

    guest.find("log-only-these").check()
    see(guest.find("log-note"), re.compile(r"^4 of \d+ lines match"))

    colleague = visit()
    colleague.page.goto(address)
    see(colleague.page.locator(f'.log-row.chosen[data-n="{number}"]'), "step 7 loss")


def test_the_log_stands_still_while_somebody_reads(visit):
    guest = visit()
    guest.open("/jobs/good/logs")
    see(guest.find("log-view"), "step 29")
    see(guest.find("log-follow"), "At the end")
    lines = guest.page.locator('[aria-label="lines of the log"]')
    turn_wheel(guest.page, box_of(lines), -700)
    see(guest.find("log-follow"), "↓ End")
    lines.press("Home")
    see(lines, "step 0 loss")
    guest.find("log-follow").click()
    see(lines, "step 29")


@pytest.mark.parametrize(("ranks", "lines"), [("", 4), ("1-2", 2), ("3", 1)])
def test_the_log_is_downloaded_merged_or_of_a_rank(visit, ranks, lines):
    guest = visit()
    guest.open(f"/jobs/good/logs?ranks={ranks}")
    see(guest.find("log-view"), "step 29")
    with guest.page.expect_download() as told:
        guest.find("log-raw").click()
    with open(told.value.path()) as file:
        found = [line for line in file if "step 7 loss" in line]
    assert len(found) == lines
    assert all(line.startswith("step 7" if ranks == "3" else "[") for line in found)


def test_a_cell_of_the_heat_map_leads_to_the_log_at_that_time(visit):
    guest = visit()
    guest.open("/jobs/bad")
    box = box_of(guest.find("heat-map"))
    # The last row, of rank 3, at the end.
    guest.page.mouse.click(box["x"] + box["width"] - 2, box["y"] + box["height"] - 4)
    arrive(guest.page, re.compile(r"/jobs/bad/logs\?ranks=3&line=\d+"))
    see(guest.page.locator(".log-row.chosen"), "3|node-1")


def test_trials_are_chosen_along_an_axis(visit):
    guest = visit()
    guest.open("/jobs/rates")
    see(guest.find("trials"), "drag along an axis")
    rows = guest.find("trial-table").locator("tbody tr")
    count(rows, 3)
    box = box_of(guest.find("parallel-canvas"))
    # The first axis is the learning rate, from 0.1 at the bottom to 1 at the top: the upper two of three.
    left = 54 / box["width"]
    drag(guest.page, box, (left, 26 / box["height"]), (left, 180 / box["height"]))
    count(rows, 2)
    guest.page.get_by_role("button", name="Show all").click()
    count(rows, 3)


def test_a_view_of_the_list_is_kept_in_the_browser(visit):
    guest = visit()
    guest.open("/jobs")
    guest.find("status-Failed").click()
    arrive(guest.page, re.compile(r"status=Failed"))
    guest.find("views").click()
    guest.find("save-view").click()
    guest.find("view-name").fill("broken ones")
    guest.find("dialog-yes").click()
    see(guest.find("views"), "broken ones")
    guest.open("/jobs?sort=name")
    guest.find("views").click()
    guest.page.get_by_role("menuitem", name="broken ones").click()
    arrive(guest.page, re.compile(r"/jobs\?status=Failed$"))
    see(guest.find("jobs"), "bad")
    guest.find("views").click()
    guest.find("forget-view").click()
    see(guest.find("views"), "Views")


def test_keys_walk_through_the_list_and_the_tabs(visit):
    guest = visit()
    guest.open("/jobs?sort=name")
    see(guest.find("jobs"), "good")
    press = guest.page.keyboard.press
    for key in "jjk":
        press(key)
    names = guest.page.locator("[data-row]").evaluate_all("rows => rows.map((row) => row.dataset.row)")
    guest.page.wait_for_selector(f'[data-row="{names[1]}"].pointed')
    press("x")
    see(guest.find("bulk"), "1 job marked")
    press("Escape")
    miss(guest.find("bulk"))
    press("Enter")
    see(guest.find("job-title"), re.compile("."))
    arrive(guest.page, re.compile(rf"/jobs/{names[1]}$"))
    guest.open("/jobs/good")
    guest.find("rank-grid").wait_for()
    press("]")
    guest.find("log-view").wait_for()
    arrive(guest.page, re.compile(r"/jobs/good/logs$"))
    press("[")
    arrive(guest.page, re.compile(r"/jobs/good$"))
    press("?")
    see(guest.page.locator("dialog[open]"), "next tab")
    press("Escape")
    miss(guest.find("dialog"))
    press("/")
    guest.page.keyboard.type("bad")
    press("Enter")
    arrive(guest.page, re.compile(r"/jobs\?q=bad$"))


def test_a_workspace_is_chosen_and_left(visit, jobs):
    jobs.run("workspace", "create", "-n", "lab")
    guest = visit()
    guest.open("/jobs")
    see(guest.find("jobs"), "good")
    assert guest.find("workspace").input_value() == "-"
    guest.find("workspace").select_option("lab")
    see(guest.find("empty"), "There are no jobs yet")
    arrive(guest.page, re.compile(r"workspace=lab"))
    guest.find("workspace").select_option("-")
    see(guest.find("jobs"), "good")


def test_fingers_scroll_a_log_and_choose_a_rank(visit):
    guest = visit(width=400, height=800, has_touch=True, is_mobile=True)
    guest.open("/jobs/good/logs")
    see(guest.find("log-view"), "step 29")
    lines = guest.page.locator('[aria-label="lines of the log"]')
    box = box_of(lines)
    x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 3
    finger = guest.context.new_cdp_session(guest.page)
    for kind, moved in (("touchStart", 0), ("touchMove", 60), ("touchMove", 150), ("touchEnd", None)):
        points = [] if moved is None else [{"x": x, "y": y + moved}]
        finger.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": points})
    see(guest.find("log-follow"), "↓")
    guest.open("/jobs/bad")
    guest.page.locator('[data-rank="2"]').tap()
    see(guest.find("rank-facts"), "failed first")
    wide = guest.page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
    assert wide <= 0

"""512 ranks in one picture, on a desk's screen and on a phone's."""

import re

import pytest
from waiting import wait_until
from wide_job import FAILED, make_wide_job

PAINTED = """
() => {
  const map = document.querySelector("[data-test=heat-map] canvas");
  if (!map?.width) return 0;
  // A copy: a canvas that is read again and again makes the browser warn.
  const copy = new OffscreenCanvas(1, map.height).getContext("2d", { willReadFrequently: true });
  copy.drawImage(map, map.width / 2, 0, 1, map.height, 0, 0, 1, map.height);
  const { data } = copy.getImageData(0, 0, 1, map.height);
  const colours = new Set();
  for (let at = 0; at < data.length; at += 4) colours.add(`${data[at]} ${data[at + 1]} ${data[at + 2]}`);
  return colours.size;
}
"""


@pytest.fixture(scope="module")
def wide(jobs):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DRUMLINE_HOME", str(jobs.home))
        return make_wide_job("wide", seconds=40)


@pytest.mark.parametrize("width", [1280, 400])
def test_512_ranks_are_seen_and_reached(visit, wide, width):
    from playwright.sync_api import expect

    guest = visit(width=width)
    page = guest.page
    guest.open("/jobs/wide")
    expect(guest.find("rank-grid").locator("[data-rank]")).to_have_count(512)
    expect(guest.find("rank-grid").locator("[data-state=failed_first]")).to_have_attribute(
        "data-rank", str(FAILED)
    )
    wait_until(lambda: page.evaluate(PAINTED) >= 10, 20.0, "the heat map to be drawn")
    wide_by = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
    assert page.evaluate(wide_by) <= 0
    guest.find("rank-grid").locator("[data-rank='300']").click()
    expect(guest.find("rank-facts")).to_contain_text("rank 300")
    expect(guest.find("rank-facts")).to_contain_text("step 39 loss")
    page.keyboard.press("ArrowRight")
    expect(guest.find("rank-grid").locator("[data-rank='301']")).to_be_focused()

    guest.open("/jobs/wide/logs")
    expect(guest.find("log-note")).to_contain_text(re.compile(r"20,48\d lines"))
    # What all ranks printed is one line.
    expect(guest.find("log-view")).to_contain_text("\N{MULTIPLICATION SIGN}")
    guest.find("log-error").click()
    expect(guest.find("log-view")).to_contain_text("ValueError: loss is nan at step 40")
    assert page.evaluate(wide_by) <= 0

"""The pure functions of the studio's page, run by node: numbers in words, pieces of a sentence, pixels."""

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from drumline.contract import words
from drumline.studio.pages import FOLDER

JS = Path(FOLDER) / "js"

pytestmark = pytest.mark.skipif(shutil.which("node") is None, reason="no node here")


def run(module, expression, *values):
    """Return what an expression gives; ``m`` is the module and ``v`` the values."""
    program = (
        f"import * as m from {json.dumps((JS / module).as_uri())}; const v = {json.dumps(values)};"
        f"console.log(JSON.stringify({expression}))"
    )
    done = subprocess.run(
        ["node", "--input-type=module", "--eval", program],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.skipif(not (JS / "../vendor/preact.js").exists(), reason="no libraries of the page here")
def test_marks_that_turn_the_direction_of_writing_are_shown_as_their_numbers():
    """A name could show as gnp.exe what is exe.png, and turn the words around it."""
    markup = "m.html`<p title=${v[0]}>${v[0]} of ${[v[0], m.html`<b>${v[0]}</b>`]}</p>`.props"
    shown = run("lib.js", markup, "\u202eexe.png\u2069 \u05d0")
    assert shown["title"] == shown["children"][0] == "<U+202E>exe.png<U+2069> \u05d0"
    assert shown["children"][2][0] == shown["children"][2][1]["props"]["children"] == shown["title"]


def test_figures_are_those_of_the_command_line():
    numbers = [
        0.24138,
        4811.0,
        3e-05,
        1.234e9,
        10.0,
        0.0,
        -2.5,
        999999.0,
        1e6,
        0.00012,
        123.456,
        1.125,
        100.5,
        1234.5,
    ]
    assert run("format.js", "v[0].map(m.number)", numbers) == [words.format_number(one) for one in numbers]
    seconds = [0.354, 9.2, 57, 192, 3840, 183600, 0, 59.7, 3599.6, 180, 7200, 86400, 0.125, 9.25, 58.5]
    assert run("format.js", "v[0].map(m.duration)", seconds) == [
        words.format_duration(one) for one in seconds
    ]
    assert run("format.js", "v[0].map(m.age)", seconds) == [words.format_age(one) for one in seconds]
    sizes = [0, 1234567, 214e6, 999, 999.6, 5e15, 64 << 20, 9 << 17, 1000 << 20, 1100 << 20, 12.5]
    assert run("format.js", "v[0].map(m.size)", sizes) == [words.format_size(one) for one in sizes]


def test_ranks_are_written_as_the_command_line_reads_them():
    assert run("format.js", "m.rankList(v[0])", [3, 0, 1, 2, 7, 9, 10]) == "0-3,7,9-10"


def test_a_time_is_told_from_today():
    noon = "new Date(2026, 2, 3, 12, 0).getTime()"
    times = "[[2026, 2, 3, 9, 5], [2026, 2, 2, 23, 59], [2026, 0, 9, 14, 2], [2025, 11, 31, 1, 1]]"
    told = run("format.js", f"{times}.map((one) => m.when(new Date(...one).getTime() / 1000, {noon}))")
    assert told == ["today 09:05", "yesterday 23:59", "9 Jan 14:02", "31 Dec 2025"]


def test_pieces_of_a_verdict_are_found():
    sentence = (
        "rank 5 on node 1 failed first, 191.80 s in: ValueError: loss is nan at step 4811 (train.py:88, in step); "
        "ranks 0-2, 4 and 6 were then cut off (attempt 2)"
    )
    pieces = run("parts/sentence_pieces.js", "m.cutSentence(v[0])", sentence)
    assert "".join(one["text"] for one in pieces) == sentence
    assert [(one["kind"], one["text"]) for one in pieces if one["kind"] != "text"] == [
        ("ranks", "rank 5"),
        ("error", "ValueError: loss is nan at step 4811"),
        ("place", "train.py:88"),
        ("ranks", "ranks 0-2, 4 and 6"),
        ("attempt", "attempt 2"),
    ]
    assert run("parts/sentence_pieces.js", "m.ranksOf(v[0])", "ranks 0-2, 4 and 6") == "0-2,4,6"


def test_a_long_sentence_is_cut_in_no_time():
    text = "ValueError: " + "ranks 1, " * 20_000
    pieces = run(
        "parts/sentence_pieces.js",
        "m.cutSentence(v[0]).map((one) => one.text).join('').length",
        text[:60_000],
    )
    assert pieces == 60_000


def test_cells_of_a_heat_map_have_their_colours_and_gaps():
    paint = (
        "(() => { const ramp = m.makeRamp([0, 0, 0], [100, 0, 0], [200, 0, 0]); const p = new Uint32Array(10 * 2);"
        " m.paintCells(p, 10, 2, v[0], 100, ramp); return [...p].map((one) => one & 255) })()"
    )
    # Two bins of five pixels, the last of the first a gap; rows are too low for gaps. Unknown cells stay clear.
    assert run("draw/heat_pixels.js", paint, [[50, 100], [None, 50]]) == [
        *[100, 100, 100, 100, 0, 200, 200, 200, 200, 200],
        *[0, 0, 0, 0, 0, 100, 100, 100, 100, 100],
    ]


def test_the_last_colour_of_a_heat_map_is_a_round_number():
    assert run(
        "draw/heat_pixels.js", "v[0].map((one) => m.chooseMost([[one, null]], null))", [3.2, 0, 81, 1e9]
    ) == [4, 1, 100, 1e9]


def test_one_rank_that_differs_from_all_others_is_found():
    find = "v[0].map((rows) => m.findOutlier(rows, v[1]))"
    alike, busy = [[20, 24], [25, 21], [22, 20]], [80, None, 84]
    cases = [[*alike, busy], [busy, *alike, busy], alike, [*alike, [26, 28]], [[1, 1], busy]]
    found = run("draw/heat_pixels.js", find, cases, "% of a core")
    assert found == [{"row": 3, "mean": 82, "median": 22.5}, None, None, None, None]
    assert run("draw/heat_pixels.js", find, [[[9e9, 9e9], [9e9, 9e9], [2e9, 2e9]]], "bytes")[0]["row"] == 2


def test_one_late_step_hides_no_other():
    """Of milliseconds, nearly all are below the last colour; ranks that differ by less than one do not stand out."""
    most = "v[0].map(([one, most]) => m.chooseMost([[one]], most, 'ms'))"
    assert run("draw/heat_pixels.js", most, [[2000, 10], [0.3, 13.2]]) == [10, 20]
    rows = [[[0.1, 0.2], [0.2, 0.1], [0.5, 0.6]], [[0.1, 0.2], [0.2, 0.1], [13, 14]]]
    found = run("draw/heat_pixels.js", "v[0].map((rows) => m.findOutlier(rows, 'ms'))", rows)
    assert [one and one["row"] for one in found] == [None, 2]


def test_a_band_says_what_it_is_of():
    cases = [
        [[{"runs": 1, "a_step": 4}], 4],
        [[{"runs": 1, "a_step": 4}], 8],
        [[{"runs": 3, "a_step": 3}], 3],
        [[{"runs": 1, "a_step": None}], 4],
    ]
    told = run("charts/smooth.js", "v[0].map(([series, ranks]) => m.bandOf(series, ranks))", cases)
    assert told == [" of 4 ranks", " of 4 values a step", " of 3 runs", ""]


def test_a_rank_that_does_nothing_does_not_look_hot():
    """The most that there can be is the scale only where some come near it."""
    most = "v[0].map(([one, most, unit]) => m.chooseMost([[one]], most, unit))"
    cases = [[0.7, None, "%"], [180, None, "% of a core"], [10e6, 25e9, "bytes"], [20e9, 25e9, "bytes"]]
    assert run("draw/heat_pixels.js", most, cases) == [100, 200, 10e6, 25e9]

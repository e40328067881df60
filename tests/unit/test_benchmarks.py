"""benchmarks/all: what it writes into the documents, and what it waits for."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "benchmarks"))

import everything  # noqa: E402
import marked  # noqa: E402
import quiet  # noqa: E402

sys.path.remove(str(ROOT / "benchmarks"))


def test_a_part_is_replaced_and_nothing_else():
    text = "a\n<!-- begin: x -->\nold\n<!-- end: x -->\nb\n<!-- begin: y -->\n<!-- end: y -->\n"
    once = marked.replaced(text, "x", "new\n\n")
    assert once == text.replace("old", "new")
    assert marked.replaced(once, "x", "new") == once
    assert marked.replaced(once, "y", "more").endswith("<!-- begin: y -->\nmore\n<!-- end: y -->\n")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "<!-- begin: x -->\n",
        "<!-- end: x -->\n<!-- begin: x -->\n",
        2 * "<!-- begin: x -->\n<!-- end: x -->\n",
    ],
)
def test_a_part_that_is_not_marked_is_refused(text):
    with pytest.raises(marked.NotMarkedError, match="<!-- begin: x -->"):
        marked.replaced(text, "x", "new")


@pytest.mark.parametrize("name", everything.BENCHES)
def test_every_benchmark_has_its_script_and_its_place(name):
    bench = everything.BENCHES[name]
    script = (ROOT / "benchmarks" / bench.script).read_text()
    if not bench.writes_itself:
        assert ("--rounds" in script) == bench.has_rounds
    page = (ROOT / bench.page).read_text()
    assert marked.replaced(page, name, "x") != page


@pytest.mark.parametrize("path", [everything.PERFORMANCE, everything.BENCHMARKS, everything.STUDIO])
def test_every_table_of_a_page_is_in_such_a_place(path):
    page = (ROOT / path).read_text()
    names = [name for name, bench in everything.BENCHES.items() if bench.page == path]
    assert names
    for name in names:
        page = marked.replaced(page, name, "")
    assert [line for line in page.splitlines() if line.startswith("|")] == []


def test_a_table_goes_into_the_page_of_its_benchmark_and_no_other(tmp_path, monkeypatch):
    marks = "".join(f"<!-- begin: {name} -->\nold\n<!-- end: {name} -->\n" for name in everything.BENCHES)
    for bench in everything.BENCHES.values():
        (tmp_path / bench.page).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / bench.page).write_text(marks)
    monkeypatch.setattr(everything, "ROOT", tmp_path)
    monkeypatch.setattr(everything, "commit", lambda: "abc")
    (tmp_path / "bench.py").write_text(
        "import sys\nfrom pathlib import Path\n"
        "Path(sys.argv[sys.argv.index('--markdown') + 1]).write_text('- rounds: 1\\n\\n| new |\\n')\n"
    )
    monkeypatch.setattr(everything, "HERE", tmp_path)
    given = everything.parse(["--now", "--rounds", "1"])
    for name in ("cli", "logs"):
        bench = everything.BENCHES[name]
        monkeypatch.setitem(everything.BENCHES, name, bench._replace(script="bench.py", arguments=()))
        assert everything.run(name, given) == ""
    pages = {path: (tmp_path / path).read_text() for path in (everything.PERFORMANCE, everything.BENCHMARKS)}
    tables = {
        path: re.findall(r"<!-- begin: ([\w-]+) -->\n- rounds: 1\n", page) for path, page in pages.items()
    }
    assert tables == {everything.PERFORMANCE: ["logs"], everything.BENCHMARKS: ["cli"]}


def test_every_marked_table_of_reliability_is_one_of_them():
    """But that of chaos, which scripts/chaos writes."""
    found = re.findall(r"<!-- begin: ([\w-]+) -->", (ROOT / "docs" / "howto" / "reliability.md").read_text())
    made = {name for name, one in everything.BENCHES.items() if one.page == "docs/howto/reliability.md"}
    assert set(found) - {"chaos"} == made
    assert all(everything.BENCHES[name].writes_itself for name in made)


def test_it_waits_until_the_load_has_fallen_and_others_use_nothing():
    readings = [
        quiet.Reading(0, 3.0, 0, 0),
        quiet.Reading(5, 2.0, 10, 0),  # two cores, by others
        quiet.Reading(10, 0.5, 15, 0),  # one, though the load is low
        quiet.Reading(15, 0.9, 15, 0),  # none, but the load is not low yet
        quiet.Reading(40, 0.5, 40, 25),  # all of it ours
    ]
    left, said, slept = list(readings), [], []
    quiet.wait(0.6, said.append, look=lambda: left.pop(0), sleep=slept.append)
    assert (left, len(slept)) == ([], 4)
    assert said == ["waiting: load 2.00, must be below 0.6; others use 2.00 cores, may use 0.15"]


def test_what_we_start_is_not_the_work_of_others():
    """Half a second of a core, of a process that is reaped before the second look."""
    before = quiet.read()
    busy = "import time\nwhile time.process_time() < 0.5: pass"
    subprocess.run([sys.executable, "-c", busy], check=True)
    after = quiet.read()
    assert after.own_s - before.own_s >= 0.5
    assert after.busy_s - before.busy_s >= 0.4


def test_a_reader_is_told_of_a_machine_that_was_busy():
    watch = quiet.Watch()
    watch.loads, watch.others = [0.4, 1.2], 0.5
    said = everything.notes(watch, 3)
    assert "- load average meanwhile: 0.4, 1.2\n- cores used by others: 0.50\n" in said
    assert "- the machine was busy with other work in each of 3 attempts\n" in said
    table = "- CPU: x\n- rounds: 5\n\n### a\n\n| b |\n"
    assert everything.with_notes(table, said) == table.replace("- rounds: 5\n", "- rounds: 5\n" + said)
    watch.others = 0.1
    assert "- repeated 1 times, because the machine got busy\n" in everything.notes(watch, 2)


def test_the_benchmark_of_the_supervisor_starts_and_ends_a_job(tmp_path):
    script = ROOT / "benchmarks" / "supervisor" / "supervise.py"
    words = [sys.executable, str(script), "2", "2", "well", "1", str(tmp_path)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert (told["nodes"], told["reason"]) == (2, "all 4 ranks ended with exit code 0")
    assert told["launch_s"] > 0


def test_the_benchmark_of_the_supervisor_follows_all_logs(tmp_path):
    script = ROOT / "benchmarks" / "supervisor" / "follow.py"
    words = [sys.executable, str(script), "2", "2", str(tmp_path)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert (told["nodes"], told["shown_bytes"]) == (2, 4 * 170)


def test_the_benchmark_of_commands_measures_each(tmp_path):
    script = ROOT / "benchmarks" / "cli" / "run.py"
    words = [sys.executable, str(script), "--rounds", "1", "--jobs", "3", "--json", str(tmp_path / "json")]
    words += ["--no-install", "--venv", sys.prefix]
    done = subprocess.run(words, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr
    rows = re.findall(r"^\| `(.*?)` .* \| 1 \|$", done.stdout, re.MULTILINE)
    assert rows == [
        "python -c pass",
        "drumline --help",
        "drumline job create -f job.yml",
        "drumline plan -f wide.yml -o json",
        "drumline job list",
    ]
    assert re.search(r"^- plan of 10,000 ranks: 4\.\d MB$", done.stdout, re.MULTILINE)
    samples = json.loads((tmp_path / "json").read_text())["samples"]
    assert all(one["cpu_s"] > 0 for found in samples.values() for one in found)

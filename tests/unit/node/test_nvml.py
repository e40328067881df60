"""GPUs by NVML, of a small library that stands in for NVIDIA's."""

import os
import shutil
import subprocess

import pytest
from waiting import wait_until

from drumline.contract import samples
from drumline.linux import descendants
from drumline.node.metrics import nvml
from drumline.node.metrics.sampling import Sampler

SOURCE = """
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Two GPUs: 0 is whole, 1 is divided into two parts, of which the second is not there. */
typedef struct { unsigned pid; unsigned long long used; unsigned instance, compute; } info_t;
static int whole = 10, divided = 20, part = 30;

int nvmlInit_v2(void) { return getenv("FAKE_NVML_FAILS") ? 9 : 0; }
int nvmlDeviceGetCount_v2(unsigned *count) {
    if (getenv("FAKE_NVML_HANGS")) pause();
    *count = 3; return 0;
}
int nvmlDeviceGetHandleByIndex_v2(unsigned index, int **device) {
    if (index == 2) return 15; /* lost */
    *device = index ? &divided : &whole; return 0;
}
int nvmlDeviceGetName(int *device, char *name, unsigned size) {
    strncpy(name, device == &part ? "Fake MIG 1g" : "Fake \\x1b[31mGPU", size); return 0;
}
int nvmlDeviceGetUtilizationRates(int *device, unsigned *rates) {
    if (device != &whole) return 3; /* not supported */
    rates[0] = 93; rates[1] = 40; return 0;
}
int nvmlDeviceGetMemoryInfo(int *device, unsigned long long *memory) {
    if (device == &divided) return 4; /* no permission */
    memory[0] = 80ULL << 30; memory[1] = 60ULL << 30; memory[2] = 20ULL << 30; return 0;
}
int nvmlDeviceGetPowerUsage(int *device, unsigned *milliwatts) { *milliwatts = 350500; return device == &part ? 3 : 0; }
int nvmlDeviceGetTemperature(int *device, unsigned sensor, unsigned *value) { *value = 61; return sensor ? 2 : 0; }
int nvmlDeviceGetMigMode(int *device, unsigned *now, unsigned *then) {
    if (device == &whole) return 3;
    *now = *then = 1; return 0;
}
int nvmlDeviceGetMaxMigDeviceCount(int *device, unsigned *count) { *count = 2; return 0; }
int nvmlDeviceGetMigDeviceHandleByIndex(int *device, unsigned index, int **found) {
    if (index) return 6; /* not found */
    *found = &part; return 0;
}
int nvmlDeviceGetComputeRunningProcesses_v3(int *device, unsigned *count, info_t *infos) {
    infos[0] = (info_t){ atoi(getenv("FAKE_NVML_PID")), device == &whole ? 5ULL << 30 : ~0ULL, 1, 1 };
    infos[1] = (info_t){ 1, 1 << 20, 0, 0 };
    *count = 2; return 0;
}
"""
GIGABYTE = 1 << 30


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("there is no C compiler for the library that stands in for NVML")
    folder = tmp_path_factory.mktemp("nvml")
    (folder / "nvml.c").write_text(SOURCE)
    target = folder / "libnvidia-ml.so.1"
    command = [compiler, "-shared", "-fPIC", "-o", str(target), str(folder / "nvml.c")]
    compiled = subprocess.run(command, stderr=subprocess.PIPE, text=True)
    if "No such file" in compiled.stderr:
        pytest.skip("the C compiler has no headers, which libc6-dev brings")
    assert compiled.returncode == 0, compiled.stderr
    return str(target)


@pytest.fixture
def sampler(library, tmp_path, monkeypatch):
    monkeypatch.setenv(nvml.SWITCH, library)
    # Such as a helper of multiprocessing, which lives as long as this process.
    before = descendants.list_children(os.getpid())
    made = Sampler(str(tmp_path / "node-0.jsonl"), 0, clock=Clock())
    yield made
    made.forget_gpus()
    made.finish()
    for helper in set(descendants.list_children(os.getpid())).difference(before):
        os.waitpid(helper, 0)


class Clock:
    now = 0.0

    def __call__(self):
        return self.now


def sample(sampler, ranks):
    """The next one, six seconds later."""
    sampler._clock.now += 6.0
    sampler.work(ranks)
    while sampler.due_in_s() == 0.0:
        sampler.work(ranks)


def newest(tmp_path):
    return samples.from_line((tmp_path / "node-0.jsonl").read_bytes().splitlines()[-1])


def test_gpus_and_whose_processes_are_on_them(sampler, tmp_path, monkeypatch):
    with subprocess.Popen(["sleep", "600"]) as rank:
        monkeypatch.setenv("FAKE_NVML_PID", str(rank.pid))
        try:
            sampler.work({rank.pid: 7})
            sample(sampler, {rank.pid: 7})
            assert newest(tmp_path).gpus == ()

            def seen():
                sample(sampler, {rank.pid: 7})
                return newest(tmp_path).gpus

            gpus = wait_until(seen)
            use = next(use for use in newest(tmp_path).ranks if use.rank == 7)
        finally:
            rank.kill()
    name = "Fake \x1b[31mGPU"
    assert gpus == (
        samples.Gpu("0", name, 93, 20 * GIGABYTE, 80 * GIGABYTE, 350.5, 61),
        samples.Gpu("1", name, None, None, None, 350.5, 61),
        samples.Gpu("1.0", "Fake MIG 1g", None, 20 * GIGABYTE, 80 * GIGABYTE, None, 61),
    )
    assert use.gpus == {"0": 5 * GIGABYTE, "1.0": 0}
    assert use.processes == 1


def test_a_driver_that_does_not_answer_holds_up_nothing(sampler, tmp_path, monkeypatch):
    monkeypatch.setenv("FAKE_NVML_HANGS", "1")
    sampler.work({})
    for _ in range(4):
        sample(sampler, {})
    assert (len(newest(tmp_path).gpus), newest(tmp_path).elapsed_s) == (0, 24.0)
    assert sampler.helper_pid
    assert not sampler.is_broken


@pytest.mark.parametrize("fault", ["no library", "no start"])
def test_a_library_that_is_not_there_or_does_not_start(sampler, tmp_path, monkeypatch, fault):
    monkeypatch.setenv(*(("FAKE_NVML_FAILS", "1") if fault == "no start" else (nvml.SWITCH, "/no/such.so")))
    sampler.work({})
    sample(sampler, {})
    assert sampler.helper_pid
    wait_until(lambda: (sample(sampler, {}), not sampler.helper_pid)[1])
    sample(sampler, {})
    assert newest(tmp_path).gpus == ()


def test_what_says_whether_gpus_are_looked_at(monkeypatch):
    monkeypatch.setenv(nvml.SWITCH, "0")
    assert nvml.find_library() == ""
    monkeypatch.setenv(nvml.SWITCH, "/opt/libnvidia-ml.so.1")
    assert nvml.find_library() == "/opt/libnvidia-ml.so.1"

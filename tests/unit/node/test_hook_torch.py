"""Programs that do with the hook of steps what they do without it, with real PyTorch; and what it counts of them."""

import os
import re
import subprocess
import sys
import textwrap

import pytest
from needs import need_torch

from drumline.node import hook_folder
from drumline.node.metrics.step_windows import StepRing

need_torch()

BEGIN = """
    import os, threading
    import torch
    import torch.distributed as dist

    weight = torch.nn.Parameter(torch.ones(4))
"""


def run_program(tmp_path, text, name="train.py"):
    """What a program prints that runs with the hook; its ring is ``ring`` in the folder."""
    path = tmp_path / name
    path.write_text(textwrap.dedent(BEGIN) + textwrap.dedent(text))
    own = {"DRUMLINE_STEPS": str(tmp_path / "ring"), "PYTHONPATH": hook_folder.HOOK, "RANK": "0"}
    own["DRUMLINE_FAILURES"] = str(tmp_path / "notes")
    done = subprocess.run(
        [sys.executable, str(path)],
        env={**os.environ, **own},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def read_steps(tmp_path):
    return StepRing(str(tmp_path / "ring")).read()


def test_a_process_group_that_is_written_in_python_calls_its_base(tmp_path):
    said = run_program(
        tmp_path,
        """
        store = dist.HashStore()
        dist.init_process_group("gloo", store=store, rank=0, world_size=1)


        class Group(dist.ProcessGroup):
            def __init__(self):
                super().__init__(0, 1)
                kind = dist.ProcessGroup.BackendType.GLOO
                self._set_default_backend(kind)
                self._register_backend(torch.device("cpu"), kind, dist.ProcessGroupGloo(store, 0, 1))

            def allreduce(self, *arguments):
                return super().allreduce(*arguments)


        group = Group()
        one = torch.ones(2)
        group.allreduce([one], dist.AllreduceOptions()).wait()
        group.barrier(dist.BarrierOptions()).wait()
        print(one.tolist())
        dist.destroy_process_group()
        """,
    )
    assert said == "[1.0, 1.0]\n"


def test_a_collective_tells_what_is_handled_as_it_begins(tmp_path):
    said = run_program(
        tmp_path,
        """
        def told():
            path = f"{os.environ['DRUMLINE_FAILURES']}.{os.getpid()}.in-flight"
            return os.path.exists(path) and open(path).read()

        dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
        dist.barrier()
        print(told())
        try:
            raise ValueError("bad batch")
        except ValueError:
            dist.barrier()
            print("bad batch" in told())
        dist.barrier()
        print(told())
        """,
    )
    assert said == "False\nTrue\n[]\n"


def test_a_file_that_gets_the_number_of_the_ring_is_not_written_to(tmp_path):
    said = run_program(
        tmp_path,
        """
        import resource
        optimizer = torch.optim.SGD([weight])
        optimizer.step()
        # A program may close whatever it finds open.
        os.closerange(3, resource.getrlimit(resource.RLIMIT_NOFILE)[0])
        files = [open(f"results-{number}", "w+b", buffering=0) for number in range(950)]
        for file in files:
            file.write(b"mine")
        for _ in range(3):
            optimizer.step()
        print({os.fstat(file.fileno()).st_size for file in files})
        for file in files:
            os.remove(file.name)
        """.replace('f"results', f'f"{tmp_path}/results'),
    )
    assert said == "{4}\n"


def test_a_function_that_calls_backward_can_be_a_script(tmp_path):
    said = run_program(
        tmp_path,
        """
        def work(x: torch.Tensor) -> int:
            torch.autograd.backward([x.sum()])
            return 1

        torch.jit.script(work)(weight)
        print(weight.grad.tolist())
        """,
    )
    assert said == "[1.0, 1.0, 1.0, 1.0]\n"


def test_a_step_that_calls_the_one_of_its_base_counts_once(tmp_path):
    run_program(
        tmp_path,
        """
        class Mine(torch.optim.SGD):
            def step(self, closure=None):
                return super().step(closure)

        torch.optim.SGD([torch.nn.Parameter(torch.ones(2))])
        optimizer = Mine([weight])
        for _ in range(5):
            weight.grad = torch.ones(4)
            optimizer.step()
        """,
    )
    assert [step.number for step in read_steps(tmp_path)] == [1, 2, 3, 4, 5]


def test_the_step_that_makes_the_state_of_an_optimizer_does_not_count(tmp_path):
    run_program(
        tmp_path,
        """
        from torch.distributed.checkpoint.state_dict import get_state_dict

        model = torch.nn.Linear(2, 2)
        optimizer = torch.optim.AdamW(model.parameters())
        get_state_dict(model, optimizer)
        for _ in range(3):
            model(torch.ones(2)).sum().backward()
            optimizer.step()
            optimizer.zero_grad()
        """,
    )
    assert len(read_steps(tmp_path)) == 3


def test_a_child_that_lives_on_does_not_keep_the_next_program_from_its_steps(tmp_path):
    text = """
        if {forks} and os.fork() == 0:
            os.setsid()
            os.read(os.open({pipe!r}, os.O_RDONLY), 1)
            os._exit(0)
        """
    os.mkfifo(tmp_path / "pipe")
    steps = """
        optimizer = torch.optim.SGD([weight])
        for _ in range({count}):
            optimizer.step()
    """
    given = {"pipe": str(tmp_path / "pipe")}
    first = textwrap.dedent(steps.format(count=1)) + textwrap.dedent(text.format(forks=1, **given))
    # Its child has the program's outputs, so they must not be waited for.
    path = tmp_path / "first.py"
    path.write_text(textwrap.dedent(BEGIN) + first)
    own = {"DRUMLINE_STEPS": str(tmp_path / "ring"), "PYTHONPATH": hook_folder.HOOK, "RANK": "0"}
    own["DRUMLINE_FAILURES"] = str(tmp_path / "notes")
    subprocess.run([sys.executable, str(path)], env={**os.environ, **own}, timeout=120, check=True)
    try:
        run_program(tmp_path, steps.format(count=7))
        assert [step.number for step in read_steps(tmp_path)] == [1, 2, 3, 4, 5, 6, 7]
    finally:
        (tmp_path / "pipe").write_bytes(b".")


def test_a_loop_in_another_thread_than_a_check_before_it_has_its_parts(tmp_path):
    run_program(
        tmp_path,
        """
        model = torch.nn.Linear(200, 200)
        model(torch.ones(200)).sum().backward()

        def train():
            optimizer = torch.optim.SGD(model.parameters())
            for _ in range(6):
                model(torch.ones(200)).sum().backward()
                optimizer.step()

        thread = threading.Thread(target=train)
        thread.start()
        thread.join()
        """,
    )
    backwards = [step.backward for step in read_steps(tmp_path)]
    assert len(backwards) == 6
    assert all(one > 0 for one in backwards[2:])
    assert backwards[0] != 0
    assert backwards[1] != 0


@pytest.mark.parametrize(
    ("then", "entered"),
    [("", 1), ("backward(is_cut_off=False)", 0), ("dist.all_reduce(torch.ones(1))", 1)],
)
def test_a_backward_that_is_cut_off_counts_if_the_program_does_not_go_on(tmp_path, then, entered):
    run_program(
        tmp_path,
        f"""
        dist.init_process_group("gloo", init_method="file://" + __file__ + ".store", rank=0, world_size=1)
        model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(2, 1))

        def fail(gradient):
            raise RuntimeError("no memory for this micro-batch")

        def backward(is_cut_off):
            found = model(torch.ones(4, 2))
            if is_cut_off:
                found.register_hook(fail)
            found.sum().backward()

        with model.no_sync():
            try:
                backward(is_cut_off=True)
            except RuntimeError:
                pass
        {then}
        """,
    )
    notes = (tmp_path / "notes").read_text()
    assert re.findall(r'"entered": (\d+), "world": 1', notes) == [str(entered)]

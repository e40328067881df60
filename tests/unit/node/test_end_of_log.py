"""Ends of logs of many languages and tools, and what each says of the end of its program."""

import pytest

from drumline.node.diagnostics import failures, last_words
from drumline.node.diagnostics.failures import quote_message

GO = """step 1
panic: runtime error: index out of range [6] with length 3

goroutine 1 [running]:
main.(*Loader).pick(...)
\t/src/loader.go:4
main.main()
\t/src/loader.go:12 +0x1d
exit status 2
"""
GO_SIGNAL = """panic: runtime error: invalid memory address or nil pointer dereference
[signal SIGSEGV: segmentation violation code=0x1 addr=0x0 pc=0x45]

goroutine 1 [running]:
main.main()
\t/src/a.go:5 +0x11
"""
GO_SAID = "panic: runtime error: index out of range [6] with length 3"
GO_DEADLY = (
    "panic: first [recovered]\n\tpanic: again first\n\ngoroutine 1 [running]:\nmain.main()\n\t/a.go:5\n"
)
UBSAN = (
    "a.c:1:51: runtime error: signed integer overflow: 2147483647 + 1 cannot be represented in type 'int'\n"
)
GO_LOCK = "fatal error: all goroutines are asleep - deadlock!\n\ngoroutine 1 [chan receive]:\nmain.main()\n\t/a.go:5\n"
NO_TABLE = "java.lang.IllegalStateException: table 'users' is not there"
JAVA = """Exception in thread "main" java.lang.IllegalStateException: table 'users' is not there
\tat Job.read(Job.java:7)
\tat Job.main(Job.java:2)
Caused by: java.io.IOException: stale handle
\tat Disk.open(Disk.java:3)
\t... 2 more
"""
DOTNET = """Unhandled exception. System.InvalidOperationException: bad batch
   at Program.Step() in /src/Program.cs:line 5
   at Program.Main() in /src/Program.cs:line 2
"""
RUST = """thread 'main' (123) panicked at src/main.rs:4:5:
index out of bounds: the len is 3 but the index is 6
stack backtrace:
   0: rust_begin_unwind
             at /rustc/1/library/std/src/panicking.rs:5:5
note: Some details are omitted, run with `RUST_BACKTRACE=full` for a verbose backtrace.
"""
RUST_OLD = (
    "thread 'main' panicked at 'bad batch', src/main.rs:4:5\nnote: run with `RUST_BACKTRACE=1` for more\n"
)
NODE = """/app/train.js:3
    throw new Error("bad batch");
    ^

TypeError [ERR_INVALID]: bad batch
    at step (/app/train.js:3:11)
    at Object.<anonymous> (/app/train.js:7:1)

Node.js v18.19.0
"""
PERL = "bad batch at train.pl line 5.\n\tmain::step(3) called at train.pl line 9\n\teval {...} called at x.pl line 2\n"
JULIA = """ERROR: LoadError: BoundsError: attempt to access 3-element Vector{Int64} at index [6]
Stacktrace:
 [1] getindex(A::Vector{Int64}, i1::Int64)
   @ Base ./essentials.jl:13
 [2] top-level scope
   @ ~/train.jl:3
in expression starting at /root/train.jl:3
"""
R = "Error in step(3) : bad batch\nCalls: main -> step\nExecution halted\n"
R_LONG = """Error in readRDS(file) : \n  cannot open the connection
Calls: readRDS -> gzfile
In addition: Warning message:
In gzfile(file, "rb") :
  cannot open compressed file 'x.rds', probable reason 'No such file or directory'
Execution halted
"""
RUBY = "train.rb:3:in `step': bad batch (RuntimeError)\n\tfrom train.rb:6:in `<main>'\n"
ASAN = """=================================================================
==71==ERROR: AddressSanitizer: heap-buffer-overflow on address 0x602 at pc 0x55
READ of size 4 at 0x60200000001c thread T0
    #0 0x55d1 in step /src/a.c:5
    #1 0x55d2 in main /src/a.c:9

SUMMARY: AddressSanitizer: heap-buffer-overflow /src/a.c:5 in step
Shadow bytes around the buggy address:
  0x0c047fff7fb0: 00 00 00 00 00 00 00 00
=>0x0c047fff8000: fa fa 00 04[fa]fa
Shadow byte legend (one shadow byte represents 8 application bytes):
  Addressable:           00
  Partially addressable: 01 02 03 04 05 06 07
  Heap left redzone:       fa
  Freed heap region:       fd
  Stack left redzone:      f1
  Stack mid redzone:       f2
  Stack right redzone:     f3
  Stack after return:      f5
  Stack use after scope:   f8
  Global redzone:          f9
  ASan internal:           fe
==71==ABORTING
"""
PURE = "pure virtual method called\nterminate called without an active exception\n"
PHP = "PHP Fatal error:  Uncaught Exception: bad batch in /a.php:3\nStack trace:\n#0 {main}\n  thrown in /a on line 3\n"
TIMER = """epoch 1
Timeout (0:00:01.500000)!
Thread 0x00007f (most recent call first):
  File "/usr/lib/python3.11/threading.py", line 320 in wait
  File "/code/train.py", line 46 in stuck_here
  File "/code/train.py", line 86 in <module>
"""


@pytest.mark.parametrize(
    ("log", "said"),
    [
        (GO, GO_SAID),
        (GO_SIGNAL, "panic: runtime error: invalid memory address or nil pointer dereference"),
        (GO_LOCK, "fatal error: all goroutines are asleep - deadlock!"),
        (GO_DEADLY, "panic: first [recovered] panic: again first"),
        (
            GO.replace("exit status 2", "goroutine 7 [select]:\nmain.main.func1()\n\t/src/a.go:3\n" * 500),
            GO_SAID,
        ),
        (UBSAN, UBSAN.strip()),
        (JAVA, f"{NO_TABLE}; caused by: java.io.IOException: stale handle"),
        (DOTNET, "System.InvalidOperationException: bad batch"),
        (RUST, "panicked: index out of bounds: the len is 3 but the index is 6"),
        (RUST_OLD, "panicked: bad batch"),
        (NODE, "TypeError [ERR_INVALID]: bad batch"),
        (JULIA, "BoundsError: attempt to access 3-element Vector{Int64} at index [6]"),
        (R, "Error in step(3) : bad batch"),
        (R_LONG, "Error in readRDS(file) : cannot open the connection"),
        (ASAN, "ERROR: AddressSanitizer: heap-buffer-overflow on address 0x602 at pc 0x55"),
        (PURE, "pure virtual method called"),
        (PHP, "PHP Fatal error: Uncaught Exception: bad batch in /a.php:3"),
        (TIMER, "its own faulthandler gave up after 1.5 s"),
        ("".join(f"[rank3]: {line}\n" for line in JAVA.splitlines()[:3]), NO_TABLE),
        ("Error: out of tokens\nepoch 2\n", ""),
        (JAVA + "retrying\n" * 20, ""),
    ],
)
def test_the_report_of_a_language(log, said):
    assert last_words.find_report(log, "/code").said == said


def test_the_place_of_a_report_is_the_programs():
    assert last_words.find_report(RUST, "/code").place == {"file": "src/main.rs", "line": 4, "function": ""}
    assert last_words.find_report(TIMER, "/code").place == {
        "file": "train.py",
        "line": 46,
        "function": "stuck_here",
    }


TABLE = """inner.py: error: the following arguments are required: --data
E1122 10:00:00.000000 71 torch/distributed/elastic/multiprocessing/api.py:882] failed (exitcode: 2) local_rank: 0
Traceback (most recent call last):
  File "/usr/bin/torchrun", line 8, in <module>
    sys.exit(main())
torch.distributed.elastic.multiprocessing.errors.ChildFailedError:
============================================================
inner.py FAILED
------------------------------------------------------------
Failures:
  <NO_OTHER_FAILURES>
------------------------------------------------------------
Root Cause (first observed failure):
[0]:
  time      : 2026-11-22_15:58:29
  rank      : 0 (local_rank: 0)
  exitcode  : 2 (pid: 22600)
  error_file: <N/A>
  traceback : To enable traceback see: https://pytorch.org/docs/stable/elastic/errors.html
============================================================
"""


@pytest.mark.parametrize(
    ("log", "said"),
    [
        (PERL, "bad batch at train.pl line 5."),
        (RUBY, "train.rb:3:in `step': bad batch (RuntimeError)"),
        ("no batch\nwandb: Synced 5 files\nwandb: Find logs at: ./wandb\n", "no batch"),
        ("no batch\nmake: *** [Makefile:2: train] Error 1\nmake[1]: Leaving directory '/x'\n", "no batch"),
        ("no batch\n/lib/x.py:3: UserWarning: old\n  warnings.warn('old')\n", "no batch"),
        (
            "10:00:00,000 - train - ERROR - no batch\nbye\ntook 3 s\n",
            "10:00:00,000 - train - ERROR - no batch",
        ),
        ("fatal: no batch\ntracker: synced 5 files\n", "fatal: no batch"),
        ("error: 0.25\nno batch\n", "no batch"),
        ("config is wrong:\n  no lr\n  no epochs\n", "config is wrong: no lr no epochs"),
        ("step 9\nconfig is wrong:\nno lr\nno epochs\n", "config is wrong: no lr no epochs"),
        (" 10%|#\r 20%|##\rno batch\n", "no batch"),
        ("start.sh: line 2: set: -\r: invalid option\n", "start.sh: line 2: set: -\\r: invalid option"),
        (TABLE, "inner.py: error: the following arguments are required: --data"),
        ("wandb: Synced 5 files\n", "wandb: Synced 5 files"),
    ],
)
def test_the_line_that_says_most(log, said):
    assert last_words.find_last_words(log) == said


RAISED = """[rank3]: Traceback (most recent call last):
[rank3]:   File "/code/train.py", line 9, in <module>
[rank3]:     step()
[rank3]:   File "/code/train.py", line 5, in step
[rank3]:     raise ValueError("bad batch")
[rank3]: ValueError: bad batch
"""
DESTRUCTOR = """Exception ignored in: <function Loader.__del__ at 0x7f>
Traceback (most recent call last):
  File "/code/train.py", line 3, in __del__
AttributeError: 'NoneType' object has no attribute 'close'
"""
LAUNCHER = """Traceback (most recent call last):
  File "/usr/bin/launch", line 8, in <module>
    main()
subprocess.CalledProcessError: Command '['python']' returned non-zero exit status 1.
"""
GROUP = """  + Exception Group Traceback (most recent call last):
  |   File "/code/train.py", line 7, in <module>
  |     raise ExceptionGroup("epoch 3", [...])
  | ExceptionGroup: epoch 3 (2 sub-exceptions)
  +-+---------------- 1 ----------------
    | ExceptionGroup: readers (2 sub-exceptions)
    +-+---------------- 1 ----------------
      | ValueError: shard 7 is empty
      +---------------- 2 ----------------
      | OSError: shard 9: stale handle
      +------------------------------------
    +---------------- 2 ----------------
    | Traceback (most recent call last):
    |   File "/code/train.py", line 3, in read
    | KeyError: 'x'
    +------------------------------------
"""
YAML = """Traceback (most recent call last):
  File "/code/train.py", line 4, in <module>
  File "/usr/lib/python3/dist-packages/yaml/parser.py", line 438, in parse_block_mapping_key
    raise ParserError("while parsing a block mapping", self.marks[-1],
yaml.parser.ParserError: while parsing a block mapping
  in "c.yml", line 1, column 1
expected <block end>, but found '<block mapping start>'
  in "c.yml", line 3, column 3
"""
CHAIN = f"""Traceback (most recent call last):
  File "/code/train.py", line 5, in step
KeyError: 'label'

During handling of the above exception, another exception occurred:

{RAISED}"""


@pytest.mark.parametrize(
    ("log", "said", "line"),
    [
        (RAISED, "ValueError: bad batch", 5),
        (RAISED + "tracker: summary\nwandb: Synced 5 files\n" + DESTRUCTOR, "ValueError: bad batch", 5),
        (RAISED + LAUNCHER, "ValueError: bad batch", 5),
        (
            GROUP,
            "ExceptionGroup: epoch 3: ValueError: shard 7 is empty; OSError: shard 9: stale handle; KeyError: 'x'",
            7,
        ),
        (
            YAML,
            'yaml.parser.ParserError: while parsing a block mapping in "c.yml", line 1, column 1; '
            """expected <block end>, but found '<block mapping start>' in "c.yml", line 3, column 3""",
            4,
        ),
        (CHAIN, "ValueError: bad batch", 5),
        (RAISED + "going on\n" * 20, "", 0),
        (RAISED + "Fatal Python error: Segmentation fault\n", "", 0),
        (DESTRUCTOR, "", 0),
    ],
)
def test_the_traceback_at_the_end_of_a_log(log, said, line):
    logged = last_words.find_traceback(log)
    evidence = failures.add_logged(failures.ExitEvidence(), logged, 7, 1, "/code", 5.0)
    failure = evidence.failure or {"type": "", "message": "", "line": 0}
    assert (f"{failure['type']}: {failure['message']}".strip(": "), failure["line"]) == (said, line)


def test_an_exception_before_a_code_that_the_program_chose_was_handled():
    logged = last_words.find_traceback(CHAIN)
    evidence = failures.add_logged(failures.ExitEvidence(), logged, 7, 3, "/code", 5.0)
    assert evidence.failure["handled"]
    assert [one["type"] for one in evidence.failure["chain"]] == ["KeyError"]


DDP = """Expected to have finished reduction in the prior iteration before starting a new one. This error indicates \
that your module has parameters that were not used in producing loss. You can enable unused parameters by passing \
the keyword argument `find_unused_parameters=True` to `torch.nn.parallel.DistributedDataParallel`, and by
making sure all `forward` function outputs participate in calculating loss.
If you already have done the above, then the module wasn't able to locate the output tensors. Please include it.
Parameter indices which did not receive grad for rank 3: 2 3
 In addition, you can set the environment variable TORCH_DISTRIBUTED_DEBUG to either INFO or DETAIL"""
CUDA = """CUDA error: device-side assert triggered
CUDA kernel errors might be asynchronously reported at some other API call, so the stacktrace might be incorrect.
For debugging consider passing CUDA_LAUNCH_BLOCKING=1
Compile with `TORCH_USE_CUDA_DSA` to enable device-side assertions."""
NCCL = """NCCL error in: /pytorch/NCCLUtils.cpp:94, invalid usage, NCCL version 2.26.2
ncclInvalidUsage: This usually reflects invalid usage of NCCL library.
Last error:
Duplicate GPU detected : rank 1 and rank 0 both on CUDA device 1000
Exception raised from throw_nccl_error at /pytorch/NCCLUtils.cpp:94 (most recent call first):
frame #0: c10::Error::Error(...) + 0x96"""


@pytest.mark.parametrize(
    ("message", "begins", "ends"),
    [
        (DDP, "Expected to have finished reduction", "did not receive grad for rank 3: 2 3"),
        (CUDA, "CUDA error: device-side assert", "device-side assert triggered"),
        (NCCL, "NCCL error in", "Duplicate GPU detected : rank 1 and rank 0 both on CUDA device 1000"),
        ("x" * 200 + "y" * 200, "xxx", "yyy"),
        ("unhandled errors in a TaskGroup (1 sub-exception)\nKeyError: 'x'", "KeyError", "'x'"),
        ("one: one: two", "one: two", "two"),
        ("", "", ""),
    ],
)
def test_a_message_keeps_what_is_particular(message, begins, ends):
    said = quote_message(message)
    assert said.startswith(begins)
    assert said.removesuffix(" ...").endswith(ends)
    assert len(said) <= failures.MAX_LINE

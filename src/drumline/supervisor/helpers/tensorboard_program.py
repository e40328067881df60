"""
TensorBoard, run by whichever Python has it; this text is given to that Python, which need not know of anything here.

What it is told comes as a line of JSON on standard input, not as arguments, which everybody on the machine can read.
It prints its address, or "error:" and why it has none, and ends when that input does.
"""

import json
import os
import sys


def main() -> None:
    # Plug-ins may print, and the answer alone is expected there.
    answer = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)

    from tensorboard import program

    told = json.loads(sys.stdin.readline())
    board = program.TensorBoard()
    board.configure(
        argv=[
            "tensorboard",
            *("--logdir", told["folder"]),
            *("--host", "127.0.0.1"),
            *("--port", str(told["port"])),
            *("--path_prefix", "/" + told["secret"]),
            # Without its data server, which is one more process.
            *("--load_fast", "false"),
        ]
    )
    try:
        print(board.launch(), file=answer, flush=True)
    except program.TensorBoardServerException as error:
        print("error:", " ".join(str(error).split()), file=answer, flush=True)
        sys.exit(1)
    sys.stdin.read()
    os._exit(0)


if __name__ == "__main__":
    main()

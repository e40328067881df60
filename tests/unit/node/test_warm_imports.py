"""What is found at the top of a program, and what ends the reading."""

import os
import subprocess
import sys

import pytest

from drumline.node.warm import imports
from drumline.node.warm.shell_command import NotWarm, Program


def put(folder, files):
    for name, text in files.items():
        path = os.path.join(folder, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "wb") as file:
            file.write(text if isinstance(text, bytes) else text.encode())


def of(folder, files, *target, flags=(), **env):
    put(str(folder), files)
    return imports.find_imports(Program("python", flags, target or ("train.py",), (), env, str(folder)))


def shown(found):
    """What is imported, and ``NAME=value`` where the program sets a variable."""
    return [
        "=".join(names) if not module else f"{module}:{','.join(names)}" if names else module
        for module, names, _ in found.imports
    ]


def test_a_usual_program(tmp_path):
    found = of(
        tmp_path,
        {
            "train.py": '''\
#!/usr/bin/env python
"""Trains."""
from __future__ import annotations

import argparse, os.path as p
from pathlib import Path
from typing import TYPE_CHECKING

os.environ["TOKENIZERS_PARALLELISM"] = "false"
os.environ.setdefault("OMP_NUM_THREADS", "1")
import torch
from torch import nn, optim as o
import torch.nn.functional as F
from numpy import *

if TYPE_CHECKING:
    import expensive
else:
    cheap = 1

try:
    import ujson
except ImportError:
    import json as ujson

from model import Net
import layers.dense
from layers import sparse, SIZE

HERE = Path(__file__).resolve().parent / "data"
LR: float = float(os.environ.get("LR", "0.1")) * 2 ** -1
NAMES = [f"{name!r:>{4}}" for name in ("a", "b") if name != os.environ["USER"]]
log = logging.getLogger(__name__)
T = TypeVar("T", bound="Net")
table = {"a": 1, **{}}
table["b"], (c, *d) = lambda x=3: import_me(x), (1, 2)
c += 1
if "X" in os.environ and sys.version_info >= (3, 9):
    c = 2
assert c, "c"

@torch.no_grad()
@record
def evaluate(x: nn.Module = None, *args: int, y=[1], **more) -> dict[str, int]:
    import late

@dataclass(frozen=True)
class Settings(Base, metaclass=M):
    """Said."""
    lr: float = field(default=0.1)
    def step(self): import later

async def other(): pass

if "__main__" == __name__:
    import wandb
    main()
    import never
''',
            "model.py": "import torchvision\nfrom layers.dense import D\nif __name__ == '__main__':\n    import no\n",
            "layers/__init__.py": "SIZE = 1\nfrom . import base\nfrom .base import thing\nimport einops\n",
            "layers/base.py": "import layers, scipy\n",
            "layers/dense.py": "from .inner.deep import x\nfrom . import base as b\n",
            "layers/inner/__init__.py": "",
            "layers/inner/deep.py": "from ..base import q\nimport pandas\n",
            "layers/sparse.py": "import sparse_lib\n",
        },
        OMP_NUM_THREADS="4",
    )
    assert shown(found) == [
        *("argparse", "os.path", "pathlib:Path", "typing:TYPE_CHECKING", "TOKENIZERS_PARALLELISM=false"),
        *("torch", "torch:nn,optim", "torch.nn.functional", "numpy", "ujson"),
        *("torchvision", "scipy", "einops", "pandas", "sparse_lib", "wandb"),
    ]
    assert found.until == "train.py:57: main()"
    assert found.folder == os.path.realpath(tmp_path)
    where = {each.module: each.where for each in found.imports}
    assert where["numpy"] == "train.py:14"
    assert where["pandas"] == "layers/inner/deep.py:2"


@pytest.mark.parametrize(
    "line",
    [
        "main()",
        "torch.manual_seed(0)",
        "sys.path.insert(0, 'x')",
        "sys.path += ['x']",
        "path = sys.path",
        "sys.modules['x'] = None",
        "os.environ.update(A='1')",
        "os.environ['A'] = str(1)",
        "os.environ['A'] = B = '1'",
        "os.environ[name] = '1'",
        "os.environ['A=B'] = '1'",
        "os.environ['A'] = '\\0'",
        "os.environ['A'] = '\\ud800'",
        "os.environ['A'] += '1'",
        "os.environ.setdefault('A', value='1')",
        "del os.environ['A']",
        "os.putenv('A', '1')",
        "environ = os.environ",
        "environ['A'] = '1'",
        "f(os.environ)",
        "exec('import x')",
        "x = __import__('y')",
        "x = [main() for _ in y]",
        "x = f'{main()}'",
        "x = (y := 1)",
        "__path__ = []",
        "torch.backends.cudnn.benchmark = True",
        "a.b['c'] = 1",
        "for x in y: pass",
        "while x: pass",
        "with open('x') as x: pass",
        "raise SystemExit",
        "if x:\n    import y",
        "if main(): pass",
        "if x: pass\nelif main(): pass",
        "def f(x=main()): pass",
        "def f(x: main()): pass",
        "class A(main()): pass",
        "class A:\n    import x",
        "class A:\n    main()",
        "@deco(main())\ndef f(): pass",
        "x: main() = 1",
        "assert main()",
        "from . import x",
        "from .x import y",
        "lambda x=main(): 1",
        "try:\n    pass\nfinally:\n    main()",
        "jobs = await_me()",
    ],
)
def test_what_ends_the_reading(tmp_path, line):
    found = of(tmp_path, {"train.py": f"import a\n{line}\nimport b\n"})
    assert shown(found) == ["a"]
    assert found.until.startswith("train.py:")
    assert found.until.partition(": ")[2] in line


@pytest.mark.parametrize("module", sorted(imports.LEFT_OUT))
def test_what_is_never_imported_ahead(tmp_path, module):
    for line in (f"import {module}.x as y", f"from {module} import z"):
        found = of(
            tmp_path, {"train.py": f"import a\ntry:\n    {line}\nexcept ImportError: pass\nimport b\n"}
        )
        assert shown(found) == ["a"]
        assert found.until == f"train.py:3: {module} is not imported ahead"


def test_variables(tmp_path):
    text = """\
import os
os.environ.setdefault("GIVEN", "1")
os.environ["REPLACED"] = "2"
os.environ["TWICE"] = "3"
os.environ["TWICE"] = "3"
import a
os.environ.setdefault("TWICE", "4")
os.environ["LATE"] = ""
os.environ["TWICE"] = "5"
import b
"""
    found = of(tmp_path, {"train.py": text}, GIVEN="0", REPLACED="1")
    assert shown(found) == ["os", "REPLACED=2", "TWICE=3", "a"]
    assert found.until == 'train.py:9: os.environ["TWICE"] = "5"'


def test_a_module_of_ones_own_ends_the_reading(tmp_path):
    found = of(
        tmp_path, {"train.py": "import pkg.b\nimport c\n", "pkg/__init__.py": "import a\nsetup(  1)\n"}
    )
    assert (shown(found), found.until) == (["a"], "pkg/__init__.py:2: setup(  1)")


def test_folders_without_an_init(tmp_path):
    """What has no file of that name may be an installed package beside a folder of data."""
    files = {
        "train.py": "from datasets import load\nimport own.part\nfrom own import other\n",
        "datasets/x.txt": "",
    }
    found = of(tmp_path, {**files, "own/part.py": "import a", "own/other.py": "import b"})
    assert shown(found) == ["datasets:load", "a", "b"]


def test_a_script_elsewhere_and_behind_a_link(tmp_path):
    files = {"src/train.py": "import near\nimport far\n", "src/near.py": "import a", "far.py": "import b"}
    found = of(tmp_path, files, "src/train.py")
    assert (shown(found), found.folder) == (["a", "far"], os.path.realpath(tmp_path / "src"))
    os.symlink("src/train.py", tmp_path / "link.py")
    linked = of(tmp_path, {}, "link.py")
    assert (shown(linked), linked.folder) == (shown(found), found.folder)


def test_folders_of_the_path(tmp_path):
    files = {"src/train.py": "import lib\nimport far\n", "python/lib.py": "import a"}
    assert shown(of(tmp_path, files, "src/train.py", PYTHONPATH="/elsewhere:python")) == ["a", "far"]
    assert shown(of(tmp_path, files, "src/train.py", PYTHONPATH="/elsewhere")) == ["lib", "far"]


@pytest.mark.parametrize(("flags", "env"), [(("-uP",), {}), (("-P",), {}), ((), {"PYTHONSAFEPATH": "1"})])
def test_no_first_folder(tmp_path, flags, env):
    found = of(tmp_path, {"train.py": "import near", "near.py": ""}, flags=flags, **env)
    assert (shown(found), found.folder) == (["near"], "")


def test_options_with_a_p(tmp_path):
    assert of(tmp_path, {"train.py": ""}, flags=("-WPendingDeprecationWarning", "-X", "P")).folder


MODULES = {
    "pkg/__init__.py": "import a",
    "pkg/train.py": "from . import other\nfrom pkg.other import x\nimport top\n",
    "pkg/other.py": "import b\nx = 1",
    "pkg/sub/__init__.py": "import c",
    "pkg/sub/__main__.py": "from ..other import x\nfrom . import near\nif __name__ == '__main__':\n    import d\n",
    "pkg/sub/near.py": "import e",
    "top.py": "import f",
}


@pytest.mark.parametrize(
    ("module", "wanted"), [("pkg.train", "abf"), ("pkg.sub", "acbed"), ("top", "f"), ("pkg.other", "ab")]
)
def test_a_module(tmp_path, module, wanted):
    found = of(tmp_path, MODULES, "-m", module)
    assert (shown(found), found.until, found.folder) == (list(wanted), "", os.path.realpath(tmp_path))


@pytest.mark.parametrize(
    ("module", "wanted"),
    [
        ("torch.distributed.run", ["torch.distributed"]),
        ("pytest", []),
        ("ray.x", []),
        ("pkg.none", ["pkg"]),
    ],
)
def test_a_module_that_is_not_there(tmp_path, module, wanted):
    found = of(tmp_path, {}, "-m", module)
    left_out = f"-m {module}: ray is not imported ahead"
    assert shown(found) == wanted
    assert found.until in (left_out, f"-m {module}: it is not one of the program's own modules")


@pytest.mark.parametrize(
    "text",
    [
        b"import a\nx = = 1\n",
        b"import a\n\xff\n",
        b"import a\n# \x00\n",
        b"# coding: nonsense\n",
        b"print 'two'\n",
        b"\x80\x05K\x01.",
        b"(" * 5000,
        b"#" * ((2 << 20) + 1),
    ],
)
def test_what_cannot_be_read(tmp_path, text):
    with pytest.raises(NotWarm, match=r"train\.py"):
        of(tmp_path, {"train.py": text})
    with pytest.raises(NotWarm, match=r"model\.py"):
        of(tmp_path, {"train.py": "import model", "model.py": text})


def test_a_program_that_is_not_there(tmp_path):
    with pytest.raises(NotWarm, match=r"none\.py"):
        of(tmp_path, {}, "none.py")
    with pytest.raises(NotWarm, match="__main__"):
        of(tmp_path, {"pkg/__init__.py": ""}, "-m", "pkg")


def test_what_is_nested_very_deeply(tmp_path):
    found = of(tmp_path, {"train.py": "import a\nx = " + "+".join("1" * 900) + "\nimport b\n"})
    assert shown(found)[0] == "a"
    chain = {f"m{count}.py": f"import m{count + 1}\n" for count in range(400)}
    found = of(tmp_path, {**chain, "train.py": "import a, m0, b"})
    assert (shown(found), found.until) == (["a"], "m50.py: the program has very many files")
    wide = {f"w{count}.py": "" for count in range(400)}
    found = of(
        tmp_path, {**wide, "train.py": "import a\n" + "".join(f"import {name[:-3]}\n" for name in wide)}
    )
    assert (shown(found), found.until) == (["a"], "w199.py: the program has very many files")


def test_what_is_very_large(tmp_path):
    large = "#" * (3 << 19)
    found = of(tmp_path, {"train.py": "import a, x, y, b", "x.py": large, "y.py": large})
    assert (shown(found), found.until) == (["a"], "y.py: the program is very large")


def test_circles_links_and_what_is_no_file(tmp_path):
    put(
        str(tmp_path),
        {"train.py": "import x, y, z, train\nimport a\n", "x.py": "import y", "y.py": "import x"},
    )
    os.symlink("z.py", tmp_path / "z.py")
    os.mkfifo(tmp_path / "a.py")
    found = of(tmp_path, {})
    assert (shown(found), found.until) == (["z", "a"], "")


def test_an_encoding_and_its_mark(tmp_path):
    assert shown(of(tmp_path, {"train.py": "# coding: latin-1\nx = 'é'\nimport a".encode("latin-1")})) == [
        "a"
    ]
    assert shown(of(tmp_path, {"train.py": "\ufeffimport a"})) == ["a"]
    found = of(tmp_path, {"train.py": "import a; main('" + "é" * 100 + "')"})
    assert len(found.until) == len("train.py:1: ") + 60


def test_warnings_of_the_parser_are_not_shown(tmp_path, recwarn):
    of(tmp_path, {"train.py": "x = '\\d'\n1 is 1\n"})
    assert not recwarn.list


def test_the_order_is_the_interpreters(tmp_path):
    """What a real interpreter comes to, of modules that are stand-ins for installed ones."""
    names = "abcdef"
    put(str(tmp_path), {f"site/{name}.py": f"print({name!r}, end='')" for name in names})
    put(str(tmp_path / "code"), MODULES)
    env = {"PYTHONPATH": str(tmp_path / "site"), "PYTHONDONTWRITEBYTECODE": "1"}
    ran = subprocess.run(
        (sys.executable, "-m", "pkg.sub"), env=env, cwd=tmp_path / "code", stdout=subprocess.PIPE, check=False
    )
    assert "".join(shown(of(tmp_path / "code", {}, "-m", "pkg.sub", **env))) == ran.stdout.decode()

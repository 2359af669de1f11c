"""`dreamlake.lakeshore` is `lakeshore`: the same objects, at run time and to a type checker.

Each case runs in an interpreter of its own, because the order of first imports is what is tested.
"""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
BOTH_ORDERS = pytest.mark.parametrize(
    ("first", "second"),
    [("lakeshore", "dreamlake.lakeshore"), ("dreamlake.lakeshore", "lakeshore")],
    ids=["real-first", "alias-first"],
)

# A module that exists only here: it counts how often its body runs.
COUNTED = "import builtins\nbuiltins.runs = getattr(builtins, 'runs', 0) + 1\nclass Thing: ...\n"


def python(*args: str, path: Path | None = None) -> str:
    """Run Python on the checkout, and on `path` if given; return what it printed."""
    roots = [str(ROOT), *([str(path)] if path else [])]
    code = f"import sys; sys.path[:0] = {roots!r}\n"
    command = ["-c", code + args[0]] if len(args) == 1 else list(args)
    done = subprocess.run(
        [sys.executable, "-W", "error", *command], capture_output=True, text=True, cwd=ROOT, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@BOTH_ORDERS
def test_the_package_is_one_object(first: str, second: str) -> None:
    python(f"""
import {first} as a
import {second} as b
import dreamlake
from dreamlake import lakeshore as c
assert a is b is c is dreamlake.lakeshore
assert sys.modules["lakeshore"] is sys.modules["dreamlake.lakeshore"] is a
assert a.__name__ == a.__spec__.name == a.__package__ == "lakeshore"
""")


@BOTH_ORDERS
def test_every_module_of_the_core_is_one_object(first: str, second: str) -> None:
    python(f"""
import importlib, pkgutil
import lakeshore.core
names = ["core", *(f"core.{{found.name}}" for found in pkgutil.iter_modules(lakeshore.core.__path__))]
assert "core.rows" in names
for name in names:
    a = importlib.import_module(f"{first}.{{name}}")
    b = importlib.import_module(f"{second}.{{name}}")
    assert a is b, name
    assert a.__name__ == a.__spec__.name == f"lakeshore.{{name}}", (name, a.__spec__)
    assert a.__loader__ is a.__spec__.loader
    assert a.__spec__.origin == a.__file__
""")


@BOTH_ORDERS
def test_from_imports_give_the_same_classes(first: str, second: str) -> None:
    python(f"""
from {first}.core.rows import Call as a
from {second}.core.rows import Call as b
from {first}.core import errors as c
from {second}.core import errors as d
from {first} import core as e
from {second} import core as f
import {first}.core.errors, {second}.core.errors
assert a is b and c is d and e is f
assert c is {first}.core.errors is {second}.core.errors
assert a.__module__ == "lakeshore.core.rows"
""")


@BOTH_ORDERS
def test_a_body_runs_once(first: str, second: str, tmp_path: Path) -> None:
    (tmp_path / "counted.py").write_text(COUNTED)
    python(f"""
import builtins, importlib
import {first} as package
package.__path__.append({str(tmp_path)!r})
import {first}.counted as a
spec = a.__spec__
import {second}.counted as b
assert a is b and builtins.runs == 1
assert a.__spec__ is spec and spec.name == "lakeshore.counted"
assert importlib.reload(b) is a and builtins.runs == 2
assert sys.modules["lakeshore.counted"] is sys.modules["dreamlake.lakeshore.counted"] is a
""")


def test_pickles_load_by_either_name() -> None:
    python("""
import pickle
by_alias = pickle.loads(b"cdreamlake.lakeshore.core.errors\\nNotFound\\n.")  # nothing is imported yet
by_name = pickle.loads(b"clakeshore.core.errors\\nNotFound\\n.")
assert by_alias is by_name
from dreamlake.lakeshore.core.errors import NotFound
assert NotFound is by_name
data = pickle.dumps(NotFound("no job"))
assert b"dreamlake" not in data
assert type(pickle.loads(data)) is NotFound
""")


def test_what_is_missing_is_missing_under_both_names() -> None:
    python("""
import importlib.util
import dreamlake.lakeshore
for name in "dreamlake.lakeshore.nothing", "dreamlake.lakeshore.core.nothing":
    assert importlib.util.find_spec(name) is None
    try:
        importlib.import_module(name)
    except ModuleNotFoundError as error:
        assert error.name == name
    else:
        raise AssertionError(name)
assert importlib.util.find_spec("dreamlake.lakeshore.core.rows") is not None
assert "lakeshore.core.rows" not in sys.modules  # to ask is not to import
""")


def test_a_body_that_fails_can_be_tried_again(tmp_path: Path) -> None:
    (tmp_path / "moody.py").write_text("import builtins\nif builtins.mood: raise ValueError('not now')\n")
    python(f"""
import builtins
import dreamlake.lakeshore as dls
dls.__path__.append({str(tmp_path)!r})
builtins.mood = True
try:
    import dreamlake.lakeshore.moody
except ValueError as error:
    assert str(error) == "not now"
else:
    raise AssertionError
assert not [name for name in sys.modules if "moody" in name]
builtins.mood = False
import dreamlake.lakeshore.moody, lakeshore.moody
assert dreamlake.lakeshore.moody is lakeshore.moody
""")


def test_dreamlake_stays_open_to_others(tmp_path: Path) -> None:
    (tmp_path / "dreamlake").mkdir()
    (tmp_path / "dreamlake" / "elsewhere.py").write_text("here = True\n")
    python(
        """
import dreamlake.lakeshore, dreamlake.elsewhere
assert dreamlake.elsewhere.here
assert getattr(dreamlake, "__file__", None) is None
""",
        path=tmp_path,
    )


def test_python_m_takes_either_name() -> None:
    python("-m", "lakeshore.core.errors")
    python("-m", "dreamlake.lakeshore.core.errors")


def test_threads_see_one_module(tmp_path: Path) -> None:
    names = [f"counted{n}" for n in range(40)]
    for name in names:
        (tmp_path / f"{name}.py").write_text(COUNTED.replace("runs", f"runs_{name}"))
    python(f"""
import builtins, importlib, threading
sys.setswitchinterval(1e-6)
import lakeshore
lakeshore.__path__.append({str(tmp_path)!r})
names, failures, seen = {names!r}, [], set()
barrier = threading.Barrier(8)

def work(package):
    try:
        for name in names:
            barrier.wait()
            space = {{}}
            exec(f"from {{package}}.{{name}} import Thing", space)
            exec(f"from {{package}} import {{name}} as module", space)
            exec(f"import {{package}}.{{name}} as again", space)
            assert space["module"] is space["again"]
            assert space["module"].__spec__.name == f"lakeshore.{{name}}"
            seen.add((name, id(space["module"]), id(space["Thing"])))
    except BaseException as error:
        failures.append(error)
        barrier.abort()

packages = ["lakeshore", "dreamlake.lakeshore", "dreamlake.lakeshore"] * 3
threads = [threading.Thread(target=work, args=[package]) for package in packages[:8]]
for thread in threads: thread.start()
for thread in threads: thread.join()
assert not failures, failures
assert len(seen) == len(names)
assert all(getattr(builtins, f"runs_{{name}}") == 1 for name in names)
""")


def test_a_thread_that_arrives_while_the_package_loads_gets_it_whole(tmp_path: Path) -> None:
    """The first import is held inside the package's own body until a second thread waits for it."""
    package = tmp_path / "lakeshore"
    shutil.copytree(ROOT / "dreamlake", tmp_path / "dreamlake")
    package.mkdir()
    shutil.copy(ROOT / "lakeshore" / "_alias.py", package)
    (package / "__init__.py").write_text("""
import sys, threading
from _frozen_importlib import _get_module_lock
value = 42

def late():
    sys.late = __import__("dreamlake.lakeshore", fromlist=["value"])
    from dreamlake.lakeshore import value as imported
    assert sys.late.value == imported == 42

sys.thread = threading.Thread(target=late)
sys.thread.start()
lock = _get_module_lock("dreamlake.lakeshore")
for _ in range(10_000_000):  # bounded, in case a later Python counts waiters otherwise
    if lock.waiters:
        break
""")
    python(f"""
sys.path.insert(0, {str(tmp_path)!r})
import dreamlake.lakeshore as dls
sys.thread.join()
assert dls.value == sys.late.value == 42
assert sys.modules["dreamlake.lakeshore"] is dls is sys.modules["lakeshore"]
""")


def test_a_thread_that_arrives_while_a_module_loads_gets_it_whole() -> None:
    """The loader is held at the one moment when its stand-in can be seen until a second thread waits."""
    python("""
import threading
from _frozen_importlib import _get_module_lock
import dreamlake.lakeshore.core
from lakeshore._alias import _Loader

seen, finish = [], _Loader.exec_module

def late():
    seen.append(__import__("dreamlake.lakeshore.core.rows", fromlist=["Call"]))
    from dreamlake.lakeshore.core.rows import Call
    seen.append(Call)

def hold(self, module):
    thread.start()
    lock = _get_module_lock(module.__name__)
    for _ in range(10_000_000):  # bounded, in case a later Python counts waiters otherwise
        if lock.waiters:
            break
    finish(self, module)

thread, _Loader.exec_module = threading.Thread(target=late), hold
import dreamlake.lakeshore.core.rows as rows
thread.join()
assert seen[0].Call is seen[1] is rows.Call
""")


def test_a_type_checker_sees_the_same_types(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "dreamlake", tmp_path / "dreamlake", ignore=shutil.ignore_patterns("__pycache__"))
    for name in "lakeshore", "lakeshore/testing":
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text(
            "__all__ = ['Thing', 'make']\nclass Thing: ...\ndef make() -> Thing: return Thing()\n"
        )
    (tmp_path / "use.py").write_text("""
import dreamlake.lakeshore as a
import dreamlake.lakeshore.testing as c
import lakeshore as b
import lakeshore.testing as d
from dreamlake.lakeshore import Thing

def same(x: a.Thing, y: type[c.Thing]) -> tuple[b.Thing, type[d.Thing]]:
    return x, y

kept: Thing = b.make()
wrong: int = a.make()
""")
    (tmp_path / "pyrightconfig.json").write_text('{"include": ["use.py", "**/*.pyi"], "strict": ["."]}')
    done = subprocess.run(
        [sys.executable, "-m", "pyright", "--outputjson"],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        check=False,
    )
    found = json.loads(done.stdout)["generalDiagnostics"]
    assert [(item["rule"], item["message"].splitlines()[0]) for item in found] == [
        ("reportAssignmentType", 'Type "Thing" is not assignable to declared type "int"')
    ]


def test_dreamlake_is_a_namespace_on_disk() -> None:
    assert not (ROOT / "dreamlake" / "__init__.py").exists()
    assert (ROOT / "dreamlake" / "lakeshore" / "py.typed").exists()
    assert (ROOT / "lakeshore" / "py.typed").exists()

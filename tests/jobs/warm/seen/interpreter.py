"""What Python says of itself."""

from __future__ import annotations

import builtins
import gc
import inspect
import os
import site
import sys
import sysconfig
import threading
import time
import types
import warnings

MAIN = sys.modules["__main__"]
PLAIN = (str, int, float, bool, type(None))

STATES = (
    "getswitchinterval", "getrecursionlimit", "gettrace", "getprofile", "getfilesystemencoding", "getdefaultencoding",
    "getfilesystemencodeerrors", "getdlopenflags", "get_coroutine_origin_tracking_depth", "get_asyncgen_hooks",
    "get_int_max_str_digits", "is_finalizing", "exc_info", "is_stack_trampoline_active", "_is_gil_enabled",
)  # fmt: skip


def plain(value):
    """As JSON has it; of anything else its type, or its name where it has one."""
    if isinstance(value, PLAIN):
        return value
    if isinstance(value, (list, tuple, set, frozenset)):
        many = [plain(each) for each in value]
        return sorted(many, key=str) if isinstance(value, (set, frozenset)) else many
    if isinstance(value, dict):
        return {str(key): plain(each) for key, each in value.items()}
    return called(value)


def called(value) -> str:
    name = getattr(value, "__qualname__", "") or getattr(value, "__name__", "")
    kind = type(value)
    own = f"{kind.__module__}.{kind.__qualname__}"
    return "{} {}.{}".format(own, getattr(value, "__module__", ""), name) if name else own


def of_sys():
    """All that has a plain value, and of the rest the type."""
    left_out = ("modules", "path_importer_cache", "flags", "implementation", "stdlib_module_names")
    return {name: plain(value) for name, value in sorted(vars(sys).items()) if name not in left_out}


def of_sys_names():
    return list(vars(sys))


def of_flags():
    return repr(sys.flags)


def of_implementation():
    return {name: plain(value) for name, value in vars(sys.implementation).items()}


def of_states():
    return {name: plain(getattr(sys, name)()) for name in STATES if hasattr(sys, name)}


def of_stream():
    found = {}
    for name in ("stdin", "stdout", "stderr"):
        stream = getattr(sys, name)
        buffer, raw = stream.buffer, getattr(stream.buffer, "raw", stream.buffer)
        for key in (
            "name",
            "mode",
            "encoding",
            "errors",
            "line_buffering",
            "write_through",
            "newlines",
            "closed",
        ):
            found[f"{name}.{key}"] = getattr(stream, key)
        for key in ("fileno", "isatty", "seekable", "readable", "writable"):
            found[f"{name}.{key}"] = getattr(stream, key)()
        found[name + ".types"] = [called(stream), called(buffer), called(raw)]
        found[name + ".raw"] = [raw.name, raw.mode, raw.closefd, raw._blksize]
        found[name + ".is the first"] = stream is getattr(sys, f"__{name}__")
    return found


def of_main():
    loader, spec = MAIN.__loader__, MAIN.__spec__
    return {
        "names": list(vars(MAIN)),
        "name": MAIN.__name__,
        "file": MAIN.__file__,
        "doc": MAIN.__doc__,
        "package": MAIN.__package__,
        "cached": getattr(MAIN, "__cached__", "none"),
        "annotations": str(getattr(MAIN, "__annotations__", None)),
        "builtins": called(MAIN.__builtins__),
        "loader": [called(loader), getattr(loader, "name", ""), getattr(loader, "path", "")],
        "spec": spec
        and [spec.name, spec.origin, spec.cached, spec.parent, spec.has_location, called(spec.loader)],
        "type": called(MAIN),
        "code": MAIN.main.__code__.co_filename,
        "known as": sorted(name for name, module in sys.modules.items() if module is MAIN),
    }


def of_frames():
    frames = []
    frame = inspect.currentframe()
    while frame is not None:
        frames.append([frame.f_code.co_filename, frame.f_code.co_name])
        frame = frame.f_back
    return frames


def of_threads():
    main = threading.main_thread()
    return {
        "main": [main.name, main.daemon, main.is_alive(), type(main).__name__],
        "ident": main.ident == threading.get_ident(),
        "native": main.native_id == threading.get_native_id() == os.getpid(),
        "current": threading.current_thread() is main,
        "all": [thread.name for thread in threading.enumerate()],
        "count": threading.active_count(),
        "frames": len(sys._current_frames()),
        "hook": called(threading.excepthook),
        "traced": [plain(threading._trace_hook), plain(threading._profile_hook)],
        "stack": threading.stack_size(),
    }


def of_modules():
    """A warm start may have more."""
    return sorted(sys.modules)


def of_importer_cache():
    return sorted(sys.path_importer_cache)


def of_module_files():
    names = ("sitecustomize", "usercustomize", "os", "json", "encodings", "beside", "seen", "numpy")
    return {name: getattr(sys.modules.get(name), "__file__", None) for name in names}


def of_builtins():
    return {
        name: called(value) for name, value in sorted(vars(builtins).items()) if not name.startswith("__")
    }


def of_builtins_names():
    return list(vars(builtins))


def of_unpatched():
    """Functions that something might have put its own in the place of."""
    ways = (
        os.fork,
        os._exit,
        os.execve,
        os.open,
        time.sleep,
        time.time,
        threading.Thread.start,
        threading.Thread.run,
    )
    return [called(way) for way in (*ways, builtins.open, builtins.print, builtins.__import__, sys.exit)]


def of_warnings():
    return {
        "filters": [[str(part) for part in line] for line in warnings.filters],
        "default": warnings.defaultaction,
        "once": len(warnings.onceregistry),
        "show": called(warnings.showwarning),
        "registry": sorted(str(key) for key in getattr(MAIN, "__warningregistry__", {})),
    }


def of_gc():
    state = [gc.get_threshold(), gc.isenabled(), gc.get_debug(), len(gc.callbacks), gc.garbage]
    return {"state": state, "frozen": gc.get_freeze_count()}


def of_site():
    names = ("ENABLE_USER_SITE", "USER_BASE", "USER_SITE", "PREFIXES")
    return {name: plain(getattr(site, name)) for name in names}


def of_sysconfig():
    return [sysconfig.get_paths(), sysconfig.get_platform(), sysconfig.get_config_var("EXT_SUFFIX")]


def of_monitoring():
    tools = getattr(sys, "monitoring", None)
    return tools and [tools.get_tool(number) for number in range(6)]


def of_time():
    return {"names": time.tzname, "zone": [time.timezone, time.daylight], "early": time.process_time() < 20}


def of_types():
    return [isinstance(MAIN, types.ModuleType), inspect.getsource(MAIN.main)[:20]]

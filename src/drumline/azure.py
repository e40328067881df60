"""
Answers the imports of Azure's SDKs, so that a script that is written for them runs unchanged: ``azure.ai.ml`` and
``azure.identity`` (v2), ``azure.ml.component`` (v1.5), ``azureml`` (v1).

``DRUMLINE_AZURE=1`` switches it on for a Python and all that it starts: a line of ``drumline_azure.pth``, which stands
beside this package, looks for it. ``drumline python`` and ``drumline notebook`` set it; in a notebook that runs,
``%load_ext drumline.azure`` does the same. In the ranks of jobs ``azureml`` alone is answered, where it is not
installed (``node/hook/sitecustomize.py``).

``azure`` and ``azureml`` stay namespace packages. ``azure.ai.ml`` is ours, installed or not, and so are the modules of
``azureml`` below ``_OURS_OF_V1``. Other installed packages keep their modules: ``azure.identity`` gets credentials that
ask nobody, and Drumline's errors become those that the installed ``azure.core.exceptions`` defines, so that ``except``
finds them.
"""

from __future__ import annotations

import os
import sys
from importlib import import_module
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType

from drumline.contract.errors import DrumlineError, UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from importlib.abc import Loader
    from typing import Any

_ANSWERS = {
    "azure.ai.ml": ("drumline",),
    "azure.ai.ml.automl": (),
    "azure.ai.ml.constants": ("drumline.constants",),
    "azure.ai.ml.data_transfer": (),
    "azure.ai.ml.dsl": ("drumline.dsl",),
    "azure.ai.ml.entities": ("drumline.entities", "drumline"),
    "azure.ai.ml.exceptions": ("drumline.exceptions",),
    "azure.ai.ml.finetuning": (),
    "azure.ai.ml.identity": ("drumline.identity",),
    "azure.ai.ml.model_customization": (),
    "azure.ai.ml.operations": (),
    "azure.ai.ml.parallel": ("drumline.parallel",),
    "azure.ai.ml.sweep": ("drumline.sweep",),
    "azure.core.credentials": ("drumline.identity",),
    "azure.core.exceptions": ("drumline.exceptions",),
    "azure.identity": ("drumline.identity",),
    "azure.ml.component": ("drumline.component",),
    "azure.ml.component.dsl": ("drumline.component",),
    "azure.ml.component.environment": ("drumline.component",),
}
"""The modules that have the names of each; private modules of constants and entities have theirs too."""

_NAMESPACES = ("azure", "azure.ai", "azure.core", "azure.ml", "azureml")
_OURS_OF_V1 = ("core", "data", "exceptions", "pipeline", "telemetry", "train", "widgets")
_SERVICES_OF_V1 = ("_restclient", "automl", "contrib", "explain", "interpret", "opendatasets", "tensorboard")
"""Packages of v1 that need Azure: their names are refused when they are used, where they are not installed."""
_FUNCTIONS = """
classification copy_data create_finetuning_job distillation export_data forecasting image_classification
image_classification_multilabel image_instance_segmentation image_object_detection import_data load_batch_deployment
load_batch_endpoint load_capability_host load_connection load_deployment_template load_feature_set load_feature_store
load_feature_store_entity load_index load_marketplace_subscription load_model_package load_online_deployment
load_online_endpoint load_registry load_serverless_endpoint load_workspace_connection regression spark
text_classification text_classification_multilabel text_ner
"""
"""Functions of azure-ai-ml that Drumline lacks; its classes and constants are known by their capitals."""

_SUBJECTS = (
    (("keyvault", "getsecret"), "Drumline has no key vault; a job gets secrets as environment variables"),
    (
        ("pipelineendpoint", "publishedpipeline", "pipelinedraft"),
        "Drumline publishes no pipelines; submit one with Experiment(ws, name).submit(pipeline)",
    ),
    (
        (
            "network",
            "isolation",
            "outbound",
            "privateendpoint",
            "encryption",
            "customermanagedkey",
            "synckeys",
            "getkeys",
        ),
        "Drumline makes no networks, keys or accounts; a workspace is a folder of this machine",
    ),
    (
        ("endpoint", "deployment", "inferenc", "probe", "scalesettings", "webservice"),
        "Drumline trains; it has no endpoints",
    ),
    (
        ("schedule", "trigger", "recurrence", "timezone"),
        "Drumline runs nothing by the clock; let cron call `drumline job create`",
    ),
    (
        ("monitor", "drift", "signal", "quality", "threshold"),
        "Drumline does not monitor models that are deployed",
    ),
    (("registry", "registries"), "Drumline has no registries; its assets are those of a workspace"),
    (("automl", "featuriz"), "Drumline has no AutoML; a sweep searches parameters"),
    (("feature",), "Drumline has no feature stores"),
    (("spark", "synapse"), "Drumline has no Spark"),
    (
        (
            "connection",
            "hub",
            "project",
            "index",
            "openai",
            "usernamepassword",
            "accesskey",
            "pattoken",
            "apikey",
        ),
        "Drumline has no hubs, connections or indexes",
    ),
    (
        ("import", "export", "copydata", "datatransfer", "database", "filesystem"),
        "Drumline moves no data between databases",
    ),
    (
        ("finetuning", "distillation", "customization"),
        "Drumline has no fine-tuning service; run your own script as a command",
    ),
    (
        ("computeinstance", "virtualmachine", "beginstart", "beginstop", "beginrestart", "enablesso"),
        "Drumline starts and stops no machines; it uses those that you have: drumline compute attach --help",
    ),
    (
        ("-adla", "-aks-", "batchcompute", "databrick", "datafactory", "hdinsight", "kusto", "remotecompute"),
        "Drumline has no services of Azure's as computes; run the program as a step",
    ),
    (
        ("parallelrun",),
        "Drumline reads no parallel steps of v1; use a parallel job of today: azure.ai.ml.parallel",
    ),
    (
        ("module", "portdef", "notebook", "trainingoutput"),
        "Drumline has no such steps; use a PythonScriptStep",
    ),
    (
        ("tabular", "parsedelimited", "parseparquet"),
        "Drumline has no tables; a script reads the files itself",
    ),
    (("opendataset",), "Drumline has no open datasets; download the files, and make a dataset of them"),
    (("explain", "explanation", "interpret"), "Drumline explains no models; call the library in your script"),
    (("begindiagnose",), "Drumline checks a machine by `drumline doctor`"),
    (("tensorboard",), "Drumline shows TensorBoard by `drumline job board`"),
)


def explain_lack(name: str) -> str:
    """Return why Drumline lacks a class, function or command of Azure's; empty for what has no reason of its own."""
    apart = "".join(f"-{sign}" if sign.isupper() else sign for sign in name).lower().replace("_", "-")
    plain = f"{apart.replace('-', '')} -{apart.replace('.', '-')}-"
    return next((text for words, text in _SUBJECTS if any(word in plain for word in words)), "")


class NotSupportedError(UsageError, AttributeError):
    """Something of Azure ML that has no meaning here is used."""

    def __init__(self, name: str, module: str = "") -> None:
        reason = explain_lack(module) or explain_lack(name)
        super().__init__(f"{name}: {reason or 'Drumline has no such thing'}")


class Refused(type):
    """A class that Drumline lacks: it can be imported and stand in an annotation, and is refused when it is used."""

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        raise NotSupportedError(cls.__name__, cls.__module__)

    def __getattr__(cls, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        raise NotSupportedError(cls.__name__, cls.__module__)


def stand_in(module: str, name: str, known: Sequence[str]) -> Any:
    """
    Return what stands for a name of Azure's that Drumline lacks. It raises NotSupportedError when it is used; an
    exception is one that nobody raises.

    known: the names that ``module`` has. Raises AttributeError for one that is no name of a class or a constant, or
    nearly one of these.
    """
    if not name[:1].isupper() and name not in _FUNCTIONS.split():
        raise AttributeError(f"module {module!r} has no attribute {name!r}")
    import difflib

    near = difflib.get_close_matches(name, [other for other in known if other[0] == name[0]], 1, 0.9)
    if near:
        raise AttributeError(f"module {module!r} has no attribute {name!r}; did you mean {near[0]!r}?")
    if name.endswith(("Error", "Exception")):
        return type(name, (DrumlineError,), {"__module__": module})
    return Refused(name, (), {"__module__": module})


class _NamesLoader:
    """Loads a module that has the names of ours, and stands in for others."""

    def __init__(self, sources: Sequence[str]) -> None:
        self._sources = sources

    def create_module(self, spec: ModuleSpec) -> None:
        """Let Python make an ordinary one."""

    def exec_module(self, module: ModuleType) -> None:
        sources = [import_module(source) for source in self._sources]
        known = [name for source in sources for name in getattr(source, "__all__", ())]

        def get(name: str) -> Any:
            if name.startswith("__"):
                raise AttributeError(name)
            for source in sources:
                # Not by its own `__getattr__` for what it lacks: the next may have it.
                if name in vars(source) or name in dir(source):
                    return getattr(source, name)
            if module.__name__.startswith("azureml"):
                try:
                    return getattr(sources[0], name)
                except AttributeError:
                    pass
            return stand_in(module.__name__, name, known)

        module.__dict__.update(__getattr__=get, __all__=sorted(set(known)), __dir__=lambda: known)
        for name in _IMPORTED_ALONG.get(module.__name__, ()) if _Finder in sys.meta_path else ():
            import_module(name)
        if module.__name__ == "azure.ai.ml":
            module.__dict__["__version__"] = module.__dict__["VERSION"] = _VERSION
            sys.modules["azure.ai.ml._version"] = version = ModuleType("azure.ai.ml._version")
            version.__dict__["VERSION"] = _VERSION


_IMPORTED_ALONG = {
    "azure.ai.ml": ("urllib.request",),
    "azureml.core": ("urllib.request", "azureml.data", "azureml.exceptions"),
}
"""What theirs import themselves, and scripts use without an import of their own."""

_VERSION = "1.35.2"
"""The version of azure-ai-ml whose names are answered."""


class _PatchingLoader:
    """Loads an installed module, and changes it."""

    def __init__(self, loader: Loader) -> None:
        self._loader = loader

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        self._loader.exec_module(module)
        names = vars(module)
        if module.__name__ == "azure.identity":
            ours = import_module("drumline.identity")
            names["_InstalledCredential"] = names.get("DefaultAzureCredential")
            names.update({name: getattr(ours, name) for name in ours.__all__ if name in names})
        else:
            _adopt(names)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)


def _adopt(names: dict[str, Any]) -> None:
    """Let Drumline's errors be those of an installed module as well."""
    ours = import_module("drumline.exceptions")
    for name in ("HttpResponseError", "ResourceNotFoundError"):
        theirs, error = names.get(name), getattr(ours, name)
        if isinstance(theirs, type) and not issubclass(error, theirs):
            own = [base for base in error.__bases__ if base.__name__ != "_RootError"]
            error.__bases__ = (*own, theirs)


class _Finder:
    @staticmethod
    def find_spec(name: str, path: Sequence[str] | None = None, target: object = None) -> ModuleSpec | None:
        top = name.partition(".")[0]
        if top == "azureml":
            return find_v1(name, path)
        if f"{name}.".startswith("azure.ai.ml."):
            # Installed or not: objects of both cannot be in one pipeline. mldesigner asks for private modules of
            # others, to see what it can do.
            is_answered = name in _ANSWERS or name.startswith(
                ("azure.ai.ml.constants._", "azure.ai.ml.entities._")
            )
            return _make_spec(name, None) if is_answered else None
        if top != "azure" or (name not in _ANSWERS and name not in _NAMESPACES):
            return None
        installed = PathFinder.find_spec(name, path)
        if installed is None or installed.loader is None:
            return _make_spec(name, installed) if name in _ANSWERS or installed is None else installed
        if name in ("azure.identity", "azure.core.exceptions"):
            installed.loader = _PatchingLoader(installed.loader)  # type: ignore[assignment]
        return installed


def find_v1(name: str, path: Sequence[str] | None = None) -> ModuleSpec | None:
    """Find a module of ``azureml``, which is a package of names whatever is installed; None: it is not ours."""
    room = name.partition(".")[2].partition(".")[0]
    if room and room not in _OURS_OF_V1:
        is_answered = room in _SERVICES_OF_V1 and PathFinder.find_spec(name, path) is None
        return _make_spec(name, None) if is_answered else None
    return _make_spec(name, None if room else PathFinder.find_spec(name, path))


def _make_spec(name: str, installed: ModuleSpec | None) -> ModuleSpec:
    sources = ("drumline.v1",) if name.startswith("azureml.") else _ANSWERS.get(name.partition("._")[0])
    spec = ModuleSpec(name, None if sources is None else _NamesLoader(sources), is_package=True)  # type: ignore[arg-type]
    spec.submodule_search_locations = list(getattr(installed, "submodule_search_locations", None) or ())
    return spec


def install() -> None:
    """Answer these imports from now on, in this process. Modules that are imported already stay as they are."""
    if _Finder not in sys.meta_path:
        sys.meta_path.insert(0, _Finder)


def load_ipython_extension(shell: object) -> None:
    """
    Do so for ``%load_ext drumline.azure``, and for the programs of its cells.

    Raises UsageError where Azure's own package is there already: objects of both cannot be in one job.
    """
    loaded = sys.modules.get("azure.ai.ml")
    if loaded is not None and not isinstance(getattr(loaded.__spec__, "loader", None), _NamesLoader):
        error = import_module("drumline.contract.errors").UsageError
        raise error("azure.ai.ml was imported before", "restart the kernel, and load the extension first")
    install()
    os.environ.update(import_module("drumline.cli.azure").list_switches())

"""
What is under test is the real package, 96 MB with the 60 that it needs, which CI does not install::

    pip install azure-ai-ml==1.35.2 opentelemetry-sdk==1.36.0 mldesigner
    pytest tests/integration/azure_ai_ml

Its modules warn while they are imported, and warnings are errors in these tests.
"""

import contextlib
import logging
import warnings
from importlib import import_module

with warnings.catch_warnings(), contextlib.suppress(ImportError):
    warnings.simplefilter("ignore")
    for name in ("azure.ai.ml", "automl", "dsl", "entities", "parallel", "sweep"):
        import_module(name if "." in name else f"azure.ai.ml.{name}")
    logging.getLogger("azure.ai.ml").setLevel(logging.ERROR)

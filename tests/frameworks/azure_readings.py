"""
Read bodies of jobs, as JSON by name, as Microsoft's client reads them, and print what it would send of each again.

Runs in the environment azure-ai-ml. In place of a body that it cannot read stands the error.
"""

import json
import logging
import sys
import warnings

warnings.simplefilter("ignore")
logging.disable(logging.CRITICAL)

from azure.ai.ml._restclient.arm_ml_service._utils.model_base import SdkJSONEncoder  # noqa: E402
from azure.ai.ml._restclient.arm_ml_service.models import JobBase  # noqa: E402
from azure.ai.ml.entities import Job  # noqa: E402
from azure.ai.ml.entities._job.to_rest_functions import to_rest_job_object  # noqa: E402


def send_again(body):
    try:
        job = Job._from_rest_object(JobBase._deserialize(body, []))
        written = json.dumps(to_rest_job_object(job), cls=SdkJSONEncoder, exclude_readonly=True)
    except Exception as error:  # noqa: BLE001 - told by the test
        return f"{type(error).__name__}: {error}"
    return {"status": job.status, "studio": job.studio_url, **json.loads(written)}


json.dump({name: send_again(body) for name, body in json.load(sys.stdin).items()}, sys.stdout)

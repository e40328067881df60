"""
Print as JSON what Microsoft's client makes of the job files of the command line. Runs in the environment azure-ai-ml.

The client is unmodified, but for its network: requests end in ``Echo``, and uploads in the map ``uploads``, from what
the body has in place of a folder to the folder. Each file has ``imported``, the file of the client's job as a job of
ours, or why there is none; and ``sent``, the path and body of every PUT; or ``error``.
"""

import base64
import io
import json
import logging
import sys
import time
import warnings
from pathlib import Path
from urllib.parse import unquote, urlsplit

warnings.simplefilter("ignore")
logging.disable(logging.CRITICAL)

import requests  # noqa: E402 - its warnings are of no interest
from azure.ai.ml import MLClient, load_job  # noqa: E402
from azure.ai.ml.operations import (  # noqa: E402
    _environment_operations,
    _job_operations,
    _operation_orchestrator,
)
from azure.core.credentials import AccessToken  # noqa: E402
from azure.core.pipeline.transport import RequestsTransport, RequestsTransportResponse  # noqa: E402
from azure.core.rest import HttpRequest  # noqa: E402
from azure.core.rest._requests_basic import RestRequestsTransportResponse  # noqa: E402

from drumline.contract.errors import SpecError  # noqa: E402
from drumline.spec.foreign import translate_object  # noqa: E402
from drumline.spec.jobs.job import to_dict  # noqa: E402

WORKSPACE = "/subscriptions/s/resourceGroups/r/providers/Microsoft.MachineLearningServices/workspaces/w"
BLOBS = "azureml://datastores/workspaceblobstore/paths/LocalUpload/"
uploads = {}
sent = []


class Credential:
    def get_token(self, *scopes, **more):
        claims = {"tid": "t", "aud": "https://ml.azure.com", "exp": 4_000_000_000}
        parts = (base64.urlsafe_b64encode(json.dumps(part).encode()).decode() for part in ({}, claims, {}))
        return AccessToken(".".join(part.rstrip("=") for part in parts), int(time.time()) + 9_999)


class Echo(RequestsTransport):
    """Answers a PUT with its body, and a GET as if everything were there in version 1."""

    def send(self, request, **more):
        text = request.content if isinstance(request, HttpRequest) else request.body
        place = unquote(urlsplit(request.url).path)
        answer = {"id": place, "name": place.rpartition("/")[2], "location": "here"}
        if request.method == "PUT":
            body = json.loads(text)
            sent.append((place, body))
            answer |= body
        elif place.endswith("/versions"):
            answer = {"value": [{"id": f"{place}/1", "name": "1", "properties": {}}]}
        else:
            answer["properties"] = {"computeType": "AmlCompute", "latestVersion": "1"}
        response = requests.Response()
        response.status_code = 200
        response.headers["Content-Type"] = "application/json"
        response.raw = io.BytesIO(json.dumps(answer).encode())
        if not isinstance(request, HttpRequest):
            return RequestsTransportResponse(request, response)
        made = RestRequestsTransportResponse(request=request, internal_response=response, block_size=4096)
        made.read()
        return made


def keep(path, prefix):
    """Return what stands for an upload."""
    name = prefix + str(len(uploads))
    uploads[name] = str(path)
    return name


def keep_code(operations, asset, register_asset=True):
    is_remote = "://" in str(asset.path)
    name = keep(asset.path if is_remote else Path(asset.base_path, asset.path).resolve(), "c0de-")
    return f"{WORKSPACE}/codes/{name}/versions/1"


def keep_data(scope, operations, path, **more):
    return keep(Path(path).resolve(), BLOBS)


def keep_context(environment, *others, **more):
    if environment.path and environment.build is not None:
        folder = Path(environment.base_path or ".", environment.build.path).resolve()
        environment.build.path = keep(folder, "https://host/contexts/")
    return environment


_job_operations._upload_and_generate_remote_uri = keep_data
_operation_orchestrator.OperationOrchestrator._get_code_asset_arm_id = keep_code
_operation_orchestrator._check_and_upload_env_build_context = keep_context
_environment_operations._check_and_upload_env_build_context = keep_context


def import_job(file):
    try:
        return to_dict(translate_object(load_job(file)), absolute=True)
    except SpecError as error:
        return str(error)


def main(files):
    client = MLClient(Credential(), "s", "r", "w", transport=Echo(), enable_telemetry=False)
    found = {}
    for file in files:
        sent.clear()
        try:
            client.jobs.create_or_update(load_job(file), skip_validation=True)
        except Exception as error:  # noqa: BLE001 - told by the test
            found[file] = {"error": f"{type(error).__name__}: {error}"}
        else:
            found[file] = {"imported": import_job(file), "sent": list(sent)}
    json.dump({"files": found, "uploads": uploads}, sys.stdout)


main(sys.argv[1:])

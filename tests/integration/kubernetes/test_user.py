"""A user with the least Role on a real cluster, and what its jobs say while they wait."""

import json
import os
import re
import ssl
import sys
import urllib.error
import urllib.request

import pytest
import yaml
from cli_jobs import write_script
from waiting import wait_until

from drumline.control.facts import description

pytestmark = [pytest.mark.kubernetes, pytest.mark.timeout(240)]

CORE, ROLES = "/api/v1/namespaces/default", "/apis/rbac.authorization.k8s.io/v1/namespaces/default"
PATHS = {"Role": f"{ROLES}/roles", "RoleBinding": f"{ROLES}/rolebindings"}


class Administrator:
    """Asks the API server for whatever it likes."""

    def __init__(self, kubeconfig):
        self.config = json.loads(kubeconfig.read_text())
        self._server = self.config["clusters"][0]["cluster"]["server"]
        self._token = self.config["users"][0]["user"]["token"]
        authority = self.config["clusters"][0]["cluster"]["certificate-authority"]
        self._context = ssl.create_default_context(cafile=authority)

    def ask(self, method, path, body=None):
        data = None if body is None else json.dumps(body).encode()
        headers = {"Authorization": f"Bearer {self._token}", "Content-Type": "application/json"}
        asked = urllib.request.Request(self._server + path, data, headers, method=method)
        with urllib.request.urlopen(asked, context=self._context, timeout=60) as answer:
            return json.loads(answer.read())

    def make_user(self, name, path):
        """An account without any right, and a kubeconfig of it at that path."""
        self.ask("POST", f"{CORE}/serviceaccounts", {"metadata": {"name": name}})
        # From 1.24 on an account has no Secret with a token.
        request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
        user = {"token": self.ask("POST", f"{CORE}/serviceaccounts/{name}/token", request)["status"]["token"]}
        path.write_text(json.dumps({**self.config, "users": [{"name": "admin", "user": user}]}))


@pytest.fixture
def administrator(kubernetes_cluster):
    made = Administrator(kubernetes_cluster.kubeconfig)
    yield made
    accounts = [f"{CORE}/serviceaccounts/ann", f"{CORE}/resourcequotas/small"]
    for path in (*accounts, *(f"{one}/drumline" for one in PATHS.values())):
        try:
            made.ask("DELETE", path)
        except urllib.error.HTTPError as refusal:
            refusal.close()
    with kubernetes_cluster.api() as api:
        # Of a test that failed.
        for job in api.list("Job", {"app.kubernetes.io/name": "drumline"}):
            api.delete_job(job["metadata"]["name"])
    wait_until(lambda: not kubernetes_cluster.list_objects(), 60.0, "nothing of jobs to be left")


@pytest.fixture
def attach(cli, drumline_home):
    def run(kubeconfig, *words):
        program = os.path.realpath(sys.executable)
        line = ["--type", "kubernetes", "--name", "k8s", "--kubeconfig", str(kubeconfig)]
        return cli("compute", "attach", *line, "--image", "none", "--python", program, *words)

    return run


def test_the_role_that_is_printed_is_enough(cli, administrator, attach, tmp_path):
    administrator.make_user("ann", tmp_path / "ann")
    refused = attach(tmp_path / "ann")
    assert refused.rc == 2
    assert "forbidden" in refused.err
    printed = attach(tmp_path / "ann", "--dry-run")
    assert printed.rc == 0, printed.err
    for thing in yaml.safe_load_all(printed.out):
        administrator.ask("POST", PATHS[thing["kind"]], thing)
    wait_until(lambda: attach(tmp_path / "ann").rc == 0, 60.0, "the rights to count")
    job = write_script(tmp_path, "import os; print('rank', os.environ['RANK'])", compute="azureml:k8s")
    done = cli("job", "create", "-f", job, "--stream")
    assert done.rc == 0, done.out + done.err
    assert "rank 3" in done.out
    # Requests, and what is removed, need rights too.
    assert cli("job", "create", "-f", job, "--name", "long", "--set", "command=sleep 600").rc == 0
    wait_until(lambda: description.show_job("long")["status"] == "Running", 60.0, "the job to run")
    assert cli("job", "cancel", "-n", "long").rc == 0
    assert description.show_job("long")["status"] == "Canceled"


def test_a_job_says_what_it_waits_for_in_the_words_of_the_cluster(cli, administrator, attach, tmp_path):
    assert attach(administrator_config(tmp_path, administrator), "--gpus-per-node", "8").rc == 0
    # The nodes have two each.
    ranks = {"type": "pytorch", "process_count_per_instance": 8}
    job = write_script(tmp_path, "pass", compute="azureml:k8s", distribution=ranks)
    assert cli("job", "create", "-f", job).rc == 0
    wait_for_reason("job", "Insufficient nvidia.com/gpu")
    assert description.show_job("job")["status"] == "Queued"
    assert cli("job", "cancel", "-n", "job").rc == 0
    quota = {"metadata": {"name": "small"}, "spec": {"hard": {"pods": "0"}}}
    administrator.ask("POST", f"{CORE}/resourcequotas", quota)
    assert cli("job", "create", "-f", job, "--name", "next").rc == 0
    wait_for_reason("next", "no pod is made: exceeded quota: small")
    assert cli("job", "cancel", "-n", "next").rc == 0


def test_pods_that_cannot_all_come_are_given_back(cli, administrator, attach, tmp_path):
    rest = ["--set", "gang_timeout=5", "spread=require"]
    assert attach(administrator_config(tmp_path, administrator), *rest).rc == 0
    job = write_script(tmp_path, "pass", compute="azureml:k8s", resources={"instance_count": 4})
    done = cli("job", "create", "-f", job, "--stream")
    assert done.rc == 1
    assert re.match(r"\d of 4 pods came within 5 s, and no more", description.show_job("job")["reason"])


def administrator_config(tmp_path, administrator):
    (tmp_path / "config").write_text(json.dumps(administrator.config))
    return tmp_path / "config"


def wait_for_reason(name, words):
    wait_until(lambda: words in description.show_job(name)["reason"], 60.0, f"the job to say {words}")

"""The part of MLflow's REST interface that Drumline speaks to, in memory, and the ways in which a server can be bad."""

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit


class FakeServer:
    """
    ``fault``: ``refuse`` (401), ``redirect``, ``garbage``, ``silent`` (no answer until it ends); empty: none.
    ``wants``: the Authorization header that is asked for; empty: none.
    """

    def __init__(self, fault="", wants=""):
        self.fault, self.wants = fault, wants
        self.experiments = {"Default": "0"}
        self.runs = {}
        self.metrics = {}
        """Points (step, time, value) by run and name."""

        self.asked = []
        self.page = 2
        self._ended = threading.Event()
        self._http = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._http.daemon_threads = True
        self.uri = f"http://127.0.0.1:{self._http.server_port}"
        self._thread = threading.Thread(target=self._http.serve_forever, args=(0.05,))
        self._thread.start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._ended.set()
        self._http.shutdown()
        self._http.server_close()
        self._thread.join()

    def log(self, run_id, name, *values):
        points = self.metrics.setdefault(run_id, {}).setdefault(name, [])
        points += [(len(points) + index, 1000 + index, value) for index, value in enumerate(values)]

    def answer(self, method, endpoint, content):
        self.asked.append((method, endpoint))
        return getattr(self, "_" + endpoint.replace("/", "_").replace("-", "_"))(content)

    def _experiments_get_by_name(self, content):
        name = content["experiment_name"]
        if name not in self.experiments:
            return 404, {"error_code": "RESOURCE_DOES_NOT_EXIST", "message": f"no experiment {name}"}
        number = self.experiments[name]
        stage = "deleted" if number == "deleted" else "active"
        return 200, {"experiment": {"experiment_id": number, "name": name, "lifecycle_stage": stage}}

    def _experiments_create(self, content):
        self.experiments[content["name"]] = str(len(self.experiments))
        return 200, {"experiment_id": self.experiments[content["name"]]}

    def _experiments_search(self, _):
        return 200, {"experiments": [{"experiment_id": number} for number in self.experiments.values()]}

    def _runs_create(self, content):
        run_id = f"{len(self.runs):032x}"
        self.runs[run_id] = {**content, "status": "RUNNING"}
        return 200, {"run": {"info": {"run_id": run_id}}}

    def _runs_update(self, content):
        self.runs[content["run_id"]].update(content)
        return 200, {"run_info": {}}

    def _runs_get(self, content):
        logged = self.metrics.get(content["run_id"], {})
        listed = [_point(name, *points[-1]) for name, points in logged.items()]
        return 200, {"run": {"data": {"metrics": listed}}}

    def _runs_search(self, content):
        parent = content["filter"].split("'")[1]
        found = [
            {"info": {"run_id": run_id, "run_name": run["run_name"]}}
            for run_id, run in self.runs.items()
            if {"key": "mlflow.parentRunId", "value": parent} in run["tags"]
        ]
        return 200, {"runs": found}

    def _metrics_get_history(self, content):
        points = self.metrics.get(content["run_id"], {}).get(content["metric_key"], [])
        begin = int(content.get("page_token", 0))
        page = [_point(content["metric_key"], *one) for one in points[begin : begin + self.page]]
        more = {"next_page_token": str(begin + self.page)} if begin + self.page < len(points) else {}
        return 200, {"metrics": page, **more}

    def _handler(fake):  # noqa: N805, C901
        class Handler(BaseHTTPRequestHandler):
            def do_GET(self):
                query = parse_qs(urlsplit(self.path).query)
                self._serve({name: values[0] for name, values in query.items()})

            def do_POST(self):
                self._serve(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))

            def _serve(self, content):
                endpoint = urlsplit(self.path).path.removeprefix("/api/2.0/mlflow/")
                if fake.fault == "silent":
                    fake._ended.wait()
                elif fake.fault == "redirect":
                    self._say(302, {}, Location="http://127.0.0.1:1/elsewhere")
                elif fake.fault == "garbage":
                    self._say(200, ["<html>\x1b[31m"])
                elif fake.fault == "refuse" or (fake.wants and self.headers["Authorization"] != fake.wants):
                    self._say(401, {"error_code": "UNAUTHENTICATED", "message": "who\nare you"})
                else:
                    self._say(*fake.answer(self.command, endpoint, content))

            def _say(self, code, data, **headers):
                body = json.dumps(data).encode()
                self.send_response(code)
                for name, value in headers.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_):
                pass

        return Handler


def _point(name, step, time, value):
    return {"key": name, "step": step, "timestamp": time, "value": value}

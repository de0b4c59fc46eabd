"""deploy/prometheus.yml and deploy/grafana.json ask for counters and labels that the server has."""

import json
import os
import re

from server_fixture import ROOT, ServerTest, main

OWN = {"instance", "job"}  # labels that Prometheus adds


def read(name):
    with open(os.path.join(ROOT, "deploy", name), encoding="utf-8") as file:
        return file.read()


class Deploy(ServerTest):
    def test_dashboard(self):
        """One request, and every expression of the dashboard names a counter with the labels that it uses."""
        self.assertEqual(self.server.post("/v1/completions", {"prompt": "One", "max_tokens": 2})[0], 200)
        known = {}
        for line in self.server.request("GET", "/metrics", headers={})[2].decode().splitlines():
            if not line.startswith("#"):
                name, labels = re.match(r"([\w:]+)\{(.*)\}", line).groups()
                known.setdefault(name, set()).update(re.findall(r'(\w+)="', labels))
        dashboard = json.loads(read("grafana.json"))
        self.assertEqual([panel.get("alert") for panel in dashboard["panels"]], [None] * len(dashboard["panels"]))
        asked = [(target["expr"], target["legendFormat"])
                 for panel in dashboard["panels"] for target in panel["targets"]]
        asked += [(variable["query"], "") for variable in dashboard["templating"]["list"][1:]]
        self.assertGreater(len(asked), 10)
        for expression, legend in asked:
            names = re.findall(r"\b(?:nano)?vllm:\w+", expression)
            self.assertTrue(names, expression)
            # {label=~"...", by (label), label_values(name, label) and {{label}} of a legend
            labels = re.findall(r"(\w+)=~|by \((\w+)\)|_values\([\w:]+, (\w+)\)|\{\{(\w+)\}\}", expression + legend)
            for name in names:
                self.assertIn(name, known, expression)
                for label in map("".join, labels):
                    self.assertIn(label, known[name] | OWN, expression)

    def test_scrape(self):
        """Prometheus' defaults fit: the path, and the port that is in the file."""
        text = read("prometheus.yml")
        self.assertNotIn("metrics_path", text)
        self.assertIn('targets: ["127.0.0.1:8000"]', text)
        with open(os.path.join(ROOT, "doc/serving.md"), encoding="utf-8") as file:
            self.assertIn("| `--port N` | port; 0 is any free one | 8000 |", file.read())
        _, headers, _ = self.server.request("GET", "/metrics", headers={})
        self.assertTrue(headers["Content-Type"].startswith("text/plain; version=0.0.4"))


if __name__ == "__main__":
    main()

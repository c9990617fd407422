#!/usr/bin/env python3
"""The manifests of examples/cluster are consistent, and slm supports their options. No cluster runs them here.
usage: kubernetes_test.py PROGRAM SOURCE_DIR"""
import pathlib
import re
import subprocess
import sys
import unittest

PROGRAM, FOLDER = sys.argv[1], pathlib.Path(sys.argv[2]) / "examples" / "cluster"
SKIPPED = 77
PROBES = ("startupProbe", "readinessProbe", "livenessProbe")


def options(text):
    """--name=value or --name value -> value, from the words after 'slm serve'."""
    return {name: value for name, value in re.findall(r"(--[a-z-]+)[= ]?([^\s-]\S*)?", text)}


def manifests(name):
    return list(yaml.safe_load_all((FOLDER / name).read_text()))


class Kubernetes(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.help = subprocess.run([PROGRAM, "serve", "--help"], capture_output=True, text=True, check=True).stdout

    def check_server(self, template, words):
        """For the serving pod: the options of slm and the settings of Kubernetes, which must agree."""
        (container,) = template["spec"]["containers"]
        given = options(words)
        for option in given:
            self.assertRegex(self.help, rf"(?m)^ +{option}\b", option)
        port = int(given["--port"])
        self.assertEqual(container["ports"], [{"name": "http", "containerPort": port}])
        self.assertEqual(given["--host"], "0.0.0.0")
        for name in PROBES:
            self.assertEqual(container[name]["httpGet"], {"path": "/health", "port": "http"})
        self.assertEqual(template["metadata"]["annotations"], {
            "prometheus.io/scrape": "true", "prometheus.io/port": str(port), "prometheus.io/path": "/metrics"})
        # The drain ends before Kubernetes ends the pod, by its grace period or because the server is unhealthy.
        drain = float(given["--drain-delay"]) + float(given["--drain-timeout"])
        grace = template["spec"]["terminationGracePeriodSeconds"]
        self.assertGreater(grace, drain)
        liveness = container["livenessProbe"]
        self.assertGreater(liveness["periodSeconds"] * liveness["failureThreshold"], grace)
        readiness = container["readinessProbe"]
        self.assertGreaterEqual(float(given["--drain-delay"]), readiness["periodSeconds"] * readiness["failureThreshold"])
        self.assertEqual(given["--threads"], container["resources"]["requests"]["cpu"])
        self.check_volumes(template, given["--target"], given["--api-key-file"])

    def check_volumes(self, template, *paths):
        volumes = {volume["name"]: volume for volume in template["spec"]["volumes"]}
        for container in template["spec"]["containers"]:
            mounts = container["volumeMounts"]
            self.assertEqual({mount["name"] for mount in mounts}, set(volumes))
            self.assertTrue(all(mount["readOnly"] for mount in mounts))
            for path in paths:
                self.assertTrue(any(path.startswith(mount["mountPath"] + "/") for mount in mounts), path)
        self.assertTrue(volumes["models"]["persistentVolumeClaim"]["readOnly"])
        self.assertEqual(volumes["keys"]["secret"]["secretName"], "slm-keys")

    def test_replicas(self):
        deployment, service, budget = manifests("replicas.yaml")
        self.assertEqual([deployment["kind"], service["kind"], budget["kind"]], ["Deployment", "Service", "PodDisruptionBudget"])
        template = deployment["spec"]["template"]
        labels = template["metadata"]["labels"]
        for selector in (deployment["spec"]["selector"]["matchLabels"], service["spec"]["selector"],
                         budget["spec"]["selector"]["matchLabels"]):
            self.assertEqual(selector, labels)
        self.assertEqual(service["spec"]["ports"][0]["targetPort"], "http")
        (container,) = template["spec"]["containers"]
        self.assertEqual(container["command"], ["slm", "serve"])
        self.check_server(template, " ".join(container["args"]))

    def test_ranks(self):
        leader_worker_set, service = manifests("ranks.yaml")
        self.assertEqual([leader_worker_set["kind"], service["kind"]], ["LeaderWorkerSet", "Service"])
        self.assertEqual(leader_worker_set["apiVersion"], "leaderworkerset.x-k8s.io/v1")
        group = leader_worker_set["spec"]["leaderWorkerTemplate"]
        self.assertEqual(group["restartPolicy"], "RecreateGroupOnPodRestart")
        leader, worker = group["leaderTemplate"], group["workerTemplate"]
        self.assertEqual(service["spec"]["selector"], leader["metadata"]["labels"])
        self.assertNotEqual(service["spec"]["selector"], worker["metadata"]["labels"])
        scripts = {}
        for name, template in (("leader", leader), ("worker", worker)):
            (container,) = template["spec"]["containers"]
            self.assertEqual(container["command"][0], "bash")
            scripts[name] = container["args"][0]
            said = subprocess.run(["bash", "-n"], input=scripts[name], text=True, capture_output=True)
            self.assertEqual((said.returncode, said.stderr), (0, ""))
        self.check_server(leader, scripts["leader"].split("slm serve", 1)[1].replace("\\\n", " "))
        self.check_volumes(worker)
        self.assertEqual(worker["spec"]["containers"][0]["resources"], leader["spec"]["containers"][0]["resources"])

    def test_the_leader_names_every_pod_of_its_group(self):
        script = manifests("ranks.yaml")[0]["spec"]["leaderWorkerTemplate"]["leaderTemplate"]["spec"]["containers"][0]["args"][0]
        played = 'ssh() { :; }\nmpirun() { echo mpirun "$@"; }\n' + script
        run = subprocess.run(["bash", "-euc", played], text=True, capture_output=True, env={
            "PATH": "/usr/bin:/bin", "LWS_GROUP_SIZE": "3", "LWS_LEADER_ADDRESS": "slm-ranks-0.slm-ranks.default"})
        self.assertEqual(run.returncode, 0, run.stderr)
        self.assertIn("mpirun -n 3 --host slm-ranks-0.slm-ranks.default,slm-ranks-0-1.slm-ranks.default,"
                      "slm-ranks-0-2.slm-ranks.default ", run.stdout)


if __name__ == "__main__":
    try:
        import yaml
    except ImportError:
        print("SKIPPED: no yaml in this Python (Debian: apt-get install python3-yaml)")
        sys.exit(SKIPPED)
    unittest.main(argv=sys.argv[:1], verbosity=2)

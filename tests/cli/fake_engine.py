"""An engine for slm bench speculative --baseline that invents its measurements; FAKE_ENGINE selects its misbehaviour."""
import json
import os
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "bench" / "peers"))
import peer

fault = os.environ.get("FAKE_ENGINE", "")
request = json.loads(sys.stdin.readline())
if fault == "missing":
    import a_package_that_nobody_has  # noqa: F401
weights = {kind: peer.digest(peer.read_weights(request[kind])) for kind in ("target", "draft")}
if fault == "weights":
    weights["draft"] = "sha256:0"
print(json.dumps({"engine": "fake", "version": os.environ.get("FAKE_VERSION", "1"), "threads": request["threads"],
                  "dtype": "none", "speculation": "by claim", "notes": [], "weights": weights}), flush=True)
for number, line in enumerate(sys.stdin):
    task = json.loads(line)
    if fault == "late" and number == 5:  # after two of the warm-up and three of the tasks
        print("Loading checkpoint shards: 100%", flush=True)
    answer = {"new_ids": task["ids"][:4], "seconds": {"total": 0.02, "prompt": 0.01}}
    if task["kind"] == "speculative":
        answer.update(drafted=5, accepted=2, rounds=2)
    print(json.dumps(answer), flush=True)

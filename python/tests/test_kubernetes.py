"""The examples for Kubernetes are what the API server of a cluster would take."""

import copy
import json
from pathlib import Path
from typing import Any

import pytest

yaml = pytest.importorskip("yaml")
jsonschema = pytest.importorskip("jsonschema")

ROOT = Path(__file__).resolve().parents[2]
SCHEMA = ROOT / "tests/data/kubernetes/mpijob-v2beta1.schema.json"


def strict(schema: Any) -> Any:
    """The same schema without room for fields that it does not name, as `kubectl apply --validate=strict` has it."""
    if isinstance(schema, list):
        return [strict(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    closed = {name: strict(part) for name, part in schema.items()}
    free = closed.get("x-kubernetes-preserve-unknown-fields") or "additionalProperties" in closed
    if isinstance(schema.get("properties"), dict) and not free:
        closed["additionalProperties"] = False
    return closed


def example(name: str) -> dict[str, Any]:
    return yaml.safe_load((ROOT / "examples/kubernetes" / name).read_text())


def job() -> dict[str, Any]:
    return example("mpijob.yaml")


def problems(document: dict[str, Any]) -> list[str]:
    schema = json.loads(SCHEMA.read_text())
    # The API server knows the fields of `metadata` itself.
    schema["properties"].pop("metadata")
    closed = strict(schema)
    closed["properties"]["metadata"] = {"type": "object", "required": ["name"]}
    return [error.message for error in jsonschema.Draft7Validator(closed).iter_errors(document)]


def test_the_mpijob_is_what_its_schema_describes() -> None:
    assert job()["apiVersion"] == "kubeflow.org/v2beta1"
    assert problems(job()) == []


def test_a_misspelt_field_is_noticed() -> None:
    for path, name in [
        (["spec"], "slotsPerworker"),
        (["spec", "mpiReplicaSpecs", "Worker", "template", "spec"], "volume"),
    ]:
        wrong = copy.deepcopy(job())
        part = wrong
        for step in path:
            part = part[step]
        part[name] = 8
        assert problems(wrong), name


def test_a_worker_per_gpu_and_shared_memory() -> None:
    spec = job()["spec"]
    (worker,) = spec["mpiReplicaSpecs"]["Worker"]["template"]["spec"]["containers"]
    assert worker["resources"]["limits"]["nvidia.com/gpu"] == spec["slotsPerWorker"]
    assert {mount["mountPath"] for mount in worker["volumeMounts"]} == {"/dev/shm"}


def pod_problems(template: dict[str, Any]) -> list[str]:
    """What a pod's template has against the schema, which the MPIJob's holds."""
    replicas = json.loads(SCHEMA.read_text())["properties"]["spec"]["properties"]["mpiReplicaSpecs"]
    schema = strict(replicas["additionalProperties"]["properties"]["template"])
    # The API server knows the fields of `metadata` itself.
    schema["properties"].pop("metadata", None)
    return [error.message for error in jsonschema.Draft7Validator(schema).iter_errors({"spec": template["spec"]})]


def test_the_monitor_runs_on_every_node_and_is_scraped() -> None:
    document = example("monitor.yaml")
    assert (document["apiVersion"], document["kind"]) == ("apps/v1", "DaemonSet")
    assert set(document["spec"]) == {"selector", "template"}
    template = document["spec"]["template"]
    assert pod_problems(template) == []
    assert template["metadata"]["labels"].items() >= document["spec"]["selector"]["matchLabels"].items()
    (container,) = template["spec"]["containers"]
    (port,) = container["ports"]
    assert container["command"][-1] == f"0.0.0.0:{port['containerPort']}"
    assert template["metadata"]["annotations"]["prometheus.io/port"] == str(port["containerPort"])
    misspelt = copy.deepcopy(template)
    misspelt["spec"]["hostNetwrk"] = True
    assert pod_problems(misspelt)

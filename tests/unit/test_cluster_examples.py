"""examples/cluster: what a cluster would refuse is found here, without one."""

from __future__ import annotations

import importlib.util
import json
import re
import shlex
import subprocess
from pathlib import Path
from typing import Any

import jsonschema  # type: ignore[import-untyped]
import pytest
import yaml

from det_jupyter.front.cli.shell_table import shell_parser
from det_jupyter.front.verbs.grammar import parse

FOLDER = Path(__file__).parents[2] / "examples" / "cluster"
RAY = "2.60.0"

# Fields of ray.io/v1 by type, those that are required first:
# https://docs.ray.io/en/master/cluster/kubernetes/references/api.html (KubeRay 1.6)
FIELDS: dict[str, tuple[set[str], set[str]]] = {
    "RayClusterSpec": (
        {"headGroupSpec"},
        {"workerGroupSpecs", "rayVersion", "enableInTreeAutoscaling", "autoscalerOptions",
         "authOptions", "headServiceAnnotations", "suspend", "managedBy",
         "gcsFaultToleranceOptions"},
    ),
    "HeadGroupSpec": (
        {"rayStartParams", "template"},
        {"serviceType", "headService", "enableIngress", "resources", "labels"},
    ),
    "WorkerGroupSpec": (
        {"groupName", "minReplicas", "maxReplicas", "rayStartParams", "template"},
        {"replicas", "numOfHosts", "suspend", "idleTimeoutSeconds", "scaleStrategy", "resources",
         "labels"},
    ),
    "AutoscalerOptions": (
        set(),
        {"resources", "image", "imagePullPolicy", "env", "envFrom", "volumeMounts",
         "securityContext", "idleTimeoutSeconds", "upscalingMode", "version"},
    ),
    "AuthOptions": (set(), {"mode", "enableK8sTokenAuth", "secretName"}),
}  # fmt: skip


def loaded(name: str) -> list[Any]:
    return list(yaml.safe_load_all((FOLDER / name).read_text(encoding="utf-8")))


def check(kind: str, document: dict[str, Any]) -> dict[str, Any]:
    required, others = FIELDS[kind]
    assert required <= document.keys() <= required | others, kind
    return document


def test_kuberay_manifest_has_the_fields_of_its_types() -> None:
    claim, cluster = loaded("kuberay.yaml")
    assert (cluster["apiVersion"], cluster["kind"]) == ("ray.io/v1", "RayCluster")
    spec = check("RayClusterSpec", cluster["spec"])
    assert check("AuthOptions", spec["authOptions"])["mode"] == "token"
    assert check("AutoscalerOptions", spec["autoscalerOptions"])["version"] in ("v1", "v2")
    groups = [check("WorkerGroupSpec", group) for group in spec["workerGroupSpecs"]]
    pods = [check("HeadGroupSpec", spec["headGroupSpec"]), *groups]
    for pod in pods:
        assert all(isinstance(value, str) for value in pod["rayStartParams"].values())
        (container,) = pod["template"]["spec"]["containers"]
        assert container["image"] == "IMAGE"  # explained above
        assert container["resources"]["limits"] == container["resources"]["requests"]
        assert all(isinstance(n, str) for n in container["resources"]["limits"].values())
    (volume,) = pods[0]["template"]["spec"]["volumes"]
    assert volume["persistentVolumeClaim"]["claimName"] == claim["metadata"]["name"]
    assert spec["rayVersion"] == RAY


def test_autoscaler_file_is_valid_by_the_schema_of_ray() -> None:
    found = importlib.util.find_spec("ray")
    if found is None or not found.submodule_search_locations:
        pytest.skip("no ray, whose schema is needed: pip install ray")
    schema = Path(found.submodule_search_locations[0], "autoscaler", "ray-schema.json")
    (document,) = loaded("ray-autoscaler.yaml")
    jsonschema.validate(document, json.loads(schema.read_text(encoding="utf-8")))
    assert document["head_node_type"] in document["available_node_types"]
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(document | {"idle_minutes": 1}, json.loads(schema.read_text()))


@pytest.mark.parametrize("name", ["slurm.sbatch", "slurm-ray.sbatch"])
def test_batch_file_is_a_script_with_one_task_per_node(name: str) -> None:
    subprocess.run(["bash", "-n", FOLDER / name], check=True)
    text = (FOLDER / name).read_text(encoding="utf-8")
    given = dict(re.findall(r"^#SBATCH --([a-z-]+)=(\S+)$", text, re.MULTILINE))
    assert given["ntasks-per-node"] == "1"
    commands = [line for line in text.splitlines() if line and not line.startswith("#")]
    assert text.rindex("#SBATCH") < text.index(commands[0])  # later ones would be ignored


@pytest.mark.parametrize("path", sorted(FOLDER.iterdir()), ids=lambda path: path.name)
def test_lines_of_det_are_lines_of_its_table(path: Path) -> None:
    text = path.read_text(encoding="utf-8").replace('"$(hostname -f)"', "HOST")
    lines = re.findall(
        r"(?<![\w/-])!?(det (?:agent|cluster) (?:add|run) .*?)(?: #|`|  |$)", text, re.M
    )
    assert lines or "ray" not in path.name
    for line in lines:
        words = line.removeprefix("det ").replace("$(hostname -i)", "HOST")
        assert parse(shell_parser(), shlex.join(shlex.split(words))).verb.name in ("add", "run")
    versions = set(re.findall(r"(?:ray\[default\]==|rayproject/ray:)([0-9.]+)", text))
    assert versions <= {RAY}

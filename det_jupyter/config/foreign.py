"""What a configuration may say that has no meaning on one's own computer, typed all the same.

Determined's users have files full of it. It is accepted where it is right, and `notices` say that
it is ignored. These types are large and seldom needed: only `documents`, `reference` and a
configuration that has such keys load them.
"""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, ConfigDict, Field, WithJsonSchema
from pydantic_core import PydanticCustomError

from det_jupyter.config.buckets import AnyStorage, Foreign, ForeignSharedFs
from det_jupyter.config.experiment import ExperimentConfig
from det_jupyter.config.fields import (
    AbsolutePath,
    Bool,
    Count,
    Int,
    PositiveInt,
    Section,
    Text,
)
from det_jupyter.config.integrations import Integrations
from det_jupyter.config.sections import (
    DEVICE_KINDS,
    Environment,
    Resources,
)

_MEMORY = re.compile(r"([0-9]*[.])?[0-9]+ ?(([kmgtpKMGTP]([iI]?[bB])?)|[bB])?")


def _memory_size(value: Any) -> Any:
    is_size = isinstance(value, str) and _MEMORY.fullmatch(value)
    if is_size or (isinstance(value, int) and not isinstance(value, bool) and value >= 0):
        return value
    raise PydanticCustomError("memory", "expected a number of bytes, or text such as 4GiB")


def _device(value: Any) -> Any:
    """Read the short form `host:container[:mode]`."""
    if not isinstance(value, str):
        return value
    parts = value.split(":")
    if len(parts) not in (2, 3) or not all(parts):
        raise PydanticCustomError("device", "expected host_path:container_path[:mode]")
    return dict(zip(("host_path", "container_path", "mode"), parts, strict=False))


def _container_path(value: str) -> str:
    if value == ".":
        raise PydanticCustomError("container_path", "expected a folder other than .")
    return value


def _image(value: Any) -> Any:
    kinds = (*DEVICE_KINDS, "gpu")
    if isinstance(value, str) or (
        isinstance(value, dict)
        and all(key in kinds and isinstance(text, str) for key, text in value.items())
    ):
        return value
    raise PydanticCustomError("image", "expected text, or text by cpu, cuda and rocm")


def _nothing(value: Any) -> Any:
    raise PydanticCustomError("nothing", "expected nothing; remove it")


Device = Annotated["DeviceMapping", BeforeValidator(_device)]


class DeviceMapping(Section):
    """A device of the host that a container sees."""

    host_path: Text
    """The device on the host."""
    container_path: Text
    """The device in the container."""
    mode: Text = "mrw"
    """What the container may do with it."""


class ForeignResources(Foreign, Resources):
    """What a trial needs, and how urgent it is."""

    native_parallel: Bool | None = None
    """A switch of Determined's first versions."""
    shm_size: (
        Annotated[
            Any,
            BeforeValidator(_memory_size),
            WithJsonSchema({"type": ["integer", "string"]}),
        ]
        | None
    ) = None
    """Shared memory of the container: bytes, or text such as 4GiB."""
    devices: list[Device] | None = None
    """Devices of the host that containers see."""
    agent_label: Text | None = None
    """The label of the agents that the trials run on."""
    slots: Count | None = None
    """The slots of a notebook or command."""


class ProxyPort(Section):
    """A port that the master lets through."""

    proxy_port: Annotated[Int, Field(ge=1, le=65535)]
    """The port."""
    proxy_tcp: Bool = False
    """Whether it speaks something else than HTTP."""
    unauthenticated: Bool = False
    """Whether anybody may use it."""
    default_service_id: Text | None = None
    """Name of the service behind it."""


class RegistryAuth(Section):
    """Who asks a registry for images."""

    username: Text | None = None
    """Name of the account."""
    password: Text | None = None
    """Its password."""
    auth: Text | None = None
    """Both, encoded."""
    email: Text | None = None
    """Its address."""
    serveraddress: Text | None = None
    """The registry."""
    identitytoken: Text | None = None
    """A token instead of a password."""
    registrytoken: Text | None = None
    """A token of the registry's own."""


class ForeignEnvironment(Foreign, Environment):
    """What the ranks find around them."""

    image: (
        Annotated[
            Any,
            BeforeValidator(_image),
            WithJsonSchema({"type": ["string", "object"]}),
        ]
        | None
    ) = None
    """The container image, or one for each of cpu, cuda and rocm."""
    ports: dict[str, Annotated[Int, Field(ge=1, le=65535)]] | None = None
    """Ports of the container, by name."""
    proxy_ports: list[ProxyPort] | None = None
    """Ports that the master lets through."""
    force_pull_image: Bool | None = None
    """Fetch the image even if it is there."""
    registry_auth: RegistryAuth | None = None
    """Who asks a registry for images."""
    add_capabilities: list[Text] | None = None
    """Linux capabilities that the container gets."""
    drop_capabilities: list[Text] | None = None
    """Linux capabilities that the container does not get."""
    pod_spec: dict[str, Any] | None = None
    """Description of a Kubernetes pod."""


class BindMount(Section):
    """A folder of the host that a container sees."""

    host_path: AbsolutePath
    """The folder on the host."""
    container_path: Annotated[Text, AfterValidator(_container_path)]
    """The folder in the container."""
    read_only: Bool = False
    """Whether the container may not write to it."""
    propagation: Text = "rprivate"
    """How mounts below it spread."""


class Slurm(Section):
    """How Slurm runs the trials."""

    slots_per_node: PositiveInt | None = None
    """Slots of each computer."""
    gpu_type: Text | None = None
    """Kind of GPU."""
    sbatch_args: list[Text] = []
    """Arguments of sbatch."""


class Pbs(Section):
    """How PBS runs the trials."""

    slots_per_node: PositiveInt | None = None
    """Slots of each computer."""
    pbsbatch_args: list[Text] = []
    """Arguments of qsub."""


class Kerberos(Section):
    """Kerberos."""

    config_file: Text | None = None
    """Its configuration."""


class Security(Section):
    """Security."""

    kerberos: Kerberos | None = None
    """Kerberos."""


_SHARED_FS = ForeignSharedFs.model_construct()


class ForeignConfig(ExperimentConfig):
    """A complete configuration, with what has no meaning on one's own computer."""

    model_config = ConfigDict(defer_build=True)

    resources: ForeignResources = ForeignResources.model_construct()
    """What a trial needs, and how urgent it is."""
    environment: ForeignEnvironment = ForeignEnvironment.model_construct()
    """What the ranks find around them."""
    # More kinds than its parent has.
    checkpoint_storage: AnyStorage = _SHARED_FS  # type: ignore[assignment]
    """Where checkpoints go."""
    workspace: Text | None = None
    """The workspace that the experiment belongs to."""
    project: Text | None = None
    """The project that the experiment belongs to."""
    bind_mounts: list[BindMount] | None = None
    """Folders of the host that containers see."""
    debug: Bool | None = None
    """Have the harness tell more."""
    integrations: Integrations | None = None
    """Services that the master talks to."""
    slurm: Slurm | None = None
    """How Slurm runs the trials."""
    pbs: Pbs | None = None
    """How PBS runs the trials."""
    security: Security | None = None
    """Security."""
    tensorboard_storage: dict[str, Any] | None = None
    """Where logs for TensorBoard go."""
    data_layer: dict[str, Any] | None = None
    """Caches of data sets."""
    internal: Annotated[None, BeforeValidator(_nothing)] = None
    """Nothing."""
    version: Literal[0] | None = None
    """The version of the configuration's form."""

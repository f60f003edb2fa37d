"""The registry of models: what the master answers about it, and the requests that change it.

A model has a name and versions, numbered from 1; a version is a checkpoint. An alias, such as
`production`, is a name for one version at a time.
"""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, StrictBool

from det_jupyter.contract.messages.change_request import ChangeRequest, Label
from det_jupyter.contract.messages.views import CheckpointView
from det_jupyter.contract.messages.wire import Wire
from det_jupyter.contract.values.bounds import StrictWhole, Whole
from det_jupyter.errors import NotFound

LATEST = "latest"  # the newest version; no alias
Text = Annotated[str, Field(max_length=20_000)]
Line = Annotated[str, Field(max_length=200)]
Labels = Annotated[list[Label], Field(max_length=100)]


class StoredVersion(Wire):
    """The fields of a version that the master stores, and its view has unchanged."""

    number: int
    uuid: str  # of its checkpoint
    name: str = ""
    comment: str = ""
    notes: str = ""
    labels: list[str] = []
    metadata: dict[str, Any] = {}
    created_at: float
    updated_at: float


class StoredModel(Wire):
    """The fields of a model that the master stores, and its view has unchanged."""

    id: int
    name: str
    description: str = ""
    notes: str = ""
    labels: list[str] = []
    metadata: dict[str, Any] = {}
    is_archived: bool = False
    aliases: dict[str, int] = {}  # numbers of versions
    created_at: float
    updated_at: float

    def aliases_of(self, number: int) -> list[str]:
        """Return the aliases of a version, sorted."""
        return sorted(alias for alias, version in self.aliases.items() if version == number)


class VersionView(StoredVersion):
    """A version of a model, and where its checkpoint comes from."""

    checkpoint: CheckpointView
    experiment: str  # its name
    metric: str  # the searcher's, of which the checkpoint has a value
    smaller_is_better: bool
    hparams: dict[str, Any]  # of the trial


class ModelView(StoredModel):
    """A model with its versions."""

    versions: list[VersionView] = []  # by number

    def version(self, which: int | str | None = None) -> VersionView:
        """Return a version by its number or alias; None: the newest.

        Raises:
            NotFound: There is none; the message has those that there are.
        """
        if not self.versions:
            raise NotFound(f"model {self.name} has no version yet")
        if which is None or which == LATEST:
            return self.versions[-1]
        number = self.aliases.get(str(which), which)
        found = next((v for v in self.versions if str(v.number) == str(number)), None)
        if found is None:
            named = [f"{alias} (version {each})" for alias, each in sorted(self.aliases.items())]
            numbers = ", ".join(str(each.number) for each in self.versions)
            raise NotFound(
                f"model {self.name} has no version {which}; it has {numbers}"
                f"{' and the aliases ' if named else ', and no alias'}{', '.join(named)}"
            )
        return found


class CreateModel(ChangeRequest):
    """Create a model without a version."""

    path = "/models"
    answer: ClassVar[Any] = ModelView
    is_repeatable = False
    kind: Literal["create_model"] = "create_model"
    name: str
    description: Text = ""
    notes: Text = ""
    labels: Labels = []
    metadata: dict[str, Any] = {}


class OfModel(ChangeRequest):
    """A request about one model."""

    answer: ClassVar[Any] = ModelView
    model: str  # its name


class Details(Wire):
    """Changes of a model or of a version; None leaves a value unchanged."""

    name: Line | None = None
    notes: Text | None = None
    add_labels: Labels = []
    remove_labels: Labels = []
    add_metadata: dict[str, Any] = {}
    remove_metadata: Annotated[list[str], Field(max_length=1000)] = []


class EditModel(OfModel, Details):
    """Change what is stored of a model."""

    path = "/models/{model}/details"
    kind: Literal["edit_model"] = "edit_model"
    description: Text | None = None
    is_archived: StrictBool | None = None


class DeleteModel(OfModel):
    """Delete a model with its versions; their checkpoints stay."""

    path = "/models/{model}/delete"
    is_repeatable = False
    kind: Literal["delete_model"] = "delete_model"


class SetAlias(OfModel):
    """Give an alias to a version; the version that had it does not have it any more."""

    path = "/models/{model}/aliases"
    kind: Literal["set_alias"] = "set_alias"
    alias: str
    number: StrictWhole | None  # of the version; None removes the alias


class RegisterVersion(OfModel):
    """Make a checkpoint the next version of a model: it is not deleted while it is one."""

    path = "/models/{model}/versions"
    is_repeatable = False
    kind: Literal["register_version"] = "register_version"
    uuid: str
    name: Line = ""
    comment: Text = ""
    notes: Text = ""
    labels: Labels = []
    metadata: dict[str, Any] = {}
    aliases: Annotated[list[str], Field(max_length=100)] = []


class EditVersion(OfModel, Details):
    """Change what is stored of a version."""

    path = "/models/{model}/versions/{number}/details"
    kind: Literal["edit_version"] = "edit_version"
    number: Whole
    comment: Text | None = None


class DeleteVersion(OfModel):
    """Delete a version and its aliases; its checkpoint stays, and may be deleted."""

    path = "/models/{model}/versions/{number}/delete"
    is_repeatable = False
    kind: Literal["delete_version"] = "delete_version"
    number: Whole


AnyOfModel = EditModel | DeleteModel | SetAlias | RegisterVersion | EditVersion | DeleteVersion

"""Folders and files that another user prepared for us, or could replace, are not used.

The tests that run as root give things to a user who is not there, and so play that user.
"""

from __future__ import annotations

import os
import socket
import stat
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest

from det_jupyter.config import parse_config
from det_jupyter.contract.host import paths, socket_folders
from det_jupyter.contract.host.locks import take_lock
from det_jupyter.contract.host.socket_folders import socket_folder
from det_jupyter.errors import CaptureError, DetError
from det_jupyter.master.service.storing.store import Store

STRANGER = 54321
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return where the home is to be, in a folder that is ours."""
    monkeypatch.setenv(paths.HOME_VARIABLE, str(tmp_path / "home"))
    return tmp_path / "home"


def note() -> Path:
    return paths.runtime_dir() / "agent.sockets"


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def give_away(path: Path) -> None:
    os.chown(path, STRANGER, STRANGER, follow_symlinks=False)


def assert_refused(*parts: str) -> None:
    with pytest.raises(DetError) as refusal:
        paths.data_dir()
    message = str(refusal.value)
    assert "\n" not in message
    for part in (
        *parts,
        f"set {paths.HOME_VARIABLE} to a folder of your own (~/det_jupyter, say)",
    ):
        assert part in message


def test_new_folders_are_ours_alone_whatever_the_umask_is(home: Path) -> None:
    before = os.umask(0)
    try:
        folders = [paths.runtime_dir(), paths.data_dir(), paths.log_dir()]
    finally:
        os.umask(before)
    assert [mode(folder) for folder in (home, *folders)] == [0o700] * 4


def test_a_folder_of_ours_that_others_may_read_is_made_private(home: Path) -> None:
    (home / "data").mkdir(parents=True)
    (home / "data").chmod(0o775)
    (home / "data" / "det.sqlite3").touch()
    assert mode(paths.data_dir()) == 0o700


def test_a_folder_that_was_opened_to_others_meanwhile_is_made_private_again(home: Path) -> None:
    paths.data_dir().chmod(0o755)
    assert mode(paths.data_dir()) == 0o700


def test_a_link_of_our_own_is_followed(home: Path, tmp_path: Path) -> None:
    home.mkdir()
    (tmp_path / "large disk").mkdir()
    (home / "data").symlink_to(tmp_path / "large disk")
    paths.data_dir()
    assert mode(tmp_path / "large disk") == 0o700


def test_a_home_in_which_anybody_can_replace_things_is_refused(home: Path) -> None:
    home.mkdir()
    home.chmod(0o777)
    assert_refused(f"every user of this computer can replace what is in {home}", "chmod o-w")
    home.chmod(0o1777)  # as /tmp is
    assert mode(paths.data_dir()) == 0o700


def test_what_only_its_owner_can_mend_is_not_asked_of_others(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home.mkdir()
    home.chmod(0o777)
    owner = home.stat().st_uid
    monkeypatch.setattr(os, "geteuid", lambda: owner + 1)
    assert_refused(f"every user of this computer can replace what is in {home}; set ")


@pytest.mark.parametrize("variables", [["HOME"], ["HOME", paths.HOME_VARIABLE]], ids="jd")
@pytest.mark.parametrize("is_anothers", [False, pytest.param(True, marks=as_root)])
def test_a_users_home_is_used_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, variables: list[str], is_anothers: bool
) -> None:
    """In containers it belongs to the user of the image, or everybody can write it."""
    for name in ("JUPYTER_DATA_DIR", "XDG_DATA_HOME", paths.HOME_VARIABLE):
        monkeypatch.delenv(name, raising=False)
    user = tmp_path / "all" / "user"
    (user / ".local").mkdir(parents=True)
    for name in variables:
        monkeypatch.setenv(name, str(user))
    for path in (user.parent, user):
        path.chmod(0o777)
    for path in (user, user / ".local") if is_anothers else ():
        give_away(path)
    assert paths.data_dir().is_relative_to(user)
    assert mode(paths.data_dir()) == 0o700
    (user / "open").mkdir()
    (user / "open").chmod(0o777)
    monkeypatch.setenv(paths.HOME_VARIABLE, str(user / "open"))
    assert_refused(f"every user of this computer can replace what is in {user / 'open'}")


def test_sockets_are_not_where_every_user_can_replace_their_folder(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with tempfile.TemporaryDirectory(prefix="t-", dir="/tmp") as temporary:
        monkeypatch.setattr(tempfile, "tempdir", temporary)
        Path(temporary).chmod(0o1777)
        with socket_folder(note()) as folder:
            assert folder.parent == Path(temporary)
        Path(temporary).chmod(0o777)
        with socket_folder(note()) as folder:
            assert folder.parent == Path("/tmp")
            assert mode(folder) == 0o700


def test_paths_of_sockets_are_short_though_tmpdir_is_long(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A path of 108 bytes or more cannot be a socket's: ranks had no kernels."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / ("long" * 40)))
    (tmp_path / ("long" * 40)).mkdir()
    with socket_folder(note()) as folder, socket.socket(socket.AF_UNIX) as deepest:
        deepest.bind(f"{folder}/12345-pymp-999-listener-12345678")
        assert mode(folder) == 0o700
    monkeypatch.setattr(socket_folders, "find_problem_above", lambda _: "others can replace it")
    monkeypatch.setenv(paths.HOME_VARIABLE, str(tmp_path / "home"))
    with socket_folder(note()) as folder:  # there is no good place
        assert folder.parent == paths.runtime_dir()
    assert "set TMPDIR to a folder whose path has at most 54 bytes" in caplog.text


def test_a_home_is_the_same_in_every_working_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv(paths.HOME_VARIABLE, "~/here")  # no shell has read it
    assert paths.data_dir() == tmp_path / "here" / "data"
    monkeypatch.setenv(paths.HOME_VARIABLE, "here")
    with pytest.raises(DetError, match=r"the folder here/data .* to an absolute path"):
        paths.data_dir()


def test_a_file_in_the_place_of_a_folder_is_refused(home: Path) -> None:
    home.mkdir()
    (home / "data").touch()
    assert_refused(f"{home / 'data'} is no folder")


@as_root
def test_a_folder_of_another_user_is_refused(home: Path) -> None:
    (home / "data").mkdir(parents=True, mode=0o700)
    give_away(home / "data")
    assert_refused(f"{home / 'data'} belongs to user {STRANGER}, not to user root")
    assert mode(home / "data") == 0o700


@as_root
def test_a_home_that_another_user_made_is_refused(home: Path) -> None:
    home.mkdir()
    home.chmod(0o1777)
    give_away(home)
    assert_refused(f"{home} belongs to user {STRANGER}, who could replace what we put there")
    assert not any(home.iterdir())


@as_root
@pytest.mark.parametrize("name", ["data", "."])
def test_a_link_of_another_user_is_not_followed(home: Path, tmp_path: Path, name: str) -> None:
    ours = tmp_path / "ours"
    (ours / "data").mkdir(parents=True, mode=0o755)
    if name == "data":
        home.mkdir()
    link = home / name if name == "data" else home
    link.symlink_to(ours)
    give_away(link)
    assert_refused(f"{link} is a link of user {STRANGER}")
    assert mode(ours / "data") == 0o755


@as_root
def test_what_others_left_in_a_folder_that_they_could_write_to_is_refused(home: Path) -> None:
    data = home / "data"
    data.mkdir(parents=True)
    data.chmod(0o777)
    (data / "det.sqlite3-wal").symlink_to("/etc/passwd")
    give_away(data / "det.sqlite3-wal")
    assert_refused("det.sqlite3-wal", f"is of user {STRANGER}", "rm -r")
    assert mode(data) == 0o700, "nobody adds to it"


@pytest.mark.parametrize(
    "use",
    [
        lambda path: take_lock(path, timeout_s=0),
        lambda path: paths.read_private(path),
        lambda path: open(path, "w", opener=paths.private_opener).close(),
        lambda path: Store(path),
    ],
    ids=["lock", "master.json", "log", "database"],
)
def test_our_files_are_no_links(use: Callable[[Path], object], tmp_path: Path) -> None:
    (tmp_path / "precious").write_text("as it was")
    (tmp_path / "file").symlink_to(tmp_path / "precious")
    with pytest.raises(DetError, match=r"file is a link; .*remove it"):
        use(tmp_path / "file")
    assert (tmp_path / "precious").read_text() == "as it was"


@as_root
def test_our_files_are_no_one_else_s(tmp_path: Path) -> None:
    (tmp_path / "master.json").write_text("{}")
    give_away(tmp_path / "master.json")
    with pytest.raises(DetError, match=f"belongs to user {STRANGER}, not to user root"):
        paths.read_private(tmp_path / "master.json")


def test_a_file_is_written_in_place_of_a_link_and_not_through_it(tmp_path: Path) -> None:
    (tmp_path / "precious").write_text("as it was")
    (tmp_path / "master.json").symlink_to(tmp_path / "precious")
    (tmp_path / f".master.json.{os.getpid()}").symlink_to(tmp_path / "precious")
    paths.write_private(tmp_path / "master.json", "new")
    assert (tmp_path / "precious").read_text() == "as it was"
    assert not (tmp_path / "master.json").is_symlink()
    assert paths.read_private(tmp_path / "master.json") == "new"


def test_a_folder_that_its_file_system_gave_away_is_refused_with_what_to_do(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home.mkdir()
    mkdir = Path.mkdir

    def mkdir_and_squash(path: Path, mode: int = 0o777, *, exist_ok: bool = False) -> None:
        mkdir(path, mode, exist_ok=exist_ok)
        monkeypatch.setattr(os, "geteuid", lambda: STRANGER)  # as if it were another one's now

    monkeypatch.setattr(Path, "mkdir", mkdir_and_squash)
    assert_refused("was made just now and is", "NFS with all_squash", "a disk of this computer")


@as_root
def test_a_folder_that_was_given_away_earlier_is_refused_with_what_to_do(home: Path) -> None:
    home.joinpath("data").mkdir(parents=True)
    os.chown(home / "data", 65534, 65534)
    assert_refused("belongs to user nobody, not to", "NFS with all_squash")


def test_a_user_without_a_home_is_told_so_in_a_sentence() -> None:
    pretend = f"""
import os, pwd, runpy, sys
for name in ("HOME", "{paths.HOME_VARIABLE}", "JUPYTER_RUNTIME_DIR", "JUPYTER_DATA_DIR",
             "XDG_DATA_HOME", "XDG_RUNTIME_DIR"):
    os.environ.pop(name, None)
pwd.getpwuid = {{}}.__getitem__  # no such user
ends = []
for verb in ("start", "stop", "status", "serve"):
    sys.argv = ["det_jupyter.master", verb]
    try:
        runpy.run_module("det_jupyter.master", run_name="__main__")
    except SystemExit as end:
        ends.append(end.code)
print(ends)
"""
    command = subprocess.run(
        [sys.executable, "-c", pretend], capture_output=True, text=True, check=False
    )
    told = (
        f"user {os.geteuid()} has no home folder: HOME is not set, and the system's list of users "
        f"does not have one; set {paths.HOME_VARIABLE} to the absolute path of a folder of your "
        "own"
    )
    assert command.stderr == 3 * f"{told}\n"
    assert command.stdout == f"{[1, 1, 1, told]}\n"  # Python prints a text as it ends


def test_a_folder_for_checkpoints_that_every_user_can_change_is_named(tmp_path: Path) -> None:
    from det_jupyter.client.submitting.submission import find_open_storage

    lab = tmp_path / "lab"
    lab.mkdir()
    searcher = {"name": "single", "metric": "loss", "max_length": 1}
    document = {"entrypoint": "Trial", "searcher": searcher}
    storage = {"checkpoint_storage": {"host_path": str(lab / "mine" / "runs")}}
    config = parse_config(document | storage, default_seed=1)
    lab.chmod(0o2775)  # a group's
    assert find_open_storage(config) == []
    assert find_open_storage(parse_config(document, default_seed=1)) == []
    lab.chmod(0o1777)  # as /tmp is
    assert find_open_storage(config) == []
    lab.chmod(0o777)
    (notice,) = find_open_storage(config)
    assert notice.startswith("checkpoint_storage: every user of this computer can replace ")
    assert notice.endswith(f"; if that is not wanted: chmod o-w {lab}")


@as_root
def test_a_master_does_not_start_in_a_home_that_another_user_prepared(
    home: Path, tmp_path: Path
) -> None:
    victim = tmp_path / "victim"
    victim.mkdir(mode=0o700)
    (victim / "master.json").write_text("as it was")
    (victim / "det.sqlite3").write_bytes(b"as it was")
    home.mkdir()
    for name in ("runtime", "data"):
        (home / name).symlink_to(victim)
        give_away(home / name)
    home.chmod(0o755)
    give_away(home)
    starter = subprocess.run(
        [sys.executable, "-m", "det_jupyter.master", "serve", "--no-agent"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert starter.returncode == 1
    assert starter.stderr.count("\n") == 1
    assert f"is a link of user {STRANGER}" in starter.stderr
    assert sorted(path.name for path in victim.iterdir()) == ["det.sqlite3", "master.json"]
    assert {path.read_text() for path in victim.iterdir()} == {"as it was"}


def test_a_notebook_in_a_folder_whose_name_is_not_utf_8_is_refused_in_a_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from det_jupyter.front.notebook.submit.caller import present_folder

    folder = tmp_path / os.fsdecode(b"caf\xe9")
    folder.mkdir()
    monkeypatch.chdir(folder)
    with pytest.raises(CaptureError, match=r"is not UTF-8: .*caf\\xe9'; rename it"):
        present_folder()

"""A real JupyterLab and a real Chromium."""

from __future__ import annotations

import json
import os
import secrets
import shutil
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from playwright.sync_api import Page, expect, sync_playwright

from det_jupyter.contract.host.ports import free_port
from tests.forks import Fork
from tests.waiting import StillError, wait_until

expect.set_options(timeout=300_000)  # Chromium is never quite idle

APPS = ("LabApp", "JupyterNotebookApp")
BASE_URL = "--ServerApp.base_url"
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or ""
_LOG_CHARS = 8000
FLAGS = [
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
    # Disable the emulated GPU, and the compilers that only help pages that are open for long: [m]
    # without these compilers, reloading a page of JupyterLab takes 12 % less CPU.
    "--disable-gpu-compositing", "--js-flags=--no-opt --no-maglev",
]  # fmt: skip

# Disables our server extension: then a notebook's views come from its kernel.
KERNELS_ALONE = ("--ServerApp.jpserver_extensions={'det_jupyter': False, 'jupyter_lsp': False}",)


Server = subprocess.Popen[bytes] | Fork


def start_server(
    options: Sequence[str], folder: Path, variables: Mapping[str, str]
) -> subprocess.Popen[bytes]:
    """Start JupyterLab as a user does; `folder` is for its log.

    jsonschema would compile a grammar of IRIs, which is never used: [m] this takes 2.1 of the
    3.8 s of CPU for a start and an end.
    """
    without = folder / ".without"
    without.mkdir(exist_ok=True)
    without.joinpath("rfc3987_syntax.py").write_text("raise ImportError")
    path = os.pathsep.join(filter(None, [str(without), os.environ.get("PYTHONPATH")]))
    with (folder / "lab.log").open("ab") as log:
        return subprocess.Popen(
            [sys.executable, "-X", "faulthandler", "-m", "jupyterlab", *options],
            stdout=log, stderr=log, env={**os.environ, **variables, "PYTHONPATH": path},
        )  # fmt: skip


@contextmanager
def jupyter_lab(
    folder: Path,
    *,
    port: int = 0,
    token: str = "",
    arguments: Sequence[str] = (),
    disabled: Sequence[str] = (),
    start: Callable[[Sequence[str], Path, Mapping[str, str]], Server] = start_server,
) -> Iterator[str]:
    """Run JupyterLab on `folder` during the block; yield its address, including the token.

    Args:
        folder: The folder that it serves; also contains its log and settings.
        port: The port; 0: any free port.
        token: The token; "": a random one.
        arguments: Further arguments of the server.
        disabled: Extensions of JupyterLab that pages do not load.
        start: Starts the server with these options, folder and environment variables.
    """
    port = port or free_port()
    token = token or secrets.token_hex(16)
    options = [
        "--no-browser", "--allow-root",
        f"--ServerApp.root_dir={folder}", f"--ServerApp.port={port}", "--ServerApp.port_retries=0",
        f"--IdentityProvider.token={token}",
        *(f"--{app}.user_settings_dir={folder / '.lab'}" for app in APPS),
        *(f"--{app}.workspaces_dir={folder / '.workspaces'}" for app in APPS),
        *(f"--{app}.expose_app_in_browser=True" for app in APPS),
        *arguments,
    ]  # fmt: skip
    quiet = folder / ".lab" / "@jupyterlab" / "apputils-extension"
    quiet.mkdir(parents=True, exist_ok=True)
    quiet.joinpath("notification.jupyterlab-settings").write_text('{"fetchNews": "false"}')
    # For each page that is loaded, Node would check whether JupyterLab has to be rebuilt.
    config = folder / ".config" / "labconfig"
    config.mkdir(parents=True, exist_ok=True)
    off = {f"@jupyterlab/{name}-extension": True for name in disabled}
    page_config = {"buildCheck": False, "disabledExtensions": off}
    config.joinpath("page_config.json").write_text(json.dumps(page_config))
    variables = {"JUPYTER_CONFIG_PATH": str(folder / ".config")}
    base = next((a.partition("=")[2] for a in arguments if a.startswith(BASE_URL)), "/")
    server = start(options, folder, variables)
    try:
        _wait_for(f"http://127.0.0.1:{port}{base}api?token={token}", server)
        yield f"http://127.0.0.1:{port}{base}lab/tree/{{path}}?token={token}"
    finally:
        server.terminate()
        _wait_for_end(server, folder / "lab.log")


def _wait_for_end(server: Server, log: Path) -> None:
    """Wait until the server has ended; on a timeout, kill it and print its stacks."""
    try:
        wait_until(lambda: server.poll() is not None, "JupyterLab has ended")
    except StillError as error:
        server.send_signal(signal.SIGABRT)  # faulthandler writes all stacks to the log
        server.wait()
        error.add_note(log.read_text(errors="replace")[-_LOG_CHARS:])
        raise


def _wait_for(url: str, server: Server) -> None:
    def answers() -> bool:
        assert server.poll() is None, "JupyterLab did not start; see lab.log"
        with suppress(OSError), urllib.request.urlopen(url, timeout=2):
            return True
        return False

    wait_until(answers, "JupyterLab answers")


@contextmanager
def chromium_page(width: int = 1400, height: int = 1000) -> Iterator[Page]:
    """Open a page in headless Chromium with an empty profile."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        page = browser.new_page(viewport={"width": width, "height": height})
        try:
            yield page
        finally:
            browser.close()

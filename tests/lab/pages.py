"""Our parts of JupyterLab for journeys: found by role, name and class, with their actions."""

from __future__ import annotations

from typing import Any

from playwright.sync_api import Locator, Page, expect

from tests.waiting import wait_until

# Unsaved changes are lost; the address becomes that of the workspace, without a file.
TIDY = """async () => {
  const { commands, shell } = window.jupyterapp;
  [...shell.widgets('main')].forEach(widget => widget.dispose());
  await commands.execute('filebrowser:activate');
  history.replaceState({}, '', location.pathname.replace(/[/]tree[/].*/, ''));
}"""

# A toast that is just appearing may miss the first click; all disappear after 15 s.
CLOSE_TOASTS = """() => {
  document.querySelectorAll('.jp-Notification-Toast-Close').forEach(button => button.click());
  return !document.querySelector('.Toastify__toast');
}"""


# The position of an element in the window.
EDGES = "element => element.getBoundingClientRect().toJSON()"

# Problems of our parts: roles where ARIA does not allow them, missing names, and references to
# missing elements. Hidden elements are skipped, as assistive technology skips them.
MISPLACED = """() => {
  const ours = `:is(.jp-DetSidebar, .jp-DetPage, .jp-DetPicker) `;
  const tags = {
    TABLE: 'table', THEAD: 'rowgroup', TBODY: 'rowgroup', TFOOT: 'rowgroup', TR: 'row',
    TD: 'cell', TH: 'cell', UL: 'list', OL: 'list', LI: 'listitem', BUTTON: 'button',
  };
  const wanted = {
    row: ['grid', 'table', 'treegrid', 'rowgroup'], rowgroup: ['grid', 'table', 'treegrid'],
    gridcell: ['row'], cell: ['row'], columnheader: ['row'], rowheader: ['row'],
    option: ['listbox'], tab: ['tablist'], listitem: ['list'], treeitem: ['tree', 'group'],
    menuitem: ['menu', 'menubar'],
  };
  const roleOf = element => element.getAttribute('role') || tags[element.tagName] || null;
  const said = element => element.outerHTML.slice(0, 120);
  const found = [];
  for (const element of document.querySelectorAll(ours + '*')) {
    if (!element.checkVisibility()) continue;
    const contexts = wanted[roleOf(element)];
    if (contexts) {
      let above = element.parentElement;
      while (above && [null, 'presentation', 'none'].includes(roleOf(above))) {
        above = above.parentElement;
      }
      if (!contexts.includes(above && roleOf(above))) {
        found.push(`${roleOf(element)} in ${above && roleOf(above)}: ${said(element)}`);
      }
    }
    for (const name of ['aria-activedescendant', 'aria-controls', 'aria-labelledby']) {
      const ids = (element.getAttribute(name) || '').split(' ').filter(Boolean);
      for (const id of ids) {
        if (!document.getElementById(id)) found.push(`${name} of ${id}: ${said(element)}`);
      }
    }
    if (roleOf(element) === 'button' && !element.getAttribute('aria-label')
        && !element.textContent.trim() && !element.title) {
      found.push(`no name: ${said(element)}`);
    }
  }
  return found;
}"""


class LabPage:
    """A tab of the browser with JupyterLab in it."""

    def __init__(self, page: Page) -> None:
        self.page = page
        # JupyterLab's own dialog about a server that does not answer would cover ours.
        page.add_locator_handler(
            page.locator(".jp-Dialog", has_text="Server Connection Error"),
            lambda dialog: dialog.get_by_role("button", name="Close").click(),
        )
        self.sidebar = Sidebar(self)
        self.status = page.locator(".jp-DetStatus-button")
        self.notebook = Notebook(self)

    def open(self, url: str) -> None:
        """Open an address and wait until JupyterLab is ready."""
        self.page.goto(url)
        self.wait_until_ready()

    def reload(self) -> None:
        """Reload the tab, and wait until JupyterLab is ready again."""
        self.page.reload()
        self.wait_until_ready()

    def is_at(self, root: str) -> bool:
        """Whether the tab shows the JupyterLab of this address."""
        return self.page.url.startswith(f"{root}lab/workspaces/")

    def tidy(self) -> None:
        """Close everything that a journey has opened; restore the state after the start."""
        self.page.emulate_media(forced_colors="none", reduced_motion="reduce")
        self.page.mouse.move(0, 0)
        self.page.evaluate(TIDY)
        self.page.wait_for_function(CLOSE_TOASTS, polling=100)

    def wait_until_ready(self) -> None:
        """Wait until the layout is restored."""
        self.page.wait_for_function("window.jupyterapp && window.jupyterapp.restored")
        self.page.evaluate("async () => { await window.jupyterapp.restored; }")
        # The browser's own menu, where JupyterLab has none, would hold all that follows.
        self.page.evaluate("addEventListener('contextmenu', event => event.preventDefault())")

    def run(self, command: str, **arguments: Any) -> Any:
        """Execute a command and wait until it is done."""
        return self.page.evaluate(
            "async ([id, args]) => { await window.jupyterapp.commands.execute(id, args); }",
            [command, arguments],
        )

    def begin(self, command: str, **arguments: Any) -> None:
        """Execute a command without waiting for its end, as it asks the user a question."""
        self.page.evaluate(
            "([id, args]) => { void window.jupyterapp.commands.execute(id, args); }",
            [command, arguments],
        )

    def palette(self, label: str) -> None:
        """Choose a command in the palette."""
        self.run("apputils:activate-command-palette")
        box = self.page.locator("#modal-command-palette")
        box.locator("input").fill(label)
        box.locator(".lm-CommandPalette-item", has_text=label).first.click()

    def menu(self, target: Locator, label: str) -> None:
        """Choose an entry of an element's context menu; the element may just move."""
        entry = self.page.locator(".lm-Menu-item", has_text=label).first

        def is_open() -> bool:
            self.page.keyboard.press("Escape")  # closes the menu of another element
            target.click(button="right")
            return entry.is_visible()

        wait_until(is_open, f"the menu has {label}")
        entry.click()

    @property
    def dialog(self) -> Locator:
        """The open dialog of JupyterLab."""
        return self.page.locator(".jp-Dialog")

    @property
    def toasts(self) -> Locator:
        """The notifications that are shown."""
        return self.page.locator(".Toastify__toast")

    def misplaced(self) -> list[str]:
        """Return the elements of our parts that assistive technology could not interpret."""
        found: list[str] = self.page.evaluate(MISPLACED)
        return found

    def experiment(self, experiment_id: int) -> ExperimentPage:
        """Return the page of an experiment in the main area."""
        return ExperimentPage(self, experiment_id)

    @property
    def comparison(self) -> Locator:
        """The comparison in the foreground."""
        return self.page.locator(".jp-DetComparisonPage:visible")

    def set(self, **values: Any) -> None:
        """Change settings, as the settings editor does."""
        self.page.evaluate(
            """async values => {
                const plugins = window.jupyterapp.pluginRegistry._plugins;
                const registry = plugins.get('@jupyterlab/apputils-extension:settings').service;
                for (const [key, value] of Object.entries(values)) {
                  await registry.set('det-jupyter:settings', key, value);
                }
            }""",
            values,
        )

    @property
    def link_banner(self) -> Locator:
        """The banner about a problem with the connection."""
        return self.page.locator(".jp-DetLinkBanner:visible").first


class Sidebar:
    """The panel on the left."""

    def __init__(self, lab: LabPage) -> None:
        self._lab = lab
        self.node = lab.page.locator(".jp-DetSidebar")
        self.slots = self.node.locator(".det-slot-row, .det-tile")
        self.active = self.node.locator(".det-row.det-mod-active")
        self.ended = self.node.locator(".det-row.det-mod-ended")
        self.search = self.node.get_by_role("searchbox")

    def open(self) -> Sidebar:
        """Show the sidebar."""
        self._lab.run("det:show-sidebar")
        expect(self.node).to_be_visible()
        return self

    def height(self, section: str) -> float:
        """Return the height of a section below its header."""
        node = self.node.locator(f"#det-jupyter-sidebar-{section}")
        return float(node.evaluate("node => node.getBoundingClientRect().height"))

    def cut_titles(self) -> list[str]:
        """Return the titles of sections that do not fit into their headers."""
        titles = self.node.locator(".lm-AccordionPanel-titleLabel")
        cut: list[str] = titles.evaluate_all(
            """titles => titles.filter(title => title.scrollWidth > title.clientWidth)
              .map(title => title.textContent)"""
        )
        return cut

    def row(self, experiment_id: int) -> Locator:
        """Return the row of an experiment."""
        return self.node.locator(f".det-row[data-experiment-id='{experiment_id}']:visible")

    def names(self) -> list[str]:
        """Return the names of the finished experiments that are drawn, from top to bottom."""
        rows = self.ended.evaluate_all(
            """rows => rows
              .map(row => [row.getBoundingClientRect().top, row.querySelector('.det-row-name')])
              .sort((a, b) => a[0] - b[0]).map(([, name]) => name.textContent)"""
        )
        return list(rows)


class ExperimentPage:
    """An experiment's page in the main area."""

    def __init__(self, lab: LabPage, experiment_id: int) -> None:
        self._lab = lab
        self.node = lab.page.locator(
            f".jp-DetExperimentPage[data-det-experiment='{experiment_id}']"
        )
        self.view = self.node.locator(".det-view")
        self.badge = self.view.locator(".det-badge").first

    def tab(self, name: str) -> Locator:
        """Return a tab."""
        return self.view.get_by_role("tab", name=name)

    @property
    def panel(self) -> Locator:
        """The panel of the tab that is open."""
        return self.view.locator("[role=tabpanel]:not([hidden])")


class Notebook:
    """The notebook in the foreground."""

    def __init__(self, lab: LabPage) -> None:
        self._lab = lab
        self.node = lab.page.locator(".jp-NotebookPanel:visible")
        self.cells = self.node.locator(".jp-Cell")
        self.views = self.node.locator(".det-view")

    def wait(self) -> None:
        """Wait until the kernel is ready."""
        expect(self.cells.first).to_be_visible()
        self._lab.page.evaluate(
            """async () => {
                const context = window.jupyterapp.shell.currentWidget.sessionContext;
                await context.ready;
                await context.session?.kernel?.info;
            }"""
        )

    def see(self, index: int) -> Locator:
        """Scroll a cell into the window, as cells below it are not drawn; return the cell."""
        cell = self.node.locator(f".jp-Cell[data-windowed-list-index='{index}']")
        self._lab.page.wait_for_function(
            """i => {
              const notebook = window.jupyterapp?.shell.currentWidget?.content;
              notebook?.scrollToItem?.(i, 'start');
              const cell = notebook?.widgets?.[i];
              return cell?.node.isConnected && cell.node.checkVisibility();
            }""",
            arg=index,
            polling=200,
        )
        return cell

    def choose(self, index: int) -> None:
        """Make a cell the active one."""
        self._lab.page.evaluate(
            "i => { window.jupyterapp.shell.currentWidget.content.activeCellIndex = i; }", index
        )

    def run_all(self) -> None:
        """Run all cells with the menu; returns at once."""
        self._lab.begin("notebook:run-all-cells")

    def save(self) -> None:
        """Save the notebook."""
        self._lab.run("docmanager:save")

/** The plugin of the sidebar: makes the panel and adds it to the shell. */
import {
  ILayoutRestorer,
  ILabShell,
  type JupyterFrontEnd,
  type JupyterFrontEndPlugin
} from '@jupyterlab/application';
import { Dialog, Notification, showDialog } from '@jupyterlab/apputils';
import { INotebookTracker } from '@jupyterlab/notebook';
import { IStateDB } from '@jupyterlab/statedb';

import { noteMenuOf } from '../focusback.js';
import { Commands, IDetJupyter } from '../tokens.js';
import { insertCell, newCellBelow } from './cells.js';
import { Contents } from './contents.js';
import { Operations } from './operations.js';
import { makeDraggable } from './drag.js';
import { emptyTexts } from './empty.js';
import { Models } from './models.js';
import { Memory } from './sidebarstate.js';
import { SidebarPanel } from './sidebarpanel.js';
import { contentHeight, Section } from './sidebarsection.js';
import { Templates } from './templates.js';
import { sidebarIcon } from './icon.js';

const RANK = 550; // 501 to 899 are for third-party extensions

const sidebar: JupyterFrontEndPlugin<void> = {
  id: 'det-jupyter:sidebar',
  description: 'Slots, experiments, models and templates in the left sidebar.',
  autoStart: true,
  requires: [IDetJupyter],
  optional: [ILayoutRestorer, ILabShell, IStateDB, INotebookTracker],
  activate: (
    app: JupyterFrontEnd,
    det: IDetJupyter,
    restorer: ILayoutRestorer | null,
    labShell: ILabShell | null,
    state: IStateDB | null,
    notebooks: INotebookTracker | null
  ) => {
    const panel = makePanel(app, det, new Memory(state), notebooks);
    keepFocus(app, panel.node);
    restorer?.add(panel, 'det-jupyter-sidebar');
    app.shell.add(panel, 'left', { rank: RANK, type: 'det_jupyter' });
    app.commands.addCommand(Commands.showSidebar, {
      label: det.trans.__('Show Slots and Experiments'),
      caption: det.trans.__('Show the panel with slots, experiments, models and templates'),
      icon: sidebarIcon,
      describedBy: { args: { type: 'object', properties: {}, additionalProperties: false } },
      execute: () => {
        app.shell.activateById(panel.id);
        labShell?.expandLeft();
      }
    });
  }
};

function makePanel(
  app: JupyterFrontEnd,
  det: IDetJupyter,
  memory: Memory,
  notebooks: INotebookTracker | null
): SidebarPanel {
  const { trans, settings } = det;
  const operations = new Operations(det, app.commands);
  const insert = async (wanted: Parameters<typeof insertCell>[0]): Promise<void> => {
    if (notebooks !== null) {
      await insertCell(wanted, notebooks, app.commands);
    }
  };
  const texts = emptyTexts(trans, {
    newCell: () => settings.get('newCell'),
    insertNew: () => void insert(newCellBelow(det)),
    insert: source => void insert(source)
  });
  const contents = new Contents(det, operations, memory, texts);
  const templates = new Templates(trans, det.api, {
    use: template => insert(newCellBelow(det, template)),
    mayDelete: async name => {
      const answer = await showDialog({
        title: trans.__('Delete template %1?', name),
        body: trans.__('Experiments that were made with it keep their configuration.'),
        buttons: [
          Dialog.cancelButton({ label: trans.__('Cancel') }),
          Dialog.warnButton({ label: trans.__('Delete') })
        ]
      });
      return answer.button.accept;
    },
    mayWrite: () => det.link.mayWrite,
    onRead: (count, problem) => {
      panel.setCount(section, problem === '' ? String(count) : '');
      section.showEmpty(
        problem !== '' ? { text: problem } : count === 0 ? texts.noTemplates() : null
      );
    },
    say: problem => void Notification.error(problem)
  });
  const section = new Section('templates', trans.__('Templates'), isSeen => {
    if (isSeen) {
      void templates.read();
    }
  });
  section.body.append(templates.node);
  section.bodyHeight = () => contentHeight(templates.node);
  templates.node.addEventListener('toggle', () => section.onNeed(), { capture: true });
  const models = new Models(trans, id => {
    void app.commands.execute(Commands.openModel, { model_id: id });
  });
  const modelSection = new Section('models', trans.__('Models'), () => undefined);
  modelSection.body.append(models.node);
  modelSection.bodyHeight = () => contentHeight(models.node);
  modelSection.showEmpty({ text: '' }); // its header suffices
  const followed = det.socket.follow('models', {}, list => {
    const count = models.update(list.models);
    panel.setCount(modelSection, count > 0 ? String(count) : trans.__('none'));
    modelSection.showEmpty(count > 0 ? null : { text: '' });
  });
  const { slots, active, ended } = contents;
  const sections = [slots, active, ended, modelSection, section];
  const panel = new SidebarPanel(det, sections, sections.indexOf(ended), memory);
  contents.setCount = (of, text, tooltip) => panel.setCount(of, text, tooltip);
  panel.disposed.connect(() => {
    contents.dispose();
    followed.dispose();
  });
  panel.title.icon = sidebarIcon;
  panel.title.caption = trans.__('Slots and Experiments');
  panel.node.setAttribute('role', 'region');
  panel.node.setAttribute('aria-label', trans.__('Slots and Experiments'));
  const places = { trans, notebook: () => notebooks?.currentWidget ?? null };
  // Not awaited: the database is ready only after all plugins have been activated.
  void memory.read().then(() => {
    panel.restore();
    contents.restore();
  });
  for (const { list } of [contents.activeList, contents.endedList]) {
    makeDraggable(list.node, element => list.dragged(element), places);
  }
  return panel;
}

export const sidebarPlugins: JupyterFrontEndPlugin<unknown>[] = [sidebar];

/**
 * Restores the focus after a context menu: JupyterLab leaves it on the body. In a list, to the list:
 * a button of a row may be drawn anew while the menu, or a dialog after it, is open.
 */
export function keepFocus(app: Pick<JupyterFrontEnd, 'contextMenu'>, node: HTMLElement): void {
  let before: HTMLElement | null = null;
  node.addEventListener(
    'contextmenu',
    ({ target }) => {
      const { activeElement } = document;
      const list = target instanceof Element ? target.closest<HTMLElement>('.det-list') : null;
      const isOurs = activeElement instanceof HTMLElement && node.contains(activeElement);
      before = list ?? (isOurs ? activeElement : null);
    },
    { capture: true }
  );
  app.contextMenu.menu.aboutToClose.connect(() => {
    before?.focus({ preventScroll: true });
    noteMenuOf(before);
    before = null;
  });
}

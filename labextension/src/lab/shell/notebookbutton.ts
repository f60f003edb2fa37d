/** "Run this cell as an experiment": a button in the notebook's toolbar, a menu entry, a shortcut. */
import type { JupyterFrontEnd, JupyterFrontEndPlugin } from '@jupyterlab/application';
import { Notification } from '@jupyterlab/apputils';
import { INotebookTracker, type Notebook, type NotebookPanel } from '@jupyterlab/notebook';
import type { Kernel } from '@jupyterlab/services';

import { Commands, IDetJupyter } from '../tokens.js';
import { codeUpTo, newCell, newCellBelow } from '../sidebar/cells.js';
import { classify, isExperimentOf, MAGIC } from '../sidebar/cellkinds.js';
import { runCellIcon } from './shellicons.js';

/** Loads the extension unless it is loaded. */
const LOAD = "get_ipython().extension_manager.load_extension('det_jupyter')";

export const notebookButtonPlugin: JupyterFrontEndPlugin<void> = {
  id: 'det-jupyter:notebook-button',
  description: 'Runs the cell of a notebook as an experiment.',
  autoStart: true,
  requires: [IDetJupyter],
  optional: [INotebookTracker],
  activate: (app: JupyterFrontEnd, det: IDetJupyter, tracker: INotebookTracker | null) => {
    if (tracker === null) {
      return;
    }
    const { trans, settings } = det;
    const runner = new CellRunner(app, det);
    app.commands.addCommand(Commands.runCell, {
      label: args => (args.toolbar === true ? '' : trans.__('Run Cell as Experiment')),
      caption: trans.__('Run this cell as an experiment'),
      icon: runCellIcon,
      // The toolbar is drawn before its notebook becomes the current one.
      isEnabled: args =>
        tracker.currentWidget === null ? args.toolbar === true : isPython(tracker.currentWidget),
      isVisible: args => args.toolbar !== true || settings.get('showNotebookButton'),
      execute: async () => {
        const panel = tracker.currentWidget;
        return panel === null ? false : runner.run(panel);
      },
      describedBy: {
        args: {
          type: 'object',
          properties: {
            toolbar: { type: 'boolean', description: trans.__('It is the button of a toolbar') }
          }
        }
      }
    });
    const changed = (): void => app.commands.notifyCommandChanged(Commands.runCell);
    settings.changed.connect(changed);
    tracker.currentChanged.connect((_, panel) => {
      changed();
      void panel?.sessionContext.ready.then(changed); // the kernel's language is available then
    });
  }
};

/** Whether a notebook's language is Python, or not known yet. */
function isPython(panel: NotebookPanel): boolean {
  const language = panel.content.model?.getMetadata('language_info') as
    { name?: string } | undefined;
  return /^(i?python)?$/.test(language?.name ?? '');
}

type Cell = Notebook['widgets'][number];

/** Turns a cell into an experiment; runs it if it is one. */
export class CellRunner {
  constructor(
    private readonly _app: Pick<JupyterFrontEnd, 'commands'>,
    private readonly _det: Pick<IDetJupyter, 'api' | 'settings' | 'trans'>
  ) {}

  /** Returns whether there was an active cell. */
  async run(panel: NotebookPanel): Promise<boolean> {
    const cell = panel.content.activeCell;
    if (cell === null) {
      return false;
    }
    const source = cell.model.sharedModel.getSource();
    const found = classify(source);
    if (found.kind === 'code' || cell.model.type === 'markdown') {
      await this._addBelow(panel, cell, found.kind === 'code' ? found.entrypoint : null);
      return true;
    }
    if (found.kind === 'empty') {
      const written = await newCellBelow(this._det)(this._upTo(panel.content, cell));
      if (!cell.isDisposed && cell.model.sharedModel.getSource() === source) {
        cell.model.sharedModel.setSource(written);
        panel.content.mode = 'edit';
      }
      return true;
    }
    if (cell.model.type !== 'code') {
      await this._app.commands.execute('notebook:change-cell-to-code');
    }
    if (found.kind === 'configuration') {
      panel.content.activeCell?.model.sharedModel.setSource(`${MAGIC}\n${source.trimStart()}`);
    }
    this._load(panel.sessionContext.session?.kernel ?? null);
    await this._app.commands.execute('notebook:run-cell');
    return true;
  }

  private _upTo(notebook: Notebook, cell: Cell): string[] {
    return codeUpTo(notebook, notebook.widgets.indexOf(cell));
  }

  /** Insert an experiment of the entrypoint below the cell, unless it is there already. */
  private async _addBelow(
    panel: NotebookPanel,
    cell: Cell,
    entrypoint: string | null
  ): Promise<void> {
    const notebook = panel.content;
    const written = await newCell(this._det, entrypoint, this._upTo(notebook, cell));
    if (panel.isDisposed || cell.isDisposed) {
      return;
    }
    const below = notebook.widgets.indexOf(cell) + 1;
    const next = notebook.widgets[below]?.model.sharedModel.getSource() ?? '';
    if (entrypoint === null || !isExperimentOf(next, entrypoint)) {
      notebook.model?.sharedModel.insertCell(below, {
        cell_type: 'code',
        source: written
      });
    }
    notebook.activeCellIndex = below;
    notebook.deselectAll();
    notebook.mode = 'edit';
  }

  /**
   * Load the extension in the kernel, without a cell. Kernels run requests in order, so that the cell
   * which is sent next finds it.
   */
  private _load(kernel: Kernel.IKernelConnection | null): void {
    if (kernel === null || this._loaded.get(kernel) === kernel.id) {
      return; // JupyterLab asks for a kernel when the cell is run
    }
    const request = kernel.requestExecute({ code: LOAD, silent: true, store_history: false });
    this._loaded.set(kernel, kernel.id);
    kernel.statusChanged.connect(this._forget, this);
    void request.done.then(
      reply => {
        if (reply.content.status === 'error') {
          this._loaded.delete(kernel);
          this._sayMissing();
        }
      },
      () => this._loaded.delete(kernel) // restarted meanwhile
    );
  }

  /** A restarted kernel has nothing loaded. */
  private _forget(kernel: Kernel.IKernelConnection, status: Kernel.Status): void {
    if (/restarting|dead|terminating/.test(status)) {
      this._loaded.delete(kernel);
      kernel.statusChanged.disconnect(this._forget, this);
    }
  }

  private _sayMissing(): void {
    const { trans } = this._det;
    Notification.error(
      trans.__(
        'This kernel cannot load det_jupyter. Run %1 in the notebook, then restart the kernel.',
        '%pip install det-jupyter'
      )
    );
  }

  private readonly _loaded = new WeakMap<Kernel.IKernelConnection, string>();
}

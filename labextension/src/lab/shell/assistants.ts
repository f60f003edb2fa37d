/**
 * Questions of assistants (`det mcp`) whether they may change something: a dialog in each tab.
 *
 * They come as Jupyter events (front/jupyter_server/questions.py); the first answer counts, and
 * closes the dialogs of the other tabs.
 */
import type { JupyterFrontEnd, JupyterFrontEndPlugin } from '@jupyterlab/application';
import { Dialog } from '@jupyterlab/apputils';
import type { Event } from '@jupyterlab/services';
import { Widget } from '@lumino/widgets';

import { IDetJupyter } from '../tokens.js';

const SCHEMA_ID = 'https://github.com/det-jupyter/det_jupyter/events/question';

export const assistantsPlugin: JupyterFrontEndPlugin<void> = {
  id: 'det-jupyter:assistants',
  description: 'Asks whether an assistant may change something.',
  autoStart: true,
  requires: [IDetJupyter],
  activate: (app: JupyterFrontEnd, det: IDetJupyter) => {
    const questions = new Questions(det);
    app.serviceManager.events.stream.connect((_, event) => questions.take(event));
  }
};

/** The questions that are open, each with its dialog. */
export class Questions {
  constructor(private readonly _det: Pick<IDetJupyter, 'api' | 'trans'>) {}

  /** Take an event: a question, or one without a title when a question is over. */
  take(event: Event.Emission): void {
    if (event.schema_id !== SCHEMA_ID) {
      return;
    }
    const { id, title, text } = event as unknown as { id: string; title: string; text: string };
    if (title !== '') {
      void this._ask(id, title, text);
      return;
    }
    const dialog = this._open.get(id);
    this._open.delete(id);
    dialog?.reject();
  }

  private async _ask(id: string, title: string, text: string): Promise<void> {
    const { trans } = this._det;
    const body = new Widget();
    body.node.style.whiteSpace = 'pre-wrap';
    body.node.textContent = text;
    const dialog = new Dialog({
      title,
      body,
      buttons: [
        Dialog.cancelButton({ label: trans.__('No') }),
        Dialog.warnButton({ label: trans.__('Yes') })
      ],
      defaultButton: 0 // the dialog may appear while the user types
    });
    this._open.set(id, dialog);
    void this._tell(id, 'shown');
    const { button } = await dialog.launch();
    if (this._open.delete(id)) {
      await this._tell(id, button.accept ? 'yes' : 'no');
    }
  }

  private async _tell(id: string, answer: string): Promise<void> {
    try {
      await this._det.api.put(`questions/${id}`, { answer });
    } catch {
      // It is over: another tab has answered, or the assistant does not wait any more.
    }
  }

  private readonly _open = new Map<string, Dialog<unknown>>();
}

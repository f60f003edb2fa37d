/** Updates the pictures of experiments in open notebooks, so that the final one is saved. */
import type { INotebookTracker } from '@jupyterlab/notebook';

import { keptIn, putPicture, type IOutputs } from '../../host.js';
import type { ISocket } from '../tokens.js';
import { MIME } from './mime.js';
import type { IKeptAnswer } from '../../model/answers.js';

/** The part of the notebook tracker that is used. */
export interface INotebooks {
  forEach(each: (panel: INotebookPanel) => void): void;
}

interface INotebookPanel {
  content: { model: { cells: Iterable<unknown> } | null };
}

export class SavedPictures {
  constructor(
    private readonly _socket: ISocket,
    private readonly _notebooks: INotebookTracker | INotebooks | null
  ) {}

  /**
   * Put the final picture of an experiment into the notebooks that show an older one.
   *
   * A kernel that follows it does so too, but may have ended or be busy.
   */
  async finish(key: string, experimentId: number, status: string): Promise<void> {
    if (!this._outputs().some(outputs => isOlder(outputs, key, status))) {
      return;
    }
    try {
      const answer = await this._socket.ask<IKeptAnswer>(experimentId, 'kept', {});
      this._outputs()
        .filter(outputs => isOlder(outputs, key, status))
        .forEach(outputs => putPicture(outputs, key, answer.kept));
    } catch (error) {
      console.warn(`det_jupyter: no picture of experiment ${experimentId}`, error);
    }
  }

  private _outputs(): IOutputs[] {
    const found: IOutputs[] = [];
    this._notebooks?.forEach((panel: INotebookPanel) => {
      for (const cell of panel.content.model?.cells ?? []) {
        const { outputs } = cell as { outputs?: IOutputs };
        if (outputs !== undefined) {
          found.push(outputs);
        }
      }
    });
    return found;
  }
}

function isOlder(outputs: IOutputs, key: string, status: string): boolean {
  for (let i = 0; i < outputs.length; i++) {
    const { data } = outputs.get(i);
    if (keptIn(data, key) !== undefined) {
      const own = data[MIME] as { status?: unknown } | undefined;
      if (own?.status !== status) {
        return true;
      }
    }
  }
  return false;
}

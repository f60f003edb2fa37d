/** Updates the pictures of experiments in open notebooks, so that the final one is saved. */
import { keptIn, putPicture, type IOutputs } from '../../host.js';
import type { IKeptAnswer } from '../../model/answers.js';
import type { ISocket } from '../tokens.js';
import { MIME } from './mime.js';
import type { OpenNotebooks } from './notebooks.js';

export class SavedPictures {
  constructor(
    private readonly _socket: ISocket,
    private readonly _notebooks: OpenNotebooks
  ) {}

  /**
   * Put the final picture of an experiment into the notebooks that show an older one.
   *
   * A kernel that follows it does so too, but may have ended or be busy.
   */
  async finish(key: string, experimentId: number, status: string): Promise<void> {
    if (!this._notebooks.outputs().some(outputs => isOlder(outputs, key, status))) {
      return;
    }
    try {
      const answer = await this._socket.ask<IKeptAnswer>(experimentId, 'kept', {});
      this._notebooks
        .outputs()
        .filter(outputs => isOlder(outputs, key, status))
        .forEach(outputs => putPicture(outputs, key, answer.kept));
    } catch (error) {
      console.warn(`det_jupyter: no picture of experiment ${experimentId}`, error);
    }
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

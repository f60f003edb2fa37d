/** Requests for printed lines, to the kernel, and its answers matched to them. */
import type { AnyModel } from '@anywidget/types';

import { persist } from '../model/persist.js';
import type { AskLogs, ILogPage } from './lines.js';

interface IAnswer extends ILogPage {
  type: string; // 'logs'; other messages are not for us
  request: string;
  error: string;
}

interface IWaiting {
  resolve: (page: ILogPage) => void;
  reject: (reason: Error) => void;
}

export class LogRequests {
  constructor(private readonly _model: Pick<AnyModel, 'on' | 'off' | 'send'>) {
    _model.on('msg:custom', this._onAnswer);
  }

  readonly ask: AskLogs = query =>
    new Promise((resolve, reject) => {
      const request = `${this._name}.${++this._last}`;
      this._waiting.set(request, { resolve, reject });
      persist(
        () => this._model.send({ type: 'logs', request, ...query }),
        () => !this._waiting.has(request)
      );
    });

  dispose(): void {
    this._model.off('msg:custom', this._onAnswer);
    this._waiting.clear();
  }

  private readonly _onAnswer = (message: IAnswer): void => {
    if (message.type !== 'logs') {
      return;
    }
    const waiting = this._waiting.get(message.request);
    this._waiting.delete(message.request);
    if (message.error) {
      waiting?.reject(new Error(message.error));
    } else {
      waiting?.resolve(message);
    }
  };

  private readonly _waiting = new Map<string, IWaiting>();
  /** The kernel's answers come to all views of the model, in every window. */
  private readonly _name = Math.random().toString(36).slice(2);
  private _last = 0;
}

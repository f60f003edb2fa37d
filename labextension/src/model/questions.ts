/**
 * Sends questions to the kernel and matches its answers.
 *
 *     {type, request, ...fields}   ->   {type, request, error, ...answer}
 */
import type { AnyModel } from '@anywidget/types';

import { persist } from './persist.js';

/** Sends a question of a type; rejects with a message for the user. */
export type Ask = <T>(type: string, fields: object) => Promise<T>;

interface IAnswer {
  type: string;
  request?: string;
  error: string;
}

interface IWaiting {
  resolve: (answer: never) => void;
  reject: (reason: Error) => void;
}

export class Questions {
  constructor(private readonly _model: Pick<AnyModel, 'on' | 'off' | 'send'>) {
    _model.on('msg:custom', this._onAnswer);
  }

  readonly ask: Ask = (type, fields) =>
    new Promise((resolve, reject) => {
      const request = `${this._name}.${++this._last}`;
      this._waiting.set(request, { resolve, reject });
      persist(
        () => this._model.send({ type, request, ...fields }),
        () => !this._waiting.has(request)
      );
    });

  dispose(): void {
    this._model.off('msg:custom', this._onAnswer);
    this._waiting.clear();
  }

  private readonly _onAnswer = (message: IAnswer): void => {
    const waiting = this._waiting.get(message.request ?? '');
    if (waiting === undefined) {
      return; // the answer of another view, or another message
    }
    this._waiting.delete(message.request ?? '');
    if (message.error) {
      waiting.reject(new Error(message.error));
    } else {
      waiting.resolve(message as never);
    }
  };

  private readonly _waiting = new Map<string, IWaiting>();
  /** A unique prefix of requests: answers are sent to all views of the model, in every window. */
  private readonly _name = Math.random().toString(36).slice(2);
  private _last = 0;
}

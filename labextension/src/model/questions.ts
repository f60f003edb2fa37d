/** Questions of one type to the kernel, and its answers matched to them. */
import type { AnyModel } from '@anywidget/types';

import { persist } from './persist.js';

/** What every answer has beside what was asked for. */
interface IAnswer {
  type: string; // that of the question; other messages are not for us
  request: string;
  error: string;
}

interface IWaiting<Answer> {
  resolve: (answer: Answer) => void;
  reject: (reason: Error) => void;
}

export class Questions<Question extends object, Answer> {
  constructor(
    private readonly _model: Pick<AnyModel, 'on' | 'off' | 'send'>,
    private readonly _type: string
  ) {
    _model.on('msg:custom', this._onAnswer);
  }

  /** Rejects with a reason for people. */
  readonly ask = (question: Question): Promise<Answer> =>
    new Promise((resolve, reject) => {
      const request = `${this._name}.${++this._last}`;
      this._waiting.set(request, { resolve, reject });
      persist(
        () => this._model.send({ type: this._type, request, ...question }),
        () => !this._waiting.has(request)
      );
    });

  dispose(): void {
    this._model.off('msg:custom', this._onAnswer);
    this._waiting.clear();
  }

  private readonly _onAnswer = (message: IAnswer & Answer): void => {
    if (message.type !== this._type) {
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

  private readonly _waiting = new Map<string, IWaiting<Answer>>();
  /** The kernel's answers come to all views of the model, in every window. */
  private readonly _name = Math.random().toString(36).slice(2);
  private _last = 0;
}

/** Questions without an answer yet; answers come in any order. */
import type { ITrans } from '../../model/trans.js';
import type { Outgoing } from './readerframes.js';

const ANSWER_MS = 60_000;

interface IQuestion {
  frame: Outgoing;
  isSent: boolean;
  resolve: (data: unknown) => void;
  reject: (error: Error) => void;
  timer: ReturnType<typeof setTimeout>;
}

export class Questions {
  constructor(private readonly _trans: ITrans) {}

  /** Returns the answer's data; rejects with a sentence. */
  ask<T>(id: number, frame: Outgoing): Promise<T> {
    return new Promise<unknown>((resolve, reject) => {
      const late = this._trans.__('The server has not answered within a minute: ask again.');
      const timer = setTimeout(() => this.answer(id, late, null), ANSWER_MS);
      this._waiting.set(id, { frame, isSent: false, resolve, reject, timer });
    }) as Promise<T>;
  }

  /** Send the questions that have not been sent. */
  send(send: (frame: Outgoing) => void): void {
    for (const question of this._waiting.values()) {
      if (!question.isSent) {
        question.isSent = true;
        send(question.frame);
      }
    }
  }

  answer(id: number, error: string, data: unknown): void {
    const question = this._waiting.get(id);
    if (question === undefined) {
      return; // the question was rejected before
    }
    this._waiting.delete(id);
    clearTimeout(question.timer);
    if (error === '') {
      question.resolve(data);
    } else {
      question.reject(new Error(error));
    }
  }

  /** Reject all of them with this message. */
  reject(sentence: string): void {
    [...this._waiting.keys()].forEach(id => this.answer(id, sentence, null));
  }

  private readonly _waiting = new Map<number, IQuestion>();
}

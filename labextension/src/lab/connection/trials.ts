/** Trials that hold slots: one topic for all who follow it, while there are any. */
import { DisposableDelegate, type IDisposable } from '@lumino/disposable';

import type { ITrialLine } from '../../model/state.js';
import type { ISocket } from '../tokens.js';

type OnTrials = (trials: readonly ITrialLine[]) => void;

export class Trials {
  constructor(private readonly _socket: ISocket) {}

  follow(onNews: OnTrials): IDisposable {
    const follower: OnTrials = trials => onNews(trials); // one may follow twice
    this._followers.add(follower);
    if (this._followed === null) {
      this._followed = this._socket.follow('trials', {}, ({ trials }) => {
        this._trials = trials;
        [...this._followers].forEach(follower => follower(trials));
      });
    } else if (this._trials !== null) {
      follower(this._trials);
    }
    return new DisposableDelegate(() => this._leave(follower));
  }

  dispose(): void {
    [...this._followers].forEach(follower => this._leave(follower));
  }

  private _leave(follower: OnTrials): void {
    this._followers.delete(follower);
    if (this._followers.size === 0) {
      this._followed?.dispose();
      this._followed = this._trials = null;
    }
  }

  private readonly _followers = new Set<OnTrials>();
  private _followed: IDisposable | null = null;
  private _trials: readonly ITrialLine[] | null = null;
}

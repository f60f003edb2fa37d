/** All experiments that the master knows, kept up to date by a topic. */
import { type ISignal, Signal } from '@lumino/signaling';

import type { IExperimentLine, IExperimentNews } from '../../model/state.js';
import type { IExperiments, IFollowed, ISocket } from '../tokens.js';

export class Experiments implements IExperiments {
  constructor(socket: ISocket) {
    this._followed = socket.follow('experiments', {}, news => this._onNews(news));
  }

  get isReady(): boolean {
    return this._isReady;
  }

  get rows(): ReadonlyMap<number, IExperimentLine> {
    return this._rows;
  }

  get changed(): ISignal<this, readonly number[] | null> {
    return this._changed;
  }

  dispose(): void {
    this._followed.dispose();
    Signal.clearData(this);
  }

  private _onNews({ is_whole, rows, gone }: IExperimentNews): void {
    if (is_whole) {
      this._rows.clear();
    }
    rows.forEach(row => this._rows.set(row.id, row));
    gone.forEach(id => this._rows.delete(id));
    this._isReady = true;
    this._changed.emit(is_whole ? null : [...rows.map(({ id }) => id), ...gone]);
  }

  private readonly _followed: IFollowed<object>;
  private readonly _rows = new Map<number, IExperimentLine>();
  private readonly _changed = new Signal<this, readonly number[] | null>(this);
  private _isReady = false;
}

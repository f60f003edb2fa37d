/** Follows an experiment on the server: its newest state. */
import type { IDisposable } from '@lumino/disposable';
import { type ISignal, Signal } from '@lumino/signaling';

import type { IViewState } from '../../model/state.js';
import type { IDetJupyter, IDocuments, IFollowed, ISocket } from '../tokens.js';

export class Feed implements IDisposable {
  constructor(
    socket: ISocket,
    readonly experimentId: number,
    private _chosen: number | null
  ) {
    const chosen = _chosen;
    this._followed = socket.follow(
      'experiment',
      { experiment_id: experimentId, chosen },
      state => this._onState(state),
      sentence => this._onOver(sentence)
    );
  }

  /** The newest state; `null` before the first. */
  get state(): IViewState | null {
    return this._state;
  }

  /** Why there are no newer ones, a sentence; '' while there are. */
  get over(): string {
    return this._over;
  }

  /** Emitted on a newer state, and when there will be none. */
  get changed(): ISignal<this, void> {
    return this._changed;
  }

  get isDisposed(): boolean {
    return this._followed.isDisposed;
  }

  /** Resolves at the first state, or when there will be none. */
  ready(): Promise<void> {
    return this._ready;
  }

  /** The trial of a search whose details are in the state. */
  get chosen(): number | null {
    return this._chosen;
  }

  choose(trialId: number | null): void {
    this._chosen = trialId;
    this._changed.emit();
    this._followed.change({ experiment_id: this.experimentId, chosen: trialId });
  }

  dispose(): void {
    if (!this.isDisposed) {
      this._followed.dispose();
      this._setReady();
      Signal.clearData(this);
    }
  }

  private _onState(state: IViewState): void {
    this._state = state;
    this._over = '';
    this._tell();
  }

  private _onOver(sentence: string): void {
    this._over = sentence;
    this._tell();
  }

  private _tell(): void {
    this._setReady();
    this._changed.emit();
  }

  private readonly _followed: IFollowed<IDocuments['experiment']['args']>;
  private readonly _changed = new Signal<this, void>(this);
  private _setReady: () => void = () => undefined;
  private readonly _ready = new Promise<void>(resolve => (this._setReady = resolve));
  private _state: IViewState | null = null;
  private _over = '';
}

/** Why a feed has ended, a text for its view; '' while it has not. */
export function overText(shared: IDetJupyter, feed: Feed): string {
  return feed.over && (missingText(shared, [feed.experimentId]) || feed.over);
}

/** A text about those of these experiments that do not exist; '' before that is known. */
export function missingText({ experiments, trans }: IDetJupyter, ids: readonly number[]): string {
  const missing = experiments.isReady ? ids.filter(id => !experiments.rows.has(id)) : [];
  return missing
    .map(id => trans.__('There is no experiment %1; it may have been deleted.', id))
    .join(' ');
}

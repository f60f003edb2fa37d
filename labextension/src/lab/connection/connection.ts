/** The connection to det_jupyter that all plugins share, and its models. */
import type { ServerConnection } from '@jupyterlab/services';
import type { TranslationBundle } from '@jupyterlab/translation';
import { type IDisposable, DisposableDelegate } from '@lumino/disposable';
import { type ISignal, Signal } from '@lumino/signaling';

import type {
  ITrialLine,
  IClusterState,
  IExperimentRow,
  IExperimentList
} from '../../model/state.js';
import type {
  IDetJupyter,
  ILink,
  IClusterModel,
  IFollowed,
  ISocket,
  IExperiments
} from '../tokens.js';
import { Api } from './api.js';
import { Link } from './link.js';
import { LabSettings } from './usersettings.js';
import { Socket } from './socket.js';

export class DetJupyter implements IDetJupyter {
  constructor(
    server: ServerConnection.ISettings,
    readonly trans: TranslationBundle
  ) {
    this.api = new Api(server, trans);
    this.settings = new LabSettings();
    this.socket = new Socket(server, trans);
    this.experiments = new Experiments(this.socket);
    this.cluster = new ClusterModel(this.socket);
    this._trials = new Trials(this.socket);
    this.link = new Link(this);
    this.link.changed.connect(this._onLinkChanged, this);
    this.link.retry();
  }

  readonly api: Api;
  readonly settings: LabSettings;
  readonly socket: Socket;
  readonly experiments: Experiments;
  readonly cluster: ClusterModel;
  readonly link: Link;

  get linkChanged(): ISignal<this, ILink> {
    return this._linkChanged;
  }

  get isDisposed(): boolean {
    return this._isDisposed;
  }

  dispose(): void {
    if (this._isDisposed) {
      return;
    }
    this._isDisposed = true;
    this.link.dispose();
    this.experiments.dispose();
    this.cluster.dispose();
    this._trials.dispose();
    this.socket.dispose();
    this.settings.dispose();
    Signal.clearData(this);
  }

  retry(): void {
    this.link.retry();
  }

  followTrials(onTrials: OnTrials): IDisposable {
    return this._trials.follow(onTrials);
  }

  private _onLinkChanged(): void {
    this._linkChanged.emit(this.link);
  }

  private readonly _trials: Trials;
  private readonly _linkChanged = new Signal<this, ILink>(this);
  private _isDisposed = false;
}

export class ClusterModel implements IClusterModel {
  constructor(socket: ISocket) {
    this._followed = socket.follow('cluster', {}, state => {
      this._state = state;
      this._changed.emit(state);
    });
  }

  get state(): IClusterState | null {
    return this._state;
  }

  get changed(): ISignal<this, IClusterState> {
    return this._changed;
  }

  dispose(): void {
    this._followed.dispose();
    Signal.clearData(this);
  }

  private readonly _followed: IFollowed<object>;
  private readonly _changed = new Signal<this, IClusterState>(this);
  private _state: IClusterState | null = null;
}

export class Experiments implements IExperiments {
  constructor(socket: ISocket) {
    this._followed = socket.follow('experiments', {}, list => this._onList(list));
  }

  get isReady(): boolean {
    return this._isReady;
  }

  get rows(): ReadonlyMap<number, IExperimentRow> {
    return this._rows;
  }

  get changed(): ISignal<this, readonly number[] | null> {
    return this._changed;
  }

  dispose(): void {
    this._followed.dispose();
    Signal.clearData(this);
  }

  private _onList({ rows }: IExperimentList): void {
    const changed: number[] = [];
    for (const row of Object.values(rows)) {
      if (this._rows.get(row.id) !== row) {
        this._rows.set(row.id, row);
        changed.push(row.id);
      }
    }
    for (const id of this._rows.keys()) {
      if (rows[id] === undefined) {
        this._rows.delete(id);
        changed.push(id);
      }
    }
    const isFirst = !this._isReady;
    this._isReady = true;
    this._changed.emit(isFirst ? null : changed);
  }

  private readonly _followed: IFollowed<object>;
  private readonly _rows = new Map<number, IExperimentRow>();
  private readonly _changed = new Signal<this, readonly number[] | null>(this);
  private _isReady = false;
}

type OnTrials = (trials: readonly ITrialLine[]) => void;

export class Trials {
  constructor(private readonly _socket: ISocket) {}

  follow(onTrials: OnTrials): IDisposable {
    const follower: OnTrials = trials => onTrials(trials); // distinct for each call, so that a function may follow twice
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

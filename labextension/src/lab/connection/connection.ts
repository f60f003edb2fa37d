/** Everything that the plugins share, put together. */
import type { ServerConnection } from '@jupyterlab/services';
import type { TranslationBundle } from '@jupyterlab/translation';
import type { IDisposable } from '@lumino/disposable';
import { type ISignal, Signal } from '@lumino/signaling';

import type { ITrialLine } from '../../model/state.js';
import type { IDetJupyter, ILink } from '../tokens.js';
import { Api } from './api.js';
import { ClusterModel } from './cluster.js';
import { Experiments } from './experiments.js';
import { Link } from './link.js';
import { LabSettings } from './settings.js';
import { Socket } from './socket.js';
import { Trials } from './trials.js';

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

  followTrials(onNews: (trials: readonly ITrialLine[]) => void): IDisposable {
    return this._trials.follow(onNews);
  }

  private _onLinkChanged(): void {
    this._linkChanged.emit(this.link);
  }

  private readonly _trials: Trials;
  private readonly _linkChanged = new Signal<this, ILink>(this);
  private _isDisposed = false;
}

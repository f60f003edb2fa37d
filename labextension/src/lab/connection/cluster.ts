/** All slots and the numbers of the status bar, kept up to date by a topic. */
import { type ISignal, Signal } from '@lumino/signaling';

import type { IClusterNews } from '../../model/state.js';
import type { IClusterModel, IFollowed, ISocket } from '../tokens.js';

export class ClusterModel implements IClusterModel {
  constructor(socket: ISocket) {
    this._followed = socket.follow('cluster', {}, news => {
      this._news = news;
      this._changed.emit(news);
    });
  }

  get news(): IClusterNews | null {
    return this._news;
  }

  get changed(): ISignal<this, IClusterNews> {
    return this._changed;
  }

  dispose(): void {
    this._followed.dispose();
    Signal.clearData(this);
  }

  private readonly _followed: IFollowed<object>;
  private readonly _changed = new Signal<this, IClusterNews>(this);
  private _news: IClusterNews | null = null;
}

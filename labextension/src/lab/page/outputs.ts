/**
 * Feeds the places of open notebooks from the server, also when the kernel was restarted, is busy, or
 * was never started.
 *
 *     asked for a key --> is it an experiment of this master? --> a source: feed and drawing core
 *     the last view of it is gone --> the source ends
 *
 * A view whose connection is cut stays, with a notice: kernels are reached through the same server.
 * If the server has nothing for this page, no source is registered, and kernels draw.
 */
import type { IDisposable } from '@lumino/disposable';
import { Signal } from '@lumino/signaling';

import { isEnded } from '../../model/clock.js';
import { places, type ISource, type IView } from '../../places.js';
import type { IDetJupyter, LinkState } from '../tokens.js';
import { Feed } from './feed.js';
import type { Looks } from './looks.js';
import type { OpenNotebooks } from './notebooks.js';
import type { RankCommands } from './ranktools.js';
import type { SavedPictures } from './savedpictures.js';

/** Above that of kernels, as the server lasts longer and is never busy. */
const SERVER_RANK = 1;
/** States in which the server has nothing for this page until the user acts. */
const HOPELESS: readonly LinkState[] = ['no-extension', 'mismatch', 'refused'];
/** An experiment that is younger may not be in the list yet. */
const YOUNG_S = 60;

type Drawing = typeof import('./drawing.js');

export interface IOutputsOptions {
  shared: IDetJupyter;
  looks: Looks;
  notebooks: OpenNotebooks;
  pictures: SavedPictures;
  commands: RankCommands;
  /** Loads the drawing core. */
  load?: () => Promise<Drawing>;
}

export class Outputs implements IDisposable {
  constructor(private readonly _options: IOutputsOptions) {
    const { shared } = _options;
    shared.linkChanged.connect(this._refresh, this);
    shared.settings.changed.connect(this._refresh, this);
    shared.experiments.changed.connect(this._onExperiments, this);
    this._refresh();
  }

  get isDisposed(): boolean {
    return this._isDisposed;
  }

  dispose(): void {
    if (!this._isDisposed) {
      this._isDisposed = true;
      Signal.clearData(this);
      this._close();
      this._sources.forEach(source => source.dispose());
      this._sources.clear();
    }
  }

  private _refresh(): void {
    const { link, settings, experiments } = this._options.shared;
    const isOn = settings.get('liveOutputs');
    const canDraw = isOn && !HOPELESS.includes(link.state);
    this._sources.forEach(source => source.setUp(canDraw));
    if (link.state === 'up' && experiments.isReady && isOn) {
      this._closeDoor ??= places().addDoor(key => this._onWanted(key), SERVER_RANK);
    } else {
      this._close();
    }
  }

  private _close(): void {
    this._closeDoor?.();
    this._closeDoor = null;
  }

  private _onWanted(key: string): boolean {
    const [id, createdAt] = key.split('@').map(Number);
    if (this._sources.has(key)) {
      return true;
    }
    const row = this._options.shared.experiments.rows.get(id ?? NaN);
    if (row !== undefined) {
      if (row.key === key) {
        this._begin(key, row.id);
      }
      return row.key === key; // the place of another master's experiment keeps its card
    }
    const isExperiments = createdAt !== undefined && !Number.isNaN(createdAt);
    if (isExperiments) {
      this._awaited.add(key);
    }
    return isExperiments && Math.abs(Date.now() / 1000 - createdAt) < YOUNG_S;
  }

  private _begin(key: string, experimentId: number): void {
    this._awaited.delete(key);
    const source = new ServedSource(this._options, key, experimentId, () => {
      if (this._sources.get(key) === source) {
        this._sources.delete(key);
      }
    });
    source.setUp(true);
    this._sources.set(key, source);
  }

  private _onExperiments(): void {
    this._refresh();
    const { rows } = this._options.shared.experiments;
    for (const row of this._awaited.size > 0 && this._closeDoor !== null ? rows.values() : []) {
      if (this._awaited.has(row.key)) {
        this._begin(row.key, row.id);
      }
    }
    for (const source of this._sources.values()) {
      const row = rows.get(source.experimentId);
      if (row !== undefined && row.key !== source.key) {
        source.dispose(); // this master has another experiment with the id
      }
    }
  }

  private readonly _sources = new Map<string, ServedSource>();
  /** Keys of experiments that are not in the list yet. */
  private readonly _awaited = new Set<string>();
  private _closeDoor: (() => void) | null = null;
  private _isDisposed = false;
}

/** The source of an experiment, which the server feeds while the page shows it. */
class ServedSource implements ISource, IDisposable {
  readonly rank = SERVER_RANK;

  constructor(
    private readonly _options: IOutputsOptions,
    readonly key: string,
    readonly experimentId: number,
    private readonly _onEnd: () => void
  ) {
    void this._begin();
  }

  get isDisposed(): boolean {
    return this._isDisposed;
  }

  dispose(): void {
    if (!this._isDisposed) {
      this._isDisposed = true;
      places().remove(this);
      this._feed?.dispose();
      this._onEnd();
    }
  }

  /** Set whether the connection is up. */
  setUp(isUp: boolean): void {
    this._isUp = isUp;
    this._offer();
  }

  open(): IView {
    this._numViews += 1;
    const { shared, looks, notebooks, commands } = this._options;
    const [drawing, feed] = [this._drawing as Drawing, this._feed as Feed];
    const drawn = drawing.drawExperiment({
      ...{ shared, feed, looks, name: this._name, notebooks, commands },
      hasBanner: false
    });
    return {
      node: drawn.node,
      setLost: isLost => drawn.setLost(isLost),
      dispose: () => this._endView(drawn)
    };
  }

  private _endView(drawn: IView): void {
    drawn.dispose();
    this._numViews -= 1;
    if (this._numViews === 0) {
      // Deferred, as the registry may be about to open another view.
      queueMicrotask(() => {
        if (this._numViews === 0) {
          this.dispose();
        }
      });
    }
  }

  private async _begin(): Promise<void> {
    const { shared, looks, load = () => import('./drawing.js') } = this._options;
    try {
      await looks.ready();
      const { chosen } = looks.of(this._name);
      const feed = new Feed(shared.socket, this.experimentId, chosen);
      this._feed = feed;
      feed.changed.connect(this._onState, this);
      [this._drawing] = await Promise.all([load(), feed.ready()]);
    } catch (error) {
      console.error(error); // the card or a kernel's view stays
      this.dispose();
      return;
    }
    if (this._isDisposed || this._feed.state === null) {
      this.dispose();
      return;
    }
    this._offer();
    if (this._numViews === 0) {
      this.dispose(); // the place was removed meanwhile
    }
  }

  /** Be registered while there is a state and a connection. */
  private _offer(): void {
    const canDraw = this._drawing !== undefined && (this._feed?.state ?? null) !== null;
    if (canDraw && this._isUp && !this._isDisposed) {
      places().add(this);
    } else {
      places().remove(this);
    }
  }

  private _onState(feed: Feed): void {
    const { state } = feed;
    if (state !== null && isEnded(state.status) && this._finished !== state.status) {
      this._finished = state.status;
      void this._options.pictures.finish(this.key, this.experimentId, state.status);
    }
  }

  private get _name(): string {
    return `place:${this.key}`;
  }

  private _feed: Feed | undefined;
  private _drawing: Drawing | undefined;
  private _finished: string | undefined;
  private _isUp = false;
  private _numViews = 0;
  private _isDisposed = false;
}

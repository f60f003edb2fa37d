/**
 * Follows series of a trial: fetches all points, then once a second only new ones, while it is visible
 * and the trial runs. A zoomed range is fetched in its own resolution.
 */
import { mergePages, tailOf, type AskSeries } from './seriespages.js';
import type { ISeriesPage, ISeriesQuery } from '../model/answers.js';

const PERIOD_MS = 1000;
const AGAIN_MS = 5000;
const SLOW_MS = 3000;
const LOST_MS = 30_000;
const RECENT_MS = 10_000; // newer points do not need a separate request

export interface IFollowed {
  trial_id: number;
  of: ISeriesQuery['of'];
  axis: ISeriesQuery['axis'];
  names?: string[];
  sources?: string[];
}

export interface ILiveOptions {
  ask: AskSeries;
  /** Shown when an answer takes long. */
  slowHint: string;
  /** Called on new data. */
  onPage: (page: ISeriesPage) => void;
  /** Called with why there is no new data, or ''. */
  onNotice: (text: string) => void;
  columns?: number;
  /** Milliseconds between answers; queries of one column are always fetched whole. */
  period?: number;
}

export class LiveSeries {
  constructor(private readonly _options: ILiveOptions) {}

  /** The page of the whole axis; `undefined` before the first. */
  get whole(): ISeriesPage | undefined {
    return this._whole;
  }

  /** Follow other series; the same ones continue. */
  follow(followed: IFollowed): void {
    const key = JSON.stringify(followed);
    if (key !== this._key) {
      this._key = key;
      this._followed = followed;
      this._whole = undefined;
      this._range = null;
      this._restart();
    }
  }

  /** Set whether the series are visible; they are fetched only then. */
  setVisible(isVisible: boolean): void {
    if (isVisible !== this._isVisible) {
      this._isVisible = isVisible;
      this._restart();
    }
  }

  /** Set whether the trial has ended; one last answer is fetched then. */
  setEnded(isEnded: boolean): void {
    if (isEnded !== this._isEnded) {
      this._isEnded = isEnded;
      this._isComplete = false;
      this._restart();
    }
  }

  /** Fetch a range of the axis in detail; `null`: the whole. */
  setRange(range: readonly [number, number] | null): void {
    this._range = range;
    if (range === null && this._whole !== undefined) {
      this._options.onPage(this._whole);
    }
    this._restart();
  }

  dispose(): void {
    this._isVisible = false;
    this._restart();
  }

  private _restart(): void {
    this._round += 1; // invalidates pending answers
    clearTimeout(this._timer);
    const isNeeded = this._range !== null || this._whole === undefined || !this._isComplete;
    if (this._isVisible && this._followed !== undefined && isNeeded) {
      void this._ask(this._followed);
    }
  }

  private _askSoon(ms: number): void {
    clearTimeout(this._timer);
    this._timer = setTimeout(() => this._restart(), ms);
  }

  private async _ask({ trial_id, of, axis, names, sources }: IFollowed): Promise<void> {
    const { ask, onPage, onNotice, slowHint, period = PERIOD_MS } = this._options;
    const round = this._round;
    const range = this._range;
    const wasEnded = this._isEnded;
    const part = this._part();
    const query: ISeriesQuery = {
      ...{ of, axis, names: names ?? null, sources: sources ?? null },
      ...part
    };
    const slow = setTimeout(() => {
      if (round === this._round) {
        onNotice(slowHint);
      }
    }, SLOW_MS);
    this._askSoon(LOST_MS);
    try {
      const { page } = await ask({ trial_id, query });
      if (round !== this._round) {
        return;
      }
      clearTimeout(this._timer);
      onNotice('');
      onPage(range === null ? this._keep(page, part.since !== null) : page);
      this._isComplete ||= wasEnded && range === null;
      const isStill = range !== null && range[1] < this._newest();
      if (!this._isComplete && !isStill) {
        this._askSoon(period);
      }
    } catch (error) {
      if (round === this._round) {
        onNotice(error instanceof Error ? error.message : String(error));
        this._askSoon(AGAIN_MS);
      }
    } finally {
      clearTimeout(slow);
    }
  }

  private _part(): Pick<ISeriesQuery, 'since' | 'until' | 'columns'> {
    const { columns = 600 } = this._options;
    if (this._range !== null) {
      const [since, until] = this._range;
      return { since: Math.max(0, since), until, columns };
    }
    const isRecent = Date.now() - this._cameAt < RECENT_MS;
    const tail = this._whole && isRecent && columns > 1 ? tailOf(this._whole, columns) : null;
    return { since: tail?.since ?? null, until: null, columns: tail?.columns ?? columns };
  }

  private _keep(page: ISeriesPage, isTail: boolean): ISeriesPage {
    this._cameAt = Date.now();
    this._whole = isTail && this._whole !== undefined ? mergePages(this._whole, page) : page;
    return this._whole;
  }

  private _newest(): number {
    return Math.max(-Infinity, ...(this._whole?.series.map(one => one.x.at(-1) ?? 0) ?? []));
  }

  private _key = '';
  private _followed: IFollowed | undefined;
  private _whole: ISeriesPage | undefined;
  private _range: readonly [number, number] | null = null;
  private _round = 0;
  private _timer: ReturnType<typeof setTimeout> | undefined;
  private _cameAt = 0;
  private _isVisible = false;
  private _isEnded = false;
  private _isComplete = false;
}

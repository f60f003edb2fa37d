/**
 * Follows series of a trial: all that there is, then once a second only what is new, while it can
 * be seen and the trial goes on. A part of the axis is asked for in its own resolution.
 */
import { mergePages, tailOf, type AskSeries } from './seriespages.js';
import type { ISeriesPage, ISeriesQuery } from '../model/answers.js';

const PERIOD_MS = 1000;
const AGAIN_MS = 5000;
const SLOW_MS = 3000;
const LOST_MS = 30_000;
const RECENT_MS = 10_000; // what is new since then is not worth a page of its own

export interface IFollowed {
  trial_id: number;
  of: ISeriesQuery['of'];
  axis: ISeriesQuery['axis'];
  names?: string[];
  sources?: string[];
}

export interface ILiveOptions {
  ask: AskSeries;
  /** Said when an answer takes long: what could be in its way. */
  slowHint: string;
  /** There is something new to draw. */
  onPage: (page: ISeriesPage) => void;
  /** Why there is nothing new, or '' again. */
  onNotice: (text: string) => void;
  columns?: number;
  /** Milliseconds between answers; one column is always asked for whole. */
  period?: number;
}

export class LiveSeries {
  constructor(private readonly _options: ILiveOptions) {}

  /** What came for the whole axis, at first `undefined`. */
  get whole(): ISeriesPage | undefined {
    return this._whole;
  }

  /** Follow this from now on; what is followed already goes on. */
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

  /** Ask only while this can be seen. */
  setVisible(isVisible: boolean): void {
    if (isVisible !== this._isVisible) {
      this._isVisible = isVisible;
      this._restart();
    }
  }

  /** Nothing new comes any more once a last answer is there; or it goes on again. */
  setEnded(isEnded: boolean): void {
    if (isEnded !== this._isEnded) {
      this._isEnded = isEnded;
      this._isComplete = false;
      this._restart();
    }
  }

  /** Show a part of the axis in detail; `null`: the whole. */
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
    this._round += 1; // an answer that is still to come is not for us
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

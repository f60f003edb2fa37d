/** Follows the chosen metrics of several trials, with separate questions. */
import { LiveSeries, type IFollowed } from '../series/live.js';
import type { AskSeries } from '../series/seriespages.js';
import type { ISeriesPage } from '../model/answers.js';

export interface IFollowersOptions {
  ask: AskSeries;
  slowHint: string;
  /** Called on new data. */
  onChange: () => void;
}

interface IFollower {
  live: LiveSeries;
  page?: ISeriesPage;
  said: string;
}

const ZOOM_MS = 150; // waits for further zooming

export class Followers {
  constructor(private readonly _options: IFollowersOptions) {}

  /** Follow these trials only. */
  follow(trialIds: readonly number[], what: Omit<IFollowed, 'trial_id'>, isEnded: boolean): void {
    this._followers.forEach(({ live }, id) => {
      if (!trialIds.includes(id)) {
        live.dispose();
        this._followers.delete(id);
      }
    });
    for (const trial_id of trialIds) {
      const { live } = this._followers.get(trial_id) ?? this._add(trial_id);
      live.follow({ trial_id, ...what });
      live.setEnded(isEnded);
      live.setVisible(this._isShown);
    }
  }

  page(trialId: number): ISeriesPage | undefined {
    return this._followers.get(trialId)?.page;
  }

  /** Why data is missing, or ''. */
  get said(): string {
    return [...new Set([...this._followers.values()].map(one => one.said))].join(' ').trim();
  }

  /** Fetch a range in its own resolution; `rangeOf` returns it in units of a trial's axis. */
  setRange(rangeOf: ((page: ISeriesPage) => readonly [number, number]) | null): void {
    clearTimeout(this._timer);
    this._timer = setTimeout(() => {
      this._followers.forEach(({ live, page }) =>
        live.setRange(rangeOf === null || page === undefined ? null : rangeOf(page))
      );
    }, ZOOM_MS);
  }

  setShown(isShown: boolean): void {
    this._isShown = isShown;
    this._followers.forEach(({ live }) => live.setVisible(isShown));
  }

  dispose(): void {
    clearTimeout(this._timer);
    this._followers.forEach(({ live }) => live.dispose());
    this._followers.clear();
  }

  private _add(trialId: number): IFollower {
    const { ask, slowHint, onChange } = this._options;
    const live = new LiveSeries({
      ask,
      slowHint,
      onPage: page => {
        follower.page = page;
        onChange();
      },
      onNotice: text => {
        follower.said = text;
        onChange();
      }
    });
    const follower: IFollower = { live, said: '' };
    this._followers.set(trialId, follower);
    return follower;
  }

  private readonly _followers = new Map<number, IFollower>();
  private _isShown = false;
  private _timer: ReturnType<typeof setTimeout> | undefined;
}

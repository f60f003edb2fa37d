/** The tab of logs: fetched while it is visible, live until the end. */
import { h, setHidden, setText } from '../dom/dom.js';
import { isEnded } from '../model/clock.js';
import type { IViewState } from '../model/state.js';
import type { ITrans } from '../model/trans.js';
import type { IPanel, ITab } from '../tabs/tab.js';
import { LogBox } from './box.js';
import { LogFilters } from './logfilters.js';
import { FirstError } from './firsterror.js';
import { LogLines, MAX_LINES, type AskLogs } from './lines.js';
import type { ILogLine } from '../model/answers.js';

const PERIOD_MS = 1000;
const AGAIN_MS = 5000;
const SLOW_MS = 3000;
/** Line ids before an error that are shown with it; ids count the lines of all trials. */
const BEFORE_ERROR = 200;

export interface ILogPanelOptions {
  trans: ITrans;
  ask: AskLogs;
  /** Shown when an answer takes long. */
  slowHint: string;
}

export class LogPanel implements ITab, IPanel {
  readonly id = 'logs';
  readonly label: string;
  readonly node: HTMLElement;

  constructor(private readonly _options: ILogPanelOptions) {
    const { trans } = _options;
    this.label = trans.__('Logs');
    this._filters = new LogFilters(trans, () => this._restart());
    this._box = new LogBox(trans, () => this._goToEnd());
    this._first = new FirstError(_options, line => this._jump(line));
    const foot = h('div.det-line.det-log-foot', {}, this._status, this._box.toEnd);
    this.node = h(
      'section.det-logs',
      {},
      this._filters.node,
      this._first.node,
      this._box.node,
      foot
    );
  }

  open(host: HTMLElement): IPanel {
    host.append(this.node);
    return this;
  }

  setShown(isShown: boolean): void {
    if (!isShown) {
      this._stop();
    } else if (!this._isLive && this._lines.lastId === 0) {
      this._restart();
    } else if (!this._isLive && this._from === null) {
      this._resume();
    }
  }

  /** Update trials, ranks and whether the experiment runs. */
  update({ trials, search, status }: Pick<IViewState, 'trials' | 'search' | 'status'>): void {
    const ids = search === null ? trials.map(one => one.id) : search.rows.map(row => row.id);
    const numRanks = Math.max(0, ...trials.map(one => one.ranks.length));
    this._filters.offerTrials(ids);
    this._filters.offerRanks(numRanks);
    this._isEnded = isEnded(status);
    const isIdle = this._timer === undefined && !this._isAsking && this._from === null;
    if (this._isLive && !this._isEnded && isIdle) {
      this._askSoon(PERIOD_MS);
    }
  }

  /** Filter by trial and rank. */
  narrow(trialId: number, rank: number | null): void {
    this._filters.narrow(trialId, rank);
    if (this._isLive) {
      this._restart();
    } else {
      this._clear();
    }
  }

  focus(): void {
    this.node.scrollIntoView({ block: 'nearest' });
    this._box.node.focus({ preventScroll: true });
  }

  dispose(): void {
    this._stop();
    this._filters.dispose();
  }

  private _stop(): void {
    this._round += 1; // invalidates pending answers
    this._isLive = false;
    this._isAsking = false;
    clearTimeout(this._timer);
    this._timer = undefined;
  }

  /** Continue after the last line. */
  private _resume(): void {
    this._isLive = true;
    void this._ask();
  }

  /** Restart with the newest lines, or with those after `from`, which are not followed. */
  private _restart(from: number | null = null): void {
    this._stop();
    this._clear();
    this._from = from;
    this._resume();
    if (from === null) {
      void this._first.find(this._filters.value.trial_id);
    }
  }

  private _clear(): void {
    this._lines = new LogLines();
    this._box.clear();
  }

  private _askSoon(ms: number): void {
    this._timer = setTimeout(() => {
      this._timer = undefined;
      void this._ask();
    }, ms);
  }

  private async _ask(): Promise<void> {
    const { ask, slowHint } = this._options;
    const round = this._round;
    const from = this._from;
    const query = {
      ...this._filters.value,
      after: from ?? this._lines.lastId,
      tail: from === null ? MAX_LINES : null
    };
    const slow = setTimeout(() => this._say(slowHint), SLOW_MS);
    this._isAsking = true;
    try {
      const page = await ask(query);
      if (round !== this._round) {
        return;
      }
      this._draw(page.lines, this._lines.add(page));
      this._isAsking = false;
      if (!page.is_over && from === null) {
        this._askSoon(PERIOD_MS);
      }
    } catch (error) {
      if (round === this._round) {
        this._isAsking = false;
        this._say(error instanceof Error ? error.message : String(error));
        if (query.search === '' && !this._isEnded) {
          this._askSoon(AGAIN_MS);
        }
      }
    } finally {
      clearTimeout(slow);
    }
  }

  private _draw(lines: ILogLine[], changes: ReturnType<LogLines['add']>): void {
    this._box.draw(changes);
    this._first.note(lines);
    this._filters.offerRanks(lines.reduce((most, line) => Math.max(most, line.rank + 1), 0));
    this._filters.offerAgents(lines.map(line => line.agent));
    this._say(this._count());
    if (this._wanted !== undefined && this._box.show(this._wanted)) {
      this._wanted = undefined;
    }
  }

  private _count(): string {
    const { trans } = this._options;
    const { lines, total } = this._lines;
    if (total === null) {
      return trans.__('%1 of many lines', lines.length.toLocaleString('en'));
    }
    if (total > lines.length) {
      const [some, all] = [lines.length.toLocaleString('en'), total.toLocaleString('en')];
      return trans.__('%1 of %2 lines', some, all);
    }
    if (total === 0) {
      return this._nothing();
    }
    return trans._n('%1 line', '%1 lines', total);
  }

  /** Why no line is shown. */
  private _nothing(): string {
    const { trans } = this._options;
    const { search, rank, trial_id: trial, ...others } = this._filters.value;
    if (search !== '' || Object.values(others).some(value => value !== null)) {
      return trans.__('No match.');
    }
    const never = this._isEnded;
    if (rank !== null) {
      return never
        ? trans.__('Rank %1 has printed nothing.', rank)
        : trans.__('Rank %1 has printed nothing yet.', rank);
    }
    if (trial !== null) {
      return never
        ? trans.__('Trial %1 has printed nothing.', trial)
        : trans.__('Trial %1 has printed nothing yet.', trial);
    }
    return never ? trans.__('Nothing was printed.') : trans.__('Nothing was printed yet.');
  }

  /** Scroll to a line; if it is not shown, fetch it with the lines around it. */
  private _jump({ id, trial_id }: ILogLine): void {
    if (!this._box.show(id)) {
      this._wanted = id;
      this._filters.narrow(trial_id, null);
      this._restart(Math.max(0, id - BEFORE_ERROR));
      setHidden(this._box.toEnd, false);
    }
  }

  private _goToEnd(): void {
    if (this._from === null) {
      this._box.goToEnd();
    } else {
      this._restart();
    }
  }

  private _say(text: string): void {
    setText(this._status, text);
  }

  private readonly _filters: LogFilters;
  private readonly _box: LogBox;
  private readonly _first: FirstError;
  private readonly _status = h('span.det-quiet', { role: 'status' });
  private _lines = new LogLines();
  private _timer: ReturnType<typeof setTimeout> | undefined;
  private _round = 0;
  /** The id after which lines are shown, around a certain one; `null`: the newest are. */
  private _from: number | null = null;
  /** The line to scroll to. */
  private _wanted: number | undefined;
  private _isAsking = false;
  private _isEnded = false;
  private _isLive = false;
}

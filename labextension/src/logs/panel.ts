/**
 * The tab of what the ranks printed: fetched while it is seen, live until the end, and scrolled to
 * the newest line unless the reader has scrolled up.
 */
import { h, setHidden, setText } from '../dom/dom.js';
import { isEnded } from '../model/clock.js';
import { formatClock } from '../model/format.js';
import type { IViewState } from '../model/state.js';
import type { ITrans } from '../model/trans.js';
import type { IPanel, ITab } from '../tabs/tab.js';
import { LogFilters } from './filters.js';
import { LogLines, MAX_LINES, type AskLogs, type ILogLine } from './lines.js';

const PERIOD_MS = 1000;
const AGAIN_MS = 5000;
const SLOW_MS = 3000;
const NEAR_PX = 24; // from the end, as good as at it
const SCROLL_KEYS = ['ArrowUp', 'ArrowDown', 'PageUp', 'PageDown', 'Home', 'End', ' '];

export interface ILogPanelOptions {
  trans: ITrans;
  ask: AskLogs;
  /** Shown when an answer takes long: what could be in its way. */
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
    this._box = h('div.det-log-lines', {
      role: 'log',
      tabindex: 0,
      'aria-label': trans.__('Printed lines')
    });
    this._toEnd = h('button.det-button.det-mod-small', { type: 'button' }, trans.__('To the end'));
    this._toEnd.addEventListener('click', () => this._goToEnd());
    this._box.addEventListener('scroll', () => this._onScroll());
    this._box.addEventListener('keydown', event => {
      if (SCROLL_KEYS.includes(event.key)) {
        event.stopPropagation(); // the notebook moves between cells by these keys
      }
    });
    const foot = h('div.det-line.det-log-foot', {}, this._status, this._toEnd);
    this.node = h('section.det-logs', {}, this._filters.node, this._box, foot);
    setHidden(this._toEnd, true);
  }

  open(host: HTMLElement): IPanel {
    host.append(this.node);
    return this;
  }

  setShown(isShown: boolean): void {
    if (!isShown) {
      this._stop();
    } else if (!this._isLive) {
      this._resume();
    }
  }

  /** Offer the trials and ranks that there are, and go on if the experiment does. */
  update({ trials, search, status }: Pick<IViewState, 'trials' | 'search' | 'status'>): void {
    const ids = search === null ? trials.map(one => one.id) : search.rows.map(row => row.id);
    const numRanks = Math.max(0, ...trials.map(one => one.ranks.length));
    this._filters.offerTrials(ids);
    this._filters.offerRanks(numRanks);
    this._isEnded = isEnded(status);
    if (this._isLive && !this._isEnded && this._timer === undefined && !this._isAsking) {
      this._askSoon(PERIOD_MS);
    }
  }

  /** Show only this trial's lines, and this rank's. */
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
    this._box.focus({ preventScroll: true });
  }

  dispose(): void {
    this._stop();
    this._filters.dispose();
  }

  private _stop(): void {
    this._round += 1; // an answer that is still to come is not for us
    this._isLive = false;
    this._isAsking = false;
    clearTimeout(this._timer);
    this._timer = undefined;
  }

  /** Go on after the lines that there are. */
  private _resume(): void {
    this._isLive = true;
    void this._ask();
  }

  private _restart(): void {
    this._stop();
    this._clear();
    this._resume();
  }

  private _clear(): void {
    this._lines = new LogLines();
    this._nodes.clear();
    this._box.replaceChildren();
    this._isAtEnd = true;
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
    const query = { ...this._filters.value, after: this._lines.lastId, tail: MAX_LINES };
    const slow = setTimeout(() => this._say(slowHint), SLOW_MS);
    this._isAsking = true;
    try {
      const page = await ask(query);
      if (round !== this._round) {
        return;
      }
      this._draw(this._lines.add(page));
      this._say(this._count());
      this._isAsking = false;
      if (!page.is_over) {
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

  private _count(): string {
    const { trans } = this._options;
    const { lines, total } = this._lines;
    const { rank, trial_id, level, search } = this._filters.value;
    if (total === null) {
      return trans.__('%1 of many lines', lines.length.toLocaleString('en'));
    }
    if (total > lines.length) {
      const [some, all] = [lines.length.toLocaleString('en'), total.toLocaleString('en')];
      return trans.__('%1 of %2 lines', some, all);
    }
    const isNarrowed = search !== '' || level !== null || rank !== null || trial_id !== null;
    if (total === 0) {
      return isNarrowed ? trans.__('No line fits.') : trans.__('Nothing was printed yet.');
    }
    return trans._n('%1 line', '%1 lines', total);
  }

  private _draw({ added, gone }: { added: ILogLine[]; gone: ILogLine[] }): void {
    const height = this._box.scrollHeight;
    for (const { id } of gone) {
      this._nodes.get(id)?.remove();
      this._nodes.delete(id);
    }
    const lost = height - this._box.scrollHeight;
    const nodes = added.map(line => {
      const node = this._line(line);
      this._nodes.set(line.id, node);
      return node;
    });
    this._box.append(...nodes);
    this._filters.offerRanks(added.reduce((most, line) => Math.max(most, line.rank + 1), 0));
    if (this._isAtEnd) {
      this._goToEnd();
    } else {
      this._box.scrollTop -= lost; // what the reader looks at stays where it is
    }
  }

  private _line(line: ILogLine): HTMLElement {
    const { trans } = this._options;
    const place = trans.__('trial %1 rank %2', line.trial_id, line.rank);
    return h(
      'div.det-log-line',
      { 'data-level': line.level, title: line.level },
      h('span.det-quiet', {}, `${formatClock(line.at)} ${place} `),
      line.text
    );
  }

  private _onScroll(): void {
    const { scrollHeight, scrollTop, clientHeight } = this._box;
    this._isAtEnd = scrollHeight - scrollTop - clientHeight < NEAR_PX;
    setHidden(this._toEnd, this._isAtEnd);
  }

  private _goToEnd(): void {
    this._isAtEnd = true;
    setHidden(this._toEnd, true);
    this._box.scrollTop = this._box.scrollHeight;
  }

  private _say(text: string): void {
    setText(this._status, text);
  }

  private readonly _filters: LogFilters;
  private readonly _box: HTMLElement;
  private readonly _toEnd: HTMLButtonElement;
  private readonly _status = h('span.det-quiet', { role: 'status' });
  private readonly _nodes = new Map<number, HTMLElement>();
  private _lines = new LogLines();
  private _timer: ReturnType<typeof setTimeout> | undefined;
  private _round = 0;
  private _isAsking = false;
  private _isAtEnd = true;
  private _isEnded = false;
  private _isLive = false;
}

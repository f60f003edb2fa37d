/** The tab of timings: verdict, parts of a batch's time, ranks, and a table. */
import type { IPictureMark } from '../charts/picture.js';
import { dataTable, h, rebuilder, setHidden, setText } from '../dom/dom.js';
import { isEnded } from '../model/clock.js';
import { formatPercent } from '../model/format.js';
import { shownTitle, shownTrial, type IShownTrial } from '../model/showntrial.js';
import { PARTS, SECTION, type IViewState } from '../model/state.js';
import { capitalized, formatSeconds } from '../model/units.js';
import { OrderControls } from './orders.js';
import { SeriesBoard } from '../series/seriesboard.js';
import { LiveSeries } from '../series/live.js';
import type { AskSeries } from '../series/seriespages.js';
import type { IPanel, ITab, ITabContext } from '../tabs/tab.js';
import { VerdictBanner } from './verdict.js';
import { partRows, ranksOf, statisticsOf, type IPartRow } from './batchparts.js';
import { timingPictures } from './timingpictures.js';
import { RankBars } from './ranks.js';
import type { ISeriesPage } from '../model/answers.js';

const SUMMARY_MS = 3000;

export function timingsTab(context: ITabContext): ITab {
  return {
    id: 'timings',
    label: context.requests.trans.__('Timings'),
    open: host => new TimingsPanel(context, host)
  };
}

class TimingsPanel implements IPanel {
  constructor(
    private readonly _context: ITabContext,
    host: HTMLElement
  ) {
    const { requests, ask: askKernel, settings } = _context;
    const { trans, slowHint } = requests;
    const ask: AskSeries = question => askKernel('series', question);
    this._verdict = new VerdictBanner(trans);
    this._board = new SeriesBoard({
      ...{ trans, ask, slowHint, settings },
      picture: (page, origin) =>
        timingPictures(page, this._source, origin, trans, this._isByTime ? [] : this._marks),
      empty: () => this._emptyText(),
      onPage: page => this._note(page)
    });
    this._bars = new RankBars(trans, rank => this._choose(rank));
    const summary = { ask, slowHint, period: SUMMARY_MS, columns: 1, onNotice: () => undefined };
    this._ranks = new LiveSeries({ ...summary, onPage: page => this._drawRanks(page) });
    this._parts = new LiveSeries({ ...summary, onPage: page => this._drawParts(page) });
    this._orders = new OrderControls(requests, askKernel);
    this._select = this._makeSelect();
    this._axis = this._makeAxis();
    settings.onChange(() => this._follow());
    const line = h('div.det-line', {}, this._trial, this._select, this._axis, this._board.tools);
    host.append(
      this._verdict.node,
      this._orders.node,
      line,
      this._board.node,
      this._bars.node,
      this._table
    );
  }

  update(state: IViewState): void {
    this._shown = shownTrial(state);
    setText(this._trial, shownTitle(state, this._context.requests.trans));
    this._verdict.update(this._shown?.verdict ?? null);
    this._drawOrders(state);
    this._follow();
  }

  setShown(isShown: boolean): void {
    [this._board, this._ranks, this._parts].forEach(one =>
      one instanceof SeriesBoard ? one.setShown(isShown) : one.setVisible(isShown)
    );
  }

  restyle(): void {
    this._board.restyle();
  }

  dispose(): void {
    this._board.dispose();
    this._ranks.dispose();
    this._parts.dispose();
  }

  private _drawOrders({ changes }: IViewState): void {
    const shown = this._shown;
    setHidden(this._orders.node, shown === null || shown === undefined);
    if (shown !== null && shown !== undefined) {
      const own = changes.filter(one => one.trial_id === shown.id);
      this._marks = own.flatMap(({ steps_completed: x, text: label }) =>
        x === null ? [] : [{ x, label }]
      );
      const isRunning = shown.status === 'running';
      this._orders.update({ trialId: shown.id, isRunning, changes: own, traces: shown.traces });
    }
  }

  private get _isByTime(): boolean {
    return this._context.settings.value.axis === 'time';
  }

  private get _source(): string {
    return `rank:${this._rank}`;
  }

  private _follow(): void {
    const shown = this._shown;
    if (shown === null || shown === undefined) {
      return;
    }
    const axis = this._isByTime ? 'time' : 'batches';
    this._axis.value = axis;
    const isOver = isEnded(shown.status);
    const followed = { trial_id: shown.id, of: 'timings', axis } as const;
    this._board.follow({ ...followed, sources: [this._source] }, isOver);
    this._ranks.setEnded(isOver);
    this._ranks.follow({ ...followed, names: [...PARTS] });
    this._parts.setEnded(isOver);
    const names = [...PARTS, ...this._sections];
    this._parts.follow({
      ...followed,
      sources: [this._source],
      names: names.flatMap(name => [name, ...statisticsOf(name)])
    });
    this._offerRanks(shown.numRanks);
  }

  private _choose(rank: number): void {
    this._rank = rank;
    this._select.value = String(rank);
    this._follow();
  }

  /** Adds the user's sections, whose names come with the first page. */
  private _note(page: ISeriesPage): void {
    const names = page.series.map(one => one.name).filter(name => name.startsWith(SECTION));
    if (names.join() !== this._sections.join()) {
      this._sections = names;
      this._follow();
    }
  }

  private _drawRanks(page: ISeriesPage): void {
    const ranks = ranksOf(page);
    this._offerRanks(Math.max(0, ...ranks.map(one => one.rank + 1)));
    this._bars.update(ranks, this._rank);
  }

  private _drawParts(page: ISeriesPage): void {
    this._drawTable(partRows(page, this._source));
  }

  private _emptyText(): string {
    const { trans } = this._context.requests;
    const shown = this._shown;
    if (shown === null || shown === undefined) {
      return trans.__('No trial yet.');
    }
    if (isEnded(shown.status)) {
      return trans.__(
        'No timings: the trial ended within the first seconds of its training, its loop took no step of an optimizer of torch and did not call context.profiler.step(), or profiling.enabled was false.'
      );
    }
    return shown.status === 'running'
      ? trans.__(
          'No timings yet: they come every second from the second step of an optimizer on, unless profiling.enabled is false. A loop without optimizers of torch calls context.profiler.step().'
        )
      : trans.__('No timings yet: trial %1 is %2.', shown.id, shown.statusWord.toLowerCase());
  }

  private _offerRanks(numRanks: number): void {
    if (numRanks > this._select.length) {
      const { trans } = this._context.requests;
      for (let rank = this._select.length; rank < numRanks; rank += 1) {
        this._select.append(h('option', { value: rank }, trans.__('rank %1', rank)));
      }
      this._select.value = String(this._rank);
    }
    setHidden(this._select, this._select.length < 2);
  }

  private _makeSelect(): HTMLSelectElement {
    const label = this._context.requests.trans.__('Rank');
    const select = h('select.det-select', { 'aria-label': label, hidden: true });
    select.addEventListener('change', () => this._choose(Number(select.value)));
    return select;
  }

  private _makeAxis(): HTMLSelectElement {
    const { requests, settings } = this._context;
    const { trans } = requests;
    const select = h(
      'select.det-select',
      { 'aria-label': trans.__('X axis') },
      h('option', { value: 'time' }, trans.__('by time')),
      h('option', { value: 'batches' }, trans.__('by batch'))
    );
    select.addEventListener('change', () =>
      settings.change({ axis: select.value === 'time' ? 'time' : 'step' })
    );
    return select;
  }

  private _tableOf(rows: IPartRow[]): HTMLElement {
    const { trans } = this._context.requests;
    const time = (value: number | null): string => (value === null ? '–' : formatSeconds(value));
    return dataTable({
      caption: trans.__('Parts of a batch, rank %1', this._rank),
      head: [
        trans.__('Part'),
        trans.__('share'),
        trans.__('per batch'),
        trans.__('median'),
        trans.__('95th percentile'),
        trans.__('longest')
      ],
      rows: rows.map(({ title, share, mean, statistics }) => [
        capitalized(title),
        share === null ? trans.__('within others') : formatPercent(share),
        ...[mean, ...statistics].map(time)
      ]),
      isNumber: column => column > 0
    });
  }

  private readonly _verdict: VerdictBanner;
  private readonly _board: SeriesBoard;
  private readonly _bars: RankBars;
  private readonly _orders: OrderControls;
  private readonly _ranks: LiveSeries;
  private readonly _parts: LiveSeries;
  private readonly _select: HTMLSelectElement;
  private readonly _axis: HTMLSelectElement;
  private readonly _trial = h('span.det-chart-title');
  private readonly _table = h('div.det-parts');
  private readonly _drawTable = rebuilder(this._table, (rows: IPartRow[]) =>
    rows.length === 0 ? [] : [this._tableOf(rows)]
  );
  private _shown: IShownTrial | null | undefined;
  private _marks: IPictureMark[] = [];
  private _rank = 0;
  private _sections: string[] = [];
}

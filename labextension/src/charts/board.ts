/** The charts side by side, or the same as tables; keeps them at one range of steps. */
import type { IChartOptions, IChartView } from './chart.js';
import { placeAt, smoothingSpan, tableSteps } from './curves.js';
import { dataTable, h, rebuilder, setAttribute, setHidden, setText } from '../dom/dom.js';
import { formatNumber } from '../model/format.js';
import type { IChart } from '../model/state.js';
import type { IChartFrame } from './plot.js';
import type { ITrans } from '../model/trans.js';

/** What it shows: of a whole experiment, or of one trial. */
export interface IBoardData {
  charts: IChart[];
  more_metrics: string[];
  /** Why there are no charts. */
  no_metrics: string;
  steps_per_epoch: number | null;
}

export type MakeChart = (options: IChartOptions) => IChartView;

const TABLE_ROWS = 15;
let numBoards = 0;

export class Board {
  readonly node: HTMLElement;
  /** Its buttons, to be put where there is room. */
  readonly tools: HTMLElement;

  constructor(
    private readonly _trans: ITrans,
    private readonly _makeChart: MakeChart
  ) {
    this._syncKey = `det-board-${(numBoards += 1)}`;
    this._smoothButton = this._toggle(_trans.__('Smooth'), true, on => {
      this._smooth = on;
    });
    this._tableButton = this._toggle(_trans.__('Table'), false, on => {
      this._table = on;
    });
    this._resetButton = h('button.det-button.det-mod-small', { type: 'button' });
    setText(this._resetButton, _trans.__('Whole run'));
    this._resetButton.addEventListener('click', () => this._setZoom(null));
    this.tools = h('div.det-tools', {}, this._resetButton, this._smoothButton, this._tableButton);
    this.node = h(
      'section.det-board',
      { 'aria-label': _trans.__('Metrics') },
      this._empty,
      this._grid,
      this._tables,
      this._more
    );
  }

  update(state: IBoardData): void {
    this._state = state;
    this._draw();
  }

  /** Make a trial stand out in charts of several. */
  choose(trialId: number | null): void {
    if (trialId !== this._chosen) {
      this._chosen = trialId;
      this._draw();
    }
  }

  restyle(): void {
    this._charts.forEach(chart => chart.restyle());
  }

  dispose(): void {
    this._charts.forEach(chart => chart.dispose());
    this._charts.clear();
  }

  private _draw(): void {
    const state = this._state;
    if (state === undefined) {
      return;
    }
    const { charts } = state;
    setHidden(this.tools, charts.length === 0);
    setHidden(this._empty, charts.length > 0);
    setText(this._empty, state.no_metrics);
    setHidden(this._resetButton, this._zoom === null || this._table);
    const canSmooth = charts.some(chart => chart.series.some(one => smoothingSpan(one) > 0));
    setHidden(this._smoothButton, !canSmooth || this._table);
    setHidden(this._grid, this._table);
    setHidden(this._tables, !this._table);
    this._rebuildTables(this._table ? charts : []);
    if (!this._table) {
      this._drawCharts(state);
    }
    setText(this._more, this._moreText(state.more_metrics));
  }

  private _drawCharts(state: IBoardData): void {
    const frame: IChartFrame = {
      range: this._zoom ?? wholeRange(state.charts),
      smooth: this._smooth,
      stepsPerEpoch: state.steps_per_epoch,
      chosen: this._chosen
    };
    const gone = new Set(this._charts.keys());
    state.charts.forEach((chart, place) => {
      gone.delete(chart.title);
      let view = this._charts.get(chart.title);
      if (view === undefined) {
        view = this._makeChart({
          trans: this._trans,
          syncKey: this._syncKey,
          onZoom: range => this._setZoom(range)
        });
        this._charts.set(chart.title, view);
      }
      if (this._grid.children[place] !== view.node) {
        this._grid.insertBefore(view.node, this._grid.children[place] ?? null);
      }
      view.update(chart, frame);
    });
    for (const title of gone) {
      const view = this._charts.get(title);
      view?.node.remove();
      view?.dispose();
      this._charts.delete(title);
    }
  }

  private _setZoom(range: [number, number] | null): void {
    this._zoom = range;
    this._draw();
  }

  private _moreText(names: readonly string[]): string {
    if (names.length === 0) {
      return '';
    }
    const count = this._trans._n('%1 more metric', '%1 more metrics', names.length);
    return `${count}: ${names.slice(0, 8).join(', ')}${names.length > 8 ? ', …' : ''}`;
  }

  private _toggle(label: string, on: boolean, change: (on: boolean) => void): HTMLElement {
    const button = h(
      'button.det-button.det-mod-small',
      { type: 'button', 'aria-pressed': String(on) },
      label
    );
    button.addEventListener('click', () => {
      const pressed = button.getAttribute('aria-pressed') !== 'true';
      setAttribute(button, 'aria-pressed', String(pressed));
      change(pressed);
      this._draw();
    });
    return button;
  }

  private _tableOf(chart: IChart): HTMLElement {
    const series = chart.series.filter(one => !one.is_faint);
    return dataTable({
      caption: chart.title,
      head: [this._trans.__('Step'), ...series.map(one => one.label)],
      rows: tableSteps({ ...chart, series }, TABLE_ROWS).map(step => [
        String(step),
        ...series.map(one => {
          const place = placeAt(one, step);
          return place < 0 ? '–' : formatNumber(one.values[place] ?? null);
        })
      ]),
      isNumber: () => true
    });
  }

  private readonly _syncKey: string;
  private readonly _smoothButton: HTMLElement;
  private readonly _tableButton: HTMLElement;
  private readonly _resetButton: HTMLElement;
  private readonly _empty = h('p.det-empty');
  private readonly _grid = h('div.det-grid');
  private readonly _tables = h('div.det-grid');
  private readonly _more = h('p.det-quiet');
  private readonly _rebuildTables = rebuilder(this._tables, (charts: IChart[]) =>
    charts.map(chart => this._tableOf(chart))
  );
  private readonly _charts = new Map<string, IChartView>();
  private _state: IBoardData | undefined;
  private _zoom: [number, number] | null = null;
  private _chosen: number | null = null;
  private _smooth = true;
  private _table = false;
}

/** All charts show the same steps, so that one pointer reads them all. */
function wholeRange(charts: readonly IChart[]): [number, number] {
  const ends = charts.flatMap(chart =>
    chart.series.flatMap(one => [one.steps[0] ?? 0, one.steps.at(-1) ?? 0])
  );
  return [Math.min(0, ...ends), Math.max(1, ...ends)];
}

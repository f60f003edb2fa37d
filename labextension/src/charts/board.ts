/** The charts side by side, or the same as tables; keeps them at one range of their x axis. */
import { alongAxis, AXES, drawnAxis, hasEpochs, placeText, wholeRange } from './axes.js';
import type { IChartOptions, IChartView } from './chart.js';
import { placeAt, smoothingSpan, tableSteps } from './curves.js';
import { dataTable, h, rebuilder, setAttribute, setHidden, setText } from '../dom/dom.js';
import { formatNumber } from '../model/format.js';
import type { IChart } from '../model/state.js';
import type { IChartFrame } from './plot.js';
import { Settings, type Axis, type ISettings } from '../model/settings.js';
import type { ITrans } from '../model/trans.js';
import type { Range } from './uplotparts.js';

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
    private readonly _makeChart: MakeChart,
    private readonly _settings: Settings = new Settings()
  ) {
    this._syncKey = `det-board-${(numBoards += 1)}`;
    this._axisSelect = this._makeAxisSelect();
    this._logXButton = this._toggle(_trans.__('Log x'), 'log_x');
    this._logYButton = this._toggle(_trans.__('Log y'), 'log_y');
    this._smoothButton = this._toggle(_trans.__('Smooth'), 'smooth');
    this._tableButton = this._toggle(_trans.__('Table'), 'table');
    _settings.onChange(() => this._onSettings());
    this._resetButton = h('button.det-button.det-mod-small', { type: 'button' });
    setText(this._resetButton, _trans.__('Whole run'));
    this._resetButton.addEventListener('click', () => this._setZoom(null));
    this.tools = h(
      'div.det-tools',
      {},
      this._resetButton,
      this._axisSelect,
      this._logXButton,
      this._logYButton,
      this._smoothButton,
      this._tableButton
    );
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
    const { log_x, log_y, smooth, table } = this._settings.value;
    const axis = drawnAxis(this._settings.value.axis, charts);
    const drawn = charts.map(chart => alongAxis(chart, axis, log_x && !table));
    setHidden(this._resetButton, this._zoom === null || table);
    this._axisSelect.value = axis;
    const epochs = this._axisSelect.options.item(AXES.indexOf('epoch'));
    setAttribute(epochs as Element, 'disabled', !hasEpochs(charts));
    this._press(this._logXButton, log_x, table);
    this._press(this._logYButton, log_y, table);
    const canSmooth = drawn.some(chart => chart.series.some(one => smoothingSpan(one) > 0));
    this._press(this._smoothButton, smooth, table || !canSmooth);
    this._press(this._tableButton, table, false);
    setHidden(this._grid, table);
    setHidden(this._tables, !table);
    this._rebuildTables(table ? { charts: drawn, axis } : { charts: [], axis });
    if (!table) {
      this._drawCharts(drawn, state, axis);
    }
    setText(this._more, this._moreText(state.more_metrics));
  }

  private _press(button: HTMLElement, on: boolean, isHidden: boolean): void {
    setAttribute(button, 'aria-pressed', String(on));
    setHidden(button, isHidden);
  }

  private _drawCharts(charts: readonly IChart[], state: IBoardData, axis: Axis): void {
    const { log_x, log_y, smooth } = this._settings.value;
    const frame: IChartFrame = {
      range: this._zoom ?? wholeRange(charts, log_x),
      axis,
      logX: log_x,
      logY: log_y,
      smooth,
      stepsPerEpoch: axis === 'step' ? state.steps_per_epoch : null,
      chosen: this._chosen
    };
    const gone = new Set(this._charts.keys());
    charts.forEach((chart, place) => {
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

  private _setZoom(range: Range | null): void {
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

  private _onSettings(): void {
    const { axis, log_x } = this._settings.value;
    if (axis !== this._zoomedAxis || log_x !== this._zoomedLog) {
      this._zoom = null; // its numbers are of another axis
    }
    [this._zoomedAxis, this._zoomedLog] = [axis, log_x];
    this._draw();
  }

  private _makeAxisSelect(): HTMLSelectElement {
    const trans = this._trans;
    const names: Record<Axis, string> = {
      step: trans.__('by batch'),
      epoch: trans.__('by epoch'),
      time: trans.__('by time')
    };
    const select = h(
      'select.det-select',
      { 'aria-label': trans.__('X axis'), title: trans.__('Time counts from the first report.') },
      ...AXES.map(axis => h('option', { value: axis }, names[axis]))
    );
    select.addEventListener('change', () => {
      this._settings.change({ axis: select.value as Axis });
    });
    return select;
  }

  private _toggle(label: string, name: keyof ISettings): HTMLElement {
    const button = h('button.det-button.det-mod-small', { type: 'button' }, label);
    button.addEventListener('click', () => {
      const pressed = button.getAttribute('aria-pressed') !== 'true';
      this._settings.change({ [name]: pressed });
    });
    return button;
  }

  private _tableOf(chart: IChart, axis: Axis): HTMLElement {
    const series = chart.series.filter(one => !one.is_faint);
    return dataTable({
      caption: chart.title,
      head: [this._axisTitle(axis), ...series.map(one => one.label)],
      rows: tableSteps({ ...chart, series }, TABLE_ROWS).map(step => [
        axis === 'step' ? String(step) : placeText(axis, step, this._trans),
        ...series.map(one => {
          const place = placeAt(one, step);
          return place < 0 ? '–' : formatNumber(one.values[place] ?? null);
        })
      ]),
      isNumber: () => true
    });
  }

  private _axisTitle(axis: Axis): string {
    const trans = this._trans;
    return { step: trans.__('Step'), epoch: trans.__('Epoch'), time: trans.__('Time') }[axis];
  }

  private readonly _syncKey: string;
  private readonly _axisSelect: HTMLSelectElement;
  private readonly _logXButton: HTMLElement;
  private readonly _logYButton: HTMLElement;
  private readonly _smoothButton: HTMLElement;
  private readonly _tableButton: HTMLElement;
  private readonly _resetButton: HTMLElement;
  private readonly _empty = h('p.det-empty');
  private readonly _grid = h('div.det-grid');
  private readonly _tables = h('div.det-grid');
  private readonly _more = h('p.det-quiet');
  private readonly _rebuildTables = rebuilder(
    this._tables,
    ({ charts, axis }: { charts: IChart[]; axis: Axis }) =>
      charts.map(chart => this._tableOf(chart, axis))
  );
  private readonly _charts = new Map<string, IChartView>();
  private _state: IBoardData | undefined;
  private _zoom: Range | null = null;
  private _chosen: number | null = null;
  private _zoomedAxis: Axis = 'step';
  private _zoomedLog = false;
}

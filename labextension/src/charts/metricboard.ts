/** Shows charts side by side, or as tables, all with the same range of the x axis. */
import { alongAxis, drawnAxis, hasEpochs, placeText, wholeRange } from './axes.js';
import type { IChartOptions, IChartView } from './chart.js';
import { placeAt, smoothingSpan, tableSteps } from './curves.js';
import { dataTable, h, rebuilder, setHidden, setText, smallButton } from '../dom/dom.js';
import { formatNumber } from '../model/format.js';
import type { IChart } from '../model/state.js';
import type { IChartFrame } from './plot.js';
import { Settings, type Axis } from '../model/viewsettings.js';
import type { ITrans } from '../model/trans.js';
import { allowEpochs, axisSelect, press, toggle } from './tools.js';
import type { Range } from './uplotparts.js';

/** The charts of an experiment, or of one trial. */
export interface IBoardData {
  charts: IChart[];
  more_metrics: string[];
  /** Shown instead of charts; empty if there are some. */
  no_metrics: string;
  steps_per_epoch: number | null;
}

export type MakeChart = (options: IChartOptions) => IChartView;

const TABLE_ROWS = 15;
let numBoards = 0;

export class Board {
  readonly node: HTMLElement;
  /** Its buttons; the caller places them. */
  readonly tools: HTMLElement;

  constructor(
    private readonly _trans: ITrans,
    private readonly _makeChart: MakeChart,
    private readonly _settings: Settings = new Settings(),
    /** Whether its zoom is stored in the settings, which have room for one board's. */
    private readonly _keepsZoom = false
  ) {
    const { axis, log_x, zoom } = _settings.value;
    [this._zoomedAxis, this._zoomedLog] = [axis, log_x];
    this._zoom = _keepsZoom ? zoom : null;
    this._syncKey = `det-board-${(numBoards += 1)}`;
    this._axisSelect = axisSelect(_trans, _settings);
    this._logXButton = toggle(_settings, _trans.__('Log x'), 'log_x');
    this._logYButton = toggle(_settings, _trans.__('Log y'), 'log_y');
    this._smoothButton = toggle(_settings, _trans.__('Smooth'), 'smooth');
    this._tableButton = toggle(_settings, _trans.__('Table'), 'table');
    _settings.onChange(() => this._onSettings());
    this._resetButton = smallButton(_trans.__('Whole run'), () => this._setZoom(null));
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

  /** Highlight a trial in charts of several. */
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
    allowEpochs(this._axisSelect, hasEpochs(charts));
    press(this._logXButton, log_x, table);
    press(this._logYButton, log_y, table);
    const canSmooth = drawn.some(chart => smoothingSpan(chart) > 0);
    press(this._smoothButton, smooth, table || !canSmooth);
    press(this._tableButton, table, false);
    setHidden(this._grid, table);
    setHidden(this._tables, !table);
    this._rebuildTables(table ? { charts: drawn, axis } : { charts: [], axis });
    if (!table) {
      this._drawCharts(drawn, state, axis);
    }
    setText(this._more, this._moreText(state.more_metrics));
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
    if (this._keepsZoom) {
      this._settings.change({ zoom: range }); // also draws
    } else {
      this._draw();
    }
  }

  private _moreText(names: readonly string[]): string {
    if (names.length === 0) {
      return '';
    }
    const count = this._trans._n('%1 more metric', '%1 more metrics', names.length);
    return `${count}: ${names.slice(0, 8).join(', ')}${names.length > 8 ? ', …' : ''}`;
  }

  private _onSettings(): void {
    const { axis, log_x, zoom } = this._settings.value;
    if (this._keepsZoom) {
      this._zoom = zoom;
    } else if (axis !== this._zoomedAxis || log_x !== this._zoomedLog) {
      this._zoom = null; // the zoom was in units of the axis before
    }
    [this._zoomedAxis, this._zoomedLog] = [axis, log_x];
    this._draw();
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
  private _zoom: Range | null;
  private _chosen: number | null = null;
  private _zoomedAxis: Axis;
  private _zoomedLog: boolean;
}

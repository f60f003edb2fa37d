/** One chart on the page: uPlot, wrapped here and nowhere else, with legend and keyboard cursor. */
import uPlot from 'uplot';

import { placeText } from './axes.js';
import { h, setAttribute, setHidden, setText } from '../dom/dom.js';
import { formatNumber } from '../model/format.js';
import type { Axis } from '../model/settings.js';
import { Legend } from './legend.js';
import type { IChart } from '../model/state.js';
import {
  HEIGHT,
  isLogY,
  plotColumns,
  plotOptions,
  plotShape,
  type IChartFrame,
  type IPlotSource
} from './plot.js';
import { readTheme, type ITheme } from '../dom/theme.js';
import type { ITrans } from '../model/trans.js';

export interface IChartOptions {
  trans: ITrans;
  /** Charts with the same key show the same step under the pointer. */
  syncKey: string;
  onZoom: (range: [number, number] | null) => void;
}

/** What the view needs of a chart; tests put something simpler in its place. */
export interface IChartView {
  readonly node: HTMLElement;
  update(chart: IChart, frame: IChartFrame): void;
  restyle(): void;
  dispose(): void;
}

/** As it is; uPlot's typings lack the last argument, which moves the other charts' cursors too. */
type SetCursor = (at: { left: number; top: number }, fire: boolean, publish: boolean) => void;

export class MetricChart implements IChartView {
  readonly node: HTMLElement;

  constructor(private readonly _options: IChartOptions) {
    const { trans } = _options;
    this._legend = new Legend(trans);
    this.node = h(
      'figure.det-chart',
      {},
      h('figcaption.det-chart-head', {}, this._title, this._readout),
      this._legend.node,
      this._host,
      h('p.det-empty', { hidden: true }, trans.__('no finite value')),
      this._spoken
    );
    this._host.addEventListener('keydown', event => this._onKey(event));
    this._host.addEventListener('blur', () => this._moveCursor(-10));
    this._sizes = new ResizeObserver(() => this._resize());
    this._sizes.observe(this._host);
  }

  update(chart: IChart, frame: IChartFrame): void {
    this._shown = { chart, frame };
    setText(this._title, chart.title);
    setAttribute(this._host, 'aria-label', this._description(chart));
    this._legend.update(chart, frame.chosen);
    const hasValue = chart.series.some(one => one.lowest !== null && one.steps.length > 0);
    setHidden(this._host.nextElementSibling as HTMLElement, hasValue);
    setHidden(this._host, !hasValue);
    if (hasValue) {
      this._draw();
    }
    this._read(this._plot?.cursor.idx ?? null);
  }

  /** Take over changed colours. */
  restyle(): void {
    if (this._plot !== undefined) {
      this._theme = readTheme(this.node);
      this._plot.redraw(false, true);
    }
  }

  dispose(): void {
    this._sizes.disconnect();
    this._plot?.destroy();
    this._plot = undefined;
  }

  private _description(chart: IChart): string {
    const { trans } = this._options;
    return [
      trans.__('%1 %2', chart.title, this._axisText()),
      ...chart.series
        .filter(one => !one.is_faint)
        .map(one => `${one.label} ${formatNumber(one.last)}`),
      trans.__('arrow keys read it step by step')
    ].join(', ');
  }

  private _draw(): void {
    const width = this._host.clientWidth;
    if (this._shown === undefined || width === 0) {
      return; // not laid out: the ResizeObserver calls again
    }
    const { chart, frame } = this._shown;
    const shape = plotShape(chart, frame);
    const columns = plotColumns(chart, frame);
    if (this._plot !== undefined && shape === this._shape) {
      this._plot.setData(columns);
      return;
    }
    this._plot?.destroy();
    this._shape = shape;
    this._theme = readTheme(this.node);
    this._plot = new uPlot(plotOptions(this._source(), width), columns, this._host);
  }

  private _source(): IPlotSource {
    const shown = (): { chart: IChart; frame: IChartFrame } =>
      this._shown as { chart: IChart; frame: IChartFrame };
    return {
      chart: () => shown().chart,
      frame: () => shown().frame,
      theme: () => this._theme as ITheme,
      syncKey: this._options.syncKey,
      onCursor: place => this._read(place),
      onZoom: this._options.onZoom
    };
  }

  /** Show the values at a place of the x column; `null` shows the newest. */
  private _read(place: number | null): void {
    const { trans } = this._options;
    const step = place === null ? undefined : this._plot?.data[0][place];
    const frame = this._shown?.frame;
    if (step === undefined || frame === undefined) {
      setText(this._readout, this._axisText());
      this._legend.read(null);
      return;
    }
    const parts = [placeText(frame.axis, step, trans)];
    const { stepsPerEpoch } = frame;
    if (stepsPerEpoch !== null) {
      parts.push(trans.__('epoch %1', (step / stepsPerEpoch).toFixed(1)));
    }
    setText(this._readout, parts.join(' · '));
    this._legend.read(step);
  }

  private _axisText(): string {
    const { trans } = this._options;
    const { chart, frame } = this._shown ?? {};
    const names: Record<Axis, string> = {
      step: trans.__('by batch'),
      epoch: trans.__('by epoch'),
      time: trans.__('by time')
    };
    const isLog = chart !== undefined && frame !== undefined && isLogY(chart, frame);
    return names[frame?.axis ?? 'step'] + (isLog ? ` · ${trans.__('log, above 0 only')}` : '');
  }

  private _onKey(event: KeyboardEvent): void {
    const plot = this._plot;
    const last = (plot?.data[0].length ?? 0) - 1;
    const now = plot?.cursor.idx ?? last;
    const places: Record<string, number> = {
      ArrowLeft: now - 1,
      ArrowRight: now + 1,
      Home: 0,
      End: last
    };
    const wanted = places[event.key];
    if (plot === undefined || wanted === undefined) {
      return;
    }
    event.preventDefault();
    event.stopPropagation(); // the notebook moves between cells by these keys
    const place = Math.min(last, Math.max(0, wanted));
    this._moveCursor(plot.valToPos(plot.data[0][place] as number, 'x'));
    setText(this._spoken, `${this._readout.textContent}: ${this._legend.text()}`);
  }

  /** Move the cursor of all charts; a negative place takes it away. */
  private _moveCursor(left: number): void {
    const top = left < 0 ? left : HEIGHT / 2;
    (this._plot?.setCursor as SetCursor | undefined)?.({ left, top }, true, true);
  }

  private _resize(): void {
    const width = this._host.clientWidth;
    if (this._plot === undefined) {
      this._draw();
    } else if (width > 0 && this._plot.width !== width) {
      this._plot.setSize({ width, height: HEIGHT });
    }
  }

  private readonly _title = h('span.det-chart-title');
  private readonly _readout = h('span.det-quiet');
  private readonly _legend: Legend;
  private readonly _host = h('div.det-plot', { role: 'img', tabindex: 0 });
  private readonly _spoken = h('div.det-unseen', { 'aria-live': 'polite' });
  private readonly _sizes: ResizeObserver;
  private _shown: { chart: IChart; frame: IChartFrame } | undefined;
  private _plot: uPlot | undefined;
  private _shape = '';
  private _theme: ITheme | undefined;
}
